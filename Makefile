# make run    check every target that can run here, print the report
# make test   the whole test suite, VM tests included
# make help   lists the rest

GO     ?= go
# Guests of these architectures are built for; all code has to pass for each.
ARCHES := amd64 ppc64le s390x loong64
# What to run: make run TARGETS=x86-kvm FLAGS='-o /tmp/results'
TARGETS ?=
FLAGS   ?=

export CGO_ENABLED = 0

.PHONY: dist run test short bench lint fmt build fetch clean help

run: build
	./bin/pvabi run $(FLAGS) $(TARGETS)

# -count=1: a VM test is about this machine and its cache, too. -p 1: the guests of two
# packages would compete for its cores; what can be done side by side, compiling, is done
# before.
test: build
	./bin/pvabi fetch $(TARGETS)
	$(GO) test -count=1 -run '^$$' ./... >/dev/null
	$(GO) test -count=1 -p 1 -timeout 60m ./...

short:
	$(GO) test -short ./...

bench: build
	./bin/pvabi fetch $(TARGETS)
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./vmtests

lint:
	@bad=$$(gofmt -s -l .); if [ -n "$$bad" ]; then echo "gofmt -s would change:"; echo "$$bad"; exit 1; fi
	@for a in $(ARCHES); do echo "go vet, GOARCH=$$a"; GOARCH=$$a $(GO) vet ./... || exit 1; done
	@for s in darwin windows; do echo "go vet, GOOS=$$s"; GOOS=$$s GOARCH=arm64 $(GO) vet ./... || exit 1; done
	@echo staticcheck; $(GO) tool staticcheck ./...
	@$(GO) mod tidy -diff

fmt:
	gofmt -s -w .

build: bin/pvabi

.PHONY: bin/pvabi
bin/pvabi:
	$(GO) build -o $@ ./cmd/pvabi

# The lowest level of each instruction set, so that it runs wherever it is taken.
dist:
	@for a in $(ARCHES); do echo "dist/pvabi-$$a"; \
		GOOS=linux GOARCH=$$a GOAMD64=v1 GOPPC64=power8 $(GO) build -trimpath -ldflags='-s -w' -o dist/pvabi-$$a ./cmd/pvabi || exit 1; done

fetch: build
	./bin/pvabi fetch $(FLAGS) $(TARGETS)

clean:
	rm -rf bin dist results

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo "make short  tests without VMs; make bench  where the time goes; make lint, fmt, build, dist, fetch, clean"

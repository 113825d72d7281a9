package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/internal/store"
)

// documented has every command line that stands in a block of its own in README.md and
// in docs, and what runs it: here is TestDocumented, and other names are of tests that
// run the same with what takes a guest, as file:function.
var documented = map[string]string{
	"make run":  "vmtests/conformance_test.go:TestConformance",
	"make test": "vmtests/conformance_test.go:TestConformance",
	"go test ./vmtests -run TestConformance/x86-kvm/kick":                                                      "vmtests/conformance_test.go:TestConformance",
	"bin/pvabi run -kernel arch/x86/boot/bzImage -modules /tmp/mods/lib/modules/RELEASE x86-kvm":               "cmd/pvabi/documents_test.go:TestOwnKernel",
	"bin/pvabi run -o before -kernel bzImage.old x86-kvm":                                                      "cmd/pvabi/documents_test.go:TestOwnKernel",
	"bin/pvabi run -o after -kernel bzImage.new x86-kvm":                                                       "cmd/pvabi/documents_test.go:TestOwnKernel",
	"bin/pvabi run -against before/results.json -kernel bzImage.new x86-kvm":                                   "cmd/pvabi/documents_test.go:TestOwnKernel",
	"bin/pvabi check -linux ~/linux":                                                                           "cmd/pvabi/documents_test.go:TestOwnKernel",
	"bin/pvabi check -bisect -format summary -rules kick/wakes-waiter -linux ~/linux x86-kvm":                  "cmd/pvabi/documents_test.go:TestOwnKernel",
	"bin/pvabi run -bisect -format summary -rules kick/wakes-waiter -module kvm.ko -module kvm-amd.ko x86-kvm": "cmd/pvabi/documents_test.go:TestOwnKernel",
	"bin/pvabi run -o planted -format summary -rules 'privilege/*' -module kvm.ko -module kvm-amd.ko x86-kvm":  "cmd/pvabi/documents_test.go:TestOwnKernel",
	"bin/pvabi drift -linux linux-6.1":                                                                         "internal/drift/drift_test.go:TestTreeThatMoved",
	"bin/pvabi diff before/results.json after/results.json":                                                    here,
	"bin/pvabi matrix -plan -format github":                                                                    here,
	"bin/pvabi matrix -plan -format gitlab -image golang:1.26-trixie > matrix.yml":                             here,
	"bin/pvabi matrix -plan -shard 1/4":                                                                        here,
	"bin/pvabi matrix -o results x86-kvm powerpc-qemu powerpc-kvm s390-qemu":                                   "cmd/pvabi/matrix_test.go:TestPlan",
	"bin/pvabi report -versions - results/*":                                                                   here,
	"bin/pvabi bench":                                                                                          "vmtests/conformance_test.go:TestMeasure",
	"bin/pvabi bench -rounds 20 x86-kvm":                                                                       "vmtests/conformance_test.go:TestMeasure",
	"go run golang.org/x/perf/cmd/benchstat@latest -col /areas results/bench.txt":                              "internal/bench/bench_test.go:TestWriteGo",
	"make dist":               "cmd/pvabi/agent_linux_test.go:TestAgent",
	"pvabi agent -list":       "cmd/pvabi/agent_linux_test.go:TestAgent",
	"pvabi agent":             "cmd/pvabi/agent_linux_test.go:TestAgent",
	"pvabi agent -self-check": "cmd/pvabi/agent_linux_test.go:TestAgent",
	"pvabi agent -o before":   "cmd/pvabi/agent_linux_test.go:TestAgent",
	"pvabi agent -disturb -o results -hypervisor-version RELEASE": "cmd/pvabi/agent_linux_test.go:TestAgent",
}

const here = "here"

var (
	inBlock = regexp.MustCompile(`(?m)^    (?:(?:[a-z]*#|\$) )?(?:\./)?((?:bin/pvabi|pvabi|make|go) .*)$`)
	inText  = regexp.MustCompile("`((?:bin/)?pvabi [^`]+|make [a-z]+|\\.ci/run|go test [^`]+)`")
	inCI    = regexp.MustCompile(`(?:make|bin/pvabi|\./pvabi) [^&|>)\]\n\x60]+`)
	image   = regexp.MustCompile(`golang:([0-9.]+)-([a-z]+)`)
	comment = regexp.MustCompile(`\s+#.*$`)
	// Documents that are made from tables hold no commands but that which makes them.
	made = regexp.MustCompile(`^(abi-.*|portable|history|findings|defects)\.md$`)
)

// documents returns the text of each document of people's.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	texts := map[string]string{}
	for _, name := range append(names, "../../README.md") {
		if made.MatchString(filepath.Base(name)) {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		texts[strings.TrimPrefix(name, "../../")] = string(text)
	}
	return texts
}

// TestDocumented runs what the documents say can be run, or holds that a test does, and
// that every command and flag that they name exists.
func TestDocumented(t *testing.T) {
	texts := documents(t)
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	found := map[string]bool{}
	for name, text := range texts {
		for _, m := range inBlock.FindAllStringSubmatch(text, -1) {
			line := comment.ReplaceAllString(m[1], "")
			found[line] = true
			exists(t, name, line, string(makefile))
			assert.NotEmpty(t, documented[line], "%s: %q is in no test; run it in one, and list it in documented", name, line)
		}
		for _, m := range inText.FindAllStringSubmatch(text, -1) {
			exists(t, name, m[1], string(makefile))
		}
	}
	for line, test := range documented {
		assert.True(t, found[line], "no document has %q", line)
		if file, function, ok := strings.Cut(test, ":"); ok {
			text, err := os.ReadFile(filepath.Join("../..", file))
			require.NoError(t, err)
			assert.Contains(t, string(text), "func "+function+"(t *testing.T)", line)
		}
	}

	files(t, map[string]string{"before/results.json": report, "after/results.json": report, "results/results.json": report})
	for _, line := range slices.Sorted(maps.Keys(documented)) {
		if documented[line] != here {
			continue
		}
		args, _, _ := strings.Cut(line, " > ")
		var words []string
		for _, word := range strings.Fields(args)[1:] {
			if names, err := filepath.Glob(word); err == nil && names != nil { // as a shell does
				words = append(words, names...)
			} else {
				words = append(words, word)
			}
		}
		status, stdout, stderr := call(t.Context(), words...)
		assert.Zero(t, status, "%s: %s", line, stderr)
		assert.NotEmpty(t, stdout, line)
	}
}

// TestCI holds the files for CI engines and containers to the commands, flags and targets of
// make that there are, and to the version of Go that go.mod wants.
func TestCI(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	wanted := regexp.MustCompile(`(?m)^go ([0-9]+\.[0-9]+)`).FindStringSubmatch(string(module))[1]
	names := []string{"../../.gitlab-ci.yml"}
	for _, pattern := range []string{"../../.ci/*", "../../.github/workflows/*"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		names = append(names, more...)
	}
	for name, least := range map[string]int{"Containerfile": 1, "run": 2, "lava.yml": 1, "pvabi.yml": 4, ".gitlab-ci.yml": 2} {
		i := slices.IndexFunc(names, func(n string) bool { return filepath.Base(n) == name })
		require.GreaterOrEqual(t, i, 0, name)
		text, err := os.ReadFile(names[i])
		require.NoError(t, err)
		lines := inCI.FindAllString(string(text), -1)
		assert.GreaterOrEqual(t, len(lines), least, "%s: commands", name)
		for _, line := range lines {
			exists(t, name, line, string(makefile))
		}
		for _, m := range image.FindAllStringSubmatch(string(text), -1) {
			assert.Equal(t, wanted, m[1], "%s: Go as go.mod has it", name)
			assert.Contains(t, suites, m[2], name)
		}
		assert.Equal(t, name == "Containerfile" || name == ".gitlab-ci.yml", image.Match(text), "%s: an image with Go", name)
	}
}

// exists holds that a command line of a document is one that could be: its command, its
// flags, make's target.
func exists(t *testing.T, document, line, makefile string) {
	t.Helper()
	words := strings.Fields(line)
	switch filepath.Base(words[0]) {
	case "make":
		for _, target := range words[1:] {
			if strings.Contains(target, "=") || target == "modules_install" { // the kernel's
				continue
			}
			assert.Regexp(t, `(?m)^`+target+`:`, makefile, "%s: %s", document, line)
		}
	case "pvabi":
		if words[1] == "COMMAND" {
			return
		}
		require.Contains(t, commands, words[1], "%s: %s", document, line)
		_, _, usage := call(t.Context(), words[1], "-h")
		for _, w := range words[2:] {
			if strings.HasPrefix(w, "-") {
				assert.Regexp(t, `(?m)^  `+regexp.QuoteMeta(w)+`\b`, usage, "%s: %s", document, line)
			}
		}
	}
}

// TestReadable holds the README within two screens, and every link of the documents to a
// file that there is.
func TestReadable(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for name, text := range documents(t) {
		if name == "README.md" {
			assert.LessOrEqual(t, strings.Count(text, "\n"), 110, "README.md")
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join("../..", filepath.Dir(name), m[1]))
			assert.NoError(t, err, name)
		}
	}
}

// TestOwnKernel checks a kernel as README.md and docs/kernels.md say, with one rule.
func TestOwnKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a guest; not done under -short")
	}
	dir, err := store.DefaultDir() // files has one of its own
	require.NoError(t, err)
	s, err := store.Open(dir, store.NewProgress(os.Stderr))
	require.NoError(t, err)
	kernel, err := s.Kernel(t.Context(), store.KernelSpec{GOARCH: "amd64"})
	if err != nil {
		t.Skipf("cannot run here: no kernel: %v", err)
	}
	files(t, map[string]string{"before/results.json": `{"schema":1,"runs":[{"target":"x86-kvm","results":[{"rule":"x86-kvm/kick/wakes-waiter","verdict":"pass"}]}]}`})
	t.Setenv("PVABI_CACHE", dir)
	require.NoError(t, os.MkdirAll("arch/x86/boot", 0o755))
	require.NoError(t, os.Symlink(kernel.Image, "arch/x86/boot/bzImage"))
	own, err := filepath.Glob(filepath.Join(kernel.Modules, "kernel/arch/x86/kvm/kvm.ko*"))
	require.NoError(t, err)
	require.Len(t, own, 1)
	status, stdout, stderr := call(t.Context(), "check", "-v", "-bisect", "-module", own[0], "-format", "ktap", "-rules", "kick/wakes-waiter", "-o", "after", "-against", "before/results.json",
		"-kernel", "arch/x86/boot/bzImage", "-modules", kernel.Modules, "x86-kvm")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "ok 1 x86-kvm/kick/wakes-waiter # pass")
	assert.Contains(t, stderr, "x86-kvm: pvabi: agent: ", "-v prints the console")
	assert.Contains(t, stderr, "no rule has another verdict")
	assert.Equal(t, []string{"results.json", "x86-kvm.console"}, entries(t, "after"))
	after, err := os.ReadFile("after/results.json")
	require.NoError(t, err)
	assert.Contains(t, string(after), `"path": "`+own[0]+`"`, "-module is what the guest loaded")
	assert.Empty(t, entries(t, "tmp"))
}

// TestLAVA has a report told to LAVA, in whose place a script prints what it is given.
func TestLAVA(t *testing.T) {
	script, err := filepath.Abs("../../.ci/lava")
	require.NoError(t, err)
	report, err := os.Open("../../conformance/testdata/results.ktap")
	require.NoError(t, err)
	defer report.Close()
	files(t, map[string]string{"bin/lava-test-case": "#!/bin/sh\necho $@\n"})
	t.Setenv("PATH", "bin:"+os.Getenv("PATH"))
	c := exec.CommandContext(t.Context(), "sh", script)
	c.Stdin = report
	out, err := c.Output()
	assert.ErrorContains(t, err, "exit status 1", "a rule failed")
	want := ""
	for _, r := range []string{"pass pass", "fail fail", "deviates pass", "mended pass", "absent skip", "unreached skip", "error fail"} {
		want += "x86-kvm.kick." + strings.Replace(r, " ", " --result ", 1) + "\n"
	}
	assert.Equal(t, want, string(out))
}

package store

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// record is one paragraph of a package index (Debian Policy 5.1 and 5.3).
type record struct {
	Package
	Section string
	Size    int64 // of the package file, in bytes
	// depends names the packages of Depends and Pre-Depends, all alternatives
	// included, without their version relations.
	depends []string
}

// parseRecords reads what apt-cache show and apt-cache search --full print.
// Paragraphs without name, version and architecture are left out.
func parseRecords(r io.Reader) ([]record, error) {
	var out []record
	var rec record
	flush := func() {
		if rec.Name != "" && rec.Version != "" && rec.Arch != "" {
			out = append(out, rec)
		}
		rec = record{}
	}
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("reading package records: %w", err)
		}
		line = strings.TrimRight(line, "\r\n")
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case line == "":
			flush()
		case line[0] == ' ' || line[0] == '\t': // continues a field that is not read
		case key == "Package":
			rec.Name = value
		case key == "Version":
			rec.Version = value
		case key == "Architecture":
			rec.Arch = value
		case key == "SHA256":
			rec.SHA256 = value
		case key == "Section":
			rec.Section = value
		case key == "Size":
			rec.Size, _ = strconv.ParseInt(value, 10, 64) // shown only
		case key == "Depends" || key == "Pre-Depends":
			rec.depends = append(rec.depends, parseDepends(value)...)
		}
		if err == io.EOF {
			flush()
			return out, nil
		}
	}
}

// parseDepends returns the names in a relation field such as
// "libc6 (>= 2.43), libaio1 | libaio1t64:any" (Debian Policy 7.1).
func parseDepends(value string) []string {
	var names []string
	for _, alternative := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '|' }) {
		name, _, _ := strings.Cut(strings.TrimSpace(alternative), " ")
		name, _, _ = strings.Cut(name, "(")
		name, _, _ = strings.Cut(name, ":")
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// debName matches a package file's name as apt prints it: name, version with
// the epoch's colon escaped, architecture.
var debName = regexp.MustCompile(`^([a-z0-9][a-z0-9.+-]*)_([A-Za-z0-9.+~%-]+)_([a-z0-9-]+)\.deb$`)

// parseURIs reads what apt-get --print-uris prints, one line for a file:
// 'address' name_version_arch.deb size hash. Other lines are skipped.
func parseURIs(text string) []Package {
	var out []Package
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(fields[0], "'") {
			continue
		}
		m := debName.FindStringSubmatch(fields[1])
		if m == nil {
			continue
		}
		version, err := url.PathUnescape(m[2])
		if err != nil {
			continue
		}
		out = append(out, Package{Name: m[1], Version: version, Arch: m[3]})
	}
	return out
}

// libraries returns the packages that a program needs for its shared libraries:
// those of Debian's section "libs" that are reached from the packages in from
// through packages of that section only. A library's package depends on the
// packages of the libraries that it was linked with (Debian Policy 8.6), so the
// rest of the closure (an init system, for one) serves other ends.
func libraries(closure []record, from ...string) []record {
	byName := make(map[string]record, len(closure))
	for _, r := range closure {
		byName[r.Name] = r
	}
	var out []record
	seen := make(map[string]bool)
	for todo := from; len(todo) > 0; todo = todo[1:] {
		for _, name := range byName[todo[0]].depends {
			if r := byName[name]; r.Section == "libs" && !seen[name] {
				seen[name] = true
				out = append(out, r)
				todo = append(todo, name)
			}
		}
	}
	return out
}

// mirrorFormat asks apt-get indextargets for what labelledMirror reads.
const mirrorFormat = "$(LABEL)|$(COMPONENT)|$(SITE)"

// labelledMirror picks the mirror of Debian's main archive out of a list of
// downloaded indexes. It is known by the label in its signed Release file.
func labelledMirror(text string) (string, bool) {
	for line := range strings.Lines(text) {
		site, ok := strings.CutPrefix(strings.TrimSpace(line), "Debian|main|")
		if ok && checkMirror(site) == nil {
			return strings.TrimRight(site, "/"), true
		}
	}
	return "", false
}

// namedMirror picks it out of what apt-get update --print-uris would fetch. On a
// machine that has not fetched anything there is only the name to know it by:
// its last element is debian, or, on Debian's cloud images, debian.list, a file
// that lists mirrors.
func namedMirror(text string) (string, bool) {
	for line := range strings.Lines(text) {
		address, ok := strings.CutPrefix(line, "'")
		if !ok {
			continue
		}
		site, _, ok := strings.Cut(address, "/dists/")
		if ok && (strings.HasSuffix(site, "/debian") || strings.HasSuffix(site, "/debian.list")) && checkMirror(site) == nil {
			return site, true
		}
	}
	return "", false
}

// checkMirror refuses what cannot stand in a sources list.
func checkMirror(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	if u.Scheme == "" || strings.ContainsAny(address, " \t\r\n[]#\"") {
		return fmt.Errorf("%q is not the address of an archive, such as scheme://host/debian", address)
	}
	return nil
}

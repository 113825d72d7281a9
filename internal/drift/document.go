package drift

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// document is a text of the tree that gives numbers or names of the ABI.
type document struct {
	file  string
	looks []look
}

// look finds contradictions between a document and the headers.
type look func(d *text) []Finding

// text is a document as looks see it.
type text struct {
	file  string
	lines []string
	unit  *unit
	table table
}

// read holds one document against the headers. A document that a tree does not have is
// none to hold: some are younger than the ABI.
func (d document) read(tree fs.FS, u *unit, t table) ([]Finding, error) {
	data, err := fs.ReadFile(tree, d.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	doc := &text{file: d.file, lines: scanLines(data), unit: u, table: t}
	var out []Finding
	for _, l := range d.looks {
		out = append(out, l(doc)...)
	}
	return out, nil
}

// say makes a finding about line number i, which counts from 0.
func (d *text) say(i int, name, in string, args ...any) Finding {
	return Finding{Kind: Document, Name: name, Tree: fmt.Sprintf(in, args...), File: d.file, Line: i + 1}
}

// constant is the value of a macro of the headers.
func (d *text) constant(name string) (int64, bool) { return integer(d.unit.ast.Macros[name]) }

var (
	// A section of hypercalls.rst: its number, then the call.
	section = regexp.MustCompile(`^(\d+)\. (KVM_HC_\w+)$`)
	// A label of msr.rst, whose next line has the number.
	label = regexp.MustCompile(`^(MSR_KVM_\w+):$`)
	// A row of a table in cpuid.rst.
	column = regexp.MustCompile(`^((?:KVM|MSR)_\w+)\s+(\d+)\s`)
	// A leaf of CPUID in a text.
	leaf = regexp.MustCompile(`0x(4\d+)\b`)
	// A structure of KVM's.
	structName = regexp.MustCompile(`\bstruct (kvm_\w+)`)
	// A DIAGNOSE code in a heading.
	diagnose = regexp.MustCompile(`^DIAGNOSE function code 'X'([0-9A-F]+)`)
)

// sectionNumbers finds calls whose section has another number than the call. No header
// says that a section's number is the call's, but readers take it for that.
func sectionNumbers(d *text) []Finding {
	var out []Finding
	for i, line := range d.lines {
		m := section.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if v, ok := d.constant(m[2]); ok && m[1] != fmt.Sprint(v) {
			out = append(out, d.say(i, fmt.Sprintf("section %s describes %s", m[1], m[2]), "its number is %d", v))
		}
	}
	return out
}

// labelledNumbers holds the numbers that follow a label against the headers.
func labelledNumbers(d *text) []Finding {
	var out []Finding
	for i, line := range d.lines {
		m := label.FindStringSubmatch(line)
		if m == nil || i+1 == len(d.lines) {
			continue
		}
		number, err := strconv.ParseInt(strings.TrimSpace(d.lines[i+1]), 0, 64)
		if err != nil {
			continue
		}
		if v, ok := d.constant(m[1]); ok && v != number {
			out = append(out, d.say(i, fmt.Sprintf("%s is said to be %#x", m[1], number), "it is %#x", v))
		}
	}
	return out
}

// columnNumbers holds a table's names and numbers against the headers.
func columnNumbers(d *text) []Finding {
	var out []Finding
	for i, line := range d.lines {
		m := column.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if v, ok := d.constant(m[1]); ok && m[2] != fmt.Sprint(v) {
			out = append(out, d.say(i, fmt.Sprintf("%s is said to be %s", m[1], m[2]), "it is %d", v))
		}
	}
	return out
}

// unknownNames finds names of the table's families, and of its structs, that the headers
// do not have, and names that the document of the whole family leaves out.
func unknownNames(d *text) []Finding {
	var out []Finding
	said := map[string]bool{}
	enumerators := d.unit.enumerators()
	for i, line := range d.lines {
		for _, name := range identifiers(line) {
			// A name that ends so stands for several: KVM_HC_*.
			if strings.HasSuffix(name, "_") || said[name] {
				continue
			}
			of := func(f family) bool { return strings.HasPrefix(name, f.prefix) && len(f.prefix) > 2 }
			if !slices.ContainsFunc(d.table.families, of) || d.unit.ast.Macros[name] != nil || enumerators[name] != nil {
				continue
			}
			said[name] = true
			out = append(out, d.say(i, name, "no header has it"))
		}
		for _, m := range structName.FindAllStringSubmatch(line, -1) {
			tag := m[1]
			if said[tag] || d.unit.structs[tag] != nil {
				continue
			}
			said[tag] = true
			out = append(out, d.say(i, "struct "+tag, "no header has it"))
		}
	}
	return out
}

// undescribed lists calls and features of the headers that the document does not name.
func undescribed(d *text) []Finding {
	said := map[string]bool{}
	for _, line := range d.lines {
		for _, name := range identifiers(line) {
			said[name] = true
		}
	}
	var out []Finding
	for _, b := range d.table.bindings(d.table.abi()) {
		if call := strings.HasPrefix(b.number, "calls/") || strings.HasPrefix(b.number, "features/"); call && !said[b.c] {
			out = append(out, d.say(-1, b.c, "the document does not describe it"))
		}
	}
	return out
}

// cpuidLeaves finds leaves that are none of KVM's.
func cpuidLeaves(d *text) []Finding {
	p := d.table.abi()
	first, last := p.Word("first-leaf"), p.Word("max-leaf")
	var out []Finding
	for i, line := range d.lines {
		for _, m := range leaf.FindAllStringSubmatch(line, -1) {
			// What does not begin like a leaf may be anything, a register's number too.
			n, err := strconv.ParseUint(m[1], 16, 64)
			if err != nil || !strings.HasPrefix(m[1], "4000") || n >= first && n <= last || n == p.Word("leaf-step")+first {
				continue
			}
			out = append(out, d.say(i, "leaf 0x"+m[1], "KVM's leaves are %#x to %#x", first, last))
		}
	}
	return out
}

// diagnoseCodes finds codes in headings that abi does not know, and codes of abi that
// no heading is about.
func diagnoseCodes(d *text) []Finding {
	p := d.table.abi()
	known := map[uint64]string{}
	for _, c := range p.Calls {
		if p.ConventionOf(c.Name).Name == "DIAGNOSE" {
			known[c.Number] = c.Name
		}
	}
	known[0x500] = "virtio"
	described := map[uint64]bool{}
	var out []Finding
	for i, line := range d.lines {
		m := diagnose.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		n, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			continue
		}
		described[n] = true
		if known[n] == "" {
			out = append(out, d.say(i, fmt.Sprintf("DIAGNOSE %#x", n), "abi does not have it"))
		}
	}
	for _, c := range p.Calls {
		if known[c.Number] == c.Name && !c.Undefined && !described[c.Number] && len(described) > 0 {
			f := d.say(-1, fmt.Sprintf("DIAGNOSE %#x (%s)", c.Number, c.Name), "the document does not describe it")
			out = append(out, f)
		}
	}
	return out
}

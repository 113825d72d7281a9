// Package drift holds a kernel tree, or a built kernel, against the tables of package
// abi without booting anything: did a number, a bit or a layout move, and is there
// something new that the tables do not know?
//
// A tree's headers are read by a C front end, so that macros mean what they mean to a
// compiler. Each header is read by itself: of what it includes only the other headers
// of the same table are read, since everything else is outside of the ABI and much of
// it exists in configured trees only. A few typedefs and macros of ours, the prelude,
// stand in for it. Which C name stands for which number of abi is said by one table
// for each platform, in the file named after it.
//
// A built kernel has no macros any more. Its type information, BTF or DWARF, holds
// layouts and enumerations, and that is what is held then.
//
// Documentation is read as text. A document that contradicts the tree that it is part
// of is a finding of its own kind.
package drift

import (
	"fmt"
	"slices"
	"strings"

	"pvabi/abi"
)

// Kind says in which way tree and abi differ.
type Kind string

// The kinds of findings.
const (
	Differs  Kind = "differs"  // both have it, with different values
	Gone     Kind = "gone"     // abi has it, the tree does not
	New      Kind = "new"      // the tree has it, abi does not
	Later    Kind = "later"    // the tree is older than what abi has; no drift
	Document Kind = "document" // a document of the tree contradicts its headers; no drift
)

// Drift tells whether the finding means that tree and abi have drifted apart.
func (k Kind) Drift() bool { return k == Differs || k == Gone || k == New }

// Finding is one difference.
type Finding struct {
	Kind Kind `json:"kind"`
	// Number is the path of the number in the platform's table, as abi.Platform.Set
	// takes it; empty where abi does not have it.
	Number string `json:"number,omitempty"`
	// Name is what the tree calls it: an expression of C, or words of a document.
	Name string `json:"name"`
	// ABI and Tree are the two values; empty where there is none.
	ABI  string `json:"abi,omitempty"`
	Tree string `json:"tree,omitempty"`
	// File and Line say where in the tree; Line is 0 if not known.
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	// Note says what else is known.
	Note string `json:"note,omitempty"`
}

// Key renders the finding without where it was found, so that it is the same in another version.
func (f Finding) Key() string {
	f.File, f.Line, f.Note = "", 0, ""
	return string(f.Kind) + ": " + strings.TrimSuffix(f.String(), " ()")
}

// String renders the finding as one line.
func (f Finding) String() string {
	where := f.File
	if f.Line > 0 {
		where += fmt.Sprintf(":%d", f.Line)
	}
	var out string
	switch f.Kind {
	case Differs:
		out = fmt.Sprintf("%s: abi has %s, %s is %s (%s)", f.Number, f.ABI, f.Name, f.Tree, where)
	case Gone:
		out = fmt.Sprintf("%s: abi has %s, and there is no %s (%s)", f.Number, f.ABI, f.Name, where)
	case Later:
		out = fmt.Sprintf("%s: abi has %s, and there is no %s yet (%s)", f.Number, f.ABI, f.Name, where)
	case New:
		out = fmt.Sprintf("%s is %s and is not in abi (%s)", f.Name, f.Tree, where)
	case Document:
		out = fmt.Sprintf("%s: %s (%s)", where, f.Name, f.Tree)
	}
	if f.Note != "" {
		out += ": " + f.Note
	}
	return out
}

// Platform is what was found for one platform.
type Platform struct {
	Name string `json:"name"`
	// Held is how many numbers of abi were held against the tree, Files what they
	// were read from, in the tree.
	Held  int      `json:"held"`
	Files []string `json:"files"`
	// Unheld lists the numbers of abi that this source does not state, as paths;
	// they come from code or from the architecture, and only a run can look at them.
	Unheld   []string  `json:"unheld,omitempty"`
	Findings []Finding `json:"findings"`
}

// Report is what was found in a tree or kernel.
type Report struct {
	// Source is the folder or file that was read, Version what it says it is.
	Source    string     `json:"source"`
	Version   string     `json:"version"`
	Platforms []Platform `json:"platforms"`
}

// Drifted tells whether anything moved, vanished or is new.
func (r *Report) Drifted() bool {
	return slices.ContainsFunc(r.Platforms, func(p Platform) bool {
		return slices.ContainsFunc(p.Findings, func(f Finding) bool { return f.Kind.Drift() })
	})
}

// Drift lists the keys of what moved, vanished or is new.
func (r *Report) Drift() (keys []string) {
	for _, p := range r.Platforms {
		for _, f := range p.Findings {
			if f.Kind.Drift() {
				keys = append(keys, p.Name+": "+f.Key())
			}
		}
	}
	return keys
}

// Text renders the report for people: a line for each platform, then its findings.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.Source, r.Version)
	for _, p := range r.Platforms {
		count := map[Kind]int{}
		for _, f := range p.Findings {
			count[f.Kind]++
		}
		fmt.Fprintf(&b, "%s: %d numbers held, %d differ, %d gone, %d new", p.Name, p.Held, count[Differs], count[Gone], count[New])
		if n := count[Later]; n > 0 {
			fmt.Fprintf(&b, ", %d not there yet", n)
		}
		if n := count[Document]; n > 0 {
			fmt.Fprintf(&b, ", %d in documents", n)
		}
		b.WriteString("\n")
		for _, f := range p.Findings {
			fmt.Fprintf(&b, "  %-8s %s\n", f.Kind, f)
		}
	}
	return b.String()
}

// Markdown renders the report as a table for each platform that has findings.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n", r.Source, r.Version)
	for _, p := range r.Platforms {
		fmt.Fprintf(&b, "\n## %s\n\n%d numbers held.\n", p.Name, p.Held)
		if len(p.Findings) == 0 {
			continue
		}
		b.WriteString("\n| kind | abi | tree | where |\n|---|---|---|---|\n")
		for _, f := range p.Findings {
			where := f.File
			if f.Line > 0 {
				where = fmt.Sprintf("%s:%d", f.File, f.Line)
			}
			cells := []string{string(f.Kind), strings.TrimSpace(f.Number + " " + f.ABI), strings.TrimSpace(f.Name + " " + f.Tree), where}
			for i := range cells {
				cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	return b.String()
}

// header is a file of C in the tree.
type header struct {
	file string
	// assembler has it read as assembler code does, so that nothing but its macros is
	// left.
	assembler bool
}

// binding says which C expression stands for a number of abi.
type binding struct {
	number string // path in the platform's table
	c      string // the expression, or struct.field for a member's offset or size
	what   what
	// since is the first version of Linux that has it; empty if always.
	since string
}

// what is how a binding's C side is turned into the number in abi.
type what int

const (
	value  what = iota // the expression's value
	bit                // the expression is a mask of one bit, abi has its number
	size               // the size of a type or, for struct.field, of a member
	align              // the alignment of a type
	offset             // the offset of a member
	exists             // a name that has the number in itself; that it exists is all
)

// table binds one platform to the headers of a tree.
type table struct {
	abi func() *abi.Platform
	// goarch selects the C ABI, and the kernels that have type information for it.
	goarch string
	// since is a version of Linux from which on all headers are there; empty if always.
	since string
	// headers are read in this order, each with those before it.
	headers []header
	// prelude is C that goes before the headers: what they need of others.
	prelude string
	// bindings lists what is held.
	bindings func(*abi.Platform) []binding
	// families are prefixes of macros and enumerators that belong to the ABI: a name
	// of a family that no binding mentions is new, unless known says why not.
	families []family
	// documents are read as text.
	documents []document
}

// family is a group of names that the platform's table should know completely.
type family struct {
	prefix string
	// known lists names of the family that are no business of the table, with or
	// without a reason for each; see knownNames.
	known map[string]bool
}

// names makes a set of the words in a text.
func names(text string) map[string]bool {
	out := map[string]bool{}
	for _, n := range strings.Fields(text) {
		out[n] = true
	}
	return out
}

// tables are all platforms' tables.
func tables() []table { return []table{x86KVM(), x86Xen(), loongArch(), powerpcPAPR(), s390()} }

// members binds size, alignment and fields of each layout whose name is that of a
// struct, except the fields named in skip as layout.field.
func members(p *abi.Platform, skip ...string) []binding {
	var out []binding
	for _, l := range p.Layouts {
		if slices.Contains(skip, l.Name) {
			continue
		}
		at := "layouts/" + l.Name
		out = append(out, binding{number: at + "/size", c: l.Name, what: size})
		for _, f := range l.Fields {
			name := l.Name + "." + f.Name
			if slices.Contains(skip, name) {
				continue
			}
			out = append(out,
				binding{number: at + "/fields/" + f.Name + "/offset", c: name, what: offset},
				binding{number: at + "/fields/" + f.Name + "/size", c: name, what: size})
		}
	}
	return out
}

// whole lists the structs of which all fields of abi are bound, with the names of the
// members: of these a member without a binding is new.
func whole(p *abi.Platform, bindings []binding) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, b := range bindings {
		if tag, member, ok := strings.Cut(b.c, "."); ok && b.what == offset {
			if out[tag] == nil {
				out[tag] = map[string]bool{}
			}
			out[tag][member] = true
		}
	}
	for _, l := range p.Layouts {
		if len(out[l.Name]) < len(l.Fields) {
			delete(out, l.Name)
		}
	}
	return out
}

// since is the version of Linux that a feature came with; empty for no feature.
func since(p *abi.Platform, feature string) string {
	if feature == "" {
		return ""
	}
	return p.Feature(feature).Since
}

// judge compares one number.
func judge(p *abi.Platform, b binding, want int64, got lookup, version string) (Finding, bool) {
	f := Finding{Number: b.number, Name: b.c, ABI: number(want), File: got.file, Line: got.line}
	switch b.what {
	case size:
		f.Name = "sizeof " + b.c
	case align:
		f.Name = "alignof " + b.c
	case offset:
		f.Name = "offsetof " + b.c
	}
	if !got.found {
		f.Kind = Gone
		if b.since != "" && older(version, b.since) {
			f.Kind = Later
			f.Note = "since " + b.since
		}
		return f, false
	}
	if b.what == bit {
		if got.value&(got.value-1) == 0 && got.value != 0 {
			want = int64(uint64(1) << uint64(want))
			f.ABI = number(want)
		}
	}
	if b.what == exists || got.value == want {
		return f, true
	}
	f.Kind, f.Tree = Differs, number(got.value)
	return f, false
}

// lookup is what a source says about one C name.
type lookup struct {
	found bool
	value int64
	file  string
	line  int
}

// number renders a value: small ones in decimal, others in both.
func number(v int64) string {
	if -4096 < v && v < 10 {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%d (%#x)", v, uint64(v))
}

// older tells whether a version of Linux like 6.1.0 comes before another like 6.13.
func older(version, than string) bool {
	a, b := numbers(version), numbers(than)
	for i := range b {
		if i >= len(a) {
			return true
		}
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// numbers are the leading numbers of a version.
func numbers(version string) []int {
	var out []int
	for _, part := range strings.Split(version, ".") {
		n, digits := 0, 0
		for _, c := range part {
			if c < '0' || c > '9' {
				break
			}
			n, digits = n*10+int(c-'0'), digits+1
		}
		if digits == 0 {
			break
		}
		out = append(out, n)
		if digits < len(part) {
			break
		}
	}
	return out
}

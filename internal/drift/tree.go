package drift

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"modernc.org/cc/v4"

	"pvabi/abi"
)

// prelude is what headers take from elsewhere in the kernel, in every table.
const prelude = `
#define __SIZE_TYPE__ unsigned long
#define __always_inline inline
#define __BITS_PER_LONG 64
#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))
#define GENMASK(h, l) ((~0UL << (l)) & (~0UL >> (63 - (h))))
#define GENMASK_ULL(h, l) GENMASK(h, l)
#define __GENMASK(h, l) GENMASK(h, l)
#define _AC(n, suffix) n
#define __user
typedef unsigned long __predefined_size_t;
typedef long __predefined_ptrdiff_t;
typedef int __predefined_wchar_t;
typedef unsigned long size_t;
typedef _Bool bool;
typedef unsigned char u8, __u8, uint8_t;
typedef unsigned short u16, __u16, uint16_t;
typedef unsigned int u32, __u32, uint32_t;
typedef unsigned long long u64, __u64, uint64_t;
typedef signed char s8, __s8, int8_t;
typedef short s16, __s16, int16_t;
typedef int s32, __s32, int32_t;
typedef long long s64, __s64, int64_t;
typedef unsigned short __be16, __le16;
typedef unsigned int __be32, __le32;
typedef unsigned long long __be64, __le64;
`

// expansions bounds the work of macros, in the C front end's own unit. The headers need
// less than a hundredth of it.
const expansions = 10_000_000

// Tree holds the headers and documents of a Linux tree, whose top is the folder dir,
// against abi. A header that is missing or that is no C is an error.
func Tree(dir string) (*Report, error) {
	version, err := treeVersion(dir)
	if err != nil {
		return nil, err
	}
	r := &Report{Source: dir, Version: "Linux " + version}
	for _, t := range tables() {
		p, err := t.tree(os.DirFS(dir), version)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", dir, t.abi().Name, err)
		}
		r.Platforms = append(r.Platforms, p)
	}
	return r, nil
}

// treeVersion reads the version off the top of a tree's Makefile.
func treeVersion(dir string) (string, error) {
	data, err := fs.ReadFile(os.DirFS(dir), "Makefile")
	if err != nil {
		return "", fmt.Errorf("%s is no Linux tree: %w", dir, err)
	}
	part := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, "="); ok && len(part) < 4 {
			part[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	if part["VERSION"] == "" || part["PATCHLEVEL"] == "" {
		return "", fmt.Errorf("%s is no Linux tree: its Makefile does not begin with VERSION and PATCHLEVEL", dir)
	}
	return part["VERSION"] + "." + part["PATCHLEVEL"] + "." + cmp.Or(part["SUBLEVEL"], "0") + part["EXTRAVERSION"], nil
}

// unit is what headers say, after the C front end has read them.
type unit struct {
	ast     *cc.AST
	structs map[string]*cc.StructType
}

// tree holds one table against a tree.
func (t table) tree(tree fs.FS, version string) (Platform, error) {
	p := t.abi()
	out := Platform{Name: p.Name}
	bindings := t.bindings(p)
	u, err := t.read(tree, bindings)
	if errors.Is(err, fs.ErrNotExist) && t.since != "" && older(version, t.since) {
		out.Findings = []Finding{{Kind: Later, Number: p.Name, Name: "header of it", ABI: p.Title, File: t.headers[0].file, Note: "all since " + t.since}}
		return out, nil
	} else if err != nil {
		return out, err
	}
	for _, h := range t.headers {
		out.Files = append(out.Files, h.file)
	}
	out.hold(p, bindings, version, func(i int, b binding) lookup { return u.look(i, b) })
	out.Findings = append(out.Findings, u.unknown(t, bindings)...)
	for _, d := range t.documents {
		found, err := d.read(tree, u, t)
		if err != nil {
			return out, err
		}
		out.Files = append(out.Files, d.file)
		out.Findings = append(out.Findings, found...)
	}
	return out, nil
}

// hold judges all bindings and lists what is not held.
func (p *Platform) hold(a *abi.Platform, bindings []binding, version string, look func(int, binding) lookup) {
	want := map[string]int64{}
	for _, n := range a.Numbers() {
		want[n.Path] = n.Value
	}
	held := map[string]bool{}
	for i, b := range bindings {
		number, ok := want[b.number]
		if !ok {
			panic(fmt.Sprintf("drift: %s has no number %q", a.Name, b.number))
		}
		held[b.number] = true
		f, ok := judge(a, b, number, look(i, b), version)
		p.Held++
		if !ok {
			p.Findings = append(p.Findings, f)
		}
	}
	for _, n := range a.Numbers() {
		// What rules and outcomes demand is behaviour.
		if !held[n.Path] && !strings.HasPrefix(n.Path, "rules/") && !strings.Contains(n.Path, "/outcomes/") {
			p.Unheld = append(p.Unheld, n.Path)
		}
	}
}

// read has the C front end read the table's headers. The expressions of bindings are
// macros at the end, which it evaluates like any other.
func (t table) read(tree fs.FS, bindings []binding) (*unit, error) {
	target, err := cc.NewABI("linux", t.goarch)
	if err != nil {
		return nil, err
	}
	sources := []cc.Source{
		// The front end wants this declaration, and as the first.
		{Name: "<predefined>", Value: "int __predefined_declarator;\n" + prelude + t.prelude},
		{Name: "<builtin>", Value: "\n"},
	}
	for _, h := range t.headers {
		data, err := fs.ReadFile(tree, h.file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("header %s is missing: %w; is the tree whole?", h.file, err)
		} else if err != nil {
			return nil, err
		}
		define := "#undef __ASSEMBLER__\n#undef __ASSEMBLY__\n"
		if h.assembler {
			// The second is what the first was called until 6.16.
			define = "#define __ASSEMBLER__ 1\n#define __ASSEMBLY__ 1\n"
		}
		sources = append(sources, cc.Source{Name: "<before " + h.file + ">", Value: define}, cc.Source{Name: h.file, Value: data})
	}
	var tail strings.Builder
	for i, b := range bindings {
		switch b.what {
		case value, bit:
			fmt.Fprintf(&tail, "#define %s (%s)\n", macro(i), b.c)
		}
	}
	sources = append(sources, cc.Source{Name: "<abi>", Value: tail.String()})
	ast, err := translate(&cc.Config{
		ABI: target, FS: nothing{}, FSOnly: true,
		IncludePaths: []string{"."}, SysIncludePaths: []string{"."},
		EvalAllMacros: true, Header: true, ABILayout: true, ExpansionLimit: expansions,
	}, sources)
	if err != nil {
		return nil, fmt.Errorf("read the headers as C: %w", err)
	}
	u := &unit{ast: ast, structs: map[string]*cc.StructType{}}
	for s := range ast.Structs {
		if tag := s.Tag(); !s.IsIncomplete() {
			u.structs[tag.SrcStr()] = s
		}
	}
	return u, nil
}

// translate is cc.Translate, which panics on some input that is no C.
func translate(cfg *cc.Config, sources []cc.Source) (ast *cc.AST, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the C front end gave up: %v", p)
		}
	}()
	return cc.Translate(cfg, sources)
}

// macro is the name of the macro that stands for a binding's expression.
func macro(i int) string { return fmt.Sprintf("PVABI_%d", i) }

// nothing is the file system that includes are read from: each file is there and is
// empty.
type nothing struct{}

func (nothing) Open(name string) (fs.File, error) { return emptyFile{path.Base(name)}, nil }

// look finds what a binding's C side is.
func (u *unit) look(i int, b binding) lookup {
	switch b.what {
	case value, bit:
		v, ok := integer(u.ast.Macros[macro(i)])
		l := lookup{found: ok, value: v}
		l.file, l.line = u.where(b.c)
		return l
	case exists:
		_, ok := u.enumerators()[b.c]
		l := lookup{found: ok}
		l.file, l.line = u.where(b.c)
		return l
	}
	tag, member, isMember := strings.Cut(b.c, ".")
	s := u.structs[tag]
	if s == nil {
		return lookup{}
	}
	t := s.Tag()
	l := lookup{found: true, file: t.Position().Filename, line: t.Position().Line}
	if !isMember {
		l.value = s.Size()
		if b.what == align {
			l.value = int64(s.Align())
		}
		return l
	}
	f := s.FieldByName(member)
	if f == nil {
		l.found = false
		return l
	}
	if d := f.Declarator(); d != nil {
		l.line = d.Position().Line
	}
	l.value = f.Offset()
	if b.what == size {
		l.value = f.Type().Size()
	}
	return l
}

// where finds the line that defines the first name of an expression that is a macro or
// an enumerator of the headers.
func (u *unit) where(expression string) (string, int) {
	for _, name := range identifiers(expression) {
		if m := u.ast.Macros[name]; m != nil && !strings.HasPrefix(m.Position().Filename, "<") {
			return m.Position().Filename, m.Position().Line
		}
		if e := u.enumerators()[name]; e != nil {
			return e.Position().Filename, e.Position().Line
		}
	}
	return "", 0
}

// enumerators are those of the headers by name.
func (u *unit) enumerators() map[string]*cc.Enumerator {
	out := map[string]*cc.Enumerator{}
	for name, nodes := range u.ast.Scope.Nodes {
		for _, n := range nodes {
			if e, ok := n.(*cc.Enumerator); ok {
				out[name] = e
			}
		}
	}
	return out
}

// integer returns the value of a macro that is an integer constant.
func integer(m *cc.Macro) (int64, bool) {
	if m == nil {
		return 0, false
	}
	switch v := m.Value().(type) {
	case cc.Int64Value:
		return int64(v), true
	case cc.UInt64Value:
		return int64(v), true
	}
	return 0, false
}

// unknown lists the names of the table's families, and the members of its structs, that
// no binding mentions.
func (u *unit) unknown(t table, bindings []binding) []Finding {
	bound := map[string]bool{}
	for _, b := range bindings {
		for _, name := range identifiers(b.c) {
			bound[name] = true
		}
	}
	var out []Finding
	add := func(name, value, file string, line int) {
		if strings.HasPrefix(file, "<") || bound[name] || !slices.ContainsFunc(t.families, func(f family) bool {
			return strings.HasPrefix(name, f.prefix) && !f.known[name]
		}) {
			return
		}
		out = append(out, Finding{Kind: New, Name: name, Tree: value, File: file, Line: line})
	}
	for name, m := range u.ast.Macros {
		if v, ok := integer(m); ok {
			add(name, number(v), m.Position().Filename, m.Position().Line)
		}
	}
	for name, e := range u.enumerators() {
		add(name, fmt.Sprint(e.Value()), e.Position().Filename, e.Position().Line)
	}
	for tag, members := range whole(t.abi(), bindings) {
		s := u.structs[tag]
		if s == nil {
			continue
		}
		for i := range s.NumFields() {
			f := s.FieldByIndex(i)
			if f.Name() == "" || members[f.Name()] {
				continue
			}
			tagToken := s.Tag()
			out = append(out, Finding{Kind: New, Name: tag + "." + f.Name(), Tree: fmt.Sprintf("%d bytes at %d", f.Type().Size(), f.Offset()),
				File: tagToken.Position().Filename, Line: f.Declarator().Position().Line})
		}
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// identifiers are the names in an expression of C.
func identifiers(expression string) []string {
	return strings.FieldsFunc(expression, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}

// scanLines splits a text into lines.
func scanLines(data []byte) []string {
	var out []string
	s := bufio.NewScanner(strings.NewReader(string(data)))
	for s.Scan() {
		out = append(out, s.Text())
	}
	return out
}

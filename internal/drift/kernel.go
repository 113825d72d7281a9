package drift

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"pvabi/abi"
	"pvabi/initramfs"
)

// Kernel holds the type information of a built kernel against abi: a vmlinux, or a
// compressed image that one is in. An image without BTF and without DWARF is an error.
func Kernel(file string) (*Report, error) {
	data, err := vmlinux(file)
	if err != nil {
		return nil, err
	}
	image, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; want a vmlinux or a kernel image that has one inside", file, err)
	}
	goarch := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_PPC64: "ppc64le", elf.EM_S390: "s390x", elf.EM_LOONGARCH: "loong64"}[image.Machine]
	if goarch == "" {
		return nil, fmt.Errorf("%s is for %v, which no platform is on", file, image.Machine)
	}
	version := release(data)
	types, kind, err := typesOf(image)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	r := &Report{Source: file, Version: fmt.Sprintf("Linux %s (%s), by its %s", version, goarch, kind)}
	for _, t := range tables() {
		if t.goarch != goarch {
			continue
		}
		p := t.abi()
		out := Platform{Name: p.Name, Files: []string{file}}
		held := t.bindings(p)[:0:0]
		for _, b := range t.bindings(p) {
			if types.has(b) {
				held = append(held, b)
			}
		}
		out.hold(p, held, version, func(_ int, b binding) lookup {
			l := types.look(b)
			l.file = file
			return l
		})
		out.Findings = append(out.Findings, unknownMembers(p, types, held, file)...)
		r.Platforms = append(r.Platforms, out)
	}
	return r, nil
}

// ErrNoTypes is wrapped by errors about kernels that have no type information, or none that can be
// reached.
var ErrNoTypes = errors.New("no type information")

// vmlinux reads a file, and unpacks it if it is a compressed image.
func vmlinux(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return data, nil
	}
	var b bytes.Buffer
	if err := initramfs.UnpackKernel(&b, file); err != nil {
		return nil, fmt.Errorf("%w: %s is no ELF file, and none can be unpacked from it: %w; give the vmlinux of the build", ErrNoTypes, file, err)
	}
	return b.Bytes(), nil
}

// release is the version in the kernel's banner.
func release(image []byte) string {
	_, banner, ok := bytes.Cut(image, []byte("Linux version "))
	if !ok {
		return "of unknown version"
	}
	version, _, _ := bytes.Cut(banner[:min(len(banner), 100)], []byte(" "))
	return string(version)
}

// member is one member of a struct: its offset and its size in bytes, or -1 if it is not
// known.
type member struct {
	name         string
	offset, size int64
}

// structure is what type information says about a struct.
type structure struct {
	size    int64
	members []member
}

// types is the type information of a kernel: structs by name, and enumerators.
type types struct {
	structs     map[string]structure
	enumerators map[string]bool
}

// has tells whether the information can say anything about a binding: a macro leaves no
// trace, nor does a struct that the kernel was built without.
func (t *types) has(b binding) bool {
	switch b.what {
	case offset, size:
		tag, _, _ := strings.Cut(b.c, ".")
		_, ok := t.structs[tag]
		return ok
	case exists:
		return len(t.enumerators) > 0
	}
	return false
}

func (t *types) look(b binding) lookup {
	if b.what == exists {
		return lookup{found: t.enumerators[b.c]}
	}
	tag, name, isMember := strings.Cut(b.c, ".")
	s := t.structs[tag]
	if !isMember {
		return lookup{found: true, value: s.size}
	}
	for _, m := range s.members {
		if m.name == name {
			if b.what == offset {
				return lookup{found: true, value: m.offset}
			}
			return lookup{found: true, value: m.size}
		}
	}
	return lookup{}
}

// unknownMembers lists members of held structs that no binding mentions.
func unknownMembers(p *abi.Platform, t *types, held []binding, file string) []Finding {
	var out []Finding
	structs := whole(p, held)
	for _, tag := range slices.Sorted(maps.Keys(structs)) {
		for _, m := range t.structs[tag].members {
			if m.name != "" && !structs[tag][m.name] {
				out = append(out, Finding{Kind: New, Name: tag + "." + m.name, Tree: fmt.Sprintf("%d bytes at %d", m.size, m.offset), File: file})
			}
		}
	}
	return out
}

// typesOf reads a kernel's BTF or else its DWARF.
func typesOf(image *elf.File) (*types, string, error) {
	wanted := map[string]bool{}
	enums := map[string]bool{}
	for _, t := range tables() {
		for _, b := range t.bindings(t.abi()) {
			tag, _, _ := strings.Cut(b.c, ".")
			switch b.what {
			case offset, size:
				wanted[tag] = true
			case exists:
				enums[tag] = true
			}
		}
	}
	if image.Section(".BTF") != nil {
		data, err := image.Section(".BTF").Data()
		if err != nil {
			return nil, "", fmt.Errorf("section .BTF: %w", err)
		}
		t, err := fromBTF(data, wanted, enums)
		return t, "BTF", err
	}
	data, err := image.DWARF()
	if err == nil {
		var t *types
		if t, err = fromDWARF(data, wanted, enums); err == nil && len(t.structs) > 0 {
			return t, "DWARF", nil
		}
	}
	return nil, "", errors.Join(fmt.Errorf("%w: it has neither BTF nor DWARF; build it with CONFIG_DEBUG_INFO_BTF=y, or give the tree by -linux", ErrNoTypes), err)
}

func fromBTF(data []byte, wanted, enums map[string]bool) (*types, error) {
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("section .BTF: %w", err)
	}
	t := &types{structs: map[string]structure{}, enumerators: map[string]bool{}}
	for typ, err := range spec.All() {
		if err != nil {
			return nil, fmt.Errorf("section .BTF: %w", err)
		}
		switch typ := typ.(type) {
		case *btf.Struct:
			if !wanted[typ.Name] {
				continue
			}
			s := structure{size: int64(typ.Size)}
			for _, m := range typ.Members {
				n, err := btf.Sizeof(m.Type)
				if err != nil {
					n = -1
				}
				s.members = append(s.members, member{m.Name, int64(m.Offset.Bytes()), int64(n)})
			}
			t.structs[typ.Name] = s
		case *btf.Enum:
			for _, v := range typ.Values {
				if enums[v.Name] {
					t.enumerators[v.Name] = true
				}
			}
		}
	}
	return t, nil
}

func fromDWARF(data *dwarf.Data, wanted, enums map[string]bool) (*types, error) {
	t := &types{structs: map[string]structure{}, enumerators: map[string]bool{}}
	for r := data.Reader(); ; {
		e, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("read DWARF: %w", err)
		}
		if e == nil {
			return t, nil
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		switch {
		case e.Tag == dwarf.TagEnumerator && enums[name]:
			t.enumerators[name] = true
		case e.Tag == dwarf.TagStructType && wanted[name]:
			typ, err := data.Type(e.Offset)
			if err != nil {
				return nil, fmt.Errorf("read DWARF: struct %s: %w", name, err)
			}
			if s, ok := typ.(*dwarf.StructType); ok && !s.Incomplete {
				out := structure{size: s.ByteSize}
				for _, f := range s.Field {
					out.members = append(out.members, member{f.Name, f.ByteOffset, f.Type.Size()})
				}
				t.structs[name] = out
			}
			r.SkipChildren()
		}
	}
}

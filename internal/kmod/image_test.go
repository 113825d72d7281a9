package kmod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
)

// spec is a module whose code is no code, so that the test needs no machine of its kind.
func spec(goarch string) Spec {
	return Spec{
		Name: "pvabi_7_window", GOARCH: goarch,
		Kernel: &Kernel{
			Vermagic: "7.2.12 SMP mod_unload modversions ", Size: 0x500, Align: 64,
			Versions: map[string][]byte{"__versions": []byte("0123456789abcdef")},
		},
		Probe: Probe{
			Bytes: bytes.Repeat([]byte{0x11}, 100), Run: 4,
			Fixups: []Fixup{{8, 80}, {16, 84}, {12, 80}},
		},
		Glue: Glue{Bytes: bytes.Repeat([]byte{0x22}, 60), Set: 0, Get: 16, Put: 32, Keep: 48},
	}
}

// target is what a relocation refers to, such as ".text+0x80".
type target string

// relocations returns the relocations of a section by their place, as "kind target".
func relocations(t *testing.T, f *elf.File, name string) map[uint64]target {
	t.Helper()
	out := map[uint64]target{}
	s := f.Section(".rela" + name)
	if s == nil {
		return out
	}
	assert.Equal(t, f.Section(name), f.Sections[s.Info], "what %s relocates", s.Name)
	assert.Equal(t, elf.SHT_SYMTAB, f.Sections[s.Link].Type, "what %s refers to", s.Name)
	symbols, err := f.Symbols() // without the first
	require.NoError(t, err)
	content, err := s.Data()
	require.NoError(t, err)
	for len(content) > 0 {
		var r elf.Rela64
		n, err := binary.Decode(content, f.ByteOrder, &r)
		require.NoError(t, err)
		content = content[n:]
		symbol := symbols[elf.R_SYM64(r.Info)-1]
		kind := map[elf.Machine]fmt.Stringer{
			elf.EM_X86_64: elf.R_X86_64(elf.R_TYPE64(r.Info)), elf.EM_PPC64: elf.R_PPC64(elf.R_TYPE64(r.Info)),
			elf.EM_S390: elf.R_390(elf.R_TYPE64(r.Info)), elf.EM_LOONGARCH: elf.R_LARCH(elf.R_TYPE64(r.Info)),
		}[f.Machine]
		out[r.Off] = target(fmt.Sprintf("%v %s+%#x", kind, f.Sections[symbol.Section].Name, r.Addend))
	}
	return out
}

func TestImage(t *testing.T) {
	const write, exec, alloc = elf.SHF_WRITE, elf.SHF_EXECINSTR, elf.SHF_ALLOC
	for goarch, want := range map[string]struct {
		machine           elf.Machine
		flags             uint32
		order             binary.ByteOrder
		address, distance string
		entry             []byte
		sections          map[string]elf.SectionFlag
	}{
		"amd64": {elf.EM_X86_64, 0, binary.LittleEndian, "R_X86_64_64", "R_X86_64_PC32", []byte{2, 0, 0, 0}, nil},
		"ppc64le": {elf.EM_PPC64, 2, binary.LittleEndian, "R_PPC64_ADDR64", "R_PPC64_REL32", nil,
			map[string]elf.SectionFlag{".stubs": alloc | exec}},
		"s390x": {elf.EM_S390, 0, binary.BigEndian, "R_390_64", "R_390_PC32", []byte{0, 1, 0, 0}, nil},
		"loong64": {elf.EM_LOONGARCH, 0x41, binary.LittleEndian, "R_LARCH_64", "R_LARCH_32_PCREL", []byte{1, 0, 0, 0},
			map[string]elf.SectionFlag{".got": alloc | write, ".plt": alloc | exec, ".plt.idx": alloc}},
	} {
		t.Run(goarch, func(t *testing.T) {
			s := spec(goarch)
			file, err := Image(s)
			require.NoError(t, err)
			again, err := Image(s)
			require.NoError(t, err)
			assert.Equal(t, file, again, "the same module, the same bytes")

			f, err := elf.NewFile(bytes.NewReader(file))
			require.NoError(t, err)
			assert.Equal(t, []any{elf.ELFCLASS64, elf.ET_REL, want.machine, want.order}, []any{f.Class, f.Type, f.Machine, f.ByteOrder})
			assert.Equal(t, want.flags, want.order.Uint32(file[48:]), "e_flags")
			assert.LessOrEqual(t, len(file), 1<<16, "size of the file, which has no frame")

			flags := map[string]elf.SectionFlag{
				".text": alloc | exec, "__ex_table": alloc, "__param": alloc | write, ".rodata": alloc, ".data": alloc | write,
				".bss": alloc | write, ".modinfo": alloc, ".gnu.linkonce.this_module": alloc | write, "__versions": alloc,
			}
			maps.Copy(flags, want.sections)
			content := map[string][]byte{}
			for _, section := range f.Sections[1:] {
				if section.Flags&alloc != 0 {
					assert.Equal(t, flags[section.Name], section.Flags, "flags of %s", section.Name)
					delete(flags, section.Name)
				}
				if section.Type != elf.SHT_NOBITS {
					assert.Zero(t, section.Offset%max(section.Addralign, 1), "%s is aligned in the file", section.Name)
					content[section.Name], err = section.Data()
					require.NoError(t, err)
				}
			}
			assert.Empty(t, flags, "sections that are not there")

			// Code: the probe, and the glue behind it, aligned.
			const glue = 128
			text := content[".text"]
			assert.Equal(t, s.Probe.Bytes, text[:100])
			assert.Equal(t, make([]byte, glue-100), text[100:glue])
			assert.Equal(t, s.Glue.Bytes, text[glue:])
			assert.Empty(t, relocations(t, f, ".text"))

			// The table of exceptions.
			const entry = 8
			size := uint64(entry + len(want.entry))
			exceptions := relocations(t, f, "__ex_table")
			assert.Len(t, exceptions, 2*len(s.Probe.Fixups))
			require.Len(t, content["__ex_table"], len(s.Probe.Fixups)*int(size))
			for i, x := range s.Probe.Fixups {
				at := uint64(i) * size
				assert.Equal(t, target(fmt.Sprintf("%s .text+%#x", want.distance, x.At)), exceptions[at])
				assert.Equal(t, target(fmt.Sprintf("%s .text+%#x", want.distance, x.Resume)), exceptions[at+4])
				// x86 wants zeros where a relocation is to go (arch/x86/kernel/module.c).
				assert.Equal(t, make([]byte, entry), content["__ex_table"][at:at+entry])
				assert.Equal(t, append([]byte{}, want.entry...), append([]byte{}, content["__ex_table"][at+entry:at+size]...))
			}

			// The parameters, and what they point to.
			assert.Equal(t, "call\x00memory\x00", string(content[".rodata"][64:]))
			to := func(where string) target { return target(want.address + " " + where) }
			assert.Equal(t, map[uint64]target{
				0: to(".rodata+0x40"), 8: to(".gnu.linkonce.this_module+0x0"), 16: to(".rodata+0x0"), 32: to(".data+0x0"),
				40: to(".rodata+0x45"), 48: to(".gnu.linkonce.this_module+0x0"), 56: to(".rodata+0x20"), 72: to(".data+0x0"),
			}, relocations(t, f, "__param"))
			params := content["__param"]
			require.Len(t, params, 80)
			assert.Equal(t, []any{uint16(0o600), uint16(0)}, []any{want.order.Uint16(params[24:]), want.order.Uint16(params[64:])}, "modes")
			assert.Equal(t, []byte{0xff, 0xff}, []byte{params[26], params[66]}, "levels")
			assert.Equal(t, map[uint64]target{
				8: to(".text+0x80"), 16: to(".text+0x90"), 40: to(".text+0xb0"),
			}, relocations(t, f, ".rodata"), "operations")

			// The control block.
			assert.Equal(t, map[uint64]target{
				controlSelf: to(".data+0x0"), controlRun: to(".text+0x4"), controlPut: to(".text+0xa0"), controlFrame: to(".bss+0x0"),
				controlFrom: to(".data+0x0"),
			}, relocations(t, f, ".data"))
			assert.Equal(t, uint64(controlSize/8), want.order.Uint64(content[".data"][controlCount:]))
			assert.Equal(t, []uint64{arch.FrameSize, 4096}, []uint64{f.Section(".bss").Size, f.Section(".bss").Addralign})

			// What the module says of itself.
			module := f.Section(".gnu.linkonce.this_module")
			assert.Equal(t, []uint64{0x500, 64}, []uint64{module.Size, module.Addralign})
			assert.Equal(t, "pvabi_7_window\x00", string(content[module.Name][24:39]))
			assert.Equal(t, make([]byte, 0x500-39), content[module.Name][39:])
			info := strings.Split(strings.TrimSuffix(string(content[".modinfo"]), "\x00"), "\x00")
			for _, line := range []string{"license=Dual BSD/GPL", "name=pvabi_7_window", "vermagic=7.2.12 SMP mod_unload modversions ", "intree=Y", "depends="} {
				assert.Contains(t, info, line)
			}
			assert.Equal(t, "0123456789abcdef", string(content["__versions"]))

			// No symbol is imported, and all are local.
			symbols, err := f.Symbols()
			require.NoError(t, err)
			assert.Equal(t, uint32(len(symbols)+1), f.Section(".symtab").Info)
			names := map[string]bool{}
			for _, symbol := range symbols {
				assert.NotEqual(t, elf.SHN_UNDEF, symbol.Section, symbol.Name)
				names[symbol.Name] = true
			}
			assert.True(t, names["pvabi_probe"] && names["pvabi_glue"])

			// It is a sibling of the next.
			k, err := ParseSibling(file, goarch)
			require.NoError(t, err)
			assert.Equal(t, s.Kernel, k)
		})
	}
}

func TestImageRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"machine":         {func(s *Spec) { s.GOARCH = "arm64" }, "no layout of modules for arm64"},
		"no name":         {func(s *Spec) { s.Name = "" }, "1 to 55 bytes"},
		"long name":       {func(s *Spec) { s.Name = strings.Repeat("x", 56) }, "1 to 55 bytes"},
		"small structure": {func(s *Spec) { s.Kernel.Size = 79 }, "no room for a name"},
	} {
		s := spec("amd64")
		tc.change(&s)
		_, err := Image(s)
		assert.ErrorContains(t, err, tc.want, name)
	}
}

func TestGlue(t *testing.T) {
	g, err := CopyGlue()
	require.NoError(t, err)
	at := []int{g.Set, g.Get, g.Put, g.Keep, len(g.Bytes)}
	assert.True(t, slices.IsSorted(at) && g.Set == 0, "%v", at)
	assert.Len(t, slices.Compact(at), 5)
}

// TestNumbers holds what the assembler, the kernel and this package must agree on.
func TestNumbers(t *testing.T) {
	assert.Equal(t, []int{0, 8, 16, 24, 32, 40, 48, 56, 64},
		[]int{controlSelf, controlRun, controlPut, controlFrame, controlMemory, controlResult, controlFrom, controlCount, controlSize})
	assert.Equal(t, []int{0, 8, 16, 24, 32}, []int{callFunction, callFirst, callSecond, callThird, callWords})
	assert.Less(t, maxRead, 4096, "a page cannot be read whole")
	assert.Equal(t, 4096, callWords+maxWrite, "a page can be written whole")
	assert.Zero(t, maxRead%8+maxWrite%8)
}

// A probe with instructions that the machine may not have brings a block for the kernel to be told
// of, behind the control block, which stays as it is.
func TestImageWithGuard(t *testing.T) {
	plain, s := spec("loong64"), spec("loong64")
	s.Probe.Illegal = []Fixup{{20, 88}, {24, 92}}
	s.Glue.Die = 52
	open := func(s Spec) *elf.File {
		file, err := Image(s)
		require.NoError(t, err)
		f, err := elf.NewFile(bytes.NewReader(file))
		require.NoError(t, err)
		return f
	}
	without, with := open(plain), open(s)
	want, err := without.Section(".data").Data()
	require.NoError(t, err)
	got, err := with.Section(".data").Data()
	require.NoError(t, err)
	require.Len(t, got, controlSize+guardPairs+2*guardPair)
	assert.Equal(t, want, got[:controlSize], "the control block")
	assert.Equal(t, uint64(2), with.ByteOrder.Uint64(got[controlSize+guardCount:]), "pairs")

	const glue = 128
	relocs := relocations(t, without, ".data")
	relocs[controlSize+guardCall] = target(fmt.Sprintf("R_LARCH_64 .text+%#x", glue+52))
	for i, offset := range []int{20, 88, 24, 92} {
		relocs[uint64(controlSize+guardPairs+8*i)] = target(fmt.Sprintf("R_LARCH_64 .text+%#x", offset))
	}
	assert.Equal(t, relocs, relocations(t, with, ".data"))
}

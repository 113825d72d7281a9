package kmod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// types is BTF with a struct module.
func types(t testing.TB, s *btf.Struct) []byte {
	t.Helper()
	b, err := btf.NewBuilder([]btf.Type{s}, nil)
	require.NoError(t, err)
	raw, err := b.Marshal(nil, nil)
	require.NoError(t, err)
	return raw
}

func module(name string, at, length uint32) *btf.Struct {
	char := &btf.Int{Name: "char", Size: 1}
	return &btf.Struct{Name: name, Size: 1280, Members: []btf.Member{
		{Name: "state", Type: &btf.Int{Name: "int", Size: 4}},
		{Name: "name", Offset: btf.Bits(8 * at), Type: &btf.Array{Index: char, Type: char, Nelems: length}},
	}}
}

func TestStructModule(t *testing.T) {
	size, err := structModule(bytes.NewReader(types(t, module("module", moduleName, moduleNameLen))))
	require.NoError(t, err)
	assert.Equal(t, uint64(1280), size)
	for want, raw := range map[string][]byte{
		"at 32, of 56 bytes, and not at 24": types(t, module("module", 32, moduleNameLen)),
		"of 64 bytes, and not at 24, of 56": types(t, module("module", moduleName, 64)),
		"struct module has no name":         types(t, &btf.Struct{Name: "module", Size: 8}),
		"not found":                         types(t, module("other", moduleName, moduleNameLen)),
		"":                                  []byte("no BTF"),
	} {
		_, err := structModule(bytes.NewReader(raw))
		assert.ErrorContains(t, err, want)
	}
}

func TestSymbols(t *testing.T) {
	const list = "ffffffff81000000 T _text\nffffffff82001230 r vermagic\nffffffff82001240 r vermagic_not\nffffffffc0000000 r vermagic\t[other]\nnothing\n"
	at, checked, err := symbols(strings.NewReader(list), "vermagic")
	require.NoError(t, err)
	assert.Equal(t, uint64(0xffffffff82001230), at)
	assert.False(t, checked)
	_, checked, err = symbols(strings.NewReader(list+"ffffffff81000010 t __cfi_do_it\n"), "vermagic")
	require.NoError(t, err)
	assert.True(t, checked)
	for _, hidden := range []string{"", "0000000000000000 r vermagic\n"} {
		_, _, err = symbols(strings.NewReader(hidden), "vermagic")
		assert.ErrorContains(t, err, "CAP_SYSLOG", "%q", hidden)
	}
	_, _, err = symbols(strings.NewReader("x r vermagic\n"), "vermagic")
	assert.Error(t, err)
}

func TestMemoryText(t *testing.T) {
	const base = 0xffffffff80000000
	content := append([]byte("....7.2.12 SMP \x00"), bytes.Repeat([]byte{'x'}, 300)...)
	var file bytes.Buffer
	const header = 64 + 56
	for _, part := range []any{
		elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_CORE), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Off: header, Vaddr: base, Filesz: uint64(len(content)), Memsz: uint64(len(content))},
		content,
	} {
		require.NoError(t, binary.Write(&file, binary.LittleEndian, part))
	}
	f, err := elf.NewFile(bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	got, err := memoryText(f, base+4)
	require.NoError(t, err)
	assert.Equal(t, "7.2.12 SMP ", got)
	for want, at := range map[string]uint64{"no memory at": base - 1, "no string at": base + 40} {
		_, err := memoryText(f, at)
		assert.ErrorContains(t, err, want)
	}
}

func TestKnown(t *testing.T) {
	k, err := known("7.2.12", "7.2.12 SMP mod_unload ", 1280)
	require.NoError(t, err)
	assert.Equal(t, &Kernel{Vermagic: "7.2.12 SMP mod_unload ", Size: 1280, Align: wideAlign, Versions: map[string][]byte{}}, k)
	for want, k := range map[string]Kernel{
		"another release":   {Vermagic: "7.2.13 SMP ", Size: 1280},
		"CONFIG_MODVERSION": {Vermagic: "7.2.12 SMP mod_unload modversions ", Size: 1280},
		"cannot be":         {Vermagic: "7.2.12 SMP ", Size: 40},
	} {
		_, err := known("7.2.12", k.Vermagic, k.Size)
		assert.ErrorContains(t, err, want)
	}
}

func FuzzStructModule(f *testing.F) {
	f.Add(types(f, module("module", moduleName, moduleNameLen)))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_, _ = structModule(bytes.NewReader(raw)) // does not panic
	})
}

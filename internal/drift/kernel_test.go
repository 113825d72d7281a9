package drift

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
)

// u returns a type of so many bytes.
func u(n uint64) btf.Type {
	return &btf.Array{Index: &btf.Int{Name: "int", Size: 4}, Type: &btf.Int{Name: "u8", Size: 1}, Nelems: uint32(n)}
}

// typesFile writes an ELF file that has type information for a platform's layouts, the
// banner of a kernel, and nothing else.
func typesFile(t *testing.T, machine elf.Machine, order binary.ByteOrder, p *abi.Platform, change func(*btf.Struct)) string {
	var all []btf.Type
	for _, l := range p.Layouts {
		s := &btf.Struct{Name: l.Name, Size: uint32(l.Size)}
		for _, f := range l.Fields {
			s.Members = append(s.Members, btf.Member{Name: f.Name, Type: u(f.Size), Offset: btf.Bits(8 * f.Offset)})
		}
		change(s)
		all = append(all, s)
	}
	b, err := btf.NewBuilder(all, nil)
	require.NoError(t, err)
	types, err := b.Marshal(nil, &btf.MarshalOptions{Order: order})
	require.NoError(t, err)

	const header, section = 64, 64
	names := "\x00.BTF\x00.shstrtab\x00"
	body := append([]byte("Linux version 7.2.12-test (somebody)\x00"), names...)
	at := uint64(header + 3*section)
	var out bytes.Buffer
	write := func(v any) { require.NoError(t, binary.Write(&out, order, v)) }
	data := elf.ELFDATA2LSB
	if order == binary.BigEndian {
		data = elf.ELFDATA2MSB
	}
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Shoff: header, Ehsize: header, Shentsize: section, Shnum: 3, Shstrndx: 2}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(data), 1
	write(h)
	write(elf.Section64{})
	write(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: at + uint64(len(body)), Size: uint64(len(types))})
	write(elf.Section64{Name: 6, Type: uint32(elf.SHT_STRTAB), Off: at + uint64(len(body)-len(names)), Size: uint64(len(names))})
	write(body)
	write(types)
	name := filepath.Join(t.TempDir(), "vmlinux")
	require.NoError(t, os.WriteFile(name, out.Bytes(), 0o644))
	return name
}

func TestKernelTypes(t *testing.T) {
	same := func(*btf.Struct) {}
	r, err := Kernel(typesFile(t, elf.EM_PPC64, binary.LittleEndian, abi.PowerPCPAPR(), same))
	require.NoError(t, err)
	assert.Contains(t, r.Version, "Linux 7.2.12-test (ppc64le), by its BTF")
	require.Len(t, r.Platforms, 1)
	assert.Empty(t, r.Platforms[0].Findings)
	assert.Greater(t, r.Platforms[0].Held, 100)

	r, err = Kernel(typesFile(t, elf.EM_X86_64, binary.LittleEndian, abi.X86KVM(), func(s *btf.Struct) {
		if s.Name == "kvm_steal_time" {
			s.Size += 64
			s.Members[3].Offset += 8
			s.Members[5].Name = "tail"
		}
	}))
	require.NoError(t, err)
	assert.True(t, r.Drifted())
	text := r.Text()
	assert.Contains(t, text, "sizeof kvm_steal_time is 128")
	assert.Contains(t, text, "offsetof kvm_steal_time.preempted is 17")
	assert.Contains(t, text, "there is no offsetof kvm_steal_time.pad")
	assert.Contains(t, text, "kvm_steal_time.tail is 44 bytes at 20 and is not in abi")
}

func TestKernelThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no kernel"), 0o644))
	_, err := Kernel(text)
	assert.ErrorContains(t, err, "give the vmlinux of the build")

	_, err = Kernel(filepath.Join(dir, "missing"))
	assert.ErrorIs(t, err, os.ErrNotExist)

	// A program that was stripped is an ELF file without any types.
	file := typesFile(t, elf.EM_X86_64, binary.LittleEndian, abi.X86KVM(), func(*btf.Struct) {})
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(data, []byte(".BTF"), []byte(".XTF"), 1), 0o644))
	_, err = Kernel(file)
	assert.ErrorContains(t, err, "neither BTF nor DWARF")

	require.NoError(t, os.WriteFile(file, data[:len(data)-100], 0o644))
	_, err = Kernel(file)
	assert.ErrorContains(t, err, ".BTF")

	_, err = Kernel(typesFile(t, elf.EM_RISCV, binary.LittleEndian, abi.X86KVM(), func(*btf.Struct) {}))
	assert.ErrorContains(t, err, "which no platform is on")
}

func FuzzKernelTypes(f *testing.F) {
	f.Add([]byte("\x9f\xeb\x01\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = fromBTF(data, map[string]bool{"kvm_steal_time": true}, nil)
	})
}

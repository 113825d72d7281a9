package initramfs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// An elfFile is turned into the smallest ELF file that has what a test needs.
type elfFile struct {
	machine  elf.Machine
	order    binary.ByteOrder
	kind     elf.Type
	sections map[string]string // by name
	segments []segment
}

type segment struct {
	kind    elf.ProgType
	content string
}

func amd64ELF(kind elf.Type) elfFile {
	return elfFile{machine: elf.EM_X86_64, order: binary.LittleEndian, kind: kind}
}

func (e elfFile) bytes(t testing.TB) []byte {
	names := []string{""}
	for name := range e.sections {
		names = append(names, name)
	}
	slices.Sort(names[1:])
	names = append(names, ".shstrtab")
	var strtab bytes.Buffer
	var offsets []uint32
	for _, name := range names {
		offsets = append(offsets, uint32(strtab.Len()))
		strtab.WriteString(name + "\x00")
	}

	const headerSize, programSize, sectionSize = 64, 56, 64
	at := uint64(headerSize + programSize*len(e.segments))
	var data bytes.Buffer
	var programs []elf.Prog64
	for _, s := range e.segments {
		programs = append(programs, elf.Prog64{Type: uint32(s.kind), Off: at + uint64(data.Len()), Filesz: uint64(len(s.content)), Memsz: uint64(len(s.content)), Align: 1})
		data.WriteString(s.content)
	}
	var sections []elf.Section64
	for i, name := range names {
		content, kind := e.sections[name], elf.SHT_PROGBITS
		switch {
		case i == 0:
			kind = elf.SHT_NULL
		case name == ".shstrtab":
			content, kind = strtab.String(), elf.SHT_STRTAB
		}
		sections = append(sections, elf.Section64{Name: offsets[i], Type: uint32(kind), Off: at + uint64(data.Len()), Size: uint64(len(content))})
		data.WriteString(content)
	}
	header := elf.Header64{
		Type: uint16(e.kind), Machine: uint16(e.machine), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Phentsize: programSize, Phnum: uint16(len(programs)),
		Shoff: at + uint64(data.Len()), Shentsize: sectionSize, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
		Ehsize: headerSize,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	if e.order == binary.BigEndian {
		header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	var out bytes.Buffer
	for _, part := range []any{header, programs, data.Bytes(), sections} {
		require.NoError(t, binary.Write(&out, e.order, part))
	}
	return out.Bytes()
}

// ko returns a module of amd64 for a release.
func ko(t testing.TB, release, depends string) []byte {
	e := amd64ELF(elf.ET_REL)
	e.sections = map[string]string{".modinfo": "license=GPL\x00depends=" + depends + "\x00name=x\x00vermagic=" + release + " SMP preempt mod_unload \x00"}
	return e.bytes(t)
}

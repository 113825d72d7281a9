package kmod

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// Where [Program] has its content, and how much memory follows that.
const (
	ProgramAddress = programBase + programHead
	ProgramStack   = 16 << 10

	programBase = 0x10000000
	programHead = 128 // of the file: its headers
)

// Program returns an executable file for Linux on a machine of this GOARCH: one piece of memory, that
// may be read, written and executed. It has the content at ProgramAddress, which is aligned to 128
// bytes, and ProgramStack zeros behind it. It is for who starts it to say where in it to begin.
func Program(goarch string, content []byte) ([]byte, error) {
	l, ok := layouts[goarch]
	if !ok {
		return nil, fmt.Errorf("kmod: no layout of a program for GOARCH %q", goarch)
	}
	const headerSize, segmentSize = 64, 56
	header := elf.Header64{
		Ident: l.ident(), Type: uint16(elf.ET_EXEC), Machine: uint16(l.machine), Version: uint32(elf.EV_CURRENT), Flags: l.flags,
		Entry: ProgramAddress, Phoff: headerSize, Ehsize: headerSize, Phentsize: segmentSize, Phnum: 1,
	}
	size := uint64(programHead + len(content))
	segment := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W | elf.PF_X), Vaddr: programBase, Paddr: programBase,
		Filesz: size, Memsz: size + ProgramStack, Align: 64 << 10, // the largest page
	}
	file := make([]byte, programHead, size)
	for at, v := range map[int]any{0: header, headerSize: segment} {
		if _, err := binary.Encode(file[at:], l.order, v); err != nil {
			return nil, fmt.Errorf("kmod: the headers of a program: %w", err)
		}
	}
	return append(file, content...), nil
}

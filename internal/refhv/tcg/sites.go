package tcg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Kind is what an instruction that leaves the guest is.
type Kind int

// The kinds.
const (
	// HVCL is a call; its code is in the instruction.
	HVCL Kind = iota
	// CPUCFG asks the processor what it is, by the number of a word in a register.
	CPUCFG
	// IOCSRRD reads input and output space, at the address in a register.
	IOCSRRD
	// IDLE waits for an interrupt, and awake is where a CPU goes on after it.
	IDLE
	awake
)

// String returns the mnemonic.
func (k Kind) String() string {
	return [...]string{"hvcl", "cpucfg", "iocsrrd.w", "idle", "after idle"}[k]
}

// Site is an instruction that leaves the guest.
type Site struct {
	// Address is virtual.
	Address uint64
	Kind    Kind
	// Code is that of HVCL.
	Code uint64
	// To is the register that CPUCFG and IOCSRRD write, From the one that they read.
	To, From int
}

// length is that of an instruction, in bytes.
const length = 4

// encodings are how the instructions are told: the bits in mask are as in word (LoongArch
// Reference Manual volume 1, appendix "Table of Instruction Encoding"; HVCL: Linux 7.2,
// arch/loongarch/include/asm/inst.h, reg0i15_format and hvcl_op).
var encodings = []struct {
	kind       Kind
	mask, word uint32
}{
	{HVCL, 0xffff8000, 0x002b8000},
	{CPUCFG, 0xfffffc00, 0x00006c00},
	{IOCSRRD, 0xfffffc00, 0x06480800},
	{IDLE, 0xffff8000, 0x06488000},
}

// decode tells whether an instruction is one that may leave the guest.
func decode(address uint64, word uint32) (Site, bool) {
	for _, e := range encodings {
		switch {
		case word&e.mask != e.word:
		case e.kind == IDLE:
			return Site{Address: address, Kind: e.kind}, true
		case e.kind == HVCL:
			return Site{Address: address, Kind: e.kind, Code: uint64(word &^ e.mask)}, true
		default:
			return Site{Address: address, Kind: e.kind, To: int(word & 31), From: int(word >> 5 & 31)}, true
		}
	}
	return Site{}, false
}

// has tells whether an address is in the kernel's code.
func (k *Kernel) has(address uint64) bool {
	return address >= k.Base && address-k.Base < uint64(len(k.Text))
}

// Kernel is a kernel's code as it is in memory once it runs.
type Kernel struct {
	// Base is the virtual address of the first byte of Text.
	Base uint64
	Text []byte
}

// directCached is where the first byte of memory is, cached, in the virtual addresses of a
// kernel that does not move itself (arch/loongarch/include/asm/addrspace.h, CACHE_BASE).
const directCached = 0x9000000000000000

// Offsets into a kernel's image, an executable of EFI, all values little endian: at peHeader is
// where the PE header begins, at loadOffset at which physical address the image is to be loaded
// (Documentation/arch/loongarch/booting.rst, "Header Information of Vmlinux Kernel Image"). The
// others are from the PE header's beginning and from that of a row of its table of sections
// (Microsoft PE format, "COFF File Header" and "Section Table"). Package debug/pe does not know
// the machine.
const (
	loadOffset = 0x18 // 8 bytes
	peHeader   = 0x3c // 4 bytes

	peMachine      = 4 // 2 bytes
	peSections     = 6 // 2 bytes
	peOptionalSize = 20
	peTable        = 24 // less the optional header
	peLoongArch64  = 0x6264

	sectionSize    = 40
	sectionAddress = 12
	sectionRawSize = 16
	sectionRaw     = 20
)

// ReadKernel finds the code in a kernel's image, what is compressed in a kernel of the format EFI
// zboot.
func ReadKernel(image []byte) (*Kernel, error) {
	le := binary.LittleEndian
	if len(image) < peHeader+4 || string(image[:2]) != "MZ" {
		return nil, errors.New("the kernel's image is no executable of EFI")
	}
	header := uint64(le.Uint32(image[peHeader:]))
	if uint64(len(image)) < header+peTable || string(image[header:header+4]) != "PE\x00\x00" {
		return nil, errors.New("the kernel's image has no PE header")
	}
	pe := image[header:]
	if machine := le.Uint16(pe[peMachine:]); machine != peLoongArch64 {
		return nil, fmt.Errorf("the kernel's image is for PE machine %#x, want LoongArch, %#x", machine, peLoongArch64)
	}
	table := peTable + uint64(le.Uint16(pe[peOptionalSize:]))
	for range le.Uint16(pe[peSections:]) {
		if uint64(len(pe)) < table+sectionSize {
			break
		}
		row := pe[table:][:sectionSize]
		table += sectionSize
		if name, _, _ := strings.Cut(string(row[:8]), "\x00"); name != ".text" {
			continue
		}
		from := uint64(le.Uint32(row[sectionRaw:]))
		end := from + uint64(le.Uint32(row[sectionRawSize:]))
		if uint64(len(image)) < end {
			return nil, fmt.Errorf("the kernel's image has %d bytes, and its code ends at %d: the file is cut off", len(image), end)
		}
		base := directCached + le.Uint64(image[loadOffset:]) + uint64(le.Uint32(row[sectionAddress:]))
		return &Kernel{Base: base, Text: image[from:end]}, nil
	}
	return nil, errors.New("the kernel's image has no section .text")
}

// Sites lists the instructions that may leave the guest: all but IDLE, of which there are too many, and
// those that read what is known beforehand not to be the hypervisor's, as ours tells by the number of
// the word or by the address.
func (k *Kernel) Sites(ours func(Kind, uint64) bool) []Site {
	var out []Site
	for at := 0; at+4 <= len(k.Text); at += 4 {
		s, ok := decode(k.Base+uint64(at), binary.LittleEndian.Uint32(k.Text[at:]))
		if !ok || s.Kind == IDLE {
			continue
		}
		if value, known := k.constant(at, s.From); s.Kind == HVCL || !known || ours(s.Kind, value) {
			out = append(out, s)
		}
	}
	return out
}

// lookBack is how many instructions before a use a compiler is expected to have set a register.
const lookBack = 24

// constant tells what a register holds at an instruction, where the instructions before it, in
// a straight line, set it to a constant. Code that is reached by a jump may have it otherwise:
// then a site is taken for another's that is not, or for ours, which is found out when it is
// reached.
func (k *Kernel) constant(at, register int) (uint64, bool) {
	for back := 4; back <= 4*lookBack && back <= at; back += 4 {
		w := binary.LittleEndian.Uint32(k.Text[at-back:])
		to, from := int(w&31), int(w>>5&31)
		if to != register || !writes(w) {
			if jumps(w) {
				return 0, false
			}
			continue
		}
		low := uint64(w >> 10 & 0xfff)
		signed := uint64(int64(low<<52) >> 52)
		base, known := uint64(0), true
		if from != 0 {
			base, known = k.constant(at-back, from)
		}
		switch {
		case w>>25 == 0x0a: // lu12i.w
			return uint64(int64(int32(w << 7 & 0xfffff000))), true
		case w>>22 == 0x0e && known: // ori
			return base | low, true
		case (w>>22 == 0x0a || w>>22 == 0x0b) && known: // addi.w, addi.d
			return base + signed, true
		}
		return 0, false
	}
	return 0, false
}

// writes tells whether an instruction writes the register in its lowest bits: not stores, and
// not branches, whose lowest bits may name one all the same.
func writes(w uint32) bool {
	switch op := w >> 22; {
	case op >= 0x0a4 && op <= 0x0a7, op == 0x0ad, op == 0x0af, op == 0x0ab: // st, fst, preld
		return false
	}
	return !jumps(w)
}

// jumps tells whether an instruction is a branch: beqz to bgeu.
func jumps(w uint32) bool { return w>>26 >= 0x10 && w>>26 <= 0x1b }

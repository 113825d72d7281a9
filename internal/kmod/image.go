package kmod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"

	"pvabi/arch"
)

// Spec is what a module is made of.
type Spec struct {
	// Name is what the kernel calls it.
	Name string
	// GOARCH is the machine that it is for.
	GOARCH string
	Kernel *Kernel
	Probe  Probe
	Glue   Glue
}

// layout is what an architecture's kernel wants of a module.
type layout struct {
	machine elf.Machine
	order   binary.ByteOrder
	flags   uint32 // of the ELF header
	// The relocations to a 64-bit address and to the 32-bit distance of one.
	address, distance uint32
	// An entry of the table of exceptions is two distances, of the instruction and of
	// the place to go on at, then these bytes.
	entry []byte
	// Sections that the kernel's loader needs to find, for stubs that it makes for calls to
	// far symbols. There are none, but it looks.
	extra []section
}

// The layouts by GOARCH. ELF's numbers are from the processor supplements of the ABI; what
// a loader wants is in module_frob_arch_sections and apply_relocate_add of
// arch/*/kernel/module*.c, what is in an entry in arch/*/include/asm/extable.h (Linux 7.2).
var layouts = map[string]layout{
	// The third word of an entry is its type, and 2 is EX_TYPE_FAULT (asm/extable_fixup_types.h).
	"amd64": {
		machine: elf.EM_X86_64, order: binary.LittleEndian,
		address: uint32(elf.R_X86_64_64), distance: uint32(elf.R_X86_64_PC32),
		entry: []byte{2, 0, 0, 0},
	},
	// Flag 2 is version 2 of the ELF ABI.
	"ppc64le": {
		machine: elf.EM_PPC64, order: binary.LittleEndian, flags: 2,
		address: uint32(elf.R_PPC64_ADDR64), distance: uint32(elf.R_PPC64_REL32),
		extra: []section{{name: ".stubs", kind: elf.SHT_NOBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, align: 8}},
	},
	// A type of 16 bits, and 1 is EX_TYPE_FIXUP, then 16 bits of data (asm/asm-extable.h).
	"s390x": {
		machine: elf.EM_S390, order: binary.BigEndian,
		address: uint32(elf.R_390_64), distance: uint32(elf.R_390_PC32),
		entry: []byte{0, 1, 0, 0},
	},
	// The same. Flags 0x41 are the ABI with 64-bit floating point registers, which its
	// kernel's modules have though they use none, and version 1 of object files.
	"loong64": {
		machine: elf.EM_LOONGARCH, order: binary.LittleEndian, flags: 0x41,
		address: uint32(elf.R_LARCH_64), distance: uint32(elf.R_LARCH_32_PCREL),
		entry: []byte{1, 0, 0, 0},
		extra: []section{
			{name: ".got", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, align: 1, data: make([]byte, 1)},
			{name: ".plt", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, align: 1, data: make([]byte, 1)},
			{name: ".plt.idx", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, align: 1, data: make([]byte, 1)},
		},
	},
}

// section is a section of the module. That of index i also has symbol i.
type section struct {
	name       string
	kind       elf.SectionType
	flags      elf.SectionFlag
	align      uint64
	data       []byte
	size       uint64 // of memory that is in no file
	link, info uint32
	entry      uint64 // size of one, in tables
	relocs     []reloc
}

// reloc has the kernel write the address of a section plus an addend.
type reloc struct {
	at      uint64
	kind    uint32
	section int
	addend  int64
}

// The sections, by index.
const (
	sectionText = 1 + iota
	sectionExceptions
	sectionParams
	sectionConstants
	sectionControl
	sectionFrame
	sectionInfo
	sectionModule
	sectionsFixed
)

// Structures of the kernel: sizes and offsets in bytes. They are the same on all 64-bit
// machines (include/linux/moduleparam.h, struct kernel_param and kernel_param_ops;
// include/linux/module.h, struct module).
const (
	paramName  = 0
	paramOwner = 8
	paramOps   = 16
	paramMode  = 24 // file mode, 16 bits; without any there is no file
	paramLevel = 26 // 8 bits; -1 is that of all modules
	paramSize  = 40

	opsSet  = 8
	opsGet  = 16
	opsSize = 32

	moduleName    = 24
	moduleNameLen = 64 - 8
)

// Image writes a module.
func Image(s Spec) ([]byte, error) {
	l, ok := layouts[s.GOARCH]
	if !ok {
		return nil, fmt.Errorf("kmod: no layout of modules for %s", s.GOARCH)
	}
	if len(s.Name) >= moduleNameLen || s.Name == "" {
		return nil, fmt.Errorf("kmod: %q as the name of a module; it must have 1 to %d bytes", s.Name, moduleNameLen-1)
	}
	if s.Kernel.Size < moduleName+moduleNameLen {
		return nil, fmt.Errorf("kmod: a struct module of %d bytes has no room for a name", s.Kernel.Size)
	}
	const alignText = 64
	glueAt := (len(s.Probe.Bytes) + alignText - 1) &^ (alignText - 1)
	text := append(make([]byte, 0, glueAt+len(s.Glue.Bytes)), s.Probe.Bytes...)
	text = append(text[:glueAt], s.Glue.Bytes...)

	// The constants are the operations of both parameters, then their names.
	const opsCall, opsMemory, nameCall, nameMemory = 0, opsSize, 2 * opsSize, 2*opsSize + len(paramCall) + 1
	constants := append(make([]byte, 2*opsSize), paramCall+"\x00"+paramMemory+"\x00"...)
	to := func(at int, section, offset int) reloc { return reloc{uint64(at), l.address, section, int64(offset)} }

	params := make([]byte, 2*paramSize)
	l.order.PutUint16(params[paramMode:], 0o600)
	params[paramLevel], params[paramSize+paramLevel] = 0xff, 0xff

	control := make([]byte, controlSize)
	l.order.PutUint64(control[controlCount:], controlSize/8)
	controlRelocs := []reloc{
		to(controlSelf, sectionControl, 0), to(controlRun, sectionText, s.Probe.Run),
		to(controlPut, sectionText, glueAt+s.Glue.Put), to(controlFrame, sectionFrame, 0),
		to(controlFrom, sectionControl, 0),
	}
	if n := len(s.Probe.Illegal); n > 0 {
		control = append(control, make([]byte, guardPairs+n*guardPair)...)
		l.order.PutUint64(control[controlSize+guardCount:], uint64(n))
		controlRelocs = append(controlRelocs, to(controlSize+guardCall, sectionText, glueAt+s.Glue.Die))
		for i, f := range s.Probe.Illegal {
			at := controlSize + guardPairs + i*guardPair
			controlRelocs = append(controlRelocs, to(at, sectionText, f.At), to(at+8, sectionText, f.Resume))
		}
	}

	module := make([]byte, s.Kernel.Size)
	copy(module[moduleName:], s.Name)

	const data = elf.SHF_ALLOC | elf.SHF_WRITE
	sections := []section{
		{},
		sectionText:       {name: ".text", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, align: alignText, data: text},
		sectionExceptions: {name: "__ex_table", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, align: 4},
		sectionParams: {name: "__param", kind: elf.SHT_PROGBITS, flags: data, align: 8, data: params, relocs: []reloc{
			to(paramName, sectionConstants, nameCall), to(paramOwner, sectionModule, 0),
			to(paramOps, sectionConstants, opsCall), to(paramArg, sectionControl, 0),
			to(paramSize+paramName, sectionConstants, nameMemory), to(paramSize+paramOwner, sectionModule, 0),
			to(paramSize+paramOps, sectionConstants, opsMemory), to(paramSize+paramArg, sectionControl, 0),
		}},
		sectionConstants: {name: ".rodata", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, align: 8, data: constants, relocs: []reloc{
			to(opsCall+opsSet, sectionText, glueAt+s.Glue.Set), to(opsCall+opsGet, sectionText, glueAt+s.Glue.Get),
			to(opsMemory+opsSet, sectionText, glueAt+s.Glue.Keep),
		}},
		sectionControl: {name: ".data", kind: elf.SHT_PROGBITS, flags: data, align: 8, data: control, relocs: controlRelocs},
		sectionFrame:   {name: ".bss", kind: elf.SHT_NOBITS, flags: data, align: 4096, size: arch.FrameSize},
		sectionInfo:    {name: ".modinfo", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, align: 1, data: info(s)},
		sectionModule:  {name: ".gnu.linkonce.this_module", kind: elf.SHT_PROGBITS, flags: data, align: s.Kernel.Align, data: module},
	}
	exceptions := &sections[sectionExceptions]
	for _, f := range s.Probe.Fixups {
		at := uint64(len(exceptions.data))
		exceptions.data = append(append(exceptions.data, make([]byte, 8)...), l.entry...)
		exceptions.relocs = append(exceptions.relocs,
			reloc{at, l.distance, sectionText, int64(f.At)}, reloc{at + 4, l.distance, sectionText, int64(f.Resume)})
	}
	sections = append(sections, l.extra...)
	for _, name := range versionSections {
		if content, ok := s.Kernel.Versions[name]; ok {
			sections = append(sections, section{name: name, kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, align: 8, data: content})
		}
	}
	names := []symbol{
		{"pvabi_probe", sectionText, 0, len(s.Probe.Bytes)},
		{"pvabi_glue", sectionText, glueAt, len(s.Glue.Bytes)},
	}
	return l.link(sections, names), nil
}

// info is the section .modinfo: what a module says of itself. A module that is not said to be
// built together with the kernel and with its protection of indirect jumps would taint the
// kernel, or have it complain: it is the first in all that matters, and the second is of no
// use for code whose data is the caller's own.
func info(s Spec) []byte {
	var b strings.Builder
	for _, line := range []string{
		"license=Dual BSD/GPL",
		"description=pvabi: runs programs of its agent with supervisor privilege",
		"depends=",
		"intree=Y",
		"retpoline=Y",
		"name=" + s.Name,
		"vermagic=" + s.Kernel.Vermagic,
	} {
		b.WriteString(line + "\x00")
	}
	return []byte(b.String())
}

// symbol is a function in the module. Only people need the names, in a kernel's report of
// its own death.
type symbol struct {
	name    string
	section int
	at      int
	size    int
}

// strings of an ELF file, each known by its offset.
type stringTable []byte

func (t *stringTable) add(s string) uint32 {
	if len(*t) == 0 {
		*t = append(*t, 0)
	}
	at := len(*t)
	*t = append(*t, s+"\x00"...)
	return uint32(at)
}

// link adds the sections that describe the others, and makes a file of all. All symbols are
// local; the first ones are those of the sections.
func (l layout) link(sections []section, names []symbol) []byte {
	var symbols []byte
	put := func(b []byte, v any) []byte {
		b, err := binary.Append(b, l.order, v)
		if err != nil {
			panic(err) // a structure of package elf that has no fixed size
		}
		return b
	}
	var table stringTable
	for i := range sections {
		s := elf.Sym64{}
		if i > 0 {
			s = elf.Sym64{Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_SECTION), Shndx: uint16(i)}
		}
		symbols = put(symbols, s)
	}
	for _, n := range names {
		symbols = put(symbols, elf.Sym64{
			Name: table.add(n.name), Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: uint16(n.section),
			Value: uint64(n.at), Size: uint64(n.size),
		})
	}
	count := len(sections)
	for i := range count {
		if sections[i].relocs == nil {
			continue
		}
		var relocs []byte
		for _, r := range sections[i].relocs {
			relocs = put(relocs, elf.Rela64{Off: r.at, Info: elf.R_INFO(uint32(r.section), r.kind), Addend: r.addend})
		}
		sections = append(sections, section{
			name: ".rela" + sections[i].name, kind: elf.SHT_RELA, flags: elf.SHF_INFO_LINK, align: 8,
			data: relocs, info: uint32(i), entry: 24,
		})
	}
	symbolsAt := uint32(len(sections))
	for i := range sections[count:] {
		sections[count+i].link = symbolsAt
	}
	sections = append(sections,
		section{name: ".symtab", kind: elf.SHT_SYMTAB, align: 8, data: symbols, link: symbolsAt + 1, info: uint32(count + len(names)), entry: elf.Sym64Size},
		section{name: ".strtab", kind: elf.SHT_STRTAB, align: 1, data: table},
		section{name: ".shstrtab", kind: elf.SHT_STRTAB, align: 1})
	last := &sections[len(sections)-1]

	var sectionNames stringTable
	nameAt := make([]uint32, len(sections))
	for i, s := range sections[1:] {
		nameAt[i+1] = sectionNames.add(s.name)
	}
	last.data = sectionNames

	const headerSize, sectionHeaderSize = 64, 64
	file := make([]byte, headerSize)
	pad := func(align uint64) {
		for uint64(len(file))%align != 0 {
			file = append(file, 0)
		}
	}
	headers := put(nil, elf.Section64{})
	for i, s := range sections[1:] {
		if s.kind != elf.SHT_NOBITS {
			pad(s.align)
		}
		headers = put(headers, elf.Section64{
			Name: nameAt[i+1], Type: uint32(s.kind), Flags: uint64(s.flags), Off: uint64(len(file)),
			Size: max(s.size, uint64(len(s.data))), Link: s.link, Info: s.info, Addralign: s.align, Entsize: s.entry,
		})
		file = append(file, s.data...)
	}
	pad(8)
	header := elf.Header64{
		Ident: l.ident(), Type: uint16(elf.ET_REL), Machine: uint16(l.machine), Version: uint32(elf.EV_CURRENT), Flags: l.flags,
		Shoff: uint64(len(file)), Ehsize: headerSize, Shentsize: sectionHeaderSize,
		Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
	}
	copy(file, put(nil, header))
	return bytes.Join([][]byte{file, headers}, nil)
}

// ident is what an ELF file begins with.
func (l layout) ident() (out [elf.EI_NIDENT]byte) {
	order := elf.ELFDATA2LSB
	if l.order == binary.BigEndian {
		order = elf.ELFDATA2MSB
	}
	copy(out[:], elf.ELFMAG)
	out[elf.EI_CLASS], out[elf.EI_DATA], out[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(order), byte(elf.EV_CURRENT)
	return out
}

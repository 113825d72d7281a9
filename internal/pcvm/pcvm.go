// Package pcvm is a machine that boots a Linux kernel over /dev/kvm, as small as a kernel of today
// takes: memory, CPUs, and what KVM itself emulates of a PC.
//
// # What the kernel finds
//
// The kernel is an ELF file, which is entered at its 64-bit entry point with a zero page (struct
// boot_params, Documentation/arch/x86/boot.rst, "64-bit Boot Protocol"). There is no firmware. ACPI
// tables, of the hardware-reduced kind, tell of the CPUs and their APIC ids and of nothing else: no
// timer but those of the CPUs, no bus, no device. Ports and addresses where nothing is read as ones,
// but for a clock and a timer that stand at zero.
//
// # How the guest is heard
//
// What a kernel says before its programs run, and when it dies, goes to a serial port that can do
// nothing but write (earlycon). Programs have a [Mailbox]: a piece of memory, which the guest's
// kernel does not use and programs reach by /dev/mem, and a port, by writing to which they ring. A
// ring leaves the guest, so that the machine sees a message when the guest's CPU is between two
// instructions, and answers it before the second.
//
// The bell is a port, not an address where nothing is, as KVM ends a machine that uses such an
// address while an event is delivered, and on AMD takes it for that by the type of the last event,
// valid or not (arch/x86/kvm/svm/svm.c, svm_check_emulate_instruction, Linux 7.2). QEMU's
// TCG leaves the type there after it (target/i386/tcg/system/svm_helper.c, do_vmexit): a ring after
// a page fault, with no exit between them, was the end.
package pcvm

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Where things are in the machine's memory, below 640 KiB, after the tables of package kvm.
const (
	zeroPage    = 0x10000
	commandLine = 0x20000
	lowMemory   = 0x9f000 // the end of memory below 1 MiB
	acpiTables  = 0xe0000 // where firmware is elsewhere, and kernels use no memory
	highMemory  = 0x100000
	pageSize    = 4096

	// Reserved is how much at the end of the memory the kernel is told to leave alone: the
	// mailbox is there.
	Reserved = 2 << 20
	// Bell is the port by which a guest rings: with ringMessage if a message is in the mailbox,
	// with 0 for an empty one, as a program does that has no kernel.
	Bell        = 0xf4
	ringMessage = 1

	maxCommandLine = 2048 // COMMAND_LINE_SIZE of arch/x86/include/asm/setup.h
)

// Console is what a kernel's command line needs so that its messages are seen.
const Console = "earlycon=uart8250,io,0x3f8 keep_bootcon"

// Offsets in the zero page, all little endian (arch/x86/include/uapi/asm/bootparam.h, struct
// boot_params and struct setup_header).
const (
	bootRSDP        = 0x070 // 8 bytes
	bootE820Entries = 0x1e8 // 1 byte
	bootFlag        = 0x1fe // 2 bytes
	bootHeader      = 0x202 // 4 bytes
	bootVersion     = 0x206 // 2 bytes
	bootLoader      = 0x210 // 1 byte
	bootRamdisk     = 0x218 // 4 bytes, and as many for its size
	bootCommandLine = 0x228 // 4 bytes
	bootAlignment   = 0x230 // 4 bytes
	bootE820Table   = 0x2d0

	typeRAM      = 1
	typeReserved = 2
)

// Kernel is an ELF kernel that can be booted.
type Kernel struct {
	file  *elf.File
	entry uint64
	end   uint64 // of the memory that it takes, above all segments
}

// ReadKernel looks into a kernel. The reader must stay what it is as long as the kernel is used.
func ReadKernel(r io.ReaderAt) (*Kernel, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("pcvm: the kernel: %w", err)
	}
	k := &Kernel{file: f, entry: f.Entry}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			k.end = max(k.end, p.Paddr+p.Memsz)
		}
	}
	if f.Machine != elf.EM_X86_64 || k.end == 0 {
		return nil, errors.New("pcvm: the kernel is no ELF file for x86-64 with something to load")
	}
	return k, nil
}

// Physical returns where in a machine's memory an address of the kernel's own is, if it is in the kernel.
func (k *Kernel) Physical(address uint64) (at uint64, ok bool) {
	for _, p := range k.file.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address-p.Vaddr < p.Memsz {
			return p.Paddr + address - p.Vaddr, true
		}
	}
	return 0, false
}

// load writes a kernel into a machine's memory, with what it is told of it. ids are the CPUs' APIC
// ids.
func (k *Kernel) load(memory, initramfs []byte, line string, ids []uint32) error {
	size := uint64(len(memory))
	if size < highMemory+Reserved || k.end > size-Reserved {
		return fmt.Errorf("pcvm: the kernel needs %d bytes of memory, and there are %d", k.end, size)
	}
	if len(line) >= maxCommandLine {
		return fmt.Errorf("pcvm: a command line of %d bytes, more than %d", len(line), maxCommandLine-1)
	}
	for _, p := range k.file.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if _, err := io.ReadFull(io.NewSectionReader(p, 0, int64(p.Filesz)), memory[p.Paddr:][:p.Filesz]); err != nil {
			return fmt.Errorf("pcvm: load the kernel: %w", err)
		}
	}
	ramdisk := (size - Reserved - uint64(len(initramfs))) &^ (pageSize - 1)
	if ramdisk < k.end {
		return fmt.Errorf("pcvm: no room for an initramfs of %d bytes in %d of memory", len(initramfs), size)
	}
	copy(memory[ramdisk:], initramfs)
	copy(memory[commandLine:], line+"\x00")
	rsdp := writeACPI(memory[acpiTables:highMemory], acpiTables, ids)

	b := memory[zeroPage:]
	le := binary.LittleEndian
	le.PutUint64(b[bootRSDP:], rsdp)
	le.PutUint16(b[bootFlag:], 0xaa55)
	copy(b[bootHeader:], "HdrS")
	le.PutUint16(b[bootVersion:], 0x20f)
	b[bootLoader] = 0xff // none that is registered
	le.PutUint32(b[bootRamdisk:], uint32(ramdisk))
	le.PutUint32(b[bootRamdisk+4:], uint32(len(initramfs)))
	le.PutUint32(b[bootCommandLine:], commandLine)
	le.PutUint32(b[bootAlignment:], 2<<20)
	for i, e := range []struct {
		from, to uint64
		kind     uint32
	}{
		{0, lowMemory, typeRAM}, {highMemory, size - Reserved, typeRAM}, {size - Reserved, size, typeReserved},
	} {
		at := b[bootE820Table+20*i:]
		le.PutUint64(at, e.from)
		le.PutUint64(at[8:], e.to-e.from)
		le.PutUint32(at[16:], e.kind)
		b[bootE820Entries]++
	}
	return nil
}

// writeACPI writes tables that tell of CPUs, and returns the address of the first one (Advanced
// Configuration and Power Interface Specification 6.5, chapter 5). to is at an address of the machine.
func writeACPI(to []byte, address uint64, ids []uint32) (rsdp uint64) {
	le := binary.LittleEndian
	used := uint64(0)
	place := func(content []byte) uint64 {
		at := used
		copy(to[at:], content)
		used = (at + uint64(len(content)) + 15) &^ 15
		return address + at
	}
	table := func(signature string, revision byte, body []byte) uint64 {
		t := make([]byte, 36, 36+len(body))
		copy(t, signature)
		t[8] = revision
		copy(t[10:], "PVABI pvabi   ")
		t = append(t, body...)
		le.PutUint32(t[4:], uint32(len(t)))
		t[9] = -sum(t)
		return place(t)
	}
	dsdt := table("DSDT", 2, nil)

	const ( // offsets in the FADT
		fadtSize, fadtFlags, fadtMinor, fadtDSDT = 276, 112, 131, 140
		reducedHardware                          = 1 << 20
		noVGA, noCMOS                            = 1 << 2, 1 << 5
		fadtBoot                                 = 109
	)
	fadt := make([]byte, fadtSize)
	le.PutUint16(fadt[fadtBoot:], noVGA|noCMOS)
	le.PutUint32(fadt[fadtFlags:], reducedHardware)
	fadt[fadtMinor] = 5
	le.PutUint64(fadt[fadtDSDT:], dsdt)

	madt := le.AppendUint32(nil, 0xfee00000) // of the local APICs
	madt = le.AppendUint32(madt, 0)
	for i, id := range ids {
		const enabled = 1
		if id < 0xff {
			madt = append(madt, 0, 8, byte(i), byte(id))
			madt = le.AppendUint32(madt, enabled)
			continue
		}
		madt = append(madt, 9, 16, 0, 0)
		for _, word := range []uint32{id, enabled, uint32(i)} {
			madt = le.AppendUint32(madt, word)
		}
	}

	var xsdt []byte
	for _, at := range []uint64{table("FACP", 6, fadt[36:]), table("APIC", 5, madt)} {
		xsdt = le.AppendUint64(xsdt, at)
	}
	root := make([]byte, 36)
	copy(root, "RSD PTR ")
	copy(root[9:], "PVABI ")
	root[15] = 2
	le.PutUint32(root[20:], uint32(len(root)))
	le.PutUint64(root[24:], table("XSDT", 1, xsdt))
	root[8] = -sum(root[:20])
	root[32] = -sum(root)
	return place(root)
}

func sum(b []byte) (s byte) {
	for _, x := range b {
		s += x
	}
	return s
}

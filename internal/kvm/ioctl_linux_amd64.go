package kvm

import "unsafe"

// The ioctls of x86, from include/uapi/linux/kvm.h of Linux 7.2 and their encoding from
// include/uapi/asm-generic/ioctl.h: direction, size of the argument, 0xae, number.
const (
	none   = 0xae << 8
	output = 1<<30 | none
	input  = 2<<30 | none
	both   = 3<<30 | none

	getSupportedCPUID = both | sizeofCPUIDHead<<16 | 0x05
	setTSSAddress     = none | 0x47
	createIRQChip     = none | 0x60
	getSregs          = input | unsafe.Sizeof(Sregs{})<<16 | 0x83
	setSregs          = output | unsafe.Sizeof(Sregs{})<<16 | 0x84
	getMSRs           = both | sizeofMSRsHead<<16 | 0x88
	setMSRs           = output | sizeofMSRsHead<<16 | 0x89
	getLAPIC          = input | unsafe.Sizeof(lapic{})<<16 | 0x8e
	setLAPIC          = output | unsafe.Sizeof(lapic{})<<16 | 0x8f
	setCPUID2         = output | sizeofCPUIDHead<<16 | 0x90
	getMPState        = input | 4<<16 | 0x98
	setMPState        = output | 4<<16 | 0x99
	getEvents         = input | unsafe.Sizeof(events{})<<16 | 0x9f
	setEvents         = output | unsafe.Sizeof(events{})<<16 | 0xa0
	getXSave          = input | unsafe.Sizeof(xsave{})<<16 | 0xa4
	setXSave          = output | unsafe.Sizeof(xsave{})<<16 | 0xa5
	getXCRs           = input | unsafe.Sizeof(xcrs{})<<16 | 0xa6
	setXCRs           = output | unsafe.Sizeof(xcrs{})<<16 | 0xa7
	setClock          = output | unsafe.Sizeof(clock{})<<16 | 0x7b
	getClock          = input | unsafe.Sizeof(clock{})<<16 | 0x7c
	clockControl      = none | 0xad
	getTSCKHz         = none | 0xa3
)

// Heads of structures that end in an array.
const (
	sizeofCPUIDHead = 8
	sizeofMSRsHead  = 8
)

// Structures of include/uapi/linux/kvm.h and arch/x86/include/uapi/asm/kvm.h.
type (
	// Regs are the general registers (struct kvm_regs).
	Regs struct {
		RAX, RBX, RCX, RDX, RSI, RDI, RSP, RBP uint64
		R8, R9, R10, R11, R12, R13, R14, R15   uint64
		RIP, RFLAGS                            uint64
	}
	// Segment is a segment register with what it was loaded with (struct kvm_segment).
	Segment struct {
		Base                                 uint64
		Limit                                uint32
		Selector                             uint16
		Type, Present, DPL, DB, S, L, G, AVL uint8
		Unusable, _                          uint8
	}
	// Table is a descriptor table register (struct kvm_dtable).
	Table struct {
		Base  uint64
		Limit uint16
		_     [3]uint16
	}
	// Sregs are the system registers (struct kvm_sregs).
	Sregs struct {
		CS, DS, ES, FS, GS, SS, TR, LDT         Segment
		GDT, IDT                                Table
		CR0, CR2, CR3, CR4, CR8, EFER, APICBase uint64
		Interrupts                              [4]uint64
	}
	clock struct {
		Clock    uint64
		Flags, _ uint32
		_        [4]uint64
	}
	lapic  [1024]byte
	xsave  [4096]byte
	events [64]byte // struct kvm_vcpu_events
	xcrs   struct {
		Count, Flags uint32
		XCR          [16]struct {
			Number, _ uint32
			Value     uint64
		}
		_ [16]uint64
	}
	msrEntry struct {
		Index, _ uint32
		Value    uint64
	}
	msrs struct {
		Count, _ uint32
		Entries  [maxMSRs]msrEntry
	}
	cpuid struct {
		Count, _ uint32
		Entries  [maxCPUID]Entry
	}
)

const (
	maxMSRs  = 32
	maxCPUID = 256
)

package kvm

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ioctls, from include/uapi/linux/kvm.h of Linux 7.2 and their encoding from
// include/uapi/asm-generic/ioctl.h: direction, size of the argument, 0xae, number.
const (
	none   = 0xae << 8
	output = 1<<30 | none
	input  = 2<<30 | none
	both   = 3<<30 | none

	getAPIVersion     = none // number 0
	createVM          = none | 0x01
	checkExtension    = none | 0x03
	getVCPUMmapSize   = none | 0x04
	getSupportedCPUID = both | sizeofCPUIDHead<<16 | 0x05
	createVCPU        = none | 0x41
	setMemoryRegion   = output | unsafe.Sizeof(memoryRegion{})<<16 | 0x46
	setTSSAddress     = none | 0x47
	createIRQChip     = none | 0x60
	run               = none | 0x80
	getRegs           = input | unsafe.Sizeof(Regs{})<<16 | 0x81
	setRegs           = output | unsafe.Sizeof(Regs{})<<16 | 0x82
	getSregs          = input | unsafe.Sizeof(Sregs{})<<16 | 0x83
	setSregs          = output | unsafe.Sizeof(Sregs{})<<16 | 0x84
	getMSRs           = both | sizeofMSRsHead<<16 | 0x88
	setMSRs           = output | sizeofMSRsHead<<16 | 0x89
	getLAPIC          = input | unsafe.Sizeof(lapic{})<<16 | 0x8e
	setLAPIC          = output | unsafe.Sizeof(lapic{})<<16 | 0x8f
	setCPUID2         = output | sizeofCPUIDHead<<16 | 0x90
	setMPState        = output | 4<<16 | 0x99
	getEvents         = input | unsafe.Sizeof(events{})<<16 | 0x9f
	setEvents         = output | unsafe.Sizeof(events{})<<16 | 0xa0
	enableCapability  = output | unsafe.Sizeof(capability{})<<16 | 0xa3
	getXSave          = input | unsafe.Sizeof(xsave{})<<16 | 0xa4
	setXSave          = output | unsafe.Sizeof(xsave{})<<16 | 0xa5
	getXCRs           = input | unsafe.Sizeof(xcrs{})<<16 | 0xa6
	setXCRs           = output | unsafe.Sizeof(xcrs{})<<16 | 0xa7
	getStatsFD        = none | 0xce
)

// Heads of structures that end in an array.
const (
	sizeofCPUIDHead = 8
	sizeofMSRsHead  = 8
)

// Capability is something that KVM may be able to do, KVM_CAP_* in
// include/uapi/linux/kvm.h.
type Capability uint32

// The capabilities that are asked for here.
const (
	CapSplitIRQChip     Capability = 121
	CapX2APICAPI        Capability = 129
	CapImmediateExit    Capability = 136
	CapDisableExits     Capability = 143
	CapEnforcePVFeature Capability = 190
	CapExitHypercall    Capability = 201
	CapDisableQuirks    Capability = 213
)

// Structures of include/uapi/linux/kvm.h and arch/x86/include/uapi/asm/kvm.h.
type (
	memoryRegion struct {
		Slot, Flags        uint32
		Guest, Size, Local uint64
	}
	capability struct {
		Cap, Flags uint32
		Args       [4]uint64
		_          [64]byte
	}
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

// control makes an ioctl whose argument is a number. EINTR is no error of KVM's but a
// signal to the thread, of which Go's scheduler sends many.
func control(fd int, request, argument uintptr) (int, error) {
	for {
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, argument)
		if errno == unix.EINTR && request != run {
			continue
		}
		if errno != 0 {
			return -1, errno
		}
		return int(r), nil
	}
}

// pass makes an ioctl whose argument is a structure.
func pass[T any](fd int, request uintptr, argument *T) error {
	var pin runtime.Pinner
	pin.Pin(argument)
	defer pin.Unpin()
	_, err := control(fd, request, uintptr(unsafe.Pointer(argument)))
	return err
}

func enable(fd int, c Capability, name string, args ...uint64) error {
	e := capability{Cap: uint32(c)}
	copy(e.Args[:], args)
	if err := pass(fd, enableCapability, &e); err != nil {
		return fmt.Errorf("kvm: enable %s (%d) with %#x: %w; a kernel may be too old for it", name, c, args, err)
	}
	return nil
}

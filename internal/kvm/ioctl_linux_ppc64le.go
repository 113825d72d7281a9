package kvm

import (
	"runtime"
	"unsafe"
)

// The ioctls of PowerPC, from include/uapi/linux/kvm.h of Linux 7.2 and their encoding there,
// which differs from that of most architectures (arch/powerpc/include/uapi/asm/ioctl.h):
// three bits for the direction, where no argument is one of its own, and thirteen for the size.
const (
	none   = 1<<29 | 0xae<<8
	input  = 2<<29 | 0xae<<8
	output = 4<<29 | 0xae<<8
	both   = input | output

	getOneReg      = output | unsafe.Sizeof(oneReg{})<<16 | 0xab
	setOneReg      = output | unsafe.Sizeof(oneReg{})<<16 | 0xac
	configureV3MMU = output | unsafe.Sizeof(mmuV3{})<<16 | 0xaf
	createDevice   = both | unsafe.Sizeof(device{})<<16 | 0xe0
)

// Structures of include/uapi/linux/kvm.h and arch/powerpc/include/uapi/asm/kvm.h.
type (
	// Regs are the general registers (struct kvm_regs).
	Regs struct {
		PC, CR, CTR, LR, XER, MSR, SRR0, SRR1, PID uint64
		SPRG                                       [8]uint64
		GPR                                        [32]uint64
	}
	oneReg struct{ ID, Address uint64 }
	mmuV3  struct{ Flags, ProcessTable uint64 }
	device struct{ Type, FD, Flags uint32 }
)

// Register is the number of a register that KVM reads and writes by itself, KVM_REG_PPC_* in
// arch/powerpc/include/uapi/asm/kvm.h; its size is part of it.
type Register uint64

const (
	reg64  Register = 0x1030 << 48
	reg128 Register = 0x1040 << 48

	regVectors = reg128 | 0x40 // VR0 to VR31, then VSR0 to VSR31
	regVPA     = reg64 | 0x82
	regVPASLB  = reg128 | 0x83
	regVPADTL  = reg128 | 0x84
	regICP     = reg64 | 0x8c
	regLPCR    = reg64 | 0xb5
	vectorRegs = 64
)

// register makes KVM_GET_ONE_REG or KVM_SET_ONE_REG of a register of 64 or 128 bits.
func (c *VCPU) register(request uintptr, r Register, value *[2]uint64) error {
	var pin runtime.Pinner
	pin.Pin(value)
	defer pin.Unpin()
	return pass(c.fd, request, &oneReg{ID: uint64(r), Address: uint64(uintptr(unsafe.Pointer(value)))})
}

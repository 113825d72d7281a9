//go:build amd64 || ppc64le

package kvm

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ioctls that are the same everywhere, from include/uapi/linux/kvm.h of Linux 7.2. How
// direction and size of the argument are encoded differs; none, output, input and both are
// a direction with KVM's own 0xae.
const (
	getAPIVersion    = none // number 0
	createVM         = none | 0x01
	checkExtension   = none | 0x03
	getVCPUMmapSize  = none | 0x04
	createVCPU       = none | 0x41
	setMemoryRegion  = output | unsafe.Sizeof(memoryRegion{})<<16 | 0x46
	run              = none | 0x80
	getRegs          = input | unsafe.Sizeof(Regs{})<<16 | 0x81
	setRegs          = output | unsafe.Sizeof(Regs{})<<16 | 0x82
	enableCapability = output | unsafe.Sizeof(capability{})<<16 | 0xa3
	getStatsFD       = none | 0xce
)

// Run is the number of the ioctl KVM_RUN, by which a CPU's thread is in its guest.
const Run = uint64(run)

// Capability is something that KVM may be able to do, KVM_CAP_* in
// include/uapi/linux/kvm.h.
type Capability uint32

// The capabilities that are asked for here.
const (
	CapIRQXICS          Capability = 92
	CapPPCPAPR          Capability = 68
	CapPPCEnableHcall   Capability = 104
	CapSplitIRQChip     Capability = 121
	CapX2APICAPI        Capability = 129
	CapImmediateExit    Capability = 136
	CapDisableExits     Capability = 143
	CapEnforcePVFeature Capability = 190
	CapExitHypercall    Capability = 201
	CapDisableQuirks    Capability = 213
)

// Structures of include/uapi/linux/kvm.h.
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

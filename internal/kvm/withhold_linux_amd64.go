package kvm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pages that a machine has to do without for a while, by userfaultfd(2): who reaches for one
// waits, until it is supplied.

// Numbers of include/uapi/linux/userfaultfd.h.
const (
	uffdAPI         = 0xaa
	uffdMissing     = 1
	uffdPageFault   = 0x12
	uffdMessageSize = 32

	uffdioAPI        = 0xc018aa3f
	uffdioRegister   = 0xc020aa00
	uffdioUnregister = 0x8010aa01
	uffdioCopy       = 0xc028aa03
)

type (
	uffdioAPIArg      struct{ API, Features, IOCtls uint64 }
	uffdioRange       struct{ Start, Len uint64 }
	uffdioRegisterArg struct {
		Range        uffdioRange
		Mode, IOCtls uint64
	}
	uffdioCopyArg struct {
		To, From, Len, Mode uint64
		Copied              int64
	}
)

// vmArch is what a machine has on x86 only.
type vmArch struct {
	faults   int // userfaultfd; opened with the first page that is withheld
	withheld map[int]*withheld
}

// withheld is a page that is withheld, with what was in it.
type withheld struct {
	content []byte
	asked   bool
}

const pageSize = 4096

// Withhold takes the page of Memory that begins at an offset away. Nobody may reach for it
// through Memory until Supply has given it back. The error tells where the kernel has no
// userfaultfd, or not for this process.
func (v *VM) Withhold(offset int) error {
	if v.withheld == nil {
		fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
		if errno != 0 {
			return fmt.Errorf("kvm: userfaultfd: %w; a kernel needs CONFIG_USERFAULTFD, and the process CAP_SYS_PTRACE", errno)
		}
		v.faults = int(fd)
		v.withheld = map[int]*withheld{}
		if err := pass(v.faults, uffdioAPI, &uffdioAPIArg{API: uffdAPI}); err != nil {
			return fmt.Errorf("kvm: UFFDIO_API: %w", err)
		}
	}
	page := v.Memory[offset:][:pageSize]
	w := &withheld{content: bytes.Clone(page)}
	if err := pass(v.faults, uffdioRegister, &uffdioRegisterArg{Range: v.span(offset), Mode: uffdMissing}); err != nil {
		return fmt.Errorf("kvm: UFFDIO_REGISTER of the page at %#x: %w", offset, err)
	}
	v.withheld[offset] = w
	if err := unix.Madvise(page, unix.MADV_REMOVE); err != nil {
		return fmt.Errorf("kvm: MADV_REMOVE of the page at %#x: %w", offset, err)
	}
	return nil
}

// span is where a page of Memory is in this process.
func (v *VM) span(offset int) uffdioRange {
	return uffdioRange{uint64(uintptr(unsafe.Pointer(&v.Memory[offset]))), pageSize}
}

// Asked tells whether somebody has reached for a page that is withheld.
func (v *VM) Asked(offset int) (bool, error) {
	base := uint64(uintptr(unsafe.Pointer(&v.Memory[0])))
	for {
		var message [uffdMessageSize]byte
		_, err := unix.Read(v.faults, message[:])
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("kvm: read of a userfaultfd: %w", err)
		}
		const address = 16 // of struct uffd_msg, in a page fault
		if message[0] == uffdPageFault {
			if w := v.withheld[int(binary.NativeEndian.Uint64(message[address:])-base)&^(pageSize-1)]; w != nil {
				w.asked = true
			}
		}
	}
	w := v.withheld[offset]
	return w != nil && w.asked, nil
}

// Supply gives a page back that was withheld, as it was.
func (v *VM) Supply(offset int) error {
	w := v.withheld[offset]
	if w == nil {
		return fmt.Errorf("kvm: the page at %#x is not withheld", offset)
	}
	var pin runtime.Pinner
	pin.Pin(&w.content[0])
	defer pin.Unpin()
	c := uffdioCopyArg{To: v.span(offset).Start, From: uint64(uintptr(unsafe.Pointer(&w.content[0]))), Len: pageSize}
	for {
		err := pass(v.faults, uffdioCopy, &c)
		if err == nil || errors.Is(err, unix.EEXIST) {
			break
		}
		if !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("kvm: UFFDIO_COPY of the page at %#x: %w", offset, err)
		}
	}
	delete(v.withheld, offset)
	r := v.span(offset)
	if err := pass(v.faults, uffdioUnregister, &r); err != nil {
		return fmt.Errorf("kvm: UFFDIO_UNREGISTER of the page at %#x: %w", offset, err)
	}
	return nil
}

// SupplyAll gives all pages back that are withheld.
func (v *VM) SupplyAll() error {
	var errs []error
	for offset := range v.withheld {
		errs = append(errs, v.Supply(offset))
	}
	return errors.Join(errs...)
}

// closeArch gives back what a machine has on x86 only.
func (v *VM) closeArch() error {
	if v.withheld == nil {
		return nil
	}
	return unix.Close(v.faults)
}

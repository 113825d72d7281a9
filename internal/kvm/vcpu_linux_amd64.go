package kvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// vcpuArch is what a CPU has on x86 only.
type vcpuArch struct {
	paravirt []msrEntry // registers of the paravirtual ABI that there are, and their values at reset
}

// NewVCPU makes a CPU with an APIC id and leaves of CPUID. If enforce is true, KVM refuses
// what the leaf of paravirtual features does not offer.
func (v *VM) NewVCPU(id uint32, leaves []Entry, enforce bool) (*VCPU, error) {
	return v.newVCPU(id, func(c *VCPU) error { return c.setUp(leaves, enforce) })
}

func (c *VCPU) setUp(leaves []Entry, enforce bool) error {
	if enforce {
		if err := enable(c.fd, CapEnforcePVFeature, "KVM_CAP_ENFORCE_PV_FEATURE_CPUID", 1); err != nil {
			return err
		}
	}
	if len(leaves) > maxCPUID {
		return fmt.Errorf("%d leaves of CPUID, more than %d", len(leaves), maxCPUID)
	}
	t := &cpuid{Count: uint32(len(leaves))}
	copy(t.Entries[:], leaves)
	if err := pass(c.fd, setCPUID2, t); err != nil {
		return fmt.Errorf("KVM_SET_CPUID2: %w", err)
	}
	return c.findParavirt()
}

// Sregs reads the system registers.
func (c *VCPU) Sregs() (s Sregs, err error) {
	return s, c.do(func() error { return named("KVM_GET_SREGS", pass(c.fd, getSregs, &s)) })
}

// SetSregs writes the system registers.
func (c *VCPU) SetSregs(s Sregs) error {
	return c.do(func() error { return named("KVM_SET_SREGS", pass(c.fd, setSregs, &s)) })
}

// SetXCR0 chooses which parts of the extended state programs may use.
func (c *VCPU) SetXCR0(value uint64) error {
	return c.do(func() error {
		x := xcrs{Count: 1}
		x.XCR[0].Value = value
		return named("KVM_SET_XCRS", pass(c.fd, setXCRs, &x))
	})
}

// spuriousVector is the register in the page of the local APIC; its bit 8 enables it.
const spuriousVector = 0xf0

// EnableAPIC enables the CPU's local APIC, as firmware does.
func (c *VCPU) EnableAPIC() error {
	return c.do(func() error {
		var l lapic
		if err := pass(c.fd, getLAPIC, &l); err != nil {
			return named("KVM_GET_LAPIC", err)
		}
		binary.LittleEndian.PutUint32(l[spuriousVector:], 1<<8|0xff)
		return named("KVM_SET_LAPIC", pass(c.fd, setLAPIC, &l))
	})
}

// KVM_MP_STATE_RUNNABLE, KVM_MP_STATE_INIT_RECEIVED and KVM_MP_STATE_HALTED.
const (
	runnable = 0
	inited   = 2
	halted   = 3
)

// Inited tells whether the CPU, which must not run, has taken an INIT and waits to be started.
func (c *VCPU) Inited() (bool, error) {
	var state uint32
	err := c.do(func() error { return named("KVM_GET_MP_STATE", pass(c.fd, getMPState, &state)) })
	return state == inited, err
}

// MarkStopped has the guest told, by its clock, that its CPU was stopped. The error is EINVAL
// where the guest has no clock.
func (c *VCPU) MarkStopped() error {
	return c.do(func() error {
		_, err := control(c.fd, clockControl, 0)
		return named("KVM_KVMCLOCK_CTRL", err)
	})
}

// Kicked tells whether the CPU, which must not run, has been kicked and nobody waited for it: of a CPU
// that waits KVM says then that it runs (kvm_arch_vcpu_ioctl_get_mpstate in arch/x86/kvm/x86.c). The CPU
// is one that runs afterwards, which forgets the kick from 6.15 on.
func (c *VCPU) Kicked() (bool, error) {
	state := uint32(halted)
	err := c.do(func() error {
		if err := pass(c.fd, setMPState, &state); err != nil {
			return named("KVM_SET_MP_STATE", err)
		}
		return named("KVM_GET_MP_STATE", pass(c.fd, getMPState, &state))
	})
	if err != nil {
		return false, err
	}
	return state == runnable, c.Wake()
}

// TSCFrequency is the frequency of the CPU's time stamp counter, in kHz.
func (c *VCPU) TSCFrequency() (khz int, err error) {
	return khz, c.do(func() (err error) {
		khz, err = control(c.fd, getTSCKHz, 0)
		return named("KVM_GET_TSC_KHZ", err)
	})
}

// Wake makes the CPU one that runs, not one that waits to be started by another. From Linux
// 6.15 on it also forgets a kick that nobody waited for (kvm_set_mp_state in
// arch/x86/kvm/x86.h).
func (c *VCPU) Wake() error {
	return c.do(func() error {
		state := uint32(runnable)
		return named("KVM_SET_MP_STATE", pass(c.fd, setMPState, &state))
	})
}

// The model-specific registers of the paravirtual ABI, MSR_KVM_* in
// arch/x86/include/uapi/asm/kvm_para.h, in an order in which they can be written.
var paravirt = []uint32{
	0x4b564d03,             // steal time
	0x4b564d04,             // end of interrupt
	0x4b564d02, 0x4b564d06, // asynchronous page faults, enabling before the vector
	0x4b564d05,       // polling while halted
	0x4b564d01, 0x12, // clock, by both its numbers
}

// Answer sets what a call that left by an ExitHypercall returns.
func (c *VCPU) Answer(result uint64) {
	const ret = 56 // in hypercall of struct kvm_run, behind the number and six arguments
	binary.LittleEndian.PutUint64(c.shared[runUnion+ret:], result)
}

// findParavirt reads the values that those registers have at reset. KVM may refuse to
// know one, by its version or because it is not offered.
func (c *VCPU) findParavirt() error {
	for _, index := range paravirt {
		m := msrs{Count: 1, Entries: [maxMSRs]msrEntry{{Index: index}}}
		n, err := c.passMSRs(getMSRs, &m)
		if err != nil {
			return named("KVM_GET_MSRS", err)
		}
		if n == 0 {
			continue
		}
		if n, err = c.passMSRs(setMSRs, &m); err != nil {
			return named("KVM_SET_MSRS", err)
		}
		if n == 1 {
			c.paravirt = append(c.paravirt, m.Entries[0])
		}
	}
	return nil
}

// passMSRs returns how many of the registers KVM came by.
func (c *VCPU) passMSRs(request uintptr, m *msrs) (int, error) {
	var pin runtime.Pinner
	pin.Pin(m)
	defer pin.Unpin()
	return control(c.fd, request, uintptr(unsafe.Pointer(m)))
}

// State is all that a program can change about a CPU.
type State struct {
	regs   Regs
	sregs  Sregs
	lapic  *lapic
	events events
	xsave  xsave
	xcrs   xcrs
}

// Save returns the CPU's state. It is meant for a CPU before it first runs: the registers
// of the paravirtual ABI are taken to be as at reset.
func (c *VCPU) Save() (*State, error) {
	s := &State{}
	return s, c.do(func() error {
		if c.vm.config.IRQChip != NoIRQChip {
			s.lapic = &lapic{}
			if err := pass(c.fd, getLAPIC, s.lapic); err != nil {
				return named("KVM_GET_LAPIC", err)
			}
		}
		return errors.Join(
			named("KVM_GET_REGS", pass(c.fd, getRegs, &s.regs)),
			named("KVM_GET_SREGS", pass(c.fd, getSregs, &s.sregs)),
			named("KVM_GET_VCPU_EVENTS", pass(c.fd, getEvents, &s.events)),
			named("KVM_GET_XSAVE", pass(c.fd, getXSave, &s.xsave)),
			named("KVM_GET_XCRS", pass(c.fd, getXCRs, &s.xcrs)),
		)
	})
}

// Quiet gives the registers of the paravirtual ABI their values at reset: KVM no longer
// writes the guest's memory on the CPU's account.
func (c *VCPU) Quiet() error {
	return c.do(func() error {
		m := msrs{Count: uint32(len(c.paravirt))}
		copy(m.Entries[:], c.paravirt)
		n, err := c.passMSRs(setMSRs, &m)
		if err == nil && n < len(c.paravirt) {
			err = fmt.Errorf("register %#x is refused", c.paravirt[n].Index)
		}
		return named("KVM_SET_MSRS", err)
	})
}

// Restore gives the CPU a state that it had. Kicks, interrupts and exceptions that are
// pending are forgotten.
func (c *VCPU) Restore(s *State) error {
	err := c.do(func() error {
		err := errors.Join(
			named("KVM_SET_SREGS", pass(c.fd, setSregs, &s.sregs)),
			named("KVM_SET_XCRS", pass(c.fd, setXCRs, &s.xcrs)),
			named("KVM_SET_XSAVE", pass(c.fd, setXSave, &s.xsave)),
			named("KVM_SET_REGS", pass(c.fd, setRegs, &s.regs)),
		)
		if s.lapic != nil {
			err = errors.Join(err, named("KVM_SET_LAPIC", pass(c.fd, setLAPIC, s.lapic)))
		}
		return errors.Join(err, named("KVM_SET_VCPU_EVENTS", pass(c.fd, setEvents, &s.events)))
	})
	return errors.Join(err, c.Wake())
}

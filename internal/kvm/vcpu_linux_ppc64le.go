package kvm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// vcpuArch is what a CPU has on PowerPC only.
type vcpuArch struct {
	interruptController bool // KVM emulates its part of one
}

// lpcr are the bits of LPCR that a CPU gets: interrupts begin little endian, and the decrementer
// has all its bits (Power ISA 3.1B, book III, "Logical Partitioning Control Register").
const lpcr = 1<<25 | 1<<17 // ILE, LD

// NewVCPU makes a CPU with a number that PAPR's calls know it by. KVM answers these calls, but
// for those that it does not know, which are an ExitPAPR.
func (v *VM) NewVCPU(id uint32) (*VCPU, error) {
	return v.newVCPU(id, func(c *VCPU) error {
		if err := enable(c.fd, CapPPCPAPR, "KVM_CAP_PPC_PAPR"); err != nil {
			return err
		}
		for _, d := range v.devices {
			if err := enable(c.fd, CapIRQXICS, "KVM_CAP_IRQ_XICS", uint64(d), uint64(id)); err != nil {
				return err
			}
			c.interruptController = true
		}
		var value [2]uint64
		if err := c.register(getOneReg, regLPCR, &value); err != nil {
			return named("KVM_GET_ONE_REG of LPCR", err)
		}
		value[0] |= lpcr
		if err := c.register(setOneReg, regLPCR, &value); err != nil {
			return named("KVM_SET_ONE_REG of LPCR", err)
		}
		if err := c.register(getOneReg, regLPCR, &value); err != nil {
			return named("KVM_GET_ONE_REG of LPCR", err)
		}
		if value[0]&lpcr != lpcr {
			return fmt.Errorf("LPCR is %#x: KVM refuses ILE or LD, %#x", value[0], uint64(lpcr))
		}
		return nil
	})
}

// Answer sets what a call that left by an ExitPAPR returns in R3. R4 to R12 stay what they are.
func (c *VCPU) Answer(result uint64) {
	const ret = 8 // in papr_hcall of struct kvm_run, behind the number of the call
	binary.LittleEndian.PutUint64(c.shared[runUnion+ret:], result)
}

// idleICP is the state of a CPU's part of the interrupt controller that accepts any interrupt
// and has none: priorities of the CPU, of a request by H_IPI and of a pending interrupt
// (KVM_REG_PPC_ICP_STATE).
const idleICP = 0xff<<56 | 0xff<<24 | 0xff<<16

// Quiet takes the CPU's areas and interrupts away from KVM, and clears the vector registers. KVM
// no longer writes the guest's memory on the CPU's account from the next time that it runs.
func (c *VCPU) Quiet() error {
	return c.do(func() error {
		// The VPA has to go last (H_RESOURCE, and EINVAL here).
		for _, r := range []struct {
			name string
			Register
		}{{"dispatch trace log", regVPADTL}, {"SLB shadow", regVPASLB}, {"VPA", regVPA}} {
			if err := c.register(setOneReg, r.Register, &[2]uint64{}); err != nil {
				return fmt.Errorf("KVM_SET_ONE_REG of the %s: %w", r.name, err)
			}
		}
		var errs []error
		for i := range Register(vectorRegs) {
			errs = append(errs, c.register(setOneReg, regVectors+i, &[2]uint64{}))
		}
		if err := errors.Join(errs...); err != nil {
			return named("KVM_SET_ONE_REG of vector registers", err)
		}
		if !c.interruptController {
			return nil
		}
		return named("KVM_SET_ONE_REG of the interrupt controller", c.register(setOneReg, regICP, &[2]uint64{idleICP}))
	})
}

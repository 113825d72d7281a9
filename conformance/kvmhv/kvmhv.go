// Package kvmhv has CPUs that KVM-HV makes run programs, as guests of PAPR. It is the carrier
// microvm with what a check of PAPR needs besides: a virtual processor area for each CPU,
// interrupts that other CPUs send, and programs without privilege.
//
// # Who answers
//
// A guest of PAPR on KVM has two to answer its calls: KVM, and the virtual machine monitor that
// made the guest. The monitor writes the device tree, and with it the names of the function
// sets that a guest finds; KVM answers some of their calls and leaves all others to it. Here the
// monitor is the carrier, which says H_FUNCTION to every one of these. So what a guest would
// discover says nothing of KVM, and what the carrier answers is nobody's finding. What KVM itself
// offers it tells to its monitor: [Answers] has KVM say so of a call, as it does where a monitor
// wants that call answered in the kernel (KVM_CAP_PPC_ENABLE_HCALL,
// Documentation/virt/kvm/api.rst).
//
// # CPUs
//
// A machine has one CPU more than it says, at the end, which is in problem state. All others
// have a VPA from the beginning and after each Reset. Nothing but what a check does ends a wait:
// there is no kernel on these CPUs.
package kvmhv

import (
	"context"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// Machine is a machine of KVM-HV's CPUs.
type Machine interface {
	microvm.Machine
	microvm.Passer
	// Real returns the address that the hypervisor knows an area by: programs know it by the
	// same.
	Real(a arch.Area) (uint64, error)
	// Area returns a copy of the VPA that was registered for a CPU when the machine was made,
	// or reset.
	Area(cpu int) ([]byte, error)
	// AreaAddress returns the address of that area, twice.
	AreaAddress(cpu int) (address, real uint64, err error)
	// Disturbed counts the external interrupts that CPUs took since the machine was made. Only
	// Interrupt makes such.
	Disturbed() (uint64, error)
	// Interrupt has a CPU that is idle, of which there must be one, send an interrupt to each
	// that is not.
	Interrupt() error
	// Unprivileged runs a program in problem state. A wait in it is ended once it is seen.
	Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error)
}

// config is what a machine is made of for one that a check asks for: the same, and a CPU in
// problem state.
func config(c microvm.Config) microvm.Config {
	n := max(c.CPUs, 1)
	if c.IDs != nil {
		last := uint64(0)
		for _, id := range c.IDs {
			last = max(last, id)
		}
		// Far from the others: not one bit away from any, as ids are that a check takes
		// for nobody's.
		c.IDs = append(c.IDs[:len(c.IDs):len(c.IDs)], last+2)
	}
	c.CPUs, c.User = n+1, append(c.User[:len(c.User):len(c.User)], n)
	return c
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// X86KVMHost is X86KVM for the KVM of the machine that this process runs on, whatever that is made of.
// A KVM that has no processor's virtualization below it, but page tables and an emulator, cannot run a
// guest's kernel mode as it is: its CPUs then answer to CPUID, registers, and calls without
// privilege, and to nothing else that can be relied on. Whether it is such a one is found out first, by
// a call with privilege; fit says what came of that. Checks that take more are then given up.
func X86KVMHost(ctx context.Context, release string, open func(microvm.Config) (microvm.Machine, error)) (s *Suite, fit string, err error) {
	if s, err = X86KVM(ctx, release, open); err != nil {
		return nil, "", err
	}
	ends, err := s.callEnds(ctx)
	if err != nil {
		return nil, "", err
	}
	if ends {
		return s, "a call at privilege level 0 comes back: this KVM is fit for all checks", nil
	}
	s.Open = func(c microvm.Config) (microvm.Machine, error) {
		m, err := open(c)
		if err != nil {
			return nil, err
		}
		return limited{m, c.User}, nil
	}
	s.machines().close()
	s.pool = nil
	return s, "a call at privilege level 0 does not come back: this KVM is fit for CPUID, registers, and calls from privilege level 3 only", nil
}

// callEnds tells whether a call with privilege comes to its end.
func (s *Suite) callEnds(ctx context.Context) (bool, error) {
	t := &T{ctx: ctx, Suite: s}
	m, err := s.machines().get(machine())
	if err != nil {
		return false, err
	}
	p := arch.Program{t.callNumber(undefinedCall)}
	if err := m.Start(caller, p); err != nil {
		return false, fmt.Errorf("a first call: %w", err)
	}
	if !t.Until(func() bool { at, _ := m.At(caller); return at == len(p) }) {
		return false, nil
	}
	_, err = m.Wait(ctx, caller)
	return err == nil, err
}

// undefinedCall is a number that no call has.
const undefinedCall = 99

// errLimited is why a machine of a limited KVM is not asked for something.
var errLimited = errors.New("this host's KVM does not run a guest's kernel mode on the processor (a call at privilege level 0 does not come back), so that nothing but CPUID, registers, and calls from privilege level 3 can be looked at")

// limited is a machine of a KVM that does not run kernel mode on the processor. What is more than it can
// do is an error, and not done.
type limited struct {
	microvm.Machine
	user []int
}

// Start implements arch.Machine.
func (m limited) Start(cpu int, p arch.Program) error {
	for _, o := range p {
		switch o.Kind {
		case arch.Call, arch.CallLength:
			if slices.Contains(m.user, cpu) {
				continue
			}
		case arch.Wait, arch.Interrupts:
		default:
			continue
		}
		return errLimited
	}
	return m.Machine.Start(cpu, p)
}

// Crowd implements arch.Machine.
func (m limited) Crowd(...int) (func(), error) { return nil, errLimited }

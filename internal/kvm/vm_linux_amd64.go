package kvm

import (
	"fmt"
)

// vmType is the argument of KVM_CREATE_VM; what to do where a system has no KVM, or none that
// can make a machine.
const (
	vmType  = 0
	modules = "kvm and kvm-amd or kvm-intel"
	noVM    = "is there virtualization in this processor, enabled by its firmware or hypervisor?"
)

// Supported returns the leaves of CPUID that KVM can give a guest.
func (s *System) Supported() ([]Entry, error) {
	t := &cpuid{Count: maxCPUID}
	if err := pass(s.fd, getSupportedCPUID, t); err != nil {
		return nil, fmt.Errorf("kvm: KVM_GET_SUPPORTED_CPUID: %w", err)
	}
	return t.Entries[:t.Count], nil
}

// IRQChip says which interrupt controllers KVM emulates.
type IRQChip int

// What KVM emulates of them.
const (
	FullIRQChip  IRQChip = iota // all
	SplitIRQChip                // the CPUs' local ones
	NoIRQChip
)

// Config describes a machine.
type Config struct {
	// Memory is the size in bytes, a multiple of the page size, from address 0.
	Memory int
	// Large has memory in large pages, so that a guest that uses all of it need not leave for each
	// small one. Nothing of it can be withheld then.
	Large   bool
	IRQChip IRQChip
	// WideIDs lets CPUs have APIC ids from 255 on.
	WideIDs bool
	// Masks for KVM_CAP_DISABLE_QUIRKS2, KVM_CAP_EXIT_HYPERCALL and
	// KVM_CAP_X86_DISABLE_EXITS.
	DisableQuirks, ExitHypercalls, DisableExits uint64
}

// ioapicPins is how many routes a split interrupt controller reserves, those of the
// usual I/O APIC.
const ioapicPins = 24

// tssAddress is where KVM may put three pages of its own, out of the way (api.rst,
// KVM_SET_TSS_ADDR); only some processors of Intel need it.
const tssAddress = 0xfffbd000

// setUpArch does what must be done before there is memory.
func (v *VM) setUpArch() error {
	if _, err := control(v.fd, setTSSAddress, tssAddress); err != nil {
		return fmt.Errorf("kvm: KVM_SET_TSS_ADDR: %w", err)
	}
	for _, e := range []struct {
		on   bool
		cap  Capability
		name string
		arg  uint64
	}{
		{v.config.IRQChip == SplitIRQChip, CapSplitIRQChip, "KVM_CAP_SPLIT_IRQCHIP", ioapicPins},
		{v.config.WideIDs, CapX2APICAPI, "KVM_CAP_X2APIC_API", 1<<0 | 1<<1}, // 32-bit ids, no broadcast quirk
		{v.config.DisableQuirks != 0, CapDisableQuirks, "KVM_CAP_DISABLE_QUIRKS2", v.config.DisableQuirks},
		{v.config.ExitHypercalls != 0, CapExitHypercall, "KVM_CAP_EXIT_HYPERCALL", v.config.ExitHypercalls},
		{v.config.DisableExits != 0, CapDisableExits, "KVM_CAP_X86_DISABLE_EXITS", v.config.DisableExits},
	} {
		if !e.on {
			continue
		}
		if err := enable(v.fd, e.cap, e.name, e.arg); err != nil {
			return err
		}
	}
	if v.config.IRQChip == FullIRQChip {
		if _, err := control(v.fd, createIRQChip, 0); err != nil {
			return fmt.Errorf("kvm: KVM_CREATE_IRQCHIP: %w", err)
		}
	}
	return nil
}

// ResetClock sets the machine's clock to what it is, on which KVM writes those of all CPUs.
func (v *VM) ResetClock() error {
	var c clock
	if err := pass(v.fd, getClock, &c); err != nil {
		return fmt.Errorf("kvm: KVM_GET_CLOCK: %w", err)
	}
	c.Flags = 0
	if err := pass(v.fd, setClock, &c); err != nil {
		return fmt.Errorf("kvm: KVM_SET_CLOCK: %w", err)
	}
	return nil
}

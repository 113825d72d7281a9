package kvm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// vmType is KVM_VM_PPC_HV, the argument of KVM_CREATE_VM: not the other KVM of PowerPC, which
// runs guests in problem state. What to do where a system has no KVM, or none that can make a
// machine: /dev/kvm is there without a hypervisor below that can nest.
const (
	vmType  = 1
	modules = "kvm and kvm-hv"
	noVM    = "is kvm-hv loaded, and is this bare metal or a guest whose hypervisor can nest (QEMU: -M pseries,cap-nested-hv=on or cap-nested-papr=on)? The kernel's messages say why not"
)

// vmArch is what a machine has on PowerPC only, and closeArch gives it back.
type vmArch struct{}

func (*VM) closeArch() error { return nil }

// Config describes a machine.
type Config struct {
	// Memory is the size in bytes, a multiple of the page size, from address 0.
	Memory int
	// Large has memory in large pages, so that a guest that uses all of it need not leave for each
	// small one. Nothing of it can be withheld then.
	Large bool
	// ProcessTable is the address of the machine's process table, see Radix.
	ProcessTable uint64
	// XICS has KVM emulate PAPR's interrupt controller.
	XICS bool
	// Leave lists calls of PAPR that KVM is not to answer, though it could.
	Leave []uint64
}

// Numbers of include/uapi/linux/kvm.h and of PATB_GR, arch/powerpc/include/asm/book3s/64/mmu.h.
const (
	mmuV3Radix = 1 << 0  // KVM_PPC_MMUV3_RADIX
	guestRadix = 1 << 63 // the guest translates by radix trees
	deviceXICS = 3       // KVM_DEV_TYPE_XICS
)

// setUpArch does what must be done before there is memory.
func (v *VM) setUpArch() error {
	m := mmuV3{Flags: mmuV3Radix, ProcessTable: v.config.ProcessTable | guestRadix}
	if err := pass(v.fd, configureV3MMU, &m); err != nil {
		return fmt.Errorf("kvm: KVM_PPC_CONFIGURE_V3_MMU: %w: is this a POWER9 or later, with a host that itself uses the radix MMU?", err)
	}
	for _, number := range v.config.Leave {
		if err := enable(v.fd, CapPPCEnableHcall, "KVM_CAP_PPC_ENABLE_HCALL", number, 0); err != nil {
			return err
		}
	}
	if v.config.XICS {
		d := device{Type: deviceXICS}
		if err := pass(v.fd, createDevice, &d); err != nil {
			return fmt.Errorf("kvm: KVM_CREATE_DEVICE of KVM_DEV_TYPE_XICS: %w", err)
		}
		v.devices = append(v.devices, int(d.FD))
	}
	return nil
}

// Answers tells whether KVM itself can answer the call of PAPR with that number, by its own
// account: it refuses to be told to with EINVAL where it cannot (KVM_CAP_PPC_ENABLE_HCALL, api.rst
// 7.1). Calls that it does not answer are an ExitPAPR.
func (s *System) Answers(number uint64) (bool, error) {
	switch n, err := s.Check(CapPPCEnableHcall); {
	case err != nil:
		return false, err
	case n == 0:
		return false, errors.New("kvm: no KVM_CAP_PPC_ENABLE_HCALL; Linux has it since 3.17")
	}
	err := enable(s.held, CapPPCEnableHcall, "KVM_CAP_PPC_ENABLE_HCALL", number, 1)
	if errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	return err == nil, err
}

// Package microvm is the carrier that makes CPUs of its own: a virtual machine over
// /dev/kvm without firmware, devices or an operating system, whose CPUs run
// nothing but the probe. It implements [arch.Machine].
//
// Everything that a guest can vary about KVM's paravirtual ABI is in a [Config]:
// which numbers the CPUs go by, where the interrupt controller lives, which features
// are offered and whether the hypervisor enforces them, where discovery finds them,
// and whether programs run with supervisor privilege or without.
//
// # PowerPC
//
// The CPUs are those of a guest of PAPR on Linux's KVM-HV. They translate addresses, by which
// the first GiB is mapped to itself, and take interrupts in real mode. A call that KVM does not
// know, H_JOIN for one, comes to the carrier, which answers as a VMM does, with H_FUNCTION; the
// Counter [PassedCalls] tells how many did, so that the answer is not taken for KVM's. External
// interrupts come from PAPR's interrupt controller by the call H_IPI, where IRQChip is Full. Where
// KVM itself runs in a guest of QEMU with cap-nested-papr, the CPUs' numbers must be 0, 1, 2 and
// so on: QEMU 11.1 ends by an assertion otherwise (hw/ppc/spapr_nested.c, h_guest_create_vcpu).
package microvm

import (
	"context"
	"fmt"
	"strings"

	"pvabi/arch"
)

// Machine is an arch.Machine that can be closed.
type Machine interface {
	arch.Machine
	// Close stops all CPUs and gives everything back.
	Close() error
}

// Mode is a mode of the processor other than the 64-bit mode that programs run in.
type Mode int

// The modes.
const (
	Protected Mode = iota // 32 bits, privilege level 0
	Real                  // 16 bits
)

// PassedCalls is the name of a Counter on PowerPC: how many calls of a CPU's KVM did not answer but
// left to the carrier, since the last Reset.
const PassedCalls = "passed_calls"

// Caller is a Machine that can have a call made in another mode.
type Caller interface {
	// CallIn has an idle CPU make one Call, its registers and flags as in o, of which
	// the mode has 32 bits and no R8 to R15, and returns the CPU to 64-bit mode. Count
	// of the result is 1 if the call was completed; an exception in it, for which there
	// is no handler, is an error, and leaves the CPU in need of a Reset.
	CallIn(ctx context.Context, mode Mode, cpu int, o arch.Op) (arch.Result, error)
}

// Rouser is a Machine, on PowerPC, that can end a wait without the guest's or the host's doing.
type Rouser interface {
	// Rouse has a CPU that runs leave its guest for a moment. KVM-HV takes it back to work
	// after the call by which it waited, if it did (Linux 7.2, arch/powerpc/kvm/book3s_hv.c,
	// kvmhv_run_single_vcpu), and keeps nothing of that, as it would of a kick.
	Rouse(cpu int) error
}

// Monitor is a Machine of x86 whose carrier does what only a machine's monitor, or its host, can.
type Monitor interface {
	Machine
	Caller
	// Restart makes a CPU that has taken an INIT idle, in 64-bit mode, with its local APIC as after
	// creation. The registers of the paravirtual ABI are what INIT has made of them. It is an
	// error if the CPU has taken none.
	Restart(cpu int) error
	// MarkStopped has the hypervisor tell an idle CPU's guest, by its clock, that it was stopped
	// for a while.
	MarkStopped(cpu int) error
	// ResetClock sets the guest's clock to what it is, on which the hypervisor writes those of all
	// CPUs, of each when it is next in the guest.
	ResetClock() error
	// TimeOfDay is the host's, in nanoseconds since 1970.
	TimeOfDay() uint64
	// Delay is for how long, in nanoseconds, the host has kept the CPU waiting for one of its own.
	Delay(cpu int) (uint64, error)
	// Passed are the calls of a CPU that came to the carrier (Config.ExitHypercalls) since the last
	// Reset, and Answer what it answers from now on. The CPU must be idle.
	Passed(cpu int) []Passed
	Answer(cpu int, result uint64)
	// Withhold takes away the page at an address until Supply gives it back as it was, or Reset: a
	// CPU that reaches for it has to wait for it. The carrier may not reach for it either. Asked
	// tells whether somebody has reached for it.
	Withhold(page uint64) error
	Supply(page uint64) error
	Asked(page uint64) (bool, error)
}

// Passed is a call that came to the carrier.
type Passed struct {
	Number uint64
	Args   [3]uint64
}

// IdlePort is an I/O port of x86 that the carrier answers for, as a monitor does that emulates a device
// there: reads of it give nothing in particular. QEMU has the ACPI timer of its machine q35 at it.
const IdlePort = 0x608

// PageSize is the size of a page in bytes.
const PageSize = 4096

// Passer is a Machine, on PowerPC, that tells what KVM left to the carrier to answer.
type Passer interface {
	// Passed returns the last such call of a CPU since Reset: its number, and R4 to R12 as the
	// carrier found them.
	Passed(cpu int) (number uint64, args [9]uint64)
}

// IRQChip says where the interrupt controllers are emulated.
type IRQChip int

// The places of interrupt controllers.
const (
	// Full has all of them in the kernel: on PowerPC XICS.
	Full IRQChip = iota
	// Split has only the local ones, of the CPUs, in the kernel.
	Split
	// None has none in the kernel; on x86 a Wait then leaves the CPU for good.
	None
)

// String returns the name of the place.
func (c IRQChip) String() string { return [...]string{"full", "split", "none"}[c] }

// Config describes a machine. The zero value is one CPU with all that KVM offers.
type Config struct {
	// CPUs is the number of CPUs; 0 is 1.
	CPUs int
	// IDs are the numbers by which the platform's calls name the CPUs, on x86 their APIC
	// ids; nil is 0, 1, 2 and so on.
	IDs []uint64
	// User lists the CPUs that run their programs without privilege: at privilege
	// level 3, in problem state.
	User    []int
	IRQChip IRQChip

	// Leave lists numbers of PAPR's calls that KVM is told to leave to the carrier
	// (KVM_CAP_PPC_ENABLE_HCALL), which only PowerPC has.
	Leave []uint64

	// What follows only x86 has, and IRQChip Split; Open fails elsewhere if it is set.

	// Features replaces the word of paravirtual features; nil leaves it as KVM
	// offers it.
	Features *uint32
	// Hints are added to the word of hints, which KVM leaves to the carrier.
	Hints uint32
	// Enforce has KVM refuse what Features does not offer.
	Enforce bool
	// KVMBase is the first leaf of KVM's discovery, a multiple of 0x100 from
	// 0x40000000 to 0x4000ff00; 0 is 0x40000000. Where it is higher, a leaf with a
	// foreign signature is at 0x40000000.
	KVMBase uint32
	// DisableQuirks has a bit set for each quirk of KVM_CAP_DISABLE_QUIRKS2 that
	// KVM is to do without.
	DisableQuirks uint64
	// ExitHypercalls has a bit set for each number of a call that goes to the
	// carrier instead of KVM (KVM_CAP_EXIT_HYPERCALL); the carrier returns 0.
	ExitHypercalls uint64
	// DisableExits has a bit set for each kind of exit of
	// KVM_CAP_X86_DISABLE_EXITS that KVM is to do without.
	DisableExits uint64
}

// Key is equal for equal configurations.
func (c Config) Key() string {
	features := "offered"
	if c.Features != nil {
		features = fmt.Sprintf("%#x", *c.Features)
	}
	ids := make([]string, c.cpus())
	for i := range ids {
		ids[i] = fmt.Sprint(c.id(i))
	}
	return fmt.Sprintf("cpus=%s irqchip=%v features=%s hints=%#x enforce=%t base=%#x user=%v quirks=%#x hypercalls=%#x exits=%#x leave=%#x",
		strings.Join(ids, ","), c.IRQChip, features, c.Hints, c.Enforce, c.base(), c.User,
		c.DisableQuirks, c.ExitHypercalls, c.DisableExits, c.Leave)
}

func (c Config) cpus() int { return max(c.CPUs, 1) }

func (c Config) id(cpu int) uint64 {
	if cpu < len(c.IDs) {
		return c.IDs[cpu]
	}
	return uint64(cpu)
}

// firstBase is where leaves of hypervisors begin.
const firstBase = 0x40000000

func (c Config) base() uint32 { return max(c.KVMBase, firstBase) }

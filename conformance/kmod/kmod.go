// Package kmod is the carrier into the kernel that runs: it writes a module for it, loads it
// once for each CPU, and has it run the programs, so that what answers is the hypervisor
// below this machine. It implements [arch.Machine]. Package internal/kmod has the module and
// the way to speak with it.
//
// A program runs in a thread that may only use the CPU in question, in a write to a file
// of that CPU's module. Frames and areas are looked at, while programs run, through a module
// of their own. An area lies in the kernel's map of all memory; [Machine.Real] tells the
// address that a hypervisor has for it.
//
// # What a program must not do
//
// The CPU is the kernel's, which keeps running in it, so:
//
//   - With interrupts on, interrupts are taken by the kernel, at any time, and end a Wait. The
//     kernel may put another thread on the CPU in the midst of a program.
//   - With interrupts off, a CPU must not wait for this process, only for programs of
//     other CPUs: the kernel stops a process to change its memory by an interrupt to all CPUs
//     that it runs on, and Go changes memory when it likes.
//   - A CPU that stays in a program for seconds has the kernel complain, of a stalled CPU.
//   - The first CPU had better be left to this process and the rest of the system, as it is
//     by the default of [Config.CPUs].
//   - Registers are the kernel's, too: what is written to one has to be put back.
//   - Spins and loops without end are given one that nobody waits for, so that a CPU comes back from
//     a process that was killed.
//
// [Machine.Start] refuses what would stop the kernel outright: accesses to addresses that are
// not the kernel's, and a Wait that nothing ends. An exception is caught and noted in the
// result where the kernel has a way for that; the packages of the probes tell where it has not.
package kmod

import (
	"context"
	"errors"

	"pvabi/arch"
	module "pvabi/internal/kmod"
)

// Config says what a machine is made of. The zero value will do.
type Config struct {
	// CPUs are the kernel's numbers of the CPUs to use; nil is all that are online, without
	// the first if there are others.
	CPUs []int
	// Most is how many of these are used at most, the first ones; 0 is all.
	Most int
	// Sibling is a file of a module of the kernel that runs, from which to learn what the
	// kernel's modules look like; it may be compressed. Without it the modules below
	// /lib/modules are looked at, and where there are none, what the kernel tells of its types.
	Sibling string
}

// ErrFewCPUs is the error of who needs more CPUs than the kernel has online.
var ErrFewCPUs = errors.New("too few CPUs")

// Unreached tells whether an error of making a machine says that this cannot be done on the
// kernel that runs: it takes no modules, or has too few CPUs. All others are failures.
func Unreached(err error) bool {
	var r module.Refusal
	return errors.As(err, &r) || errors.Is(err, ErrFewCPUs)
}

// Machine is an arch.Machine that can be closed.
//
// Its methods Counter and Crowd return errors that wrap errors.ErrUnsupported, as they are for the
// hypervisor to know and do; Events always returns 0, for interrupts are the kernel's; and Asleep tells whether the
// CPU is at a Wait, as only the hypervisor knows more. Methods that cannot return an error
// panic when the modules no longer do what they did, which only a mistake explains.
type Machine interface {
	arch.Machine
	// Real returns the address that the hypervisor knows an area by.
	Real(a arch.Area) (uint64, error)
	// Number is the number that the kernel has for a CPU.
	Number(cpu int) int
	// Busy names a file of the kernel's whose reader waits while the CPU runs a program, for a
	// mutex that the kernel has taken for that.
	Busy(cpu int) string
	// Peek reads the kernel's memory. Address and length are multiples of 8; the kernel does not
	// survive an address that there is no memory at.
	Peek(address uint64, content []byte) error
	// Invoke has the kernel call a function of its own, with up to three arguments, on the CPU of
	// the calling thread, and returns its result. It goes through the CPU that is named, which must
	// be idle and stay so. Nothing may go wrong in the function.
	Invoke(cpu int, function uint64, args ...uint64) (uint64, error)
	// Unprivileged runs a program without privilege, in a process of its own, on any CPU, and returns
	// what its operations left. An exception that is a signal ends its operation only.
	Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error)
	// Close waits for the CPUs, and unloads all modules.
	Close() error
}

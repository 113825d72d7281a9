// Package refhv is the reference hypervisor: the project's own model of the hypervisor's side
// of a paravirtual ABI, for where no real one can run. It is a model, and what stands above it
// is reported as running on the "reference hypervisor", never on the one that it is written
// after.
//
// # What it stands on
//
// A platform's hypervisor (here [LoongArch]) is told what a virtual CPU did that needs it, and
// when a CPU comes and goes: calls, questions of discovery, Enter and Leave. What it does in
// turn, it does to a [Machine], of which it knows no more than memory, interrupts and how long
// CPUs were kept waiting. So the same code serves machines in pure Go, on which checks are
// tested (package pvabi/internal/model), and guests of QEMU, whose CPUs come to it by a
// [Trap] (package pvabi/internal/refhv/tcg).
//
// Its numbers come from a copy of the platform's table that is its own. Each thing that it does
// can be broken by name: see [Mutant].
package refhv

import "slices"

// Machine is what is below a hypervisor. CPUs are numbered from 0; ID gives the number by which
// the platform's calls name one.
type Machine interface {
	CPUs() int
	ID(cpu int) uint64
	// Load and Store are single accesses of size bytes, 1 to 8, to guest-physical memory in
	// the guest's byte order. They are false where there is no memory.
	Load(address, size uint64) (value uint64, ok bool)
	Store(address, size, value uint64) (ok bool)
	// Interrupt makes interrupts of a CPU pending, one for each bit that is set, and wakes it if it
	// waits.
	Interrupt(cpu int, lines uint64)
	// Delay is how long a CPU was kept from running against its will since it is there, in
	// nanoseconds.
	Delay(cpu int) uint64
	// Pause comes between two stores that a guest's CPU may look in between.
	Pause(cpu int)
}

// Mutant is a change that breaks one thing about a hypervisor.
type Mutant[H any] struct {
	Name string
	// Text says what is broken, a sentence.
	Text string
	// Rules are the names of the rules that checks must find broken: these and no others.
	Rules []string
	// Controls are the names of the rules that checks cannot judge on this mutant because
	// the control of a check fails.
	Controls []string
	// Change breaks it.
	Change func(H)
}

// Find returns the mutant of a name among ms.
func Find[H any](ms []Mutant[H], name string) (Mutant[H], bool) {
	i := slices.IndexFunc(ms, func(m Mutant[H]) bool { return m.Name == name })
	if i < 0 {
		return Mutant[H]{}, false
	}
	return ms[i], true
}

// Package pseries has the CPUs of a Linux guest under a PAPR hypervisor run programs. It is
// the carrier kmod with what a check of PAPR needs besides: waits that the kernel leaves
// alone, or tells that it did not; whether a CPU sleeps; the area that the kernel has
// registered for a CPU; and programs without privilege.
//
// # Waits
//
// Any interrupt ends a CEDE. A program that has a wait, or turns interrupts off, is
// therefore run so:
//
//	interrupts off; the decrementer far away
//	a gate: the kernel's count of the CPU's interrupts is read, no longer growing
//	the program
//	a gate: it is read again
//	the decrementer near, so that the kernel sets it anew
//
// From gate to gate the CPU takes interrupts in its waits only, and Disturbed counts
// them. A gate that is not opened in time, by a process that the kernel keeps waiting, counts, too. Loops and indices of the program are as it was given. Whoever cannot do with
// interrupts looks again if there were any; guests that are booted for the purpose have few
// (isolcpus and irqaffinity on the kernel's command line).
//
// # Asleep
//
// A CPU sleeps if it is at a Wait, or at a Call that may wait, and yield_count of the area that
// the kernel registered for it is odd. So it is, too, of a CPU that the hypervisor takes off
// on its way there; but such a one is dispatched once more before it sleeps, by which it is
// found out later. The kernel shows the area in
// /sys/kernel/debug/powerpc/vpa (arch/powerpc/platforms/pseries/lpar.c, vpa_file_read). Of
// a CPU whose area a program has moved, nothing can be told.
package pseries

import (
	"errors"
	"slices"

	"pvabi/arch"
)

// ErrNoAreas is the error of a kernel that does not show its virtual processor areas.
var ErrNoAreas = errors.New("the kernel shows no virtual processor areas")

// How a program with waits is surrounded: see the package comment.
const (
	before = 3 // operations before the program
	after  = 2 // and behind it
)

// patience is how often a gate is looked at: for seconds. A CPU at a gate has interrupts off, and
// whoever is to open the gate may wait, by way of the kernel, for a CPU that takes no interrupt: when
// the kernel's code is changed, or huge pages are made. Neither would come to an end.
const patience = 1 << 30

// surround returns a program with its surroundings. The gates are words at gate and at gate+8,
// that open at 1, and by themselves when nobody has the patience: see opened.
func surround(p arch.Program, gate uint64, decrementer uint64, far uint64) arch.Program {
	open := func(at uint64) arch.Op {
		return arch.Op{Kind: arch.SpinUntil, Arg: [6]uint64{at, ^uint64(0), 1, patience}}
	}
	set := func(ticks uint64) arch.Op {
		return arch.Op{Kind: arch.WriteRegister, Arg: [6]uint64{decrementer, ticks}}
	}
	out := arch.Program{{Kind: arch.Interrupts}, set(far), open(gate)}
	for _, o := range p {
		if o.Kind == arch.Loop {
			o.Arg[0] += before
		}
		out = append(out, o)
	}
	return append(out, open(gate+8), set(1))
}

// opened tells from the results of a surrounded program of n operations whether its gates were
// opened, so that what is between them is all that there was.
func opened(r []arch.Result, n int) bool { return r[before-1].Value == 1 && r[before+n].Value == 1 }

// inside turns what a surrounded program of n operations says of where it is into what the
// program itself would say.
func inside(op int, completed uint64, n int) (int, uint64) {
	switch {
	case op < before:
		return 0, 0
	case op > before+n:
		completed -= uint64(op - before - n)
		op = before + n
	}
	return op - before, completed - before
}

// waits tells whether a program has to be surrounded.
func waits(p arch.Program) bool {
	return slices.ContainsFunc(p, func(o arch.Op) bool {
		return o.Kind == arch.Wait || o.Kind == arch.Interrupts && o.Arg[0] == 0
	})
}

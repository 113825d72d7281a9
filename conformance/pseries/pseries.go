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
// From gate to gate the CPU takes interrupts in its waits only, and [Machine.Disturbed] counts
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
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// ErrNoAreas is the error of a kernel that does not show its virtual processor areas.
var ErrNoAreas = errors.New("the kernel shows no virtual processor areas")

// Machine is a machine of a guest's own CPUs, the first ones but for the very first.
type Machine interface {
	microvm.Machine
	// Real returns the address that the hypervisor knows an area by.
	Real(a arch.Area) (uint64, error)
	// Area returns a copy of the virtual processor area that the kernel registered for a
	// CPU, in its own byte order, which is big-endian.
	Area(cpu int) ([]byte, error)
	// AreaAddress returns the address of that area, as a program knows it and as the
	// hypervisor does.
	AreaAddress(cpu int) (address, real uint64, err error)
	// Disturbed counts what makes findings about waits doubtful since the machine was made:
	// interrupts that CPUs took in them, and CPUs that were taken to sleep before they
	// did.
	Disturbed() (uint64, error)
	// Interrupt has the kernel interrupt the CPUs that run programs, of which none may have
	// interrupts off unless it waits. It returns when all have taken the interrupt.
	Interrupt() error
	// Unprivileged runs a program in a process of its own, on any CPU, and returns what its
	// operations left. A signal ends the program, and is the exception of its operation.
	Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error)
}

// check tells why a guest's CPUs cannot be what is asked for, or nil.
func check(c microvm.Config) error {
	plain := microvm.Config{CPUs: c.CPUs, IDs: c.IDs}
	if c.Key() != plain.Key() {
		return fmt.Errorf("pseries: a guest cannot choose what its hypervisor offers: %s", c.Key())
	}
	return nil
}

// interrupts sums the kernel's counts of interrupts of one CPU (/proc/interrupts: a heading
// with the names of the CPUs, and a row with a count for each of them).
func interrupts(r io.Reader, cpu int) (uint64, error) {
	rows := bufio.NewScanner(r)
	if !rows.Scan() {
		return 0, fmt.Errorf("pseries: no heading in /proc/interrupts: %w", rows.Err())
	}
	column := slices.Index(strings.Fields(rows.Text()), fmt.Sprintf("CPU%d", cpu))
	if column < 0 {
		return 0, fmt.Errorf("pseries: no CPU%d in the heading of /proc/interrupts, %q; is it online?", cpu, rows.Text())
	}
	var sum uint64
	for rows.Scan() {
		// Rows that are not about CPUs have fewer columns, or words in them.
		if fields := strings.Fields(rows.Text()); column+1 < len(fields) {
			n, err := strconv.ParseUint(fields[column+1], 10, 64)
			if err != nil {
				continue
			}
			sum += n
		}
	}
	return sum, rows.Err()
}

// symbol finds a variable of the kernel among its symbols (/proc/kallsyms: address, type and
// name).
func symbol(r io.Reader, name string) (uint64, error) {
	rows := bufio.NewScanner(r)
	suffix := " " + name
	for rows.Scan() {
		row := rows.Text()
		if !strings.HasSuffix(row, suffix) {
			continue
		}
		word, _, _ := strings.Cut(row, " ")
		address, err := strconv.ParseUint(word, 16, 64)
		if err == nil && address == 0 {
			err = fmt.Errorf("the kernel hides it; run as root with kptr_restrict at 0 or 1")
		}
		if err != nil {
			return 0, fmt.Errorf("pseries: address of %s in /proc/kallsyms: %w", name, err)
		}
		return address, nil
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("pseries: read /proc/kallsyms: %w", err)
	}
	return 0, fmt.Errorf("pseries: no %s in /proc/kallsyms; the kernel needs CONFIG_KALLSYMS_ALL", name)
}

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

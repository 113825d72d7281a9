// Package s390 has the CPUs of a Linux guest on s390 run programs. It is the carrier kmod with
// what the checks of s390 need besides (conformance.S390Machine), all of which the guest's kernel tells or does: how many
// interruptions a CPU took, by class; a CPU that it holds offline; and programs in problem
// state.
//
// # CPUs
//
// A machine has three of the kernel's CPUs that are online, the second to the fourth; the first is
// left to the rest of the system. The first two of the machine run programs. The last one, [Spare],
// runs none, so that it can be taken offline. A kernel with three CPUs does where nothing asks for
// that.
//
// # Waits
//
// A program cannot wait (package arch/s390x says why). A CPU that is given no program is idle, and
// so in an enabled wait, but for the kernel's own short business there.
package s390

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"pvabi/conformance/microvm"
)

// Spare is the CPU of a machine that runs no programs.
const Spare = 2

const cpus = 3

// check refuses configurations that a guest cannot choose.
func check(c microvm.Config) error {
	if c.Key() != (microvm.Config{CPUs: c.CPUs}).Key() {
		return fmt.Errorf("s390: a guest cannot choose what its hypervisor offers: %s", c.Key())
	}
	if c.CPUs > cpus {
		return fmt.Errorf("s390: a machine has %d CPUs, and %d were asked for", cpus, c.CPUs)
	}
	return nil
}

// interruptions finds the count of a class for one of the kernel's CPUs in /proc/interrupts,
// whose columns are the CPUs that are online.
func interruptions(r io.Reader, cpu int, class string) (uint64, error) {
	lines := bufio.NewScanner(r)
	lines.Scan()
	column := slices.Index(strings.Fields(lines.Text()), fmt.Sprintf("CPU%d", cpu))
	if column < 0 {
		return 0, fmt.Errorf("s390: /proc/interrupts has no CPU %d; is it offline?", cpu)
	}
	for lines.Scan() {
		name, counts, _ := strings.Cut(strings.TrimSpace(lines.Text()), ":")
		fields := strings.Fields(counts)
		if name != class || column >= len(fields) {
			continue
		}
		n, err := strconv.ParseUint(fields[column], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("s390: /proc/interrupts, %s: %w", class, err)
		}
		return n, nil
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("s390: /proc/interrupts: %w", err)
	}
	return 0, fmt.Errorf("s390: /proc/interrupts has no line %s", class)
}

// lastByte finds the largest address of memory in /proc/iomem.
func lastByte(r io.Reader) (uint64, error) {
	var last uint64
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		area, name, _ := strings.Cut(lines.Text(), " : ")
		_, end, _ := strings.Cut(area, "-")
		if name != "System RAM" {
			continue
		}
		n, err := strconv.ParseUint(end, 16, 64)
		if err != nil {
			return 0, fmt.Errorf("s390: /proc/iomem: %q is no area", area)
		}
		last = max(last, n)
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("s390: /proc/iomem: %w", err)
	}
	if last == 0 {
		return 0, fmt.Errorf("s390: /proc/iomem shows no memory; only root sees addresses in it")
	}
	return last, nil
}

// exception is Result.Trap for what Go says of a signal that ends a process: the signal's code
// tells which exception it was (arch/s390/kernel/traps.c, DO_ERROR_INFO, Linux 7.2).
func exception(said string) uint64 {
	for code, trap := range map[string]uint64{
		"sigcode=1": 1 + 1, // ILL_ILLOPC, operation
		"sigcode=2": 1 + 6, // ILL_ILLOPN, specification, and some more
		"sigcode=5": 1 + 2, // ILL_PRVOPC, privileged operation
	} {
		if strings.Contains(said, "SIGILL") && strings.Contains(said, code+"\n") {
			return trap
		}
	}
	return 0
}

// Package loongarch has the CPUs of a Linux guest on LoongArch run programs. It is the carrier kmod with
// what the checks of loongarch-kvm need besides (conformance.LoongArchGuest), all of which the guest's
// kernel tells or does: how many IPIs a CPU took, and programs at privilege level 3.
//
// # CPUs
//
// A machine has three of the kernel's CPUs, its second to fourth; the first is left to the rest of the
// system.
//
// # What is the kernel's
//
// The kernel of a guest of KVM uses the ABI itself: it sends its own interrupts by IPI, and has
// registered memory for steal time on each CPU. A program that registers other memory takes that away
// from it. To close the machine gives it back, by having the kernel take the CPUs offline and bring
// them back, where it registers it anew.
package loongarch

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"pvabi/arch/loong64"
	"pvabi/conformance/microvm"
)

// A machine has so many CPUs, the first of which is the kernel's second.
const (
	cpus  = 3
	first = 1
)

// check refuses configurations that a guest cannot choose.
func check(c microvm.Config) error {
	if c.Key() != (microvm.Config{CPUs: c.CPUs}).Key() {
		return fmt.Errorf("loongarch: a guest cannot choose what its hypervisor offers: %s", c.Key())
	}
	if c.CPUs > cpus {
		return fmt.Errorf("loongarch: a machine has %d CPUs, and %d were asked for", cpus, c.CPUs)
	}
	return nil
}

// taken finds in /proc/interrupts how many interrupts of a handler one of the kernel's CPUs took. Its
// columns are the CPUs that are online.
func taken(r io.Reader, cpu int, handler string) (uint64, error) {
	lines := bufio.NewScanner(r)
	lines.Scan()
	column := slices.Index(strings.Fields(lines.Text()), fmt.Sprintf("CPU%d", cpu))
	if column < 0 {
		return 0, fmt.Errorf("loongarch: /proc/interrupts has no CPU %d; is it offline?", cpu)
	}
	for lines.Scan() {
		// The number of the interrupt comes before the columns.
		fields := strings.Fields(lines.Text())
		if len(fields) < column+3 || fields[len(fields)-1] != handler {
			continue
		}
		n, err := strconv.ParseUint(fields[column+1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("loongarch: /proc/interrupts, %s: %w", handler, err)
		}
		return n, nil
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("loongarch: /proc/interrupts: %w", err)
	}
	return 0, fmt.Errorf("loongarch: /proc/interrupts has no line %s: this kernel does not use IPIs", handler)
}

// exception is Result.Trap for what Go says of a signal that ends a process.
func exception(said string) uint64 {
	if strings.Contains(said, "SIGILL") {
		return loong64.Illegal
	}
	return 0
}

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
	"strconv"
	"strings"
)

// Spare is the CPU of a machine that runs no programs.
const Spare = 2

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

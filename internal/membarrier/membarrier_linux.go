// Package membarrier has the kernel interrupt the CPUs that run threads of this process: a
// barrier of memory for all of its threads is that, for those that run
// (membarrier(2); kernel/sched/membarrier.c, membarrier_private_expedited, Linux 7.2).
package membarrier

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// What the kernel is asked for (include/uapi/linux/membarrier.h).
const (
	expedited = 1 << 3
	register  = 1 << 4
)

// Register is to be called once, before Interrupt. It waits until every CPU was once seen outside
// of the kernel.
func Register() error { return command(register) }

// Interrupt returns when all other CPUs that run threads of this process have taken an interrupt.
func Interrupt() error { return command(expedited) }

func command(n uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, n, 0, 0); errno != 0 {
		return fmt.Errorf("interrupt other CPUs by membarrier, command %d: %w; the kernel needs CONFIG_MEMBARRIER", n, errno)
	}
	return nil
}

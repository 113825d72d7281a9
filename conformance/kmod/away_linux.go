package kmod

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// KeepAway has this process, but for the threads that run programs, keep to the first CPU that it
// may use, so that it is not itself who interrupts the others. It also takes its memory out of the
// reach of khugepaged, which holds the process up while it waits for all CPUs to take an interrupt
// (mm/khugepaged.c, collapse_huge_page, and mm/mmu_gather.c, tlb_remove_table_sync_one; Linux 7.2).
func KeepAway() error {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("kmod: do without huge pages: %w", err)
	}
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("kmod: which CPUs this process may use: %w", err)
	}
	var first unix.CPUSet
	for n := 0; first.Count() == 0; n++ {
		if may.IsSet(n) {
			first.Set(n)
		}
	}
	// A thread that is made meanwhile has the CPUs of that which makes it.
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("kmod: the threads of this process: %w; is /proc mounted?", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("kmod: the threads of this process: %w", err)
			}
			if err := unix.SchedSetaffinity(id, &first); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kmod: keep a thread to a CPU: %w", err)
			}
		}
	}
	return nil
}

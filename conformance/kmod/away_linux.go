package kmod

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// KeepAway has this process, but for the threads that run programs, keep to the first CPU that it
// may use, so that it is not itself who interrupts the others.
func KeepAway() error {
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

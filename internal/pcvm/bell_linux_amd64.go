package pcvm

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// out writes a byte to a port.
func out(port uint16, value byte)

// ring rings the bell. Threads may use a port each for itself (ioperm(2)), so that each ring asks: it
// may be the first on its thread.
func ring(value byte) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, e := unix.Syscall(unix.SYS_IOPERM, Bell, 1, 1); e != 0 {
		return fmt.Errorf("the mailbox's bell, port %#x: ioperm: %w; the kernel needs CONFIG_X86_IOPL_IOPERM", Bell, e)
	}
	out(Bell, value)
	return nil
}

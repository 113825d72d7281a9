package probetest

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Passed is what Main prints last in a guest whose tests passed.
const Passed = "probetest: all tests passed"

// Guest tells whether this process is a guest's first one, so that Main booted it.
func Guest() bool { return os.Getpid() == 1 }

// Main is the TestMain of a probe's package. A process that is a guest's first one mounts
// what Go and its tests use, and turns the guest off at its end.
func Main(m *testing.M) {
	if !Guest() {
		os.Exit(m.Run())
	}
	for _, fs := range [][2]string{{"proc", "/proc"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}} {
		if err := os.MkdirAll(fs[1], 0o755); err != nil {
			fmt.Println("probetest:", err)
		}
		if err := unix.Mount(fs[0], fs[1], fs[0], 0, ""); err != nil {
			fmt.Printf("probetest: mount %s: %v\n", fs[1], err)
		}
	}
	if m.Run() == 0 {
		fmt.Println(Passed)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("probetest: power off:", err)
	}
}

package probetest

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// GuestWord is the variable of the environment that processes of a guest have.
const GuestWord = "PVABI_PROBETEST_GUEST"

// Passed is what Main prints last in a guest whose tests passed.
const Passed = "probetest: all tests passed"

// Guest tells whether this process is one of a guest that was booted for Main. The kernel gives
// its first process what it does not know of its own command line as an environment.
func Guest() bool { return os.Getenv(GuestWord) != "" }

// Main is the TestMain of a probe's package. A process that is a guest's first one mounts
// what Go and its tests use, and turns the guest off at its end.
func Main(m *testing.M) {
	if os.Getpid() != 1 || !Guest() {
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

package qemu

import (
	"fmt"
	"slices"
	"strings"

	vmtest "github.com/hugelgupf/vmtest/qemu"
)

// Board is how an architecture's guests are built: what vmtest leaves to its
// callers.
type Board struct {
	GOARCH string
	// System is the end of QEMU's name: qemu-system-SYSTEM.
	System string
	// Machine and CPU are the arguments of -machine and -cpu.
	Machine, CPU string
	// Memory is in MiB.
	Memory int
	// Firmware is the argument of -bios, empty for QEMU's own choice. QEMU looks
	// for it in its data folders.
	Firmware string
	// Console is the device of the kernel's argument console=.
	Console string
	// Channel is the device, of a second serial port, that the event channel is in the guest,
	// where the machine has no bus for a virtio-serial port.
	Channel string
	// Uname is what uname -m prints in the guest.
	Uname string
	// Append is added to the kernel's command line.
	Append string
}

// common is on every kernel's command line: end QEMU after a panic, and print
// warnings, but not each line of a boot, which a serial port is too slow for.
const common = "panic=-1 loglevel=5"

// cryptoTests leaves out the self-tests of the kernel's crypto library, half a
// second of an emulated boot.
const cryptoTests = "cryptomgr.notests"

// Boards are the architectures that targets run on.
var Boards = []Board{
	{
		GOARCH: "amd64", System: "x86_64", Machine: "q35", CPU: "max", Memory: 512,
		// qboot reaches the kernel some 0.3 s sooner than SeaBIOS.
		Firmware: "qboot.rom", Console: "ttyS0", Uname: "x86_64",
		Append: cryptoTests + " " +
			// On a busy host the emulated timer can be so late that the kernel takes
			// it for broken and panics (check_timer, arch/x86/kernel/apic/io_apic.c, 7.2),
			// and the TSC seems unstable against it, on which KVM's clocks depend
			// (clocksource_watchdog, kernel/time/clocksource.c).
			"no_timer_check tsc=reliable",
	},
	{
		GOARCH: "ppc64le", System: "ppc64", Machine: "pseries,x-vof=on", CPU: "POWER10", Memory: 1024,
		Console: "hvc0", Uname: "ppc64le", Append: cryptoTests,
	},
	{
		GOARCH: "s390x", System: "s390x", Machine: "s390-ccw-virtio", CPU: "max", Memory: 512,
		Console: "ttysclp0", Uname: "s390x", Append: cryptoTests,
	},
	{
		GOARCH: "loong64", System: "loongarch64", Machine: "virt", CPU: "la464", Memory: 1024,
		Console: "ttyS0,115200", Uname: "loongarch64",
		// Debian's kernel finds the machine's PCI by ACPI only.
		Channel: "/dev/ttyS1",
		// Without firmware there is no ACPI that would tell that there is no i8042, and Linux's
		// search for one reads addresses that the machine does not have (7.2, i8042_flush).
		Append: cryptoTests + " initcall_blacklist=i8042_init",
	},
}

// vmtest boots any architecture that its list has; it needs to know nothing
// about ours that Boards does not say.
func init() {
	for _, b := range Boards {
		if arch := vmtest.Arch(b.GOARCH); !arch.Valid() {
			vmtest.SupportedArches = append(vmtest.SupportedArches, arch)
		}
	}
}

// BoardOf returns the board of an architecture.
func BoardOf(goarch string) (Board, error) {
	i := slices.IndexFunc(Boards, func(b Board) bool { return b.GOARCH == goarch })
	if i < 0 {
		known := make([]string, len(Boards))
		for i, b := range Boards {
			known[i] = b.GOARCH
		}
		return Board{}, fmt.Errorf("no board for GOARCH %q; there are %s", goarch, strings.Join(known, ", "))
	}
	return Boards[i], nil
}

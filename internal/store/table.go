package store

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// architecture is all that the store knows about one instruction set.
type architecture struct {
	goarch string // Go's name
	debian string // Debian's name, see dpkg-architecture -L

	// As a guest. Empty where no target runs on it.
	flavour  string   // Debian's kernel flavour that is used by default
	images   []string // names that the kernel's file can have
	emulator string   // QEMU's program
	// providers are the packages that may hold the program, in the order in
	// which they are tried: Debian splits qemu-system-misc from time to time.
	providers []string
	data      []string // packages with QEMU's own data and firmware
	firmware  firmware // what -bios needs beyond that
}

type firmware struct {
	pkg  string // Debian package, architecture all
	file string // path in the package
}

// architectures has a row for each guest that targets run on, and for each host
// for which Debian builds QEMU.
//
// The cloud flavour of amd64 is a quarter of the generic one's size and still has
// kvm-amd and msr; it has neither 9p nor Xen's dom0 support.
var architectures = []architecture{
	{
		goarch: "amd64", debian: "amd64",
		flavour: "cloud-amd64", images: []string{"vmlinuz"},
		emulator: "qemu-system-x86_64", providers: []string{"qemu-system-x86"},
		data: []string{"qemu-system-data", "seabios"},
	},
	{
		goarch: "ppc64le", debian: "ppc64el",
		flavour: "powerpc64le", images: []string{"vmlinux", "vmlinuz"},
		emulator: "qemu-system-ppc64", providers: []string{"qemu-system-ppc"},
		data: []string{"qemu-system-data"},
	},
	{
		goarch: "s390x", debian: "s390x",
		flavour: "s390x", images: []string{"vmlinuz"},
		emulator: "qemu-system-s390x", providers: []string{"qemu-system-s390x", "qemu-system-misc"},
		data: []string{"qemu-system-data"},
	},
	{
		goarch: "loong64", debian: "loong64",
		flavour: "loong64", images: []string{"vmlinuz"},
		emulator: "qemu-system-loongarch64", providers: []string{"qemu-system-misc"},
		data:     []string{"qemu-system-data"},
		firmware: firmware{"qemu-efi-loongarch64", "usr/share/qemu-efi-loongarch64/QEMU_EFI.fd"},
	},
	{goarch: "arm64", debian: "arm64"},
	{goarch: "riscv64", debian: "riscv64"},
}

// guest returns the row of an architecture that targets run on.
func guest(goarch string) (*architecture, error) {
	i := slices.IndexFunc(architectures, func(a architecture) bool { return a.goarch == goarch && a.emulator != "" })
	if i < 0 {
		var known []string
		for _, a := range architectures {
			if a.emulator != "" {
				known = append(known, a.goarch)
			}
		}
		return nil, fmt.Errorf("store: no guest architecture %q; there are %s", goarch, strings.Join(known, ", "))
	}
	return &architectures[i], nil
}

// host returns Debian's name of the architecture that this program runs on.
func host() (string, error) {
	i := slices.IndexFunc(architectures, func(a architecture) bool { return a.goarch == runtime.GOARCH })
	if i < 0 {
		return "", fmt.Errorf("store: no Debian QEMU is known for hosts of architecture %s; install one and name it with -qemu", runtime.GOARCH)
	}
	return architectures[i].debian, nil
}

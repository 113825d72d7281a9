package qemu

import (
	"fmt"
	"strings"

	"pvabi/conformance"
)

// Xen is a hypervisor that a guest is booted on. The guest's kernel becomes Xen's domain 0, a
// paravirtualized guest that has the machine's devices.
//
// QEMU loads Xen as a multiboot program, kernel and initramfs as its modules. Xen prints to the
// console's serial port, and what its domain 0 prints, too.
type Xen struct {
	// File is the hypervisor, not compressed.
	File string
	// Release is the version of Xen that the guest must find below it, or the beginning of
	// that: "4.20". BuildID is its build's. Either is empty if not known.
	Release, BuildID string
	// Append is added to Xen's command line.
	Append []string
}

// XenBoard is how domain 0 of a Xen is built. Its fields say what Boards says of other guests.
var XenBoard = Board{
	GOARCH: "amd64", System: "x86_64", Machine: "q35", Memory: 512, Uname: "x86_64",
	// Without XSAVE: TCG lets XSAVE and XRSTOR run where CR0.TS is to have them trap
	// (target/i386/tcg/fpu_helper.c, helper_xsave and helper_xrstor; QEMU 7.2 to 11.1), by which Xen
	// finds out that a vCPU wants its vector registers. With them, vCPUs that share a CPU
	// get each other's registers, unless Xen is told to switch them always (spec-ctrl=eager-fpu).
	// Without SSSE3: with it, the kernel patches its calls of the crypto library, each time waiting
	// for all vCPUs, one after the other.
	CPU: "qemu64",
	// qboot, the firmware of the other board, boots no multiboot program.
	Firmware: "", Console: "hvc0",
	// The kernel must not patch its code for a TSC that is stable after all: under emulation
	// that has gone wrong. Three things spare a boot more than a second: protecting the kernel's
	// page tables, after which it searches all of them for pages that can be written and executed;
	// 64 MiB of buffers for devices, where 8 will do; and tests of the crypto library.
	Append: "tsc=unstable rodata=off swiotlb=4096 " + cryptoTests,
}

// xenCommon is on every Xen's command line. One CPU for all vCPUs has them preempted often, and
// by each other only. What is left to domain 0 of the board's memory is what Xen needs not itself.
const xenCommon = "console=com1 com1=115200,8n1 noreboot=no maxcpus=1 dom0_mem=384M"

// xenBoot is DefaultBoot for guests of Xen, whose boot takes three times what that of others does.
const xenBoot = 3 * DefaultBoot

// boots are the parts of QEMU's command line that name what is booted: the program that it loads,
// that program's command line, and its modules.
func (c *Config) boots() (kernel string, line []string, modules string) {
	if c.Xen == nil {
		return c.Kernel, c.append(), c.Initramfs
	}
	// One vCPU more than the machine has CPUs, by which the kernel goes, is never brought up.
	line = append([]string{xenCommon, fmt.Sprintf("dom0_max_vcpus=%d", c.CPUs+1)}, c.Xen.Append...)
	return c.Xen.File, line, module(c.Kernel, c.append()...) + "," + module(c.Initramfs)
}

// module is a module in QEMU's list of them: a file and a command line, in which a comma is
// written as two (hw/i386/multiboot.c, load_multiboot, QEMU 11.1).
func module(file string, line ...string) string {
	return strings.ReplaceAll(strings.Join(append([]string{file}, line...), " "), ",", ",,")
}

// maxDom0Line is the longest command line that Xen gives a domain 0, in bytes
// (MAX_GUEST_CMDLINE of xen/include/public/xen.h, less the zero at its end). What is longer it cuts off.
const maxDom0Line = 1023

// checkModules refuses what cannot be told to QEMU, in whose list of modules a blank ends a
// file's name, or to domain 0.
func (c *Config) checkModules() error {
	if c.Xen == nil {
		return nil
	}
	for what, name := range map[string]string{"kernel": c.Kernel, "initramfs": c.Initramfs} {
		if strings.Contains(name, " ") {
			return fmt.Errorf("boot the %s %q on Xen: QEMU takes no blank in its name; set TMPDIR to a folder without", what, name)
		}
	}
	if n := len(strings.Join(c.append(), " ")); n > maxDom0Line {
		return fmt.Errorf("a command line of %d bytes for a kernel on Xen, which takes %d; select fewer rules", n, maxDom0Line)
	}
	return nil
}

// identify makes sure that the guest runs on the Xen that was asked for, as its domain 0.
func (x *Xen) identify(got *conformance.XenIdentity) error {
	if got == nil {
		return fmt.Errorf("%w: there is no Xen below it", ErrIdentity)
	}
	for _, t := range []struct {
		what, got, want string
		same            bool
	}{
		{"kind on Xen", got.GuestType, "PV", got.GuestType == "PV"},
		{"domain 0 on Xen", fmt.Sprint(got.Dom0), "true", got.Dom0},
		{"version of Xen", got.Version, x.Release, x.Release == "" || strings.HasPrefix(got.Version+".", x.Release+".")},
		{"build of Xen", got.BuildID, x.BuildID, x.BuildID == "" || got.BuildID == x.BuildID},
	} {
		if !t.same {
			return fmt.Errorf("%w: its %s is %q, want %q", ErrIdentity, t.what, t.got, t.want)
		}
	}
	return nil
}

// xenSays finds, in a console, why a Xen gave up: on itself, or on its domain 0.
func xenSays(console string) (why string, ok bool) {
	if _, panicked, ok := strings.Cut(console, "\n(XEN) Panic on CPU "); ok {
		// The next line has the reason.
		lines := strings.SplitN(panicked, "\n", 3)
		if len(lines) > 1 {
			return "Xen: " + strings.TrimSpace(strings.TrimPrefix(lines[1], "(XEN)")), true
		}
	}
	if _, crashed, ok := strings.Cut(console, "(XEN) Domain 0 (vcpu#"); ok && strings.Contains(crashed, "crashed on cpu") {
		return "Xen: domain 0 crashed", true
	}
	return "", false
}

package conformance

import (
	"fmt"
	"slices"

	"pvabi/abi"
)

// Option is an option of Linux's configuration that a kernel needs for rules to be looked at.
type Option struct {
	// Name is without the CONFIG_ in front.
	Name string
	// Module tells that a module will do.
	Module bool
	// Side is the one whose rules need it; empty for both.
	Side abi.Side
	// For says what it is needed for.
	For string
}

// String names the option, what it is for, and the rules that need it.
func (o Option) String() string {
	rules := "all rules"
	if o.Side != "" {
		rules = "the rules of the " + string(o.Side)
	}
	return fmt.Sprintf("CONFIG_%s, for %s, which %s need", o.Name, o.For, rules)
}

// builtIn makes options that have to be y.
func builtIn(purpose string, names ...string) (out []Option) {
	for _, n := range names {
		out = append(out, Option{Name: n, For: purpose})
	}
	return out
}

// orModule has options be satisfied by m.
func orModule(options []Option) []Option {
	for i := range options {
		options[i].Module = true
	}
	return options
}

// of has options be needed by the rules of one side only.
func of(side abi.Side, options []Option) []Option {
	for i := range options {
		options[i].Side = side
	}
	return options
}

// agentOptions are what a kernel needs to run the agent and to be heard, whatever its machine.
func agentOptions() []Option {
	return slices.Concat(
		builtIn("the agent, the program that the guest boots", "BLK_DEV_INITRD", "BINFMT_ELF", "FUTEX", "EPOLL", "EVENTFD", "PROC_FS", "SYSFS"),
		builtIn("the target's CPUs", "SMP"),
		builtIn("the guest's console", "TTY", "PRINTK"),
		orModule(builtIn("the channel for results", "VIRTIO_CONSOLE")))
}

// pciOptions are what a kernel needs to find the channel on a machine with PCI.
func pciOptions() []Option {
	return slices.Concat(builtIn("the channel for results", "PCI"), orModule(builtIn("the channel for results", "VIRTIO_PCI")))
}

// tracingOptions are what a kernel needs to note what it does; see package linuxguest.
func tracingOptions() []Option {
	return of(abi.Guest, builtIn("recording what the kernel does", "DEBUG_FS", "KPROBE_EVENTS", "KALLSYMS"))
}

// loadingOptions are what a kernel needs to run a module of ours; see package kmod.
func loadingOptions() []Option {
	return slices.Concat(
		builtIn("the module that asks the hypervisor", "MODULES", "MODULE_UNLOAD"),
		// It is not to be built in: its file tells what the kernel's modules look like.
		[]Option{{Name: "DUMMY", Module: true, For: "a module to learn from what modules look like; it has to be m"}})
}

// X86KVMOptions are what a kernel needs for its KVM to be looked at.
func X86KVMOptions() []Option {
	return slices.Concat(agentOptions(), pciOptions(),
		builtIn("the guest's console", "SERIAL_8250_CONSOLE"),
		orModule(builtIn("the KVM that is looked at, on the emulated processor", "KVM_AMD")))
}

// X86KVMGuestOptions are what a kernel needs to be looked at as a guest of its own KVM.
func X86KVMGuestOptions() []Option {
	return slices.Concat(X86KVMOptions(),
		builtIn("finding the CPUs of a machine without firmware", "ACPI", "X86_X2APIC"),
		builtIn("being heard in that machine", "DEVMEM", "SERIAL_EARLYCON"),
		builtIn("what the guest is to do", "KVM_GUEST", "PARAVIRT_SPINLOCKS", "KEXEC", "CRASH_DUMP", "HOTPLUG_CPU"),
		tracingOptions(), of(abi.Guest, builtIn("a look into the kernel", "KALLSYMS_ALL")))
}

// X86XenOptions are what a kernel needs to be domain 0 of a Xen that is looked at.
func X86XenOptions() []Option {
	return slices.Concat(agentOptions(), pciOptions(),
		builtIn("booting on Xen", "XEN_PV_DOM0"),
		orModule(builtIn("asking Xen", "XEN_PRIVCMD", "XEN_DEV_EVTCHN")))
}

// PowerPCOptions are what a kernel needs on QEMU's pseries machine for both sides to be looked at.
func PowerPCOptions() []Option {
	return slices.Concat(agentOptions(), pciOptions(), loadingOptions(),
		builtIn("QEMU's machine", "PPC_PSERIES"),
		builtIn("the guest's console", "HVC_CONSOLE"),
		of(abi.Guest, builtIn("what the guest is to do", "PPC_SPLPAR")),
		tracingOptions())
}

// PowerPCKVMOptions are what a kernel needs for its KVM-HV to be looked at.
func PowerPCKVMOptions() []Option {
	return slices.Concat(agentOptions(), pciOptions(),
		builtIn("QEMU's machine", "PPC_PSERIES"),
		builtIn("the guest's console", "HVC_CONSOLE"),
		orModule(builtIn("the KVM that is looked at", "KVM_BOOK3S_64_HV")))
}

// S390Options are what a kernel needs on QEMU's s390 machine for both sides to be looked at.
func S390Options() []Option {
	return slices.Concat(agentOptions(), loadingOptions(),
		builtIn("the channel for results", "S390_GUEST"),
		builtIn("the guest's console", "SCLP_CONSOLE"),
		tracingOptions())
}

// LoongArchOptions are what a kernel needs on the reference hypervisor.
func LoongArchOptions() []Option {
	return slices.Concat(
		builtIn("the agent, the program that the guest boots", "BLK_DEV_INITRD", "BINFMT_ELF", "FUTEX", "EPOLL", "EVENTFD", "PROC_FS", "SYSFS"),
		builtIn("the target's CPUs", "SMP"),
		builtIn("the console and the channel for results", "TTY", "SERIAL_8250_CONSOLE"),
		builtIn("what the guest is to do", "PARAVIRT"))
}

package abi

import (
	"math"
	"strings"
)

// X86Xen returns the ABI between Xen and the Linux kernels that run on it as
// paravirtualized guests on x86-64.
//
// A hypercall has a number of its own; most have operations, which go by a
// number of their own in the first argument. Here a call is either: those of the
// convention "hypercall" are hypercalls, those of a convention that bears a
// hypercall's name are its operations. What an operation works on lies in memory,
// in a structure whose layout the table has under the name of the C type.
//
// What names a CPU differs: vCPUs have numbers, and an event channel, by which
// one CPU kicks another, has a port, which is bound to a vCPU.
func X86Xen() *Platform {
	return &Platform{
		Name:      "x86-xen",
		Title:     "Xen on x86, paravirtualized guests",
		GOARCH:    []string{"amd64"},
		ByteOrder: "little",
		Scheduling: Scheduling{
			Kick: "send", KickTarget: 0,
			Wait:      "poll",
			Preempted: "vcpu_runstate_info.state",
			Steal:     "vcpu_runstate_info.time_runnable",
			Area:      "register_runstate_memory_area",
		},
		Discovery:   xenDiscovery(),
		Conventions: xenConventions(),
		Calls:       xenCalls(),
		Errors:      xenErrors(),
		Features:    xenFeatures(),
		Layouts:     xenLayouts(),
		Rules:       xenRules(),
		Silences:    xenSilences(),
	}
}

func xenSilences() []Silence {
	var silences []Silence
	for _, question := range []string{"yield/self", "yield/running-target", "yield/waiting-target", "yield/absent-target", "yield/does-not-wake"} {
		silences = append(silences, Silence{
			Question: question,
			Why:      "A yield names no CPU: it gives the caller's CPU to whoever comes next. That it comes back, with the result listed for it, is sched/yield.",
			Sources:  []Source{xenYield, linux("arch/x86/include/asm/xen/hypercall.h", "HYPERVISOR_sched_op")},
		})
	}
	return silences
}

func xenDiscovery() []Word {
	word := func(name string, number uint64, text string, sources ...Source) Word {
		return Word{Name: name, Number: number, Text: text, Sources: sources}
	}
	const leaves = "arch/x86/include/asm/xen/cpuid.h"
	return []Word{
		word("prefix", 0x6e65780b0f, "The five bytes that a paravirtualized guest puts before CPUID to have Xen answer instead of the processor, the first in the lowest bits: an undefined opcode, and xen. No other instruction can follow.",
			linux("arch/x86/include/asm/emulate_prefix.h", "__XEN_EMULATE_PREFIX"), xenForced),
		word("first-leaf", 0x40000000, "The leaf with Xen's signature in a paravirtualized guest, and the first at which it may be in any.",
			linux(leaves, "XEN_CPUID_FIRST_LEAF"), linux("arch/x86/include/asm/xen/hypervisor.h", "xen_cpuid_base"), xenCPUID),
		word("signature-ebx", 0x566e6558, "EBX of the signature leaf: \"XenV\".", linux(leaves, "XEN_CPUID_SIGNATURE_EBX"), xenCPUID),
		word("signature-ecx", 0x65584d4d, "ECX of the signature leaf: \"MMXe\".", linux(leaves, "XEN_CPUID_SIGNATURE_ECX"), xenCPUID),
		word("signature-edx", 0x4d4d566e, "EDX of the signature leaf: \"nVMM\".", linux(leaves, "XEN_CPUID_SIGNATURE_EDX"), xenCPUID),
		word("least-leaves", 2, "How many leaves after the signature leaf a guest counts on.",
			linux("arch/x86/include/asm/xen/hypervisor.h", "xen_cpuid_base"), xenCPUID),
		word("version-leaf", 1, "What to add to the signature leaf for the leaf with the version in EAX: the major number in bits 31:16, the minor one in bits 15:0.",
			linux(leaves, ""), xenCPUID),
		word("hypercall-leaf", 2, "What to add for the leaf with the number of pages with hypercalls in EAX and the register that fills one in EBX.",
			linux(leaves, ""), xenCPUID),
		word("hypercall-pages", 1, "The number of those pages.", xenCPUID),
		word("hypercall-register", 0x40000000, "The number of that register.", xenCPUID),
		word("first-free-call", 56, "From here to last-free-call no hypercall is known; 63 is the last number that a page with hypercalls has room for.",
			xenPublic("xen.h", "__HYPERVISOR_arch_7").noting("the last with a name"), xenTable),
		word("last-free-call", 127, "The end of that range.", xenTable),
		word("first-free-operation", 64, "From here to last-free-operation no hypercall of this table has an operation.",
			xenSchedOp, xenEventOp, xenVCPUOp, xenAssist),
		word("last-free-operation", 95, "The end of that range.", xenSchedOp, xenEventOp, xenVCPUOp, xenAssist),
		word("self", 0x7ff0, "What a domain calls itself, where an operation names a domain.", xenPublic("xen.h", "DOMID_SELF"), linux("include/xen/interface/xen.h", "DOMID_SELF")),
		word("absent-domain", 0x7fef, "The largest number that a domain could have, and that none does have.", xenPublic("xen.h", "DOMID_FIRST_RESERVED"), linux("include/xen/interface/xen.h", "DOMID_FIRST_RESERVED")),
		word("ports", 4096, "How many ports there are while events go by bits in shared_info, so that this is the first that cannot be one.",
			linux("include/xen/interface/event_channel.h", "EVTCHN_2L_NR_CHANNELS"), xenSource("xen/common/event_channel.c", "get_free_port")),
		word("poll-limit", 128, "How many ports one poll can name.", xenPoll),
		word("no-vcpu", 0x8000, "A number that no vCPU has.", xenPublic("arch-x86/xen.h", "XEN_LEGACY_MAX_VCPUS"), xenVCPUOp),
		word("hypervisor-memory", 0xffff800000000000, "The first address that is the hypervisor's, and no guest's.",
			xenPublic("arch-x86/xen-x86_64.h", "__HYPERVISOR_VIRT_START"), linux("arch/x86/include/asm/xen/interface_64.h", "__HYPERVISOR_VIRT_START")),
		word("running", 0, "State of a vCPU that has a CPU.", xenPublic("vcpu.h", "RUNSTATE_running"), linux("include/xen/interface/vcpu.h", "RUNSTATE_running")),
		word("runnable", 1, "State of a vCPU that wants a CPU and has none: it is preempted.", xenPublic("vcpu.h", "RUNSTATE_runnable"), linux("include/xen/interface/vcpu.h", "RUNSTATE_runnable"), xenGuestStolen),
		word("blocked", 2, "State of a vCPU that waits for an event.", xenPublic("vcpu.h", "RUNSTATE_blocked"), linux("include/xen/interface/vcpu.h", "RUNSTATE_blocked")),
		word("offline", 3, "State of a vCPU that can neither run nor be woken.", xenPublic("vcpu.h", "RUNSTATE_offline"), linux("include/xen/interface/vcpu.h", "RUNSTATE_offline")),
		word("closed", 0, "Status of a port that is not in use.", xenPublic("event_channel.h", "EVTCHNSTAT_closed"), linux("include/xen/interface/event_channel.h", "EVTCHNSTAT_closed")),
		word("unbound", 1, "Status of a port that waits for its other end.", xenPublic("event_channel.h", "EVTCHNSTAT_unbound"), linux("include/xen/interface/event_channel.h", "EVTCHNSTAT_unbound")),
		word("interdomain", 2, "Status of a port with another end.", xenPublic("event_channel.h", "EVTCHNSTAT_interdomain"), linux("include/xen/interface/event_channel.h", "EVTCHNSTAT_interdomain")),
		word("virq", 4, "Status of a port that an event of the hypervisor's own is bound to, such as a timer's.", xenPublic("event_channel.h", "EVTCHNSTAT_virq"), linux("include/xen/interface/event_channel.h", "EVTCHNSTAT_virq")),
		word("ipi", 5, "Status of a port by which a vCPU reaches another of its own domain.", xenPublic("event_channel.h", "EVTCHNSTAT_ipi"), linux("include/xen/interface/event_channel.h", "EVTCHNSTAT_ipi")),
		word("assist-enable", 0, "Command of vm_assist that turns something on.", xenPublic("xen.h", "VMASST_CMD_enable"), linux("include/xen/interface/xen.h", "VMASST_CMD_enable")),
		word("assist-disable", 1, "Command of vm_assist that turns it off.", xenPublic("xen.h", "VMASST_CMD_disable"), linux("include/xen/interface/xen.h", "VMASST_CMD_disable")),
		word("assist-update-flag", 5, "What to turn on to have UPDATE set in the area of a runstate while it is being written.",
			xenPublic("xen.h", "VMASST_TYPE_runstate_update_flag"), linux("include/xen/interface/xen.h", "VMASST_TYPE_runstate_update_flag")),
		word("assist-unknown", 63, "A thing that vm_assist cannot turn on.", xenAssist),
		word("unregister", math.MaxUint64, "The address that takes back an area that was registered by physical address.", xenPublic("vcpu.h", "VCPUOP_register_runstate_phys_area"), xenMapArea),
	}
}

func xenConventions() []Convention {
	forms := func() []Instruction {
		return []Instruction{{Mnemonic: "syscall", Code: "0f05", Length: 2, When: "all, in a 64-bit paravirtualized guest"}}
	}
	guest := linux("arch/x86/include/asm/xen/hypercall.h", "__HYPERCALL_ENTRY")
	entry := linux("arch/x86/xen/xen-asm.S", "xen_hypercall_pv")
	of := func(hypercall, text string, args []string, sources ...Source) Convention {
		return Convention{
			Name: hypercall, Instructions: forms(), Number: "RDI", Args: args, Result: "RAX", Width: 32,
			Text:    text + " An operation that is not there gives -ENOSYS.",
			Sources: append(sources, guest),
		}
	}
	return []Convention{
		{
			Name: "hypercall", Instructions: forms(),
			Number: "RAX", Args: []string{"RDI", "RSI", "RDX", "R10", "R8"}, Result: "RAX",
			Width: 64,
			Text: "In the guest's kernel. All 64 bits of the number count. Errors are negative. RCX and R11 are lost, as by any SYSCALL; a hypervisor that was built to find mistakes may fill the registers of the arguments, too. " +
				"In user mode the instruction is a system call of the guest's own kernel. A number that is not there gives -ENOSYS.",
			Sources: []Source{xenEntry, xenHypercall, guest, entry},
		},
		of("xen_version", "Hypercall xen_version with the operation in its first argument.", []string{"RSI"}, xenVersion),
		of("vm_assist", "Hypercall vm_assist with the command in its first argument and what it is about in the second. What it is about is looked at before the command.", []string{"RSI"}, xenAssist),
		of("vcpu_op", "Hypercall vcpu_op with the operation in its first argument and the vCPU in the second. The vCPU is looked at before the operation.", []string{"RSI", "RDX"}, xenVCPUOp),
		of("sched_op", "Hypercall sched_op with the operation in its first argument.", []string{"RSI"}, xenSchedOp),
		of("event_channel_op", "Hypercall event_channel_op with the operation in its first argument.", []string{"RSI"}, xenEventOp),
	}
}

func xenErrors() []Errno {
	errno := func(name string, result int64, text string, sources ...Source) Errno {
		return Errno{Name: name, Result: result, Text: text, Sources: append([]Source{xenPublic("errno.h", name)}, sources...)}
	}
	return []Errno{
		errno("ENOENT", -2, "There is no such vCPU.", xenVCPUOp, xenBindIPI, xenBindVCPU),
		errno("ESRCH", -3, "There is no such domain.", xenEventOp),
		errno("ENXIO", -6, "An area would cross a page, or is not aligned.", xenMapArea),
		errno("EFAULT", -14, "The argument is not memory of the guest's.", xenEventOp, xenSchedOp, xenVCPUOp),
		errno("EBUSY", -16, "The area is registered already.", xenVCPUOp),
		errno("EINVAL", -22, "An argument has a value that the operation does not take: a port, for one, that is closed or cannot be.", xenPoll, xenSend),
		errno("ENOSYS", -38, "There is no such hypercall, or no such operation.", xenHypercall, xenEventOp, xenSchedOp, xenVCPUOp),
	}
}

func xenFeatures() []Feature {
	feature := func(name string, bit uint64, since, text string) Feature {
		header := xenPublic("features.h", "XENFEAT_"+name)
		return Feature{Name: name, Word: "features", Bit: bit, Text: text, Offered: "kernel", Since: since, Sources: []Source{header, xenVersion}}
	}
	return []Feature{
		feature("mmu_pt_update_preserve_ad", 5, "", "Page tables can be changed with accessed and dirty bits kept. Every paravirtualized guest is offered it."),
		feature("runstate_phys_area", 18, "4.18", "The area of a runstate can be registered by physical address."),
		feature("vcpu_time_phys_area", 19, "4.18", "The area of a vCPU's time can be registered by physical address."),
	}
}

func xenCalls() []Call {
	hypercall := func(name string, number uint64, text string, outcomes ...Outcome) Call {
		return Call{
			Name: name, Number: number, Text: text,
			Args:     []Arg{{Name: "operation", Text: "Which operation; what follows depends on it."}},
			Outcomes: append(outcomes, Outcome{When: "undefined operation", Error: "ENOSYS"}),
			Sources:  []Source{xenPublic("xen.h", "__HYPERVISOR_"+name), linux("include/xen/interface/xen.h", "__HYPERVISOR_"+name), xenTable},
		}
	}
	var calls []Call
	operation := func(of, name string, number uint64, text string, args []Arg, outcomes []Outcome, sources ...Source) {
		calls = append(calls, Call{Name: name, Number: number, Convention: of, Text: text, Args: args, Outcomes: outcomes, Sources: sources})
	}
	good := Outcome{When: "done"}
	unreadable := Outcome{When: "argument unreadable", Error: "EFAULT"}
	pointer := func(to string) Arg { return Arg{Name: "argument", Text: "Address of a " + to + "."} }

	calls = append(calls,
		hypercall("xen_version", 17, "What the hypervisor is and offers."),
		hypercall("vm_assist", 21, "Turns help of the hypervisor's on and off.", Outcome{When: "done"}, Outcome{When: "nothing that it knows", Error: "EINVAL"}),
		hypercall("vcpu_op", 24, "What one vCPU can do to, or learn of, another of its domain, itself included.", Outcome{When: "absent vCPU", Error: "ENOENT"}),
		hypercall("sched_op", 29, "What a vCPU wants of the hypervisor's scheduler."),
		hypercall("event_channel_op", 32, "Event channels: interrupts by software, between domains, vCPUs, and from the hypervisor."),
	)

	version := func(symbol string) []Source {
		return []Source{xenPublic("version.h", symbol), linux("include/xen/interface/version.h", symbol), xenVersion}
	}
	operation("xen_version", "version", 0, "The version: the major number in bits 31:16 of the result, the minor one in bits 15:0.",
		[]Arg{{Name: "argument", Text: "Not looked at."}}, []Outcome{{When: "major number", Result: 4}}, version("XENVER_version")...)
	operation("xen_version", "get_features", 6, "One word of bits for what is offered.",
		[]Arg{pointer("xen_feature_info")},
		[]Outcome{good, unreadable, {When: "absent word", Error: "EINVAL"}}, version("XENVER_get_features")...)

	sched := func(symbol string, more ...Source) []Source {
		return append([]Source{xenPublic("sched.h", symbol), linux("include/xen/interface/sched.h", symbol), xenSchedOp}, more...)
	}
	operation("sched_op", "yield", 0, "Gives the CPU to another vCPU that wants one.",
		[]Arg{{Name: "argument", Text: "Not looked at."}}, []Outcome{good}, sched("SCHEDOP_yield", xenYield)...)
	operation("sched_op", "block", 1, "Turns events on and waits for one that is to be delivered.",
		[]Arg{{Name: "argument", Text: "Not looked at."}}, []Outcome{good}, sched("SCHEDOP_block", xenBlock)...)
	operation("sched_op", "poll", 3,
		"Waits until one of the ports is pending, masked or not, or an event is to be delivered, or the timeout is over. Pending stays pending. An event that is to be delivered ends it before ports are looked at.",
		[]Arg{pointer("sched_poll")},
		[]Outcome{
			{When: "port pending"}, {When: "timeout over"}, unreadable,
			{When: "ports unreadable", Error: "EFAULT"},
			{When: "too many ports", Error: "EINVAL"},
			{When: "absent port", Error: "EINVAL"},
			{When: "closed port", Error: "EINVAL"},
		}, sched("SCHEDOP_poll", xenPoll, xenGuestPoll)...)

	event := func(symbol string, more ...Source) []Source {
		return append([]Source{xenPublic("event_channel.h", symbol), linux("include/xen/interface/event_channel.h", symbol), xenEventOp}, more...)
	}
	noPort := []Outcome{{When: "absent port", Error: "EINVAL"}, {When: "closed port", Error: "EINVAL"}}
	outcomes := func(o ...Outcome) []Outcome { return append([]Outcome{good, unreadable}, o...) }
	operation("event_channel_op", "bind_interdomain", 0, "Binds a new port to an unbound one, here to one of the own domain. The new port begins as pending, as events to the other end may have been lost.",
		[]Arg{pointer("evtchn_bind_interdomain")}, outcomes(Outcome{When: "absent domain", Error: "ESRCH"}, Outcome{When: "not unbound", Error: "EINVAL"}), event("EVTCHNOP_bind_interdomain", xenBindInterdomain)...)
	operation("event_channel_op", "close", 3, "Closes a port, which is no longer pending then. The other end of an interdomain port becomes unbound.",
		[]Arg{pointer("evtchn_close")}, outcomes(noPort...), event("EVTCHNOP_close", xenClose)...)
	operation("event_channel_op", "send", 4, "Makes pending the port that is meant: an IPI's own, or the other end of an interdomain one. To an unbound port nothing happens.",
		[]Arg{{Name: "port", Text: "Address of an evtchn_send with the port."}},
		[]Outcome{
			{When: "self"}, {When: "running target"}, {When: "waiting target"}, {When: "unbound port"},
			{When: "absent target", Error: "EINVAL"}, {When: "closed port", Error: "EINVAL"}, {When: "port of a virq", Error: "EINVAL"}, unreadable,
		}, event("EVTCHNOP_send", xenSend, xenGuestKick)...)
	operation("event_channel_op", "status", 5, "What a port is bound to.",
		[]Arg{pointer("evtchn_status")}, outcomes(Outcome{When: "absent domain", Error: "ESRCH"}, Outcome{When: "absent port", Error: "EINVAL"}), event("EVTCHNOP_status", xenStatus)...)
	operation("event_channel_op", "alloc_unbound", 6, "Takes a port into use that another domain, or the own one, can bind to.",
		[]Arg{pointer("evtchn_alloc_unbound")}, outcomes(Outcome{When: "absent domain", Error: "ESRCH"}), event("EVTCHNOP_alloc_unbound", xenAlloc)...)
	operation("event_channel_op", "bind_ipi", 7, "Takes a port into use whose events a vCPU of the own domain gets.",
		[]Arg{pointer("evtchn_bind_ipi")}, outcomes(Outcome{When: "absent vCPU", Error: "ENOENT"}), event("EVTCHNOP_bind_ipi", xenBindIPI)...)
	operation("event_channel_op", "bind_vcpu", 8, "Moves the events of a port to another vCPU. Those of an IPI cannot be moved. The vCPU is looked at before the port.",
		[]Arg{pointer("evtchn_bind_vcpu")}, outcomes(append([]Outcome{{When: "absent vCPU", Error: "ENOENT"}, {When: "port of an IPI", Error: "EINVAL"}}, noPort...)...), event("EVTCHNOP_bind_vcpu", xenBindVCPU)...)
	operation("event_channel_op", "unmask", 9, "Clears the mask of a port and delivers its event if it is pending. A closed port is no error.",
		[]Arg{pointer("evtchn_unmask")}, outcomes(Outcome{When: "absent port", Error: "EINVAL"}, Outcome{When: "closed port"}), event("EVTCHNOP_unmask", xenUnmask)...)
	operation("event_channel_op", "reset", 10, "Closes all ports of a domain and goes back to events by bits in shared_info.",
		[]Arg{pointer("evtchn_reset")}, outcomes(Outcome{When: "absent domain", Error: "ESRCH"}), event("EVTCHNOP_reset", xenReset)...)

	vcpu := func(symbol string, more ...Source) []Source {
		return append([]Source{xenPublic("vcpu.h", symbol), xenVCPUOp}, more...)
	}
	number := Arg{Name: "vcpu", Text: "Number of the vCPU."}
	absent := Outcome{When: "absent vCPU", Error: "ENOENT"}
	area := func(name string, n uint64, text, of string, sources ...Source) {
		operation("vcpu_op", name, n, text, []Arg{number, {Name: "argument", Text: "Address of an area_address with the address of a " + of + "."}},
			[]Outcome{good, absent, unreadable, {When: "area of the hypervisor's", Error: "EFAULT"}}, sources...)
	}
	physical := func(name string, n uint64, feature, text, of string, sources ...Source) {
		operation("vcpu_op", name, n, text, []Arg{number, {Name: "argument", Text: "Address of an area_address with the physical address of a " + of + ", or unregister."}},
			[]Outcome{good, absent, unreadable, {When: "area crosses a page", Error: "ENXIO"}, {When: "area not aligned", Error: "ENXIO"}, {When: "not offered", Error: "ENOSYS"}}, sources...)
		calls[len(calls)-1].Feature = feature
	}
	operation("vcpu_op", "is_up", 3, "Whether the vCPU has been brought up and not taken down.",
		[]Arg{number, {Name: "argument", Text: "Not looked at."}}, []Outcome{{When: "up", Result: 1}, {When: "down"}, absent}, vcpu("VCPUOP_is_up")...)
	operation("vcpu_op", "get_runstate_info", 4, "The state of a vCPU and its times up to now.",
		[]Arg{number, pointer("vcpu_runstate_info")}, []Outcome{good, absent, unreadable}, vcpu("VCPUOP_get_runstate_info", xenRunstateGet)...)
	area("register_runstate_memory_area", 5,
		"Has the hypervisor keep a copy of the vCPU's runstate at a linear address: written at once, and each time that the vCPU gets or loses a CPU. One area for each vCPU; address 0 takes it back. Whether there is memory at the address is not looked at.",
		"vcpu_runstate_info", vcpu("VCPUOP_register_runstate_memory_area", xenUpdateRunstate, xenGuestRunstate)...)
	operation("vcpu_op", "register_vcpu_info", 10, "Has the hypervisor keep the vCPU's vcpu_info in a page of the guest's. It can be done once for each vCPU.",
		[]Arg{number, pointer("vcpu_register_vcpu_info")},
		[]Outcome{
			good, absent, unreadable, {When: "area crosses a page", Error: "ENXIO"}, {When: "area not aligned", Error: "ENXIO"},
			{When: "registered already", Error: "EBUSY"}, {When: "registered already, before 4.18", Error: "EINVAL"},
		}, vcpu("VCPUOP_register_vcpu_info", xenMapArea, linux("arch/x86/xen/enlighten.c", "xen_vcpu_setup"))...)
	area("register_vcpu_time_memory_area", 13,
		"Has the hypervisor keep a second copy of the vCPU's time at a linear address. Address 0 takes it back.",
		"pvclock_vcpu_time_info", vcpu("VCPUOP_register_vcpu_time_memory_area", xenUpdateTime, linux("arch/x86/xen/time.c", "xen_setup_vsyscall_time_info"))...)
	physical("register_runstate_phys_area", 14, "runstate_phys_area",
		"As register_runstate_memory_area, by physical address, always with UPDATE. While such an area is registered, that at a linear address is not written.",
		"vcpu_runstate_info", vcpu("VCPUOP_register_runstate_phys_area", xenMapArea)...)
	physical("register_vcpu_time_phys_area", 15, "vcpu_time_phys_area",
		"As register_vcpu_time_memory_area, by physical address.",
		"pvclock_vcpu_time_info", vcpu("VCPUOP_register_vcpu_time_phys_area", xenMapArea)...)
	return calls
}

// xenStruct makes the layout of a structure whose members, of these sizes, follow each
// other. A member whose name begins with "pad" is padding.
func xenStruct(name, text string, align uint64, sources []Source, members ...Field) Layout {
	l := Layout{Name: name, Align: align, Text: text, Sources: sources}
	for _, f := range members {
		f.Offset = l.Size
		l.Size += f.Size
		if strings.HasPrefix(f.Name, "pad") {
			f.Writer, f.Text = "nobody", "Padding."
		}
		l.Fields = append(l.Fields, f)
	}
	return l
}

func xenLayouts() []Layout {
	const hypervisor, guest, both = string(Hypervisor), string(Guest), "both"
	in := func(name string, size uint64, text string) Field {
		return Field{Name: name, Size: size, Writer: guest, Text: text}
	}
	out := func(name string, size uint64, text string) Field {
		return Field{Name: name, Size: size, Writer: hypervisor, Text: text}
	}
	shared := func(name string, size uint64, text string) Field {
		return Field{Name: name, Size: size, Writer: both, Text: text}
	}
	pad := func(name string, size uint64) Field { return Field{Name: name, Size: size} }
	header := func(file, symbol string) []Source {
		return []Source{xenPublic(file, "struct "+symbol), linux("include/xen/interface/"+file, "struct "+symbol)}
	}
	events := func(symbol string) []Source { return header("event_channel.h", symbol) }

	runstate := xenStruct("vcpu_runstate_info", "State of a vCPU and how long it has been in each. A reader that finds state_entry_time the same before and after, and UPDATE clear, has read a whole.", 8,
		append(header("vcpu.h", "vcpu_runstate_info"), xenUpdateRunstate, linux("drivers/xen/time.c", "xen_get_runstate_snapshot_cpu_delta")),
		out("state", 4, "Running, runnable, blocked or offline."),
		pad("pad", 4),
		out("state_entry_time", 8, "System time, in nanoseconds, at which the state began, and UPDATE."),
		out("time_running", 8, "Nanoseconds in state running."),
		out("time_runnable", 8, "Nanoseconds in state runnable; with time_offline, what is stolen."),
		out("time_blocked", 8, "Nanoseconds in state blocked."),
		out("time_offline", 8, "Nanoseconds in state offline; with time_runnable, what is stolen."),
	)
	runstate.Bits = []FieldBit{{Field: "state_entry_time", Name: "UPDATE", Bit: 63, Text: "The area is being written; only with assist-update-flag, or registered by physical address."}}
	clock := xenStruct("pvclock_vcpu_time_info", "The relation of a CPU's TSC to system time.", 8,
		[]Source{linux("arch/x86/include/asm/pvclock-abi.h", "struct pvclock_vcpu_time_info"), xenPublic("xen.h", "struct vcpu_time_info"), xenUpdateTime},
		out("version", 4, "Even at rest, odd during an update."),
		pad("pad0", 4),
		out("tsc_timestamp", 8, "The CPU's TSC at the update."),
		out("system_time", 8, "Nanoseconds of system time at the update."),
		out("tsc_to_system_mul", 4, "Nanoseconds for each TSC tick, after tsc_shift, times 2^32."),
		out("tsc_shift", 1, "Shift of TSC ticks before they are multiplied: left, or right where negative."),
		out("flags", 1, "Bits below."),
		pad("pad", 2),
	)
	clock.Bits = []FieldBit{{Field: "flags", Name: "TSC_STABLE", Bit: 0, Text: "Times of different CPUs are in order."}}
	return []Layout{
		xenStruct("vcpu_info", "What a vCPU and the hypervisor share about events. The area must not cross a page.", 8,
			append(header("xen.h", "vcpu_info"), xenMapArea),
			shared("evtchn_upcall_pending", 1, "Not zero where an event is to be delivered."),
			shared("evtchn_upcall_mask", 1, "Not zero while events are not to be delivered: the interrupt flag of a paravirtualized guest."),
			pad("pad0", 6),
			shared("evtchn_pending_sel", 8, "A bit for each word of evtchn_pending to look at."),
			out("cr2", 8, "Address of a page fault."),
			pad("pad1", 8),
			out("time", 32, "A pvclock_vcpu_time_info."),
		),
		xenStruct("shared_info", "What a domain and the hypervisor share. What follows the masks is not listed.", 8,
			append(header("xen.h", "shared_info"), xenSetPending),
			shared("vcpu_info", 2048, "The vcpu_info of the first 32 vCPUs, as long as they are not registered elsewhere."),
			shared("evtchn_pending", 512, "A bit for each port, set by the hypervisor and cleared by the guest, from the lowest bit of the first byte on."),
			in("evtchn_mask", 512, "A bit for each port: whether its events are not delivered. Polls do not care."),
		),
		runstate,
		clock,
		xenStruct("sched_poll", "Argument of poll.", 8, header("sched.h", "sched_poll"),
			in("ports", 8, "Address of the ports, 4 bytes each."),
			in("nr_ports", 4, "How many there are."),
			pad("pad", 4),
			in("timeout", 8, "System time, in nanoseconds, at which to go on at the latest; 0 for never."),
		),
		xenStruct("evtchn_send", "Argument of send.", 4, events("evtchn_send"), in("port", 4, "The port.")),
		xenStruct("evtchn_close", "Argument of close.", 4, events("evtchn_close"), in("port", 4, "The port.")),
		xenStruct("evtchn_unmask", "Argument of unmask.", 4, events("evtchn_unmask"), in("port", 4, "The port.")),
		xenStruct("evtchn_reset", "Argument of reset.", 2, events("evtchn_reset"), in("dom", 2, "The domain, or self.")),
		xenStruct("evtchn_bind_ipi", "Argument of bind_ipi.", 4, events("evtchn_bind_ipi"),
			in("vcpu", 4, "The vCPU that gets the events."), out("port", 4, "The port.")),
		xenStruct("evtchn_bind_vcpu", "Argument of bind_vcpu.", 4, events("evtchn_bind_vcpu"),
			in("port", 4, "The port."), in("vcpu", 4, "The vCPU that gets the events.")),
		xenStruct("evtchn_alloc_unbound", "Argument of alloc_unbound.", 4, events("evtchn_alloc_unbound"),
			in("dom", 2, "The domain whose port it is, or self."), in("remote_dom", 2, "The domain that can bind to it, or self."), out("port", 4, "The port.")),
		xenStruct("evtchn_bind_interdomain", "Argument of bind_interdomain.", 4, events("evtchn_bind_interdomain"),
			in("remote_dom", 2, "The domain that has the unbound port, or self."), pad("pad", 2),
			in("remote_port", 4, "That port."), out("local_port", 4, "The new port.")),
		xenStruct("evtchn_status", "Argument of status.", 4, events("evtchn_status"),
			in("dom", 2, "The domain, or self."), pad("pad", 2),
			in("port", 4, "The port."), out("status", 4, "Closed, unbound, interdomain, virq or ipi."),
			out("vcpu", 4, "The vCPU that gets the events."),
			out("remote_dom", 2, "The domain of the other end, where there is, or can be, one."), pad("pad1", 2),
			out("remote_port", 4, "The port of the other end.")),
		xenStruct("vcpu_register_vcpu_info", "Argument of register_vcpu_info.", 8, header("vcpu.h", "vcpu_register_vcpu_info"),
			in("mfn", 8, "Number of the page."), in("offset", 4, "Where the vcpu_info is in it."), pad("pad", 4)),
		xenStruct("area_address", "Argument of the operations that register an area.", 8, header("vcpu.h", "vcpu_register_runstate_memory_area"),
			in("address", 8, "The area's address.")),
		xenStruct("xen_feature_info", "Argument of get_features.", 4, header("version.h", "xen_feature_info"),
			in("submap_idx", 4, "Which word; there is one, 0."), out("submap", 4, "The word: bits of the features.")),
	}
}

package abi

// Where the rules of x86-kvm come from, each named once.
var (
	x86CPUID       = linux("arch/x86/kvm/cpuid.c", "__do_cpuid_func")
	x86FindLeaf    = linux("arch/x86/kvm/cpuid.c", "kvm_get_hypervisor_cpuid")
	x86Features    = linux("arch/x86/kvm/cpuid.c", "kvm_apply_cpuid_pv_features_quirk")
	x86Caps        = linux("arch/x86/kvm/cpuid.c", "kvm_initialize_cpu_caps")
	x86Scan        = linux("arch/x86/include/asm/cpuid/api.h", "cpuid_base_hypervisor")
	x86GuestScan   = linux("arch/x86/kernel/kvm.c", "__kvm_cpuid_base")
	x86GuestLeaf   = linux("arch/x86/kernel/kvm.c", "kvm_arch_para_features")
	x86Gate        = linux("arch/x86/kvm/cpuid.h", "guest_pv_has")
	x86Hypercall   = linux("arch/x86/kvm/x86.c", "____kvm_emulate_hypercall")
	x86Complete    = linux("arch/x86/kvm/x86.c", "complete_hypercall_exit")
	x86Mode        = linux("arch/x86/kvm/regs.h", "is_64_bit_hypercall")
	x86Pairing     = linux("arch/x86/kvm/x86.c", "kvm_pv_clock_pairing")
	x86SendIPI     = linux("arch/x86/kvm/lapic.c", "kvm_pv_send_ipi")
	x86Yield       = linux("arch/x86/kvm/x86.c", "kvm_sched_yield")
	x86Kick        = linux("arch/x86/kvm/x86.c", "kvm_pv_kick_cpu_op")
	x86Unhalt      = linux("arch/x86/kvm/lapic.c", "__apic_accept_irq")
	x86Destination = linux("arch/x86/kvm/lapic.c", "kvm_apic_map_get_dest_lapic")
	x86Halt        = linux("arch/x86/kvm/x86.c", "__kvm_emulate_halt")
	x86Runnable    = linux("arch/x86/kvm/x86.c", "kvm_arch_vcpu_runnable")
	x86Events      = linux("arch/x86/kvm/x86.c", "kvm_vcpu_has_events")
	x86MPState     = linux("arch/x86/kvm/x86.h", "kvm_set_mp_state")
	x86GuestWait   = linux("arch/x86/kernel/kvm.c", "kvm_wait")
	x86SetMSR      = linux("arch/x86/kvm/x86.c", "kvm_set_msr_common")
	x86GetMSR      = linux("arch/x86/kvm/x86.c", "kvm_get_msr_common")
	x86Steal       = linux("arch/x86/kvm/x86.c", "record_steal_time")
	x86Preempted   = linux("arch/x86/kvm/x86.c", "kvm_steal_time_set_preempted")
	x86Put         = linux("arch/x86/kvm/x86.c", "kvm_arch_vcpu_put")
	x86SchedOut    = linux("virt/kvm/kvm_main.c", "kvm_sched_out")
	x86ParaHeader  = linux("arch/x86/include/uapi/asm/kvm_para.h", "")
	x86Convention  = linux("arch/x86/include/asm/kvm_para.h", "kvm_hypercall4")

	docHypercalls = linux("Documentation/virt/kvm/x86/hypercalls.rst", "")
	docCPUID      = linux("Documentation/virt/kvm/x86/cpuid.rst", "")
	docMSR        = linux("Documentation/virt/kvm/x86/msr.rst", "")
	docEnforce    = linux("Documentation/virt/kvm/api.rst", "KVM_CAP_ENFORCE_PV_FEATURE_CPUID")
)

// x86Rules is what KVM and its x86 guests owe each other.
func x86Rules() []Rule {
	var rules []Rule
	for _, r := range [][]Rule{
		x86DiscoveryRules(), x86NumberRules(), x86ConventionRules(),
		x86KickRules(), x86YieldRules(), x86StealRules(),
		x86RegisterRules(), x86AreaRules(), x86ClockRules(), x86EOIRules(), x86FaultRules(),
		x86IPIRules(), x86MoreKickRules(), x86MoreConventionRules(), x86ContentRules(),
		x86GuestRules(),
	} {
		rules = append(rules, r...)
	}
	return rules
}

// x86Rule makes a rule that the hypervisor owes.
func x86Rule(name, text string, sources ...Source) Rule {
	return Rule{ID: "x86-kvm/" + name, Side: Hypervisor, Text: text, Sources: sources}
}

// wants adds a number that the rule demands.
func (r Rule) wants(name string, number int64, unit string) Rule {
	r.Want = append(r.Want, Value{Name: name, Number: number, Unit: unit})
	return r
}

// on adds the features that the rule needs and the Linux version that first
// offered what it is about.
func (r Rule) on(since string, features ...string) Rule {
	r.Since, r.Needs = since, features
	return r
}

func x86DiscoveryRules() []Rule {
	return []Rule{
		x86Rule("discovery/hypervisor-bit",
			"On every CPU the bit that says that there is a hypervisor, hypervisor-bit in ECX of hypervisor-leaf, is set.",
			x86GuestScan.noting("scans for the signature only where the bit is set"),
			x86Caps.noting("offers the bit; the VMM passes it on")).
			wants("set", 1, ""),
		x86Rule("discovery/signature",
			"A scan of the leaves from first-leaf to last-leaf in steps of leaf-step finds KVM's signature once.",
			x86CPUID, x86Scan, docCPUID).
			wants("found", 1, "leaves"),
		x86Rule("discovery/signature-after-other",
			"With another hypervisor's leaves at the first base and KVM's at the next, or at the last, the scan finds KVM there, and the features that are enforced are those of the leaf found by the scan.",
			x86FindLeaf, x86Features, x86Scan,
			x86GuestLeaf.noting("the guest adds the same offset to the base that it found"),
			docCPUID.noting("knows only the leaf at the first base")).
			wants("step", 1, "steps of leaf-step from first-leaf"),
		x86Rule("discovery/max-leaf",
			"EAX of the signature leaf is the number of the last KVM leaf.",
			x86CPUID, docCPUID.noting("very old hosts give 0, which means the same; Linux guests never look")),
		x86Rule("discovery/features-known",
			"The features word that KVM supplies has only bits that are listed as the kernel's to offer.",
			x86CPUID, x86ParaHeader, docCPUID),
		x86Rule("discovery/reserved-registers",
			"EBX and ECX of the features leaf are zero.",
			x86CPUID, docCPUID.noting("lists both registers without a value")).
			wants("ebx", 0, "").wants("ecx", 0, ""),
		x86Rule("discovery/same-on-all-cpus",
			"Every CPU reads the same signature, features and hints.",
			x86CPUID, x86GuestLeaf.noting("Linux asks whichever CPU it is on and keeps one base for all")).
			wants("differences", 0, "CPUs that read something else"),
		x86Rule("discovery/hints",
			"KVM itself offers no hint: EDX of the features leaf is zero unless the VMM sets a bit.",
			x86CPUID, docCPUID).
			wants("edx", 0, ""),
	}
}

func x86NumberRules() []Rule {
	return []Rule{
		x86Rule("privilege/user-refused",
			"A call with a defined number from outside CPL 0 gives -EPERM.",
			x86Hypercall.noting("the privilege is tested before the number"),
			docHypercalls.noting("says nothing of privilege")),
		x86Rule("privilege/user-refused-undefined",
			"A call with an undefined number from outside CPL 0 gives -EPERM, too, not -ENOSYS.",
			x86Hypercall.noting("the privilege is tested before the number")),
		x86Rule("privilege/user-has-no-effect",
			"A KICK_CPU from outside CPL 0 does not wake its target.",
			x86Hypercall).
			wants("wakes", 0, ""),

		x86Rule("number/undefined",
			"Every number up to 64 that no call defines on x86 gives -ENOSYS.",
			x86Hypercall, docHypercalls.noting("documents MMU_OP, which has no implementation any more")),
		x86Rule("number/extreme",
			"The numbers 2^31, 2^32-1, 2^63 and 2^64-1 give -ENOSYS.",
			x86Hypercall),
		x86Rule("number/high-half",
			"In 64-bit mode 2^32 plus the number of a defined call gives -ENOSYS.",
			x86Hypercall, x86Mode),
		x86Rule("number/vapic-poll-irq",
			"VAPIC_POLL_IRQ gives the result listed for it.",
			x86Hypercall, docHypercalls),
		x86Rule("number/kick-cpu",
			"KICK_CPU gives the result listed for it.",
			x86Hypercall, docHypercalls.noting("names no result")).on("3.12", "PV_UNHALT"),
		x86Rule("number/clock-pairing",
			"CLOCK_PAIRING with clock type 0 gives a result listed for it: that of a pair written, or, on a host whose clock is not the TSC, that of no pair to be had.",
			x86Hypercall, x86Pairing,
			docHypercalls.noting("gives the error as a positive name; the code returns it negative")).on("4.11"),
		x86Rule("number/clock-pairing-other-clock",
			"CLOCK_PAIRING with any clock type but 0 gives the result listed for it.",
			x86Pairing.noting("tests the clock type first, all 64 bits of it"), docHypercalls).on("4.11"),
		x86Rule("number/send-ipi-empty",
			"SEND_IPI with an empty bitmap gives the result listed for it: nobody was reached.",
			x86Hypercall, x86SendIPI, docHypercalls).on("4.19", "PV_SEND_IPI"),
		x86Rule("number/send-ipi-one-target",
			"SEND_IPI with one CPU in its bitmap, another or the calling one, gives the result listed for it, and that CPU takes the interrupt.",
			x86SendIPI, x86Unhalt.noting("what counts as accepted"), docHypercalls).on("4.19", "PV_SEND_IPI").
			wants("taken", 1, "1 for once or more"),
		x86Rule("number/sched-yield",
			"SCHED_YIELD gives the result listed for it.",
			x86Hypercall, docHypercalls.noting("names no result")).on("5.3", "PV_SCHED_YIELD"),
		x86Rule("number/map-gpa-range-without-exit",
			"MAP_GPA_RANGE gives -ENOSYS unless the VMM has asked to be told of it.",
			x86Hypercall, docHypercalls).on("5.14"),
		x86Rule("number/gated-free",
			"A call whose feature is hidden works all the same while the VMM does not enforce the features.",
			x86Gate.noting("everything is allowed without enforcement"),
			docEnforce, docCPUID.noting("speaks of checking the bit, not of what happens without")),
		x86Rule("number/gated-enforced",
			"A call whose feature is hidden gives -ENOSYS while the VMM enforces the features.",
			x86Gate, x86Hypercall, docEnforce).on("5.10"),
		x86Rule("number/ungated-enforced",
			"A call that no feature gates gives the same results with all features hidden and enforced as without.",
			x86Hypercall).on("5.10"),
		x86Rule("number/gated-offered",
			"A call whose feature is offered works while the VMM enforces the features.",
			x86Gate, x86Hypercall, docEnforce).on("5.10"),
	}
}

func x86ConventionRules() []Rule {
	return []Rule{
		x86Rule("convention/native-instruction",
			"The call instruction that is native to the processor's vendor makes a call.",
			x86Convention, docHypercalls),
		x86Rule("convention/registers-preserved",
			"A call changes no general register but the one that holds the result.",
			x86Convention, x86Complete, docHypercalls).
			wants("changed", 0, "registers"),
		x86Rule("convention/flags-preserved",
			"A call changes no flag.",
			x86Convention.noting("the guest's assembler declares no change"), x86Complete,
			docHypercalls.noting("no other register is clobbered")).
			wants("changed", 0, "flags"),
		x86Rule("convention/vectors-preserved",
			"A call changes no vector register.",
			x86Convention, x86Complete, docHypercalls).
			wants("changed", 0, "registers"),
		x86Rule("convention/number-not-truncated",
			"In 64-bit mode all 64 bits of RAX are the number: the number of a defined call with any one of the upper 32 bits set gives -ENOSYS.",
			x86Hypercall, x86Mode,
			x86Convention.noting("Linux passes the number as an unsigned int and so never sets them")),
		x86Rule("convention/instruction-length",
			"A call goes on at the instruction after it, the listed number of bytes further, also when it is refused.",
			x86Complete, docHypercalls),
	}
}

func x86KickRules() []Rule {
	kick := func(name, text string, sources ...Source) Rule {
		return x86Rule(name, text, sources...).on("3.12", "PV_UNHALT")
	}
	return []Rule{
		kick("kick/wakes-waiter",
			"A kick ends the wait of a CPU that waits with interrupts off.",
			x86Kick, x86Unhalt, x86Runnable, docHypercalls).
			wants("wakes", 1, "waits ended"),
		kick("kick/wakes-waiter-interrupts-on",
			"A kick ends the wait of a CPU that waits with interrupts on.",
			x86Kick, x86Unhalt, x86Runnable, x86GuestWait).
			wants("wakes", 1, "waits ended"),
		kick("kick/wakes-waiter-split-irqchip",
			"A kick ends a wait with interrupts off also where only the local APIC is in the kernel.",
			x86Kick, x86Halt.noting("asks for the local APIC only")).
			wants("wakes", 1, "waits ended"),
		kick("kick/wakes-waiter-split-interrupts-on",
			"A kick ends a wait with interrupts on also where only the local APIC is in the kernel.",
			x86Kick, x86Halt.noting("asks for the local APIC only")).
			wants("wakes", 1, "waits ended"),
		kick("kick/before-wait",
			"A kick that comes before the wait is kept: the wait that follows ends at once.",
			x86Halt, x86Unhalt).
			wants("latched", 1, "kicks kept"),
		kick("kick/two-kicks",
			"Two kicks before two waits end one wait: kicks are a flag, not a count.",
			x86Unhalt, x86MPState).
			wants("wakes", 1, "waits ended"),
		kick("kick/self",
			"A CPU that kicks itself ends its own next wait.",
			x86Kick, x86Halt).
			wants("latched", 1, "kicks kept"),
		kick("kick/running-target",
			"A kick of a running CPU does not disturb it and ends its next wait, once.",
			x86Unhalt, x86Halt, x86MPState).
			wants("returns", 1, "spurious ends of a wait"),
		kick("kick/absent-target",
			"A kick of an APIC id that no CPU has, and that is not the broadcast id, gives the result listed for it and wakes nobody.",
			x86Destination, x86Hypercall.noting("the result does not depend on the target")).
			wants("wakes", 0, ""),
		kick("kick/flags-ignored",
			"A kick works the same whatever is in its flags argument.",
			x86Hypercall.noting("a0 is not read"), docHypercalls.noting("keeps a0 for future use")).
			wants("wakes", 1, "waits ended"),
		kick("kick/target-high-half",
			"Only the low 32 bits of a kick's target count: 2^32 plus an APIC id kicks that CPU.",
			x86Kick.noting("takes the id as an int")).
			wants("wakes", 1, "waits ended"),
		kick("kick/result",
			"A kick gives the result listed for it, whatever the state of its target.",
			x86Hypercall, docHypercalls.noting("names no result")),

		x86Rule("wait/sleeps-without-kick",
			"A wait that nothing ends does not end.",
			x86Halt, x86Runnable).
			wants("returns", 0, ""),
		x86Rule("wait/ended-by-interrupt",
			"An interrupt ends a wait with interrupts on.",
			x86Events, x86Runnable).
			wants("returns", 1, "waits ended"),
		x86Rule("wait/ended-by-nmi",
			"An NMI ends a wait with interrupts off.",
			x86Events, x86Unhalt).
			wants("returns", 1, "waits ended"),
		kick("wait/interrupt-eats-kick",
			"A kick that was pending when an interrupt ended a wait is gone: the next wait sleeps.",
			x86Halt.noting("one transition to runnable for all reasons together"), x86MPState).
			wants("latched", 0, "kicks kept"),
	}
}

func x86YieldRules() []Rule {
	yield := func(name, text string, sources ...Source) Rule {
		return x86Rule(name, text, sources...).on("5.3", "PV_SCHED_YIELD")
	}
	return []Rule{
		yield("yield/self",
			"A yield to the calling CPU itself gives the result listed for it.",
			x86Yield, x86Hypercall, docHypercalls.noting("names no result")),
		yield("yield/running-target",
			"A yield to a running CPU gives the result listed for it.",
			x86Yield, x86Hypercall, docHypercalls.noting("names no result")),
		yield("yield/waiting-target",
			"A yield to a waiting CPU gives the result listed for it.",
			x86Yield, x86Hypercall, docHypercalls.noting("names no result")),
		yield("yield/absent-target",
			"A yield to an APIC id that no CPU has gives the result listed for it.",
			x86Yield, x86Hypercall, docHypercalls.noting("names no result")),
		yield("yield/target-high-half",
			"A yield to 2^32 plus an APIC id gives the result listed for it.",
			x86Yield.noting("takes all 64 bits, so that this is an id that no CPU has"), x86Hypercall),
		yield("yield/does-not-wake",
			"A yield to a waiting CPU does not end its wait.",
			x86Yield).
			wants("wakes", 0, ""),

		x86Rule("counter/hypercalls",
			"KVM's counter hypercalls of a CPU rises by one with each call that it makes, refused ones included.",
			x86Hypercall.noting("counts before it looks at anything")).
			wants("increment", 1, "for each call"),
		x86Rule("counter/directed-yield-attempted",
			"KVM's counter directed_yield_attempted of a CPU rises by one with each KICK_CPU and each SCHED_YIELD, whatever the target.",
			x86Yield.noting("counts before its first condition, that another task waits for the host's CPU"), x86Hypercall).
			wants("increment", 1, "for each call").on("", "PV_UNHALT", "PV_SCHED_YIELD"),
	}
}

func x86StealRules() []Rule {
	steal := func(name, text string, sources ...Source) Rule {
		return x86Rule(name, text, sources...).on("3.1", "STEAL_TIME")
	}
	preempted := func(name, text string, sources ...Source) Rule {
		return x86Rule(name, text, sources...).on("4.10", "STEAL_TIME")
	}
	return []Rule{
		steal("steal/enable-reads-back",
			"STEAL_TIME reads back the address and the enable bit that were written to it.",
			x86SetMSR, x86GetMSR, docMSR),
		steal("steal/reserved-bits",
			"A write to STEAL_TIME with any one of its reserved bits set raises a general protection fault.",
			x86SetMSR, x86ParaHeader.noting("KVM_STEAL_RESERVED_MASK"),
			docMSR.noting("asks for alignment, not what happens without")).
			wants("exception", 13, "vector"),
		steal("steal/layout-written",
			"After a CPU with STEAL_TIME enabled has come into the guest from its VMM, version of its area has changed and is even, and the time that the CPU was kept waiting is added to steal, whatever steal held.",
			x86Steal, linux("arch/x86/kvm/x86.c", "kvm_arch_vcpu_load").noting("asks for an update each time"), docMSR).
			wants("parity", 0, "version modulo 2").wants("changes", 1, "").wants("grows", 1, ""),
		steal("steal/padding-untouched",
			"The hypervisor writes neither the padding of the steal time area nor what is around the area.",
			x86Steal).
			wants("changed", 0, "bytes"),
		steal("steal/flags-untouched",
			"The hypervisor leaves flags of the steal time area as it finds it.",
			x86Steal, docMSR.noting("says always zero, of an area that the guest has zeroed")).
			wants("changed", 0, "bytes"),
		steal("steal/version-protocol",
			"A reader that finds version even and the same before and after reading steal has not read a value in the middle of an update.",
			x86Steal, docMSR).
			wants("torn", 0, "samples"),
		steal("steal/monotonic",
			"Steal never decreases.",
			x86Steal, docMSR).
			wants("decreases", 0, "samples"),
		steal("steal/disabled",
			"After a write to STEAL_TIME with the enable bit clear the hypervisor writes the area no more.",
			x86SetMSR, x86Steal, docMSR).
			wants("changed", 0, "bytes"),

		preempted("preempted/running",
			"Preempted of a running CPU reads zero.",
			x86Steal, docMSR).
			wants("preempted", 0, ""),
		preempted("preempted/descheduled",
			"Preempted of a CPU that the host has taken its CPU from reads as set.",
			x86Put, x86Preempted, x86SchedOut,
			docMSR.noting("any value but zero; the code writes the bit PREEMPTED and no other")).
			wants("preempted", 1, ""),
		preempted("preempted/waiting",
			"Preempted of a CPU that waits reads zero.",
			x86SchedOut.noting("a task that sleeps was not preempted"), x86Put,
			docMSR.noting("speaks of running or not, which would make a waiting CPU preempted")).
			wants("preempted", 0, ""),
		preempted("preempted/in-vmm",
			"Preempted of a CPU that its own instruction has taken out to the VMM reads zero.",
			x86Put, x86SchedOut).
			wants("preempted", 0, ""),
		preempted("preempted/cleared-at-entry",
			"Whatever preempted held while the CPU was out, it is zero once the CPU runs again.",
			x86Steal.noting("by an exchange with PV_TLB_FLUSH, by a store without")).
			wants("preempted", 0, ""),
	}
}

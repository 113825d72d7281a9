package abi

// Where the rules of loongarch-kvm come from, each named once.
var (
	loongCPUCFG       = linux("arch/loongarch/kvm/exit.c", "kvm_emu_cpucfg")
	loongIdle         = linux("arch/loongarch/kvm/exit.c", "kvm_emu_idle")
	loongHypercall    = linux("arch/loongarch/kvm/exit.c", "kvm_handle_hypercall")
	loongService      = linux("arch/loongarch/kvm/exit.c", "kvm_handle_service")
	loongSendIPI      = linux("arch/loongarch/kvm/exit.c", "kvm_send_pv_ipi")
	loongNotify       = linux("arch/loongarch/kvm/exit.c", "kvm_save_notify")
	loongQueue        = linux("arch/loongarch/include/asm/kvm_vcpu.h", "kvm_queue_irq")
	loongHasFeature   = linux("arch/loongarch/include/asm/kvm_vcpu.h", "kvm_guest_has_pv_feature")
	loongDeliver      = linux("arch/loongarch/kvm/interrupt.c", "kvm_deliver_intr")
	loongByCPUID      = linux("arch/loongarch/kvm/vcpu.c", "kvm_get_vcpu_by_cpuid")
	loongRunnable     = linux("arch/loongarch/kvm/vcpu.c", "kvm_arch_vcpu_runnable")
	loongSteal        = linux("arch/loongarch/kvm/vcpu.c", "kvm_update_stolen_time")
	loongRequests     = linux("arch/loongarch/kvm/vcpu.c", "kvm_check_requests")
	loongLoad         = linux("arch/loongarch/kvm/vcpu.c", "_kvm_vcpu_load")
	loongPut          = linux("arch/loongarch/kvm/vcpu.c", "kvm_arch_vcpu_put")
	loongPreempted    = linux("arch/loongarch/kvm/vcpu.c", "kvm_vcpu_set_pv_preempted")
	loongSetFeatures  = linux("arch/loongarch/kvm/vcpu.c", "kvm_loongarch_cpucfg_set_attr")
	loongFeatureMask  = linux("arch/loongarch/include/asm/kvm_host.h", "LOONGARCH_PV_FEAT_MASK")
	loongInitFeatures = linux("arch/loongarch/kvm/vm.c", "kvm_vm_init_features")
	loongProbe        = linux("arch/loongarch/kernel/cpu-probe.c", "cpu_probe_common")

	loongGuestDetect   = linux("arch/loongarch/kernel/paravirt.c", "kvm_para_available")
	loongGuestFeatures = linux("arch/loongarch/kernel/paravirt.c", "kvm_arch_para_features")
	loongGuestIPI      = linux("arch/loongarch/kernel/paravirt.c", "pv_ipi_init")
	loongGuestSingle   = linux("arch/loongarch/kernel/paravirt.c", "pv_send_ipi_single")
	loongGuestMask     = linux("arch/loongarch/kernel/paravirt.c", "pv_send_ipi_mask")
	loongGuestTaken    = linux("arch/loongarch/kernel/paravirt.c", "pv_ipi_interrupt")
	loongGuestTime     = linux("arch/loongarch/kernel/paravirt.c", "pv_time_init")
	loongGuestEnable   = linux("arch/loongarch/kernel/paravirt.c", "pv_enable_steal_time")
	loongGuestDisable  = linux("arch/loongarch/kernel/paravirt.c", "pv_disable_steal_time")
	loongGuestOnline   = linux("arch/loongarch/kernel/paravirt.c", "pv_time_cpu_online")
	loongGuestOffline  = linux("arch/loongarch/kernel/paravirt.c", "pv_time_cpu_down_prepare")
	loongGuestReboot   = linux("arch/loongarch/kernel/paravirt.c", "pv_reboot_notify")
	loongGuestClock    = linux("arch/loongarch/kernel/paravirt.c", "paravt_steal_clock")
	loongGuestIdle     = linux("arch/loongarch/kernel/genex.S", "__arch_cpu_idle")
	loongSpin          = linux("arch/loongarch/include/asm/qspinlock.h", "virt_spin_lock")
	loongIsPreempted   = linux("arch/loongarch/include/asm/qspinlock.h", "vcpu_is_preempted")

	docLoong = linux("Documentation/virt/kvm/loongarch/hypercalls.rst", "")

	// loongVendor is what kernels of distributors had before the calls were merged, with code 0,
	// the functions 0 FEATURE, 1 NOTIFY and 2 IPI, the features 0 STEAL_TIME and 1 IPI, and 1 for
	// success.
	loongVendor = Source{
		Tree: "distributors' kernels for LoongArch", Path: "arch/loongarch/include/asm/kvm_para.h", Symbol: "KVM_HC_FUNC_IPI",
		Note: "as archived; none of it is in Linux",
	}
	// loongProposal is the patch set of 2024 that would have added a kick.
	loongProposal = Source{
		Tree: "linux-kernel and loongarch lists", Path: threadLoong2024, Symbol: "20240723073825.1811600",
	}
)

// loongRules is what a KVM host and its LoongArch guests owe each other, the host first.
func loongRules() []Rule {
	var rules []Rule
	for _, r := range [][]Rule{
		loongDiscoveryRules(), loongPrivilegeRules(), loongNumberRules(), loongConventionRules(),
		loongKickRules(), loongIPIRules(), loongNotifyRules(), loongStealRules(),
		loongGuestRules(),
	} {
		rules = append(rules, r...)
	}
	return rules
}

// loongRule makes a rule that the hypervisor owes.
func loongRule(name, text string, sources ...Source) Rule {
	return Rule{ID: "loongarch-kvm/" + name, Side: Hypervisor, Text: text, Sources: sources}
}

func loongDiscoveryRules() []Rule {
	return []Rule{
		loongRule("discovery/hypervisor-bit",
			"On every CPU the bit that says that there is a hypervisor, VM of FEATURES, is set.",
			loongProbe, loongGuestDetect.noting("looks for the signature only where the bit is set")).
			wants("set", 1, ""),
		loongRule("discovery/signature",
			"CPUCFG of signature-word gives the signature.",
			loongCPUCFG, docLoong),
		loongRule("discovery/features-known",
			"CPUCFG of features-word has only bits that are listed as features.",
			loongCPUCFG, loongFeatureMask, loongSetFeatures.noting("refuses others")),
		loongRule("discovery/features-chosen",
			"Where the VMM has chosen features, CPUCFG of features-word gives those and no others.",
			loongSetFeatures, loongCPUCFG).
			wants("differences", 0, "bits"),
		loongRule("discovery/preempt-with-steal",
			"PREEMPT is offered only together with STEAL_TIME.",
			loongInitFeatures.noting("offers both or neither; the VMM could do otherwise"), loongGuestTime.noting("looks at PREEMPT only if it has STEAL_TIME")).
			wants("alone", 0, ""),
		loongRule("discovery/reserved-words",
			"CPUCFG of every word from first-word to last-word but signature-word and features-word gives 0.",
			loongCPUCFG, docLoong.noting("reserves them")).
			wants("value", 0, ""),
		loongRule("discovery/outside-words",
			"CPUCFG of the words right before first-word and right after last-word gives 0.",
			loongCPUCFG).
			wants("value", 0, ""),
		loongRule("discovery/index-high-half",
			"Only the low 32 bits of the index of CPUCFG count.",
			loongCPUCFG.noting("takes the index as an unsigned int")),
		loongRule("discovery/nothing-without-signature",
			"Where CPUCFG of signature-word gives 0 there is nothing else: it gives 0 for all words from first-word to last-word, and HVCL, with whatever code, ends in an exception.",
			loongGuestDetect.noting("uses neither then"), docLoong.noting("reserves the words"),
			qemu("target/loongarch/insns.decode", "").noting("knows no HVCL, as it emulates no virtualization")).
			wants("value", 0, "").wants("exception", 13, "code of the exception, of an instruction that does not exist"),
		loongRule("discovery/same-on-all-cpus",
			"Every CPU reads the same signature and features.",
			loongCPUCFG, loongSetFeatures.noting("refuses a second, other set"), loongGuestFeatures.noting("asks once, on whichever CPU it is on")).
			wants("differences", 0, "CPUs that read something else"),
	}
}

func loongPrivilegeRules() []Rule {
	return []Rule{
		loongRule("privilege/user-refused",
			"A call from privilege level 3 does not succeed: it ends in an exception, or gives an error.",
			loongGuestEnable.noting("a guest relies on it: whoever can call can have the hypervisor write into the kernel's memory"),
			loongService.noting("has no test of privilege, so that all depends on the processor")).
			wants("successes", 0, "calls"),
		loongRule("privilege/user-has-no-effect",
			"An IPI from privilege level 3 is not sent.",
			loongGuestSingle.noting("a guest relies on it"), loongService.noting("has no test of privilege, so that all depends on the processor")).
			wants("wakes", 0, "").on("", "IPI"),
	}
}

func loongNumberRules() []Rule {
	return []Rule{
		loongRule("number/undefined",
			"Every function up to 64 that no call defines gives INVALID_CODE.",
			loongService, docLoong),
		loongRule("number/extreme",
			"The functions 2^31, 2^32-1, 2^63 and 2^64-1 give INVALID_CODE.",
			loongService),
		loongRule("number/high-half",
			"The function of a defined call with any one of the upper 32 bits set gives INVALID_CODE, and has no effect.",
			loongService.noting("takes the function as an unsigned long")),
		loongRule("number/not-the-kick-of-2024",
			"Function 3, which was to be a kick, gives INVALID_CODE and wakes nobody, whatever bit 3 of the features says.",
			loongService, loongProposal.noting("the kick, announced by what is PREEMPT now")).
			wants("wakes", 0, "").on("", "IPI"),
		loongRule("number/not-the-numbers-of-vendors",
			"IPI with the arguments of NOTIFY, and NOTIFY with those of IPI, do not do each other's work: the functions are not swapped.",
			loongService, loongVendor).
			wants("swapped", 0, "calls").on("", "IPI", "STEAL_TIME"),
		loongRule("number/success-is-zero",
			"A call that succeeds gives 0, not 1.",
			linux("arch/loongarch/include/asm/kvm_para.h", "KVM_HCALL_SUCCESS"), docLoong, loongVendor).
			wants("result", 0, "").on("", "IPI"),
		loongRule("number/gated",
			"A call whose feature is not offered gives the result listed for that.",
			loongService, loongHasFeature),
		loongRule("number/gated-offered",
			"A call whose feature is offered gives another result than one whose feature is not.",
			loongService, loongHasFeature),

		loongRule("code/undefined",
			"HVCL with a code that is none, code-none and code-last among them, gives INVALID_CODE, whatever the function.",
			loongHypercall),
		loongRule("code/vendor",
			"HVCL with code-vendor gives INVALID_CODE, whatever the function, and has no effect.",
			loongHypercall, loongVendor).
			wants("wakes", 0, "").on("", "IPI"),
		loongRule("code/debug",
			"HVCL with code-debug gives INVALID_CODE where the host has no debugger at the guest.",
			loongHypercall),
		loongRule("code/user-service-hidden",
			"HVCL with code-user-service gives INVALID_CODE, whatever the function, where USER_HCALL is not offered.",
			loongHypercall, loongHasFeature),
	}
}

func loongConventionRules() []Rule {
	return []Rule{
		loongRule("convention/registers-preserved",
			"A call changes no general register but the one that holds the result, also when it is refused.",
			loongHypercall, docLoong).
			wants("changed", 0, "registers"),
		loongRule("convention/mode-preserved",
			"A call changes neither the privilege level nor whether interrupts are on.",
			loongHypercall, docLoong.noting("says nothing of it")).
			wants("changed", 0, "bits of CRMD"),
		loongRule("convention/vectors-preserved",
			"A call changes no floating-point or vector register.",
			docLoong, loongHypercall).
			wants("changed", 0, "registers"),
		loongRule("convention/instruction-length",
			"A call goes on at the instruction after it, 4 bytes further, also when it is refused.",
			loongHypercall),
	}
}

func loongKickRules() []Rule {
	kick := func(name, text string, sources ...Source) Rule {
		return loongRule(name, text, sources...).on("", "IPI")
	}
	return []Rule{
		kick("kick/wakes-waiter",
			"An IPI ends the wait of a CPU that waits.",
			loongSendIPI, loongQueue, loongRunnable, loongIdle).
			wants("wakes", 1, "waits ended"),
		kick("kick/running-target",
			"An IPI to a CPU that runs with interrupts on is taken by it at once, and ends none of its later waits.",
			loongSendIPI, loongDeliver).
			wants("returns", 0, "spurious ends of a wait"),
		kick("kick/absent-target",
			"An IPI to a CPU that does not exist gives the result listed for it and wakes nobody.",
			loongSendIPI, loongByCPUID, docLoong.noting("says nothing of it")).
			wants("wakes", 0, ""),
		kick("kick/result",
			"An IPI gives the result listed for it, whatever the state of its target.",
			loongService, loongSendIPI),

		kick("wait/sleeps-without-kick",
			"A wait that nothing ends does not end.",
			loongIdle, loongRunnable).
			wants("returns", 0, ""),
		loongRule("wait/ended-by-interrupt",
			"An interrupt ends a wait.",
			loongIdle, loongRunnable).
			wants("returns", 1, "waits ended"),
	}
}

func loongIPIRules() []Rule {
	ipi := func(name, text string, sources ...Source) Rule {
		return loongRule("ipi/"+name, text, append(sources, loongSendIPI)...).on("", "IPI")
	}
	return []Rule{
		ipi("interrupt",
			"An IPI makes software interrupt 0 pending at its target, and no other interrupt.",
			loongDeliver, docLoong.noting("speaks of SWI, not of which")).
			wants("pending", 1, "SWI0 of ESTAT").wants("others", 0, "bits of ESTAT"),
		ipi("kept",
			"An IPI to a CPU with interrupts off stays pending until that takes it.",
			loongQueue, loongDeliver).
			wants("interrupts", 1, "once interrupts are on"),
		ipi("coalesced",
			"A second IPI to a CPU that has not taken the first is one interrupt together with it.",
			loongQueue).
			wants("interrupts", 1, "for two calls"),
		ipi("self",
			"A CPU can send an IPI to itself.",
			docLoong).
			wants("interrupts", 1, ""),
		ipi("low-word",
			"Bit n of low stands for the CPU with the number lowest + n, for each n up to 63, and for no other.",
			docLoong).
			wants("others", 0, "CPUs"),
		ipi("high-word",
			"Bit n of high stands for the CPU with the number lowest + 64 + n, for each n up to 63, and for no other.",
			docLoong).
			wants("others", 0, "CPUs"),
		ipi("many-targets",
			"All CPUs that have a bit in either bitmap are sent an interrupt by one call, and no others.",
			docLoong).
			wants("others", 0, "CPUs"),
		ipi("skips-absent",
			"Bits for CPUs that do not exist are passed over; those for CPUs that do exist count all the same.",
			loongByCPUID).
			wants("interrupts", 1, ""),
		ipi("empty",
			"An IPI with empty bitmaps gives the result listed for it and wakes nobody.").
			wants("wakes", 0, ""),
		ipi("lowest-high-half",
			"Only the low 32 bits of lowest count.").
			wants("interrupts", 1, ""),
		ipi("lowest-wraps",
			"The number of a target is cut to 32 bits: lowest 2^32 - 1 with bit 1 stands for the CPU with the number 0.",
			loongByCPUID).
			wants("interrupts", 1, ""),
		ipi("arguments-unused",
			"R8 and R9 of an IPI may hold anything.",
			docLoong).
			wants("interrupts", 1, ""),
	}
}

func loongNotifyRules() []Rule {
	notify := func(name, text string, sources ...Source) Rule {
		return loongRule("notify/"+name, text, append(sources, loongNotify)...).on("", "STEAL_TIME")
	}
	return []Rule{
		notify("registers",
			"NOTIFY with an aligned address and VALID gives the result listed for it, and the area is written before the CPU goes on.",
			loongRequests, loongSteal).
			wants("changes", 1, "of version"),
		notify("own-area",
			"Each CPU has an area of its own: to register one on a CPU changes nothing about that of another.").
			wants("changed", 0, "bytes of the other's area"),
		notify("replaces",
			"An area takes the place of the one before it, which is written no more.",
			loongSteal).
			wants("changed", 0, "bytes of the old area"),
		notify("takes-back",
			"NOTIFY without VALID gives the result listed for it, whatever the address, and the area is written no more.",
			loongSteal, loongPreempted).
			wants("changed", 0, "bytes"),
		notify("reserved-bits",
			"NOTIFY with any one of the reserved bits of the address set, with VALID or without, gives the result listed for that, and the area from before stays.").
			wants("registered", 1, "areas"),
		notify("other-things",
			"NOTIFY with what having any other value than STEAL_TIME, in all 64 bits, gives the result listed for that, and the area from before stays.").
			wants("registered", 1, "areas"),
		notify("nowhere",
			"NOTIFY with an address that there is no memory at gives the result listed for that, and the CPU goes on.",
			loongSteal).
			wants("exceptions", 0, ""),
		notify("high-addresses",
			"An address counts with all its bits: an area is not written by way of an address that differs from its own in a high bit.",
			loongSteal).
			wants("changed", 0, "bytes"),
	}
}

func loongStealRules() []Rule {
	steal := func(name, text string, sources ...Source) Rule {
		return loongRule(name, text, sources...).on("", "STEAL_TIME")
	}
	preempted := func(name, text string, sources ...Source) Rule {
		return loongRule(name, text, sources...).on("", "STEAL_TIME", "PREEMPT")
	}
	return []Rule{
		steal("steal/layout-written",
			"After an area was registered, or its CPU was taken off and put on again by the host, version has changed and is even, and the time that the CPU was kept waiting since is added to steal, whatever that held.",
			loongSteal, loongLoad).
			wants("parity", 0, "version modulo 2").wants("changes", 1, "").wants("decreases", 0, ""),
		steal("steal/odd-version",
			"A version that is odd when the area is registered is made even.",
			loongSteal.noting("calls it random junk")).
			wants("parity", 0, "version modulo 2"),
		steal("steal/grows",
			"Steal of a CPU grows by the time that it was ready to run and the host had it off.",
			loongSteal).
			wants("grows", 1, ""),
		steal("steal/padding-untouched",
			"The hypervisor writes neither the padding of the area nor what is around the area.",
			loongSteal).
			wants("changed", 0, "bytes"),
		steal("steal/flags-untouched",
			"The hypervisor leaves flags of the area as it finds it.",
			loongSteal).
			wants("changed", 0, "bytes"),
		steal("steal/version-protocol",
			"A reader that finds version even and the same before and after reading steal has not read a value in the middle of an update.",
			loongSteal, loongGuestClock).
			wants("torn", 0, "samples"),
		steal("steal/monotonic",
			"Steal never decreases.",
			loongSteal).
			wants("decreases", 0, "samples"),

		preempted("preempted/running",
			"Preempted of a running CPU reads zero.",
			loongSteal).
			wants("preempted", 0, ""),
		preempted("preempted/descheduled",
			"Preempted of a CPU that the host has taken its CPU from reads as set.",
			loongPut, loongPreempted).
			wants("preempted", 1, ""),
		preempted("preempted/waiting",
			"Preempted of a CPU that waits reads zero.",
			loongPut.noting("only a task that was preempted sets it")).
			wants("preempted", 0, ""),
		preempted("preempted/cleared-at-registration",
			"Whatever preempted held when the area was registered, it is zero once the CPU goes on.",
			loongSteal).
			wants("preempted", 0, ""),
		steal("preempted/untouched-without-feature",
			"Where PREEMPT is not offered the hypervisor leaves preempted as it finds it.",
			loongSteal, loongPut).
			wants("changed", 0, "bytes"),
	}
}

// loongGuestRules is what Linux as a guest does with the ABI.
func loongGuestRules() []Rule {
	guest := func(name, text string, sources ...Source) Rule {
		r := loongRule("guest/"+name, text, sources...)
		r.Side = Guest
		return r
	}
	return []Rule{
		guest("needs-hypervisor-bit",
			"A guest that finds VM of FEATURES clear makes no calls.",
			loongProbe, loongGuestDetect).
			wants("calls", 0, ""),
		guest("needs-signature",
			"A guest that finds another signature makes no calls.",
			loongGuestDetect).
			wants("calls", 0, ""),
		guest("ipi-if-offered",
			"With IPI offered, a guest sends its inter-processor interrupts by IPI, but for those that start a CPU, and without it by none.",
			loongGuestIPI, loongGuestSingle, loongGuestMask).
			wants("native", 0, "interrupts between CPUs that have started").wants("calls", 0, "without the feature"),
		guest("starts-cpus-natively",
			"A guest starts a CPU by an interrupt of the interrupt controller, not by IPI.",
			loongGuestSingle).
			wants("calls", 0, "for a CPU that has not started"),
		guest("ipi-lowest",
			"Bit 0 of the bitmaps of an IPI is set: lowest is the smallest number among the targets.",
			loongGuestSingle, loongGuestMask).
			wants("clear", 0, "calls"),
		guest("ipi-to-existing",
			"Each bit of the bitmaps of an IPI stands for a CPU that the guest has online, by its number in its CPUID register.",
			loongGuestSingle, loongGuestMask, linux("arch/loongarch/include/asm/smp.h", "cpu_logical_map")).
			wants("others", 0, "targets"),
		guest("ipi-taken",
			"A CPU that is sent an IPI takes software interrupt 0, and clears it before it looks for what it is to do.",
			loongGuestTaken).
			wants("missed", 0, "interrupts"),
		guest("notify-if-offered",
			"With STEAL_TIME offered, each CPU of a guest registers an area when it comes online, and without it none.",
			loongGuestTime, loongGuestEnable, loongGuestOnline).
			wants("areas", 1, "for each CPU").wants("calls", 0, "without the feature"),
		guest("notify-arguments",
			"What of each NOTIFY is STEAL_TIME; the address is aligned, and has VALID or is 0.",
			loongGuestEnable, loongGuestDisable).
			wants("others", 0, "calls"),
		guest("notify-own-area",
			"No two CPUs of a guest have areas that overlap, and no area crosses a page.",
			loongGuestEnable).
			wants("overlaps", 0, "").wants("crossings", 0, ""),
		guest("area-begins-clear",
			"An area is zero when it is first registered.",
			linux("arch/loongarch/kernel/paravirt.c", "steal_time"), loongSteal.noting("adds to what is there")).
			wants("changed", 0, "bytes"),
		guest("released-at-offline",
			"A CPU takes its area back before it goes offline.",
			loongGuestOffline).
			wants("areas", 0, ""),
		guest("released-at-reboot",
			"Every CPU takes its area back before a reboot, halt or power-off.",
			loongGuestReboot).
			wants("areas", 0, ""),
		guest("released-at-kexec",
			"No area of the old kernel is registered when a new one is entered by kexec.",
			loongGuestReboot, linux("kernel/reboot.c", "kernel_restart_prepare"),
			linux("arch/loongarch/kernel/machine_kexec.c", "machine_shutdown").noting("brings CPUs online after that which were offline")).
			wants("areas", 0, ""),
		guest("released-at-panic",
			"No area is registered any more when a kernel that panicked starts the machine again.",
			loongGuestReboot.noting("is not called on a panic"), linux("kernel/panic.c", "vpanic")).
			wants("areas", 0, ""),
		guest("steal-shown",
			"A guest shows as stolen, of the right CPU, what steal of its area grew by.",
			loongGuestClock, linux("kernel/sched/cputime.c", "steal_account_process_time")).
			wants("others", 0, "CPUs"),
		guest("steal-waits-for-even-version",
			"A guest does not take a value of steal while version is odd.",
			loongGuestClock).
			wants("values", 0, ""),
		guest("preempted-obeyed",
			"With PREEMPT and STEAL_TIME offered, a guest takes a CPU for preempted if PREEMPTED of it is set.",
			loongIsPreempted, loongGuestTime).
			wants("preempted", 1, "").on("", "PREEMPT", "STEAL_TIME"),
		guest("preempted-ignored",
			"Without PREEMPT, or without STEAL_TIME, a guest takes no CPU for preempted.",
			loongIsPreempted, loongGuestTime).
			wants("preempted", 0, ""),
		guest("asks-once",
			"A guest uses CPUCFG of the hypervisor's words at boot only.",
			loongGuestDetect, loongGuestFeatures, loongCPUCFG.noting("each one leaves the guest")).
			wants("exits", 0, "after the boot"),
		guest("no-other-calls",
			"A guest makes no other calls than IPI and NOTIFY, and none by another code than code-service.",
			loongGuestSingle, loongGuestEnable).
			wants("others", 0, "calls"),
	}
}

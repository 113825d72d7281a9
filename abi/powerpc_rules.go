package abi

// Where the rules of powerpc-papr come from, each named once.
var (
	loparCall      = lopar("Hypervisor Call Interrupt")
	loparPrivilege = lopar("MSR State on Entrance to Hypervisor")
	loparStatus    = lopar("Hypervisor Call Return Code Table")
	loparIntent    = lopar("Shared Processor LPAR Option")
	loparDispatch  = lopar("Virtual Processor Preempt/Dispatch")
	loparArea      = lopar("Per Virtual Processor Area")
	loparLog       = lopar("Dispatch Trace Log Buffer")
	loparRegister  = lopar("H_REGISTER_VPA")
	loparCede      = lopar("H_CEDE")
	loparConfer    = lopar("H_CONFER")
	loparProd      = lopar("H_PROD")
	loparJoin      = lopar("H_JOIN")

	paprHvcall      = linux("arch/powerpc/include/asm/hvcall.h", "HVSC")
	paprHcall       = linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_pseries_do_hcall")
	paprExit        = linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_handle_exit_hv")
	paprEntry       = linux("arch/powerpc/kvm/book3s_hv.c", "kvmhv_p9_guest_entry")
	paprRegister    = linux("arch/powerpc/kvm/book3s_hv.c", "do_h_register_vpa")
	paprUpdate      = linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_update_vpas")
	paprInitVPA     = linux("arch/powerpc/kvm/book3s_hv.c", "init_vpa")
	paprCede        = linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_cede")
	paprWoken       = linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_vcpu_woken")
	paprYieldCount  = linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_get_yield_count")
	paprCount       = linux("arch/powerpc/kvm/book3s_hv.c", "vcpu_vpa_increment_dispatch")
	paprSteal       = linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_update_vpa_dispatch_p9")
	paprLog         = linux("arch/powerpc/kvm/book3s_hv.c", "__kvmppc_create_dtl_entry")
	paprRealMode    = linux("arch/powerpc/kvm/book3s_hv_rmhandlers.S", "hcall_try_real_mode")
	paprFindVCPU    = linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_find_vcpu")
	paprFirmware    = linux("arch/powerpc/platforms/pseries/firmware.c", "probe_fw_features")
	paprVPAInit     = linux("arch/powerpc/platforms/pseries/lpar.c", "vpa_init")
	paprStealClock  = linux("arch/powerpc/platforms/pseries/lpar.c", "pseries_paravirt_steal_clock")
	paprSharedProc  = linux("arch/powerpc/include/asm/lppaca.h", "lppaca_shared_proc")
	paprSetup       = linux("arch/powerpc/platforms/pseries/setup.c", "pSeries_setup_arch")
	paprPreempted   = linux("arch/powerpc/include/asm/paravirt.h", "vcpu_is_preempted")
	paprYieldTo     = linux("arch/powerpc/include/asm/paravirt.h", "yield_to_preempted")
	paprYieldOwner  = linux("arch/powerpc/lib/qspinlock.c", "__yield_to_locked_owner")
	paprGuestCede   = linux("arch/powerpc/include/asm/plpar_wrappers.h", "cede_processor")
	paprGuestJoin   = linux("arch/powerpc/platforms/pseries/mobility.c", "do_join")
	paprIdle        = linux("arch/powerpc/include/asm/idle.h", "pseries_idle_prolog")
	paprOfflineSelf = linux("arch/powerpc/platforms/pseries/hotplug-cpu.c", "pseries_cpu_offline_self")

	qemuCall       = qemu("hw/ppc/spapr_hcall.c", "spapr_hypercall")
	qemuPrivilege  = qemu("hw/ppc/spapr.c", "emulate_spapr_hypercall")
	qemuRegister   = qemu("hw/ppc/spapr_hcall.c", "register_vpa")
	qemuDeregister = qemu("hw/ppc/spapr_hcall.c", "deregister_vpa")
	qemuLog        = qemu("hw/ppc/spapr_hcall.c", "register_dtl")
	qemuShadow     = qemu("hw/ppc/spapr_hcall.c", "register_slb_shadow")
	qemuFlags      = qemu("hw/ppc/spapr_hcall.c", "h_register_vpa")
	qemuCede       = qemu("hw/ppc/spapr_hcall.c", "h_cede")
	qemuConfer     = qemu("hw/ppc/spapr_hcall.c", "h_confer")
	qemuConferSelf = qemu("hw/ppc/spapr_hcall.c", "h_confer_self")
	qemuProd       = qemu("hw/ppc/spapr_hcall.c", "h_prod")
	qemuJoin       = qemu("hw/ppc/spapr_hcall.c", "h_join")
	qemuEnter      = qemu("hw/ppc/spapr.c", "spapr_cpu_exec_enter")
	qemuExit       = qemu("hw/ppc/spapr.c", "spapr_cpu_exec_exit")
	qemuFindCPU    = qemu("hw/ppc/spapr.c", "spapr_find_cpu")
	qemuHypertas   = qemu("hw/ppc/spapr.c", "spapr_dt_rtas")
)

// paprUserRefused is where it is said what a call from problem state gives.
func paprUserRefused() []Source {
	return []Source{
		loparPrivilege,
		qemuPrivilege.noting("keeps it"),
		paprExit.noting("does not: a privileged program interrupt for a guest that translates by radix trees, a system call interrupt for one that hashes, and under a PAPR hypervisor of its own no test at all"),
		paprRealMode.noting("does not before POWER9: a system call interrupt"),
	}
}

// paprRules is what a PAPR hypervisor and its Linux guests owe each other, the
// hypervisor first.
func paprRules() []Rule {
	var rules []Rule
	for _, r := range [][]Rule{
		paprDiscoveryRules(), paprConventionRules(), paprPrivilegeRules(), paprNumberRules(),
		paprKickRules(), paprConferRules(), paprJoinRules(),
		paprRegisterRules(), paprCountRules(), paprStealRules(), paprLogRules(),
		paprMonitorRules(),
		paprGuestRules(),
	} {
		rules = append(rules, r...)
	}
	return rules
}

// paprRule makes a rule that the hypervisor owes.
func paprRule(name, text string, sources ...Source) Rule {
	return Rule{ID: "powerpc-papr/" + name, Side: Hypervisor, Text: text, Sources: sources}
}

// splparRule makes a rule about calls of the function set hcall-splpar.
func splparRule(name, text string, sources ...Source) Rule {
	return paprRule(name, text, sources...).on("", "SPLPAR")
}

func paprDiscoveryRules() []Rule {
	return []Rule{
		paprRule("discovery/hypertas",
			"The node /rtas of the device tree has the property ibm,hypertas-functions: names of function sets, each ended by a zero byte.",
			loparCall, paprFirmware, qemuHypertas).
			wants("found", 1, "properties"),
		paprRule("discovery/function-set-complete",
			"Of a function set that is named there every call exists: none of those listed for it gives FUNCTION.",
			loparCall, lopar("Hypervisor Call Function Table"),
			qemuHypertas.noting("names hcall-splpar; GET_PPP, SET_PPP and PURR, which belong to it, are missing in TCG and KVM alike")).
			wants("missing", 0, "calls"),
		splparRule("discovery/shared-processor",
			"Once a VPA is registered, SHARED_PROC of it is set where CPUs share processors, on every CPU alike.",
			paprSharedProc, paprInitVPA.noting("always sets it"), qemuRegister.noting("always sets it"),
			loparArea.noting("reserved for firmware use; Linux relies on it all the same")).
			wants("differences", 0, "CPUs that read something else"),
	}
}

func paprConventionRules() []Rule {
	return []Rule{
		paprRule("convention/instruction",
			"The instruction sc 1 in privileged state makes a call.",
			loparCall, paprHvcall),
		paprRule("convention/instruction-length",
			"A call goes on at the instruction after it, 4 bytes further, also when it is refused or has waited.",
			loparCall, loparIntent),
		paprRule("convention/status-stored",
			"Each call leaves a status in r3; the call's number, which was there before, is gone.",
			loparCall, paprHcall,
			qemuConfer.noting("leaves through the CPU's loop and stores no status where it yields; 11.1.2 was seen to store one")).
			wants("left", 0, "calls after which r3 holds the number"),
		paprRule("convention/registers-preserved",
			"A call changes no general register but r0 and r3 to r12.",
			loparCall, linux("arch/powerpc/platforms/pseries/hvCall.S", "plpar_hcall_norets_notrace")).
			wants("changed", 0, "registers"),
		paprRule("convention/special-registers-preserved",
			"A call changes neither the link register nor the fields 2, 3 and 4 of the condition register.",
			loparCall.noting("does not list them as volatile"),
			linux("arch/powerpc/platforms/pseries/hvCall.S", "plpar_hcall_norets_notrace").noting("does not save the link register")).
			wants("changed", 0, "registers"),
		splparRule("convention/reduced-kill-set",
			"CONFER and PROD change no general register but r3.",
			loparConfer, loparProd, paprHcall, qemuConfer, qemuProd).
			wants("changed", 0, "registers"),
		paprRule("convention/float-registers-preserved",
			"While fpregs_in_use of the VPA is 1, a call that does not fail changes no floating-point register.",
			loparCall, loparArea).
			wants("changed", 0, "registers"),
	}
}

func paprPrivilegeRules() []Rule {
	return []Rule{
		paprRule("privilege/user-refused",
			"A call with a defined number from problem state gives PRIVILEGE.",
			paprUserRefused()...),
		paprRule("privilege/user-refused-undefined",
			"A call with an undefined number from problem state gives PRIVILEGE, too, not FUNCTION.",
			paprUserRefused()...),
		splparRule("privilege/user-has-no-effect",
			"A PROD from problem state does not wake its target.",
			paprUserRefused()...).
			wants("wakes", 0, ""),
		splparRule("privilege/user-cannot-cede",
			"A CEDE from problem state neither waits nor turns interrupts on.",
			append(paprUserRefused(),
				paprEntry.noting("under a hypervisor of its own carries out CEDE without asking in which state it was made"))...).
			wants("waits", 0, ""),
	}
}

func paprNumberRules() []Rule {
	sweep := []Source{loparStatus, qemuCall,
		paprHcall.noting("leaves every number that it does not know, or that is not enabled, to the VMM")}
	return []Rule{
		paprRule("number/undefined",
			"The number 0, and every number from first-free to last-free, gives FUNCTION.", sweep...),
		paprRule("number/not-multiple-of-four",
			"The number of a defined call plus 1, 2 or 3 gives FUNCTION.",
			append(sweep, paprRealMode.noting("before POWER9 drops the two low bits and carries out the call"))...),
		paprRule("number/extreme",
			"The numbers 2^31, 2^32-4, 2^63 and 2^64-4 give FUNCTION.", sweep...),
		paprRule("number/high-half",
			"2^32 plus the number of a defined call gives FUNCTION: all 64 bits of r3 are the number.", sweep...),
		paprRule("number/poll-pending",
			"POLL_PENDING gives a result listed for it.",
			lopar("H_POLL_PENDING"), linux("arch/powerpc/include/asm/plpar_wrappers.h", "poll_pending")).on("", "POLL_PENDING"),
		splparRule("number/cede",
			"CEDE gives the result listed for it, whatever ended it.",
			loparCede, paprEntry, qemuCede),
	}
}

func paprKickRules() []Rule {
	kept := func(s ...Source) []Source {
		return append(s,
			loparIntent.noting("a prod of a CPU that is dispatched returns without touching it, and its next cede ends at once"),
			loparDispatch.noting("dispatching resets the bit, so that a preemption between prod and cede may lose it"),
			paprCede.noting("keeps the prod until the next cede, so longer than it must"),
			qemuProd.noting("does not keep it: the kick by which it reaches the CPU is a dispatch, which resets the bit"), qemuEnter)
	}
	return []Rule{
		splparRule("kick/wakes-waiter",
			"A prod ends the wait of a CPU that ceded with interrupts off.",
			loparCede, loparProd, paprWoken, paprHcall, qemuProd).
			wants("wakes", 1, "waits ended"),
		splparRule("kick/wakes-waiter-interrupts-on",
			"A prod ends the wait of a CPU that ceded with interrupts on.",
			loparCede, loparProd, paprWoken, paprHcall, qemuProd).
			wants("wakes", 1, "waits ended"),
		splparRule("kick/before-wait",
			"A prod of a CPU that is dispatched is kept while it stays dispatched: the cede that follows ends at once.",
			kept(loparCede)...).
			wants("latched", 1, "kicks kept"),
		splparRule("kick/two-kicks",
			"Two prods before two cedes end one of them: the prod is a bit, not a count.",
			kept(loparProd, loparCede)...).
			wants("wakes", 1, "waits ended"),
		splparRule("kick/self",
			"A CPU that prods itself ends its own next cede.",
			kept(loparProd)...).
			wants("latched", 1, "kicks kept"),
		splparRule("kick/running-target",
			"A prod of a running CPU does not disturb it and ends its next cede, once.",
			kept(loparProd)...).
			wants("returns", 1, "spurious ends of a wait"),
		splparRule("kick/spent",
			"A prod that has ended a cede is spent: the next cede waits.",
			loparDispatch.noting("the dispatch that follows the prod resets the bit"), loparIntent,
			qemuEnter.noting("keeps it"),
			paprWoken.noting("does not: waking by a prod leaves it set, so that the next cede ends at once, too"), paprCede).
			wants("latched", 0, "kicks kept"),
		splparRule("kick/absent-target",
			"A prod of a number that no CPU has gives the result listed for it and wakes nobody.",
			loparProd, paprHcall, qemuProd).
			wants("wakes", 0, ""),
		splparRule("kick/target-high-half",
			"All 64 bits are the number: a prod of 2^32 plus a CPU's number gives the result listed for it and wakes nobody.",
			loparProd.noting("takes an int64"),
			paprFindVCPU.noting("does not keep it: takes an int, so that it prods the CPU"),
			qemuFindCPU.noting("does not keep it: takes an int, so that it prods the CPU")).
			wants("wakes", 0, ""),
		splparRule("kick/result",
			"A prod gives the result listed for it, whatever the state of its target.",
			loparProd, paprHcall, qemuProd),

		splparRule("wait/sleeps-without-kick",
			"A cede that nothing ends does not end.",
			loparCede, paprWoken, qemuCede).
			wants("returns", 0, ""),
		splparRule("wait/ended-by-interrupt",
			"An external interrupt ends a cede, whether it was made with interrupts on or off.",
			loparCede, loparIntent, paprWoken, qemuCede).
			wants("returns", 1, "waits ended"),
		splparRule("wait/ended-by-decrementer",
			"The decrementer goes on during a cede, and ends it when it expires.",
			loparCede, loparIntent, linux("arch/powerpc/kvm/book3s_hv.c", "kvmppc_set_timer"), qemuCede).
			wants("returns", 1, "waits ended"),
		splparRule("wait/interrupt-eats-kick",
			"A cede with both a prod and an interrupt pending takes the prod, and then the interrupt: the next cede waits.",
			loparCede.noting("the prod is looked at first"), loparDispatch, paprCede, qemuCede).
			wants("latched", 0, "kicks kept"),
		splparRule("wait/enables-interrupts",
			"After a cede that was made with interrupts off they are on, also where it ended at once.",
			loparCede, paprCede, qemuCede).
			wants("enabled", 1, ""),
		splparRule("wait/interrupt-before-next-instruction",
			"An interrupt that ends a cede is taken before the instruction that follows.",
			loparIntent, loparDispatch).
			wants("taken", 1, "interrupts"),
	}
}

func paprConferRules() []Rule {
	return []Rule{
		splparRule("yield/running-target",
			"A confer to a running CPU gives the result listed for it.",
			loparConfer.noting("a count that is even, as that of a running CPU is, ends the call"), paprHcall, qemuConfer),
		splparRule("yield/waiting-target",
			"A confer to a waiting CPU gives the result listed for it.",
			loparConfer, paprHcall, qemuConfer),
		splparRule("yield/absent-target",
			"A confer to a number that no CPU has gives the result listed for it.",
			loparConfer, paprHcall, qemuConfer),
		splparRule("yield/does-not-wake",
			"A confer to a waiting CPU does not end its wait, also with its count.",
			loparConfer, loparIntent, paprHcall, qemuConfer).
			wants("wakes", 0, ""),

		splparRule("confer/all-processors",
			"A confer to ALL gives the result listed for it.",
			loparConfer, paprHcall, qemuConfer.noting("stores no status; 11.1.2 was seen to")),
		splparRule("confer/matching-odd-count",
			"A confer with the odd count that its target has gives the result listed for it.",
			loparConfer, paprHcall, qemuConfer.noting("stores no status; 11.1.2 was seen to")),
		splparRule("confer/count-high-half",
			"Only the low 32 bits of the count are looked at: 2^32 more is the same count, and gives the same result.",
			loparConfer.noting("takes a uint32"), paprHcall, qemuConfer),
		splparRule("confer/even-count",
			"A confer with an even count gives the result listed for it at once.",
			loparConfer, qemuConfer, paprHcall.noting("does not look whether it is odd; the result is the same")),
		splparRule("confer/stale-count",
			"A confer with an odd count that its target no longer has gives the result listed for it at once.",
			loparConfer, paprHcall, qemuConfer),
		splparRule("confer/without-area",
			"A confer to a CPU without a VPA gives the result listed for it.",
			loparConfer, qemuConfer, paprYieldCount),
		splparRule("confer/self-waits",
			"A confer to the calling CPU itself, with interrupts off, waits while nobody prods it, whatever the count.",
			loparConfer, qemuConferSelf.noting("keeps it until the decrementer expires, which ends it as it ends JOIN"),
			paprHcall.noting("does not keep it: yields to the caller and returns at once")).
			wants("returns", 0, ""),
		splparRule("confer/self-prodded",
			"A prod ends such a wait, and the confer gives the result listed for it.",
			loparConfer, qemuConferSelf, qemuProd).
			wants("wakes", 1, "waits ended"),
		splparRule("confer/keeps-interrupts",
			"A confer leaves it as it was whether interrupts are on.",
			loparConfer, qemuConfer, paprHcall).
			wants("changed", 0, ""),
	}
}

func paprJoinRules() []Rule {
	join := func(name, text string, sources ...Source) Rule {
		return paprRule(name, text, append(sources, loparJoin, qemuJoin,
			paprHcall.noting("leaves JOIN to the VMM"))...).on("", "JOIN", "SPLPAR")
	}
	return []Rule{
		join("join/interrupts-on",
			"A join with interrupts on gives the result listed for it at once.", paprGuestJoin),
		join("join/ended-by-prod",
			"A prod ends a join, which gives the result listed for it.", paprGuestJoin, loparProd).
			wants("wakes", 1, "waits ended"),
		join("join/prod-before",
			"A prod of a CPU that is dispatched is kept while it stays dispatched: the join that follows ends at once.",
			loparConfer, loparDispatch, qemuProd.noting("does not keep it, as for CEDE")).
			wants("latched", 1, "kicks kept"),
		join("join/not-ended-by-decrementer",
			"The decrementer does not end a join, for interrupts are off.",
			loparConfer.noting("an interrupt ends the wait only while interrupts are on"),
			qemuConferSelf.noting("does not keep it: the CPU is halted and resumes when the decrementer expires")).
			wants("returns", 0, ""),
		join("join/last-thread",
			"The last thread that has not joined gets the result listed for it, at once.", paprGuestJoin),
		join("join/keeps-interrupts-off",
			"Interrupts are still off after a join.").
			wants("enabled", 0, ""),
	}
}

func paprRegisterRules() []Rule {
	row := func(name, text string, sources ...Source) Rule {
		return splparRule("vpa/"+name, text, append([]Source{loparRegister}, sources...)...)
	}
	crosses := paprRegister.noting("does not keep it on hosts with pages of 64 KiB: asks that the area stay in one page of the host")
	unaligned := func(s Source) Source { return s.noting("does not keep it: does not look at the alignment") }
	return []Rule{
		row("register", "Registering a VPA of 640 bytes, or of more, gives the result listed for it.", paprRegister, qemuRegister),
		row("register-again", "Registering another VPA while one is registered gives the result listed for it, and the later one is in use.", paprUpdate, qemuRegister).
			wants("moves", 1, ""),
		row("absent-cpu", "REGISTER_VPA for a number that no CPU has gives the result listed for it, whatever the subfunction.", paprRegister, qemuFlags),
		row("reserved-subfunction", "The subfunctions RESERVED_0 and RESERVED_4 give the result listed for them.", paprRegister, qemuFlags),
		row("zero-address", "Registering an area at address zero gives the result listed for it.",
			paprRegister.noting("keeps it"),
			loparRegister.noting("makes no exception for zero, and has this status for every address that cannot be used"),
			qemuRegister.noting("does not keep it: HARDWARE, which PAPR has for faults of the hardware")),
		row("unaligned", "Registering a VPA that is not aligned to a cache line gives the result listed for it.", paprRegister, qemuRegister),
		row("outside-memory", "Registering a VPA at an aligned address outside the partition's memory gives the result listed for it.", paprRegister,
			qemuRegister.noting("does not look at the address; what it reads there as length is too short")),
		row("too-short", "Registering a VPA whose length is 639 or less gives the result listed for it.", paprRegister, qemuRegister),
		row("crosses-boundary", "Registering a VPA that crosses a multiple of 4096, by its own length, gives the result listed for it.", qemuRegister, crosses),
		row("refused-has-no-effect", "A registration that was refused leaves the one before in use.", paprRegister, qemuRegister).
			wants("changed", 0, "registrations"),

		row("trace", "Registering a dispatch trace log of 48 bytes or more, up to 4096, gives the result listed for it.", paprRegister, qemuLog),
		row("trace-unaligned", "Registering a dispatch trace log that is not aligned to a cache line gives the result listed for an unaligned area.", paprRegister, unaligned(qemuLog)),
		row("trace-too-short", "Registering a dispatch trace log whose length is 47 or less gives the result listed for it.", paprRegister, qemuLog),
		row("trace-crosses-boundary", "A dispatch trace log may cross a multiple of 4096: registering one gives the result listed for it.", qemuLog,
			loparRegister.noting("refuses it with another status where partitions' memory is overcommitted (CMO), which the two implementers have not"),
			paprRegister.noting("does not keep it on hosts with pages of 4 KiB: asks that the area stay in one page of the host")),
		row("trace-without-area", "Registering a dispatch trace log for a CPU without a VPA gives the result listed for it.", paprRegister, qemuLog),
		row("trace-order", "Of a dispatch trace log that is too short, for a CPU without a VPA, the length is what is reported.", paprRegister, qemuLog),
		row("shadow", "Registering an SLB shadow of 8 bytes or more gives the result listed for it.", paprRegister, qemuShadow),
		row("shadow-unaligned", "Registering an SLB shadow that is not aligned to a cache line gives the result listed for an unaligned area.", paprRegister, unaligned(qemuShadow)),
		row("shadow-too-short", "Registering an SLB shadow whose length is 7 or less gives the result listed for it.", paprRegister, qemuShadow),
		row("shadow-crosses-boundary", "Registering an SLB shadow that crosses a multiple of 4096 gives the result listed for it.", qemuShadow, crosses),
		row("shadow-without-area", "Registering an SLB shadow for a CPU without a VPA gives the result listed for it.", paprRegister, qemuShadow),

		row("deregister", "Deregistering a VPA, a dispatch trace log or an SLB shadow gives the result listed for it.", paprRegister, qemuDeregister),
		row("deregister-absent", "Deregistering what is not registered gives the result listed for it.", paprRegister, qemuDeregister),
		row("deregister-with-trace", "Deregistering a VPA while a dispatch trace log is registered gives the result listed for it.", paprRegister, qemuDeregister),
		row("deregister-with-shadow", "Deregistering a VPA while an SLB shadow is registered gives the result listed for it.", paprRegister, qemuDeregister),
		row("deregister-ignores-address", "Deregistering does not look at the address.", paprRegister, qemuDeregister),
		row("deregistered-not-written", "Once a VPA is deregistered the hypervisor writes it no more.", paprUpdate, qemuExit).
			wants("changed", 0, "bytes"),
		row("guest-fields-untouched", "The hypervisor does not write the fields of a VPA that are the guest's.", loparArea, paprInitVPA, qemuRegister).
			wants("changed", 0, "bytes"),
	}
}

func paprCountRules() []Rule {
	count := func(name, text string, sources ...Source) Rule {
		return splparRule(name, text, append([]Source{loparIntent, loparArea}, sources...)...)
	}
	return []Rule{
		count("preempted/running",
			"YIELDED of a running CPU is clear, as the CPU itself sees it.", paprCount, qemuEnter, paprPreempted).
			wants("preempted", 0, ""),
		count("preempted/descheduled",
			"YIELDED of a CPU that the hypervisor has taken its processor from is set.", paprCount,
			qemuExit.noting("knows only what QEMU itself does: that a thread of QEMU was taken off a processor does not show")).
			wants("preempted", 1, ""),
		count("preempted/waiting",
			"YIELDED of a CPU that ceded is set; that it is idle, not preempted, is for the guest to say.",
			paprCount, qemuExit, paprPreempted.noting("looks at idle next"), paprIdle).
			wants("preempted", 1, ""),
		count("count/rises-over-wait",
			"Over a cede that waited yield_count rises by an even number, at least 2.", loparDispatch, paprCount, qemuExit, qemuEnter).
			wants("parity", 0, "rise modulo 2").wants("least", 2, ""),
		count("count/never-falls",
			"As another CPU sees it yield_count never falls, but for its wrap at 2^32.", loparDispatch, paprCount, qemuEnter).
			wants("decreases", 0, "samples"),
		count("count/corrects-parity",
			"After a CPU with a VPA whose yield_count was left at any value has been registered and dispatched, yield_count is even while it runs.",
			loparRegister.noting("registering initializes the area"), paprInitVPA, qemuEnter.noting("corrects it at the next dispatch")).
			wants("parity", 0, "yield_count modulo 2"),
	}
}

func paprStealRules() []Rule {
	steal := func(name, text string, sources ...Source) Rule {
		return splparRule(name, text, append([]Source{lopar("Virtual Processor Preempt/Dispatch"), loparArea}, sources...)...)
	}
	return []Rule{
		steal("steal/monotonic",
			"Neither enqueue_dispatch_tb nor ready_enqueue_tb ever decreases.", paprSteal, paprStealClock).
			wants("decreases", 0, "samples"),
		steal("steal/grows",
			"The time for which a CPU was ready and waited for a processor is added to enqueue_dispatch_tb.",
			lopar("Virtual Processor Preempt/Dispatch").noting("R1-5 demands it of the platform; by R1-6 a guest must live without"),
			paprSteal, qemuEnter.noting("does not keep it: writes yield_count only")).
			wants("grows", 1, ""),
	}
}

func paprLogRules() []Rule {
	trace := func(name, text string, sources ...Source) Rule {
		return splparRule("trace/"+name, text, append([]Source{loparLog, paprLog}, sources...)...)
	}
	none := qemuLog.noting("does not keep it: accepts a log and never writes it")
	return []Rule{
		trace("entry", "With a dispatch trace log registered and dtl_enable_mask all set, a cede that waited leaves an entry, or more, and dtl_idx rises by as many.",
			none, loparDispatch.noting("speaks of a pair of entries for each dispatch; Linux reads as many as there are")).
			wants("least", 1, "entries"),
		trace("timebase", "The time base in an entry lies between those that the CPU read before and after its cede.", none).
			wants("inside", 1, ""),
		trace("mask-zero", "With dtl_enable_mask zero nothing is written.",
			loparArea, paprSteal.noting("does not keep it: never looks at the mask")).
			wants("written", 0, "entries"),
		trace("reason-prod", "The entry of a dispatch by a prod has the dispatch reason 2.",
			paprLog.noting("does not keep it: always 7"), none).
			wants("reason", 2, ""),
		trace("wraps", "The log is used up to its length rounded down to a multiple of 48, and then from its start again; bytes behind are not written.",
			paprRegister, none).
			wants("changed", 0, "bytes behind the last entry"),
	}
}

// paprMonitorRules are about calls that one implementer, which is KVM and a monitor in user space,
// shares out between the two.
func paprMonitorRules() []Rule {
	exit := linux("Documentation/virt/kvm/api.rst", "KVM_EXIT_PAPR_HCALL")
	return []Rule{
		paprRule("monitor/call-handed-over",
			"Where the hypervisor is KVM and a monitor: a call that KVM does not answer reaches the monitor with its number and r4 to r12 as they were made, whatever the number is.",
			exit, paprExit, paprHcall).
			wants("changed", 0, "registers"),
		paprRule("monitor/answer-handed-back",
			"The status that the monitor gives is r3 when the guest goes on, and r4 to r12 are what the monitor left.",
			exit, linux("arch/powerpc/kvm/powerpc.c", "kvm_arch_vcpu_ioctl_run")).
			wants("changed", 0, "registers"),
		paprRule("monitor/disabled-call",
			"A call whose handling in the kernel the monitor has disabled reaches the monitor.",
			linux("Documentation/virt/kvm/api.rst", "KVM_CAP_PPC_ENABLE_HCALL"), paprHcall,
			paprEntry.noting("does not keep it since POWER9: carries out CEDE without asking whether it is enabled")).
			wants("kept", 0, "calls that KVM answers all the same"),
	}
}

// paprGuestRules is what Linux as a guest does with the ABI.
func paprGuestRules() []Rule {
	guest := func(name, text string, sources ...Source) Rule {
		r := splparRule("guest/"+name, text, sources...)
		r.Side = Guest
		return r
	}
	return []Rule{
		guest("registers-area",
			"Each CPU that is online has registered a VPA that satisfies the rules for its alignment, length and place.",
			paprVPAInit, linux("arch/powerpc/kernel/paca.c", "new_lppaca"), loparRegister).
			wants("missing", 0, "CPUs"),
		guest("size-field",
			"Size of each VPA is at least VPA_MINIMUM; Linux writes 1024.",
			linux("arch/powerpc/kernel/paca.c", "init_lppaca"), linux("arch/powerpc/include/asm/lppaca.h", "struct lppaca")).
			wants("size", 1024, "bytes"),
		guest("eye-catcher",
			"Desc of each VPA holds the customary eye-catcher.",
			linux("arch/powerpc/kernel/paca.c", "init_lppaca"), loparArea.noting("any value will do")).
			wants("desc", 0xd397d781, ""),
		guest("registers-own-area",
			"A CPU registers its own VPA, never that of another CPU.",
			paprVPAInit, loparArea.noting("may be problematic"), loparDispatch).
			wants("others", 0, "registrations"),
		guest("keeps-vectors",
			"Vmxregs_in_use of each VPA is 1 where the CPU has vector registers.",
			paprVPAInit).
			wants("set", 1, ""),
		guest("shared-mode",
			"Linux takes its CPUs for shared, and uses paravirtual locks, if and only if SHARED_PROC of the boot CPU's VPA is set.",
			paprSetup, paprSharedProc, linux("arch/powerpc/platforms/pseries/lparcfg.c", "pseries_lparcfg_data").noting("shows it as shared_processor_mode")).
			wants("differences", 0, ""),
		guest("marks-idle",
			"A CPU that cedes because it has nothing to do has idle of its VPA at 1, and a CPU that runs a task has it at 0.",
			paprIdle, linux("drivers/cpuidle/cpuidle-pseries.c", "shared_cede_loop")).
			wants("idle", 1, ""),
		guest("preempted-running",
			"Linux takes a CPU for not preempted if YIELDED of it is clear.",
			paprPreempted).
			wants("preempted", 0, ""),
		guest("preempted-idle",
			"Linux takes a CPU for not preempted if idle of it is set, whatever YIELDED is: under LINUX_KVM always, elsewhere if the CPU has its core to itself.",
			paprPreempted).
			wants("preempted", 0, ""),
		guest("preempted-yielded",
			"Linux takes a CPU for preempted if CPUs are shared, YIELDED of it is set and idle clear.",
			paprPreempted).
			wants("preempted", 1, ""),
		guest("confers-odd-count",
			"Linux confers to a CPU with an odd count only, which it has read from that CPU's VPA, or to ALL with the count 0.",
			paprYieldOwner, paprYieldTo, linux("arch/powerpc/lib/locks.c", "splpar_spin_yield"), linux("arch/powerpc/include/asm/paravirt.h", "yield_to_any")).
			wants("even", 0, "confers"),
		guest("confers-to-another",
			"Linux never confers to the calling CPU itself, and to no number that no CPU has.",
			paprYieldOwner, linux("arch/powerpc/lib/qspinlock.c", "yield_to_prev"), loparConfer).
			wants("others", 0, "confers"),
		guest("locks-do-not-prod",
			"Linux does not prod the head of a lock's queue unless it is told to.",
			linux("arch/powerpc/lib/qspinlock.c", "pv_prod_head"), linux("arch/powerpc/include/asm/paravirt.h", "prod_cpu")).
			wants("prods", 0, ""),
		guest("joins-with-interrupts-off",
			"Linux joins with interrupts off, and joins again if it was woken before its time.",
			paprGuestJoin, loparJoin),
		guest("deregisters-before-offline",
			"A CPU that goes offline deregisters its SLB shadow, and then its VPA, before it stops itself.",
			paprOfflineSelf, loparRegister.noting("the VPA last")).
			wants("registered", 0, "areas"),
		guest("steal-clock",
			"Linux's steal time of a CPU is the sum of enqueue_dispatch_tb and ready_enqueue_tb, in nanoseconds.",
			paprStealClock).
			wants("differences", 0, ""),
	}
}

package abi

// Where the rules of x86-kvm's guests come from, each named once.
var (
	x86GuestLocks    = linux("arch/x86/kernel/kvm.c", "kvm_spinlock_init")
	x86GuestVirtKey  = linux("arch/x86/kernel/paravirt-spinlocks.c", "native_pv_lock_init")
	x86GuestKick     = linux("arch/x86/kernel/kvm.c", "kvm_kick_cpu")
	x86GuestInit     = linux("arch/x86/kernel/kvm.c", "kvm_guest_init")
	x86GuestCPU      = linux("arch/x86/kernel/kvm.c", "kvm_guest_cpu_init")
	x86GuestOffline  = linux("arch/x86/kernel/kvm.c", "kvm_guest_cpu_offline")
	x86GuestReboot   = linux("arch/x86/kernel/kvm.c", "kvm_pv_reboot_notify")
	x86GuestCrash    = linux("arch/x86/kernel/kvm.c", "kvm_crash_shutdown")
	x86GuestFlush    = linux("arch/x86/kernel/kvm.c", "pv_tlb_flush_supported")
	x86GuestYields   = linux("arch/x86/kernel/kvm.c", "pv_sched_yield_supported")
	x86GuestYield    = linux("arch/x86/kernel/kvm.c", "kvm_smp_send_call_func_ipi")
	x86GuestIPIs     = linux("arch/x86/kernel/kvm.c", "pv_ipi_supported")
	x86GuestIPI      = linux("arch/x86/kernel/kvm.c", "__send_ipi_mask")
	x86GuestEOI      = linux("arch/x86/kernel/kvm.c", "kvm_guest_apic_eoi_write")
	x86GuestSteal    = linux("arch/x86/kernel/kvm.c", "kvm_steal_clock")
	x86GuestClock    = linux("arch/x86/kernel/kvmclock.c", "kvmclock_init")
	x86GuestClockCPU = linux("arch/x86/kernel/kvmclock.c", "kvm_register_clock")
	x86GuestWall     = linux("arch/x86/kernel/kvmclock.c", "kvm_get_wallclock")
)

// x86GuestRules is what a guest owes its KVM, and itself where it decides by what is offered.
func x86GuestRules() []Rule {
	guest := func(name, text string, sources ...Source) Rule {
		r := x86Rule("guest/"+name, text, sources...)
		r.Side = Guest
		return r
	}
	return []Rule{
		guest("needs-hypervisor-bit",
			"A guest that finds hypervisor-bit clear does not look for KVM: it writes none of its registers and makes no calls.",
			x86GuestScan).
			wants("uses", 0, "writes and calls"),
		guest("needs-signature",
			"A guest that finds no signature of KVM's writes none of its registers and makes no calls.",
			x86GuestScan, x86Scan, docCPUID).
			wants("uses", 0, "writes and calls"),
		guest("finds-later-leaf",
			"A guest looks for the signature at each leaf from first-leaf on in steps of leaf-step, and takes the features from the leaf after the one where it is.",
			x86GuestScan, x86Scan, x86GuestLeaf).
			wants("found", 1, ""),

		guest("locks-if-offered",
			"A guest's spinlocks wait by HLT and kick by KICK_CPU where PV_UNHALT is offered, there is no hint REALTIME, it can have more than one CPU, and nopvspin is not on its command line.",
			x86GuestLocks, docCPUID).
			wants("operations", 1, "").on("3.12", "PV_UNHALT"),
		guest("locks-native-otherwise",
			"Otherwise a guest's spinlocks are those of bare hardware, and it makes no KICK_CPU.",
			x86GuestLocks, docCPUID.noting("says so of the missing feature and of the hint")).
			wants("operations", 0, "").wants("kicks", 0, ""),
		guest("locks-why-not",
			"Why its spinlocks are native a guest decides in this order: the hint REALTIME, a single CPU, nopvspin, no PV_UNHALT.",
			x86GuestLocks).
			wants("said", 1, ""),
		guest("locks-test-and-set",
			"A guest whose spinlocks are native because PV_UNHALT is not offered, and for no reason that comes before, waits by test and set, and not in a queue in which the next one may not be running.",
			x86GuestLocks, x86GuestVirtKey).
			wants("test-and-set", 1, ""),
		guest("locks-queued",
			"With a reason that comes before, the hint REALTIME, a single CPU or nopvspin, a guest waits in a queue, and so does a kernel that finds hypervisor-bit clear.",
			x86GuestLocks, x86GuestVirtKey).
			wants("test-and-set", 0, ""),

		guest("flush-if-offered",
			"A guest asks for TLB flushes of preempted CPUs by FLUSH_TLB where PV_TLB_FLUSH and STEAL_TIME are offered, there is no hint REALTIME, its CPUs have no MWAIT, and it can have more than one.",
			x86GuestFlush, x86GuestInit, docCPUID.noting("names PV_TLB_FLUSH only")).
			wants("in-use", 1, "").on("4.16", "PV_TLB_FLUSH", "STEAL_TIME"),
		guest("flush-native-otherwise",
			"Otherwise a guest flushes TLBs by interrupts only, and never sets FLUSH_TLB.",
			x86GuestFlush, x86GuestInit).
			wants("in-use", 0, "").wants("flushes", 0, "asked for by FLUSH_TLB"),
		guest("yield-if-offered",
			"A guest calls SCHED_YIELD where PV_SCHED_YIELD and STEAL_TIME are offered, there is no hint REALTIME, its CPUs have no MWAIT, and it can have more than one.",
			x86GuestYields, x86GuestInit, docCPUID.noting("names PV_SCHED_YIELD only")).
			wants("in-use", 1, "").on("5.3", "PV_SCHED_YIELD", "STEAL_TIME"),
		guest("yield-never-otherwise",
			"Otherwise a guest does not call SCHED_YIELD.",
			x86GuestYields, x86GuestInit).
			wants("in-use", 0, "").wants("yields", 0, ""),
		guest("ipi-if-offered",
			"A guest sends interrupts to several CPUs by SEND_IPI where PV_SEND_IPI is offered and it can have more than one CPU, whatever else there is.",
			x86GuestIPIs, docCPUID).
			wants("in-use", 1, "").on("4.19", "PV_SEND_IPI"),
		guest("ipi-native-otherwise",
			"Otherwise a guest does not call SEND_IPI.",
			x86GuestIPIs).
			wants("in-use", 0, "").wants("calls", 0, ""),
		guest("eoi-if-offered",
			"A guest ends interrupts by the word of PV_EOI_EN where PV_EOI is offered, and otherwise does not write that register.",
			x86GuestInit, x86GuestCPU, x86GuestEOI, docCPUID).
			wants("registers", 1, "").on("3.6", "PV_EOI"),
		guest("eoi-cleared",
			"A guest that finds the bit set in its word clears it and does not end the interrupt at its APIC: KVM sees the interrupts as ended.",
			x86GuestEOI, linux("arch/x86/kvm/lapic.c", "apic_sync_pv_eoi_from_guest"), docMSR).
			wants("ended", 1, "1 for once or more").on("3.6", "PV_EOI"),
		guest("steal-if-offered",
			"A guest reads steal time, and whether a CPU is preempted, from the areas of STEAL_TIME where STEAL_TIME is offered, and otherwise does not write that register.",
			x86GuestInit, x86GuestCPU, x86GuestSteal, docCPUID).
			wants("registers", 1, "").on("3.1", "STEAL_TIME"),
		guest("async-faults-by-interrupt",
			"A guest takes asynchronous page faults where ASYNC_PF and ASYNC_PF_INT are offered, and not where only ASYNC_PF is.",
			x86GuestInit, x86GuestCPU, docMSR, docCPUID.noting("has both bits side by side")).
			wants("registers", 1, ""),
		guest("async-faults-needs-both",
			"A guest to which ASYNC_PF_INT is offered and ASYNC_PF is not does not write ASYNC_PF_EN.",
			docCPUID.noting("ASYNC_PF says that the register can be written"), docMSR,
			x86SetMSR.noting("a VMM that enforces the features has it refused")).
			wants("registers", 0, ""),
		guest("clock-newer",
			"A guest uses SYSTEM_TIME_NEW and WALL_CLOCK_NEW where CLOCKSOURCE2 is offered, also if CLOCKSOURCE is, and only where that alone is SYSTEM_TIME and WALL_CLOCK.",
			x86GuestClock, docCPUID, docMSR).
			wants("registers", 1, ""),
		guest("clock-stable",
			"A guest heeds TSC_STABLE in its clocks' flags only where CLOCKSOURCE_STABLE_BIT is offered.",
			x86GuestClock, docMSR, docCPUID).
			wants("heeds", 1, ""),

		guest("registers-known",
			"What a guest writes to a register of KVM's has none of its reserved bits set, and a register that the features do not offer it does not write.",
			x86GuestCPU, x86GuestClockCPU, x86GuestWall, docMSR).
			wants("reserved", 0, "writes").wants("unoffered", 0, "writes"),
		guest("areas-in-memory",
			"The areas that a guest registers are in its memory, aligned as their layouts demand, and none crosses a page.",
			x86GuestCPU, x86GuestClockCPU, docMSR).
			wants("outside", 0, "areas"),
		guest("areas-own",
			"No two areas that are registered overlap, of the same CPU or of different ones.",
			x86GuestCPU, x86GuestClockCPU, docMSR).
			wants("shared", 0, "areas"),
		guest("areas-of-each-cpu",
			"Each CPU registers an area of its own for each feature that the guest uses: the register is a CPU's, the feature is the guest's.",
			x86GuestCPU, linux("arch/x86/kernel/kvm.c", "kvm_cpu_online"), x86GuestClockCPU).
			wants("missing", 0, "areas"),
		guest("async-faults-vector-first",
			"A CPU writes the vector to ASYNC_PF_INT before it enables ASYNC_PF_EN with DELIVERY_AS_INT.",
			x86GuestCPU, docMSR, linux("arch/x86/kvm/x86.c", "kvm_pv_async_pf_enabled")).
			wants("before", 0, "enabled before").on("", "ASYNC_PF", "ASYNC_PF_INT"),
		guest("async-faults-bits",
			"A guest enables ASYNC_PF_EN with DELIVERY_AS_INT, with DELIVERY_AS_PF_VMEXIT just where ASYNC_PF_VMEXIT is offered, and without SEND_ALWAYS: its kernel does not take such faults.",
			x86GuestCPU, linux("arch/x86/kernel/kvm.c", "__kvm_handle_async_pf"), docMSR).
			wants("others", 0, "writes").on("", "ASYNC_PF", "ASYNC_PF_INT"),

		guest("releases-offline",
			"A CPU that a guest takes offline disables its areas first, and one that comes online again registers them again.",
			x86GuestOffline, linux("arch/x86/kernel/kvm.c", "kvm_cpu_down_prepare")).
			wants("left", 0, "areas").wants("missing", 0, "areas"),
		guest("releases-reboot",
			"A guest that reboots disables the areas of all CPUs first.",
			x86GuestReboot, x86GuestOffline).
			wants("left", 0, "areas"),
		guest("releases-kexec",
			"A guest that enters another kernel by kexec disables the areas of all CPUs first: their memory is the next kernel's.",
			x86GuestReboot, x86GuestOffline).
			wants("left", 0, "areas"),
		guest("releases-crash",
			"A guest that enters a crash kernel disables the areas of the CPU that goes there first.",
			x86GuestCrash, x86GuestOffline).
			wants("left", 0, "areas"),

		guest("kicks-waiter",
			"CPUs that contend for a spinlock come to wait by HLT, and are kicked.",
			x86GuestWait, x86GuestKick).
			wants("waits", 1, "1 for once or more").wants("kicks", 1, "1 for once or more").on("3.12", "PV_UNHALT"),
		guest("kicks-once-for-a-wait",
			"A CPU is kicked no more often than it came to wait.",
			x86GuestKick, linux("kernel/locking/qspinlock_paravirt.h", "__pv_queued_spin_unlock_slowpath")).
			wants("excess", 0, "kicks").on("3.12", "PV_UNHALT"),
		guest("kick-target",
			"The target of a KICK_CPU is the APIC id of the CPU that waits, another than that which calls, and its flags are 0, also where APIC ids are not the CPUs' numbers.",
			x86GuestKick, docHypercalls).
			wants("others", 0, "calls").on("3.12", "PV_UNHALT"),
		guest("kicks-counted",
			"As many kicks as a guest makes of each CPU, KVM is called for.",
			x86GuestKick, x86Hypercall.noting("traces each call")).
			wants("differences", 0, "kicks").on("3.12", "PV_UNHALT"),
		guest("ipi-lowest",
			"The lowest id of a SEND_IPI is one of its targets, whatever the order of CPUs and ids.",
			x86GuestIPI).
			wants("clear", 0, "calls").on("4.19", "PV_SEND_IPI"),
		guest("ipi-to-existing",
			"The targets of SEND_IPI are APIC ids of CPUs that there are, also where ids are sparse and out of order.",
			x86GuestIPI).
			wants("others", 0, "targets").on("4.19", "PV_SEND_IPI"),
		guest("ipi-clusters",
			"Targets whose ids are too far apart for one call are sent to by several.",
			x86GuestIPI, linux("arch/x86/kernel/kvm.c", "KVM_IPI_CLUSTER_SIZE")).
			wants("missed", 0, "CPUs that are never a target").on("4.19", "PV_SEND_IPI"),
		guest("ipi-command",
			"The command of a SEND_IPI has the delivery mode fixed, with a vector of an interrupt, or NMI, and no destination of its own.",
			x86GuestIPI, x86SendIPI.noting("refuses a logical destination and a shorthand"), docHypercalls).
			wants("others", 0, "calls").on("4.19", "PV_SEND_IPI"),
		guest("ipi-succeeds",
			"No SEND_IPI of a guest fails.",
			x86GuestIPI.noting("warns once of a negative result")).
			wants("failures", 0, "warnings in its log").on("4.19", "PV_SEND_IPI"),
		guest("yield-target",
			"A SCHED_YIELD is to another CPU than the calling one, one to which that has just sent an interrupt.",
			x86GuestYield, docHypercalls).
			wants("others", 0, "calls").on("5.3", "PV_SCHED_YIELD"),
		guest("steal-accounted",
			"What a guest shows as stolen from a CPU grows with steal of that CPU's area and is never more.",
			x86GuestSteal, linux("kernel/sched/cputime.c", "steal_account_process_time"), docMSR).
			wants("more", 0, "CPUs").wants("grows", 1, "").on("3.1", "STEAL_TIME"),
		guest("no-other-calls",
			"A guest makes no other calls but KICK_CPU, SEND_IPI, SCHED_YIELD, and VAPIC_POLL_IRQ and CLOCK_PAIRING, which nobody has to offer.",
			x86GuestKick, x86GuestIPI, x86GuestYield, docHypercalls).
			wants("others", 0, "calls"),
	}
}

package abi

// x86IPIRules are about SEND_IPI beyond its plainest forms.
func x86IPIRules() []Rule {
	ipi := func(name, text string, sources ...Source) Rule {
		return x86Rule("ipi/"+name, text, append(sources, x86SendIPI, docHypercalls)...).on("4.19", "PV_SEND_IPI")
	}
	return []Rule{
		ipi("counts-each", "SEND_IPI with several CPUs in its bitmap gives their number, and each of them takes the interrupt.").
			wants("each", 1, "for each CPU"),
		ipi("high-word", "In 64-bit mode bit n of the second word stands for the id that is 64 + n above lowest.").
			wants("result", 1, "").wants("bits", 64, "bits of the first word"),
		ipi("absent-ids", "Ids of the bitmap that no CPU has, below and above the highest that one has, are passed over.").
			wants("each", 1, "for each CPU"),
		ipi("lowest-boundaries", "With lowest at the highest id that a CPU has SEND_IPI reaches that CPU, with any lowest above nobody.").
			wants("at", 1, "").wants("above", 0, ""),
		ipi("lowest-wraps", "Lowest is counted in 32 bits: with 2^32 - 64 the second word stands for the ids from 0.").
			wants("result", 1, ""),
		ipi("lowest-high-half", "Only the low 32 bits of lowest count.").
			wants("result", 1, ""),
		ipi("bad-command", "A logical destination or a shorthand in the command word gives the result listed for it, and nobody takes an interrupt.").
			wants("taken", 0, ""),
		ipi("nmi", "SEND_IPI with the delivery mode of an NMI makes its target take one, and counts it.").
			wants("result", 1, "").wants("taken", 1, "1 for once or more"),
		ipi("apic-off", "A CPU whose local APIC is disabled by software takes no interrupt of a vector and is not counted, until it is enabled.",
			x86Unhalt.noting("asks whether the APIC is enabled")).
			wants("off", 0, "").wants("on", 1, ""),
		ipi("protected-mode", "Outside of 64-bit mode bit n of the second word stands for the id that is 32 + n above lowest.", x86Mode).
			wants("result", 1, "").wants("bits", 32, "bits of the first word"),
	}
}

// x86MoreKickRules are kicks by other ways than the plain call.
func x86MoreKickRules() []Rule {
	return []Rule{
		x86Rule("kick/broadcast",
			"A kick of the id 0xff ends the waits of all CPUs, while the VMM has not changed the API of x2APIC ids.",
			x86Kick, linux("arch/x86/kvm/lapic.c", "kvm_apic_is_broadcast_dest"), docHypercalls.noting("says nothing of it")).on("3.12", "PV_UNHALT").
			wants("wakes", 2, "waits ended, of two"),
		x86Rule("kick/remote-read-command",
			"An interrupt command with delivery mode 3, remote read, ends a wait with interrupts off as a kick does, whatever features are offered.",
			x86Unhalt.noting("takes every message of that mode for a kick")).
			wants("wakes", 1, "waits ended"),
		x86Rule("kick/remote-read-send-ipi",
			"SEND_IPI with delivery mode 3, remote read, ends a wait with interrupts off as a kick does, also where PV_UNHALT is hidden and enforced.",
			x86Unhalt.noting("takes every message of that mode for a kick"), x86SendIPI).on("4.19", "PV_SEND_IPI").
			wants("wakes", 1, "waits ended"),
		x86Rule("kick/race",
			"Of kicks that race with the wait that they are to end, sent by three CPUs in turn, none is lost.",
			x86Unhalt, x86Halt, x86Runnable).on("3.12", "PV_UNHALT").
			wants("lost", 0, "kicks"),
		x86Rule("discovery/pv-unhalt-withdrawn",
			"Where HLT does not leave the guest, PV_UNHALT is clear on every CPU, whatever the VMM had offered, and KICK_CPU refused where features are enforced.",
			x86Features, docCPUID.noting("does not say so")).on("3.12", "PV_UNHALT").
			wants("offered", 0, ""),
	}
}

// x86MoreConventionRules are about the other form of the call instruction, and other modes.
func x86MoreConventionRules() []Rule {
	fix := linux("arch/x86/kvm/x86.c", "emulator_fix_hypercall")
	decode := linux("arch/x86/kvm/emulate.c", "em_hypercall")
	return []Rule{
		x86Rule("convention/foreign-instruction",
			"The call instruction that is not native makes a call, too, as KVM rewrites it in memory that can be written.", fix, decode).
			wants("exceptions", 0, ""),
		x86Rule("convention/foreign-instruction-not-fixed",
			"The call instruction that is not native raises an undefined opcode exception where the VMM has turned the rewriting off; the native one works.",
			fix, docHypercalls.noting("says nothing of it")).on("5.19").
			wants("exception", 6, "vector"),
		x86Rule("convention/foreign-instruction-user",
			"Outside CPL 0 the call instruction that is not native raises an exception and makes no call; the native one works.",
			decode.noting("the decode tables mark it as privileged")).
			wants("calls", 0, "calls counted"),
		x86Rule("convention/protected-mode",
			"In protected mode, 32 bits, calls give the same results as in 64-bit mode, cut to 32 bits, and change no other register.",
			x86Mode, x86Hypercall, x86Complete).
			wants("changed", 0, "registers"),
		x86Rule("convention/real-mode",
			"In real mode calls give the same results as in 64-bit mode, cut to 32 bits, and change no other register.",
			x86Mode, x86Hypercall, x86Complete).
			wants("changed", 0, "registers"),
	}
}

// x86ContentRules are about what calls leave in memory or pass on, and about the host's scheduler.
func x86ContentRules() []Rule {
	return []Rule{
		x86Rule("steal/run-delay",
			"What is added to steal between two entries is for how long the host kept the CPU's thread waiting, no more and no less.",
			x86Steal, linux("include/linux/sched.h", "struct sched_info").noting("run_delay"),
			docMSR.noting("the time that a CPU did not run; idle time is not counted")).on("3.1", "STEAL_TIME").
			wants("outside", 0, "differences outside of what the host says"),
		x86Rule("preempted/cleared-without-tlb-flush",
			"Preempted is zero once the CPU runs again also where PV_TLB_FLUSH is hidden and enforced.",
			x86Steal.noting("by a store then")).on("4.16", "STEAL_TIME").
			wants("preempted", 0, ""),
		x86Rule("preempted/flush-tlb",
			"FLUSH_TLB, set in preempted of a CPU that is out, has the hypervisor flush the CPU's TLB before the CPU runs again, which its counter tlb_flush tells, and is cleared.",
			x86Steal, linux("arch/x86/kernel/kvm.c", "kvm_flush_tlb_multi")).on("4.16", "STEAL_TIME", "PV_TLB_FLUSH").
			wants("flushes", 1, "for each entry").wants("preempted", 0, ""),
		x86Rule("pairing/content",
			"CLOCK_PAIRING writes the host's time of day and the guest's TSC of the same instant, flags and padding as zero, and nothing around.",
			x86Pairing, docHypercalls).on("4.11").
			wants("changed", 0, "bytes around").wants("second", 1_000_000_000, "nanoseconds").wants("zero", 0, "flags and padding"),
		x86Rule("pairing/address",
			"CLOCK_PAIRING with an address outside of memory gives the result listed for it.",
			x86Pairing, docHypercalls.noting("names no such error")).on("4.11"),
		x86Rule("map-gpa-range/bad-range",
			"MAP_GPA_RANGE of an address that is no multiple of a page's size, of no pages, or of a range that wraps gives the result listed for it, and the VMM is not told.",
			x86Hypercall, docHypercalls).on("5.14").
			wants("told", 0, "exits"),
		x86Rule("map-gpa-range/exit",
			"A VMM that has asked for it is told address, pages and attributes of MAP_GPA_RANGE, and the call gives what the VMM answers.",
			x86Hypercall, x86Complete, linux("Documentation/virt/kvm/api.rst", "KVM_EXIT_HYPERCALL")).on("5.14").
			wants("told", 1, "exits"),
	}
}

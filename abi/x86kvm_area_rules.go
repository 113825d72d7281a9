package abi

// Where the rules of x86-kvm about registers and shared areas come from.
var (
	x86Reset         = linux("arch/x86/kvm/x86.c", "kvm_vcpu_reset")
	x86APICReset     = linux("arch/x86/kvm/lapic.c", "kvm_lapic_reset")
	x86Create        = linux("arch/x86/kvm/x86.c", "kvm_arch_vcpu_postcreate")
	x86UnknownMSR    = linux("arch/x86/kvm/x86.c", "kvm_do_msr_access").noting("a fault, unless the host's parameter ignore_msrs is set")
	x86SystemTime    = linux("arch/x86/kvm/x86.c", "kvm_write_system_time")
	x86ClockArea     = linux("arch/x86/kvm/x86.c", "kvm_setup_guest_pvclock")
	x86TimeUpdate    = linux("arch/x86/kvm/x86.c", "kvm_guest_time_update")
	x86ClockOff      = linux("arch/x86/kvm/x86.c", "kvmclock_reset")
	x86WallClock     = linux("arch/x86/kvm/x86.c", "kvm_write_wall_clock")
	x86Paused        = linux("arch/x86/kvm/x86.c", "kvm_set_guest_paused")
	x86ReadClock     = linux("arch/x86/include/asm/pvclock.h", "__pvclock_read_cycles")
	x86GuestOrder    = linux("arch/x86/kernel/pvclock.c", "__pvclock_clocksource_read")
	x86EOIRegister   = linux("arch/x86/kvm/lapic.c", "kvm_lapic_set_pv_eoi")
	x86EOIToGuest    = linux("arch/x86/kvm/lapic.c", "apic_sync_pv_eoi_to_guest")
	x86EOIFromGuest  = linux("arch/x86/kvm/lapic.c", "apic_sync_pv_eoi_from_guest")
	x86FaultPresent  = linux("arch/x86/kvm/x86.c", "kvm_arch_async_page_present")
	x86FaultQueue    = linux("arch/x86/kvm/x86.c", "kvm_arch_can_dequeue_async_page_present")
	x86FaultDeliver  = linux("arch/x86/kvm/x86.c", "kvm_can_deliver_async_pf")
	x86FaultRegister = linux("arch/x86/kvm/x86.c", "kvm_pv_enable_async_pf")
	x86FaultVector   = linux("arch/x86/kvm/x86.c", "kvm_pv_enable_async_pf_int")
	x86FaultMissing  = linux("arch/x86/kvm/x86.c", "kvm_arch_async_page_not_present")
)

func x86RegisterRules() []Rule {
	const fault = 13
	return []Rule{
		x86Rule("register/reset-values",
			"Every readable register of the range reads on a CPU that was just made as its reset value.",
			x86Reset, x86APICReset, x86Create.noting("sets POLL_CONTROL, a while after the reset"), docMSR),
		x86Rule("register/reads-back",
			"Every readable register reads back what was last written to it, on the CPU that wrote; of those that are each CPU's own, another CPU reads its own.",
			x86SetMSR, x86GetMSR, docMSR),
		x86Rule("register/reserved-bits",
			"A write to a register with any one of its reserved bits set raises a general protection fault, and the register keeps its value.",
			x86SetMSR, x86EOIRegister.noting("by the alignment of the address"), x86FaultRegister, x86FaultVector, docMSR).
			wants("exception", fault, "vector"),
		x86Rule("register/undefined",
			"A read or write of a number from first-register to last-register that no register has, or that of one that KVM leaves to its VMM, raises a general protection fault.",
			x86SetMSR, x86GetMSR, x86UnknownMSR, docMSR.noting("keeps the range for KVM")).
			wants("exception", fault, "vector"),
		x86Rule("register/gated-enforced",
			"A read or write of a register whose feature is hidden raises a general protection fault while the VMM enforces the features.",
			x86Gate, x86SetMSR, x86GetMSR, x86UnknownMSR, docEnforce).on("5.10").
			wants("exception", fault, "vector"),
		x86Rule("register/gated-offered",
			"A register whose feature is offered, and no other, can be read and written while the VMM enforces the features.",
			x86Gate, x86SetMSR, docEnforce).on("5.10").
			wants("exceptions", 0, ""),
		x86Rule("register/gated-free",
			"A register whose feature is hidden works all the same while the VMM does not enforce the features.",
			x86Gate.noting("everything is allowed without enforcement"), docEnforce).
			wants("exceptions", 0, ""),
		x86Rule("register/control-bits-gated",
			"A write to ASYNC_PF_EN with a control bit whose feature is hidden raises a general protection fault while the VMM enforces the features.",
			x86FaultRegister, x86Gate, docMSR).on("5.10", "ASYNC_PF").
			wants("exception", fault, "vector"),
		x86Rule("register/needs-apic",
			"Without a local APIC in the kernel ASYNC_PF_EN takes no value but 0, and ASYNC_PF_INT none: other writes raise a general protection fault.",
			x86FaultRegister, x86FaultVector).on("5.9", "ASYNC_PF", "ASYNC_PF_INT").
			wants("exception", fault, "vector"),
		x86Rule("register/after-init",
			"An INIT gives every register its reset value, but for WALL_CLOCK, which is not a CPU's, and POLL_CONTROL.",
			x86Reset, x86APICReset, docMSR.noting("says nothing of INIT")),
	}
}

// x86AreaRules are those that every area that a guest registers has its own of.
func x86AreaRules() []Rule {
	const fault = 13
	var rules []Rule
	for _, a := range []struct {
		topic, register, feature, since string
		refused                         bool
		sources                         []Source
	}{
		{"steal", "STEAL_TIME", "STEAL_TIME", "3.1", false, []Source{x86Steal, x86SetMSR}},
		{"clock", "SYSTEM_TIME and SYSTEM_TIME_NEW", "CLOCKSOURCE2", "2.6.35", false, []Source{x86SystemTime, x86ClockArea}},
		{"eoi", "PV_EOI_EN", "PV_EOI", "3.6", true, []Source{x86EOIRegister, x86EOIToGuest}},
		{"async-pf", "ASYNC_PF_EN", "ASYNC_PF_INT", "5.9", true, []Source{x86FaultRegister, x86FaultMissing}},
	} {
		rule := func(statement, text string, more ...Source) Rule {
			return x86Rule(a.topic+"/"+statement, text, append(a.sources[:len(a.sources):len(a.sources)], more...)...).on(a.since, a.feature)
		}
		if a.topic != "steal" {
			rules = append(rules,
				rule("area-written", "The hypervisor writes the area that "+a.register+" enables, all fields that are its to write, and neither the rest of the area nor what is around it.", docMSR).
					wants("changed", 0, "other bytes"),
				rule("area-disabled", "After a write to "+a.register+" with the enable bit clear the hypervisor writes the area no more.", docMSR).
					wants("changed", 0, "bytes"))
		}
		rules = append(rules, rule("area-moved", "After "+a.register+" was given another address the hypervisor writes there, and no more at the old one.").
			wants("written", 1, "").wants("changed", 0, "bytes at the old address"))
		if a.refused {
			rules = append(rules, rule("area-outside-memory", "An address outside of memory, enabled, is refused with a general protection fault, and the register keeps its value.",
				docMSR.noting("does not say so")).wants("exception", fault, "vector"))
		} else {
			rules = append(rules, rule("area-outside-memory", "An address outside of memory is accepted, nothing comes of it, and a good one that follows works.",
				docMSR.noting("does not say so")).wants("exceptions", 0, "").wants("written", 1, ""))
		}
		reset := x86Reset
		switch a.topic {
		case "clock":
			reset = x86ClockOff
		case "eoi":
			reset = x86APICReset
		}
		rules = append(rules, rule("area-after-init", "After an INIT of the CPU the hypervisor writes the area no more.", reset).
			wants("changed", 0, "bytes"))
	}
	return rules
}

func x86ClockRules() []Rule {
	clock := func(name, text string, sources ...Source) Rule {
		return x86Rule("clock/"+name, text, sources...).on("2.6.35", "CLOCKSOURCE2")
	}
	return []Rule{
		clock("version-even", "Version of a clock's area is even, and another than before, after each update.",
			x86ClockArea, docMSR).
			wants("parity", 0, "version modulo 2").wants("changes", 1, ""),
		clock("version-protocol",
			"A reader that finds version even and the same before and after reading tsc_timestamp has not read a value in the middle of an update, and none that changed without version.",
			x86ClockArea, x86ReadClock, docMSR).
			wants("torn", 0, "samples"),
		clock("order-across-cpus",
			"While TSC_STABLE is set and CLOCKSOURCE_STABLE_BIT offered, a time that one CPU has read is not after one that another reads later.",
			x86TimeUpdate, x86GuestOrder.noting("keeps the latest time itself where the bit is clear"), docCPUID, docMSR).
			on("2.6.35", "CLOCKSOURCE2", "CLOCKSOURCE_STABLE_BIT").
			wants("decreases", 0, "readings"),
		clock("wall-clock",
			"The time of day of WALL_CLOCK and WALL_CLOCK_NEW, plus system time, is the host's time of day, but for what the host's clock was slewed since the update.",
			x86WallClock, x86ReadClock, linux("include/linux/timex.h", "MAXFREQ").noting("how much a clock is slewed at most"), docMSR).
			wants("slewed", 500, "millionths of the time since the update").wants("rounded", 2, "nanoseconds").
			wants("second", 1_000_000_000, "nanoseconds").wants("parity", 0, "version modulo 2"),
		clock("wall-clock-once",
			"The area of the wall clock is written once for each write to the register, 12 bytes, whichever CPU writes; a write of 0 writes nothing.",
			x86WallClock, docMSR).
			wants("changed", 0, "bytes"),
		clock("guest-stopped",
			"GUEST_STOPPED is set once the VMM has told that the guest was stopped, stays set through other updates until the guest clears it, and then stays clear.",
			x86Paused, x86ClockArea, docMSR).on("3.4", "CLOCKSOURCE2").
			wants("set", 1, "").wants("cleared", 0, ""),
	}
}

func x86EOIRules() []Rule {
	eoi := func(name, text string, sources ...Source) Rule {
		return x86Rule("eoi/"+name, text, sources...).on("3.6", "PV_EOI")
	}
	return []Rule{
		eoi("set-in-service",
			"While one interrupt is in service and no other requested, ENABLED is set in the CPU's word.",
			x86EOIToGuest.noting("where the APIC is virtualised by the processor it never is"), docMSR.noting("may be set, so that a guest has to look")).
			wants("set", 1, ""),
		eoi("clearing-ends",
			"Clearing ENABLED while it is set ends the interrupt, as its end at the APIC would.",
			x86EOIFromGuest, docMSR).
			wants("in-service", 0, "interrupts"),
		eoi("clear-with-another",
			"While one interrupt is in service and another requested, ENABLED is clear, and a guest that writes the word as clear ends nothing.",
			x86EOIToGuest, docMSR).
			wants("set", 0, "").wants("in-service", 1, "interrupts"),
		eoi("register-ends",
			"The end of an interrupt at the APIC ends it also while ENABLED is set, and clears that.",
			x86EOIFromGuest, docMSR.noting("says that the guest has to tell the APIC if the bit was clear")).
			wants("set", 0, "").wants("in-service", 0, "interrupts"),
	}
}

func x86FaultRules() []Rule {
	fault := func(name, text string, sources ...Source) Rule {
		return x86Rule("async-pf/"+name, text, sources...).on("5.9", "ASYNC_PF", "ASYNC_PF_INT")
	}
	return []Rule{
		fault("wakes-all-when-enabled",
			"A write to ASYNC_PF_EN that enables puts the token that stands for all pages into the area and raises the interrupt of ASYNC_PF_INT.",
			linux("virt/kvm/async_pf.c", "kvm_async_pf_wakeup_all"), x86FaultRegister, docMSR.noting("knows the token, not when it comes")).
			wants("token", 0xffffffff, "").wants("interrupts", 1, "1 for once or more"),
		fault("not-present",
			"A load from a page that the host has to fetch first, with interrupts on, raises a page fault with error code 0, a token that is not 0 in CR2, and PAGE_NOT_PRESENT in flags.",
			x86FaultMissing, docMSR).
			wants("exception", 14, "vector").wants("code", 0, "error code").wants("flags", 1, "PAGE_NOT_PRESENT and nothing else"),
		fault("ready",
			"Once the page is there, its token is in the area, the interrupt of ASYNC_PF_INT is raised, and the load works.",
			x86FaultPresent, docMSR).
			wants("interrupts", 1, "1 for once or more"),
		fault("next-after-ack",
			"A second page that is there is told of when the guest has cleared token and written ASYNC_PF_ACK, not before.",
			x86FaultQueue, x86SetMSR, docMSR).
			wants("early", 0, "tokens").wants("late", 1, "tokens"),
		fault("held-while-apic-off",
			"A page that is there is told of once the CPU's local APIC is enabled by software, not before.",
			x86FaultQueue, linux("arch/x86/kvm/lapic.c", "apic_set_spiv").noting("looks again"), docMSR.noting("says nothing of it")).on("5.13", "ASYNC_PF", "ASYNC_PF_INT").
			wants("early", 0, "tokens").wants("late", 1, "tokens"),
		fault("user-only",
			"Without SEND_ALWAYS a load at CPL 0 from such a page raises no exception: it takes until the page is there.",
			x86FaultDeliver, docMSR).
			wants("exceptions", 0, ""),
		fault("interrupts-off",
			"With interrupts off a load from such a page raises no exception.",
			linux("arch/x86/kvm/x86.c", "kvm_can_do_async_pf"), docMSR.noting("says nothing of it")).
			wants("exceptions", 0, ""),
	}
}

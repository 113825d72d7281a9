package abi

// xenSource cites the Xen tree that the tables were checked against, and xenPublic a
// header of its interface.
func xenSource(path, symbol string) Source {
	return Source{Tree: "Xen 4.20.4", Path: path, Symbol: symbol}
}

func xenPublic(file, symbol string) Source { return xenSource("xen/include/public/"+file, symbol) }

// Where the rules of x86-xen come from, each named once.
var (
	xenCPUID           = xenSource("xen/arch/x86/traps.c", "cpuid_hypervisor_leaves")
	xenForced          = xenSource("xen/arch/x86/pv/emul-inv-op.c", "emulate_forced_invalid_op")
	xenEntry           = xenSource("xen/arch/x86/x86_64/entry.S", "lstar_enter")
	xenHypercall       = xenSource("xen/arch/x86/pv/hypercall.c", "_pv_hypercall")
	xenTable           = xenSource("xen/include/hypercall-defs.c", "table")
	xenVersion         = xenSource("xen/common/kernel.c", "do_xen_version")
	xenAssist          = xenSource("xen/common/domain.c", "do_vm_assist")
	xenSchedOp         = xenSource("xen/common/sched/core.c", "do_sched_op")
	xenYield           = xenSource("xen/common/sched/core.c", "vcpu_yield")
	xenBlock           = xenSource("xen/common/sched/core.c", "vcpu_block")
	xenPoll            = xenSource("xen/common/sched/core.c", "do_poll")
	xenUnblock         = xenSource("xen/common/sched/core.c", "vcpu_unblock")
	xenRunstateChange  = xenSource("xen/common/sched/core.c", "vcpu_runstate_change")
	xenRunstateGet     = xenSource("xen/common/sched/core.c", "vcpu_runstate_get")
	xenEventOp         = xenSource("xen/common/event_channel.c", "do_event_channel_op")
	xenSend            = xenSource("xen/common/event_channel.c", "evtchn_send")
	xenStatus          = xenSource("xen/common/event_channel.c", "evtchn_status")
	xenClose           = xenSource("xen/common/event_channel.c", "evtchn_close")
	xenFree            = xenSource("xen/common/event_channel.c", "evtchn_free")
	xenAlloc           = xenSource("xen/common/event_channel.c", "evtchn_alloc_unbound")
	xenBindInterdomain = xenSource("xen/common/event_channel.c", "evtchn_bind_interdomain")
	xenBindIPI         = xenSource("xen/common/event_channel.c", "evtchn_bind_ipi")
	xenBindVCPU        = xenSource("xen/common/event_channel.c", "evtchn_bind_vcpu")
	xenUnmask          = xenSource("xen/common/event_channel.c", "evtchn_unmask")
	xenReset           = xenSource("xen/common/event_channel.c", "evtchn_reset")
	xenPollers         = xenSource("xen/common/event_channel.c", "evtchn_check_pollers")
	xenPortPoll        = xenSource("xen/include/xen/event.h", "evtchn_port_poll")
	xenSetPending      = xenSource("xen/common/event_2l.c", "evtchn_2l_set_pending")
	xenVCPUOp          = xenSource("xen/common/domain.c", "common_vcpu_op")
	xenMapArea         = xenSource("xen/common/domain.c", "map_guest_area")
	xenArchVCPUOp      = xenSource("xen/arch/x86/domain.c", "do_vcpu_op")
	xenUpdateRunstate  = xenSource("xen/arch/x86/domain.c", "update_runstate_area")
	xenLateRunstate    = xenSource("xen/arch/x86/domain.c", "_update_runstate_area")
	xenToggle          = xenSource("xen/arch/x86/pv/domain.c", "_toggle_guest_pt")
	xenUpdateTime      = xenSource("xen/arch/x86/time.c", "update_secondary_system_time")
	xenSleep           = xenSource("xen/common/sched/core.c", "vcpu_sleep_nosync_locked")

	xenGuestPoll     = linux("drivers/xen/events/events_base.c", "xen_poll_irq_timeout")
	xenGuestKick     = linux("drivers/xen/events/events_base.c", "xen_send_IPI_one")
	xenGuestWait     = linux("arch/x86/xen/spinlock.c", "xen_qlock_wait")
	xenGuestLocks    = linux("arch/x86/xen/spinlock.c", "xen_init_spinlocks")
	xenGuestLockCPU  = linux("arch/x86/xen/spinlock.c", "xen_init_lock_cpu")
	xenGuestStolen   = linux("drivers/xen/time.c", "xen_vcpu_stolen")
	xenGuestSteal    = linux("drivers/xen/time.c", "xen_steal_clock")
	xenGuestRunstate = linux("drivers/xen/time.c", "xen_setup_runstate_info")
	xenGuestSnapshot = linux("drivers/xen/time.c", "xen_get_runstate_snapshot_cpu_delta")
	xenGuestAssist   = linux("drivers/xen/time.c", "xen_time_setup_guest")
)

// xenRules is what Xen and its paravirtualized guests owe each other, Xen first.
func xenRules() []Rule {
	var rules []Rule
	for _, r := range [][]Rule{
		xenDiscoveryRules(), xenNumberRules(), xenSchedRules(), xenKickRules(), xenPollRules(),
		xenEventRules(), xenVCPURules(), xenRunstateRules(), xenTimeRules(), xenPreemptedRules(), xenGuestRules(),
	} {
		rules = append(rules, r...)
	}
	return rules
}

// xenRule makes a rule that the hypervisor owes.
func xenRule(name, text string, sources ...Source) Rule {
	return Rule{ID: "x86-xen/" + name, Side: Hypervisor, Text: text, Sources: sources}
}

func xenDiscoveryRules() []Rule {
	return []Rule{
		xenRule("discovery/signature",
			"CPUID with the prefix gives Xen's signature at first-leaf, and in EAX a leaf that is at least least-leaves further.",
			xenForced, xenCPUID).
			wants("found", 1, "leaves"),
		xenRule("discovery/same-on-all-cpus",
			"Every CPU reads the same signature, version and number of leaves.",
			xenCPUID).
			wants("differences", 0, "CPUs that read something else"),
		xenRule("discovery/version",
			"The version in version-leaf is the one that the operation version gives, and its major number is the one listed.",
			xenCPUID, xenVersion),
		xenRule("discovery/hypercall-page",
			"The leaf at hypercall-leaf gives hypercall-pages and hypercall-register.",
			xenCPUID, linux("arch/x86/include/asm/xen/cpuid.h", "").noting("Linux 7.2 no longer uses the page")),
		xenRule("discovery/features",
			"The first word of features has those that every paravirtualized guest is offered.",
			xenVersion).
			wants("set", 1, ""),
		xenRule("discovery/features-absent-word",
			"A word of features that is not there is refused.",
			xenVersion),

		xenRule("privilege/user-refused",
			"In user mode the call instruction makes no hypercall, whatever the number: it is a system call of the guest's kernel.",
			xenEntry).
			wants("hypercalls", 0, ""),
		xenRule("privilege/user-has-no-effect",
			"The call instruction in user mode, with what makes a kick in the kernel, makes no port pending and wakes nobody.",
			xenEntry).
			wants("wakes", 0, ""),
	}
}

func xenNumberRules() []Rule {
	return []Rule{
		xenRule("number/undefined",
			"Every number from first-free-call to last-free-call gives -ENOSYS.",
			xenHypercall, xenTable),
		xenRule("number/extreme",
			"The numbers 2^31 and 2^32-1 give -ENOSYS.",
			xenHypercall),
		xenRule("number/undefined-operation",
			"Every operation of sched_op, event_channel_op and vcpu_op from first-free-operation to last-free-operation gives -ENOSYS.",
			xenSchedOp, xenEventOp, xenVCPUOp),
		xenRule("number/operation-high-half",
			"Only the low 32 bits of an operation count: 2^32 plus that of yield yields.",
			xenSchedOp.noting("takes the operation as an int")),
		xenRule("number/high-half",
			"2^32 plus the number of a hypercall gives -ENOSYS.",
			xenHypercall.noting("all 64 bits of RAX"), linux("arch/x86/include/asm/xen/hypercall.h", "xen_single_call").noting("never sets the high half")),
		xenRule("number/unreadable-argument",
			"An operation whose argument is the hypervisor's memory, or none, gives -EFAULT.",
			xenEventOp, xenSchedOp, xenVCPUOp),
		xenRule("convention/registers-preserved",
			"A hypercall changes no general register but the result, RCX, R11 and those of its arguments.",
			xenHypercall.noting("the arguments only in a build that is to find mistakes"), linux("arch/x86/include/asm/xen/hypercall.h", "__HYPERCALL_CLOBBER5")).
			wants("changed", 0, "registers"),
	}
}

func xenSchedRules() []Rule {
	return []Rule{
		xenRule("sched/yield",
			"A yield comes back with the result listed for it, whether another vCPU wants the CPU or not.",
			xenYield),
		xenRule("sched/block",
			"A block comes back, with the result listed for it, once there is an event to be delivered.",
			xenBlock, xenUnblock),
	}
}

func xenKickRules() []Rule {
	return []Rule{
		xenRule("kick/wakes-waiter",
			"A send to the port that a vCPU polls ends the poll.",
			xenSend, xenPollers, xenUnblock, xenGuestWait).
			wants("wakes", 1, "waits ended"),
		xenRule("kick/before-wait",
			"A send that comes before the poll is kept: the poll that follows ends at once.",
			xenPoll, xenPortPoll, xenSetPending).
			wants("latched", 1, "kicks kept"),
		xenRule("kick/two-kicks",
			"Two sends before two polls, of which the guest clears pending after each, end one poll: pending is a flag, not a count.",
			xenSetPending).
			wants("wakes", 1, "waits ended"),
		xenRule("kick/self",
			"A vCPU that sends to its own port ends its own next poll.",
			xenSend, xenSetPending).
			wants("latched", 1, "kicks kept"),
		xenRule("kick/running-target",
			"A send to a running vCPU's port does not disturb it and ends its next poll, once.",
			xenSetPending, xenPortPoll).
			wants("returns", 1, "spurious ends of a wait"),
		xenRule("kick/absent-target",
			"A send to a port that is closed, or that cannot be, gives the result listed for it and wakes nobody.",
			xenSend).
			wants("wakes", 0, ""),
		xenRule("kick/result",
			"A send gives the result listed for it, whatever the state of its target.",
			xenSend),
		xenRule("kick/masked-port",
			"A send to a masked port makes it pending like any other.",
			xenSetPending, xenGuestLockCPU.noting("the port of a lock is always masked")).
			wants("pending", 1, ""),
		xenRule("kick/port-of-virq",
			"A send to a port that an event of the hypervisor's own is bound to is refused.",
			xenSend),

		xenRule("wait/sleeps-without-kick",
			"A poll without a timeout whose port nobody makes pending, taken up again after each event, goes on.",
			xenPoll).
			wants("returns", 0, ""),
		xenRule("wait/ended-by-interrupt",
			"An event that is to be delivered ends a poll.",
			xenPoll, xenUnblock).
			wants("returns", 1, "waits ended"),
		xenRule("wait/interrupt-eats-kick",
			"A port that was pending when an event ended a poll stays pending.",
			xenPoll, xenSetPending.noting("nothing but the guest clears it")).
			wants("latched", 1, "kicks kept"),
	}
}

func xenPollRules() []Rule {
	return []Rule{
		xenRule("poll/keeps-pending",
			"A poll that a pending port ended leaves it pending: the next one ends at once, too.",
			xenPoll).
			wants("pending", 1, ""),
		xenRule("poll/several-ports",
			"A poll of several ports ends by any one of them, pending before it or made so during it.",
			xenPoll.noting("with several ports, every event of the domain that is sent wakes it"), xenPollers).
			wants("wakes", 1, "waits ended"),
		xenRule("poll/other-vcpu-port",
			"A poll ends by a port whose events go to another vCPU.",
			xenPollers).
			wants("wakes", 1, "waits ended"),
		xenRule("poll/limit",
			"A poll of poll-limit ports is accepted, one of a port more is refused before any of them is looked at.",
			xenPoll),
		xenRule("poll/closed-port",
			"A poll of a port that is closed is refused, as nothing could end it.",
			xenPortPoll, xenPoll),
		xenRule("poll/absent-port",
			"A poll of a port that cannot be is refused.",
			xenPortPoll),
		xenRule("poll/unbound-port",
			"A poll of an unbound port is accepted.",
			xenPortPoll),
		xenRule("poll/unreadable-ports",
			"A poll whose ports are the hypervisor's memory is refused.",
			xenPoll),
		xenRule("poll/timeout-past",
			"A poll with a timeout that is over comes back with the result listed for it.",
			xenPoll),
		xenRule("poll/timeout-near",
			"A poll with a timeout that is to come, taken up again after each event, comes back with the result listed for it, and not before: system time is absolute.",
			xenPoll, linux("arch/x86/kvm/xen.c", "kvm_xen_schedop_poll").noting("takes it for a delay")).
			wants("early", 0, "times that a poll that nothing else ended came back before its timeout"),
		xenRule("poll/timeout-alone",
			"A poll of no port at all sleeps until its timeout.",
			xenPoll),
	}
}

func xenEventRules() []Rule {
	return []Rule{
		xenRule("event/alloc-unbound",
			"A port from alloc_unbound is unbound, for the domain that was named, and not pending.",
			xenAlloc, xenStatus),
		xenRule("event/bind-interdomain",
			"A port that was bound to an unbound one is the other end of it, and each names the other.",
			xenBindInterdomain, xenStatus),
		xenRule("event/born-pending",
			"The new port of a pair begins as pending, the other one does not.",
			xenBindInterdomain).
			wants("pending", 1, "").wants("other", 0, ""),
		xenRule("event/bind-ipi",
			"A port from bind_ipi is an IPI's of the vCPU that was named, and not pending.",
			xenBindIPI, xenStatus),
		xenRule("event/bind-vcpu",
			"Bind_vcpu moves the events of an interdomain port to the vCPU that was named, and is refused for an IPI's.",
			xenBindVCPU, xenStatus),
		xenRule("event/close",
			"A port that was closed has status closed; the other end of it is unbound.",
			xenClose, xenStatus),
		xenRule("event/close-clears-pending",
			"A port that was pending when it was closed is not when it is next in use.",
			xenFree).
			wants("pending", 0, ""),
		xenRule("event/other-end",
			"A send to one end makes the other end pending, and not itself.",
			xenSend).
			wants("pending", 1, "").wants("own", 0, ""),
		xenRule("event/send-unbound",
			"A send to an unbound port gives the result listed for it and is lost.",
			xenSend).
			wants("pending", 0, ""),
		xenRule("event/unmask",
			"Unmask clears the mask of a port and leaves pending as it is.",
			xenUnmask).
			wants("masked", 0, "").wants("pending", 1, ""),
		xenRule("event/refused-ports",
			"Close, bind_vcpu, bind_interdomain, status and unmask give the results listed for a port that cannot be, or that is closed.",
			xenClose, xenBindVCPU, xenBindInterdomain, xenStatus, xenUnmask),
		xenRule("event/refused-vcpus",
			"Bind_ipi and bind_vcpu of a vCPU that is not there are refused.",
			xenBindIPI, xenBindVCPU),
		xenRule("event/refused-domains",
			"Alloc_unbound, bind_interdomain, status and reset of a domain that is not there are refused.",
			xenAlloc, xenBindInterdomain, xenStatus, xenReset),
		xenRule("event/reset",
			"Reset of the own domain closes all its ports.",
			xenReset).
			wants("open", 0, "ports"),
	}
}

func xenVCPURules() []Rule {
	return []Rule{
		xenRule("vcpu/is-up",
			"Is_up tells of each vCPU whether it is up, and refuses one that is not there.",
			xenVCPUOp, xenArchVCPUOp),
		xenRule("vcpu/absent",
			"Every operation for a vCPU that is not there gives the result listed for it, an undefined one included.",
			xenArchVCPUOp.noting("looks at the vCPU first")),
		xenRule("vcpu/info-again",
			"A vcpu_info that is registered already cannot be registered again.",
			xenVCPUOp, xenSource("xen/common/domain.c", "map_vcpu_info").noting("the name and the other error before 4.18")),
		xenRule("vcpu/info-crosses-page",
			"A vcpu_info that would cross a page is refused.",
			xenMapArea),
		xenRule("vcpu/info-not-aligned",
			"A vcpu_info that is not aligned to 8 bytes is refused.",
			xenMapArea),
		xenRule("vcpu/assist",
			"Vm_assist turns assist-update-flag on, again if it was on, and refuses what it cannot turn on, and a command that is not there, in this order.",
			xenAssist),
	}
}

func xenRunstateRules() []Rule {
	physical := func(name, text string, sources ...Source) Rule {
		return xenRule(name, text, sources...).on("", "runstate_phys_area")
	}
	return []Rule{
		xenRule("runstate/states",
			"Get_runstate_info tells the state of any vCPU of the domain: the caller's own is running.",
			xenRunstateGet, xenRunstateChange),
		xenRule("runstate/entry-time",
			"State_entry_time of a vCPU never decreases.",
			xenRunstateChange).
			wants("decreases", 0, "samples"),
		xenRule("runstate/sum",
			"The times of all states of a vCPU, added up, never decrease, and grow as system time does.",
			xenRunstateGet, xenPublic("vcpu.h", "struct vcpu_runstate_info")).
			wants("decreases", 0, "samples"),
		xenRule("runstate/own-state-grows",
			"Of a vCPU that stays blocked only the time of that state grows.",
			xenRunstateChange).
			wants("others", 0, "nanoseconds in other states"),
		xenRule("runstate/registered",
			"An area is written as soon as it is registered, also that of another vCPU.",
			xenVCPUOp),
		xenRule("runstate/updated",
			"A registered area is written when the vCPU gets a CPU again, and agrees then with get_runstate_info.",
			xenUpdateRunstate),
		xenRule("runstate/update-flag",
			"With assist-update-flag a reader that finds state_entry_time the same before and after, and UPDATE clear, has not read a runstate in the middle of an update; at rest UPDATE is clear.",
			xenUpdateRunstate, xenGuestSnapshot).
			wants("torn", 0, "samples").wants("set", 0, ""),
		xenRule("runstate/moved",
			"Where another area is registered for a vCPU, the one before is written no more.",
			xenVCPUOp.noting("one area for each vCPU")).
			wants("changed", 0, "bytes"),
		xenRule("runstate/released",
			"After address 0 was registered the area is written no more.",
			xenUpdateRunstate).
			wants("changed", 0, "bytes"),
		xenRule("runstate/around",
			"The hypervisor writes nothing around the area.",
			xenUpdateRunstate).
			wants("changed", 0, "bytes"),
		xenRule("runstate/bad-address",
			"An area that is the hypervisor's memory is refused; one where there is no memory is accepted, and nothing is written.",
			xenVCPUOp.noting("looks at the range only")),
		physical("runstate/physical",
			"An area that is registered by physical address is written, and the one at a linear address no more, until it is taken back.",
			xenMapArea, xenVCPUOp).
			wants("changed", 0, "bytes"),
		physical("runstate/physical-refused",
			"An area by physical address that would cross a page, or is not aligned to 8 bytes, is refused.",
			xenMapArea),
		xenRule("runstate/physical-not-offered",
			"Where runstate_phys_area and vcpu_time_phys_area are not offered, the operations give -ENOSYS.",
			xenVCPUOp),
	}
}

func xenTimeRules() []Rule {
	return []Rule{
		xenRule("time/registered",
			"A time area is written as soon as it is registered: version even, a factor that is not zero, and a system time that has begun.",
			xenArchVCPUOp, xenUpdateTime).
			wants("parity", 0, "version modulo 2"),
		xenRule("time/agrees",
			"System time reckoned from the area lies between the system times of two looks at a runstate around it.",
			xenUpdateTime, xenSource("xen/arch/x86/time.c", "collect_time_info")).
			wants("outside", 0, "samples"),
		xenRule("time/released",
			"After address 0 was registered the area is written no more.",
			xenUpdateTime).
			wants("changed", 0, "bytes"),
		xenRule("time/bad-address",
			"A time area that is the hypervisor's memory is refused.",
			xenArchVCPUOp),
		xenRule("time/physical",
			"A time area that is registered by physical address is written, until it is taken back.",
			xenMapArea, xenArchVCPUOp).on("", "vcpu_time_phys_area").
			wants("parity", 0, "version modulo 2"),
		xenRule("time/physical-refused",
			"A time area by physical address that would cross a page, or is not aligned to 8 bytes, is refused.",
			xenMapArea).on("", "vcpu_time_phys_area"),
	}
}

func xenPreemptedRules() []Rule {
	state := func(name, text, state string, preempted int64, sources ...Source) Rule {
		return xenRule(name, text+" Its state is "+state+".", append(sources, xenGuestStolen)...).
			wants("preempted", preempted, "1 where the state is runnable")
	}
	return []Rule{
		xenRule("steal/monotonic",
			"Times of the states runnable and offline, added up, never decrease.",
			xenRunstateChange, xenGuestSteal).
			wants("decreases", 0, "samples"),
		xenRule("steal/counts",
			"What a vCPU that wants to run waits for a CPU is added to its time of state runnable.",
			xenRunstateChange).
			wants("grows", 1, ""),
		state("preempted/running", "A running vCPU sees itself as not preempted.", "running", 0, xenRunstateChange),
		state("preempted/descheduled", "A vCPU that wants to run and has no CPU is preempted.", "runnable", 1, xenRunstateChange),
		state("preempted/waiting", "A vCPU that waits for an event is not preempted.", "blocked", 0, xenRunstateChange),
		state("preempted/offline", "A vCPU that is down is not preempted.", "offline", 0, xenRunstateChange, xenSleep),
		xenRule("preempted/area-kernel-mode",
			"A vCPU that was preempted in the guest's kernel is seen as preempted in the kernel's own area.",
			xenLateRunstate, xenGuestStolen).
			wants("preempted", 1, ""),
		xenRule("preempted/area-user-mode",
			"A vCPU that was preempted in user mode is seen as preempted in the kernel's own area.",
			xenLateRunstate.noting("does not keep it: the kernel's memory is not mapped in user mode, and so the area is written when the vCPU next comes to the kernel, running"),
			xenToggle, xenGuestStolen.noting("does not know of it")).
			wants("preempted", 1, ""),
	}
}

func xenGuestRules() []Rule {
	guest := func(name, text string, sources ...Source) Rule {
		r := xenRule("guest/"+name, text, sources...)
		r.Side = Guest
		return r
	}
	bind := linux("drivers/xen/events/events_base.c", "bind_ipi_to_irqhandler")
	return []Rule{
		guest("locks-enabled",
			"A guest with several vCPUs says that its spinlocks are paravirtualized, and its lock operations are the queued ones with Xen's wait and kick.",
			xenGuestLocks).
			wants("said", 1, "").wants("operations", 1, ""),
		guest("locks-disabled",
			"With nopvspin, or with one vCPU, a guest says that its spinlocks are not paravirtualized, and its lock operations are the native ones.",
			xenGuestLocks).
			wants("said", 1, "").wants("operations", 1, ""),
		guest("kicker-port",
			"Each vCPU has a port of its own for the kick, an IPI's.",
			xenGuestLockCPU, bind).
			wants("ports", 1, "for each vCPU"),
		guest("kicker-not-delivered",
			"The kick's interrupt is masked and never taken.",
			xenGuestLockCPU.noting("its handler is a bug")).
			wants("taken", 0, "interrupts"),
		guest("preempted-from-runstate",
			"The guest takes a vCPU for preempted where the state in that vCPU's area is runnable.",
			xenGuestStolen, xenGuestLocks),
		guest("runstate-registered",
			"Each vCPU has its runstate area registered.",
			xenGuestRunstate).
			wants("areas", 1, "for each vCPU"),
		guest("update-flag",
			"The guest turns assist-update-flag on, and does without the steal of run queues where that is refused.",
			xenGuestAssist),
		guest("steal-accounted",
			"What a vCPU waits for a CPU shows as steal in the guest's statistics.",
			xenGuestSteal, xenGuestAssist).
			wants("grows", 1, ""),
		guest("waits-by-poll",
			"A CPU that waits for a contended lock polls the port of its kick, and no other, without a timeout.",
			xenGuestWait, xenGuestPoll).
			wants("polls", 1, "1 for once or more"),
		guest("kicks-poller",
			"A CPU that gives up a contended lock kicks a CPU that polls.",
			linux("arch/x86/xen/spinlock.c", "xen_qlock_kick"), xenGuestKick).
			wants("kicks", 1, "1 for once or more"),
	}
}

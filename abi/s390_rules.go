package abi

// Where the rules of s390 come from, each named once.
var (
	principles = Source{
		Tree: "z/Architecture Principles of Operation", Path: "Control", Symbol: "CPU Signaling and Response",
		Note: "as Linux and QEMU, which the table was checked against, both read it",
	}
	docDiag = linux("Documentation/virt/kvm/s390/s390-diag.rst", "")

	s390Diag           = linux("arch/s390/kvm/diag.c", "kvm_s390_handle_diag")
	s390YieldTo        = linux("arch/s390/kvm/diag.c", "__diag_time_slice_end_directed")
	s390Pfault         = linux("arch/s390/kvm/diag.c", "__diag_page_ref_service")
	s390Virtio         = linux("arch/s390/kvm/diag.c", "__diag_virtio_hypercall")
	s390Sigp           = linux("arch/s390/kvm/sigp.c", "kvm_s390_handle_sigp")
	s390SigpDst        = linux("arch/s390/kvm/sigp.c", "handle_sigp_dst")
	s390Sense          = linux("arch/s390/kvm/sigp.c", "__sigp_sense")
	s390SenseRunning   = linux("arch/s390/kvm/sigp.c", "__sigp_sense_running")
	s390CondEmergency  = linux("arch/s390/kvm/sigp.c", "__sigp_conditional_emergency")
	s390Emergency      = linux("arch/s390/kvm/sigp.c", "__inject_sigp_emergency")
	s390InjectCall     = linux("arch/s390/kvm/sigp.c", "__sigp_external_call")
	s390Interrupts     = linux("arch/s390/kvm/interrupt.c", "kvm_s390_deliver_pending_interrupts")
	s390HasInterrupt   = linux("arch/s390/kvm/interrupt.c", "kvm_s390_vcpu_has_irq")
	s390Running        = linux("arch/s390/kvm/kvm-s390.c", "kvm_arch_vcpu_load")
	s390Detect         = linux("arch/s390/boot/startup.c", "detect_machine_type")
	s390Probe          = linux("arch/s390/boot/startup.c", "detect_diag9c")
	s390GuestPreempted = linux("arch/s390/kernel/smp.c", "arch_vcpu_is_preempted")
	s390GuestYield     = linux("arch/s390/kernel/smp.c", "smp_yield_cpu")
	s390GuestCall      = linux("arch/s390/kernel/smp.c", "pcpu_ec_call")
	s390LockWait       = linux("arch/s390/lib/spinlock.c", "arch_spin_lock_wait")
	s390LockClassic    = linux("arch/s390/lib/spinlock.c", "arch_spin_lock_classic")

	qemuDiag          = qemu("target/s390x/tcg/misc_helper.c", "HELPER(diag)")
	qemuTranslateDiag = qemu("target/s390x/tcg/translate.c", "op_diag")
	qemuSTSI          = qemu("target/s390x/tcg/misc_helper.c", "HELPER(stsi)")
	qemuHypercall     = qemu("hw/s390x/s390-hypercall.c", "handle_diag_500")
	qemuSigp          = qemu("target/s390x/sigp.c", "handle_sigp")
	qemuSigpDst       = qemu("target/s390x/sigp.c", "handle_sigp_single_dst")
	qemuSense         = qemu("target/s390x/sigp.c", "sigp_sense")
	qemuSenseRunning  = qemu("target/s390x/sigp.c", "sigp_sense_running")
	qemuCondEmergency = qemu("target/s390x/sigp.c", "sigp_cond_emergency")
	qemuInjectCall    = qemu("target/s390x/interrupt.c", "cpu_inject_external_call")
	qemuEmergency     = qemu("target/s390x/interrupt.c", "cpu_inject_emergency_signal")
	qemuInterrupt     = qemu("target/s390x/tcg/excp_helper.c", "do_ext_interrupt")
	qemuInsn          = qemu("target/s390x/tcg/insn-data.h.inc", "")
)

// Program interruption codes.
const (
	s390Privileged    = 2
	s390Specification = 6
)

// s390Rules is what the machine and its Linux guests owe each other, the machine
// first.
func s390Rules() []Rule {
	var rules []Rule
	for _, r := range [][]Rule{
		s390DiscoveryRules(), s390DiagRules(), s390YieldRules(),
		s390SigpRules(), s390SenseRules(), s390CallRules(), s390WaitRules(),
		s390GuestRules(),
	} {
		rules = append(rules, r...)
	}
	return rules
}

// s390Rule makes a rule that the hypervisor owes.
func s390Rule(name, text string, sources ...Source) Rule {
	return Rule{ID: "s390/" + name, Side: Hypervisor, Text: text, Sources: sources}
}

func s390DiscoveryRules() []Rule {
	return []Rule{
		s390Rule("discovery/level",
			"STORE SYSTEM INFORMATION with function code 0 gives stsi-level-vm in a virtual machine.",
			s390Detect, qemuSTSI),
		s390Rule("discovery/control-program",
			"In a virtual machine of KVM or QEMU the answer that names the hypervisor has a count that is not zero, and at stsi-program-at the name program-kvm.",
			s390Detect, qemuSTSI).
			wants("found", 1, "names"),
		s390Rule("discovery/probe-ends",
			"YIELD_TO with the CPU's own address either does nothing or ends in a specification exception, every time alike.",
			s390Probe, s390YieldTo, qemuDiag).
			wants("exception", s390Specification, "program interruption code"),
	}
}

func s390DiagRules() []Rule {
	return []Rule{
		s390Rule("privilege/user-refused",
			"DIAGNOSE from problem state, with any code, and SIGNAL PROCESSOR, with any order, end in a privileged-operation exception.",
			principles, s390Diag, s390Sigp, qemuInsn.noting("DIAG and SIGP are for supervisor state only")).
			wants("exception", s390Privileged, "program interruption code"),

		s390Rule("diag/undefined-code",
			"Every code from first-free-code to last-free-code ends in a specification exception.",
			docDiag.noting("for 0x500 alone says what happens"), s390Diag.noting("leaves what it does not know to the VMM, which owes the exception"), qemuDiag).
			wants("exception", s390Specification, "program interruption code"),
		s390Rule("diag/code-from-address",
			"The code is base plus displacement: TIME_SLICE_END with the code wholly or in part in the base register is the same.",
			docDiag, s390Diag, qemu("target/s390x/kvm/kvm.c", "handle_diag"),
			qemuTranslateDiag.noting("does not keep it under TCG: the field B2 becomes a part of the code, and the register's content is not looked at")).
			wants("exceptions", 0, ""),
		s390Rule("diag/code-high-bits",
			"Bits of the address above the low 16 are ignored.",
			docDiag, s390Diag, qemuTranslateDiag.noting("does not keep it under TCG, as for diag/code-from-address")).
			wants("exceptions", 0, ""),
		s390Rule("diag/time-slice-end",
			"TIME_SLICE_END ends without an exception.",
			linux("arch/s390/kvm/diag.c", "__diag_time_slice_end"), qemuDiag).
			wants("exceptions", 0, ""),
		s390Rule("diag/registers-preserved",
			"TIME_SLICE_END and YIELD_TO change no general register and not the condition code.",
			s390YieldTo, s390GuestYield.noting("its assembler declares no change")).
			wants("changed", 0, "registers"),

		s390Rule("virtio/unknown-subcode",
			"A subcode of DIAGNOSE 0x500 that is not there ends in a specification exception.",
			docDiag, qemuHypercall, s390Virtio.noting("leaves all subcodes but VIRTIO_CCW_NOTIFY to the VMM")).
			wants("exception", s390Specification, "program interruption code"),
		s390Rule("virtio/subcode-width",
			"All 64 bits of r1 are the subcode: 2^32 plus one that is there ends in a specification exception.",
			qemuHypercall, s390Virtio).
			wants("exception", s390Specification, "program interruption code"),
		s390Rule("virtio/absent-subchannel",
			"VIRTIO_CCW_NOTIFY for a subchannel that is not there gives a negative result.",
			docDiag, qemuHypercall).
			wants("sign", -1, "sign of the result"),
		s390Rule("virtio/registers-preserved",
			"A call of DIAGNOSE 0x500 changes no general register but r2.",
			linux("arch/s390/include/asm/kvm_para.h", "GENERATE_KVM_HYPERCALL_FUNC").noting("its assembler declares no other change"), qemuHypercall).
			wants("changed", 0, "registers"),
		s390Rule("virtio/storage-limit",
			"STORAGE_LIMIT gives an address that is not below the last byte of memory.",
			docDiag, qemuHypercall).on("", "STORAGE_LIMIT").
			wants("below", 0, "bytes of memory beyond it"),

		s390Rule("pfault/unaligned",
			"PAGE_REFERENCE with a block that is not aligned to 8 bytes ends in a specification exception.",
			s390Pfault).on("", "PFAULT").
			wants("exception", s390Specification, "program interruption code"),
		s390Rule("pfault/version",
			"PAGE_REFERENCE with a version that is not 2, a length below 5, or another code in the block ends in a specification exception.",
			s390Pfault).on("", "PFAULT").
			wants("exception", s390Specification, "program interruption code"),
		s390Rule("pfault/established",
			"PAGE_REFERENCE to establish a token where there is one gives the result listed for it, and changes nothing.",
			s390Pfault).on("", "PFAULT"),
		s390Rule("pfault/nothing-to-cancel",
			"PAGE_REFERENCE to cancel where there is no token gives the result listed for it.",
			s390Pfault).on("", "PFAULT"),
	}
}

func s390YieldRules() []Rule {
	yield := func(name, text string, sources ...Source) Rule {
		return s390Rule("yield/"+name, text, append([]Source{s390YieldTo}, sources...)...).on("", "DIAG9C")
	}
	return []Rule{
		yield("self", "A yield to the calling CPU itself does nothing and ends without an exception.", s390Probe),
		yield("running-target", "A yield to a running CPU ends without an exception.", s390GuestYield),
		yield("waiting-target", "A yield to a waiting CPU ends without an exception.", s390GuestYield),
		yield("stopped-target", "A yield to a stopped CPU ends without an exception."),
		yield("absent-target", "A yield to an address that no CPU has does nothing and ends without an exception."),
		yield("does-not-wake", "A yield to a waiting CPU does not end its wait.").
			wants("wakes", 0, ""),
		yield("register-field", "The address is in the register that the field R1 names, whichever that is.",
			docDiag.noting("says general register 1, which is another one"), s390GuestYield),
		yield("counted", "KVM's counter instruction_diagnose_9c of a CPU rises by one with each yield, whatever its target.").
			wants("increment", 1, "for each call"),
		yield("ignored-counted", "KVM's counter diag_9c_ignored rises by one with each yield to the caller itself, and to an address that no CPU has.").
			wants("increment", 1, "for each call"),
	}
}

func s390SigpRules() []Rule {
	sigp := func(name, text string, sources ...Source) Rule {
		return s390Rule("sigp/"+name, text, append([]Source{principles}, sources...)...)
	}
	return []Rule{
		sigp("absent-cpu", "An order for an address that no CPU has gives the result listed for it, whatever the order.", s390SigpDst, qemuSigpDst),
		sigp("invalid-order", "Every order from first-free-order to last-free-order gives INVALID_ORDER, for a CPU that exists.", s390SigpDst.noting("leaves it to the VMM, which owes the status"), qemuSigpDst),
		sigp("order-byte", "Only the low 8 bits of the second-operand address are the order.", s390Sigp, qemu("target/s390x/tcg/misc_helper.c", "HELPER(sigp)")).
			wants("differences", 0, "orders"),
		sigp("order-from-address", "The order is base plus displacement, in any division between them.", s390Sigp, qemu("target/s390x/tcg/translate.c", "op_sigp")).
			wants("differences", 0, "orders"),
		sigp("address-width", "Only the low 16 bits of operand R3 are the CPU address.", s390Sigp, qemu("target/s390x/sigp.c", "s390_cpu_addr2state")).
			wants("differences", 0, "addresses"),
		sigp("status-only-with-code-1", "Operand R1 is unchanged unless the condition code is 1.",
			s390Sigp, qemuCondEmergency.noting("does not keep it for a stopped CPU whose PSW address is 0: stores a status and gives condition code 0")).
			wants("changed", 0, "registers"),
		sigp("status-high-half", "With condition code 1 bits 0 to 31 of operand R1 are unchanged.", s390Sense, qemu("target/s390x/sigp.c", "set_sigp_status")).
			wants("changed", 0, "registers"),
		sigp("registers-preserved", "An order changes no general register but operand R1.", s390Sigp, qemuSigp).
			wants("changed", 0, "registers"),
		sigp("parameter-register", "The parameter is in operand R1 if that is odd, else in the register after it.", s390Sigp, qemuSigp).
			wants("differences", 0, "orders"),

		sigp("emergency-signal", "EMERGENCY_SIGNAL gives the result listed for it, for a CPU in any state, and also while one is pending. Each interrupts its target once; one that comes while one of the same CPU is pending adds nothing.", s390Emergency, qemuEmergency).
			wants("interruptions", 1, ""),
		sigp("emergency-signal-from-each", "Emergency signals from two CPUs are two interruptions, with the external interruption code 0x1201, and say from whom they are.", s390Interrupts, qemuInterrupt).
			wants("interruptions", 2, "").wants("code", 0x1201, "external interruption code"),
		sigp("conditional-emergency", "COND_EMERGENCY_SIGNAL to a CPU that is not stopped is an emergency signal, and gives the result listed for it.", s390CondEmergency, qemuCondEmergency).
			wants("interruptions", 1, ""),
		sigp("conditional-emergency-stopped", "COND_EMERGENCY_SIGNAL to a stopped CPU that is enabled for external and I/O interruptions, in an address space other than the one named, gives INCORRECT_STATE, and no interruption is made pending.",
			s390CondEmergency.noting("does not keep it: asks whether the calling CPU is stopped, so that it always signals"),
			qemuCondEmergency.noting("does not keep it: makes nothing pending and stores the status, but overwrites the condition code with 0")).
			wants("interruptions", 0, ""),
	}
}

func s390SenseRules() []Rule {
	sense := func(name, text string, sources ...Source) Rule {
		return s390Rule(name, text, append([]Source{principles}, sources...)...)
	}
	running := func(name, text string, sources ...Source) Rule {
		return sense(name, text, append([]Source{s390SenseRunning}, sources...)...).on("", "SENSE_RUNNING")
	}
	return []Rule{
		sense("sigp/sense-of-running", "SENSE of a CPU that runs gives the result listed for it.", s390Sense, qemuSense),
		sense("sigp/sense-of-waiting", "SENSE of a CPU that waits gives the result listed for it: it is not stopped.", s390Sense, qemuSense),
		sense("sigp/sense-of-stopped", "SENSE of a stopped CPU gives the result listed for it.", s390Sense, qemuSense),
		sense("sigp/sense-external-call-pending", "SENSE of a CPU at which an external call is pending gives the result listed for it.", s390Sense, qemuSense),
		running("sigp/sense-running-of-self", "SENSE_RUNNING of the calling CPU itself gives the result listed for it.", qemuSenseRunning),
		running("sigp/sense-running-of-stopped", "SENSE_RUNNING of a stopped CPU gives the result listed for it.", s390Running, qemuSenseRunning),
		sense("sigp/sense-running-without-facility", "Without the facility SENSE_RUNNING the order gives the result listed for that, for every CPU.",
			s390SenseRunning, qemuSenseRunning, s390GuestPreempted.noting("takes that for preempted")),

		running("preempted/running", "SENSE_RUNNING of a CPU that runs does not give NOT_RUNNING.", s390Running, qemuSenseRunning).
			wants("preempted", 0, ""),
		running("preempted/descheduled", "SENSE_RUNNING of a CPU that the host has taken its CPU from gives NOT_RUNNING.",
			s390Running.noting("its counterpart kvm_arch_vcpu_put clears what the order looks at"),
			qemuSenseRunning.noting("does not keep it: knows only whether the CPU waits or is stopped")).
			wants("preempted", 1, ""),
		running("preempted/offline", "SENSE_RUNNING of a CPU that the guest holds offline, so stopped, gives NOT_RUNNING.", s390Running, qemuSenseRunning).
			wants("preempted", 1, ""),
	}
}

func s390CallRules() []Rule {
	call := func(name, text string, sources ...Source) Rule {
		return s390Rule("external-call/"+name, text, append([]Source{principles, s390InjectCall, qemuInjectCall}, sources...)...)
	}
	return []Rule{
		call("wakes-waiter", "An external call ends the wait of a CPU that is enabled for it.", s390HasInterrupt, qemuInterrupt).
			wants("wakes", 1, "waits ended"),
		call("kept", "An external call that comes while the CPU is not enabled for it is kept, and taken once the CPU is enabled for it.", s390Interrupts, qemuInterrupt).
			wants("latched", 1, "interruptions kept"),
		call("masked-waiter", "An external call does not end a wait for which the CPU is not enabled for it.", s390HasInterrupt).
			wants("wakes", 0, ""),
		call("second", "An external call to a CPU at which one is pending gives the result listed for that, and nothing more becomes pending.").
			wants("interruptions", 1, ""),
		call("once", "An external call interrupts its target once.", s390Interrupts, qemuInterrupt).
			wants("interruptions", 1, ""),
		call("names-sender", "The interruption has the external interruption code 0x1202 and the address of the CPU that sent it.", s390Interrupts, qemuInterrupt).
			wants("code", 0x1202, "external interruption code"),
		call("self", "An external call to the calling CPU itself interrupts it once it is enabled for it.").
			wants("interruptions", 1, ""),
		call("stopped-target", "An external call to a stopped CPU gives the result listed for it, and is kept.").
			wants("latched", 1, "interruptions kept"),
		call("user-has-no-effect", "An external call from problem state wakes nobody.", s390Sigp, qemuInsn).
			wants("wakes", 0, ""),
	}
}

func s390WaitRules() []Rule {
	return []Rule{
		s390Rule("wait/sleeps-without-kick",
			"An enabled wait that no interruption ends does not end.",
			s390HasInterrupt, linux("arch/s390/kvm/interrupt.c", "kvm_s390_handle_wait"), qemu("target/s390x/cpu-system.c", "s390_cpu_halt")).
			wants("returns", 0, ""),
		s390Rule("wait/ended-by-interrupt",
			"An interruption for which the CPU is enabled ends a wait.",
			s390HasInterrupt, qemuInterrupt).
			wants("returns", 1, "waits ended"),
	}
}

// s390GuestRules is what Linux as a guest does with the ABI.
func s390GuestRules() []Rule {
	guest := func(name, text string, sources ...Source) Rule {
		r := s390Rule("guest/"+name, text, sources...)
		r.Side = Guest
		return r
	}
	return []Rule{
		guest("yields-only-if-probed",
			"Linux uses YIELD_TO only if its probe at boot did not end in an exception.",
			s390Probe, s390GuestYield).
			wants("yields", 0, "without the feature"),
		guest("probes-once",
			"Linux probes YIELD_TO once at each boot, with the address of the CPU that boots.",
			s390Probe).
			wants("probes", 1, ""),
		guest("yields-to-existing",
			"Linux yields to the address of a CPU that it has online, never to the calling CPU itself.",
			s390GuestYield, s390LockClassic).
			wants("others", 0, "yields"),
		guest("preempted-idle",
			"Linux takes a CPU for not preempted, and does not ask, while that is in an enabled wait.",
			s390GuestPreempted, linux("arch/s390/kernel/idle.c", "arch_cpu_idle")).
			wants("preempted", 0, ""),
		guest("preempted-running",
			"Linux takes a CPU for not preempted if SENSE_RUNNING of it does not store a status.",
			s390GuestPreempted).
			wants("preempted", 0, ""),
		guest("preempted-not-running",
			"Linux takes a CPU that is in no enabled wait for preempted if SENSE_RUNNING of it stores a status, whatever that is.",
			s390GuestPreempted, linux("arch/s390/kernel/smp.c", "pcpu_running")).
			wants("preempted", 1, ""),
		guest("lock-yields-to-owner",
			"Linux yields to the owner of a lock when it begins to wait and that is preempted; later, from time to time, also without asking unless it runs in a partition.",
			s390LockClassic, linux("arch/s390/lib/spinlock.c", "arch_spin_lock_queued")),
		guest("time-slice-end-unused",
			"Linux does not use TIME_SLICE_END.",
			linux("arch/s390/kernel/diag/diag.c", "diag_map").noting("still has a row for it")).
			wants("calls", 0, ""),
		guest("one-external-call",
			"Linux sends an external call to a CPU only for what that has not yet been told.",
			s390GuestCall).
			wants("busy", 0, "calls for which one bit was set already"),
		guest("counts-diagnoses",
			"Linux counts each DIAGNOSE of its own by its code in diag_stat.",
			linux("arch/s390/kernel/diag/diag.c", "show_diag_stat"), linux("arch/s390/kernel/diag/diag.c", "diag_stat_inc")).
			wants("increment", 1, "for each call"),
	}
}

package abi

// S390 returns the ABI between the machine and its guests on s390: the part of
// z/Architecture by which CPUs look after each other (SIGNAL PROCESSOR), and the
// DIAGNOSE codes by which a guest asks its hypervisor.
//
// There is no kick and no shared page. A CPU that waits for a lock goes on
// running, asks by SIGNAL PROCESSOR whether the owner runs, and yields to it by
// DIAGNOSE if not; an idle CPU is in an enabled wait that an interruption ends.
//
// Two implementers were read: Linux KVM, with QEMU for the codes and orders that
// it leaves to its VMM, and QEMU's own emulation under TCG.
func S390() *Platform {
	return &Platform{
		Name:      "s390",
		Title:     "s390",
		GOARCH:    []string{"s390x"},
		ByteOrder: "big",
		Scheduling: Scheduling{
			Yield: "YIELD_TO", YieldTarget: 0,
			Wait:      "LPSWE",
			Preempted: "SENSE_RUNNING",
		},
		Discovery:   s390Discovery(),
		Conventions: s390Conventions(),
		Calls:       s390Calls(),
		Errors:      s390Errors(),
		Features:    s390Features(),
		Registers:   s390Registers(),
		Layouts:     s390Layouts(),
		Rules:       s390Rules(),
		Silences:    s390Silences(),
	}
}

func s390Silences() []Silence {
	var silences []Silence
	silent := func(question, why string, sources ...Source) {
		silences = append(silences, Silence{Question: question, Why: why, Sources: sources})
	}
	noKick := func(question, instead string, sources ...Source) {
		silent(question, "There is no kick: a CPU that waits for a lock runs on. "+instead, append(sources, s390LockWait)...)
	}
	noKick("kick/wakes-waiter", "What wakes an idle CPU is an interruption: external-call/wakes-waiter is about it.", s390InjectCall, s390GuestCall)
	noKick("kick/before-wait", "An external call that comes while the CPU is not enabled for it is kept: external-call/kept is about it.", s390Interrupts)
	noKick("kick/two-kicks", "A second external call while one is pending is not accepted: external-call/second is about it.", s390InjectCall)
	noKick("kick/self", "A CPU can send an external call to itself: external-call/self is about it.", s390InjectCall)
	noKick("kick/running-target", "An external call interrupts a running CPU as soon as it is enabled for it, and is gone then: external-call/once is about it.", s390Interrupts)
	noKick("kick/absent-target", "An order for an address that no CPU has is not accepted: sigp/absent-cpu is about it.", s390SigpDst)
	silent("wait/interrupt-eats-kick", "There is no kick that an interruption could take with it: each external call is an interruption of its own.", s390Interrupts)
	silent("preempted/waiting",
		"A CPU in a wait may be taken for running or not: KVM takes it for running while it polls, and QEMU never does. "+
			"A guest does not ask about a CPU that it knows to be in an enabled wait: guest/preempted-idle is about it.",
		s390Running, qemuSenseRunning, s390GuestPreempted)
	silent("steal/monotonic",
		"The hypervisor shares no counter. A guest takes for stolen what the clock ran on and the CPU's timer did not.",
		linux("arch/s390/kernel/vtime.c", "do_account_vtime"))
	silent("privilege/user-has-no-effect",
		"There is no kick. That orders and codes from problem state end in an exception is privilege/user-refused; that they have no effect is external-call/user-has-no-effect.",
		s390Diag, s390Sigp)
	return silences
}

func s390Discovery() []Word {
	word := func(name string, number uint64, text string, sources ...Source) Word {
		return Word{Name: name, Number: number, Text: text, Sources: sources}
	}
	sysinfo := linux("arch/s390/include/asm/sysinfo.h", "struct sysinfo_3_2_2")
	return []Word{
		word("stsi-level-vm", 3, "The level that STORE SYSTEM INFORMATION gives for function code 0 in a virtual machine. Up to 2 it is a partition, or the machine itself.",
			s390Detect, qemuSTSI),
		word("stsi-function", 3, "The function code, with the selectors 2 and 2, whose answer names the hypervisor.", s390Detect, qemuSTSI),
		word("stsi-selector", 2, "Both selectors of that question.", s390Detect, qemuSTSI),
		word("stsi-count-at", 31, "The byte of the answer that has in its low 4 bits how many levels of hypervisors follow.", sysinfo),
		word("stsi-program-at", 56, "The byte of the answer at which the name of the innermost hypervisor is, 16 bytes in EBCDIC.", sysinfo),
		word("program-kvm", 0xd2e5d4, "The first three bytes of that name for KVM, and for QEMU: KVM.", s390Detect, qemuSTSI),
		word("first-free-code", 0xf00, "From here to last-free-code no DIAGNOSE code is known. Below are codes that are not in this table.",
			linux("arch/s390/kernel/diag/diag.c", "diag_map"), s390Diag, qemuDiag),
		word("last-free-code", 0xfff, "The end of that range.", linux("arch/s390/kernel/diag/diag.c", "diag_map"), s390Diag, qemuDiag),
		word("first-free-order", 0x80, "From here to last-free-order no order of SIGNAL PROCESSOR is known.",
			linux("arch/s390/include/asm/sigp.h", "SIGP_STORE_ADDITIONAL_STATUS").noting("the largest"), s390SigpDst, qemuSigpDst),
		word("last-free-order", 0xff, "The end of that range.", s390SigpDst, qemuSigpDst),
		word("program-vm", 0xa961e5d4, "The first four bytes of that name for z/VM: z/VM.", s390Detect),
	}
}

func s390Conventions() []Convention {
	return []Convention{
		{
			Name: "DIAGNOSE",
			Instructions: []Instruction{
				{Mnemonic: "diag", Code: "83000000", Length: 4, When: "all; R1 in bits 8 to 11, R3 in bits 12 to 15, B2 in bits 16 to 19, D2 in bits 20 to 31"},
			},
			Number: "D2(B2)", Args: []string{"operand R1", "operand R3"}, Result: "",
			Width: 16,
			Text: "In supervisor state. The code is bits 48 to 63 of the second-operand address: base register, unless it is register 0, plus displacement; the other bits of the address are ignored. " +
				"What the operands R1 and R3 are is for each code to say: fields of the instruction, so that any register can be named. " +
				"A code that is not there ends in a specification exception, and any code from problem state in a privileged-operation exception.",
			Sources: []Source{s390Diag, docDiag, linux("arch/s390/kvm/kvm-s390.h", "kvm_s390_get_base_disp_rs"),
				qemuDiag, qemuTranslateDiag.noting("takes the field B2 for a part of the code")},
		},
		{
			Name: "DIAGNOSE 0x500",
			Instructions: []Instruction{
				{Mnemonic: "diag 2,4,0x500", Code: "83240500", Length: 4, When: "all"},
			},
			Number: "r1", Args: []string{"r2", "r3", "r4", "r5", "r6", "r7"}, Result: "r2",
			Width:   64,
			Text:    "KVM's own calls, as subcodes of one DIAGNOSE. A subcode that is not there ends in a specification exception. The condition code may change.",
			Sources: []Source{linux("arch/s390/include/asm/kvm_para.h", "GENERATE_KVM_HYPERCALL_FUNC"), docDiag, s390Virtio, qemuHypercall},
		},
		{
			Name: "SIGNAL PROCESSOR",
			Instructions: []Instruction{
				{Mnemonic: "sigp", Code: "ae000000", Length: 4, When: "all; fields as for diag"},
			},
			Number: "D2(B2)", Args: []string{"operand R3", "operand R1, odd register of the pair"}, Result: "condition code and operand R1",
			Width: 8,
			Text: "In supervisor state. The order is bits 56 to 63 of the second-operand address; the other bits are ignored. The CPU address is bits 48 to 63 of operand R3. " +
				"The parameter is in operand R1 if that is odd, else in the register after it. " +
				"Results are given here as one number: the condition code times 2^32, plus, with condition code 1, the status, which is stored in bits 32 to 63 of operand R1; bits 0 to 31 stay, " +
				"and with another condition code all of them do. From problem state it ends in a privileged-operation exception.",
			Sources: []Source{principles, s390Sigp, linux("arch/s390/include/asm/sigp.h", "____pcpu_sigp"), qemuSigp,
				qemu("target/s390x/tcg/insn-data.h.inc", "SIGP").noting("for supervisor state only")},
		},
	}
}

// status is the result of an order that stored that status.
func status(bits int64) int64 { return 1<<32 | bits }

func s390Errors() []Errno {
	stored := func(name string, bits int64, text string) Errno {
		return Errno{Name: name, Result: status(bits), Text: text,
			Sources: []Source{principles, linux("arch/s390/include/asm/sigp.h", "SIGP_STATUS_"+name)}}
	}
	code := func(name string, cc int64, text string) Errno {
		return Errno{Name: name, Result: cc << 32, Text: text,
			Sources: []Source{principles, linux("arch/s390/include/asm/sigp.h", "SIGP_CC_"+name)}}
	}
	both := stored("STOPPED", 0xc0, "Both: the CPU is stopped, and an external call is pending there.")
	both.Name = "STOPPED_AND_EXT_CALL_PENDING"
	return []Errno{
		stored("INVALID_ORDER", 0x2, "There is no such order."),
		stored("CHECK_STOP", 0x10, "The CPU is in the check-stop state."),
		stored("STOPPED", 0x40, "The CPU is stopped."),
		stored("EXT_CALL_PENDING", 0x80, "An external call is pending at the CPU."),
		both,
		stored("INVALID_PARAMETER", 0x100, "The parameter has a value that the order does not take."),
		stored("INCORRECT_STATE", 0x200, "The CPU is not in a state for the order."),
		stored("NOT_RUNNING", 0x400, "The CPU is not running."),
		code("BUSY", 2, "The CPU is still at an order before; try again."),
		code("NOT_OPERATIONAL", 3, "There is no CPU with that address."),
		{Name: "EINVAL", Result: -22, Text: "There is no such subchannel or queue.", Sources: []Source{qemuHypercall, docDiag.noting("speaks of a negative error value")}},
		{Name: "NOT_ESTABLISHED", Result: 4, Text: "There is no token to cancel.", Sources: []Source{s390Pfault}},
		{Name: "ESTABLISHED", Result: 8, Text: "There is a token already, and it must not change.", Sources: []Source{s390Pfault}},
	}
}

func s390Calls() []Call {
	target := Arg{Name: "processor", Text: "CPU address."}
	order := func(name string, number uint64, text string, more []Arg, outcomes []Outcome, sources ...Source) Call {
		address := target
		address.Text = "CPU address, the low 16 bits."
		return Call{
			Name: name, Number: number, Convention: "SIGNAL PROCESSOR", Text: text,
			Args: append([]Arg{address}, more...),
			Outcomes: append(outcomes,
				Outcome{When: "absent target", Error: "NOT_OPERATIONAL"},
				Outcome{When: "order before not done", Error: "BUSY"}),
			Sources: append([]Source{principles, linux("arch/s390/include/asm/sigp.h", "SIGP_"+name), s390SigpDst, qemuSigpDst}, sources...),
		}
	}
	senseRunning := order("SENSE_RUNNING", 0x15, "Tells whether a CPU runs. The guest's answer to whether it is preempted.", nil,
		[]Outcome{
			{When: "self"},
			{When: "running target"},
			{When: "descheduled target", Error: "NOT_RUNNING"},
			{When: "stopped target", Error: "NOT_RUNNING"},
			{When: "without facility", Error: "INVALID_ORDER"},
		},
		s390SenseRunning, s390Running, qemuSenseRunning, s390GuestPreempted)
	senseRunning.Feature = "SENSE_RUNNING"

	calls := []Call{
		{
			Name: "TIME_SLICE_END", Number: 0x44,
			Text:     "Yields to whomever the hypervisor chooses. Linux does not use it any more.",
			Outcomes: []Outcome{{When: "called"}},
			Sources:  []Source{linux("arch/s390/kvm/diag.c", "__diag_time_slice_end"), qemuDiag.noting("does nothing"), docDiag.noting("does not mention it")},
		},
		{
			Name: "YIELD_TO", Number: 0x9c, Feature: "DIAG9C",
			Text:     "Yields to a CPU. Does nothing for one that runs, for the caller itself and for one that does not exist. Changes no register and not the condition code.",
			Args:     []Arg{target},
			Outcomes: []Outcome{{When: "self"}, {When: "running target"}, {When: "waiting target"}, {When: "stopped target"}, {When: "absent target"}},
			Sources: []Source{s390YieldTo, s390GuestYield, docDiag.noting("puts the address in general register 1; it is in the register that R1 names"),
				qemuDiag.noting("has no such code: a specification exception, which a guest's probe finds")},
		},
		{
			Name: "PAGE_REFERENCE", Number: 0x258, Feature: "PFAULT",
			Text: "Establishes a token by which the hypervisor tells of pages that it has to fetch, or cancels it. The second operand gets the result.",
			Args: []Arg{
				{Name: "block", Text: "Real address of a pfault_refbk, a multiple of 8."},
				{Name: "result", Text: "Not read."},
			},
			Outcomes: []Outcome{
				{When: "token established"},
				{When: "token established before", Error: "ESTABLISHED"},
				{When: "token cancelled"},
				{When: "nothing to cancel", Error: "NOT_ESTABLISHED"},
			},
			Sources: []Source{s390Pfault, linux("arch/s390/mm/pfault.c", "__pfault_init"), qemuDiag.noting("has no such code"), docDiag.noting("does not mention it")},
		},
		{
			Name: "WARNING_TRACK", Number: 0x49c, Feature: "WTI",
			Text:     "Acknowledges the warning that the CPU is about to be taken from the guest, or registers for it. The condition code tells whether that was done.",
			Args:     []Arg{{Name: "subcode", Text: "What to do.", Values: []Value{{Name: "ACKNOWLEDGE", Number: 0}, {Name: "REGISTER", Number: 1}}}},
			Outcomes: []Outcome{{When: "done"}},
			Sources: []Source{linux("arch/s390/kernel/diag/diag.c", "diag49c"), linux("arch/s390/kernel/wti.c", "wti_init"),
				s390Diag.noting("has no such code; neither have QEMU and its TCG")},
		},
		{
			Name: "VIRTIO_NOTIFY", Number: 0, Convention: "DIAGNOSE 0x500",
			Text:     "Early console of a transport that is gone; does nothing.",
			Args:     []Arg{{Name: "address", Text: "An address inside memory."}},
			Outcomes: []Outcome{{When: "called"}, {When: "outside memory", Error: "EINVAL"}},
			Sources:  []Source{docDiag, qemuHypercall},
		},
		{
			Name: "VIRTIO_CCW_NOTIFY", Number: 3, Convention: "DIAGNOSE 0x500",
			Text: "Tells a virtio device that there is something in a queue.",
			Args: []Arg{
				{Name: "subchannel", Text: "Subchannel-identification word."},
				{Name: "queue", Text: "Number of the queue."},
				{Name: "cookie", Text: "What the call gave before for this queue, or 0."},
			},
			Outcomes: []Outcome{{When: "notified"}, {When: "absent subchannel", Error: "EINVAL"}},
			Sources:  []Source{docDiag, s390Virtio, qemuHypercall, linux("drivers/s390/virtio/virtio_ccw.c", "virtio_ccw_do_kvm_notify")},
		},
		{
			Name: "STORAGE_LIMIT", Number: 4, Convention: "DIAGNOSE 0x500", Feature: "STORAGE_LIMIT",
			Text:     "Gives the largest address that memory can have while the guest lives.",
			Outcomes: []Outcome{{When: "called"}},
			Sources:  []Source{docDiag, qemuHypercall},
		},

		order("SENSE", 1, "Tells whether a CPU is stopped, and whether an external call is pending there.", nil,
			[]Outcome{
				{When: "running target"}, {When: "waiting target"},
				{When: "stopped target", Error: "STOPPED"},
				{When: "external call pending", Error: "EXT_CALL_PENDING"},
				{When: "stopped target, external call pending", Error: "STOPPED_AND_EXT_CALL_PENDING"},
			},
			linux("arch/s390/kvm/sigp.c", "__sigp_sense"), qemu("target/s390x/sigp.c", "sigp_sense")),
		order("EXTERNAL_CALL", 2, "Makes an external-call interruption pending at a CPU, of which there can be one.", nil,
			[]Outcome{
				{When: "self"}, {When: "running target"}, {When: "waiting target"}, {When: "stopped target"},
				{When: "external call pending", Error: "EXT_CALL_PENDING"},
			},
			s390InjectCall, qemuInjectCall),
		order("EMERGENCY_SIGNAL", 3, "Makes an emergency-signal interruption pending at a CPU, of which there can be one from each.", nil,
			[]Outcome{{When: "self"}, {When: "running target"}, {When: "waiting target"}, {When: "stopped target"}, {When: "emergency signal pending"}},
			linux("arch/s390/kvm/sigp.c", "__inject_sigp_emergency"), qemu("target/s390x/interrupt.c", "cpu_inject_emergency_signal")),
		order("COND_EMERGENCY_SIGNAL", 0x13, "Like EMERGENCY_SIGNAL, unless the CPU is stopped in a state in which it could not use the address space.",
			[]Arg{{Name: "space", Text: "Address-space number, the low 16 bits."}},
			[]Outcome{
				{When: "running target"}, {When: "waiting target"},
				{When: "stopped target, enabled, of another space", Error: "INCORRECT_STATE"},
				{When: "stopped target, disabled"},
			},
			s390CondEmergency, qemuCondEmergency),
		senseRunning,
	}
	// The rest is no part of the scheduling ABI.
	const listed = " Listed so that nobody takes its number for a free one."
	for _, c := range []struct {
		name   string
		number uint64
		text   string
		source Source
	}{
		{"RELEASE_PAGES", 0x10, "Gives memory back to the hypervisor.", linux("arch/s390/kvm/diag.c", "diag_release_pages")},
		{"TIME_BOMB", 0x288, "Sets a watchdog that resets the guest.", linux("arch/s390/kernel/diag/diag.c", "diag_map")},
		{"IPL", 0x308, "Resets or loads the guest.", linux("arch/s390/kvm/diag.c", "__diag_ipl_functions")},
		{"CONTROL_PROGRAM", 0x318, "Tells the hypervisor which system the guest runs.", linux("arch/s390/kernel/diag/diag.c", "diag_map")},
		{"BREAKPOINT", 0x501, "Stops for a debugger of KVM.", docDiag},
	} {
		calls = append(calls, Call{Name: c.name, Number: c.number, Text: c.text + listed,
			Outcomes: []Outcome{{When: "called"}}, Sources: []Source{c.source}})
	}
	for _, o := range []struct {
		name   string
		number uint64
		text   string
	}{
		{"START", 4, "Starts a stopped CPU."},
		{"STOP", 5, "Stops a CPU."},
		{"RESTART", 6, "Starts a CPU at the address of its restart interruption."},
		{"STOP_AND_STORE_STATUS", 9, "Stops a CPU and stores its registers."},
		{"INITIAL_CPU_RESET", 11, "Resets a CPU."},
		{"CPU_RESET", 12, "Resets a CPU but for its registers."},
		{"SET_PREFIX", 13, "Moves the low memory of a stopped CPU."},
		{"STORE_STATUS_AT_ADDRESS", 14, "Stores the registers of a stopped CPU."},
		{"SET_ARCHITECTURE", 18, "Changed the architecture of all CPUs."},
		{"SET_MULTI_THREADING", 22, "Turns threads of cores on."},
		{"STORE_ADDITIONAL_STATUS", 23, "Stores the vector registers of a stopped CPU."},
	} {
		calls = append(calls, order(o.name, o.number, o.text+listed, nil, []Outcome{{When: "accepted"}}))
	}
	return calls
}

func s390Features() []Feature {
	machine := func(name string, bit uint64, offered, text string, sources ...Source) Feature {
		return Feature{
			Name: name, Word: "machine_features", Bit: bit, Text: text, Offered: offered,
			Sources: append([]Source{linux("arch/s390/include/asm/machine.h", "MFEATURE_"+name)}, sources...),
		}
	}
	return []Feature{
		machine("DIAG9C", 6, "kernel", "The code YIELD_TO. A guest's probe finds it: the code with the CPU's own address, once, does not end in an exception. The bit is where Linux keeps the answer.",
			linux("arch/s390/boot/startup.c", "detect_diag9c"), qemuDiag.noting("does not offer it under TCG")),
		machine("VM", 7, "vmm", "The hypervisor is z/VM, by the answer to STORE SYSTEM INFORMATION.", s390Detect),
		machine("KVM", 8, "vmm", "The hypervisor is KVM, or QEMU, by the answer to STORE SYSTEM INFORMATION.", s390Detect, qemuSTSI),
		machine("LPAR", 9, "vmm", "There is no hypervisor but the machine's own, by the answer to STORE SYSTEM INFORMATION.", s390Detect),
		{
			Name: "SENSE_RUNNING", Word: "facilities", Bit: 9, Offered: "kernel",
			Text: "The order SENSE_RUNNING. Linux does not look at the bit, and takes the refusal of the order for a CPU that does not run.",
			Sources: []Source{linux("arch/s390/tools/gen_facilities.c", "FACILITIES_KVM"), s390SenseRunning, linux("arch/s390/kernel/smp.c", "pcpu_running"),
				qemu("target/s390x/cpu_features_def.h.inc", "SENSE_RUNNING_STATUS")},
		},
		{
			Name: "PFAULT", Word: "DIAGNOSE 0x258", Offered: "kernel",
			Text:    "The code PAGE_REFERENCE. A guest finds it by using it.",
			Sources: []Source{linux("arch/s390/mm/pfault.c", "__pfault_init"), s390Pfault},
		},
		{
			Name: "WTI", Word: "SCLP facilities, byte 119", Bit: 6, Offered: "vmm",
			Text:    "The code WARNING_TRACK.",
			Sources: []Source{linux("drivers/s390/char/sclp_early.c", "sclp_early_facilities_detect")},
		},
		{
			Name: "STORAGE_LIMIT", Word: "DIAGNOSE 0x500", Bit: 4, Offered: "vmm",
			Text:    "The call STORAGE_LIMIT. A guest finds it by using it.",
			Sources: []Source{docDiag, qemuHypercall},
		},
	}
}

func s390Registers() []Register {
	return []Register{
		{
			Name: "CR0", Number: 0, Readable: true,
			Text: "Control register 0: which external interruptions the CPU takes, while external interruptions are on at all.",
			Bits: []RegisterBit{
				{Name: "EMERGENCY_SIGNAL", Bit: 14, Text: "Emergency signals are taken."},
				{Name: "EXTERNAL_CALL", Bit: 13, Text: "External calls are taken."},
			},
			Sources: []Source{principles, linux("arch/s390/include/asm/ctlreg.h", "CR0_EXTERNAL_CALL_SUBMASK_BIT"), linux("arch/s390/include/asm/ctlreg.h", "CR0_EMERGENCY_SIGNAL_SUBMASK_BIT")},
		},
	}
}

func s390Layouts() []Layout {
	const guest = string(Guest)
	return []Layout{
		{
			Name: "pfault_refbk", Size: 40, Align: 8,
			Text: "What PAGE_REFERENCE is to do. The hypervisor reads it once.",
			Fields: []Field{
				{Name: "refdiagc", Offset: 0, Size: 2, Writer: guest, Text: "0x258."},
				{Name: "reffcode", Offset: 2, Size: 2, Writer: guest, Text: "0 to establish a token, 1 to cancel it."},
				{Name: "refdwlen", Offset: 4, Size: 2, Writer: guest, Text: "Length in words of 8 bytes, at least 5."},
				{Name: "refversn", Offset: 6, Size: 2, Writer: guest, Text: "Version, 2."},
				{Name: "refgaddr", Offset: 8, Size: 8, Writer: guest, Text: "Address of the token, a multiple of 8; 0 to cancel."},
				{Name: "refselmk", Offset: 16, Size: 8, Writer: guest, Text: "Which bits of the program status word are compared; 0 to cancel."},
				{Name: "refcmpmk", Offset: 24, Size: 8, Writer: guest, Text: "What they must be for a token to be given; 0 to cancel."},
				{Name: "reserved", Offset: 32, Size: 8, Writer: guest, Text: "The highest bit alone; 0 to cancel."},
			},
			Sources: []Source{s390Pfault, linux("arch/s390/mm/pfault.c", "struct pfault_refbk")},
		},
	}
}

package abi

// LoongArch returns the ABI between Linux KVM and its LoongArch guests.
//
// There is no kick of its own, no call that waits and none that yields. Guests
// take turns at locks by test-and-set, and what wakes a CPU is an interrupt: the
// call IPI makes software interrupt 0 pending at other CPUs, which is the kick of
// the platform. A CPU waits by the instruction IDLE.
//
// Unlike on x86, what is not offered is always refused. The VMM chooses what is
// offered, once for all CPUs of a virtual machine.
func LoongArch() *Platform {
	return &Platform{
		Name:      "loongarch-kvm",
		Title:     "KVM on LoongArch",
		GOARCH:    []string{"loong64"},
		ByteOrder: "little",
		Scheduling: Scheduling{
			Kick: "IPI", KickTarget: 2,
			Wait:      "IDLE",
			Preempted: "kvm_steal_time.preempted.PREEMPTED",
			Steal:     "kvm_steal_time.steal",
			Area:      "NOTIFY",
		},
		Discovery:   loongDiscovery(),
		Conventions: loongConventions(),
		Calls:       loongCalls(),
		Errors:      loongErrors(),
		Features:    loongFeatures(),
		Registers:   loongRegisters(),
		Layouts:     loongLayouts(),
		Rules:       loongRules(),
		Silences:    loongSilences(),
	}
}

func loongSilences() []Silence {
	var silences []Silence
	silent := func(question, why string, sources ...Source) {
		silences = append(silences, Silence{Question: question, Why: why, Sources: sources})
	}
	idle := loongIdle.noting("looks at what it has not yet handed to the CPU, and at nothing else")
	const early = "A kick is an interrupt. With interrupts on, a CPU takes it before it gets to wait; with interrupts off it stays pending, " +
		"but whether IDLE then ends at once is left open: KVM puts a CPU to sleep to which it has handed the interrupt before. " +
		"Guests wait with interrupts on, and step over IDLE when one comes in front of it. "
	silent("kick/before-wait", early+"That the interrupt is kept is ipi/kept.", loongQueue, idle, loongGuestIdle)
	silent("kick/two-kicks", early+"That two are one interrupt is ipi/coalesced.", loongQueue, idle, loongGuestIdle)
	silent("kick/self", early+"That a CPU can send the interrupt to itself is ipi/self.", loongSendIPI, idle, loongGuestIdle)
	silent("wait/interrupt-eats-kick", "A kick is an interrupt of its own, which others do not take with them: ipi/kept is about it.", loongQueue, loongDeliver)
	for _, question := range []string{"yield/self", "yield/running-target", "yield/waiting-target", "yield/absent-target", "yield/does-not-wake"} {
		silent(question, "There is no call that yields; guests that wait for a lock run on.", loongService, loongSpin)
	}
	silent("preempted/offline",
		"The hypervisor does not know that a guest holds a CPU offline. The guest owes the rest: it takes the area back on a CPU before it takes it offline, so that preempted keeps its last value.",
		loongPut, loongGuestOffline)
	return silences
}

func loongDiscovery() []Word {
	word := func(name string, number uint64, text string, sources ...Source) Word {
		return Word{Name: name, Number: number, Text: text, Sources: sources}
	}
	uapi := func(symbol string) Source { return linux("arch/loongarch/include/uapi/asm/kvm_para.h", symbol) }
	para := func(symbol string) Source { return linux("arch/loongarch/include/asm/kvm_para.h", symbol) }
	return []Word{
		word("signature-word", 0x40000000, "The word of CPUCFG that has the signature.", uapi("CPUCFG_KVM_SIG"), loongCPUCFG, docLoong),
		word("signature", 0x004d564b, "The signature: \"KVM\" and a zero byte, the first one lowest.", uapi("KVM_SIGNATURE"), loongCPUCFG, docLoong),
		word("features-word", 0x40000004, "The word of CPUCFG that has the features.", uapi("CPUCFG_KVM_FEATURE"), loongCPUCFG,
			docLoong.noting("says nothing of features")),
		word("first-word", 0x40000000, "The first word of CPUCFG that is the hypervisor's.", uapi("CPUCFG_KVM_BASE"), docLoong),
		word("last-word", 0x400000ff, "The last word of CPUCFG that is the hypervisor's.", uapi("CPUCFG_KVM_SIZE"), docLoong),
		word("code-service", 0x100, "The code of HVCL for calls that the kernel answers.", para("KVM_HCALL_SERVICE"), loongHypercall, docLoong),
		word("code-debug", 0x101, "The code of HVCL that a debugger of the host puts in place of an instruction.", para("KVM_HCALL_SWDBG"), loongHypercall,
			docLoong.noting("does not mention it")),
		word("code-user-service", 0x102, "The code of HVCL for calls that the VMM answers.", para("KVM_HCALL_USER_SERVICE"), loongHypercall,
			docLoong.noting("does not mention it")),
		word("code-none", 0x103, "The first code of HVCL after KVM's own; none after it means anything.", para("HYPERCALL_ENCODE"), loongHypercall),
		word("code-vendor", 0, "The code that the calls had in vendors' kernels, before the vendor's number was put into it.", loongVendor,
			loongHypercall.noting("has no such case")),
		word("code-last", 0x7fff, "The largest code that HVCL has room for.", linux("arch/loongarch/include/asm/inst.h", "struct reg0i15_format"), loongHypercall),
		word("cpus", 256, "One more than the largest number of a CPU.", linux("arch/loongarch/include/asm/kvm_host.h", "KVM_MAX_PHYID"), loongByCPUID),
	}
}

func loongConventions() []Convention {
	form := func(code, mnemonic string) []Instruction {
		return []Instruction{{Mnemonic: mnemonic, Code: code, Length: 4, When: "all; the code is given as a word, whose bytes are in the reverse order in memory"}}
	}
	args := []string{"r5", "r6", "r7", "r8", "r9"}
	sources := func(more ...Source) []Source {
		return append(more, loongHypercall, linux("arch/loongarch/include/asm/kvm_para.h", "kvm_hypercall5"))
	}
	return []Convention{
		{
			Name: "service", Instructions: form("002b8100", "hvcl 0x100"),
			Number: "r4", Args: args, Result: "r4", Width: 64,
			Text: "Calls that the kernel answers. R4, by another name a0 and v0, has the function, all 64 bits of it, then the result; R5 to R9, a1 to a5, have arguments. " +
				"Errors are negative. Nothing but the result changes, neither general nor floating-point nor vector registers. " +
				"KVM does not look at the privilege level that the call comes from.",
			Sources: sources(loongService, docLoong.noting("says nothing of privilege")),
		},
		{
			Name: "user service", Instructions: form("002b8102", "hvcl 0x102"),
			Number: "r4", Args: args, Result: "r4", Width: 64,
			Text:    "Calls that the VMM answers, as it likes. Where USER_HCALL is not offered the kernel answers, with INVALID_CODE.",
			Sources: sources(docLoong.noting("does not mention it")),
		},
		{
			Name: "debug", Instructions: form("002b8101", "hvcl 0x101"),
			Number: "r4", Args: nil, Result: "r4", Width: 64,
			Text:    "Not for guests: a debugger of the host puts it in place of an instruction. Where there is none it gives INVALID_CODE.",
			Sources: sources(docLoong.noting("does not mention it")),
		},
	}
}

func loongErrors() []Errno {
	header := func(symbol string) []Source {
		return []Source{linux("arch/loongarch/include/asm/kvm_para.h", symbol), docLoong}
	}
	return []Errno{
		{Name: "INVALID_CODE", Result: -1, Text: "There is no such code or function, or its feature is not offered.", Sources: header("KVM_HCALL_INVALID_CODE")},
		{Name: "INVALID_PARAMETER", Result: -2, Text: "An argument has bits set that have to be clear.", Sources: header("KVM_HCALL_INVALID_PARAMETER")},
	}
}

func loongCalls() []Call {
	const noCall = "INVALID_CODE"
	para := func(symbol string) Source { return linux("arch/loongarch/include/asm/kvm_para.h", symbol) }
	hidden := Outcome{When: "hidden", Error: noCall}
	return []Call{
		{
			Name: "IPI", Number: 1, Feature: "IPI",
			Text: "Makes software interrupt 0 pending at CPUs, and wakes those of them that wait. The kick of the platform.",
			Args: []Arg{
				{Name: "low", Text: "Bitmap of targets: bit n stands for the CPU with the number lowest + n.", Values: []Value{{Name: "one", Number: 1}}},
				{Name: "high", Text: "Bitmap of the 64 targets that follow those of low."},
				{Name: "lowest", Text: "Number of a CPU as it has it in its CPUID register, the low 32 bits. Lowest + n is cut to 32 bits; numbers that no CPU has are passed over."},
			},
			Outcomes: []Outcome{
				{When: "self"}, {When: "running target"}, {When: "waiting target"}, {When: "absent target"}, {When: "empty bitmap"}, hidden,
			},
			Sources: []Source{para("KVM_HCALL_FUNC_IPI"), loongService, loongSendIPI, loongByCPUID,
				docLoong.noting("names no result for CPUs that do not exist")},
		},
		{
			Name: "NOTIFY", Number: 2, Feature: "STEAL_TIME",
			Text: "Registers memory that the hypervisor is to keep up to date, for the calling CPU, or takes it back.",
			Args: []Arg{
				{Name: "what", Text: "What the memory is for: 1 shifted left by the number of a feature's bit. There is one, and all others are refused.",
					Values: []Value{{Name: "STEAL_TIME", Number: 4}}},
				{Name: "address", Text: "Guest-physical address of a kvm_steal_time, a multiple of 64, with VALID to register it and without to take it back. An address outside of memory is accepted and nothing is written.",
					Values: []Value{{Name: "VALID", Number: 1}, {Name: "RESERVED", Number: 0x3e}}},
			},
			Outcomes: []Outcome{
				{When: "registered"}, {When: "taken back"}, {When: "nowhere"},
				{When: "reserved bits", Error: "INVALID_PARAMETER"},
				{When: "other", Error: noCall},
				hidden,
			},
			Sources: []Source{para("KVM_HCALL_FUNC_NOTIFY"), para("KVM_STEAL_PHYS_VALID"), para("KVM_STEAL_PHYS_MASK"), loongService, loongNotify,
				docLoong.noting("does not mention it")},
		},
	}
}

func loongFeatures() []Feature {
	const kernel, vmm = "kernel", "vmm"
	feature := func(name string, bit uint64, offered, text string, sources ...Source) Feature {
		return Feature{
			Name: name, Word: "features", Bit: bit, Text: text, Offered: offered,
			Sources: append([]Source{linux("arch/loongarch/include/uapi/asm/kvm_para.h", "KVM_FEATURE_"+name), loongCPUCFG}, sources...),
		}
	}
	configured := loongSetFeatures.noting("for the VMM to turn on")
	return []Feature{
		feature("IPI", 1, kernel, "The call IPI.", loongInitFeatures),
		feature("STEAL_TIME", 2, kernel, "Steal time, by the call NOTIFY. Offered where the host keeps scheduler statistics.", loongInitFeatures),
		feature("PREEMPT", 3, kernel, "Preempted in the memory for steal time. Offered where the host keeps scheduler statistics.", loongInitFeatures),
		feature("VIRT_EXTIOI", 24, vmm, "The interrupt controller EIOINTC has more vectors and targets.", configured),
		feature("USER_HCALL", 25, vmm, "Calls that the VMM answers.", configured),
	}
}

func loongRegisters() []Register {
	const iocsr = 1 << 32
	manual := func(section string) Source {
		return Source{Tree: "LoongArch Reference Manual volume 1", Path: "Control and Status Registers", Symbol: section}
	}
	header := func(symbol string) Source { return linux("arch/loongarch/include/asm/loongarch.h", symbol) }
	return []Register{
		{
			Name: "ESTAT", Number: 0x5, Readable: true,
			Text: "Control and status register: the interrupts that are pending at the CPU, one bit each.",
			Bits: []RegisterBit{
				{Name: "SWI0", Bit: 0, Text: "Software interrupt 0. The call IPI sets it, the guest clears it."},
			},
			Sources: []Source{manual("Exception Status"), header("INT_SWI0"), loongSendIPI, loongDeliver},
		},
		{
			Name: "ECFG", Number: 0x4, Readable: true,
			Text: "Control and status register: the interrupts that the CPU takes while interrupts are on at all, a bit each as in ESTAT.",
			Bits: []RegisterBit{
				{Name: "SWI0", Bit: 0, Text: "Software interrupt 0."},
			},
			Sources: []Source{manual("Exception Configuration"), header("LOONGARCH_CSR_ECFG")},
		},
		{
			Name: "FEATURES", Number: iocsr + 0x8, Readable: true,
			Text: "What the processor is, in the space of input and output registers, whose addresses have 2^32 added here.",
			Bits: []RegisterBit{
				{Name: "VM", Bit: 11, Text: "There is a hypervisor; guests do not look further while it is clear."},
			},
			Sources: []Source{header("IOCSRF_VM"), loongProbe.noting("takes it for a sign of any hypervisor")},
		},
	}
}

func loongLayouts() []Layout {
	const hypervisor, nobody = string(Hypervisor), "nobody"
	para := func(symbol string) Source { return linux("arch/loongarch/include/asm/kvm_para.h", symbol) }
	return []Layout{
		{
			Name: "kvm_steal_time", Size: 64, Align: 64,
			Text: "What a CPU's steal time and preempted are read from. Version is odd while steal changes; preempted is outside of that protocol.",
			Fields: []Field{
				{Name: "steal", Offset: 0, Size: 8, Writer: hypervisor, Text: "Nanoseconds for which the CPU was ready to run and did not; the host adds to what it finds."},
				{Name: "version", Offset: 8, Size: 4, Writer: hypervisor, Text: "Even at rest, odd during an update; two more after each, and three more after the first if it was odd before."},
				{Name: "flags", Offset: 12, Size: 4, Writer: nobody, Text: "Kept for later."},
				{Name: "preempted", Offset: 16, Size: 1, Writer: hypervisor, Text: "Bit below; the hypervisor writes it with PREEMPT only."},
				{Name: "pad", Offset: 17, Size: 47, Writer: nobody, Text: "Padding."},
			},
			Bits: []FieldBit{
				{Field: "preempted", Name: "PREEMPTED", Bit: 0, Text: "The host took the CPU away from a guest that ran."},
			},
			Sources: []Source{para("struct kvm_steal_time"), para("KVM_VCPU_PREEMPTED"), loongSteal, loongPreempted,
				docLoong.noting("does not mention it")},
		},
	}
}

package abi

// X86KVM returns the ABI between Linux KVM and its x86 guests.
//
// The kernel is half of the host's side. The other half is the VMM, which
// chooses what CPUID shows, may add features of its own (those that it offers)
// and may have KVM enforce the features shown. The table gives what the kernel
// does; where the VMM takes part, the text says so.
func X86KVM() *Platform {
	return &Platform{
		Name:      "x86-kvm",
		Title:     "KVM on x86",
		GOARCH:    []string{"amd64"},
		ByteOrder: "little",
		Scheduling: Scheduling{
			Kick: "KICK_CPU", KickTarget: 1,
			Yield: "SCHED_YIELD", YieldTarget: 0,
			Wait:      "HLT",
			Preempted: "kvm_steal_time.preempted",
			Steal:     "kvm_steal_time.steal",
			Area:      "STEAL_TIME",
		},
		Discovery:   x86Discovery(),
		Conventions: x86Conventions(),
		Calls:       x86Calls(),
		Errors:      x86Errors(),
		Features:    x86FeatureBits(),
		Registers:   x86Registers(),
		Layouts:     x86Layouts(),
		Rules:       x86Rules(),
		Silences: []Silence{
			{
				Question: "preempted/offline",
				Why: "The hypervisor does not know that a guest holds a CPU offline: such a CPU is a task that sleeps, " +
					"or is in a HLT, like any other. The guest owes the rest: it disables STEAL_TIME on a CPU before it takes it offline, " +
					"so that preempted keeps its last value.",
				Sources: []Source{
					linux("arch/x86/kernel/kvm.c", "kvm_guest_cpu_offline"),
					x86Put,
				},
			},
		},
	}
}

func x86Discovery() []Word {
	word := func(name string, number uint64, text string, sources ...Source) Word {
		return Word{Name: name, Number: number, Text: text, Sources: sources}
	}
	header := func(symbol string) Source {
		s := x86ParaHeader
		s.Symbol = symbol
		return s
	}
	return []Word{
		word("hypervisor-leaf", 1, "The leaf whose ECX tells whether there is a hypervisor at all.",
			linux("arch/x86/kernel/kvm.c", "__kvm_cpuid_base")),
		word("hypervisor-bit", 31, "The bit of ECX of hypervisor-leaf; guests do not look further while it is clear.",
			linux("arch/x86/include/asm/cpufeatures.h", "X86_FEATURE_HYPERVISOR")),
		word("first-leaf", 0x40000000, "The first leaf at which a hypervisor's signature may be.",
			header("KVM_CPUID_SIGNATURE"), linux("arch/x86/include/asm/cpuid/api.h", "for_each_possible_cpuid_base_hypervisor")),
		word("last-leaf", 0x4000ff00, "The last leaf at which a hypervisor's signature may be.",
			linux("arch/x86/include/asm/cpuid/api.h", "for_each_possible_cpuid_base_hypervisor")),
		word("leaf-step", 0x100, "The distance between leaves at which a signature may be.",
			linux("arch/x86/include/asm/cpuid/api.h", "for_each_possible_cpuid_base_hypervisor")),
		word("signature-ebx", 0x4b4d564b, "EBX of the signature leaf: \"KVMK\".", header("KVM_SIGNATURE"), docCPUID),
		word("signature-ecx", 0x564b4d56, "ECX of the signature leaf: \"VMKV\".", header("KVM_SIGNATURE"), docCPUID),
		word("signature-edx", 0x0000004d, "EDX of the signature leaf: \"M\" and three zero bytes.", header("KVM_SIGNATURE"), docCPUID),
		word("max-leaf", 0x40000001, "EAX of the signature leaf when that is first-leaf. Very old hosts gave 0 for it; a guest need not look.",
			x86CPUID, docCPUID),
		word("features-leaf", 1, "What to add to the signature leaf for the leaf with the features in EAX and the hints in EDX.",
			header("KVM_CPUID_FEATURES"), x86GuestLeaf),
		word("first-register", 0x4b564d00, "The first model-specific register of the range that is KVM's.", docMSR, x86ParaHeader),
		word("last-register", 0x4b564dff, "The last register of that range. KVM uses this number inside itself, for a register that no guest can reach by it.",
			docMSR, linux("arch/x86/kvm/x86.h", "MSR_KVM_INTERNAL_GUEST_SSP")),
	}
}

func x86Conventions() []Convention {
	forms := func() []Instruction {
		return []Instruction{
			{Mnemonic: "vmcall", Code: "0f01c1", Length: 3, When: "Intel, and every other vendor but these"},
			{Mnemonic: "vmmcall", Code: "0f01d9", Length: 3, When: "AMD and Hygon"},
		}
	}
	bytes := []Source{
		linux("arch/x86/kvm/vmx/vmx.c", "vmx_patch_hypercall"),
		linux("arch/x86/kvm/svm/svm.c", "svm_patch_hypercall"),
		linux("arch/x86/include/asm/kvm_para.h", "KVM_HYPERCALL"),
	}
	sources := func(more ...Source) []Source { return append(more, bytes...) }
	return []Convention{
		{
			Name:         "long mode",
			Instructions: forms(),
			Number:       "RAX", Args: []string{"RBX", "RCX", "RDX", "RSI"}, Result: "RAX",
			Width: 64,
			Text: "In 64-bit mode at CPL 0. All 64 bits of number and arguments count. Errors are negative. " +
				"Nothing but the result changes. The form that is not the vendor's own raises an undefined opcode exception, " +
				"on which KVM rewrites the instruction in the guest's memory and runs it again, unless the VMM has turned that quirk off.",
			Sources: sources(x86Hypercall, x86Convention, docHypercalls,
				linux("arch/x86/kvm/x86.c", "emulator_fix_hypercall")),
		},
		{
			Name:         "protected mode",
			Instructions: forms(),
			Number:       "EAX", Args: []string{"EBX", "ECX", "EDX", "ESI"}, Result: "EAX",
			Width: 32,
			Text: "Wherever the code segment is not a 64-bit one, so in protected, compatibility and real mode, at CPL 0. " +
				"Only the low 32 bits of number and arguments count, and the result is cut to 32 bits: -1000 reads 0xfffffc18.",
			Sources: sources(x86Mode, x86Hypercall, x86Complete,
				docHypercalls.noting("says nothing of the width")),
		},
		{
			Name:         "user",
			Instructions: forms(),
			Number:       "RAX", Args: []string{"RBX", "RCX", "RDX", "RSI"}, Result: "RAX",
			Width: 64,
			Text: "Outside CPL 0 every call gives -EPERM, whatever the number, raises no exception and goes on after the instruction. " +
				"KVM counts and traces it like any other. The form that is not the vendor's own ends in an exception and is not rewritten.",
			Sources: sources(x86Hypercall, docHypercalls.noting("says nothing of privilege"),
				linux("arch/x86/kvm/emulate.c", "em_hypercall").noting("the decode tables mark it as privileged")),
		},
	}
}

func x86Errors() []Errno {
	header := func(symbol string) []Source {
		return []Source{linux("include/uapi/linux/kvm_para.h", symbol), x86Hypercall.noting("returns it negative")}
	}
	return []Errno{
		{Name: "EPERM", Result: -1, Text: "The caller is not at CPL 0.", Sources: header("KVM_EPERM")},
		{Name: "E2BIG", Result: -7, Text: "Too much at once; no call of x86 gives it any more.", Sources: header("KVM_E2BIG")},
		{Name: "EFAULT", Result: -14, Text: "An address in an argument is not writable memory.", Sources: header("KVM_EFAULT")},
		{Name: "EINVAL", Result: -22, Text: "An argument has a value that the call does not take.", Sources: header("KVM_EINVAL")},
		{Name: "EOPNOTSUPP", Result: -95, Text: "The host cannot do this now.", Sources: header("KVM_EOPNOTSUPP")},
		{Name: "ENOSYS", Result: -1000, Text: "There is no such call, or its feature is hidden and enforced.", Sources: header("KVM_ENOSYS")},
	}
}

func x86Calls() []Call {
	number := func(symbol string) Source { return linux("include/uapi/linux/kvm_para.h", symbol) }
	elsewhere := func(name string, n uint64, text string, sources ...Source) Call {
		return Call{
			Name: name, Number: n, Text: text, Undefined: true,
			Sources: append([]Source{number("KVM_HC_" + name), x86Hypercall.noting("has no such case")}, sources...),
		}
	}
	// The numbers of the document's sections are not the calls' numbers.
	section := func(title string) Source {
		return docHypercalls.noting("section " + title + "; the number there is the section's, not the call's")
	}
	hidden := Outcome{When: "hidden and enforced", Error: "ENOSYS"}
	return []Call{
		{
			Name: "VAPIC_POLL_IRQ", Number: 1,
			Text:     "Does nothing but leave the guest, so that the host looks for interrupts on the way back.",
			Outcomes: []Outcome{{When: "called"}},
			Sources:  []Source{number("KVM_HC_VAPIC_POLL_IRQ"), x86Hypercall, section("1")},
		},
		elsewhere("MMU_OP", 2, "Batched changes of page tables, gone with its feature bit.",
			section("2").noting("calls it deprecated; it is not there at all")),
		elsewhere("FEATURES", 3, "Asks for features, on PowerPC.", section("3")),
		elsewhere("PPC_MAP_MAGIC_PAGE", 4, "Maps a page of supervisor registers, on PowerPC.", section("4")),
		{
			Name: "KICK_CPU", Number: 5, Feature: "PV_UNHALT",
			Text: "Wakes a CPU from HLT, or lets its next HLT end at once, and yields the host's CPU to it.",
			Args: []Arg{
				{Name: "flags", Text: "Not read; Linux passes 0."},
				{Name: "target", Text: "APIC id. The kick looks at the low 32 bits, the yield at all 64. The broadcast id 0xff kicks every CPU."},
			},
			Outcomes: []Outcome{
				{When: "self"}, {When: "running target"}, {When: "waiting target"}, {When: "absent target"}, hidden,
			},
			Sources: []Source{number("KVM_HC_KICK_CPU"), x86Hypercall, x86Kick, x86Yield,
				linux("arch/x86/kvm/lapic.c", "kvm_apic_is_broadcast_dest").noting("0xff, until the VMM changes the x2APIC API"),
				docHypercalls.noting("section 5; names neither the results nor the yield")},
		},
		elsewhere("MIPS_GET_CLOCK_FREQ", 6, "Asked for the clock's frequency, on MIPS."),
		elsewhere("MIPS_EXIT_VM", 7, "Ended the virtual machine, on MIPS."),
		elsewhere("MIPS_CONSOLE_OUTPUT", 8, "Wrote to the console, on MIPS."),
		{
			Name: "CLOCK_PAIRING", Number: 9,
			Text: "Writes the host's time of day together with the guest's TSC of the same instant. No feature announces it.",
			Args: []Arg{
				{Name: "address", Text: "Guest-physical address for a kvm_clock_pairing."},
				{Name: "clock", Text: "Type of clock; 0 is the host's CLOCK_REALTIME, and the only one."},
			},
			Outcomes: []Outcome{
				{When: "written"},
				{When: "other clock", Error: "EOPNOTSUPP"},
				{When: "no TSC clock", Error: "EOPNOTSUPP"},
				{When: "address not writable", Error: "EFAULT"},
				{When: "32-bit host", Error: "ENOSYS"},
			},
			Sources: []Source{number("KVM_HC_CLOCK_PAIRING"), x86Hypercall, x86Pairing, section("6")},
		},
		{
			Name: "SEND_IPI", Number: 10, Feature: "PV_SEND_IPI",
			Text: "Sends an interrupt to many CPUs and gives the number of CPUs that accepted it.",
			Args: []Arg{
				{Name: "low", Text: "Bitmap of targets: bit n stands for APIC id lowest + n; 64 bits in 64-bit mode, 32 elsewhere."},
				{Name: "high", Text: "Bitmap of the targets that follow those of low."},
				{Name: "lowest", Text: "APIC id, the low 32 bits. Ids that no CPU has are passed over."},
				{Name: "icr", Text: "Vector, delivery mode, level and trigger mode as in the low half of the APIC's interrupt command register."},
			},
			Outcomes: []Outcome{
				{When: "empty bitmap"},
				{When: "one target", Result: 1},
				{When: "logical destination or shorthand", Error: "EINVAL"},
				{When: "no APIC map", Error: "EOPNOTSUPP"},
				hidden,
			},
			Sources: []Source{number("KVM_HC_SEND_IPI"), x86Hypercall, x86SendIPI, x86Unhalt.noting("what counts as accepted"),
				section("7")},
		},
		{
			Name: "SCHED_YIELD", Number: 11, Feature: "PV_SCHED_YIELD",
			Text: "Yields the host's CPU to a CPU that was preempted; does nothing for any other.",
			Args: []Arg{{Name: "target", Text: "APIC id, all 64 bits."}},
			Outcomes: []Outcome{
				{When: "self"}, {When: "running target"}, {When: "waiting target"}, {When: "absent target"},
				{When: "target with high half"}, hidden,
			},
			Sources: []Source{number("KVM_HC_SCHED_YIELD"), x86Hypercall, x86Yield, section("8")},
		},
		{
			Name: "MAP_GPA_RANGE", Number: 12,
			Text: "Tells the VMM that a range of memory becomes encrypted or plain. The VMM announces it by HC_MAP_GPA_RANGE, " +
				"which the kernel does not look at: it asks whether the VMM takes the exit.",
			Args: []Arg{
				{Name: "address", Text: "Guest-physical address of the first page, a multiple of 4096."},
				{Name: "pages", Text: "Number of pages of 4096 bytes, not 0; the range must not wrap."},
				{Name: "attributes", Text: "Bits 3:0 preferred page size, bit 4 encrypted; for the VMM to judge."},
			},
			Outcomes: []Outcome{
				{When: "exit not enabled", Error: "ENOSYS"},
				{When: "bad range", Error: "EINVAL"},
				{When: "left to the VMM"},
			},
			Sources: []Source{number("KVM_HC_MAP_GPA_RANGE"), x86Hypercall, linux("arch/x86/kvm/x86.h", "user_exit_on_hypercall"),
				section("9")},
		},
	}
}

func x86FeatureBits() []Feature {
	const kernel, vmm, nobody = "kernel", "vmm", "nobody"
	feature := func(name string, bit uint64, offered, since, text string, sources ...Source) Feature {
		header := x86ParaHeader
		header.Symbol = "KVM_FEATURE_" + name
		return Feature{
			Name: name, Word: "features", Bit: bit, Text: text, Offered: offered, Since: since,
			Sources: append([]Source{header, x86CPUID, docCPUID}, sources...),
		}
	}
	realtime := x86ParaHeader
	realtime.Symbol = "KVM_HINTS_REALTIME"
	steal := feature("STEAL_TIME", 5, kernel, "3.1", "Steal time and preempted, by the register STEAL_TIME. Offered where the host keeps scheduler statistics.",
		linux("include/linux/sched/stat.h", "sched_info_on"),
		linux("arch/x86/kvm/Kconfig", "KVM").noting("selects SCHED_INFO, since a patch of May 2021, msgid 20210505111525.187225172@infradead.org; before, nodelayacct on the command line could turn the statistics off"))
	steal.Given, steal.Always = "the host keeps scheduler statistics", "5.14"
	return []Feature{
		feature("CLOCKSOURCE", 0, kernel, "2.6.26", "The clock of the registers WALL_CLOCK and SYSTEM_TIME."),
		feature("NOP_IO_DELAY", 1, kernel, "2.6.26", "Port accesses need no delay between them."),
		feature("MMU_OP", 2, nobody, "", "Was the call MMU_OP; both are gone."),
		feature("CLOCKSOURCE2", 3, kernel, "2.6.35", "The clock of the registers WALL_CLOCK_NEW and SYSTEM_TIME_NEW.",
			docMSR.noting("its sample code takes bit numbers for masks")),
		feature("ASYNC_PF", 4, kernel, "2.6.38", "Asynchronous page faults, by the register ASYNC_PF_EN."),
		steal,
		feature("PV_EOI", 6, kernel, "3.6", "End of interrupt without leaving the guest, by the register PV_EOI_EN."),
		feature("PV_UNHALT", 7, kernel, "3.12", "The call KICK_CPU. Withdrawn where HLT does not leave the guest.",
			x86Features.noting("withdraws it; the document does not say so")),
		feature("PV_TLB_FLUSH", 9, kernel, "4.16", "A flush that is asked for in preempted happens before the CPU runs again."),
		feature("ASYNC_PF_VMEXIT", 10, kernel, "4.14", "Asynchronous page faults for a nested guest are exits to its hypervisor."),
		feature("PV_SEND_IPI", 11, kernel, "4.19", "The call SEND_IPI."),
		feature("POLL_CONTROL", 12, kernel, "5.3", "The register POLL_CONTROL."),
		feature("PV_SCHED_YIELD", 13, kernel, "5.3", "The call SCHED_YIELD."),
		feature("ASYNC_PF_INT", 14, kernel, "", "Asynchronous page faults tell by an interrupt that a page is there: ASYNC_PF_INT and ASYNC_PF_ACK."),
		feature("MSI_EXT_DEST_ID", 15, vmm, "5.11", "Bits 11:5 of an MSI's address are bits 14:8 of its destination."),
		feature("HC_MAP_GPA_RANGE", 16, vmm, "5.14", "The call MAP_GPA_RANGE."),
		feature("MIGRATION_CONTROL", 17, vmm, "5.14", "The register MIGRATION_CONTROL."),
		feature("CLOCKSOURCE_STABLE_BIT", 24, kernel, "2.6.35", "TSC_STABLE in the clock's flags may be trusted."),
		{
			Name: "REALTIME", Word: "hints", Bit: 0, Offered: vmm, Since: "4.17",
			Text:    "A hint: CPUs are never preempted for an unlimited time. Guests then use native spinlocks.",
			Sources: []Source{realtime, x86CPUID, docCPUID},
		},
	}
}

func x86Registers() []Register {
	register := func(name string, number uint64, feature, text string, sources ...Source) Register {
		header := x86ParaHeader
		header.Symbol = "MSR_KVM_" + name
		return Register{
			Name: name, Number: number, Feature: feature, Text: text, Readable: true,
			Sources: append([]Source{header, x86SetMSR, x86GetMSR}, sources...),
		}
	}
	reset := linux("arch/x86/kvm/x86.c", "kvm_vcpu_reset")
	wallClock := linux("arch/x86/kvm/x86.c", "kvm_write_wall_clock")
	systemTime := linux("arch/x86/kvm/x86.c", "kvm_write_system_time")
	clockReset := linux("arch/x86/kvm/x86.c", "kvmclock_reset")
	unaligned := docMSR.noting("asks for 4-byte alignment, which the code does not test")
	const enable = 1 << 0 // KVM_MSR_ENABLED; the registers with bits of their own have it in the same place

	wallText := "Guest-physical address to which the host writes a pvclock_wall_clock, once for each write. 0 writes nothing. One register for all CPUs; a reset keeps it."
	systemText := "Guest-physical address of the CPU's pvclock_vcpu_time_info, with an enable bit: the host keeps the area up to date."

	old := register("WALL_CLOCK", 0x11, "CLOCKSOURCE", wallText+" Deprecated.", wallClock, unaligned)
	oldTime := register("SYSTEM_TIME", 0x12, "CLOCKSOURCE", systemText+" Deprecated.", systemTime, clockReset, unaligned)
	wall := register("WALL_CLOCK_NEW", 0x4b564d00, "CLOCKSOURCE2", wallText, wallClock, unaligned)
	time := register("SYSTEM_TIME_NEW", 0x4b564d01, "CLOCKSOURCE2", systemText, systemTime, clockReset, unaligned)
	oldTime.Enable, time.Enable = enable, enable
	old.Kept, wall.Kept = true, true

	fault := register("ASYNC_PF_EN", 0x4b564d02, "ASYNC_PF",
		"Guest-physical address of the CPU's kvm_vcpu_pv_apf_data, a multiple of 64, with an enable bit, which works together with DELIVERY_AS_INT only, and control bits. Without a local APIC in the kernel only 0 is accepted.",
		linux("arch/x86/kvm/x86.c", "kvm_pv_enable_async_pf"), reset, docMSR)
	fault.Reserved = 0x30
	fault.Enable = enable
	fault.Bits = []RegisterBit{
		{Name: "SEND_ALWAYS", Bit: 1, Text: "Also at CPL 0."},
		{Name: "DELIVERY_AS_PF_VMEXIT", Bit: 2, Text: "A nested guest's faults are exits; needs ASYNC_PF_VMEXIT."},
		{Name: "DELIVERY_AS_INT", Bit: 3, Text: "An interrupt tells that a page is there; needs ASYNC_PF_INT."},
	}

	steal := register("STEAL_TIME", 0x4b564d03, "STEAL_TIME",
		"Guest-physical address of the CPU's kvm_steal_time, a multiple of 64, with an enable bit. An address outside of memory is accepted and nothing is written.",
		x86Steal, reset, docMSR.noting("does not say that reserved bits are refused"))
	steal.Sources = append(steal.Sources, linux("arch/x86/include/uapi/asm/kvm_para.h", "KVM_STEAL_RESERVED_MASK"))
	steal.Reserved = 0x3e
	steal.Enable = enable

	eoi := register("PV_EOI_EN", 0x4b564d04, "PV_EOI",
		"Guest-physical address of the CPU's end-of-interrupt word, a multiple of 4, with an enable bit. Enabling an address outside of memory is refused.",
		linux("arch/x86/kvm/lapic.c", "kvm_lapic_set_pv_eoi"), linux("arch/x86/kvm/lapic.c", "kvm_lapic_reset"),
		docMSR.noting("heads the section MSR_KVM_EOI_EN"))
	eoi.Reserved = 0x2
	eoi.Enable = enable

	poll := register("POLL_CONTROL", 0x4b564d05, "POLL_CONTROL",
		"Whether the host may poll before it puts a CPU in HLT to sleep: bit 0, the only one. Set when the CPU is created; a reset keeps it.",
		linux("arch/x86/kvm/x86.c", "kvm_arch_vcpu_postcreate"), linux("arch/x86/kvm/x86.c", "kvm_arch_no_poll"), docMSR)
	poll.Reserved = ^uint64(1)
	poll.Reset = 1
	poll.Kept = true
	poll.Enable = enable

	vector := register("ASYNC_PF_INT", 0x4b564d06, "ASYNC_PF_INT",
		"Vector of the interrupt that tells that a page is there, in bits 7:0. Refused without a local APIC in the kernel.",
		linux("arch/x86/kvm/x86.c", "kvm_pv_enable_async_pf_int"), reset, docMSR)
	vector.Reserved = ^uint64(0xff)

	ack := register("ASYNC_PF_ACK", 0x4b564d07, "ASYNC_PF_INT",
		"The guest is done with a page and has cleared token. Always reads 0; other bits than ACK have no effect.", docMSR)
	ack.Readable = false
	ack.Bits = []RegisterBit{{Name: "ACK", Bit: 0, Text: "Look for the next page that is there."}}

	migration := register("MIGRATION_CONTROL", 0x4b564d08, "MIGRATION_CONTROL",
		"Whether the guest may be migrated. The kernel has no such register and refuses every access; a VMM that offers the feature implements it by a filter.",
		docMSR.noting("bit 0 begins as 1 for a guest whose memory is not encrypted; the VMM's to keep"))
	migration.Sources[1] = x86SetMSR.noting("has no such case")
	migration.Sources[2] = x86GetMSR.noting("has no such case")
	migration.Reserved = ^uint64(1)
	migration.Bits = []RegisterBit{{Name: "READY", Bit: 0, Text: "The guest may be migrated."}}

	return []Register{old, oldTime, wall, time, fault, steal, eoi, poll, vector, ack, migration}
}

func x86Layouts() []Layout {
	const hypervisor, both, nobody = string(Hypervisor), "both", "nobody"
	header := func(symbol string) Source {
		s := x86ParaHeader
		s.Symbol = symbol
		return s
	}
	clock := func(symbol string) Source { return linux("arch/x86/include/asm/pvclock-abi.h", symbol) }
	return []Layout{
		{
			Name: "kvm_steal_time", Size: 64, Align: 64,
			Text: "What a CPU's steal time and preempted are read from. Version is odd while steal changes; preempted is outside of that protocol.",
			Fields: []Field{
				{Name: "steal", Offset: 0, Size: 8, Writer: hypervisor, Text: "Nanoseconds for which the CPU was ready to run and did not; the host adds to what it finds."},
				{Name: "version", Offset: 8, Size: 4, Writer: hypervisor, Text: "Even at rest, odd during an update; two more after each."},
				{Name: "flags", Offset: 12, Size: 4, Writer: nobody, Text: "Kept for later."},
				{Name: "preempted", Offset: 16, Size: 1, Writer: both, Text: "Bits below; the hypervisor clears all of them when the CPU runs again."},
				{Name: "u8_pad", Offset: 17, Size: 3, Writer: nobody, Text: "Padding."},
				{Name: "pad", Offset: 20, Size: 44, Writer: nobody, Text: "Padding."},
			},
			Bits: []FieldBit{
				{Field: "preempted", Name: "PREEMPTED", Bit: 0, Text: "The host took the CPU away from a guest that ran; set by the hypervisor."},
				{Field: "preempted", Name: "FLUSH_TLB", Bit: 1, Text: "Flush the CPU's TLB before it runs again; set by the guest, by an atomic exchange while PREEMPTED is set."},
			},
			Sources: []Source{header("struct kvm_steal_time"), header("KVM_VCPU_PREEMPTED"), header("KVM_VCPU_FLUSH_TLB"), x86Steal, x86Preempted,
				linux("arch/x86/kernel/kvm.c", "kvm_flush_tlb_multi"),
				docMSR.noting("knows preempted as zero or not, and not FLUSH_TLB")},
		},
		{
			Name: "pvclock_vcpu_time_info", Size: 32, Align: 4,
			Text: "The relation of a CPU's TSC to system time. The area must not cross a page; its alignment is not tested.",
			Fields: []Field{
				{Name: "version", Offset: 0, Size: 4, Writer: hypervisor, Text: "Even at rest, odd during an update."},
				{Name: "pad0", Offset: 4, Size: 4, Writer: hypervisor, Text: "Padding, written as zero."},
				{Name: "tsc_timestamp", Offset: 8, Size: 8, Writer: hypervisor, Text: "The CPU's TSC at the update."},
				{Name: "system_time", Offset: 16, Size: 8, Writer: hypervisor, Text: "Nanoseconds of system time at the update."},
				{Name: "tsc_to_system_mul", Offset: 24, Size: 4, Writer: hypervisor, Text: "Nanoseconds for each TSC tick, after tsc_shift, times 2^32."},
				{Name: "tsc_shift", Offset: 28, Size: 1, Writer: hypervisor, Text: "Shift of TSC ticks before they are multiplied: left, or right where negative."},
				{Name: "flags", Offset: 29, Size: 1, Writer: both, Text: "Bits below."},
				{Name: "pad", Offset: 30, Size: 2, Writer: hypervisor, Text: "Padding, written as zero."},
			},
			Bits: []FieldBit{
				{Field: "flags", Name: "TSC_STABLE", Bit: 0, Text: "Times of different CPUs are in order; counts with CLOCKSOURCE_STABLE_BIT."},
				{Field: "flags", Name: "GUEST_STOPPED", Bit: 1, Text: "The host had paused the guest; the guest clears it."},
				{Field: "flags", Name: "COUNTS_FROM_ZERO", Bit: 2, Text: "Spoilt; must not be used."},
			},
			Sources: []Source{clock("struct pvclock_vcpu_time_info"), clock("PVCLOCK_TSC_STABLE_BIT"), clock("PVCLOCK_GUEST_STOPPED"), clock("PVCLOCK_COUNTS_FROM_ZERO"),
				linux("arch/x86/kvm/x86.c", "kvm_setup_guest_pvclock"), linux("virt/kvm/pfncache.c", "kvm_gpc_is_valid_len"), docMSR},
		},
		{
			Name: "pvclock_wall_clock", Size: 12, Align: 4,
			Text: "The time of day at which system time was zero, as of the write to the register. Its alignment is not tested.",
			Fields: []Field{
				{Name: "version", Offset: 0, Size: 4, Writer: hypervisor, Text: "Even at rest, odd during an update."},
				{Name: "sec", Offset: 4, Size: 4, Writer: hypervisor, Text: "Seconds since 1970, modulo 2^32."},
				{Name: "nsec", Offset: 8, Size: 4, Writer: hypervisor, Text: "Nanoseconds."},
			},
			Sources: []Source{clock("struct pvclock_wall_clock"), linux("arch/x86/kvm/x86.c", "kvm_write_wall_clock"), docMSR},
		},
		{
			Name: "kvm_vcpu_pv_apf_data", Size: 64, Align: 64,
			Text: "What a CPU learns of its asynchronous page faults. The host reaches the first 8 bytes only.",
			Fields: []Field{
				{Name: "flags", Offset: 0, Size: 4, Writer: both, Text: "The reason of the page fault that is being taken; the guest clears it before it can take a fault of its own."},
				{Name: "token", Offset: 4, Size: 4, Writer: both, Text: "Which page is there, 0xffffffff for all; the guest clears it and then writes ASYNC_PF_ACK."},
				{Name: "pad", Offset: 8, Size: 56, Writer: nobody, Text: "Padding."},
			},
			Bits: []FieldBit{
				{Field: "flags", Name: "PAGE_NOT_PRESENT", Bit: 0, Text: "The host has the page fetched; CR2 is the token."},
			},
			Sources: []Source{header("struct kvm_vcpu_pv_apf_data"), header("KVM_PV_REASON_PAGE_NOT_PRESENT"),
				linux("arch/x86/kvm/x86.c", "kvm_pv_enable_async_pf"), linux("arch/x86/kvm/x86.c", "kvm_arch_async_page_present"), docMSR},
		},
		{
			Name: "pv_eoi", Size: 4, Align: 4,
			Text: "The end-of-interrupt word of a CPU. Only its first byte is in use, on both sides.",
			Fields: []Field{
				{Name: "word", Offset: 0, Size: 1, Writer: both, Text: "Bit below."},
				{Name: "pad", Offset: 1, Size: 3, Writer: nobody, Text: "Padding."},
			},
			Bits: []FieldBit{
				{Field: "word", Name: "ENABLED", Bit: 0, Text: "Set by the hypervisor: the interrupt in service is ended by clearing the bit, in one instruction; the APIC need not be told."},
			},
			Sources: []Source{header("KVM_PV_EOI_ENABLED"), linux("arch/x86/kvm/lapic.c", "pv_eoi_put_user").noting("one byte"),
				linux("arch/x86/kernel/kvm.c", "kvm_guest_apic_eoi_write"),
				docMSR.noting("speaks of an area of 4 bytes")},
		},
		{
			Name: "kvm_clock_pairing", Size: 64, Align: 1,
			Text: "What CLOCK_PAIRING writes. No alignment is asked for.",
			Fields: []Field{
				{Name: "sec", Offset: 0, Size: 8, Writer: hypervisor, Text: "Seconds of the clock, signed."},
				{Name: "nsec", Offset: 8, Size: 8, Writer: hypervisor, Text: "Nanoseconds of the clock, signed."},
				{Name: "tsc", Offset: 16, Size: 8, Writer: hypervisor, Text: "The guest's TSC of the same instant."},
				{Name: "flags", Offset: 24, Size: 4, Writer: hypervisor, Text: "Written as zero."},
				{Name: "pad", Offset: 28, Size: 36, Writer: hypervisor, Text: "Padding, written as zero."},
			},
			Sources: []Source{header("struct kvm_clock_pairing"), x86Pairing,
				docHypercalls.noting("names the structure kvm_clock_offset in one place")},
		},
	}
}

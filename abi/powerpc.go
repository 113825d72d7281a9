package abi

// PowerPCPAPR returns the ABI between a PAPR hypervisor and its PowerPC guests:
// shared processors (the SPLPAR option) and thread join.
//
// PAPR is a written standard, published as the Linux on Power Architecture
// Reference (LoPAR), and more than one program implements its hypervisor's side.
// The table gives what the standard says, and where it leaves something open what
// Linux relies on. Two implementers were read: QEMU's pseries machine, which
// answers all calls itself under TCG, and Linux KVM-HV, which answers CEDE,
// CONFER, PROD and REGISTER_VPA and leaves every other call to its VMM. Sources
// say which of them does what.
//
// So on KVM the hypervisor is two: what a guest finds by discovery is the VMM's word,
// for it writes the device tree; what KVM answers it tells the VMM alone, call by call
// (KVM_CAP_PPC_ENABLE_HCALL). The rules of the topic monitor are what KVM owes where it
// does not answer.
//
// Memory that both sides share is big-endian, whatever the guest's own order is.
func PowerPCPAPR() *Platform {
	return &Platform{
		Name:      "powerpc-papr",
		Title:     "PAPR on PowerPC",
		GOARCH:    []string{"ppc64le"},
		ByteOrder: "big",
		Scheduling: Scheduling{
			Kick: "PROD", KickTarget: 0,
			Yield: "CONFER", YieldTarget: 0,
			Wait:      "CEDE",
			Preempted: "lppaca.yield_count.YIELDED",
			Steal:     "lppaca.enqueue_dispatch_tb",
			Area:      "REGISTER_VPA",
		},
		Discovery:   paprDiscovery(),
		Conventions: paprConventions(),
		Calls:       paprCalls(),
		Errors:      paprErrors(),
		Features:    paprFeatures(),
		Registers:   paprRegisters(),
		Layouts:     paprLayouts(),
		Rules:       paprRules(),
		Silences: []Silence{
			{
				Question: "yield/self",
				Why: "A confer to the calling CPU itself is no yield: it waits until the CPU is prodded. " +
					"The rules confer/self-waits and confer/self-prodded are about it.",
				Sources: []Source{loparConfer, qemuConferSelf, paprHcall.noting("yields to the caller and returns at once")},
			},
			{
				Question: "preempted/offline",
				Why: "A guest deregisters the area of a CPU before it stops it, and the hypervisor then writes there no more, " +
					"so that yield_count keeps its last value. The rules vpa/deregistered-not-written and guest/deregisters-before-offline say so.",
				Sources: []Source{loparRegister, linux("arch/powerpc/platforms/pseries/hotplug-cpu.c", "pseries_cpu_offline_self")},
			},
		},
	}
}

func paprDiscovery() []Word {
	word := func(name string, number uint64, text string, sources ...Source) Word {
		return Word{Name: name, Number: number, Text: text, Sources: sources}
	}
	return []Word{
		word("string-end", 0, "The byte that ends each name in the property ibm,hypertas-functions of the node /rtas. The property is there if and only if there is a hypervisor.",
			loparCall, paprFirmware),
		word("last-call", 0x494, "The largest number of a call that Linux knows, but for those of implementers' own, which are from 0xef00 on.",
			linux("arch/powerpc/include/asm/hvcall.h", "MAX_HCALL_OPCODE")),
		word("first-free", 0x800, "From here to last-free no call is known, of PAPR or of an implementer. Below, PAPR has many calls that are not in this table, some of which reset the guest: free among them is only 0.",
			lopar("Hypervisor Call Function Table"), linux("arch/powerpc/include/asm/hvcall.h", "MAX_HCALL_OPCODE")),
		word("last-free", 0xeefc, "The end of that range.",
			linux("arch/powerpc/include/asm/hvcall.h", "H_SVM_PAGE_IN"), qemu("include/hw/ppc/spapr.h", "SVM_HCALL_BASE")),
		word("call-step", 4, "The distance between numbers of calls.", loparCall, qemuCall, paprHcall),
	}
}

func paprConventions() []Convention {
	forms := func() []Instruction {
		return []Instruction{
			{Mnemonic: "sc 1", Code: "44000022", Length: 4, When: "all; the code is given as a word, whose bytes a little-endian guest has in the reverse order"},
		}
	}
	args := func() []string {
		return []string{"r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12"}
	}
	return []Convention{
		{
			Name:         "hypervisor call",
			Instructions: forms(),
			Number:       "r3", Args: args(), Result: "r3",
			Width: 64,
			Text: "In privileged state. The status replaces the number in r3; further values are in r4 and up. Errors are negative. " +
				"r0, r3 to r12, CTR, XER and the condition register's fields 0, 1, 5, 6 and 7 are volatile; the others keep their values. " +
				"CONFER and PROD change no general register but r3.",
			Sources: []Source{loparCall, loparConfer, loparProd, paprHvcall,
				linux("arch/powerpc/platforms/pseries/hvCall.S", "plpar_hcall_norets_notrace").noting("keeps the condition register itself and the rest as the ABI of C does"),
				qemu("target/ppc/excp_helper.c", "powerpc_excp_books"), paprExit},
		},
		{
			Name:         "problem state",
			Instructions: forms(),
			Number:       "r3", Args: args(), Result: "r3",
			Width:   64,
			Text:    "In problem state, so from a user's process, every call gives PRIVILEGE, whatever the number, and has no effect.",
			Sources: paprUserRefused(),
		},
	}
}

func paprErrors() []Errno {
	row := func(name string, result int64, text string, sources ...Source) Errno {
		return Errno{
			Name: name, Result: result, Text: text,
			Sources: append([]Source{linux("arch/powerpc/include/asm/hvcall.h", "H_"+name)}, sources...),
		}
	}
	return []Errno{
		row("CONSTRAINED", 4, "Done as far as the partition's limits allow.", lopar("H_SET_PPP")),
		row("PENDING", 17, "There is work that could run on the calling CPU if it ceded.", lopar("H_POLL_PENDING")),
		row("CONTINUE", 18, "The caller of JOIN is the last thread that has not joined.", loparJoin),
		row("HARDWARE", -1, "A fault of the hardware. PAPR allows it of every call, for that reason only.", loparPrivilege),
		row("FUNCTION", -2, "There is no such call.", loparStatus),
		row("PRIVILEGE", -3, "The caller is not in privileged state.", loparPrivilege),
		row("PARAMETER", -4, "An argument has a value that the call does not take.", loparStatus),
		row("BAD_MODE", -5, "The machine state register has a bit that must not be set.", loparJoin),
		row("AUTHORITY", -10, "The partition may not make this call.", lopar("H_PIC")),
		row("RESOURCE", -16, "Another registration is missing, or is still there.", loparRegister),
		row("P2", -55, "The second argument has a value that the call does not take.", lopar("H_HOME_NODE_ASSOCIATIVITY")),
		row("STATE", -75, "The CPU that the call is about is online and not the caller. Newer text of PAPR allows it of REGISTER_VPA; neither implementer gives it.",
			loparRegister),
	}
}

// vpaFunction is the number of a subfunction of REGISTER_VPA in its place.
func vpaFunction(n int64) int64 { return n << 45 }

func paprCalls() []Call {
	call := func(name string, number uint64, feature, text string, args []Arg, outcomes []Outcome, sources ...Source) Call {
		return Call{
			Name: name, Number: number, Feature: feature, Text: text, Args: args, Outcomes: outcomes,
			Sources: append([]Source{linux("arch/powerpc/include/asm/hvcall.h", "H_"+name)}, sources...),
		}
	}
	return []Call{
		call("REGISTER_VPA", 0xdc, "SPLPAR",
			"Tells the hypervisor where an area of a CPU is, or that it has none any more. The last registration of an area wins. It takes effect when the CPU is dispatched next.",
			[]Arg{
				{
					Name: "flags", Text: "The subfunction, in bits 45 to 47 counted from the least significant; whether other bits are looked at is left to the implementer.",
					Values: []Value{
						{Name: "RESERVED_0", Number: vpaFunction(0)},
						{Name: "REGISTER_VPA", Number: vpaFunction(1)},
						{Name: "REGISTER_DTL", Number: vpaFunction(2)},
						{Name: "REGISTER_SLB", Number: vpaFunction(3)},
						{Name: "RESERVED_4", Number: vpaFunction(4)},
						{Name: "DEREGISTER_VPA", Number: vpaFunction(5)},
						{Name: "DEREGISTER_DTL", Number: vpaFunction(6)},
						{Name: "DEREGISTER_SLB", Number: vpaFunction(7)},
					},
				},
				{Name: "processor", Text: "Number of the CPU whose area it is. Calls for another CPU that is online are best avoided: newer text of PAPR allows STATE for them."},
				{
					Name: "area", Text: "Logical address of the area, aligned to a cache line. Its length is in the area, at byte 4, 2 bytes of a VPA and 4 bytes of the others. A VPA and an SLB shadow must not cross a boundary.",
					Values: []Value{
						{Name: "LENGTH_AT", Number: 4},
						{Name: "VPA_MINIMUM", Number: 640, Unit: "bytes"},
						{Name: "DTL_MINIMUM", Number: 48, Unit: "bytes"},
						{Name: "SLB_MINIMUM", Number: 8, Unit: "bytes"},
						{Name: "ALIGNMENT", Number: 128, Unit: "bytes"},
						{Name: "BOUNDARY", Number: 4096, Unit: "bytes"},
					},
				},
			},
			[]Outcome{
				{When: "VPA registered"},
				{When: "VPA registered again"},
				{When: "absent target", Error: "PARAMETER"},
				{When: "reserved subfunction", Error: "PARAMETER"},
				{When: "zero address", Error: "PARAMETER"},
				{When: "unaligned", Error: "PARAMETER"},
				{When: "outside memory", Error: "PARAMETER"},
				{When: "VPA too short", Error: "PARAMETER"},
				{When: "VPA crosses boundary", Error: "PARAMETER"},
				{When: "DTL registered"},
				{When: "DTL too short", Error: "PARAMETER"},
				{When: "DTL crosses boundary"},
				{When: "DTL without VPA", Error: "RESOURCE"},
				{When: "DTL too short without VPA", Error: "PARAMETER"},
				{When: "SLB registered"},
				{When: "SLB too short", Error: "PARAMETER"},
				{When: "SLB crosses boundary", Error: "PARAMETER"},
				{When: "SLB without VPA", Error: "RESOURCE"},
				{When: "VPA deregistered"},
				{When: "VPA deregistered, DTL registered", Error: "RESOURCE"},
				{When: "VPA deregistered, SLB registered", Error: "RESOURCE"},
				{When: "DTL deregistered"},
				{When: "SLB deregistered"},
				{When: "deregistered, not registered"},
			},
			loparRegister, linux("arch/powerpc/include/asm/hvcall.h", "H_VPA_FUNC_SHIFT"), paprRegister, qemuRegister),
		call("CEDE", 0xe0, "SPLPAR",
			"Waits: until an interrupt, which is taken, or until the CPU is prodded. Returns at once, and takes the prod with it, if the CPU was prodded since it was dispatched. Turns interrupts on.",
			nil,
			[]Outcome{{When: "prodded"}, {When: "prodded before"}, {When: "interrupted"}},
			loparCede, paprCede, qemuCede, paprGuestCede),
		call("CONFER", 0xe4, "SPLPAR",
			"Gives the rest of the caller's time slice to another CPU that is not dispatched, or to all of them; or, to the caller itself, waits until prodded.",
			[]Arg{
				{
					Name: "processor", Text: "Number of the CPU, the low 32 bits; ALL for any; the caller's own to wait.",
					Values: []Value{{Name: "ALL", Number: -1}},
				},
				{Name: "dispatch", Text: "The CPU's yield_count as the caller read it, the low 32 bits, which must be odd and still the same. Not looked at for ALL or for the caller itself."},
			},
			[]Outcome{
				{When: "self, prodded"},
				{When: "running target"},
				{When: "waiting target"},
				{When: "absent target", Error: "PARAMETER"},
				{When: "all processors"},
				{When: "even count"},
				{When: "stale count"},
				{When: "matching odd count"},
				{When: "target without VPA"},
			},
			loparConfer, paprHcall, paprYieldCount, qemuConfer),
		call("PROD", 0xe8, "SPLPAR",
			"Kicks: ends the wait of a CPU that ceded, conferred to itself or joined, or is kept so that its next wait ends at once. Being dispatched uses it up.",
			[]Arg{{Name: "processor", Text: "Number of the CPU, all 64 bits."}},
			[]Outcome{
				{When: "self"}, {When: "running target"}, {When: "waiting target"},
				{When: "absent target", Error: "PARAMETER"},
				{When: "target with high half", Error: "PARAMETER"},
			},
			loparProd, loparDispatch, paprHcall, qemuProd),
		call("GET_PPP", 0xec, "SPLPAR", "Gives the partition's share of the processors, in r4 to r8.", nil,
			[]Outcome{{When: "called"}}, lopar("H_GET_PPP"), linux("arch/powerpc/platforms/pseries/lparcfg.c", "h_get_ppp")),
		call("SET_PPP", 0xf0, "SPLPAR", "Changes the partition's share of the processors.",
			[]Arg{
				{Name: "entitlement", Text: "Hundredths of a processor."},
				{Name: "weight", Text: "Share of capacity that is left over.", Values: []Value{{Name: "WEIGHT_MAXIMUM", Number: 255}}},
			},
			[]Outcome{{When: "set"}, {When: "beyond limits", Error: "CONSTRAINED"}, {When: "weight too large", Error: "PARAMETER"}},
			lopar("H_SET_PPP"), linux("arch/powerpc/platforms/pseries/lparcfg.c", "update_ppp")),
		call("PURR", 0xf4, "SPLPAR", "Gives the time that the CPU was dispatched for, in r4, in time base ticks.", nil,
			[]Outcome{{When: "called"}}, lopar("H_PURR")),
		call("PIC", 0xf8, "PIC", "Gives the time that the pool of processors was idle, in r4, in time base ticks.", nil,
			[]Outcome{{When: "called"}, {When: "not allowed", Error: "AUTHORITY"}},
			lopar("H_PIC"), linux("arch/powerpc/platforms/pseries/lparcfg.c", "h_pic")),
		call("POLL_PENDING", 0x1d8, "POLL_PENDING", "Tells whether the hypervisor has work of its own that it would do on a CPU that ceded.", nil,
			[]Outcome{{When: "nothing pending"}, {When: "work pending", Error: "PENDING"}},
			lopar("H_POLL_PENDING"), linux("arch/powerpc/include/asm/plpar_wrappers.h", "poll_pending")),
		call("JOIN", 0x298, "JOIN",
			"Waits until prodded, with interrupts off, so that one thread stays that runs alone: for that one it returns at once.",
			nil,
			[]Outcome{{When: "prodded"}, {When: "interrupts on", Error: "BAD_MODE"}, {When: "last thread", Error: "CONTINUE"}},
			loparJoin, paprGuestJoin, qemuJoin),
		call("HOME_NODE_ASSOCIATIVITY", 0x2ec, "VPHN", "Gives the place of a CPU's home among processors and memory, in r4 to r9.",
			[]Arg{
				{Name: "flags", Text: "What the identifier is.", Values: []Value{{Name: "PROCESSOR", Number: 1}, {Name: "LOG_INDEX", Number: 2}}},
				{Name: "identifier", Text: "Number of a CPU, or processor_id of an entry of its dispatch trace log."},
			},
			[]Outcome{{When: "called"}, {When: "invalid flags", Error: "PARAMETER"}, {When: "absent target", Error: "P2"}},
			lopar("H_HOME_NODE_ASSOCIATIVITY"), linux("arch/powerpc/platforms/pseries/vphn.c", "hcall_vphn"),
			qemu("hw/ppc/spapr_numa.c", "h_home_node_associativity").noting("gives FUNCTION for all flags but PROCESSOR")),
		call("SIGNAL_SYS_RESET", 0x380, "", "Raises a system reset interrupt on CPUs. Listed so that nobody takes its number for a free one: it can reset the guest.",
			[]Arg{{Name: "target", Text: "Number of a CPU, or one of the values.", Values: []Value{{Name: "ALL", Number: -1}, {Name: "ALL_OTHERS", Number: -2}}}},
			[]Outcome{{When: "signalled"}, {When: "absent target", Error: "PARAMETER"}},
			linux("arch/powerpc/include/asm/plpar_wrappers.h", "plpar_signal_sys_reset"), qemu("hw/ppc/spapr_hcall.c", "h_signal_sys_reset")),
	}
}

func paprFeatures() []Feature {
	set := func(name, word, text string, sources ...Source) Feature {
		return Feature{
			Name: name, Word: word, Text: text, Offered: "vmm",
			Sources: append([]Source{loparCall, lopar("Hypervisor Call Function Table")}, sources...),
		}
	}
	return []Feature{
		set("SPLPAR", "hcall-splpar", "The calls REGISTER_VPA, CEDE, CONFER, PROD, GET_PPP, SET_PPP and PURR.", paprFirmware, qemuHypertas),
		set("JOIN", "hcall-join", "The call JOIN.", qemuHypertas),
		set("POLL_PENDING", "hcall-poll-pending", "The call POLL_PENDING.", qemuHypertas.noting("does not offer it")),
		set("PIC", "hcall-pic", "The call PIC.", qemuHypertas.noting("does not offer it")),
		set("VPHN", "hcall-vphn", "The call HOME_NODE_ASSOCIATIVITY.", paprFirmware, qemuHypertas),
		{
			Name: "SHARED_PROC", Word: "lppaca.__old_status", Bit: 1, Offered: "kernel",
			Text: "CPUs share processors, so that they can be preempted. Linux looks at the bit in the VPA of the boot CPU once that is registered; " +
				"PAPR keeps the byte for firmware and does not name the bit.",
			Sources: []Source{linux("arch/powerpc/include/asm/lppaca.h", "LPPACA_OLD_SHARED_PROC"), paprSharedProc, paprInitVPA,
				qemuRegister, lopar("Per Virtual Processor Area").noting("reserved for firmware use")},
		},
		{
			Name: "LINUX_KVM", Word: "linux,kvm", Offered: "vmm",
			Text:    "The hypervisor is Linux KVM, or says so: the node /hypervisor is compatible with it. CPUs of one core are then not dispatched together.",
			Sources: []Source{linux("arch/powerpc/kernel/firmware.c", "check_kvm_guest"), paprPreempted, qemu("hw/ppc/spapr.c", "spapr_dt_hypervisor")},
		},
	}
}

func paprRegisters() []Register {
	return []Register{
		{
			Name: "MSR", Readable: true,
			Text: "Machine state register. Instructions of its own read and write it, so that it has no number.",
			Bits: []RegisterBit{
				{Name: "EE", Bit: 15, Text: "External, decrementer and doorbell interrupts are on."},
				{Name: "PR", Bit: 14, Text: "Problem state, so not privileged."},
			},
			Sources: []Source{linux("arch/powerpc/include/asm/reg.h", "MSR_EE_LG"), linux("arch/powerpc/include/asm/reg.h", "MSR_PR_LG"), loparCede},
		},
		{
			Name: "DEC", Number: 22, Readable: true,
			Text:    "Decrementer: counts down with the time base and interrupts once it is negative. It goes on while the CPU waits.",
			Sources: []Source{linux("arch/powerpc/include/asm/reg.h", "SPRN_DEC"), lopar("Shared Processor LPAR Option")},
		},
	}
}

func paprLayouts() []Layout {
	const hypervisor, guest, both, nobody = string(Hypervisor), string(Guest), "both", "nobody"
	return []Layout{
		{
			Name: "lppaca", Size: 640, Align: 128,
			Text: "The virtual processor area (VPA) of a CPU. It must not cross a multiple of 4096 bytes. Linux says that it is 1024 bytes long, for KVM before 4.14.",
			Fields: []Field{
				{Name: "desc", Offset: 0x000, Size: 4, Writer: guest, Text: "Eye-catcher, 0xd397d781 by custom; nobody depends on it."},
				{Name: "size", Offset: 0x004, Size: 2, Writer: guest, Text: "Length of the area in bytes, at least 640; read at registration."},
				{Name: "reserved1", Offset: 0x006, Size: 3, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "__old_status", Offset: 0x009, Size: 1, Writer: hypervisor, Text: "Firmware's own but for the bit below, on which Linux relies."},
				{Name: "reserved3", Offset: 0x00a, Size: 14, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "dyn_hw_node_id", Offset: 0x018, Size: 4, Writer: hypervisor, Text: "Physical unit of the processor."},
				{Name: "dyn_hw_proc_id", Offset: 0x01c, Size: 4, Writer: hypervisor, Text: "Physical processor in that unit."},
				{Name: "reserved4", Offset: 0x020, Size: 56, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "vphn_assoc_counts", Offset: 0x058, Size: 8, Writer: hypervisor, Text: "A byte for each of 8 levels, which changes as the CPU's home there does."},
				{Name: "reserved5", Offset: 0x060, Size: 32, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "reserved6", Offset: 0x080, Size: 48, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "cede_latency_hint", Offset: 0x0b0, Size: 1, Writer: guest, Text: "How long the end of a CEDE may take, 0 for the shortest."},
				{Name: "ebb_regs_in_use", Offset: 0x0b1, Size: 1, Writer: guest, Text: "Whether event-based branch state must be kept."},
				{Name: "reserved7", Offset: 0x0b2, Size: 6, Writer: nobody, Text: "Kept for later."},
				{Name: "dtl_enable_mask", Offset: 0x0b8, Size: 1, Writer: guest, Text: "What the dispatch trace log has entries of; bits below."},
				{Name: "donate_dedicated_cpu", Offset: 0x0b9, Size: 1, Writer: guest, Text: "Whether a dedicated processor may serve others while the CPU waits."},
				{Name: "fpregs_in_use", Offset: 0x0ba, Size: 1, Writer: guest, Text: "Whether floating-point registers must be kept."},
				{Name: "pmcregs_in_use", Offset: 0x0bb, Size: 1, Writer: guest, Text: "Whether performance counters must be kept."},
				{Name: "l2_counters_enable", Offset: 0x0bc, Size: 1, Writer: guest, Text: "Whether the hypervisor counts for guests of this guest."},
				{Name: "reserved8", Offset: 0x0bd, Size: 27, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "wait_state_cycles", Offset: 0x0d8, Size: 8, Writer: guest, Text: "Ticks for which the CPU was idle, the guest's estimate."},
				{Name: "reserved9", Offset: 0x0e0, Size: 28, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "slb_count", Offset: 0x0fc, Size: 2, Writer: guest, Text: "How many segment lookaside entries must be kept, 0xffff for all."},
				{Name: "idle", Offset: 0x0fe, Size: 1, Writer: guest, Text: "1 while the guest has nothing to do on the CPU, else 0."},
				{Name: "vmxregs_in_use", Offset: 0x0ff, Size: 1, Writer: guest, Text: "Whether vector registers must be kept."},
				{Name: "yield_count", Offset: 0x100, Size: 4, Writer: hypervisor, Text: "One more at each dispatch and at each end of one; even while dispatched, odd while ceded, conferred or preempted."},
				{Name: "dispersion_count", Offset: 0x104, Size: 4, Writer: hypervisor, Text: "Dispatches on another processor than the one before; Linux KVM-HV and QEMU leave it alone."},
				{Name: "cmo_faults", Offset: 0x108, Size: 8, Writer: hypervisor, Text: "Faults on memory that the hypervisor had paged out."},
				{Name: "cmo_fault_time", Offset: 0x110, Size: 8, Writer: hypervisor, Text: "Ticks spent on such faults."},
				{Name: "reserved10", Offset: 0x118, Size: 64, Writer: hypervisor, Text: "Eight counters of cycles taken from the CPU or donated by it."},
				{Name: "enqueue_dispatch_tb", Offset: 0x158, Size: 8, Writer: hypervisor, Text: "Ticks of waiting for a processor; steal time, with the next."},
				{Name: "ready_enqueue_tb", Offset: 0x160, Size: 8, Writer: hypervisor, Text: "Ticks of waiting for the partition's share; steal time, with the one before. Linux KVM-HV leaves it alone."},
				{Name: "wait_ready_tb", Offset: 0x168, Size: 8, Writer: hypervisor, Text: "Ticks of waiting to become ready: for a fault, or for the end of a CEDE. Linux KVM-HV leaves it alone."},
				{Name: "reserved11", Offset: 0x170, Size: 16, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "page_ins", Offset: 0x180, Size: 4, Writer: guest, Text: "Pages that the guest has read back in."},
				{Name: "reserved12", Offset: 0x184, Size: 28, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "l1_to_l2_cs_tb", Offset: 0x1a0, Size: 8, Writer: hypervisor, Text: "Ticks of switching to guests of this guest; not in the published text."},
				{Name: "l2_to_l1_cs_tb", Offset: 0x1a8, Size: 8, Writer: hypervisor, Text: "Ticks of switching back from them; not in the published text."},
				{Name: "l2_runtime_tb", Offset: 0x1b0, Size: 8, Writer: hypervisor, Text: "Ticks for which they ran; not in the published text."},
				{Name: "reserved13", Offset: 0x1b8, Size: 96, Writer: hypervisor, Text: "Firmware's own."},
				{Name: "dtl_idx", Offset: 0x218, Size: 8, Writer: both, Text: "Entries written to the dispatch trace log since its registration; the guest clears it before."},
				{Name: "reserved14", Offset: 0x220, Size: 96, Writer: hypervisor, Text: "Firmware's own."},
			},
			Bits: []FieldBit{
				{Field: "__old_status", Name: "SHARED_PROC", Bit: 1, Text: "CPUs share processors; set at registration."},
				{Field: "dtl_enable_mask", Name: "CEDE", Bit: 0, Text: "Waits of the CPU's own will."},
				{Field: "dtl_enable_mask", Name: "PREEMPT", Bit: 1, Text: "Ends of time slices."},
				{Field: "dtl_enable_mask", Name: "FAULT", Bit: 2, Text: "Faults on memory that the hypervisor had paged out."},
				{Field: "yield_count", Name: "YIELDED", Bit: 0, Text: "The CPU is not dispatched."},
			},
			Sources: []Source{lopar("Per Virtual Processor Area"), linux("arch/powerpc/include/asm/lppaca.h", "struct lppaca"),
				linux("arch/powerpc/include/asm/dtl.h", "DTL_LOG_CEDE"), paprCount, qemuEnter, qemuExit},
		},
		{
			Name: "dtl_entry", Size: 48, Align: 16,
			Text: "An entry of a CPU's dispatch trace log. The log is a ring of as many entries as its length, read from byte 4 at registration, has room for; the first overwrites the length. A log is aligned to 128 bytes and of at most 4096.",
			Fields: []Field{
				{Name: "dispatch_reason", Offset: 0, Size: 1, Writer: hypervisor, Text: "Why the CPU was dispatched: 0 interrupt, 2 prod, 3 decrementer, 6 conferred to, 7 its time slice, 8 fault resolved, 10 doorbell; 1, 4 and 5 firmware and reset."},
				{Name: "preempt_reason", Offset: 1, Size: 1, Writer: hypervisor, Text: "Why it was taken off before: 0 not used, 1 firmware, 2 CEDE, 3 CONFER, 4 end of its time slice, 5 and 6 faults."},
				{Name: "processor_id", Offset: 2, Size: 2, Writer: hypervisor, Text: "Processor on which it was dispatched."},
				{Name: "enqueue_to_dispatch_time", Offset: 4, Size: 4, Writer: both, Text: "Ticks of waiting for a processor; holds the log's length at registration."},
				{Name: "ready_to_enqueue_time", Offset: 8, Size: 4, Writer: hypervisor, Text: "Ticks of waiting for the partition's share."},
				{Name: "waiting_to_ready_time", Offset: 12, Size: 4, Writer: hypervisor, Text: "Ticks of waiting to become ready."},
				{Name: "timebase", Offset: 16, Size: 8, Writer: hypervisor, Text: "Time base at the dispatch."},
				{Name: "fault_addr", Offset: 24, Size: 8, Writer: hypervisor, Text: "Logical address of the page, for the preempt reasons 5 and 6."},
				{Name: "srr0", Offset: 32, Size: 8, Writer: hypervisor, Text: "Address at which the CPU was taken off."},
				{Name: "srr1", Offset: 40, Size: 8, Writer: hypervisor, Text: "Machine state in which it was taken off."},
			},
			Sources: []Source{lopar("Dispatch Trace Log Buffer"), linux("arch/powerpc/include/asm/dtl.h", "struct dtl_entry"), paprLog.noting("the reasons are always 7 and 0, and of the times only the first is not zero"),
				linux("arch/powerpc/platforms/pseries/lpar.c", "register_dtl_buffer")},
		},
		{
			Name: "slb_shadow", Size: 48, Align: 128,
			Text: "The segment lookaside entries of a CPU that the hypervisor restores at each dispatch, as many as Linux keeps. The area must not cross a multiple of 4096 bytes. Guests that translate by radix trees have none.",
			Fields: []Field{
				{Name: "persistent", Offset: 0, Size: 4, Writer: guest, Text: "How many of the entries are to be restored."},
				{Name: "buffer_length", Offset: 4, Size: 4, Writer: guest, Text: "Length of the area in bytes, at least 8; read at registration."},
				{Name: "reserved", Offset: 8, Size: 8, Writer: nobody, Text: "Kept for later."},
				{Name: "esid0", Offset: 16, Size: 8, Writer: guest, Text: "First entry, effective segment."},
				{Name: "vsid0", Offset: 24, Size: 8, Writer: guest, Text: "First entry, virtual segment."},
				{Name: "esid1", Offset: 32, Size: 8, Writer: guest, Text: "Second entry, effective segment."},
				{Name: "vsid1", Offset: 40, Size: 8, Writer: guest, Text: "Second entry, virtual segment."},
			},
			Sources: []Source{lopar("SLB Shadow Buffer"), linux("arch/powerpc/include/asm/lppaca.h", "struct slb_shadow"),
				linux("arch/powerpc/platforms/pseries/lpar.c", "vpa_init")},
		},
	}
}

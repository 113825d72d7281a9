package abi

// Proposal is one number, name or layout that a mailing-list thread proposed,
// and what stands in its place today.
type Proposal struct {
	// Thread is the subject of the thread, Date its year and month.
	Thread string `json:"thread"`
	Date   string `json:"date"`
	// Platform is the name of the platform that it was for.
	Platform string `json:"platform"`
	// Kind is "call", "feature", "register" or "layout".
	Kind string `json:"kind"`
	// Name and Number are those proposed. Number is empty where there was none
	// or where it is not known for certain.
	Name   string `json:"name"`
	Number string `json:"number,omitempty"`
	// Today says what became of the proposal.
	Today string `json:"today"`
	// Collision says what a guest or host built to the proposal meets today.
	Collision string   `json:"collision"`
	Sources   []Source `json:"sources"`
}

// Thread is a discussion, or a body of code, that the ABI grew from.
type Thread struct {
	// Subject names the thread, Date its year and month.
	Subject string `json:"subject"`
	Date    string `json:"date"`
	// Platforms are the names of those that it was about.
	Platforms []string `json:"platforms"`
	// Proposed says what it was for, Ended what became of it.
	Proposed string   `json:"proposed"`
	Ended    string   `json:"ended"`
	Sources  []Source `json:"sources"`
}

// HistoryTable is what was proposed and what it means today.
type HistoryTable struct {
	Threads   []Thread   `json:"threads"`
	Proposals []Proposal `json:"proposals"`
}

// The threads.
const (
	threadKick2011   = "RFC V2: kvm paravirt-spinlock support for KVM"
	threadTicket2012 = "RFC V8: paravirtualized ticket spinlocks"
	threadFlush2012  = "KVM paravirt kvm_flush_tlb_others"
	threadVCPU2016   = "v4: implement vcpu preempted check"
	vendorsLoong     = "kernels of distributors, before the calls were merged"
	threadLoong2024  = "LoongArch: add paravirt qspinlock support"
)

// History returns what the threads proposed, oldest first.
func History() HistoryTable {
	mail := func(thread, note string) Source {
		return Source{Tree: "linux-kernel and kvm lists", Path: thread, Note: note}
	}
	unread := "its numbers are left out: not checked against the mails"
	calls := func(symbol string) Source { return linux("include/uapi/linux/kvm_para.h", symbol) }
	para := func(symbol string) Source { return linux("arch/x86/include/uapi/asm/kvm_para.h", symbol) }
	loong := func(symbol string) Source { return linux("arch/loongarch/include/asm/kvm_para.h", symbol) }
	threads := []Thread{
		{
			Subject: threadKick2011, Date: "2011-10", Platforms: []string{"x86-kvm"},
			Proposed: "Two calls for spinlocks: by one a CPU blocks, by the other somebody kicks it out of that.",
			Ended:    "The kick was merged in Linux 3.12 as call 5, KICK_CPU. The wait became HLT.",
			Sources:  []Source{calls("KVM_HC_KICK_CPU"), x86GuestWait},
		},
		{
			Subject: threadFlush2012, Date: "2012", Platforms: []string{"x86-kvm"},
			Proposed: "An area for each CPU that tells whether it runs, and asks for a flush of its TLB at its next entry.",
			Ended:    "Not merged. The idea came back in the byte preempted of kvm_steal_time: PV_TLB_FLUSH, in Linux 4.16.",
			Sources:  []Source{para("KVM_FEATURE_PV_TLB_FLUSH"), para("KVM_VCPU_FLUSH_TLB")},
		},
		{
			Subject: threadTicket2012, Date: "2012-05", Platforms: []string{"x86-kvm"},
			Proposed: "Ticket spinlocks whose waiters halt, and are kicked by the one who unlocks.",
			Ended:    "A later version was merged in Linux 3.12: PV_UNHALT and KICK_CPU. Queued locks took the place of ticket locks in 4.2, by the same ABI.",
			Sources:  []Source{para("KVM_FEATURE_PV_UNHALT"), linux("arch/x86/kernel/kvm.c", "kvm_spinlock_init")},
		},
		{
			Subject: threadVCPU2016, Date: "2016-10", Platforms: []string{"powerpc-papr", "s390", "x86-kvm", "x86-xen"},
			Proposed: "A query, vcpu_is_preempted: who spins for a lock may know that its holder does not run.",
			Ended:    "Merged in Linux 4.10 on all four platforms; of these only KVM on x86 got something new in its ABI for it. LoongArch came later, by the feature PREEMPT.",
			Sources: []Source{
				linux("arch/x86/kernel/kvm.c", "__kvm_vcpu_is_preempted"), linux("drivers/xen/time.c", "xen_vcpu_stolen"),
				linux("arch/powerpc/include/asm/paravirt.h", "vcpu_is_preempted"), linux("arch/s390/kernel/smp.c", "arch_vcpu_is_preempted"),
				linux("arch/loongarch/include/uapi/asm/kvm_para.h", "KVM_FEATURE_PREEMPT"),
			},
		},
		{
			Subject: vendorsLoong, Date: "2023", Platforms: []string{"loongarch-kvm"},
			Proposed: "Steal time and interrupts by call, found by a call.",
			Ended:    "Merged in Linux with other numbers, and found by CPUCFG: interrupts in 6.10, steal time in 6.11.",
			Sources:  []Source{loongVendor, loong("KVM_HCALL_FUNC_IPI"), loong("KVM_HCALL_FUNC_NOTIFY")},
		},
		{
			Subject: threadLoong2024, Date: "2024-07", Platforms: []string{"loongarch-kvm"},
			Proposed: "Queued spinlocks whose waiters sleep and are kicked, on host and guest.",
			Ended:    "Not merged. Guests use test-and-set locks; what came is PREEMPT, in Linux 7.0, which has the number of the feature that was proposed.",
			Sources:  []Source{loongProposal, linux("arch/loongarch/include/asm/qspinlock.h", "virt_spin_lock"), linux("arch/loongarch/include/uapi/asm/kvm_para.h", "KVM_FEATURE_PREEMPT")},
		},
	}
	return HistoryTable{Threads: threads, Proposals: []Proposal{
		{
			Thread: threadKick2011, Date: "2011-10", Platform: "x86-kvm", Kind: "call",
			Name:  "WAIT_FOR_KICK",
			Today: "There is no call that waits. A guest waits by HLT, with interrupts off or on, and a kick ends that.",
			Collision: "None of the numbers 6, 7 and 8, which follow KICK_CPU, is a call on x86: they were given to MIPS and give -ENOSYS. " +
				"A guest that counts on a call to put it to sleep spins instead.",
			Sources: []Source{
				mail(threadKick2011, unread), x86Hypercall, x86GuestWait,
				calls("KVM_HC_MIPS_GET_CLOCK_FREQ"),
			},
		},
		{
			Thread: threadKick2011, Date: "2011-10", Platform: "x86-kvm", Kind: "call",
			Name:      "KICK_CPU",
			Today:     "KICK_CPU is number 5: a0 holds flags that nobody reads, a1 the APIC id.",
			Collision: "A guest that would wait by call 5 kicks whatever CPU RCX names instead, is given 0 and does not sleep.",
			Sources:   []Source{mail(threadKick2011, unread), calls("KVM_HC_KICK_CPU"), x86Hypercall},
		},
		{
			Thread: threadTicket2012, Date: "2012-05", Platform: "x86-kvm", Kind: "call",
			Name: "KICK_CPU", Number: "5",
			Today:     "The number was kept, the arguments were not: flags came before the APIC id. Merged in Linux 3.12; the ticket locks gave way to queued ones in 4.2.",
			Collision: "A guest that passes the APIC id as the only argument kicks whatever CPU RCX names.",
			Sources: []Source{
				mail(threadTicket2012, "number and argument not checked against the mails"),
				calls("KVM_HC_KICK_CPU"), linux("arch/x86/kernel/kvm.c", "kvm_kick_cpu"),
			},
		},
		{
			Thread: threadTicket2012, Date: "2012-05", Platform: "x86-kvm", Kind: "feature",
			Name:      "PV_UNHALT",
			Today:     "PV_UNHALT is bit 7; bit 6 went to PV_EOI in Linux 3.6, before the spinlocks were merged.",
			Collision: "A guest that looks for the kick in bit 6 finds PV_EOI: it would wait by HLT for kicks on a host that need not have them.",
			Sources: []Source{
				mail(threadTicket2012, unread), para("KVM_FEATURE_PV_UNHALT"), para("KVM_FEATURE_PV_EOI"),
			},
		},
		{
			Thread: threadFlush2012, Date: "2012", Platform: "x86-kvm", Kind: "feature",
			Name: "VCPU_STATE", Number: "7",
			Today:     "Bit 7 is PV_UNHALT. The idea came back as PV_TLB_FLUSH, bit 9, in Linux 4.16.",
			Collision: "A guest built to the proposal takes every host that can kick for one that shares its CPUs' state.",
			Sources: []Source{
				mail(threadFlush2012, "named in the thread"), para("KVM_FEATURE_PV_UNHALT"), para("KVM_FEATURE_PV_TLB_FLUSH"),
			},
		},
		{
			Thread: threadFlush2012, Date: "2012", Platform: "x86-kvm", Kind: "register",
			Name: "VCPU_STATE", Number: "0x4b564d04",
			Today: "0x4b564d04 is PV_EOI_EN, with the same enable bit 0.",
			Collision: "The host accepts such a guest's address, takes it for an end-of-interrupt word and sets and clears bit 0 of it, " +
				"where the guest reads whether a CPU runs. Only an address with bit 1 set is refused.",
			Sources: []Source{
				mail(threadFlush2012, "named in the thread"), para("MSR_KVM_PV_EOI_EN"), linux("arch/x86/kvm/lapic.c", "kvm_lapic_set_pv_eoi"),
			},
		},
		{
			Thread: threadFlush2012, Date: "2012", Platform: "x86-kvm", Kind: "layout",
			Name:      "state at byte 0, flush_on_enter at byte 4, of 64 bytes",
			Today:     "Both are bits of one byte, preempted, in kvm_steal_time: PREEMPTED and FLUSH_TLB. No area of its own.",
			Collision: "None in memory: nothing of today lies in an area of that shape.",
			Sources: []Source{
				mail(threadFlush2012, "named in the thread"), para("struct kvm_steal_time"), para("KVM_VCPU_FLUSH_TLB"), x86Steal,
			},
		},
		{
			Thread: threadVCPU2016, Date: "2016-10", Platform: "x86-kvm", Kind: "layout",
			Name:  "preempted, a word of 4 bytes in the padding of kvm_steal_time, 0 or 1",
			Today: "Preempted is a byte of bits at offset 16, with three bytes of padding after it. Merged in Linux 4.10; FLUSH_TLB was added in 4.16.",
			Collision: "A reader of 4 bytes sees the same while the padding stays zero, but finds 3 where a flush was asked for. " +
				"Linux itself looks at the whole byte in 64-bit guests and at bit 0 in 32-bit ones.",
			Sources: []Source{
				mail(threadVCPU2016, "the width not checked against the mails"), para("struct kvm_steal_time"),
				linux("arch/x86/kernel/kvm.c", "__kvm_vcpu_is_preempted"),
			},
		},
		{
			Thread: vendorsLoong, Date: "2023", Platform: "loongarch-kvm", Kind: "call",
			Name: "FEATURE", Number: "0",
			Today: "Features are found by CPUCFG. Function 0 is not defined and gives -1.",
			Collision: "A guest of a distributor's kernel asks by HVCL 0, of which every function gives -1 on Linux, and so finds nothing and calls no more. " +
				"On such a host a guest of Linux finds no signature, and calls nothing either.",
			Sources: []Source{loongVendor, loongHypercall, loongCPUCFG},
		},
		{
			Thread: vendorsLoong, Date: "2023", Platform: "loongarch-kvm", Kind: "call",
			Name: "NOTIFY", Number: "1",
			Today:     "NOTIFY is function 2 of HVCL 0x100; function 1 is IPI.",
			Collision: "A host that has Linux's code and the distributor's functions takes each IPI of a guest of Linux for a NOTIFY: no CPU is woken, and what is refused is not looked at by the guest.",
			Sources:   []Source{loongVendor, loong("KVM_HCALL_FUNC_NOTIFY"), loongService},
		},
		{
			Thread: vendorsLoong, Date: "2023", Platform: "loongarch-kvm", Kind: "call",
			Name: "IPI, giving 1 for success", Number: "2",
			Today:     "IPI is function 1 of HVCL 0x100, and success is 0.",
			Collision: "The functions are swapped, and the value for success is none of Linux's. A guest that takes 0 for success takes a call that worked for one that did not.",
			Sources:   []Source{loongVendor, loong("KVM_HCALL_FUNC_IPI"), loong("KVM_HCALL_SUCCESS")},
		},
		{
			Thread: vendorsLoong, Date: "2023", Platform: "loongarch-kvm", Kind: "feature",
			Name: "STEAL_TIME", Number: "0",
			Today:     "STEAL_TIME is bit 2 of the features; bit 0 is not defined.",
			Collision: "None where each side finds out by its own way; NOTIFY names what it is about by the bit, so that 1 stands there in place of 4 and is refused.",
			Sources:   []Source{loongVendor, linux("arch/loongarch/include/uapi/asm/kvm_para.h", "KVM_FEATURE_STEAL_TIME"), loongNotify},
		},
		{
			Thread: threadLoong2024, Date: "2024-07", Platform: "loongarch-kvm", Kind: "call",
			Name: "KICK", Number: "3",
			Today:     "Function 3 of the service hypercall is not defined and gives -1. There is no kick; guests use test-and-set locks.",
			Collision: "A guest built to the proposal is refused its kicks, and whoever waits for one sleeps until an interrupt comes.",
			Sources: []Source{
				loongProposal, loong("KVM_HCALL_FUNC_NOTIFY"), linux("arch/loongarch/kvm/exit.c", "kvm_handle_service"),
			},
		},
		{
			Thread: threadLoong2024, Date: "2024-07", Platform: "loongarch-kvm", Kind: "feature",
			Name: "PARAVIRT_SPINLOCK", Number: "3",
			Today:     "Bit 3 is PREEMPT: kvm_steal_time has a byte preempted.",
			Collision: "A guest built to the proposal takes a host that tells of preemption for one that can kick, and waits for kicks that never come.",
			Sources: []Source{
				loongProposal, linux("arch/loongarch/include/uapi/asm/kvm_para.h", "KVM_FEATURE_PREEMPT"),
			},
		},
	}}
}

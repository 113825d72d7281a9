package conformance

import "pvabi/abi"

// linuxX86GuestDeviations is what Linux is known to do otherwise as a guest of KVM on x86. What each says
// was seen in a run and read in Linux's source.
var linuxX86GuestDeviations = []Deviation{
	{
		ID: "linux-x86-async-pf-int-alone", Rule: "x86-kvm/guest/async-faults-needs-both",
		Implementer: Linux, From: "5.9",
		Text: "looks for ASYNC_PF_INT only, so that it writes ASYNC_PF_EN where ASYNC_PF is not offered, which a VMM that enforces the features has refused",
		Sources: []abi.Source{
			{Tree: "Linux 7.2.12", Path: "arch/x86/kernel/kvm.c", Symbol: "kvm_guest_cpu_init"},
			{Tree: "Linux 7.2.12", Path: "arch/x86/kvm/x86.c", Symbol: "kvm_set_msr_common", Note: "refuses the register without ASYNC_PF, if features are enforced"},
		},
	},
}

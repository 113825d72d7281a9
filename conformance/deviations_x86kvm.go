package conformance

import "pvabi/abi"

// linuxKVMDeviations is what versions of Linux' KVM on x86 are known to do otherwise. What each
// says was seen in a run and read in the source.
var linuxKVMDeviations = []Deviation{
	{
		ID: "kvm-async-pf-refused-but-kept", Rule: "x86-kvm/async-pf/area-outside-memory",
		Implementer: "Linux KVM", From: "5.8", Before: "7.2",
		Text: "puts the value into ASYNC_PF_EN before it looks for the memory, so that what is refused is read back",
		Sources: []abi.Source{{
			Tree: "Linux 6.12", Path: "arch/x86/kvm/x86.c", Symbol: "kvm_pv_enable_async_pf",
			Note: "mended by a series of patches of April 2026, msgid 20260406225359.1245490-1-seanjc@google.com",
		}},
	},
	{
		ID: "kvm-pv-unhalt-withdrawn-in-leaf-only", Rule: "x86-kvm/discovery/pv-unhalt-withdrawn",
		Implementer: "Linux KVM", From: "5.17", Before: "6.9",
		Text: "takes the bit out of the leaf only when CPUID is brought up to date later, as it does not yet know where the leaf is when CPUID is set, and goes on to accept the call where features are enforced",
		Sources: []abi.Source{{
			Tree: "Linux 6.1", Path: "arch/x86/kvm/cpuid.c", Symbol: "__kvm_update_cpuid_runtime",
			Note: "called by kvm_set_cpuid ahead of kvm_update_kvm_cpuid_base since commit ee3a5f9e3d9b; mended by 4736d85f0d18",
		}},
	},
}

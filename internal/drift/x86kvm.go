package drift

import (
	"strconv"
	"strings"

	"pvabi/abi"
)

// x86KVM binds x86-kvm. Almost all its numbers are macros, each named by the row's name
// and a prefix.
func x86KVM() table {
	return table{
		abi:    abi.X86KVM,
		goarch: "amd64",
		headers: []header{
			{file: "include/uapi/asm-generic/errno-base.h"},
			{file: "arch/x86/include/uapi/asm/kvm_para.h"},
			{file: "include/uapi/linux/kvm_para.h"},
			{file: "arch/x86/include/asm/pvclock-abi.h"},
		},
		bindings: x86KVMBindings,
		families: []family{
			{prefix: "KVM_HC_"},
			{prefix: "KVM_FEATURE_"},
			{prefix: "KVM_HINTS_"},
			{prefix: "MSR_KVM_"},
			{prefix: "KVM_VCPU_"},
			{prefix: "KVM_ASYNC_PF_", known: names("KVM_ASYNC_PF_VEC_MASK")},
			// PAGE_READY was delivered by an exception until 5.9 and is not used any more.
			{prefix: "KVM_PV_REASON_", known: names("KVM_PV_REASON_PAGE_READY")},
			{prefix: "PVCLOCK_"},
		},
		documents: []document{
			{file: "Documentation/virt/kvm/x86/hypercalls.rst", looks: []look{sectionNumbers, unknownNames}},
			{file: "Documentation/virt/kvm/x86/msr.rst", looks: []look{labelledNumbers, unknownNames, cpuidLeaves}},
			{file: "Documentation/virt/kvm/x86/cpuid.rst", looks: []look{columnNumbers, unknownNames, cpuidLeaves}},
		},
	}
}

func x86KVMBindings(p *abi.Platform) []binding {
	out := members(p, "pv_eoi")
	for _, c := range p.Calls {
		out = append(out, binding{number: "calls/" + c.Name + "/number", c: "KVM_HC_" + c.Name, since: since(p, c.Feature)})
	}
	for _, e := range p.Errors {
		out = append(out, binding{number: "errors/" + e.Name + "/result", c: "-KVM_" + e.Name})
	}
	for _, f := range p.Features {
		prefix := "KVM_FEATURE_"
		if f.Word == "hints" {
			prefix = "KVM_HINTS_"
		}
		out = append(out, binding{number: "features/" + f.Name + "/bit", c: prefix + f.Name, since: f.Since})
	}
	for _, r := range p.Registers {
		out = append(out, binding{number: "registers/" + r.Name + "/number", c: "MSR_KVM_" + r.Name, since: since(p, r.Feature)})
	}
	for _, b := range p.Register("ASYNC_PF_EN").Bits {
		out = append(out, binding{number: "registers/ASYNC_PF_EN/bits/" + b.Name + "/bit", c: "KVM_ASYNC_PF_" + b.Name, what: bit})
	}
	return append(out,
		binding{number: "registers/ASYNC_PF_EN/enable", c: "KVM_ASYNC_PF_ENABLED"},
		binding{number: "registers/STEAL_TIME/enable", c: "KVM_MSR_ENABLED"},
		binding{number: "registers/STEAL_TIME/reserved", c: "KVM_STEAL_RESERVED_MASK"},
		binding{number: "registers/MIGRATION_CONTROL/bits/READY/bit", c: "KVM_MIGRATION_READY", what: bit, since: since(p, "MIGRATION_CONTROL")},
		binding{number: "layouts/kvm_steal_time/bits/preempted.PREEMPTED/bit", c: "KVM_VCPU_PREEMPTED", what: bit},
		binding{number: "layouts/kvm_steal_time/bits/preempted.FLUSH_TLB/bit", c: "KVM_VCPU_FLUSH_TLB", what: bit},
		binding{number: "layouts/pvclock_vcpu_time_info/bits/flags.TSC_STABLE/bit", c: "PVCLOCK_TSC_STABLE_BIT", what: bit},
		binding{number: "layouts/pvclock_vcpu_time_info/bits/flags.GUEST_STOPPED/bit", c: "PVCLOCK_GUEST_STOPPED", what: bit},
		binding{number: "layouts/pvclock_vcpu_time_info/bits/flags.COUNTS_FROM_ZERO/bit", c: "PVCLOCK_COUNTS_FROM_ZERO", what: bit},
		binding{number: "layouts/kvm_vcpu_pv_apf_data/bits/flags.PAGE_NOT_PRESENT/bit", c: "KVM_PV_REASON_PAGE_NOT_PRESENT", what: bit},
		binding{number: "layouts/pv_eoi/bits/word.ENABLED/bit", c: "KVM_PV_EOI_ENABLED", what: bit},
		binding{number: "discovery/first-leaf/number", c: "KVM_CPUID_SIGNATURE"},
		binding{number: "discovery/max-leaf/number", c: "KVM_CPUID_FEATURES"},
		binding{number: "discovery/signature-ebx/number", c: word32("KVM_SIGNATURE", 0)},
		binding{number: "discovery/signature-ecx/number", c: word32("KVM_SIGNATURE", 4)},
		binding{number: "discovery/signature-edx/number", c: word32("KVM_SIGNATURE", 8)},
	)
}

// word32 is the expression for four bytes of a string constant, the first the least
// significant.
func word32(text string, at int) string {
	var parts []string
	for i := range 4 {
		parts = append(parts, strings.NewReplacer("TEXT", text, "AT", strconv.Itoa(at+i), "SHIFT", strconv.Itoa(8*i)).Replace("((unsigned)TEXT[AT] << SHIFT)"))
	}
	return strings.Join(parts, " | ")
}

package drift

import "pvabi/abi"

// loongArch binds loongarch-kvm.
func loongArch() table {
	return table{
		abi:    abi.LoongArch,
		goarch: "loong64",
		since:  "6.13",
		headers: []header{
			{file: "arch/loongarch/include/uapi/asm/kvm_para.h"},
			{file: "arch/loongarch/include/asm/kvm_para.h"},
		},
		// The functions that make calls have the code of the instruction in a string.
		prelude:  "\n#define __stringify(x) \"\"\n",
		bindings: loongArchBindings,
		families: []family{
			{prefix: "KVM_HCALL_CODE_", known: names("KVM_HCALL_CODE_SERVICE KVM_HCALL_CODE_SWDBG KVM_HCALL_CODE_USER_SERVICE")},
			{prefix: "KVM_HCALL_FUNC_"},
			{prefix: "KVM_HCALL_INVALID_"},
			{prefix: "KVM_FEATURE_"},
			{prefix: "KVM_VCPU_"},
		},
		documents: []document{
			{file: "Documentation/virt/kvm/loongarch/hypercalls.rst", looks: []look{unknownNames, undescribed}},
		},
	}
}

func loongArchBindings(p *abi.Platform) []binding {
	out := members(p)
	for _, c := range p.Calls {
		out = append(out, binding{number: "calls/" + c.Name + "/number", c: "KVM_HCALL_FUNC_" + c.Name, since: since(p, c.Feature)})
	}
	for _, e := range p.Errors {
		out = append(out, binding{number: "errors/" + e.Name + "/result", c: "KVM_HCALL_" + e.Name})
	}
	for _, f := range p.Features {
		out = append(out, binding{number: "features/" + f.Name + "/bit", c: "KVM_FEATURE_" + f.Name, since: f.Since})
	}
	return append(out,
		binding{number: "discovery/signature-word/number", c: "CPUCFG_KVM_SIG"},
		binding{number: "discovery/signature/number", c: word32("KVM_SIGNATURE", 0)},
		binding{number: "discovery/features-word/number", c: "CPUCFG_KVM_FEATURE"},
		binding{number: "discovery/first-word/number", c: "CPUCFG_KVM_BASE"},
		binding{number: "discovery/last-word/number", c: "(CPUCFG_KVM_BASE + CPUCFG_KVM_SIZE - 1)"},
		binding{number: "discovery/code-service/number", c: "KVM_HCALL_SERVICE"},
		binding{number: "discovery/code-debug/number", c: "KVM_HCALL_SWDBG"},
		binding{number: "discovery/code-user-service/number", c: "KVM_HCALL_USER_SERVICE", since: since(p, "USER_HCALL")},
		binding{number: "layouts/kvm_steal_time/bits/preempted.PREEMPTED/bit", c: "KVM_VCPU_PREEMPTED", what: bit, since: since(p, "PREEMPT")},
	)
}

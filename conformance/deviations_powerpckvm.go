package conformance

import "pvabi/abi"

// kvmNestedPAPRDeviation is what it is known to do otherwise besides where the hypervisor below runs its
// guests.
var kvmNestedPAPRDeviation = Deviation{
	Implementer: "Linux KVM-HV", Rule: "powerpc-papr/privilege/user-has-no-effect",
	ID:      "kvmhv-user-prods",
	Text:    "under nested PAPR leaves it to the hypervisor below to refuse calls from problem state, and carries out those that come: with QEMU's, which refuses none, any process of a guest can prod a CPU",
	Sources: []abi.Source{{Tree: "Linux 7.2.12", Path: "arch/powerpc/kvm/book3s_hv.c", Symbol: "kvmppc_handle_exit_hv"}},
}

// kvmPAPRDeviations is what Linux KVM-HV is known to do otherwise, in a guest of a hypervisor that
// lets it nest. What each says was seen in a run and read in the source. pageSize is that of
// the kernel, in bytes.
func kvmPAPRDeviations(pageSize int) []Deviation {
	hv := func(symbol string) abi.Source {
		return abi.Source{Tree: "Linux 7.2.12", Path: "arch/powerpc/kvm/book3s_hv.c", Symbol: symbol}
	}
	list := []struct {
		Deviation
		rules []string
	}{
		{Deviation{
			ID:      "kvmhv-prod-not-spent",
			Text:    "clears a prod in the next CEDE only, not when the CPU is dispatched: one that woke a CPU ends its next CEDE, too",
			Sources: []abi.Source{hv("kvmppc_cede"), hv("kvmppc_vcpu_woken"), hv("kvmppc_pseries_do_hcall")},
		}, []string{"kick/spent"}},
		{Deviation{
			ID:      "kvmhv-prod-int",
			Text:    "takes the number of a CPU for an int, so that a PROD of 2^32 more prods the CPU",
			Sources: []abi.Source{hv("kvmppc_find_vcpu")},
		}, []string{"kick/target-high-half"}},
		{Deviation{
			ID:      "kvmhv-confer-self",
			Text:    "makes nothing of it that a CONFER is to the caller: yields, and returns at once",
			Sources: []abi.Source{hv("kvmppc_pseries_do_hcall")},
		}, []string{"confer/self-waits", "confer/self-prodded"}},
		{Deviation{
			ID:      "kvmhv-user-refused",
			Text:    "gives a guest that translates by radix trees a program interrupt for a call from problem state, not a status; under nested PAPR carries it out",
			Sources: []abi.Source{hv("kvmppc_handle_exit_hv")},
		}, []string{"privilege/user-refused", "privilege/user-refused-undefined"}},
		{Deviation{
			ID:      "kvmhv-user-cedes",
			Text:    "as a guest of a hypervisor itself, carries out a CEDE without asking in which state it was made, as it does on bare metal: any process of a guest can put its CPU to sleep and turn interrupts on",
			Sources: []abi.Source{hv("kvmhv_p9_guest_entry")},
		}, []string{"privilege/user-cannot-cede"}},
		{Deviation{
			ID:      "kvmhv-cede-not-disabled",
			Text:    "since POWER9 answers CEDE before it asks whether the monitor has disabled that",
			Sources: []abi.Source{hv("kvmhv_p9_guest_entry"), hv("kvmppc_pseries_do_hcall")},
		}, []string{"monitor/disabled-call"}},
		{Deviation{
			ID:      "kvmhv-trace-mask",
			Text:    "never looks at dtl_enable_mask",
			Sources: []abi.Source{hv("__kvmppc_create_dtl_entry")},
		}, []string{"trace/mask-zero"}},
		{Deviation{
			ID:      "kvmhv-trace-reason",
			Text:    "has the dispatch reason 7 in each entry",
			Sources: []abi.Source{hv("__kvmppc_create_dtl_entry")},
		}, []string{"trace/reason-prod"}},
	}
	crossing := []struct {
		Deviation
		rules []string
	}{{Deviation{
		ID:      "kvmhv-trace-crossing-4k",
		Text:    "wants a dispatch trace log within one of the kernel's pages, here of 4 KiB",
		Sources: []abi.Source{hv("do_h_register_vpa")},
	}, []string{"vpa/trace-crosses-boundary"}}}
	if pageSize > 4096 {
		crossing[0].Deviation = Deviation{
			ID:      "kvmhv-crossing-64k",
			Text:    "wants an area within one of the kernel's pages, here of more than 4 KiB, and so allows one that crosses a multiple of 4 KiB",
			Sources: []abi.Source{hv("do_h_register_vpa")},
		}
		crossing[0].rules = []string{"vpa/crosses-boundary", "vpa/shadow-crosses-boundary"}
	}
	var out []Deviation
	for _, d := range append(list, crossing...) {
		for _, rule := range d.rules {
			d.Implementer, d.Rule = "Linux KVM-HV", "powerpc-papr/"+rule
			out = append(out, d.Deviation)
		}
	}
	return out
}

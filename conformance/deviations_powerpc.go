package conformance

import "pvabi/abi"

// qemuPAPRDeviations is what QEMU's pseries machine is known to do otherwise under TCG. What each
// says was seen in a run and read in QEMU's source.
var qemuPAPRDeviations = func() []Deviation {
	hcall := func(symbol string) abi.Source {
		return abi.Source{Tree: "QEMU 10.0.13", Path: "hw/ppc/spapr_hcall.c", Symbol: symbol}
	}
	spapr := func(symbol string) abi.Source {
		return abi.Source{Tree: "QEMU 10.0.13", Path: "hw/ppc/spapr.c", Symbol: symbol}
	}
	var out []Deviation
	for _, d := range []struct {
		Deviation
		rules []string
	}{
		{Deviation{
			ID:      "qemu-splpar-incomplete",
			Text:    "names hcall-splpar, but has none of its calls GET_PPP, SET_PPP and PURR",
			Sources: []abi.Source{spapr("spapr_dt_rtas"), hcall("hypercall_register_types")},
		}, []string{"discovery/function-set-complete"}},
		{Deviation{
			ID:      "qemu-confer-no-status",
			Before:  "11.1",
			Text:    "leaves a CONFER that yields through the CPU's loop before it stores a status, so that r3 keeps the call's number",
			Sources: []abi.Source{hcall("h_confer"), spapr("emulate_spapr_hypercall")},
		}, []string{"convention/status-stored", "confer/all-processors", "confer/matching-odd-count", "confer/count-high-half"}},
		{Deviation{
			ID:      "qemu-prod-not-kept",
			Text:    "reaches a running CPU with a PROD by a kick out of its loop; coming back is a dispatch, which uses the prod up",
			Sources: []abi.Source{hcall("h_prod"), spapr("spapr_cpu_exec_enter")},
		}, []string{"kick/before-wait", "kick/two-kicks", "kick/self", "kick/running-target", "join/prod-before"}},
		{Deviation{
			ID:      "qemu-prod-int",
			Text:    "takes the number of a CPU for an int, so that a PROD of 2^32 more prods the CPU",
			Sources: []abi.Source{spapr("spapr_find_cpu")},
		}, []string{"kick/target-high-half"}},
		{Deviation{
			ID:      "qemu-join-decrementer",
			Text:    "halts a CPU that joins with what wakes it on: the decrementer resumes it, though interrupts are off",
			Sources: []abi.Source{hcall("h_confer_self")},
		}, []string{"join/not-ended-by-decrementer"}},
		{Deviation{
			ID:      "qemu-vpa-zero",
			Text:    "gives HARDWARE instead of PARAMETER for an area at address zero",
			Sources: []abi.Source{hcall("register_vpa"), hcall("register_dtl"), hcall("register_slb_shadow")},
		}, []string{"vpa/zero-address"}},
		{Deviation{
			ID:      "qemu-trace-unaligned",
			Text:    "does not look at the alignment of a dispatch trace log",
			Sources: []abi.Source{hcall("register_dtl")},
		}, []string{"vpa/trace-unaligned"}},
		{Deviation{
			ID:      "qemu-shadow-unaligned",
			Text:    "does not look at the alignment of an SLB shadow",
			Sources: []abi.Source{hcall("register_slb_shadow")},
		}, []string{"vpa/shadow-unaligned"}},
		{Deviation{
			ID:      "qemu-no-trace",
			Text:    "accepts a dispatch trace log and never writes it",
			Sources: []abi.Source{hcall("register_dtl")},
		}, []string{"trace/entry", "trace/timebase", "trace/reason-prod", "trace/wraps"}},
	} {
		for _, rule := range d.rules {
			d.Implementer, d.Rule = "QEMU", "powerpc-papr/"+rule
			out = append(out, d.Deviation)
		}
	}
	return out
}()

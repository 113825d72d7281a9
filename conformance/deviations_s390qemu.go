package conformance

import "pvabi/abi"

// qemuS390Deviations is what QEMU's machine for s390 is known to do otherwise under TCG. What each
// says was seen in a run and read in QEMU's source.
var qemuS390Deviations = func() []Deviation {
	target := func(path, symbol string) abi.Source {
		return abi.Source{Tree: "QEMU 10.0.13", Path: "target/s390x/" + path, Symbol: symbol}
	}
	var out []Deviation
	for _, d := range []struct {
		Deviation
		rules []string
	}{
		{Deviation{
			ID:      "qemu-diag-base",
			Text:    "takes the field B2 of a DIAGNOSE for a part of the code and does not look at the base register",
			Sources: []abi.Source{target("tcg/translate.c", "op_diag")},
		}, []string{"diag/code-from-address", "diag/code-high-bits"}},
		{Deviation{
			ID:      "qemu-sense-running-host",
			Text:    "knows whether a CPU waits or is stopped, but not whether the host has taken its thread off",
			Sources: []abi.Source{target("sigp.c", "sigp_sense_running")},
		}, []string{"preempted/descheduled"}},
	} {
		for _, rule := range d.rules {
			one := d.Deviation
			one.Rule, one.Implementer = "s390/"+rule, "QEMU"
			out = append(out, one)
		}
	}
	return out
}()

package conformance

import (
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// s390Costs are those of a hypervisor on s390, where nothing is shared.
func s390Costs() *Costs {
	order := func(name string) func(*T, microvm.Machine) arch.Program {
		return func(t *T, m microvm.Machine) arch.Program { return arch.Program{t.order(name, m.ID(target))} }
	}
	return &Costs{
		Config: microvm.Config{CPUs: 3}, Sharing: nothingShared,
		Costs: []Cost{
			probeTurn(),
			{Name: "diag-44", Ops: ops(diagnose("diag r0,r0,0x44", nil))},
			{Name: "diag-9c", Needs: "DIAG9C", Ops: func(_ *T, m microvm.Machine) arch.Program {
				return arch.Program{diagnose("diag r1,r0,0x9c", map[string]uint64{"r1": m.ID(target)})}
			}},
			{Name: "sigp-sense", Ops: order("SENSE")},
			{Name: "sigp-sense-running", Ops: order("SENSE_RUNNING")},
		},
	}
}

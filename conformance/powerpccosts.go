package conformance

import (
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// paprCosts are those of a hypervisor of PAPR. kept tells of one that keeps a prod until the wait, whose
// CPUs are nobody else's.
func paprCosts(kept bool) *Costs {
	c := &Costs{
		Config: machine(), Sharing: func(t *T, m microvm.Machine) []Sharing { return paprSharing(t, m, kept) },
		Costs: []Cost{
			probeTurn(),
			{Name: "hcall-unknown", Ops: func(t *T, _ microvm.Machine) arch.Program { return arch.Program{t.noKick()} }},
			{Name: "prod-of-absent", Ops: func(t *T, _ microvm.Machine) arch.Program { return arch.Program{t.kick(absentID)} }},
			// The decrementer has expired when the call is made.
			{Name: "cede-ended-at-once", Ops: func(t *T, _ microvm.Machine) arch.Program {
				return arch.Program{t.decrementer(0), waitOp(0)}
			}},
		},
	}
	if kept {
		c.Costs = append(c.Costs, kickAndWait("cede-and-prod"))
		return c
	}
	// One prods and prods, and the other's waits end when they will.
	c.Costs = append(c.Costs, Cost{
		Name: "cede-while-prodded", Ops: ops(waitOp(0)), Ceaseless: true,
		Beside: func(t *T, m microvm.Machine) arch.Program { return arch.Program{t.kick(m.ID(caller))} },
	})
	return c
}

// paprSharing registers areas by REGISTER_VPA. What was registered before is so again at the end. far has
// the decrementer, which would end waits, be far from 0; carriers that share CPUs with a kernel see to that.
func paprSharing(t *T, m microvm.Machine, far bool) []Sharing {
	const seconds = 1<<31 - 1 // in ticks, and the most of a decrementer of 32 bits
	none, steal, all := Sharing{Name: SharingNames[0]}, Sharing{Name: SharingNames[1]}, Sharing{Name: SharingNames[2]}
	reg, layout := t.registration(), t.ABI.Layout("lppaca")
	for cpu := range none.Begin {
		_, own, err := t.papr(m).AreaAddress(cpu)
		t.Check("the CPU's area", err)
		id := m.ID(cpu)
		area := func(mask uint64) paprArea {
			a := t.paprAlloc(m, 0)
			for name, value := range map[string]uint64{"size": layout.Size, "dtl_enable_mask": mask} {
				f := layout.Field(name)
				a.put(f.Offset, f.Size, value)
			}
			return a
		}
		var every uint64
		for _, b := range []string{"CEDE", "PREEMPT", "FAULT"} {
			every |= layout.Bit("dtl_enable_mask", b)
		}
		plain, traced, trace, shadow := area(0), area(every), t.paprAlloc(m, 0), t.paprAlloc(m, 0)
		trace.put(reg.limit("LENGTH_AT"), 4, reg.limit("BOUNDARY"))
		shadow.put(reg.limit("LENGTH_AT"), 4, reg.limit("SLB_MINIMUM"))
		without := arch.Program{reg.op("DEREGISTER_SLB", id, 0), reg.op("DEREGISTER_DTL", id, 0)}
		quiet := append(arch.Program{interruptsOp(0)}, without...)
		if far {
			quiet = append(quiet, t.decrementer(seconds))
		}
		none.Begin[cpu] = append(quiet[:len(quiet):len(quiet)], reg.op("DEREGISTER_VPA", id, 0))
		steal.Begin[cpu] = append(quiet[:len(quiet):len(quiet)], reg.op("REGISTER_VPA", id, plain.real))
		all.Begin[cpu] = append(quiet[:len(quiet):len(quiet)], reg.op("REGISTER_VPA", id, traced.real),
			reg.op("REGISTER_DTL", id, trace.real), reg.op("REGISTER_SLB", id, shadow.real))
		for _, s := range []*Sharing{&none, &steal, &all} {
			s.End[cpu] = append(without[:len(without):len(without)], reg.op("REGISTER_VPA", id, own))
		}
	}
	return []Sharing{none, steal, all}
}

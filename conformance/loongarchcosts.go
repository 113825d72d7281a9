package conformance

import (
	"slices"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// loongCosts are those of KVM on LoongArch.
func loongCosts(c loong) *Costs {
	return &Costs{
		Config: c.plain, Sharing: loongSharing,
		Costs: []Cost{
			probeTurn(),
			{Name: "cpucfg", Ops: func(t *T, _ microvm.Machine) arch.Program {
				return arch.Program{discover(t.ABI.Word("features-word"), 0)}
			}},
			{Name: "hvcl", Ops: func(t *T, _ microvm.Machine) arch.Program { return arch.Program{t.nothing()} }},
			// Both wait for the other's interrupt, which stays pending, by IDLE.
			{Name: "ipi-and-idle", Needs: "IPI",
				Wake: func(t *T, m microvm.Machine, cpu int) arch.Op { return t.kick(m.ID(cpu)) },
				Ops: func(t *T, m microvm.Machine) arch.Program {
					return arch.Program{t.writeESTAT(0), t.kick(m.ID(target)), waitOp(0)}
				},
				Beside: func(t *T, m microvm.Machine) arch.Program {
					return arch.Program{waitOp(0), t.writeESTAT(0), t.kick(m.ID(caller))}
				}},
		},
	}
}

// loongSharing registers the one area that there is.
func loongSharing(t *T, m microvm.Machine) []Sharing {
	none, steal := Sharing{Name: SharingNames[0]}, Sharing{Name: SharingNames[1]}
	quiet := t.quietly()[:loongWaitAt]
	for cpu := range none.Begin {
		none.Begin[cpu], none.End[cpu] = quiet, t.loud()
		if t.offered("STEAL_TIME") {
			rec := t.record(m)
			none.Begin[cpu] = append(slices.Clone(quiet), rec.off())
			steal.Begin[cpu] = append(slices.Clone(quiet), rec.on())
			steal.End[cpu] = append(arch.Program{rec.off()}, t.loud()...)
		}
	}
	if !t.offered("STEAL_TIME") {
		return []Sharing{none}
	}
	return []Sharing{none, steal}
}

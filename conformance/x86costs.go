package conformance

import (
	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// x86Costs are those of KVM on x86: what kvm-unit-tests' x86/vmexit.c measures, by the same names. Left
// out is mov_to_cr8: QEMU 11.1 aborts at it in a guest of the SVM that it emulates if KVM waits for that
// guest to take interrupts (target/i386/tcg/system/misc_helper.c, helper_write_crN, which calls
// cpu_interrupt without the lock that this asserts).
func x86Costs() *Costs {
	interrupt := func(_ *T, m microvm.Machine, cpu int) arch.Op { return amd64.Interrupt(m.ID(cpu), testVector) }
	return &Costs{
		Config: machine(), Sharing: x86Sharing,
		Costs: []Cost{
			probeTurn(),
			{Name: "cpuid", Ops: ops(discover(0, 0))},
			{Name: "vmcall", Ops: func(t *T, _ microvm.Machine) arch.Program { return arch.Program{t.call("VAPIC_POLL_IRQ")} }},
			{Name: "mov_from_cr8", Ops: ops(readRegister(amd64.CR8))},
			{Name: "inl_from_pmtimer", Ops: ops(readRegister(amd64.Port + microvm.IdlePort))},
			{Name: "self_ipi", Ops: func(t *T, m microvm.Machine) arch.Program {
				return arch.Program{interrupts(1), interrupt(t, m, caller), interrupts(0)}
			}},
			// Both CPUs wait for the other's interrupt, by HLT.
			{Name: "ipi", Wake: interrupt,
				Ops: func(t *T, m microvm.Machine) arch.Program { return arch.Program{interrupt(t, m, target), waitOp(1)} },
				Beside: func(t *T, m microvm.Machine) arch.Program {
					return arch.Program{waitOp(1), interrupt(t, m, caller)}
				}},
			kickAndWait("hlt-and-kick"),
		},
	}
}

// x86Sharing registers areas by their registers.
func x86Sharing(t *T, m microvm.Machine) []Sharing {
	none, steal, all := Sharing{Name: SharingNames[0]}, Sharing{Name: SharingNames[1]}, Sharing{Name: SharingNames[2]}
	for cpu := range none.Begin {
		for i, a := range x86Areas() {
			reg, p := t.ABI.Register(a.registers[0]), t.plot(m, a.layout)
			a.first(p)
			on, off := writeRegister(reg.Number, p.address()|reg.Enable|a.with(t)), writeRegister(reg.Number, 0)
			if i == 0 { // steal
				steal.Begin[cpu], steal.End[cpu] = arch.Program{on}, arch.Program{off}
			}
			all.Begin[cpu], all.End[cpu] = append(all.Begin[cpu], on), append(all.End[cpu], off)
		}
	}
	return []Sharing{none, steal, all}
}

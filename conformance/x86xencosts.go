package conformance

import (
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// xenCosts are those of Xen. Its calls are made by way of the kernel's driver, which is a part of each.
func xenCosts() *Costs {
	call := func(name string, args ...uint64) func(*T, microvm.Machine) arch.Program {
		return func(t *T, _ microvm.Machine) arch.Program { return arch.Program{t.operation(name, args...)} }
	}
	return &Costs{
		Config: machine(), Sharing: xenSharing,
		Costs: []Cost{
			probeTurn(),
			{Name: "cpuid", Ops: ops(discover(0, 0))},
			{Name: "xen_version", Ops: call("version")},
			{Name: "sched_op-yield", Ops: call("yield")},
			{Name: "evtchn-send-to-self", Ops: func(t *T, m microvm.Machine) arch.Program {
				return arch.Program{t.send(m, t.ipiPort(t.xen(), caller))}
			}},
			kickAndWait("evtchn-send-and-poll"),
		},
	}
}

// xenSharing registers areas by operations on vCPUs. The areas of the domain's kernel are taken back
// first, and come back when the machine is reset.
func xenSharing(t *T, m microvm.Machine) []Sharing {
	x := m.(XenMachine)
	none, steal, all := Sharing{Name: SharingNames[0]}, Sharing{Name: SharingNames[1]}, Sharing{Name: SharingNames[2]}
	for cpu := range none.Begin {
		runstate, time := t.guarded(m, "vcpu_runstate_info"), t.guarded(m, "pvclock_vcpu_time_info")
		is := func(name string, address uint64) arch.Op { return t.register(m, name, x.VCPU(cpu), address) }
		noTime := is(areaOfTime, 0)
		none.Begin[cpu] = arch.Program{noTime, is(areaOfRunstate, 0)}
		steal.Begin[cpu] = arch.Program{noTime, is(areaOfRunstate, runstate.Address())}
		all.Begin[cpu] = arch.Program{is(areaOfTime, time.Address()), is(areaOfRunstate, runstate.Address())}
	}
	return []Sharing{none, steal, all}
}

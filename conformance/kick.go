package conformance

import (
	"slices"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// Kick and wait: the portable questions. Each check is written in terms of the
// platform's kick and wait (abi.Scheduling) and holds what it sees against the
// numbers of the rule of that name.

// machine is what portable checks run on: a caller, a target and a third CPU, with
// everything that the implementer offers.
func machine() microvm.Config { return microvm.Config{CPUs: 3, IDs: sparse} }

// kickWakes: a CPU waits, another kicks it, it goes on. The control is in the same
// run: before the kick the caller makes a call that is no kick, and the waiter sleeps
// on.
func kickWakes(rule string, config microvm.Config, interrupts uint64) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(config)
		t.sleeper(m, target, interrupts)
		t.run(m, caller, t.noKick())
		t.Control("the waiter sleeps on after a call that is no kick", true, t.stays(m, target, 0))
		r := t.run(m, caller, t.kick(m.ID(target)))
		t.Evidence(rule, "result", t.returned(r[0]))
		t.Equal(rule, "waits ended by one kick", t.Want(rule, "wakes"), t.woken(m))
	}}
}

// kickVariant: a kick of a waiter with one thing about it changed, which must not
// matter. The plain kick is the control of the next check over.
func kickVariant(rule string, kick func(t *T, id uint64) arch.Op) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		t.run(m, caller, t.noKick())
		t.Control("the waiter sleeps on after a call that is no kick", true, t.stays(m, target, 0))
		op := kick(t, m.ID(target))
		r := t.run(m, caller, op)
		t.Evidence(rule, "registers in", op.Regs)
		t.Evidence(rule, "result", t.returned(r[0]))
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), t.woken(m))
	}}
}

// kickEarly: kicks reach a CPU that runs, which then waits twice. How many of its
// waits end without another kick is what the rule is about. The control is a machine
// in the same state and no kick: the first wait sleeps.
func kickEarly(rule, value string, kicks int) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, n := range []int{0, kicks} {
			m := t.Open(machine())
			flag := m.Alloc(8, 8, 0)
			t.start(m, target, spinUntil(flag.Address(), ^uint64(0), 1, 0), waitOp(0), waitOp(0))
			var p arch.Program
			for range n {
				p = append(p, t.kick(m.ID(target)))
			}
			t.run(m, caller, append(p, store(flag.Address(), 1, 8))...)
			ended := t.settle(m, target, 3) - 1
			if n == 0 {
				t.Control("waits ended without a kick", 0, ended)
				continue
			}
			t.Equal(rule, "waits ended by kicks before them", t.Want(rule, value), ended)
			if ended < 2 {
				t.Truth(rule, "the next wait sleeps", t.stays(m, target, ended+1))
			}
		}
	}}
}

// kickSelf: a CPU kicks itself and waits twice.
func kickSelf(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.start(m, target, t.noKick(), waitOp(0))
		t.Control("a wait after a call that is no kick sleeps, in operation", 1, t.settle(m, target, 2))
		m = t.Open(machine())
		t.start(m, target, t.kick(m.ID(target)), waitOp(0), waitOp(0))
		ended := t.settle(m, target, 3) - 1
		t.Equal(rule, "waits ended by a kick of oneself", t.Want(rule, "latched"), ended)
		if ended < 2 {
			t.Truth(rule, "the next wait sleeps", t.stays(m, target, ended+1))
		}
	}}
}

// kickAbsent: a kick of a CPU that does not exist wakes nobody and reports what the
// platform says. Of the ids that name nobody, most differ in one bit from a sleeper's.
// The control is that the sleepers can be woken.
func kickAbsent(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		sleepers := []int{target, third}
		for _, cpu := range sleepers {
			t.sleeper(m, cpu, 0)
		}
		absent := append([]uint64{absentID, 1<<8 - 2, 1<<16 - 1, 1<<31 - 1}, neighbours(m, m.ID(target))...)
		var p arch.Program
		for _, id := range absent {
			p = append(p, t.kick(id))
		}
		r := t.run(m, caller, p...)
		for i, id := range absent {
			t.Equal(rule, "result for "+Hex(id).String(), t.ABI.Result(t.ABI.Scheduling.Kick, "absent target"), t.returned(r[i]))
		}
		var woken int64
		for _, cpu := range sleepers {
			woken += bit(!t.stays(m, cpu, 0))
		}
		t.Equal(rule, "CPUs woken", t.Want(rule, "wakes"), woken)
		t.run(m, caller, t.kick(m.ID(target)))
		t.Control("waits ended by a kick of the sleeper itself", 1, t.woken(m))
	}}
}

// neighbours are the ids that differ from one in one bit, from the fifth to the 32nd, and
// name neither a CPU nor all of them.
func neighbours(m microvm.Machine, id uint64) []uint64 {
	named := []uint64{1<<8 - 1, 1<<32 - 1} // broadcast, in some mode of some platform
	for cpu := range m.CPUs() {
		named = append(named, m.ID(cpu))
	}
	var out []uint64
	for b := 4; b < 32; b++ {
		if n := id ^ 1<<b; !slices.Contains(named, n) {
			out = append(out, n)
		}
	}
	return out
}

// kickResult: what a kick reports, by what its target is doing.
func kickResult(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		end := t.runner(m, third)
		for _, c := range []struct {
			when string
			id   uint64
		}{{"waiting target", m.ID(target)}, {"running target", m.ID(third)}, {"self", m.ID(caller)}, {"absent target", absentID}} {
			r := t.run(m, caller, t.kick(c.id))
			t.Equal(rule, c.when, t.ABI.Result(t.ABI.Scheduling.Kick, c.when), t.returned(r[0]))
		}
		end()
	}}
}

// waitSleeps: a wait that nobody ends does not end, whatever else the caller does.
func waitSleeps(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, interrupts := range []uint64{0, 1} {
			m := t.Open(machine())
			t.start(m, target, waitOp(interrupts))
			ended := t.settle(m, target, 1)
			t.run(m, caller, t.noKick(), t.yield(m.ID(third)), t.kick(m.ID(third)))
			if ended == 0 && !t.stays(m, target, 0) {
				ended = 1
			}
			t.Equal(rule, map[uint64]string{0: "waits ended, interrupts off", 1: "waits ended, interrupts on"}[interrupts], t.Want(rule, "returns"), ended)
			t.run(m, caller, t.kick(m.ID(target)))
			t.Control("waits ended by a kick", 1, t.woken(m))
		}
	}}
}

// woken looks for the end of the target's first operation, a wait, for the full
// budget of looks, and counts it.
func (t *T) woken(m microvm.Machine) int64 {
	return bit(t.Until(func() bool { _, n := m.At(target); return n > 0 }))
}

// noKick is a call that has no meaning on the platform and so kicks nobody.
func (t *T) noKick() arch.Op { return t.callNumber(t.unusedNumber()) }

// unusedNumber is a number that no call has.
func (t *T) unusedNumber() uint64 {
	if t.Unused != 0 {
		return t.Unused
	}
	var n uint64
	for _, c := range t.ABI.Calls { // which makes nobody a reader of them all
		n = max(n, c.Number)
	}
	return n + 1
}

package conformance

import "pvabi/conformance/microvm"

// Directed yield: it reports what the platform says, whatever its target is doing,
// and wakes nobody.

// yieldTo yields to one CPU of a machine in which the target sleeps and the third
// CPU runs. id picks the target of the call, when names the outcome.
func yieldTo(rule, when string, id func(m microvm.Machine) uint64) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		end := t.runner(m, third)
		r := t.run(m, caller, t.yield(id(m)))
		t.Equal(rule, "result", t.ABI.Result(t.ABI.Scheduling.Yield, when), t.returned(r[0]))
		end()
	}}
}

// yieldWakes: a yield to a waiting CPU does not end its wait. The control is that a
// kick does.
func yieldWakes(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		t.run(m, caller, t.yield(m.ID(target)), t.yield(m.ID(target)))
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), bit(!t.stays(m, target, 0)))
		t.run(m, caller, t.kick(m.ID(target)))
		t.Control("waits ended by a kick", int64(1), t.woken(m))
	}}
}

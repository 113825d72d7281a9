package conformance

import (
	"fmt"
	"math/bits"
	"slices"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// Runstates, the areas that vCPUs have of them and of their time, and what preempted is read from.

// guarded is a structure in memory with guarded memory around it, in one page.
type guarded struct {
	argument
	around arch.Area
}

// guarded sets memory aside for a structure. All of it is fill.
func (t *T) guarded(m microvm.Machine, layout string) guarded {
	l := t.ABI.Layout(layout)
	around := m.Alloc(3*l.Size, 1<<bits.Len64(3*l.Size-1), fill)
	return guarded{argument{part{around, l.Size, l.Size}, l}, around}
}

// outside counts the bytes around the structure that are no longer fill.
func (g guarded) outside() int64 { return notFill(g.around.Bytes()) - g.changed() }

// part is a piece of an area.
type part struct {
	arch.Area
	at, size uint64
}

func (p part) Address() uint64                 { return p.Area.Address() + p.at }
func (p part) Size() uint64                    { return p.size }
func (p part) Load(offset, size uint64) uint64 { return p.Area.Load(p.at+offset, size) }
func (p part) Store(offset, size, value uint64) {
	p.Area.Store(p.at+offset, size, value)
}
func (p part) Bytes() []byte { return p.Area.Bytes()[p.at:][:p.size] }

// register is an operation that registers an area at an address for a vCPU.
func (t *T) register(m microvm.Machine, name string, vcpu, address uint64) arch.Op {
	return t.operation(name, vcpu, t.argument(m, "area_address", fields{"address": address}).Address())
}

// registered has the caller register an area, and sees it done.
func (t *T) registered(m microvm.Machine, name string, vcpu, address uint64) {
	r := t.run(m, caller, t.register(m, name, vcpu, address))[0]
	t.Control("result of "+name, t.ABI.Result(name, "done"), t.returned(r))
}

const (
	areaOfRunstate     = "register_runstate_memory_area"
	areaOfRunstateReal = "register_runstate_phys_area"
	areaOfTime         = "register_vcpu_time_memory_area"
	areaOfTimeReal     = "register_vcpu_time_phys_area"
)

// rounds has the target be blocked and woken n times: each is two changes of its state or more.
func (t *T) rounds(m XenMachine, n int) {
	for range n {
		t.sleeper(m, target, 0)
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)
	}
}

// someRounds is how many rounds are enough for what is written at each change to have been.
const someRounds = 3

// competing has the target run, and so compete for a CPU with whoever looks at it, until end is called.
func (t *T) competing(m XenMachine) (end func()) { return t.runner(m, target) }

// xenStates: the caller's own state, and that of a vCPU that waits.
func xenStates() Check {
	const rule = "runstate/states"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		t.Equal(rule, "the caller's own", t.ABI.Word("running"), t.look(m, m.VCPU(caller))[0].state)
		t.sleeper(m, target, 0)
		t.Equal(rule, "of a CPU that waits", t.ABI.Word("blocked"), t.settled(m, target, "blocked").state)
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)
	}}
}

// settled looks at the runstate of a CPU until it has a state, and returns the last one seen.
func (t *T) settled(m XenMachine, cpu int, state string) (r vcpuState) {
	l := t.looker(m, m.VCPU(cpu))
	t.Until(func() bool { r = l.look()[0]; return r.state == t.ABI.Word(state) })
	return r
}

// xenTimes: what a reader sees of the times of vCPUs that wait, are woken and run. The caller looks
// at two of them in turn: the sum of each is system time, less a constant.
func xenTimes() Check {
	const (
		entry = "runstate/entry-time"
		sum   = "runstate/sum"
		own   = "runstate/own-state-grows"
		looks = 20
		most  = 500
	)
	return Check{Rules: []string{entry, sum, own}, Run: func(t *T) {
		m := t.xen()
		l := t.looker(m, m.VCPU(target), m.VCPU(third), m.VCPU(target))
		var entryLess, sumLess, changes, same, others int64
		var last []vcpuState
		// third's sum is never less than target's before, and never more than target's after it,
		// plus the constant.
		low, high := int64(-1<<62), int64(1<<62)
		for i := 0; i < looks || changes < 3 || same < 3; i++ {
			if i == most {
				t.Fatal(fmt.Errorf("after %d looks: %d changes of state, and %d looks at a state that stayed", i, changes, same))
			}
			if i%4 == 0 {
				t.rounds(m, 1)
			}
			t.sleeper(m, target, 0)
			now := l.look()
			now = append(now, l.look()...)
			if last != nil {
				entryLess += bit(now[0].entry < last[0].entry)
				sumLess += bit(now[0].sum() < last[0].sum()) + bit(now[1].sum() < last[1].sum())
				changes += bit(now[0].entry != last[0].entry)
			}
			low = max(low, int64(now[1].sum()-now[2].sum()))
			high = min(high, int64(now[1].sum()-now[0].sum()))
			if a, b := now[2], now[3]; a.entry == b.entry && a.state == t.ABI.Word("blocked") && b.state == a.state {
				same++
				others += int64(b.running - a.running + b.runnable - a.runnable + b.offline - a.offline)
				t.Truth(own, "the time of the state grows", b.blocked > a.blocked)
			}
			last = now
			t.run(m, caller, t.kick(m.ID(target)))
			t.finish(m, target)
		}
		t.Equal(entry, "samples with an earlier beginning of a state", t.Want(entry, "decreases"), entryLess)
		t.Equal(sum, "samples with a smaller sum", t.Want(sum, "decreases"), sumLess)
		t.Truth(sum, "the sums of two vCPUs differ by a constant", low <= high)
		t.Evidence(sum, "difference of sums, at least and at most", []int64{low, high})
		t.Equal(own, "nanoseconds that other states grew by", t.Want(own, "others"), others)
	}}
}

// xenRegistered: what is in an area once it is registered, by another CPU and by its own.
func xenRegistered() Check {
	const rule = "runstate/registered"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		area := t.guarded(m, "vcpu_runstate_info")
		t.sleeper(m, target, 0)
		t.Control("bytes written before the area is registered", 0, area.changed())
		// It may be woken between the look and the registration.
		t.Truth(rule, "the area of another CPU has what get_runstate_info tells", t.Until(func() bool {
			before := t.settled(m, target, "blocked")
			t.registered(m, areaOfRunstate, m.VCPU(target), area.Address())
			got := runstateIn(area.argument)
			return got.state == before.state && got.entry == before.entry && got.running == before.running && got.sum() >= before.sum()
		}))
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)

		own := t.guarded(m, "vcpu_runstate_info")
		r := t.run(m, target, t.register(m, areaOfRunstate, m.VCPU(target), own.Address()))[0]
		t.Equal(rule, "result", t.ABI.Result(areaOfRunstate, "done"), t.returned(r))
		t.Truth(rule, "the area of the calling CPU is written", own.changed() > 0)
	}}
}

// xenUpdated: an area follows what get_runstate_info tells. Both are looked at until they are of the
// same moment.
func xenUpdated() Check {
	const (
		updated = "runstate/updated"
		around  = "runstate/around"
	)
	return Check{Rules: []string{updated, around}, Run: func(t *T) {
		m := t.xen()
		area := t.guarded(m, "vcpu_runstate_info")
		t.run(m, target, t.register(m, areaOfRunstate, m.VCPU(target), area.Address()))
		first := runstateIn(area.argument)
		t.rounds(m, someRounds)
		end := t.competing(m)
		// One program does not lose its CPU for long.
		l := t.looker(m, m.VCPU(target), m.VCPU(target))
		state, entry := area.layout.Field("state"), area.layout.Field("state_entry_time")
		l.p = slices.Insert(l.p, 1, load(area.Address()+state.Offset, state.Size), load(area.Address()+entry.Offset, entry.Size))
		agreed := t.Until(func() bool {
			r := t.run(m, caller, l.p...)
			before, after := runstateIn(l.areas[0]), runstateIn(l.areas[1])
			return before.entry == after.entry && r[1].Value == before.state && r[2].Value == before.entry
		})
		end()
		last := runstateIn(area.argument)
		t.Equal(updated, "the area says at some moment what get_runstate_info says", true, agreed)
		t.Truth(updated, "the area was written again", last.entry > first.entry)
		t.Truth(updated, "its times went on", last.sum() > first.sum())
		t.Control("bytes of the area were written", true, area.changed() > 0)
		t.Equal(around, "bytes around the area changed", t.Want(around, "changed"), area.outside())
	}}
}

// xenUpdateFlag: a reader of the area of a vCPU that is being put on and taken off its CPU, who goes by
// UPDATE. The caller reads the time at which the state began, all else twice, and the time again.
func xenUpdateFlag() Check {
	const rule = "runstate/update-flag"
	const changes = 3 // of the area that the reader must have seen
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		area := t.guarded(m, "vcpu_runstate_info")
		t.run(m, target, t.register(m, areaOfRunstate, m.VCPU(target), area.Address()))
		update := area.layout.Bit("state_entry_time", "UPDATE")
		field := func(name string) arch.Op {
			f := area.layout.Field(name)
			return load(area.Address()+f.Offset, f.Size)
		}
		guard := field("state_entry_time")
		rest := arch.Program{field("state"), field("time_running"), field("time_runnable"), field("time_blocked"), field("time_offline")}
		p := slices.Concat(arch.Program{guard}, rest, rest, arch.Program{guard})
		end, other := t.competing(m), t.runner(m, third)
		var torn, seen, updating int64
		var last []uint64
		t.Until(func() bool {
			var values []uint64
			for _, r := range t.run(m, caller, p...) {
				values = append(values, r.Value)
			}
			begun, one, two := values[0], values[:1+len(rest)], values[1+len(rest):len(values)-1]
			switch {
			case begun&update != 0:
				updating++
			case begun == values[len(values)-1]:
				torn += bit(!slices.Equal(one[1:], two))
				if last != nil && last[0] == begun {
					torn += bit(!slices.Equal(last, one))
				} else {
					seen++
				}
				last = one
			}
			return seen > changes
		})
		end()
		other()
		if seen <= changes {
			t.Fatal(fmt.Errorf("a reader saw %d changes of the area, not %d: its CPU was hardly ever taken off", seen, changes))
		}
		t.Evidence(rule, "samples while the area was being written", updating)
		t.Equal(rule, "runstates that changed under the same time without UPDATE", t.Want(rule, "torn"), torn)
		t.sleeper(m, target, 0)
		t.Equal(rule, "UPDATE at rest", t.Want(rule, "set"), bit(area.get("state_entry_time")&update != 0))
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)
	}}
}

// xenMoved: an area is written no more once there is another one, or none. The control is that it was
// before, and that the state of its vCPU has changed since.
func xenMoved() Check {
	const (
		moved    = "runstate/moved"
		released = "runstate/released"
	)
	return Check{Rules: []string{moved, released}, Run: func(t *T) {
		m := t.xen()
		vcpu := m.VCPU(target)
		first, second := t.guarded(m, "vcpu_runstate_info"), t.guarded(m, "vcpu_runstate_info")
		written := func(a guarded) {
			a.overwrite()
			t.rounds(m, someRounds)
			t.Control("the area is written while it is registered", true, a.changed() > 0)
		}
		t.registered(m, areaOfRunstate, vcpu, first.Address())
		written(first)
		t.registered(m, areaOfRunstate, vcpu, second.Address())
		first.overwrite()
		written(second)
		t.Equal(moved, "bytes of the area before changed", t.Want(moved, "changed"), first.changed())

		t.registered(m, areaOfRunstate, vcpu, 0)
		second.overwrite()
		before := t.look(m, vcpu)[0].entry
		t.rounds(m, someRounds)
		t.Control("the state of the vCPU has changed since", true, t.look(m, vcpu)[0].entry != before)
		t.Equal(released, "bytes of the area changed", t.Want(released, "changed"), second.changed())
	}}
}

// xenBadArea: areas of the hypervisor's, and where there is no memory.
func xenBadArea() Check {
	const (
		runstate = "runstate/bad-address"
		time     = "time/bad-address"
	)
	return Check{Rules: []string{runstate, time}, Run: func(t *T) {
		m := t.xen()
		result := func(name string, address uint64) int64 {
			return t.returned(t.run(m, caller, t.register(m, name, m.VCPU(target), address))[0])
		}
		for rule, name := range map[string]string{runstate: areaOfRunstate, time: areaOfTime} {
			t.Equal(rule, "result for memory of the hypervisor's", t.ABI.Result(name, "area of the hypervisor's"), result(name, t.ABI.Word("hypervisor-memory")))
		}
		t.Equal(runstate, "result for no memory", t.ABI.Result(areaOfRunstate, "done"), result(areaOfRunstate, nowhere))
		before := t.look(m, m.VCPU(target))[0].entry
		t.rounds(m, someRounds)
		t.Truth(runstate, "the vCPU goes on", t.look(m, m.VCPU(target))[0].entry != before)
	}}
}

// physical allocates a page for a structure and tells its physical address.
func (t *T) physical(m XenMachine, layout string) (argument, uint64) {
	const page = 4096
	l := t.ABI.Layout(layout)
	a := m.Alloc(page, page, fill)
	real, err := m.Real(a)
	t.Check("physical address of an area", err)
	return argument{part{a, 0, l.Size}, l}, real
}

// refusedPhysical holds the results for areas that cross a page or are not aligned against a rule.
func (t *T) refusedPhysical(m XenMachine, rule, name, layout string) {
	const page = 4096
	a, real := t.physical(m, layout)
	for when, offsets := range map[string][]uint64{
		"area crosses a page": {page - a.layout.Size + 8, page - 8},
		"area not aligned":    {1, 4, page - a.layout.Size - 4},
	} {
		for _, offset := range offsets {
			r := t.run(m, caller, t.register(m, name, m.VCPU(target), real+offset))[0]
			t.Equal(rule, fmt.Sprint("result for offset ", offset), t.ABI.Result(name, when), t.returned(r))
		}
	}
	t.Equal(rule, "bytes written", 0, a.changed())
}

// xenPhysical: areas by physical address take precedence over those by linear address.
func xenPhysical() Check {
	const (
		works   = "runstate/physical"
		refused = "runstate/physical-refused"
		none    = "runstate/physical-not-offered"
	)
	return Check{Rules: []string{works, refused, none}, Run: func(t *T) {
		m := t.xen()
		vcpu := m.VCPU(target)
		offered, err := t.Offers(t.ABI.Feature("runstate_phys_area"))
		t.Check("discovery", err)
		if !offered {
			for _, name := range []string{areaOfRunstateReal, areaOfTimeReal} {
				_, real := t.physical(m, "vcpu_runstate_info")
				r := t.run(m, caller, t.register(m, name, vcpu, real))[0]
				t.Equal(none, "result of "+name, t.ABI.Result(name, "not offered"), t.returned(r))
			}
			return
		}
		t.Unreached(none, "both are offered")
		t.refusedPhysical(m, refused, areaOfRunstateReal, "vcpu_runstate_info")

		linear := t.guarded(m, "vcpu_runstate_info")
		t.registered(m, areaOfRunstate, vcpu, linear.Address())
		a, real := t.physical(m, "vcpu_runstate_info")
		// Another vCPU's area is written when that vCPU next gets a CPU.
		r := t.run(m, target, t.register(m, areaOfRunstateReal, vcpu, real))[0]
		t.Equal(works, "result", t.ABI.Result(areaOfRunstateReal, "done"), t.returned(r))
		t.Truth(works, "the area is written as soon as its vCPU registers it", a.changed() > 0)
		linear.overwrite()
		a.overwrite()
		t.rounds(m, someRounds)
		t.Truth(works, "the area is written", a.changed() > 0)
		t.Equal(works, "bytes of the area at a linear address changed", t.Want(works, "changed"), linear.changed())
		t.registered(m, areaOfRunstateReal, vcpu, t.ABI.Word("unregister"))
		a.overwrite()
		t.rounds(m, someRounds)
		t.Equal(works, "bytes changed once it was taken back", t.Want(works, "changed"), a.changed())
		t.Truth(works, "the area at a linear address is written again", linear.changed() > 0)
	}}
}

// xenTime: a vCPU's time in an area, and that it is left alone when it is taken back. A registration
// writes at once, which is the control.
func xenTime() Check {
	const (
		registered = "time/registered"
		released   = "time/released"
	)
	return Check{Rules: []string{registered, released}, Run: func(t *T) {
		m := t.xen()
		vcpu := m.VCPU(target)
		area := t.guarded(m, "pvclock_vcpu_time_info")
		r := t.run(m, target, t.register(m, areaOfTime, vcpu, area.Address()))[0]
		t.Equal(registered, "result", t.ABI.Result(areaOfTime, "done"), t.returned(r))
		t.timeWritten(registered, area.argument)
		t.Equal(registered, "bytes around the area changed", 0, area.outside())

		area.overwrite()
		t.run(m, target, t.register(m, areaOfTime, vcpu, area.Address()))
		t.Control("the area is written when it is registered", true, area.changed() > 0)
		release := t.register(m, areaOfTime, vcpu, 0)
		t.run(m, target, release)
		area.overwrite()
		r = t.run(m, target, release)[0]
		t.Equal(released, "result", t.ABI.Result(areaOfTime, "done"), t.returned(r))
		t.rounds(m, someRounds)
		t.Equal(released, "bytes changed", t.Want(released, "changed"), area.changed())
	}}
}

// timeWritten holds what is in an area of time against a rule.
func (t *T) timeWritten(rule string, a argument) {
	t.Equal(rule, "version modulo 2", t.Want(rule, "parity"), a.get("version")%2)
	t.Truth(rule, "the factor is not zero", a.get("tsc_to_system_mul") != 0 && a.get("tsc_to_system_mul") != fill*0x01010101)
	t.Truth(rule, "system time has begun", a.get("system_time") != 0 && a.get("system_time") < 1<<62)
}

// systemTime is what system time was when a CPU's clock was tsc, by the area of its time.
func systemTime(a argument, tsc uint64) uint64 {
	delta := int64(tsc - a.get("tsc_timestamp"))
	negative := delta < 0
	ticks := uint64(max(delta, -delta))
	if shift := int8(a.get("tsc_shift")); shift >= 0 {
		ticks <<= shift
	} else {
		ticks >>= -shift
	}
	high, low := bits.Mul64(ticks, a.get("tsc_to_system_mul"))
	since := high<<32 | low>>32
	if negative {
		return a.get("system_time") - since
	}
	return a.get("system_time") + since
}

// xenTimeAgrees: system time by a CPU's clock and its area lies between two times at which the CPU
// was put on: before, and after, each by yielding to another that runs. Both go by what the
// hypervisor last made of its own clocks, which must not change meanwhile.
func xenTimeAgrees() Check {
	const rule = "time/agrees"
	const (
		samples = 5
		// On a host with a CPU for each vCPU nobody is taken off by yielding; more looks would
		// find no more.
		looksAtMost = 1000
	)
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		area := t.guarded(m, "pvclock_vcpu_time_info")
		t.run(m, target, t.register(m, areaOfTime, m.VCPU(target), area.Address()))
		yield := t.operation("yield", 0)
		var states [3]argument
		p := arch.Program{yield, {}, {Kind: arch.Clock}, {}, yield, {}}
		for i := range states {
			states[i] = t.argument(m, "vcpu_runstate_info", nil)
			p[1+2*i] = t.operation("get_runstate_info", m.VCPU(target), states[i].Address())
		}
		before, between, after := states[0], states[1], states[2]
		var outside, seen int64
		looks := min(t.Looks, looksAtMost)
		end := t.runner(m, third)
		t.within(looks, func() bool {
			begin := area.get("version")
			r := t.run(m, target, p...)
			// Unless the CPU was put on after the clock was read, the last look tells nothing.
			if after.get("state_entry_time") == between.get("state_entry_time") || area.get("version") != begin {
				return false
			}
			now := systemTime(area.argument, r[2].Value)
			seen++
			outside += bit(now < before.get("state_entry_time") || now > after.get("state_entry_time"))
			t.Evidence(rule, fmt.Sprintf("sample %d: before, by the clock, after", seen), []uint64{before.get("state_entry_time"), now, after.get("state_entry_time")})
			return seen == samples
		})
		end()
		if seen == 0 {
			t.Unreached(rule, fmt.Sprintf("in %d looks the CPU was never taken off between two of them while its clock stayed as it was set", looks))
			return
		}
		t.Equal(rule, "samples outside", t.Want(rule, "outside"), outside)
	}}
}

// xenTimePhysical: an area of time by physical address.
func xenTimePhysical() Check {
	const (
		works   = "time/physical"
		refused = "time/physical-refused"
	)
	return Check{Rules: []string{works, refused}, Run: func(t *T) {
		m := t.xen()
		t.refusedPhysical(m, refused, areaOfTimeReal, "pvclock_vcpu_time_info")
		a, real := t.physical(m, "pvclock_vcpu_time_info")
		t.registered(m, areaOfTimeReal, m.VCPU(target), real)
		t.timeWritten(works, a)
		t.registered(m, areaOfTimeReal, m.VCPU(target), t.ABI.Word("unregister"))
		a.overwrite()
		t.rounds(m, someRounds)
		t.Equal(works, "bytes changed once it was taken back", 0, a.changed())
	}}
}

// xenRunning: a CPU that runs sees itself as running, others see that it is preempted while it is.
// Each is the other's control.
func xenRunning() Check {
	const (
		running     = "preempted/running"
		descheduled = "preempted/descheduled"
		looks       = 20
	)
	return Check{Rules: []string{running, descheduled}, Run: func(t *T) {
		m := t.xen()
		t.Control("preempted of a descheduled CPU is to be told from that of a running one", true, t.Want(running, "preempted") != t.Want(descheduled, "preempted"))
		end := t.competing(m)
		l := t.looker(m, m.VCPU(target), m.VCPU(caller))
		var other vcpuState
		var seen int64
		t.Until(func() bool {
			r := l.look()
			t.Equal(running, "state as the CPU itself sees it", t.ABI.Word("running"), r[1].state)
			t.Equal(running, "preempted as the CPU itself sees it", t.Want(running, "preempted"), t.preempted(r[1].state))
			if r[0].state != t.ABI.Word("running") {
				other = r[0]
			}
			seen++
			return seen >= looks && other.entry != 0
		})
		end()
		if other.entry == 0 {
			t.Fatal(fmt.Errorf("a CPU that competes with others was never seen without one, in %d looks; give Xen fewer CPUs than vCPUs", seen))
		}
		t.Equal(descheduled, "state as another CPU sees it", t.ABI.Word("runnable"), other.state)
		t.Equal(descheduled, "preempted as another CPU sees it", t.Want(descheduled, "preempted"), t.preempted(other.state))
	}}
}

// xenWaiting: a CPU that waits, and one that is down.
func xenWaiting() Check {
	const (
		waiting = "preempted/waiting"
		offline = "preempted/offline"
	)
	return Check{Rules: []string{waiting, offline}, Run: func(t *T) {
		m := t.xen()
		t.sleeper(m, target, 0)
		state := t.settled(m, target, "blocked").state
		t.Equal(waiting, "state", t.ABI.Word("blocked"), state)
		t.Equal(waiting, "preempted", t.Want(waiting, "preempted"), t.preempted(state))
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)
		spare, ok := m.Spare()
		if !ok {
			t.Unreached(offline, "no vCPU is down; give the domain one more than its kernel uses")
			return
		}
		state = t.look(m, spare)[0].state
		t.Equal(offline, "state", t.ABI.Word("offline"), state)
		t.Equal(offline, "preempted", t.Want(offline, "preempted"), t.preempted(state))
	}}
}

// xenSteal: what a vCPU that competes with others is kept waiting.
func xenSteal() Check {
	const (
		monotonic = "steal/monotonic"
		counts    = "steal/counts"
		changes   = 10
	)
	return Check{Rules: []string{monotonic, counts}, Run: func(t *T) {
		m := t.xen()
		l := t.looker(m, m.VCPU(target))
		first := l.look()[0]
		end := t.competing(m)
		var less, seen int64
		last := first
		t.Until(func() bool {
			r := l.look()[0]
			less += bit(r.steal() < last.steal())
			seen += bit(r.steal() != last.steal())
			last = r
			return seen >= changes
		})
		end()
		if seen < changes {
			t.Fatal(fmt.Errorf("steal changed %d times, not %d: the CPU was hardly ever kept waiting", seen, changes))
		}
		t.Evidence(counts, "nanoseconds runnable", last.runnable-first.runnable)
		t.Equal(monotonic, "values less than an earlier one", t.Want(monotonic, "decreases"), less)
		t.Equal(counts, "time of state runnable grows", t.Want(counts, "grows"), bit(last.runnable > first.runnable))
	}}
}

// xenKernelArea: what the guest's kernel sees of a vCPU that was preempted: in the kernel, where it
// yields again and again, and in user mode, where it spins. The kernel's area counts where
// get_runstate_info says before and after that the vCPU is preempted, since the same time.
func xenKernelArea() Check {
	const (
		kernel = "preempted/area-kernel-mode"
		user   = "preempted/area-user-mode"
		// samples is how many preemptions are looked at.
		samples = 10
	)
	return Check{Rules: []string{kernel, user}, Run: func(t *T) {
		l := t.ABI.Layout("vcpu_runstate_info")
		state := func(b []byte) uint64 { return uint64(t.ISA.Order.Uint32(b[l.Field("state").Offset:])) }
		entry := func(b []byte) uint64 { return t.ISA.Order.Uint64(b[l.Field("state_entry_time").Offset:]) }
		for _, rule := range []string{kernel, user} {
			m := t.xen()
			if rule == kernel {
				t.start(m, target, t.operation("yield", 0), arch.Op{Kind: arch.Loop, Arg: [6]uint64{0, 1 << 40}})
			} else {
				t.start(m, target, spinUntil(m.Alloc(8, 8, 0).Address(), ^uint64(0), 1, 0))
			}
			var seen, told int64
			var last uint64
			t.Until(func() bool {
				area, before, after, err := m.KernelRunstate(target)
				t.Check("the kernel's area", err)
				if entry(before) != entry(after) || entry(before) == last || t.preempted(state(before)) == 0 || t.preempted(state(after)) == 0 {
					return false
				}
				last = entry(before)
				seen++
				told += t.preempted(state(area))
				return seen == samples
			})
			if seen < samples {
				t.Fatal(fmt.Errorf("a vCPU was seen preempted %d times, not %d", seen, samples))
			}
			t.Evidence(rule, "samples, and those in which the area says preempted", []int64{seen, told})
			if rule == kernel {
				// Between two yields the vCPU is in user mode.
				t.Equal(rule, "preempted in the kernel's area", t.Want(rule, "preempted"), bit(told > 0))
			} else {
				t.Equal(rule, "preempted in the kernel's area, each time", t.Want(rule, "preempted"), bit(told == seen))
			}
			t.Open(machine()) // ends the target's program
		}
	}}
}

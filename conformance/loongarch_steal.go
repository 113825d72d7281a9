package conformance

import (
	"fmt"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// The area for steal time, which NOTIFY registers, and preempted. When the hypervisor writes it, only
// two things tell for certain: NOTIFY itself, and being taken off by the host, which a guest cannot
// have done to it. There, a check waits for that to happen, and is unreached where it does not. A
// wait, after which the CPU comes back to the host's CPU, is a third: whether it is one here is found
// out by the same wait while an area is registered. The host of the reference hypervisor takes CPUs off
// when it is asked to.

// loongRegister runs what registers a record, or takes it back, on a CPU, and then looks at fields of
// the record from there.
func (t *T) loongRegister(m microvm.Machine, cpu int, op arch.Op, rec record, fields ...string) (result int64, values []uint64) {
	p := arch.Program{op}
	for _, f := range fields {
		p = append(p, load(rec.addressOf(f), rec.layout.Field(f).Size))
	}
	r := t.run(m, cpu, p...)
	for _, v := range r[1:] {
		values = append(values, v.Value)
	}
	return t.returned(r[0]), values
}

// loongTurn has a CPU, the target or the third, wait until it is kicked.
func (t *T) loongTurn(c loong, m microvm.Machine, cpu int) {
	if !t.offered("IPI") {
		return
	}
	t.waiter(c, m, cpu)
	t.run(m, caller, t.kick(m.ID(cpu)))
	if !t.Until(func() bool { at, _ := m.At(cpu); return at > loongWaitAt }) {
		t.Fatal(fmt.Errorf("CPU %d does not come back from its wait", cpu))
	}
	t.finish(m, cpu)
}

// turnWrites tells whether the record that is registered on a CPU is written when that comes back
// from a wait, tried several times: a short one may not have taken it off.
func (t *T) turnWrites(c loong, m microvm.Machine, cpu int, rec record) bool {
	return t.loongTried(c, func() bool {
		before := rec.get(version)
		t.loongTurn(c, m, cpu)
		return rec.get(version) != before
	})
}

const noTurn = "the hypervisor does not write the area of a CPU that comes back from a wait, so that what it does not write then proves nothing"

// loongRegisters: what NOTIFY does at once, whatever was in the area.
func loongRegisters(c loong) Check {
	const (
		registers = "notify/registers"
		written   = "steal/layout-written"
		odd       = "steal/odd-version"
		padding   = "steal/padding-untouched"
		flagged   = "steal/flags-untouched"
		cleared   = "preempted/cleared-at-registration"
		base      = 1 << 40 // nanoseconds; see stealGrows
	)
	return Check{Rules: []string{registers, written, odd, padding, flagged, cleared}, Run: func(t *T) {
		for _, cpu := range []int{target, third} {
			for _, v := range []uint64{0, 7, 1<<32 - 2} {
				m := t.Open(c.plain)
				rec := t.record(m)
				rec.set(rec.steal, base)
				rec.set(version, v)
				result, seen := t.loongRegister(m, cpu, rec.on(), rec, version, rec.steal, rec.preempted)
				what := fmt.Sprintf(", CPU %d, version %d before", cpu, v)
				t.Equal(registers, "result"+what, t.ABI.Result("NOTIFY", "registered"), result)
				t.Equal(registers, "version has changed"+what, t.Want(registers, "changes"), bit(seen[0] != v))
				if v%2 == 0 {
					t.Equal(written, "version modulo 2"+what, t.Want(written, "parity"), seen[0]%2)
					t.Equal(written, "version changes"+what, t.Want(written, "changes"), bit(seen[0] != v))
					t.Equal(written, "steal is less"+what, t.Want(written, "decreases"), bit(seen[1] < base))
					t.Truth(written, "steal counts on from what it held"+what, seen[1] < 2*base)
				} else {
					t.Equal(odd, "version modulo 2"+what, t.Want(odd, "parity"), seen[0]%2)
					t.Truth(odd, "version has changed"+what, seen[0] != v)
				}
				if t.offered("PREEMPT") {
					t.Equal(cleared, "preempted"+what, t.Want(cleared, "preempted"), seen[2])
				}
				if seen[0] == v {
					for _, rule := range []string{padding, flagged} {
						t.Unreached(rule, "the hypervisor did not write the area, so that what it leaves alone proves nothing")
					}
				}
				t.Equal(padding, "bytes of padding changed"+what, t.Want(padding, "changed"), rec.changed(rec.padding()...))
				t.Equal(padding, "bytes around the area changed"+what, t.Want(padding, "changed"), rec.outside())
				t.Equal(flagged, "bytes of flags changed"+what, t.Want(flagged, "changed"), rec.changed(flags))
				t.loongRegister(m, cpu, rec.off(), rec)
			}
		}
	}}
}

// loongOwnArea: two CPUs register areas. That one does so once more has no bearing on the other's, and
// each is that of its CPU.
func loongOwnArea(c loong) Check {
	const rule = "notify/own-area"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		var changed int64
		t.loongTried(c, func() bool {
			m := t.Open(c.plain)
			other, own := t.record(m), t.record(m)
			t.loongRegister(m, third, other.on(), other)
			t.loongRegister(m, target, own.on(), own)
			t.Control("the area of the other CPU was written when it was registered", true, other.get(version) != 0)
			other.overwrite()
			own.overwrite()
			t.loongRegister(m, target, own.on(), own)
			t.Control("the area of the CPU was written when it was registered once more", true, own.anywhere() > 0)
			// The host may have taken the other CPU off meanwhile.
			changed = other.anywhere()
			if t.turnWrites(c, m, target, own) {
				own.overwrite()
				t.Truth(rule, "the other CPU's area is still its own", t.turnWrites(c, m, third, other))
				changed += own.anywhere()
			}
			t.loongRegister(m, target, own.off(), own)
			t.loongRegister(m, third, other.off(), other)
			return changed == t.Want(rule, "changed")
		})
		t.Equal(rule, "bytes changed", t.Want(rule, "changed"), changed)
	}}
}

// loongReplaces: a second area is written from then on, the first one no more.
func loongReplaces(c loong) Check {
	const rule = "notify/replaces"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(c.plain)
		old, now := t.record(m), t.record(m)
		t.loongRegister(m, target, old.on(), old)
		t.Control("the first area was written", true, old.get(version) != 0)
		t.loongRegister(m, target, now.on(), now)
		old.overwrite()
		now.overwrite()
		t.loongRegister(m, target, now.on(), now)
		t.Control("the second area was written", true, now.anywhere() > 0)
		t.loongTurn(c, m, target)
		t.Equal(rule, "bytes changed", t.Want(rule, "changed"), old.anywhere())
		t.loongRegister(m, target, now.off(), now)
	}}
}

// loongTakesBack: once the area is taken back nothing writes it. The control is that what comes after
// did write it while it was registered.
func loongTakesBack(c loong) Check {
	const rule = "notify/takes-back"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, word := range []string{"0", "the address"} {
			m := t.Open(c.plain)
			rec := t.record(m)
			off := rec.off()
			if word != "0" {
				off = rec.register(rec.real)
			}
			t.loongRegister(m, target, rec.on(), rec)
			turns := t.turnWrites(c, m, target, rec)
			result, _ := t.loongRegister(m, target, off, rec)
			rec.overwrite()
			t.Equal(rule, "result with "+word, t.ABI.Result("NOTIFY", "taken back"), result)
			if !turns {
				t.Unreached(rule, noTurn)
			}
			t.loongTurn(c, m, target)
			t.loongTurn(c, m, target)
			t.loongRegister(m, target, off, rec)
			t.Equal(rule, "bytes changed after it with "+word, t.Want(rule, "changed"), rec.anywhere())
		}
	}}
}

// loongRefused: what NOTIFY refuses has no effect: what was registered before stays so.
func loongRefused(c loong) Check {
	const (
		reserved = "notify/reserved-bits"
		other    = "notify/other-things"
	)
	return Check{Rules: []string{reserved, other}, Run: func(t *T) {
		type bad struct {
			what string
			op   func(rec record) arch.Op
		}
		call := t.ABI.Call("NOTIFY")
		thing := uint64(call.Arg("what").Value("STEAL_TIME"))
		cases := map[string][]bad{}
		mask := uint64(call.Arg("address").Value("RESERVED"))
		for b := range 64 {
			if mask>>b&1 == 0 {
				continue
			}
			for _, valid := range []uint64{0, t.valid()} {
				cases[reserved] = append(cases[reserved], bad{fmt.Sprintf("bit %d, valid %d", b, valid), func(rec record) arch.Op {
					return rec.register(rec.real | 1<<b | valid)
				}})
			}
		}
		things := []uint64{0, thing | 1<<32, thing | 1<<63, ^uint64(0)}
		for b := range 64 {
			if 1<<b != thing {
				things = append(things, 1<<b)
			}
		}
		for _, n := range things {
			cases[other] = append(cases[other], bad{"what " + Hex(n).String(), func(rec record) arch.Op {
				return t.call("NOTIFY", n, rec.real|t.valid())
			}})
		}
		for rule, when := range map[string]string{reserved: "reserved bits", other: "other"} {
			m := t.Open(c.plain)
			good, area := t.record(m), t.record(m)
			area.overwrite()
			t.loongRegister(m, target, good.on(), good)
			t.Control("the area was written when it was registered", true, good.get(version) != 0)
			turns := t.turnWrites(c, m, target, good)
			for _, k := range cases[rule] {
				result, _ := t.loongRegister(m, target, k.op(area), area)
				t.Equal(rule, "result for "+k.what, t.ABI.Result("NOTIFY", when), result)
			}
			if turns {
				t.Equal(rule, "areas registered", t.Want(rule, "registered"), bit(t.turnWrites(c, m, target, good)))
			}
			t.Evidence(rule, "that the area from before stays was seen", turns)
			t.Equal(rule, "bytes of the refused area written", 0, area.anywhere())
			t.loongRegister(m, target, good.off(), good)
		}
	}}
}

// loongNowhere: addresses that there is no memory at. The control is the address of the area that
// they differ from in a bit.
func loongNowhere(c loong) Check {
	const (
		nowhere = "notify/nowhere"
		high    = "notify/high-addresses"
	)
	return Check{Rules: []string{nowhere, high}, Run: func(t *T) {
		m := t.Open(c.plain)
		rec := t.record(m)
		rec.overwrite()
		for _, b := range []int{40, 43, 46, 62, 63} {
			r := t.run(m, target, rec.register(rec.real|1<<b|rec.valid))[0]
			what := fmt.Sprintf("bit %d of the address", b)
			t.Equal(nowhere, "result with "+what, t.ABI.Result("NOTIFY", "nowhere"), t.returned(r))
			t.Equal(nowhere, "exception with "+what, t.Want(nowhere, "exceptions"), bit(r.Trap != 0))
			t.loongTurn(c, m, target)
			t.Equal(high, "bytes written with "+what, t.Want(high, "changed"), rec.anywhere())
		}
		rec.set(version, 0)
		t.loongRegister(m, target, rec.on(), rec)
		t.Control("the area itself is written", true, rec.get(version) != 0)
		t.loongRegister(m, target, rec.off(), rec)
	}}
}

// loongLooks is how often a guest looks for its CPU having been taken off by the host.
const loongLooks = 300

// loongContention is a CPU, the target, that runs with an area registered for as long as its host
// lets it.
type loongContention struct {
	// end has the CPU come to its end.
	end func()
	// looks is how often to look for the CPU's having been taken off. forced tells that the host
	// does take it off: it has been made to.
	looks  int
	forced bool
}

// loongContend is contend, where the host can be made to have CPUs compete. In a guest of another the
// CPU just runs. The program p comes once it does. The control, where nobody else can have the CPU
// taken off, is that nothing is written before.
func (t *T) loongContend(c loong, m microvm.Machine, rec record, p ...arch.Op) loongContention {
	if !c.guest() {
		k := t.contend(m, rec, p...)
		return loongContention{k.end, t.Looks, true}
	}
	begin, flag := m.Alloc(8, 8, 0), m.Alloc(8, 8, 0)
	until := func(a arch.Area) arch.Op { return spinUntil(a.Address(), ^uint64(0), 1, 0) }
	t.start(m, target, append(append(arch.Program{interruptions(1), rec.on(), until(begin)}, p...), until(flag), rec.off())...)
	t.Control("the area is registered", true, t.Until(func() bool { at, _ := m.At(target); return at > 1 }))
	k := loongContention{looks: min(loongLooks, t.Looks)}
	if c.asks {
		before := rec.get(version)
		for range staysLooks {
			t.within(1, func() bool { return false })
			t.Control("writes to the area of a CPU that is not taken off", 0, rec.get(version)-before)
		}
		release := t.crowd(m, target, third)
		t.start(m, third, interruptions(1), until(flag))
		k.looks, k.forced = t.Looks, true
		k.end = func() {
			flag.Store(0, 8, 1)
			t.finish(m, target)
			t.finish(m, third)
			release()
		}
	} else {
		k.end = func() {
			flag.Store(0, 8, 1)
			t.finish(m, target)
		}
	}
	begin.Store(0, 8, 1)
	return k
}

// ownAt is where, among a contending CPU's operations, the program begins that is its own.
func (c loong) ownAt() int {
	if c.guest() {
		return 3
	}
	return 1
}

const notTaken = "the host did not take the CPU off while it was looked at, and a guest cannot ask it to"

// loongGrows: steal of a CPU that is taken off.
func loongGrows(c loong) Check {
	const (
		grows = "steal/grows"
		base  = 1 << 40
	)
	return Check{Rules: []string{grows}, Run: func(t *T) {
		m := t.Open(c.plain)
		rec := t.record(m)
		rec.set(rec.steal, base)
		k := t.loongContend(c, m, rec)
		first := rec.get(rec.steal)
		grew := t.within(k.looks, func() bool { return rec.get(rec.steal) > first })
		k.end()
		last := rec.get(rec.steal)
		t.Evidence(grows, "steal", []uint64{base, first, last})
		if !grew && !k.forced {
			t.Unreached(grows, notTaken)
		}
		t.Equal(grows, "steal grows", t.Want(grows, "grows"), bit(grew))
		t.Truth(grows, "steal counts on from what it held", base <= last && last < 2*base)
	}}
}

// loongReader: a reader on another CPU that follows the version protocol while the area is being
// written.
func loongReader(c loong) Check {
	const (
		protocol  = "steal/version-protocol"
		monotonic = "steal/monotonic"
		reads     = 5000
		changes   = 3
	)
	return Check{Rules: []string{protocol, monotonic}, Run: func(t *T) {
		m := t.Open(c.plain)
		rec := t.record(m)
		k := t.loongContend(c, m, rec)
		var sum arch.Result
		enough := t.within(k.looks, func() bool {
			r := t.run(m, caller, arch.Op{Kind: arch.Sample, Arg: [6]uint64{rec.addressOf(version), rec.addressOf(rec.steal), reads}})[0]
			for i := range sum.Regs {
				sum.Regs[i] += r.Regs[i]
			}
			return sum.Regs[arch.SampleChanges] >= changes
		})
		k.end()
		for _, rule := range []string{protocol, monotonic} {
			t.Evidence(rule, "samples: version odd, version moved, torn, less, changed, changed without version", sum.Regs[:6])
			if !enough && !k.forced {
				t.Unreached(rule, notTaken)
			}
		}
		if !enough && k.forced {
			t.Fatal(fmt.Errorf("a reader saw %d changes of steal, not %d: the CPU was hardly ever taken off", sum.Regs[arch.SampleChanges], changes))
		}
		t.Equal(protocol, "values that changed under an even, unchanged version", t.Want(protocol, "torn"), int64(sum.Regs[arch.SampleTorn]+sum.Regs[arch.SampleSilent]))
		t.Equal(monotonic, "values less than an earlier one", t.Want(monotonic, "decreases"), int64(sum.Regs[arch.SampleLess]))
	}}
}

// loongBusy: preempted is clear as the running CPU itself sees it, and set as others see it once the
// host has taken it off. Each is the other's control.
func loongBusy(c loong) Check {
	const (
		running     = "preempted/running"
		descheduled = "preempted/descheduled"
	)
	return Check{Rules: []string{running, descheduled}, Run: func(t *T) {
		m := t.Open(c.plain)
		rec := t.record(m)
		_, _, mask := t.ABI.PreemptedField()
		clear, set := uint64(t.Want(running, "preempted")), mask*uint64(t.Want(descheduled, "preempted"))
		t.Control("preempted of a descheduled CPU is to be told from that of a running one", true, set != clear)
		rec.set(rec.preempted, clear)
		reads := uint64(30000)
		if c.guest() { // which has a real clock, and its turn for longer
			reads = 1 << 20
		}
		own := spinUntil(rec.addressOf(rec.preempted), mask, mask, reads)
		k := t.loongContend(c, m, rec, own)
		var value uint64
		look := func(want func(uint64) bool) bool {
			return t.within(k.looks, func() bool { value = rec.get(rec.preempted); return want(value) })
		}
		isSet := func(v uint64) bool { return v != clear }
		seen := look(isSet)
		first := value
		// A second time, as what is set once may never be cleared, or never be set again.
		again := seen && look(func(v uint64) bool { return v == clear }) && look(isSet)
		t.Until(func() bool { at, _ := m.At(target); return at > c.ownAt() })
		k.end()
		r := m.Results(target)[c.ownAt()]
		if !seen {
			if !k.forced {
				t.Unreached(descheduled, notTaken)
			}
			t.Unreached(running, "the CPU was not seen descheduled, so that its own view proves nothing")
		}
		t.Equal(descheduled, "preempted as another CPU sees it", set, first)
		if again || k.forced {
			t.Equal(descheduled, "preempted when the CPU is off once more", set, value)
		}
		t.Equal(running, "preempted as the CPU itself sees it", clear, r.Value&mask)
		t.Equal(running, "reads by the CPU itself, none of them set", reads, r.Aux)
	}}
}

// loongWaiting: preempted stays clear while the CPU waits. The control is that the area was written
// when it was registered. Between programs the CPU of a machine of our own is out as well.
func loongWaiting(c loong) Check {
	const rule = "preempted/waiting"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(c.plain)
		rec := t.record(m)
		t.loongRegister(m, target, rec.on(), rec)
		t.Control("the area was written when it was registered", true, rec.get(version) != 0)
		rec.set(rec.preempted, uint64(t.Want("preempted/running", "preempted")))
		var sleeps bool
		t.loongClear(c, func() (string, bool) {
			t.waiter(c, m, target)
			for range staysLooks {
				t.Equal(rule, "preempted", t.Want(rule, "preempted"), rec.get(rec.preempted))
				if sleeps = t.sleeping(m, target); !sleeps {
					return t.wokenBy(m, target), true
				}
			}
			t.kicked(m, caller, target)
			return "", false
		})
		t.Control("the CPU still waits", true, sleeps)
		t.loongRegister(m, target, rec.off(), rec)
	}}
}

// loongUntouched: without PREEMPT the hypervisor leaves the byte alone, when the area is registered and
// when the CPU is taken off. The control is that it writes the rest.
func loongUntouched(c loong) Check {
	const rule = "preempted/untouched-without-feature"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		config := c.plain
		if c.chooses() {
			only := uint32(1) << t.ABI.Feature("STEAL_TIME").Bit
			config.Features = &only
		} else if t.offered("PREEMPT") {
			t.Unreached(rule, "PREEMPT is offered, and a guest cannot hide it")
			return
		}
		m := t.Open(config)
		rec := t.record(m)
		k := t.loongContend(c, m, rec)
		first := rec.get(rec.steal)
		t.within(k.looks, func() bool { return rec.get(rec.steal) > first })
		k.end()
		t.Control("the area is written", true, rec.get(version) != 0)
		t.Equal(rule, "bytes changed", t.Want(rule, "changed"), rec.changed(rec.preempted))
	}}
}

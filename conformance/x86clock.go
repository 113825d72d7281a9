package conformance

import (
	"fmt"
	"math/bits"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// The clock: what a guest computes from its TSC and the area that the hypervisor writes.

func tsc() arch.Op { return arch.Op{Kind: arch.Clock} }

// clockOn has a CPU register a clock, and returns it once it is written.
func (t *T) clockOn(m microvm.Machine, cpu int, register string) *plot {
	p := t.plot(m, "pvclock_vcpu_time_info")
	p.set(version, 0)
	p.set(flags, 0)
	p.mark()
	r := t.ABI.Register(register)
	t.run(m, cpu, writeRegister(r.Number, p.address()|r.Enable), tsc())
	own, _ := p.changed()
	t.Control("the clock is written", true, own > 0)
	return p
}

// clockReading is the area's content, of one version.
type clockReading struct {
	version, stamp, time, multiplier, flags uint64
	shift                                   int8
}

func (p *plot) reading() clockReading {
	return clockReading{
		version: p.get(version), stamp: p.get("tsc_timestamp"), time: p.get("system_time"),
		multiplier: p.get("tsc_to_system_mul"), flags: p.get(flags), shift: int8(p.get("tsc_shift")),
	}
}

// at is system time at a value of the TSC, in nanoseconds, as pvclock.h of Linux has it.
func (r clockReading) at(tsc uint64) uint64 {
	ticks := tsc - r.stamp
	if r.shift >= 0 {
		ticks <<= r.shift
	} else {
		ticks >>= -r.shift
	}
	high, low := bits.Mul64(ticks, r.multiplier)
	return r.time + high<<32 + low>>32
}

// x86ClockEven: what an update does to version.
func x86ClockEven(rule string) Check {
	const updates = 6
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.monitor(machine())
		p := t.clockOn(m, target, "SYSTEM_TIME_NEW")
		last := p.get(version)
		for range updates {
			t.provokeClock(m)
			now := p.get(version)
			t.Equal(rule, "version modulo 2 after an update", t.Want(rule, "parity"), now%2)
			t.Equal(rule, "version changes", t.Want(rule, "changes"), bit(now != last))
			last = now
		}
	}}
}

// x86ClockReader: what a reader sees of updates that go on and on. Where the host's clock is the
// TSC, all CPUs have the same time of one moment, which KVM takes anew when the CPU with id 0 goes
// over from one pair of registers to the other (Linux 7.2.12, arch/x86/kvm/x86.c,
// kvm_write_system_time).
func x86ClockReader(rule string) Check {
	const (
		reads   = 500 // of one program
		pause   = 50  // reads of a word between two updates
		changes = 3   // of tsc_timestamp that the reader must have seen
	)
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(microvm.Config{CPUs: 3, IDs: []uint64{2, 9, 0}})
		p := t.clockOn(m, target, "SYSTEM_TIME_NEW")
		again := t.clockOn(m, third, "SYSTEM_TIME_NEW")
		stop := m.Alloc(8, 8, 0)
		t.start(m, target, spinUntil(stop.Address(), ^uint64(0), 1, 0))
		var p3 arch.Program
		for _, name := range []string{"SYSTEM_TIME_NEW", "SYSTEM_TIME"} {
			r := t.ABI.Register(name)
			p3 = append(p3, writeRegister(r.Number, again.address()|r.Enable), spinUntil(stop.Address(), ^uint64(0), 1, pause))
		}
		t.start(m, third, append(p3, arch.Op{Kind: arch.Loop, Arg: [6]uint64{0, 1 << 30}})...)
		var sum arch.Result
		seen := t.Until(func() bool {
			got := t.run(m, caller, arch.Op{Kind: arch.Sample, Arg: [6]uint64{p.addressOf(version), p.addressOf("tsc_timestamp"), reads}})[0]
			for i := range sum.Regs {
				sum.Regs[i] += got.Regs[i]
			}
			return sum.Regs[arch.SampleChanges] >= changes
		})
		if !seen {
			t.Fatal(fmt.Errorf("a reader saw %d changes of tsc_timestamp, not %d: the hypervisor hardly ever takes the time anew", sum.Regs[arch.SampleChanges], changes))
		}
		t.Evidence(rule, "samples: version odd, version moved, torn, less, changed, changed without version", sum.Regs[:6])
		t.Equal(rule, "values that changed under an even, unchanged version", t.Want(rule, "torn"), int64(sum.Regs[arch.SampleTorn]+sum.Regs[arch.SampleSilent]))
		stop.Store(0, 8, 1)
		t.finish(m, target)
	}}
}

// x86ClockOrder: two CPUs pass a ball, and read their clocks whenever they have it. What each
// computes must not be less than what the other computed before. If a clock was written
// meanwhile, which Linux before 7.2 does a while after another CPU has registered its own, they do it
// again.
func x86ClockOrder(rule string) Check {
	const rounds = 10
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		cpus := []int{target, third}
		clocks := []*plot{t.clockOn(m, target, "SYSTEM_TIME_NEW"), t.clockOn(m, third, "SYSTEM_TIME_NEW")}
		ball := m.Alloc(8, 8, 0)
		pass := func(v uint64) arch.Op { return store(ball.Address(), v, 8) }
		await := func(v uint64) arch.Op { return spinUntil(ball.Address(), ^uint64(0), v, 0) }
		var one, other arch.Program
		for i := uint64(0); i < rounds; i++ {
			one = append(one, tsc(), pass(2*i+1), await(2*i+2))
			other = append(other, await(2*i+1), tsc(), pass(2*i+2))
		}
		var readings []clockReading
		t.Control("the clocks stay as they are meanwhile", true, t.Until(func() bool {
			ball.Store(0, 8, 0)
			for _, cpu := range cpus {
				t.enters(m, cpu) // and the clock that is due is written
			}
			readings = []clockReading{clocks[0].reading(), clocks[1].reading()}
			t.start(m, third, other...)
			t.run(m, target, one...)
			t.finish(m, third)
			return readings[0] == clocks[0].reading() && readings[1] == clocks[1].reading()
		}))
		for i, r := range readings {
			if r.flags&clocks[i].layout.Bit(flags, "TSC_STABLE") == 0 {
				t.Unreached(rule, fmt.Sprintf("TSC_STABLE is clear in the clock of CPU %d: guests keep the order themselves", cpus[i]))
			}
		}
		var times []uint64
		a, b := m.Results(target), m.Results(third)
		for i := range rounds {
			times = append(times, readings[0].at(a[3*i].Value), readings[1].at(b[3*i+1].Value))
		}
		var decreases int64
		for i := 1; i < len(times); i++ {
			decreases += bit(times[i] < times[i-1])
		}
		t.Evidence(rule, "times", times)
		t.Evidence(rule, "clocks", fmt.Sprintf("%+v", readings))
		t.Truth(rule, "time goes on", times[len(times)-1] > times[0])
		t.Equal(rule, "times less than the one before on the other CPU", t.Want(rule, "decreases"), decreases)
	}}
}

// x86WallClock: by both pairs of registers, what the guest computes is the time of day, and the
// area is written when the register is, and only then.
func x86WallClock() Check {
	const (
		right = "clock/wall-clock"
		once  = "clock/wall-clock-once"
	)
	return Check{Rules: []string{right, once}, Run: func(t *T) {
		m := t.monitor(machine())
		second := uint64(t.Want(right, "second"))
		for _, pair := range []struct{ wall, system string }{{"WALL_CLOCK_NEW", "SYSTEM_TIME_NEW"}, {"WALL_CLOCK", "SYSTEM_TIME"}} {
			p := t.clockOn(m, target, pair.system)
			wall := t.plot(m, "pvclock_wall_clock")
			wall.set(version, 0)
			wall.mark()
			r := t.ABI.Register(pair.wall)
			before := m.TimeOfDay()
			got := t.run(m, target, writeRegister(r.Number, wall.address()), tsc())
			after := m.TimeOfDay()
			t.Equal(right, "exception of the write to "+r.Name, 0, got[0].Trap)
			_, around := wall.changed()
			t.Equal(once, "bytes changed around the area of "+r.Name, t.Want(once, "changed"), around)
			t.Equal(right, "version modulo 2", t.Want(right, "parity"), wall.get(version)%2)
			t.Truth(right, "version has changed", wall.get(version) != 0)
			t.Truth(right, "nanoseconds are less than a second", wall.get("nsec") < second)
			clock := p.reading()
			since := clock.at(got[1].Value) - clock.time
			now := wall.get("sec")*second + wall.get("nsec") + clock.at(got[1].Value)
			slack := since/1e6*uint64(t.Want(right, "slewed")) + uint64(t.Want(right, "rounded"))
			t.Truth(right, "the guest's time of day is not before the host's", now+slack >= before)
			t.Truth(right, "the guest's time of day is not after the host's", now <= after+slack)
			t.Evidence(right, "host before, guest by "+r.Name+", host after", []uint64{before, now, after})

			// Nothing else writes it: neither a clock that is registered, nor a write of 0.
			wall.mark()
			t.clockOn(m, third, pair.system)
			t.run(m, third, writeRegister(r.Number, 0), tsc())
			t.run(m, target, tsc())
			own, around := wall.changed()
			t.Equal(once, "bytes changed afterwards, by "+r.Name, t.Want(once, "changed"), own+around)
			other := t.plot(m, "pvclock_wall_clock")
			t.run(m, third, writeRegister(r.Number, other.address()))
			own, _ = other.changed()
			t.Truth(once, "another CPU's write to "+r.Name+" writes, too", own > 0)
			own, around = wall.changed()
			t.Equal(once, "bytes changed at the old address", t.Want(once, "changed"), own+around)
		}
	}}
}

// x86GuestStopped: the flag is set, kept, and cleared for good. The control is that it was clear.
func x86GuestStopped(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.monitor(machine())
		p := t.clockOn(m, target, "SYSTEM_TIME_NEW")
		mask := p.layout.Bit(flags, "GUEST_STOPPED")
		look := func() uint64 {
			t.provokeClock(m)
			return p.get(flags) & mask / mask
		}
		t.Control("GUEST_STOPPED before", uint64(0), look())
		t.Check("tell that the guest was stopped", m.MarkStopped(target))
		t.run(m, target, tsc())
		t.Equal(rule, "GUEST_STOPPED after the guest was stopped", t.Want(rule, "set"), p.get(flags)&mask/mask)
		t.Equal(rule, "GUEST_STOPPED after another update", t.Want(rule, "set"), look())
		p.set(flags, p.get(flags)&^mask)
		t.Equal(rule, "GUEST_STOPPED once cleared, after another update", t.Want(rule, "cleared"), look())
	}}
}

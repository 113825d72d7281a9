package conformance

import (
	"fmt"
	"slices"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// What calls leave in memory or pass on to the VMM, what the host's scheduler says of steal, and
// the flush of a TLB that is asked for in preempted.

// x86RunDelay: what steal grows by lies between what the host says after the one entry and before
// the other, and the other way round. The control is that the host did keep the CPU waiting.
func x86RunDelay(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.monitor(machine())
		rec := t.record(m)
		delay := func() uint64 {
			d, err := m.Delay(target)
			t.Check("how long the CPU was kept waiting", err)
			return d
		}
		// An entry, between two looks at the host's own count.
		entry := func(p ...arch.Op) (before, steal, after uint64) {
			before = delay()
			t.run(m, target, p...)
			return before, rec.get(rec.steal), delay()
		}
		before, first, after := entry(rec.on())
		c := t.contend(m, rec)
		grew := t.Until(func() bool { return rec.get(rec.steal) > first })
		c.end()
		lower, last, upper := entry(tsc())
		t.Control("the CPU is kept waiting, and steal grows", true, grew && lower > after)
		added := last - first
		t.Evidence(rule, "run delay before and after the first entry, and the last", []uint64{before, after, lower, upper})
		t.Evidence(rule, "steal after the first entry, and the last", []uint64{first, last})
		t.Equal(rule, "steal added beyond what the host says", t.Want(rule, "outside"), bit(added > upper-before))
		t.Equal(rule, "steal added short of what the host says", t.Want(rule, "outside"), bit(added < lower-after))
	}}
}

// x86NoFlushOffered: what is planted in preempted is gone after an entry, on a machine without the
// feature of the flush.
func x86NoFlushOffered(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(t.hidden("STEAL_TIME"))
		rec := t.record(m)
		t.run(m, target, rec.on())
		for _, planted := range []uint64{1, 3, 0xff} {
			rec.set(rec.preempted, planted)
			r := t.run(m, target, load(rec.addressOf(rec.preempted), 1))
			t.Equal(rule, fmt.Sprintf("preempted after an entry, %#x before", planted), t.Want(rule, "preempted"), r[0].Value)
		}
	}}
}

// x86Flush: entries with FLUSH_TLB planted flush, and those with PREEMPTED alone do not, which is
// the control.
func x86Flush(rule string) Check {
	const entries = 16
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m)
		t.run(m, target, rec.on())
		l := rec.layout
		flushes := func(planted uint64) int64 {
			before, err := m.Counter(target, "tlb_flush")
			t.Check("counter tlb_flush", err)
			for range entries {
				rec.set(rec.preempted, planted)
				r := t.run(m, target, load(rec.addressOf(rec.preempted), 1))
				t.Equal(rule, "preempted after the entry", t.Want(rule, "preempted"), r[0].Value)
			}
			after, err := m.Counter(target, "tlb_flush")
			t.Check("counter tlb_flush", err)
			return int64(after - before)
		}
		preempted := l.Bit(rec.preempted, "PREEMPTED")
		without := flushes(preempted)
		with := flushes(preempted | l.Bit(rec.preempted, "FLUSH_TLB"))
		t.Evidence(rule, "flushes in entries without FLUSH_TLB, and with it", []int64{without, with})
		t.Control("entries without FLUSH_TLB flush as often", false, without >= entries)
		t.Equal(rule, "flushes at least one for each entry", t.Want(rule, "flushes"), bit(with >= entries))
	}}
}

// x86Pairing: the pair lies between what the host and the guest read before and after.
func x86Pairing() Check {
	const (
		content = "pairing/content"
		address = "pairing/address"
	)
	return Check{Rules: []string{content, address}, Run: func(t *T) {
		m := t.monitor(machine())
		p := t.plot(m, "kvm_clock_pairing")
		call := func(at uint64) arch.Op { return t.call("CLOCK_PAIRING", at, 0) }
		before := m.TimeOfDay()
		r := t.run(m, caller, tsc(), call(p.address()), tsc(), call(outside))
		after := m.TimeOfDay()
		if t.returned(r[1]) == t.ABI.Result("CLOCK_PAIRING", "no TSC clock") {
			for _, rule := range []string{content, address} {
				t.Unreached(rule, "the host's clock is not the TSC")
			}
		}
		_, around := p.changed()
		t.Equal(content, "bytes changed around", t.Want(content, "changed"), around)
		second := uint64(t.Want(content, "second"))
		time := p.get("sec")*second + p.get("nsec")
		t.Truth(content, "nanoseconds are less than a second", p.get("nsec") < second)
		t.Truth(content, "the time is not before the host's", time >= before)
		t.Truth(content, "the time is not after the host's", time <= after)
		t.Truth(content, "the TSC is not before the guest's", p.get("tsc") >= r[0].Value)
		t.Truth(content, "the TSC is not after the guest's", p.get("tsc") <= r[2].Value)
		t.Evidence(content, "host before, pair, host after", []uint64{before, time, after})
		t.Evidence(content, "guest before, pair, guest after", []uint64{r[0].Value, p.get("tsc"), r[2].Value})
		bytes := p.page.Bytes()
		for _, name := range []string{flags, "pad"} {
			f := p.layout.Field(name)
			zero := make([]byte, f.Size)
			t.Equal(content, "bytes of "+name+" that are not zero", t.Want(content, "zero"), different(bytes[p.at+f.Offset:][:f.Size], zero))
		}
		t.Equal(address, "result", t.ABI.Result("CLOCK_PAIRING", "address not writable"), t.returned(r[3]))
	}}
}

// different counts the bytes that differ.
func different(a, b []byte) int64 {
	var n int64
	for i := range a {
		n += bit(a[i] != b[i])
	}
	return n
}

// x86MapRangeExit: what the VMM is told, and what not.
func x86MapRangeExit() Check {
	const (
		bad  = "map-gpa-range/bad-range"
		told = "map-gpa-range/exit"
	)
	return Check{Rules: []string{bad, told}, Run: func(t *T) {
		call := t.ABI.Call("MAP_GPA_RANGE")
		m := t.monitor(microvm.Config{CPUs: 3, IDs: sparse, ExitHypercalls: 1 << call.Number})
		for _, area := range [][]uint64{{0x1001, 1, 0}, {0x1000, 0, 0}, {0x2000, ^uint64(0), 0}} {
			r := t.run(m, caller, t.call(call.Name, area...))
			t.Equal(bad, fmt.Sprintf("result for %#x", area), t.ABI.Result(call.Name, "bad range"), t.returned(r[0]))
			t.Equal(bad, fmt.Sprintf("exits for %#x", area), t.Want(bad, "told"), len(m.Passed(caller)))
		}
		for i, c := range []struct {
			args   []uint64
			answer int64
		}{{[]uint64{0x1000, 1, 0}, 0}, {[]uint64{0x7ffff000, 512, 1<<4 | 1}, -22}, {[]uint64{1 << 40, 1 << 20, 1<<64 - 1}, 1 << 40}} {
			m.Answer(caller, uint64(c.answer))
			r := t.run(m, caller, t.call(call.Name, c.args...))
			passed := m.Passed(caller)
			t.Equal(told, "exits", int64(i+1)*t.Want(told, "told"), len(passed))
			if len(passed) > 0 {
				last := passed[len(passed)-1]
				t.Equal(told, "number", call.Number, last.Number)
				t.Equal(told, "arguments", fmt.Sprintf("%#x", c.args), fmt.Sprintf("%#x", slices.Clone(last.Args[:])))
			}
			t.Equal(told, "result", c.answer, t.returned(r[0]))
		}
	}}
}

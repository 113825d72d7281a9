package conformance

import (
	"fmt"
	"slices"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// What an IPI sends to whom. For that, all CPUs of a machine have interrupts off, and the caller makes
// calls; after each, every CPU looks at what is pending, and clears it.

// lineup is what a call left: its own result, and the interrupts in ESTAT of each CPU, without those of its clock,
// which is the kernel's.
type lineup struct {
	result int64
	estat  [3]uint64
}

// loongSteps is how many calls a program has room for.
const loongSteps = 7

// loongLineup has the caller make calls and returns what each left. It does so until each has once left
// what holds wants, giving each CPU more time each time to get what was sent to it, and again for the
// interrupts that a kernel itself sends: it sends each CPU one while a program of calls runs, at times.
func (t *T) loongLineup(c loong, ops []arch.Op, holds func(i int, l lineup) bool) []lineup {
	var out []lineup
	for from := 0; from < len(ops); from += loongSteps {
		part := ops[from:min(from+loongSteps, len(ops))]
		got, held := make([]lineup, len(part)), make([]bool, len(part))
		try := 0
		t.loongClear(c, func() (string, bool) {
			doubtful := false
			for i, l := range t.loongRound(t.Open(c.plain), part, loongMoment(try)) {
				if held[i] {
					continue
				}
				got[i], held[i] = l, holds(from+i, l)
				doubtful = doubtful || !held[i]
			}
			try++
			return fmt.Sprint(got), doubtful
		})
		out = append(out, got...)
	}
	return out
}

// loongRound is one round of a lineup.
func (t *T) loongRound(m microvm.Machine, ops []arch.Op, reads uint64) []lineup {
	word := func() arch.Area { return m.Alloc(8, 8, 0) }
	await := func(a arch.Area, v uint64) arch.Op { return spinUntil(a.Address(), ^uint64(0), v, 0) }
	say := func(a arch.Area, v uint64) arch.Op { return store(a.Address(), v, 8) }
	turn, answers := word(), map[int]arch.Area{target: word(), third: word()}
	look := arch.Program{t.loongLater(m, reads), t.readESTAT(), t.writeESTAT(0)}
	const lookAt = 1 // of look

	// Nobody has interrupts off before all run: none must wait for this process then.
	const begin, off = 1, 2
	cpus := []int{target, third}
	first := arch.Program{}
	for _, cpu := range cpus {
		first = append(first, await(answers[cpu], begin))
	}
	first = append(first, say(turn, begin))
	for _, cpu := range cpus {
		first = append(first, await(answers[cpu], off))
	}
	first = append(first, interruptions(0), t.writeESTAT(0))
	head := len(first)
	for i, op := range ops {
		n := uint64(off + 1 + i)
		first = append(append(first, op), look...)
		first = append(first, say(turn, n), await(answers[target], n), await(answers[third], n))
	}
	step := (len(first) - head) / len(ops)
	t.start(m, caller, append(first, t.writeESTAT(t.swi0()))...)

	const otherHead = 6
	var otherStep int
	for _, cpu := range cpus {
		p := arch.Program{say(answers[cpu], begin), await(turn, begin), interruptions(0), t.writeESTAT(0), say(answers[cpu], off)}
		p = append(p, t.loongLater(m, 1))
		for i := range ops {
			n := uint64(off + 1 + i)
			q := append(append(arch.Program{await(turn, n)}, look...), say(answers[cpu], n))
			otherStep = len(q)
			p = append(p, q...)
		}
		t.start(m, cpu, append(p, t.writeESTAT(t.swi0()))...)
	}
	for _, cpu := range []int{caller, target, third} {
		t.finish(m, cpu)
	}
	const lines = loongLines &^ loongTimer
	out := make([]lineup, len(ops))
	own := m.Results(caller)
	others := map[int][]arch.Result{target: m.Results(target), third: m.Results(third)}
	for i := range ops {
		at := head + i*step
		out[i].result = t.returned(own[at])
		out[i].estat[caller] = own[at+1+lookAt].Value & lines
		for cpu, r := range others {
			out[i].estat[cpu] = r[otherHead+i*otherStep+1+lookAt].Value & lines
		}
	}
	return out
}

// reached lists the CPUs at which an IPI is pending.
func (t *T) reached(l lineup) (cpus []int) {
	for cpu, v := range l.estat {
		if v&t.swi0() != 0 {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// loongCase is an IPI and the CPUs that it is to reach.
type loongCase struct {
	rule, what string
	op         arch.Op
	want       []int
}

// loongCases makes calls and judges whom they reached. value is, for each rule that demands one, the
// number of others, or of interrupts; others are CPUs that were not meant.
func (t *T) loongCases(c loong, cases []loongCase, judge func(k loongCase, got []int)) {
	var ops []arch.Op
	for _, k := range cases {
		ops = append(ops, k.op)
	}
	for i, l := range t.loongLineup(c, ops, func(i int, l lineup) bool { return slices.Equal(t.reached(l), cases[i].want) }) {
		k := cases[i]
		t.Equal(k.rule, k.what+": result", t.ABI.Result(t.ABI.Scheduling.Kick, "waiting target"), l.result)
		judge(k, t.reached(l))
	}
}

// others counts the CPUs in got that are not in want, and missing those in want that are not in got.
func others(want, got []int) (n int64) {
	for _, cpu := range got {
		n += bit(!slices.Contains(want, cpu))
	}
	return n
}

// loongInterrupt: which interrupt an IPI makes pending. The control is a call that sends none.
func loongInterrupt(c loong) Check {
	const rule = "ipi/interrupt"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		id := t.Open(c.plain).ID(target)
		got := t.loongLineup(c, []arch.Op{t.nothing(), t.kick(id)}, func(i int, l lineup) bool {
			return l.estat[target] == uint64(i)*t.swi0()
		})
		t.Control("interrupts pending without a call", Hex(0), Hex(got[0].estat[target]))
		now := got[1].estat[target]
		t.Equal(rule, "SWI0", t.Want(rule, "pending"), bit(now&t.swi0() != 0))
		t.Equal(rule, "other interrupts", t.Want(rule, "others"), bit(now&^t.swi0() != 0))
		t.Evidence(rule, "ESTAT", Hex(got[1].estat[target]).String())
	}}
}

// loongKept: IPIs to a CPU with interrupts off, and what it takes once they are on. The control is the
// same without an IPI.
func loongKept(c loong) Check {
	const (
		kept      = "ipi/kept"
		coalesced = "ipi/coalesced"
	)
	return Check{Rules: []string{kept, coalesced}, Run: func(t *T) {
		for _, kicks := range []int{0, 1, 2} {
			want := uint64(min(kicks, 1))
			var n, pending uint64
			try := 0
			t.loongClear(c, func() (string, bool) {
				m := t.Open(c.plain)
				var before uint64
				_, after := t.held(m,
					func() { before = t.taken0(m, target) },
					func() {
						t.Until(func() bool { return t.taken0(m, target) >= before+want })
						t.run(m, caller, t.nothing())
						n = t.taken0(m, target) - before
					},
					slices.Repeat([]arch.Op{t.kick(m.ID(target))}, kicks), t.loongLater(m, loongMoment(try)), t.readESTAT())
				pending = uint64(bit(after[1].Value&t.swi0() != 0))
				try++
				// Nobody takes away what was sent; a host takes a moment.
				more, less := n > want || pending > want, n < want || pending < want
				return fmt.Sprint(n, pending), more || less && try <= len(loongMoments)
			})
			switch kicks {
			case 0:
				t.Control("interrupts without an IPI", 0, n)
				t.Control("pending without an IPI", 0, pending)
			case 1:
				t.Equal(kept, "pending while interrupts are off", 1, pending)
				t.Equal(kept, "interrupts once they are on", t.Want(kept, "interrupts"), n)
			case 2:
				t.Equal(coalesced, "interrupts by two IPIs", t.Want(coalesced, "interrupts"), n)
			}
		}
	}}
}

// loongSelf: a CPU sends an IPI to itself, and to nobody else.
func loongSelf(c loong) Check {
	const rule = "ipi/self"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(c.plain)
		t.loongCases(c, []loongCase{{rule, "the caller itself", t.kick(m.ID(caller)), []int{caller}}}, func(k loongCase, got []int) {
			t.Equal(rule, "interrupts", t.Want(rule, "interrupts"), bit(slices.Contains(got, caller)))
			t.Equal(rule, "interrupts of others", 0, others(k.want, got))
		})
	}}
}

// low32 is a lowest whose sum with an offset is an id, modulo 2^32.
func low32(id, offset uint64) uint64 { return (id - offset) & (1<<32 - 1) }

// loongWords: each bit of both words alone.
func loongWords(c loong) Check {
	const (
		low  = "ipi/low-word"
		high = "ipi/high-word"
	)
	return Check{Rules: []string{low, high}, Run: func(t *T) {
		id := t.Open(c.plain).ID(target)
		var cases []loongCase
		for n := range uint64(64) {
			cases = append(cases,
				loongCase{low, fmt.Sprintf("bit %d", n), t.ipi(1<<n, 0, low32(id, n)), []int{target}},
				loongCase{high, fmt.Sprintf("bit %d", n), t.ipi(0, 1<<n, low32(id, 64+n)), []int{target}})
		}
		t.loongCases(c, cases, func(k loongCase, got []int) {
			t.Equal(k.rule, k.what, true, slices.Contains(got, target))
			t.Equal(k.rule, k.what+": other CPUs", t.Want(k.rule, "others"), others(k.want, got))
		})
	}}
}

// loongTargets: bitmaps of several CPUs, of none, and of some that do not exist; and what of the
// arguments counts.
func loongTargets(c loong) Check {
	const (
		many   = "ipi/many-targets"
		absent = "ipi/skips-absent"
		empty  = "ipi/empty"
		half   = "ipi/lowest-high-half"
		wraps  = "ipi/lowest-wraps"
		unused = "ipi/arguments-unused"
	)
	return Check{Rules: []string{many, absent, empty, half, wraps, unused}, Run: func(t *T) {
		m := t.Open(c.plain)
		ids := []uint64{m.ID(caller), m.ID(target), m.ID(third)}
		lowest := slices.Min(ids)
		bitmap := func(cpus ...int) arch.Op {
			var words [2]uint64
			for _, cpu := range cpus {
				n := ids[cpu] - lowest
				if n >= 128 {
					t.Fatal(fmt.Errorf("CPUs with the numbers %d are too far apart for one bitmap", ids))
				}
				words[n/64] |= 1 << (n % 64)
			}
			return t.ipi(words[0], words[1], lowest)
		}
		all := []int{caller, target, third}
		extra := t.kick(ids[target])
		extra.Regs[t.ISA.Register("r8")], extra.Regs[t.ISA.Register("r9")] = ^uint64(0), ids[third]
		near := slices.Index(ids, lowest) // which a bitmap from the top of all numbers reaches
		cases := []loongCase{
			{many, "all", bitmap(all...), all},
			{many, "the two others", bitmap(target, third), []int{target, third}},
			{many, "caller and target", bitmap(caller, target), []int{caller, target}},
			{absent, "all bits", t.ipi(^uint64(0), ^uint64(0), low32(lowest, min(lowest, 5))), all},
			{empty, "lowest is a CPU", t.ipi(0, 0, ids[target]), nil},
			{empty, "lowest is nobody", t.ipi(0, 0, 1<<31), nil},
			{half, "bit 32", t.ipi(1, 0, ids[target]|1<<32), []int{target}},
			{half, "bits 32 to 63", t.ipi(1, 0, ids[target]|^uint64(1<<32-1)), []int{target}},
			{unused, "all bits of R8", extra, []int{target}},
		}
		if n := lowest + 1; n < 128 {
			words := [2]uint64{}
			words[n/64] = 1 << (n % 64)
			cases = append(cases, loongCase{wraps, "lowest 2^32 - 1", t.ipi(words[0], words[1], 1<<32-1), []int{near}})
		} else {
			t.Unreached(wraps, "no CPU has a number that a bitmap from the top of all numbers reaches")
		}
		t.loongCases(c, cases, func(k loongCase, got []int) {
			slices.Sort(k.want)
			t.Equal(k.rule, k.what+": CPUs reached", fmt.Sprint(k.want), fmt.Sprint(got))
			switch k.rule {
			case many:
				t.Equal(many, k.what+": other CPUs", t.Want(many, "others"), others(k.want, got))
			case empty:
				t.Equal(empty, k.what+": interrupts", t.Want(empty, "wakes"), len(got))
			case absent, half, wraps, unused:
				for _, cpu := range k.want {
					t.Equal(k.rule, fmt.Sprintf("%s: interrupts of CPU %d", k.what, cpu), t.Want(k.rule, "interrupts"), bit(slices.Contains(got, cpu)))
				}
			}
		})
	}}
}

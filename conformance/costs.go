package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// What it costs to leave for the hypervisor and come back, as reviewers of an area that CPUs share
// with it ask: without the area, and with it.

// Cost is something that a CPU does and that takes time in its hypervisor.
type Cost struct {
	// Name is lower case, words joined by hyphens.
	Name string
	// Needs names the feature that has to be offered; empty for none.
	Needs string
	// Ops is what the caller does in each turn. Beside is what the target does in as many turns
	// meanwhile, or, if Ceaseless, until the caller has had all of its own; nil for nothing.
	Ops, Beside func(t *T, m microvm.Machine) arch.Program
	Ceaseless   bool
	// Wake is what a third CPU does to end a wait of a CPU's, where caller and target wait for each
	// other. An event that came twice, or was for somebody else, has one of them ahead of the other,
	// which then waits in vain at the end.
	Wake func(t *T, m microvm.Machine, cpu int) arch.Op
}

// Sharing is which areas CPUs share with their hypervisor while a cost is measured.
type Sharing struct {
	// Name is one of SharingNames.
	Name string
	// Begin is what caller and target do to have these areas and no other, and End to have again
	// what they had before.
	Begin, End [target + 1]arch.Program
}

// SharingNames are what can be shared: nothing; the area by which the hypervisor tells of steal time;
// all areas that the platform has.
var SharingNames = []string{"none", "steal", "all"}

// Costs is what is measured of an implementer.
type Costs struct {
	Config microvm.Config
	// Sharing makes what is compared, beginning with what the others are compared with.
	Sharing func(t *T, m microvm.Machine) []Sharing
	Costs   []Cost
}

// Measured is what a cost came to with one kind of Sharing.
type Measured struct {
	Cost    string `json:"cost"`
	Sharing string `json:"sharing"`
	// Turns is how often the CPU did it for each value.
	Turns uint64 `json:"turns"`
	// Nanoseconds has a value for each round: those of one turn, on the CPU's own clock.
	Nanoseconds []float64 `json:"nanoseconds"`
	// Retaken is how many values were taken again, because a CPU waited in vain.
	Retaken int `json:"retaken,omitempty"`
	// Failed tells why there are no values.
	Failed string `json:"failed,omitempty"`
}

// span is how long the turns for one value are to take: long beside what begins and ends them.
const span = 10 * time.Millisecond

// Measure measures the suite's costs. In each round all of them are measured once with each kind of
// sharing, one kind after the other, so that what changes in the course of a run changes all of them
// alike. Each kind is the first of a round in its turn. An error tells that the equipment failed.
func (s *Suite) Measure(ctx context.Context, rounds int, emit func(Measured)) error {
	defer s.machines().close()
	t := &T{ctx: ctx, Suite: s}
	t.protect(func(t *T) {
		for _, m := range t.measure(rounds) {
			emit(m)
		}
	})
	return t.failure
}

// turn is a cost that is ready to be measured.
type turn struct {
	Cost
	ops, beside arch.Program
	turns       uint64
}

func (t *T) measure(rounds int) (out []Measured) {
	m := t.Open(t.Costs.Config)
	rate := t.clockRate(m)
	sharing := t.Costs.Sharing(t, m)
	var turns []turn
	for _, c := range t.Costs.Costs {
		if c.Needs != "" && !t.offered(c.Needs) {
			continue
		}
		n := turn{Cost: c, ops: c.Ops(t, m), turns: 1}
		if c.Beside != nil {
			n.beside = c.Beside(t, m)
		}
		// Few turns tell how many it takes.
		const most = 1 << 24
		for n.turns < most {
			ticks, _ := t.take(m, n, sharing[0])
			took := ticks / rate
			if took >= float64(span/2) {
				break
			}
			n.turns = min(max(2*n.turns, uint64(float64(n.turns)*float64(span)/max(took, 1))), 64*n.turns, most)
		}
		turns = append(turns, n)
		for _, s := range sharing {
			out = append(out, Measured{Cost: c.Name, Sharing: s.Name, Turns: n.turns})
		}
	}
	for round := range rounds {
		for i := range sharing {
			i = (i + round) % len(sharing)
			s := sharing[i]
			for j, n := range turns {
				all := out[j*len(sharing):][:len(sharing)]
				if all[i].Failed != "" {
					continue
				}
				ticks, good := t.take(m, n, s)
				for ; !good && all[i].Retaken < rounds; ticks, good = t.take(m, n, s) {
					all[i].Retaken++
				}
				if !good {
					for k := range all {
						all[k].Failed = fmt.Sprintf("with areas %s a CPU waited in vain %d times", s.Name, rounds+1)
						all[k].Nanoseconds = nil
					}
					continue
				}
				all[i].Nanoseconds = append(all[i].Nanoseconds, ticks/rate/float64(n.turns))
			}
		}
	}
	return out
}

// take returns the ticks of the caller's clock that the turns of a cost take. They are not good if a
// CPU waited in vain.
func (t *T) take(m microvm.Machine, n turn, s Sharing) (ticks float64, good bool) {
	p, first, last := n.program(s, caller, n.ops, n.turns)
	good = true
	switch {
	case n.Ceaseless:
		other, _, _ := n.program(s, target, n.beside, 4*n.turns)
		t.start(m, caller, p...)
		for at := 0; at < len(p); at, _ = m.At(caller) {
			t.run(m, target, other...)
		}
	case n.beside != nil:
		other, _, _ := n.program(s, target, n.beside, n.turns)
		t.start(m, target, other...)
		t.start(m, caller, p...)
		good = t.together(m, n, len(p), len(other))
		t.finish(m, target)
	default:
		t.start(m, caller, p...)
	}
	t.finish(m, caller)
	r := m.Results(caller)
	for i, res := range r[:len(p)] {
		if res.Count == 0 || res.Trap != 0 {
			t.Fatal(fmt.Errorf("%s, with %s shared: operation %d was done %d times, and its exception is %d", n.Name, s.Name, i, res.Count, int64(res.Trap)-1))
		}
	}
	return float64(r[last].Value - r[first].Value), good
}

// together waits until caller and target are at the ends of their programs, so many operations long,
// and tells whether they came there by themselves: the third CPU wakes them where neither goes on.
func (t *T) together(m microvm.Machine, n turn, ops ...int) (alone bool) {
	const (
		inVain = 2500 // looks at which nothing goes on
		most   = 20 * inVain
	)
	alone = true
	var before [target + 1]uint64
	still := 0
	if !t.within(most, func() bool {
		ended, moved := true, false
		for cpu, last := range ops {
			at, completed := m.At(cpu)
			ended = ended && at >= last
			moved = moved || completed != before[cpu]
			before[cpu] = completed
		}
		if still++; moved {
			still = 0
		}
		if still == inVain && !ended {
			alone, still = false, 0
			t.run(m, third, n.Wake(t, m, caller), n.Wake(t, m, target))
		}
		return ended
	}) {
		t.Fatal(fmt.Errorf("%s: caller and target do not come to their ends, though they are woken", n.Name))
	}
	return alone
}

// program has a CPU do something in so many turns. The clock is read at first and at last.
func (turn) program(s Sharing, cpu int, ops arch.Program, turns uint64) (p arch.Program, first, last int) {
	p = slices.Concat(s.Begin[cpu], arch.Program{{Kind: arch.Clock}}, ops)
	first = len(s.Begin[cpu])
	p = append(p, arch.Op{Kind: arch.Loop, Arg: [6]uint64{uint64(first + 1), turns}}, arch.Op{Kind: arch.Clock})
	last = len(p) - 1
	return append(p, s.End[cpu]...), first, last
}

// clockRate is how many ticks the CPUs' clock has in a nanosecond.
func (t *T) clockRate(m microvm.Machine) float64 {
	const while = 100 * time.Millisecond
	begin, ticks := time.Now(), t.run(m, caller, arch.Op{Kind: arch.Clock})[0].Value
	time.Sleep(while)
	took, ended := time.Since(begin), t.run(m, caller, arch.Op{Kind: arch.Clock})[0].Value
	if ended <= ticks {
		t.Fatal(fmt.Errorf("the CPU's clock went from %d to %d in %v", ticks, ended, took))
	}
	return float64(ended-ticks) / float64(took)
}

// nothingShared is Sharing where a platform has no areas.
func nothingShared(*T, microvm.Machine) []Sharing { return []Sharing{{Name: SharingNames[0]}} }

// ops makes a function of Cost of operations that need no machine.
func ops(p ...arch.Op) func(*T, microvm.Machine) arch.Program {
	return func(*T, microvm.Machine) arch.Program { return p }
}

// probeTurn is the cost of a turn itself, of which every other cost has a part: what the probe does
// between two operations, and a read of memory.
func probeTurn() Cost {
	return Cost{Name: "probe", Ops: func(_ *T, m microvm.Machine) arch.Program {
		return arch.Program{load(m.Alloc(8, 8, 0).Address(), 8)}
	}}
}

// kickAndWait is a round trip by kicks that are kept until the wait: caller and target kick each other,
// and wait for it.
func kickAndWait(name string) Cost {
	kick := func(t *T, m microvm.Machine, cpu int) arch.Op {
		t.machine = m
		return t.kick(m.ID(cpu))
	}
	return Cost{Name: name, Wake: kick,
		Ops:    func(t *T, m microvm.Machine) arch.Program { return arch.Program{kick(t, m, target), waitOp(0)} },
		Beside: func(t *T, m microvm.Machine) arch.Program { return arch.Program{waitOp(0), kick(t, m, caller)} },
	}
}

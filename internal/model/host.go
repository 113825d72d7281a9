package model

import (
	"fmt"
	"slices"
)

// The host runs the CPUs by turns.

const (
	// span is the binary logarithm of how many steps a look has a machine run, at most.
	// Short spans are as likely as long ones.
	span = 16
	// slice is how many steps a CPU runs before another does, at most.
	slice = 64
	// quantum is how many steps a CPU of a crowd keeps the host's CPU.
	quantum = 500
)

// below returns a number from 1 to n, of a generator that is the same for each machine of
// one seed (Steele, Lea, Flood: SplitMix64).
func (m *machine) below(n uint64) uint64 {
	m.random += 0x9e3779b97f4a7c15
	z := m.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return 1 + (z^z>>31)%n
}

// run has the machine run for a while, or not at all. It returns false if no CPU can run.
func (m *machine) run() bool {
	if m.closed {
		return false
	}
	idle := 0 // CPUs in a row that had no use for their turn
	for until := m.clock + m.below(1<<m.below(span)) - 1; m.clock < until && idle < len(m.cpus); {
		c := m.cpus[m.turn]
		m.turn = (m.turn + 1) % len(m.cpus)
		idle++
		switch k, ok := m.hv.(kernel); {
		case ok && k.turn(c):
			idle = 0
			m.clock++
		case c.scheduled():
			idle = 0
			c.slice = m.below(slice)
			c.state = ready
			c.next()
		}
		for _, w := range m.crowds {
			w.arrange()
		}
	}
	return idle < len(m.cpus)
}

// wants tells whether the CPU would run if the host let it.
func (c *cpu) wants() bool {
	return c.state == ready || c.state == asleep && c.m.hv.awake(c)
}

// scheduled tells whether the CPU runs next.
func (c *cpu) scheduled() bool {
	return c.wants() && (c.crowd == nil || c.crowd.gives(c))
}

// crowd is CPUs that compete for one CPU of the host. The holder has it.
type crowd struct {
	m       *machine
	members []*cpu
	holder  *cpu
	ends    uint64 // when its turn is over
	// favoured is whom the holder has yielded to.
	favoured *cpu
}

// Crowd implements arch.Machine.
func (m *machine) Crowd(cpus ...int) (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(cpus) < 2 {
		return nil, fmt.Errorf("model: a crowd of %d; it takes two CPUs or more", len(cpus))
	}
	w := &crowd{m: m}
	for _, i := range cpus {
		c, err := m.cpu(i)
		if err != nil {
			return nil, err
		}
		if c.crowd != nil || slices.Contains(w.members, c) {
			return nil, fmt.Errorf("model: CPU %d is in a crowd already", i)
		}
		w.members = append(w.members, c)
	}
	for _, c := range w.members {
		c.crowd = w
		w.takeOff(c)
	}
	m.crowds = append(m.crowds, w)
	return w.release, nil
}

// release gives each member a CPU of the host of its own again.
func (w *crowd) release() {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, c := range w.members {
		w.putOn(c)
		c.crowd = nil
	}
	w.m.crowds = slices.DeleteFunc(w.m.crowds, func(other *crowd) bool { return other == w })
}

// gives tells whether the member has the host's CPU, which it gets if nobody has.
func (w *crowd) gives(c *cpu) bool {
	w.arrange()
	return w.holder == c
}

// arrange hands the host's CPU over if its holder does not want it any more, or has had
// it for its turn while another wants it.
func (w *crowd) arrange() {
	for _, c := range w.members {
		if c != w.holder && !c.queued && c.wants() {
			c.queued, c.since = true, w.m.clock
		}
	}
	waiting := w.waiting()
	switch {
	case w.holder != nil && w.holder.wants() && (waiting == nil || w.m.clock < w.ends):
		return
	case w.holder != nil:
		w.takeOff(w.holder)
		w.holder = nil
	}
	if waiting != nil {
		w.putOn(waiting)
		w.holder, w.ends, w.favoured = waiting, w.m.clock+quantum, nil
	}
}

// yield has the member have the next turn, and ends the holder's.
func (w *crowd) yield(to *cpu) { w.favoured, w.ends = to, w.m.clock }

// waiting is the member whose turn is next: the one that was yielded to, or else the one
// that waits longest.
func (w *crowd) waiting() *cpu {
	if c := w.favoured; c != nil && c.queued && c.wants() {
		return c
	}
	var first *cpu
	for _, c := range w.members {
		if c.queued && c.wants() && (first == nil || c.since < first.since) {
			first = c
		}
	}
	return first
}

// takeOff takes the host's CPU from c, against its will if it wants it.
func (w *crowd) takeOff(c *cpu) {
	if c.state != ready || c.queued {
		return
	}
	c.queued, c.since = true, w.m.clock
	if !c.out {
		c.m.hv.leave(c, preempted)
		c.out = true
	}
}

// putOn lets c have a CPU of the host.
func (w *crowd) putOn(c *cpu) {
	if c.queued {
		c.queued = false
		c.delay += w.m.clock - c.since
	}
}

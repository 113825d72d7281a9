package model

import (
	"iter"

	"pvabi/arch"
)

// state is what a CPU is doing.
type state int

const (
	idle    state = iota // no program
	ready                // runs guest code as soon as the host lets it
	asleep               // in a Wait
	outside              // out by an Exit
	parked               // stopped by another CPU, until the carrier has it start anew
)

// cpu is a CPU and the probe that runs on it.
type cpu struct {
	m     *machine
	index int
	id    uint64
	// user is true for privilege level 3.
	user bool
	// interrupts tells whether the CPU takes interrupts.
	interrupts bool

	program   arch.Program
	results   []arch.Result
	at        int
	completed uint64
	stop      arch.Stop
	events    [256]uint64
	// frame holds the vector registers in the frame, vectors those in the CPU.
	frame, vectors [16 * 32]byte

	state state
	// out is true of a CPU that has to enter the guest before its next instruction.
	out bool
	// boundary is true while the CPU stands between two instructions of the guest.
	boundary bool
	// slice is how many steps are left to the CPU before the next one's turn.
	slice uint64

	crowd *crowd
	// queued is true of a CPU that is ready and has no CPU of the host, since then;
	// delay is how long it was so, summed up.
	queued       bool
	since, delay uint64

	next  func() (struct{}, bool)
	halt  func()
	yield func(struct{}) bool
}

// stopped tells whether the CPU is no longer running its program.
func (c *cpu) stopped() bool { return c.state == idle || c.state == outside }

// abandoned is what a coroutine that is given up panics with, to unwind.
type abandoned struct{}

// start makes the coroutine that runs the program.
func (c *cpu) start(p arch.Program) {
	c.program = append(p[:len(p):len(p)], arch.Op{Kind: arch.End})
	c.results = make([]arch.Result, len(c.program))
	c.at, c.completed, c.stop = 0, 0, arch.Stop{}
	c.state, c.out, c.boundary = ready, true, true
	c.next, c.halt = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if p := recover(); p != nil && p != (abandoned{}) {
				panic(p)
			}
		}()
		c.yield = yield
		for c.state != idle {
			c.operation()
		}
	})
}

// pause lets the others run.
func (c *cpu) pause() {
	if !c.yield(struct{}{}) {
		panic(abandoned{})
	}
}

// step is the boundary before each instruction of the guest.
func (c *cpu) step() {
	c.m.clock++
	if c.slice--; c.slice == 0 {
		c.boundary = true
		c.pause()
		c.boundary = false
	}
	c.enter()
	c.m.hv.interrupt(c)
}

// enter goes into the guest if the CPU is out. It may be taken off again on the way.
func (c *cpu) enter() {
	for c.out {
		c.out = false
		c.m.hv.enter(c)
	}
}

// end ends the program.
func (c *cpu) end(s arch.Stop) {
	c.stop, c.state = s, idle
	c.m.hv.leave(c, exits)
}

// operation does one operation and what follows each. An operation that raises an
// exception counts as completed, and the program goes on with the next.
func (c *cpu) operation() {
	if c.at < 0 || c.at >= len(c.program) {
		c.end(arch.Stop{Reason: "an operation outside of the program"})
		return
	}
	op, r, next := &c.program[c.at], &c.results[c.at], c.at+1
	r.Trap, r.Code = 0, 0
	r.Begin = c.m.clock
	c.step()
	if !c.known(op) {
		r.Trap = arch.TrapUnknown
		c.end(arch.Stop{Reason: "an operation that the probe does not know"})
		return
	}
	t := c.do(op, r, &next)
	if c.state == idle && !c.stop.Ended {
		return
	}
	if t.raised {
		r.Trap, r.Code = 1+t.vector, t.code
	}
	r.End = c.m.clock
	r.Count++
	c.completed++
	if c.state != idle {
		c.at = next
	}
}

// known tells whether the probe knows the operation, and the form or size of it.
func (c *cpu) known(op *arch.Op) bool {
	switch op.Kind {
	case arch.Call, arch.CallLength:
		return op.Arg[0] < uint64(len(c.m.hv.isa().Instructions))
	case arch.Wait, arch.Interrupts, arch.LoadVectors, arch.StoreVectors:
		return op.Arg[0] <= 1
	case arch.Load:
		return whole(op.Arg[1])
	case arch.Store:
		return whole(op.Arg[2])
	}
	return op.Kind <= arch.Sample
}

// do does what an operation is about.
func (c *cpu) do(op *arch.Op, r *arch.Result, next *int) (t trap) {
	m, hv, arg := c.m, c.m.hv, op.Arg
	switch op.Kind {
	case arch.End:
		c.end(arch.Stop{Ended: true})
	case arch.Call, arch.CallLength:
		regs, flags := op.Regs, op.Flags
		length, t := hv.call(c, arg[0], &regs, &flags)
		r.Regs, r.Flags = regs, flags
		if t.raised {
			return t
		}
		r.Value = length
	case arch.Wait:
		if w, ok := hv.(waiter); ok {
			return w.waitCall(c, arg[0] == 1, op, r)
		}
		return c.wait(arg[0] == 1)
	case arch.Load:
		if l, ok := hv.(lowcore); ok {
			if r.Value, ok = l.low(c, arg[0], arg[1]); ok {
				return trap{}
			}
		}
		if !m.mapped(arg[0], arg[1]) {
			return hv.access()
		}
		if m.withheld[page(arg[0])] != nil {
			if t, r.Aux = m.monitored().missing(c, page(arg[0])); t.raised {
				return t
			}
		}
		r.Value = m.load(arg[0], arg[1])
	case arch.Store:
		if !m.mapped(arg[0], arg[2]) {
			return hv.access()
		}
		m.store(arg[0], arg[2], arg[1])
	case arch.SpinUntil:
		return c.spin(arg, r)
	case arch.Clock:
		r.Value = m.clock
	case arch.Interrupts:
		if c.user {
			return hv.privilege()
		}
		c.interrupts = arg[0] == 1
	case arch.ReadRegister:
		if c.user {
			return hv.privilege()
		}
		r.Value, t = hv.readRegister(c, arg[0])
	case arch.WriteRegister:
		if c.user {
			return hv.privilege()
		}
		t = hv.writeRegister(c, arg[0], arg[1])
	case arch.Discover:
		if l, ok := hv.(lowcore); ok {
			return l.ask(c, op, r)
		}
		r.Regs = hv.discover(c, arg[0], arg[1])
	case arch.Exit:
		c.stop, c.state = arch.Stop{Exit: arg[0]}, outside
		hv.leave(c, exits)
		c.pause()
		c.enter()
	case arch.Loop:
		if r.Count+1 < arg[1] {
			*next = int(arg[0])
		}
	case arch.LoadVectors:
		c.copyVectors(&c.vectors, &c.frame, arg[0])
	case arch.StoreVectors:
		c.copyVectors(&c.frame, &c.vectors, arg[0])
	case arch.Sample:
		return c.sample(arg, r)
	}
	return t
}

// wait does a Wait. Interrupts are taken from the wait instruction on, not before, and no
// more once the wait is over.
func (c *cpu) wait(interrupts bool) trap {
	hv := c.m.hv
	if c.user {
		return hv.privilege()
	}
	c.interrupts = interrupts
	switch hv.wait(c) {
	case sleeps:
		c.state = asleep
		hv.leave(c, waits)
		c.pause()
		c.out = true
		hv.woken(c)
		c.enter()
	case leaves:
		c.end(arch.Stop{Reason: "a wait that the hypervisor leaves to its carrier"})
		return trap{}
	}
	hv.interrupt(c)
	c.interrupts = false
	return trap{}
}

// block puts the CPU to sleep in the midst of an instruction, until hypervisor.awake.
func (c *cpu) block() {
	c.state = asleep
	c.m.hv.leave(c, waits)
	c.pause()
	c.out = true
	c.enter()
}

// park stops the CPU, whose turn it must not be.
func (c *cpu) park() {
	if c.halt != nil {
		c.halt()
	}
	c.state = parked
}

// spin does a SpinUntil.
func (c *cpu) spin(arg [6]uint64, r *arch.Result) trap {
	address, mask, value, limit := arg[0], arg[1], arg[2], arg[3]
	if !c.m.mapped(address, 8) {
		return c.m.hv.access()
	}
	for r.Aux = 0; ; {
		r.Value = c.m.load(address, 8)
		if r.Aux++; r.Value&mask == value || r.Aux == limit {
			return trap{}
		}
		c.step()
	}
}

// sample is a reader of a record with a version; what it counts is said at arch.Sample.
func (c *cpu) sample(arg [6]uint64, r *arch.Result) trap {
	if !c.m.mapped(arg[0], 4) || !c.m.mapped(arg[1], 8) {
		return c.m.hv.access()
	}
	load := func(address, size uint64) uint64 {
		c.step()
		return c.m.load(address, size)
	}
	var lastVersion uint64
	r.Regs, r.Aux = [16]uint64{}, 0
	for range arg[2] {
		before := load(arg[0], 4)
		first := load(arg[1], 8)
		second := load(arg[1], 8)
		after := load(arg[0], 4)
		if before != after {
			r.Regs[arch.SampleMoved]++
		}
		if before&1 == 1 {
			r.Regs[arch.SampleOdd]++
		}
		if before&1 == 1 || before != after {
			continue
		}
		if first != second {
			r.Regs[arch.SampleTorn]++
			continue
		}
		if r.Aux++; r.Aux > 1 && first != r.Value {
			r.Regs[arch.SampleChanges]++
			if first < r.Value {
				r.Regs[arch.SampleLess]++
			}
			if before == lastVersion {
				r.Regs[arch.SampleSilent]++
			}
		}
		r.Value, lastVersion = first, before
	}
	return trap{}
}

// copyVectors copies registers of 16 bytes, or of 32 where wide is 1.
func (c *cpu) copyVectors(to, from *[16 * 32]byte, wide uint64) {
	for i := 0; i < len(to); i += 32 {
		copy(to[i:][:16<<wide], from[i:])
	}
}

package conformance

import (
	"context"
	"fmt"
	"slices"

	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// SEND_IPI beyond its plainest forms, kicks by other ways than the plain call, and calls by other
// instructions and in other modes.

// spread is a machine whose CPUs' ids are further apart than a word has bits.
var spread = microvm.Config{CPUs: 3, IDs: []uint64{2, 9, 70}}

// sendIPI is SEND_IPI of a vector, unless more is in command.
func (t *T) sendIPI(low, high, lowest, command uint64) arch.Op {
	return t.call("SEND_IPI", low, high, lowest, command)
}

// ipiReaches has the caller make a SEND_IPI, lets all CPUs take interrupts, and returns the call's
// result and, for each CPU, whether it took one of the vector.
func (t *T) ipiReaches(m microvm.Machine, vector uint8, send arch.Op) (int64, []int64) {
	before := make([]uint64, m.CPUs())
	for cpu := range before {
		before[cpu] = m.Events(cpu, vector)
	}
	result := t.returned(t.run(m, caller, send)[0])
	var taken []int64
	for cpu, n := range before {
		t.run(m, cpu, interrupts(1), tsc(), interrupts(0))
		taken = append(taken, bit(m.Events(cpu, vector) > n))
	}
	return result, taken
}

// x86IPI: who is reached by which bitmap, and how many that is said to be.
func x86IPI() Check {
	const (
		counts     = "ipi/counts-each"
		high       = "ipi/high-word"
		absent     = "ipi/absent-ids"
		boundaries = "ipi/lowest-boundaries"
		wraps      = "ipi/lowest-wraps"
		half       = "ipi/lowest-high-half"
		bad        = "ipi/bad-command"
		nmi        = "ipi/nmi"
		all        = ^uint64(0)
		low32      = 1<<32 - 1
	)
	return Check{Rules: []string{counts, high, absent, boundaries, wraps, half, bad, nmi}, Run: func(t *T) {
		m := t.Open(spread)
		look := func(rule, what string, want int64, taken []int64, send arch.Op) {
			got, who := t.ipiReaches(m, testVector, send)
			t.Equal(rule, "result "+what, want, got)
			t.Equal(rule, "who took it "+what, taken, who)
		}
		one, two, far := m.ID(caller), m.ID(target), m.ID(third)
		each := t.Want(counts, "each")
		look(counts, "for two CPUs", 2*each, []int64{1, 1, 0}, t.sendIPI(1<<one|1<<two, 0, 0, testVector))
		bits := uint64(t.Want(high, "bits"))
		look(high, "for one CPU", t.Want(high, "result"), []int64{0, 0, 1}, t.sendIPI(0, 1<<(far-bits-3), 3, testVector))
		look(high, "in both words", 2*t.Want(high, "result"), []int64{0, 1, 1}, t.sendIPI(1<<(two-5), 1<<(far-bits-5), 5, testVector))
		look(absent, "for all ids", 3*t.Want(absent, "each"), []int64{1, 1, 1}, t.sendIPI(all, all, 0, testVector))
		look(absent, "for the ids from the second CPU's", 2*t.Want(absent, "each"), []int64{0, 1, 1}, t.sendIPI(all, all, two, testVector))
		look(boundaries, "from the highest id", t.Want(boundaries, "at"), []int64{0, 0, 1}, t.sendIPI(all, 0, far, testVector))
		for _, lowest := range []uint64{far + 1, 1 << 31, low32 - 63, low32} {
			look(boundaries, fmt.Sprintf("from %#x", lowest), t.Want(boundaries, "above"), []int64{0, 0, 0}, t.sendIPI(all, 0, lowest, testVector))
		}
		look(wraps, "for one CPU", t.Want(wraps, "result"), []int64{0, 1, 0}, t.sendIPI(0, 1<<two, low32-63, testVector))
		look(half, "for one CPU", t.Want(half, "result"), []int64{0, 1, 0}, t.sendIPI(1<<1, 0, 1<<32|(two-1), testVector))
		refused := t.ABI.Result("SEND_IPI", "logical destination or shorthand")
		for _, b := range []uint64{1 << 11, 1 << 18, 1 << 19} {
			got, who := t.ipiReaches(m, testVector, t.sendIPI(1<<two, 0, 0, testVector|b))
			t.Equal(bad, fmt.Sprintf("result with %#x", b), refused, got)
			t.Equal(bad, fmt.Sprintf("CPUs that took it with %#x", b), t.Want(bad, "taken"), bit(slices.Contains(who, 1)))
		}
		got, who := t.ipiReaches(m, amd64.NMI, t.sendIPI(1<<two, 0, 0, 4<<8))
		t.Equal(nmi, "result", t.Want(nmi, "result"), got)
		t.Equal(nmi, "who took it", []int64{0, t.Want(nmi, "taken"), 0}, who)
	}}
}

// x86IPIOff: the target's local APIC is off, then on.
func x86IPIOff(rule string) Check {
	const on, off = 1<<8 | 0xff, 0xff // spurious vector, and the bit that enables
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		for _, c := range []struct {
			name  string
			value uint64
		}{{"off", off}, {"on", on}} {
			t.Control("exception of the write to the APIC", 0, t.run(m, target, writeRegister(amd64.SVR, c.value))[0].Trap)
			got, who := t.ipiReaches(m, testVector, t.sendIPI(1<<m.ID(target), 0, 0, testVector))
			t.Equal(rule, "result while it is "+c.name, t.Want(rule, c.name), got)
			t.Equal(rule, "taken while it is "+c.name, t.Want(rule, c.name), who[target])
		}
	}}
}

// callIn makes a call outside of 64-bit mode.
func (t *T) callIn(m microvm.Monitor, mode microvm.Mode, op arch.Op) arch.Result {
	ctx, cancel := context.WithTimeoutCause(t.ctx, watchdog, fmt.Errorf("no end after %v", watchdog))
	defer cancel()
	r, err := m.CallIn(ctx, mode, caller, op)
	t.Check("call in another mode", err)
	return r
}

// x86IPINarrow: the words of the bitmap have 32 bits in a mode of 32 bits.
func x86IPINarrow(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.monitor(spread)
		far := m.ID(third)
		result := t.ABI.Convention("protected mode").Result
		before := m.Events(third, testVector)
		r := t.callIn(m, microvm.Protected, t.sendIPI(0, 1<<4, far-uint64(t.Want(rule, "bits"))-4, testVector))
		t.run(m, third, interrupts(1), tsc(), interrupts(0))
		t.Equal(rule, "result", t.Want(rule, "result"), r.Regs[t.ISA.Register("r"+result[1:])])
		t.Truth(rule, "the interrupt was taken", m.Events(third, testVector) > before)
	}}
}

// x86OtherKick: waits ended by other means than the plain call. send makes them on a machine in
// which two CPUs wait with interrupts off.
func x86OtherKick(rule string, config func(t *T) microvm.Config, waiters []int, send func(t *T, m microvm.Machine) arch.Op) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(config(t))
		for _, cpu := range waiters {
			t.sleeper(m, cpu, 0)
		}
		t.run(m, caller, t.noKick())
		for _, cpu := range waiters {
			t.Control("a waiter sleeps on after a call that is no kick", true, t.stays(m, cpu, 0))
		}
		t.Evidence(rule, "result", t.returned(t.run(m, caller, send(t, m))[0]))
		var woken int64
		for _, cpu := range waiters {
			woken += bit(t.Until(func() bool { _, n := m.At(cpu); return n > 0 }))
		}
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), woken)
	}}
}

// remoteRead is the delivery mode of a kick.
const remoteRead = 3 << 8

// hidden is a machine that offers no features but those named, and enforces that.
func (t *T) hidden(offered ...string) microvm.Config {
	var features uint32
	for _, name := range offered {
		features |= 1 << t.ABI.Feature(name).Bit
	}
	c := machine()
	c.Features, c.Enforce = &features, true
	return c
}

// x86KickRace: a CPU says that it is about to wait and waits, again and again; another has seen
// that and kicks it, of three in turn. Whether the kick comes before, in or after the wait's
// beginning is left to chance. A kick that is lost leaves the CPU asleep for good.
func x86KickRace(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		rounds := uint64(max(t.Looks/5, 1)) // of three kicks; 1000, but in tests
		m := t.Open(microvm.Config{CPUs: 4, IDs: []uint64{2, 9, 5, 12}})
		kickers := []int{0, 2, 3}
		stop := m.Alloc(8, 8, 0)
		var p arch.Program
		for _, cpu := range kickers {
			turn := m.Alloc(8, 64, 0)
			p = append(p, store(turn.Address(), 1, 8), waitOp(0))
			t.start(m, cpu, spinUntil(turn.Address(), 1, 1, 0), store(turn.Address(), 0, 8), t.kick(m.ID(target)),
				arch.Op{Kind: arch.Loop, Arg: [6]uint64{0, rounds}})
		}
		t.start(m, target, append(p, arch.Op{Kind: arch.Loop, Arg: [6]uint64{0, rounds}}, store(stop.Address(), 1, 8))...)
		// As long as it gets on, it may take its time.
		ended := false
		for last := ^uint64(0); !ended; {
			var n uint64
			if !t.Until(func() bool { ended = stop.Load(0, 8) == 1; _, n = m.At(target); return ended || n != last }) {
				break
			}
			last = n
			t.getsOn()
		}
		_, done := m.At(target)
		t.Evidence(rule, "operations of the waiting CPU", done)
		t.Evidence(rule, "kicks", uint64(len(kickers))*rounds)
		t.Equal(rule, "kicks lost", t.Want(rule, "lost"), bit(!ended))
		if ended {
			for _, cpu := range append(kickers, target) {
				t.finish(m, cpu)
			}
		}
	}}
}

// x86Withdrawn: HLT does not leave the guest. The control is a machine in which it does.
func x86Withdrawn(rule string) Check {
	const hlt = 1 << 1 // of KVM_CAP_X86_DISABLE_EXITS
	return Check{Rules: []string{rule}, Run: func(t *T) {
		kick := t.ABI.Call(t.ABI.Scheduling.Kick)
		f := t.ABI.Feature(kick.Feature)
		leaf := discover(t.ABI.Word("first-leaf")+t.ABI.Word("features-leaf"), 0)
		c := t.hidden(kick.Feature)
		plain := t.run(t.Open(c), caller, leaf, t.kick(absentID))
		t.Control("PV_UNHALT where HLT leaves the guest", uint64(1), t.out(plain[0], "eax")>>f.Bit&1)
		t.Control("result of a kick there", t.ABI.Result(kick.Name, "absent target"), t.returned(plain[1]))
		c.DisableExits = hlt
		m := t.Open(c)
		for cpu := range m.CPUs() {
			r := t.run(m, cpu, leaf, t.kick(absentID))
			t.Equal(rule, fmt.Sprintf("PV_UNHALT on CPU %d", cpu), t.Want(rule, "offered"), t.out(r[0], "eax")>>f.Bit&1)
			t.Equal(rule, fmt.Sprintf("result of a kick on CPU %d", cpu), t.ABI.Result(kick.Name, "hidden and enforced"), t.returned(r[1]))
		}
	}}
}

// foreign is the same call by the instruction that is not native.
func (t *T) foreign(op arch.Op) arch.Op {
	for _, name := range t.ISA.Instructions {
		if name != t.Native {
			op.Arg[0] = t.ISA.Instruction(name)
		}
	}
	return op
}

// x86Foreign: the instruction that is not native, rewritten, not rewritten, and without privilege.
func x86Foreign() Check {
	const (
		fixed = "convention/foreign-instruction"
		plain = "convention/foreign-instruction-not-fixed"
		user  = "convention/foreign-instruction-user"
		quirk = 1 << 5 // KVM_X86_QUIRK_FIX_HYPERCALL_INSN
	)
	return Check{Rules: []string{fixed, plain, user}, Run: func(t *T) {
		poll := t.ABI.Call("VAPIC_POLL_IRQ")
		m := t.Open(machine())
		for _, c := range t.defined() {
			op := t.harmless(m, c)
			r := t.run(m, caller, t.foreign(op), op)
			t.Equal(fixed, "exceptions of "+c.Name, t.Want(fixed, "exceptions"), bit(r[0].Trap != 0))
			t.Equal(fixed, "result of "+c.Name, t.returned(r[1]), t.returned(r[0]))
		}

		config := machine()
		config.DisableQuirks = quirk
		m = t.Open(config)
		op := t.harmless(m, poll)
		r := t.run(m, caller, t.foreign(op), op)
		t.Equal(plain, "exception", t.Want(plain, "exception"), int64(r[0].Trap)-1)
		t.Equal(plain, "exception of the native instruction", 0, r[1].Trap)
		t.Equal(plain, "result of the native instruction", t.harmlessResult(poll), t.returned(r[1]))

		config = machine()
		config.User = []int{caller}
		m = t.Open(config)
		op = t.harmless(m, poll)
		before, err := m.Counter(caller, "hypercalls")
		t.Check("counter hypercalls", err)
		r = t.run(m, caller, t.foreign(op), t.foreign(op))
		after, err := m.Counter(caller, "hypercalls")
		t.Check("counter hypercalls", err)
		for i := range r {
			t.Truth(user, "an exception is raised", r[i].Trap != 0)
		}
		t.Evidence(user, "exceptions", []uint64{r[0].Trap - 1, r[1].Trap - 1})
		t.Equal(user, "calls counted", t.Want(user, "calls"), after-before)
		t.Equal(user, "result of the native instruction", t.ABI.Errno("EPERM"), t.returned(t.run(m, caller, op)[0]))
	}}
}

// x86Narrow: calls in a mode of 32 bits. The controls are the results in 64-bit mode.
func x86Narrow(rule string, mode microvm.Mode) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		conv := t.ABI.Convention("protected mode")
		wide := func(name string) int { return t.ISA.Register("r" + name[1:]) }
		mask := uint64(1)<<conv.Width - 1
		m := t.monitor(machine())
		ops := arch.Program{t.noKick(), t.callNumber(1 << 31)}
		for _, c := range t.defined() {
			ops = append(ops, t.harmless(m, c))
		}
		results := t.runAll(m, caller, ops)
		for i, op := range ops {
			name := fmt.Sprintf("number %#x", op.Regs[wide(conv.Number)])
			r := t.callIn(m, mode, op)
			t.Equal(rule, "result of "+name, Hex(uint64(t.returned(results[i]))&mask), Hex(r.Regs[wide(conv.Result)]))
			var changed []string
			for k, v := range r.Regs {
				if t.ISA.Registers[k] == "rsp" || k == wide(conv.Result) || k >= t.ISA.Register("r8") {
					continue
				}
				if v != op.Regs[k]&mask {
					changed = append(changed, t.ISA.Registers[k])
				}
			}
			t.Equal(rule, "registers changed by "+name, t.Want(rule, "changed"), len(changed))
		}
	}}
}

package conformance

import (
	"fmt"
	"math/bits"
	"strings"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// Steal time and preempted: a record in memory that the guest registers and the
// hypervisor writes. abi.Scheduling names the register or the call by which it does, and the
// fields for steal and preempted.

// record is the shared record of one CPU. Around it is guarded memory, in the same page.
type record struct {
	area   arch.Area
	at     uint64 // offset of the record in area
	layout abi.Layout
	// steal and preempted are the names of those fields.
	steal, preempted string
	// register makes what registers the word, which is the address that the hypervisor knows the
	// record by, and valid, or takes it back if that is 0.
	register    func(word uint64) arch.Op
	real, valid uint64
}

// fill is what memory holds before the hypervisor sees it: not zero, so that a zero that
// it writes shows, too.
const fill = 0xa5

// record sets memory aside for a shared record: zero in steal and version, as a guest
// leaves them, and fill in all the rest.
func (t *T) record(m microvm.Machine) record {
	l, preempted, _ := t.ABI.PreemptedField()
	_, steal, _ := strings.Cut(t.ABI.Scheduling.Steal, ".")
	// The guard before the record also keeps the record's address from being more
	// aligned than is asked for.
	size := l.Align + l.Size + l.Align
	r := record{area: m.Alloc(size, 1<<bits.Len64(size-1), fill), at: l.Align, layout: l, steal: steal, preempted: preempted.Name}
	if area := t.ABI.Scheduling.Area; t.ABI.HasCall(area) {
		r.register, r.valid, r.real = t.notify, t.valid(), t.real(m, r.area)+r.at
	} else {
		reg := t.ABI.Register(area)
		r.register = func(word uint64) arch.Op { return writeRegister(reg.Number, word) }
		r.valid, r.real = reg.Enable, r.address()
	}
	r.set(steal, 0)
	r.set(version, 0)
	return r
}

// version is the field of a shared record that guards the others, odd while they are
// being written; flags are kept for later.
const (
	version = "version"
	flags   = "flags"
)

func (r record) get(field string) uint64 {
	f := r.layout.Field(field)
	return r.area.Load(r.at+f.Offset, f.Size)
}

func (r record) set(field string, value uint64) {
	f := r.layout.Field(field)
	r.area.Store(r.at+f.Offset, f.Size, value)
}

// address is the address of the record, addressOf that of a field.
func (r record) address() uint64 { return r.area.Address() + r.at }

func (r record) addressOf(field string) uint64 { return r.address() + r.layout.Field(field).Offset }

// mask selects a field in the 8 bytes at its address, on a little-endian machine.
func (r record) mask(field string) uint64 { return 1<<(8*r.layout.Field(field).Size) - 1 }

// on registers the record, off takes it back.
func (r record) on() arch.Op  { return r.register(r.real | r.valid) }
func (r record) off() arch.Op { return r.register(0) }

// overwrite puts fill into the record and around it.
func (r record) overwrite() {
	for i := range r.area.Size() {
		r.area.Store(i, 1, fill)
	}
}

// changed counts the bytes of fields that are no longer fill, outside those around the
// record, anywhere all of them.
func (r record) changed(fields ...string) int64 {
	bytes := r.area.Bytes()[r.at : r.at+r.layout.Size : r.at+r.layout.Size]
	var n int64
	for _, name := range fields {
		f := r.layout.Field(name)
		n += notFill(bytes[f.Offset : f.Offset+f.Size])
	}
	return n
}

func (r record) outside() int64 {
	bytes := r.area.Bytes()
	return notFill(bytes[:r.at]) + notFill(bytes[r.at+r.layout.Size:])
}

func (r record) anywhere() int64 { return notFill(r.area.Bytes()) }

func notFill(bytes []byte) int64 {
	var n int64
	for _, b := range bytes {
		n += bit(b != fill)
	}
	return n
}

// padding names the fields that nobody writes and nobody is going to.
func (r record) padding() []string {
	var out []string
	for _, f := range r.layout.Fields {
		if f.Writer == "nobody" && f.Name != flags {
			out = append(out, f.Name)
		}
	}
	return out
}

// stealRegister: the register that turns the record on reads back, on each CPU what was
// written there, and refuses its reserved bits.
func stealRegister(readsBack, reserved string) Check {
	return Check{Rules: []string{readsBack, reserved}, Run: func(t *T) {
		m := t.Open(machine())
		cpus := []int{caller, third}
		on := map[int]arch.Op{}
		reg := t.ABI.Register(t.ABI.Scheduling.Area)
		read := readRegister(reg.Number)
		for _, cpu := range cpus {
			on[cpu] = t.record(m).on()
			r := t.run(m, cpu, read, on[cpu])
			t.Equal(readsBack, fmt.Sprintf("value before the write, CPU %d", cpu), Hex(reg.Reset), Hex(r[0].Value))
			t.Equal(readsBack, "exception of the write", 0, r[1].Trap)
		}
		number := read.Arg[0]
		off := writeRegister(number, 0)
		for _, cpu := range cpus {
			r := t.run(m, cpu, read, off, read)
			t.Equal(readsBack, fmt.Sprintf("value after a write on each CPU, CPU %d", cpu), Hex(on[cpu].Arg[1]), Hex(r[0].Value))
			t.Equal(readsBack, "value after a write of zero", Hex(0), Hex(r[2].Value))
		}

		good := on[caller].Arg[1]
		t.accepted(reserved, m, reg, good)
		t.run(m, caller, off)
		for b := range 64 {
			if reg.Reserved>>b&1 == 0 {
				continue
			}
			r := t.run(m, caller, on[caller], writeRegister(number, good|1<<b), read, off)
			t.Control("exception of the write without a reserved bit", 0, r[0].Trap)
			t.Equal(reserved, fmt.Sprintf("exception for bit %d", b), t.Want(reserved, "exception"), int64(r[1].Trap)-1)
			t.Equal(reserved, fmt.Sprintf("value after it for bit %d", b), Hex(good), Hex(r[2].Value))
		}
	}}
}

// contention is a CPU that runs with a record registered, and a rival that competes
// with it for one CPU of the host, so that the hypervisor has to take it off and put
// it on again and again. The target of the machine is the one whose record it is.
type contention struct {
	t       *T
	m       microvm.Machine
	flag    arch.Area
	release func()
}

// contend starts a contention in which the target turns the record on, does what is
// in p, and runs on until the contention's end.
func (t *T) contend(m microvm.Machine, rec record, p ...arch.Op) *contention {
	c := &contention{t: t, m: m, flag: m.Alloc(8, 8, 0), release: t.crowd(m, target, third)}
	until := spinUntil(c.flag.Address(), ^uint64(0), 1, 0)
	t.start(m, third, until)
	t.start(m, target, append(append(arch.Program{rec.on()}, p...), until)...)
	return c
}

// end lets both CPUs come to their end.
func (c *contention) end() {
	c.flag.Store(0, 8, 1)
	c.t.finish(c.m, target)
	c.t.finish(c.m, third)
	c.release()
}

// turns is a ball that two CPUs pass to and fro n times. Where the two compete for one
// CPU of the host, neither has the ball back without having been taken off.
func turns(ball arch.Area, n uint64) (one, other arch.Program) {
	pass := func(v uint64) arch.Op { return store(ball.Address(), v, 8) }
	await := func(v uint64) arch.Op { return spinUntil(ball.Address(), ^uint64(0), v, 0) }
	for i := range n {
		one = append(one, pass(2*i+1), await(2*i+2))
		other = append(other, await(2*i+1), pass(2*i+2))
	}
	return one, other
}

// stealGrows: what the hypervisor writes at each entry and while the record's CPU is kept
// waiting, and what it leaves alone.
func stealGrows(written, padding, flagged string) Check {
	const (
		entries = 16
		// base is what steal begins at, in nanoseconds; it stands for some twenty
		// minutes, longer than a CPU here has been kept waiting in its whole life.
		base = 1 << 40
	)
	return Check{Rules: []string{written, padding, flagged}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m)
		rec.set(rec.steal, base)
		p := arch.Program{rec.on()}
		for i := range entries {
			p = append(p, exit(uint64(i)))
		}
		last := rec.get(version)
		t.start(m, target, p...)
		for range entries {
			t.exits(m, target)
			now := rec.get(version)
			t.Equal(written, "version modulo 2 after an entry", t.Want(written, "parity"), now%2)
			t.Equal(written, "version changes by an entry", t.Want(written, "changes"), bit(now != last))
			last = now
			t.again(m, target)
		}
		t.finish(m, target)

		first := rec.get(rec.steal)
		c := t.contend(m, rec)
		grew := t.Until(func() bool { return rec.get(rec.steal) > first })
		c.end()
		steal := rec.get(rec.steal)
		t.Equal(written, "version modulo 2 at the end", t.Want(written, "parity"), rec.get(version)%2)
		t.Equal(written, "steal grows", t.Want(written, "grows"), bit(grew))
		t.Truth(written, "steal counts on from what it held", base <= steal && steal < 2*base)
		t.Evidence(written, "steal", []uint64{base, first, steal})
		for _, rule := range []string{padding, flagged} {
			if rec.get(version) == 0 && steal == base {
				t.Unreached(rule, "the hypervisor did not write the record, so that what it leaves alone proves nothing")
			}
			t.Evidence(rule, "record", fmt.Sprintf("%x", rec.area.Bytes()))
		}
		t.Equal(padding, "bytes of padding changed", t.Want(padding, "changed"), rec.changed(rec.padding()...))
		t.Equal(padding, "bytes around the record changed", t.Want(padding, "changed"), rec.outside())
		t.Equal(flagged, "bytes of flags changed", t.Want(flagged, "changed"), rec.changed(flags))
	}}
}

// stealReader: a reader on another CPU that follows the version protocol while the
// record is being written.
func stealReader(protocol, monotonic string) Check {
	const (
		reads   = 5000 // of one program
		changes = 3    // of steal that the reader must have seen
	)
	return Check{Rules: []string{protocol, monotonic}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m)
		c := t.contend(m, rec)
		var sum arch.Result
		seen := t.Until(func() bool {
			r := t.run(m, caller, arch.Op{Kind: arch.Sample, Arg: [6]uint64{rec.addressOf(version), rec.addressOf(rec.steal), reads}})[0]
			for i := range sum.Regs {
				sum.Regs[i] += r.Regs[i]
			}
			return sum.Regs[arch.SampleChanges] >= changes
		})
		c.end()
		if !seen {
			t.Fatal(fmt.Errorf("a reader saw %d changes of steal, not %d: the record's CPU was hardly ever taken off", sum.Regs[arch.SampleChanges], changes))
		}
		for _, rule := range []string{protocol, monotonic} {
			t.Evidence(rule, "samples: version odd, version moved, torn, less, changed, changed without version", sum.Regs[:6])
		}
		t.Equal(protocol, "values that changed under an even, unchanged version", t.Want(protocol, "torn"), int64(sum.Regs[arch.SampleTorn]+sum.Regs[arch.SampleSilent]))
		t.Equal(monotonic, "values less than an earlier one", t.Want(monotonic, "decreases"), int64(sum.Regs[arch.SampleLess]))
	}}
}

// stealOff: once the record is off, nothing writes it, neither at an entry nor when the
// host takes the CPU off or puts it on. The control is that the same did write it while
// it was on.
func stealOff(rule string) Check {
	const taken = 3 // times that the CPU is taken off after the record is
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m)
		flag := m.Alloc(8, 8, 0)
		until := spinUntil(flag.Address(), ^uint64(0), 1, 0)
		one, other := turns(m.Alloc(8, 8, 0), taken)
		release := t.crowd(m, target, third)
		t.start(m, third, append(arch.Program{until}, other...)...)
		p := arch.Program{rec.on(), exit(1), exit(2), until, rec.off(), exit(3)}
		t.start(m, target, append(append(p, one...), exit(4), exit(5))...)
		t.exits(m, target)
		before := rec.get(version)
		t.exits(t.again(m, target), target)
		seen, changes := rec.get(version), 0
		t.Control("the record is written at an entry while it is on", true, seen != before)
		t.again(m, target)
		// Of one update, that at the entry, no more than two changes can be seen.
		t.Control("the record is written when the CPU was taken off while it is on", true, t.Until(func() bool {
			if v := rec.get(version); v != seen {
				seen = v
				changes++
			}
			return changes > 2
		}))
		flag.Store(0, 8, 1)
		t.exits(m, target)
		rec.overwrite()
		t.exits(t.again(m, target), target)
		t.exits(t.again(m, target), target)
		t.finish(t.again(m, target), target)
		t.finish(m, third)
		release()
		t.Equal(rule, "bytes changed", t.Want(rule, "changed"), rec.anywhere())
	}}
}

// preemptedBusy: preempted is clear as the running CPU itself sees it, and set as
// others see it once the host has taken the CPU off. Each is the other's control. flag
// names the bit of preempted that the hypervisor sets.
func preemptedBusy(running, descheduled, flag string) Check {
	const reads = 30000 // of one program, by the CPU itself
	return Check{Rules: []string{running, descheduled}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m)
		clear, set := uint64(t.Want(running, "preempted")), uint64(t.Want(descheduled, "preempted"))
		t.Control("preempted of a descheduled CPU is to be told from that of a running one", true, set != clear)
		rec.set(rec.preempted, clear)
		own := spinUntil(rec.addressOf(rec.preempted), rec.mask(rec.preempted), set, reads)
		c := t.contend(m, rec, own)
		var value uint64
		seen := t.Until(func() bool { value = rec.get(rec.preempted); return value != clear })
		t.Until(func() bool { at, _ := m.At(target); return at > 1 })
		c.end()
		r := m.Results(target)[1]
		mask := rec.layout.Bit(rec.preempted, flag)
		t.Equal(descheduled, "preempted as another CPU sees it", set, value)
		t.Equal(descheduled, "bit "+flag+" of it", mask, value&mask)
		if !seen {
			t.Unreached(running, "the CPU was not seen descheduled, so that its own view proves nothing")
		}
		t.Equal(running, "preempted as the CPU itself sees it", clear, r.Value&rec.mask(rec.preempted))
		t.Equal(running, "reads by the CPU itself, none of them set", uint64(reads), r.Aux)
	}}
}

// preemptedIdle: preempted is clear while the CPU waits and while it is out in the
// VMM, and whatever it held is cleared when the CPU enters. What is planted for the
// last is taken away by the CPU itself before the others are looked at.
func preemptedIdle(waiting, inVMM, cleared string) Check {
	return Check{Rules: []string{waiting, inVMM, cleared}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m)
		look := load(rec.addressOf(rec.preempted), 1)
		take := store(rec.addressOf(rec.preempted), 0, 1)
		t.start(m, target, rec.on(), exit(1), look, take, exit(2), look, take, waitOp(0))
		t.exits(m, target)
		if rec.get(version) == 0 && rec.get(rec.preempted) == fill {
			for _, rule := range []string{waiting, inVMM} {
				t.Unreached(rule, "the hypervisor did not write the record, so that what it leaves clear proves nothing")
			}
		}
		stays := func(rule string) {
			for range staysLooks {
				t.Equal(rule, "preempted", t.Want(rule, "preempted"), rec.get(rec.preempted))
			}
		}
		rec.set(rec.preempted, 1)
		t.exits(t.again(m, target), target)
		stays(inVMM)
		rec.set(rec.preempted, 0xff)
		t.again(m, target)
		t.Control("the waiter sleeps, in operation", 7, t.settle(m, target, 8))
		stays(waiting)
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)
		r := m.Results(target)
		for i, op := range []int{2, 5} {
			t.Equal(cleared, fmt.Sprintf("preempted after entry %d", i+1), t.Want(cleared, "preempted"), r[op].Value)
		}
	}}
}

// again resumes a CPU that is out by an Exit.
func (t *T) again(m microvm.Machine, cpu int) microvm.Machine {
	t.Check(fmt.Sprintf("resume CPU %d", cpu), m.Resume(cpu))
	return m
}

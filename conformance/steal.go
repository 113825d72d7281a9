package conformance

import (
	"fmt"
	"strings"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// Steal time and preempted: a record in memory that the guest registers and the
// hypervisor writes. abi.Scheduling names the register of the record and the fields
// for steal and preempted.

// record is the shared record of one CPU.
type record struct {
	arch.Area
	layout abi.Layout
	reg    abi.Register
	// steal and preempted are the names of those fields.
	steal, preempted string
}

// record sets memory aside for a shared record: zero in steal and version, as a guest
// leaves them, and fill in all the rest.
func (t *T) record(m microvm.Machine, fill byte) record {
	name, preempted, _ := strings.Cut(t.ABI.Scheduling.Preempted, ".")
	_, steal, _ := strings.Cut(t.ABI.Scheduling.Steal, ".")
	l := t.ABI.Layout(name)
	r := record{m.Alloc(l.Size, l.Align, fill), l, t.ABI.Register(t.ABI.Scheduling.Area), steal, preempted}
	r.set(steal, 0)
	r.set(version, 0)
	return r
}

// version is the field of a shared record that guards the others, odd while they are
// being written.
const version = "version"

func (r record) get(field string) uint64 {
	f := r.layout.Field(field)
	return r.Load(f.Offset, f.Size)
}

func (r record) set(field string, value uint64) {
	f := r.layout.Field(field)
	r.Store(f.Offset, f.Size, value)
}

// at is the address of a field.
func (r record) at(field string) uint64 { return r.Address() + r.layout.Field(field).Offset }

// mask selects a field in the 8 bytes at its address, on a little-endian machine.
func (r record) mask(field string) uint64 { return 1<<(8*r.layout.Field(field).Size) - 1 }

// on registers the record, off takes it back.
func (r record) on() arch.Op  { return writeRegister(r.reg.Number, r.Address()|r.reg.Enable) }
func (r record) off() arch.Op { return writeRegister(r.reg.Number, 0) }

// changed counts the bytes of fields that are no longer fill.
func (r record) changed(fill byte, fields ...string) int64 {
	var n int64
	for _, name := range fields {
		f := r.layout.Field(name)
		for _, b := range r.Bytes()[f.Offset : f.Offset+f.Size] {
			n += bit(b != fill)
		}
	}
	return n
}

// padding names the fields that nobody writes.
func (r record) padding() []string {
	var out []string
	for _, f := range r.layout.Fields {
		if f.Writer == "nobody" {
			out = append(out, f.Name)
		}
	}
	return out
}

// fill is what a record's bytes hold before the hypervisor sees it: not zero, so that
// a zero that it writes shows, too.
const fill = 0xa5

// stealRegister: the register that turns the record on reads back, and refuses its
// reserved bits.
func stealRegister(readsBack, reserved string) Check {
	return Check{Rules: []string{readsBack, reserved}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m, fill)
		on := rec.on()
		r := t.run(m, caller, readRegister(rec.reg.Number), on, readRegister(rec.reg.Number), rec.off(), readRegister(rec.reg.Number))
		t.Equal(readsBack, "value before the write", Hex(rec.reg.Reset), Hex(r[0].Value))
		t.Equal(readsBack, "exception of the write", 0, r[1].Trap)
		t.Equal(readsBack, "value after the write", Hex(on.Arg[1]), Hex(r[2].Value))
		t.Equal(readsBack, "value after a write of zero", Hex(0), Hex(r[4].Value))

		for b := range 64 {
			if rec.reg.Reserved>>b&1 == 0 {
				continue
			}
			r := t.run(m, caller, on, writeRegister(rec.reg.Number, on.Arg[1]|1<<b), readRegister(rec.reg.Number), rec.off())
			t.Control("exception of the write without a reserved bit", 0, r[0].Trap)
			t.Equal(reserved, fmt.Sprintf("exception for bit %d", b), t.Want(reserved, "exception"), int64(r[1].Trap)-1)
			t.Equal(reserved, fmt.Sprintf("value after it for bit %d", b), Hex(on.Arg[1]), Hex(r[2].Value))
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
	c := &contention{t: t, m: m, flag: m.Alloc(8, 8, 0)}
	until := spinUntil(c.flag.Address(), ^uint64(0), 1, 0)
	release, err := m.Crowd(target, third)
	t.Check("put two CPUs on one CPU of the host", err)
	c.release = release
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

// stealGrows: what the hypervisor writes while the record's CPU is kept waiting, and
// what it leaves alone.
func stealGrows(written, padding, flags string) Check {
	return Check{Rules: []string{written, padding, flags}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m, fill)
		c := t.contend(m, rec)
		entered := t.Until(func() bool { v := rec.get(version); return v != 0 && v%2 == uint64(t.Want(written, "parity")) })
		t.Truth(written, "version is even and not zero after an entry", entered)
		first := rec.get(rec.steal)
		grew := t.Until(func() bool { return rec.get(rec.steal) > first })
		c.end()
		t.Equal(written, "version modulo 2 at the end", t.Want(written, "parity"), rec.get(version)%2)
		t.Equal(written, "steal grows", t.Want(written, "grows"), bit(grew))
		t.Evidence(written, "steal", []uint64{first, rec.get(rec.steal)})
		for _, rule := range []string{padding, flags} {
			t.Truth(rule, "the hypervisor wrote the record", entered)
			t.Evidence(rule, "record", fmt.Sprintf("%x", rec.Bytes()))
		}
		t.Equal(padding, "bytes of padding changed", t.Want(padding, "changed"), rec.changed(fill, rec.padding()...))
		t.Equal(flags, "bytes of flags changed", t.Want(flags, "changed"), rec.changed(fill, "flags"))
	}}
}

// stealReader: a reader on another CPU that follows the version protocol while the
// record is being written.
func stealReader(protocol, monotonic string) Check {
	const (
		reads   = 5000 // of one program
		changes = 5    // of steal that the reader must have seen
	)
	return Check{Rules: []string{protocol, monotonic}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m, fill)
		c := t.contend(m, rec)
		var sum arch.Result
		seen := t.Until(func() bool {
			r := t.run(m, caller, arch.Op{Kind: arch.Sample, Arg: [6]uint64{rec.at(version), rec.at(rec.steal), reads}})[0]
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

// stealOff: once the record is off, nothing writes it. The control is that the same
// going out and in did write while it was on.
func stealOff(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m, fill)
		t.start(m, target, rec.on(), exit(1), exit(2), rec.off(), exit(3), exit(4), exit(5))
		t.exits(m, target)
		before := rec.get(version)
		t.exits(t.again(m, target), target)
		t.Control("the record is written at an entry while it is on", true, rec.get(version) != before)
		t.exits(t.again(m, target), target)
		for i := range rec.Size() {
			rec.Store(i, 1, fill)
		}
		t.exits(t.again(m, target), target)
		t.exits(t.again(m, target), target)
		t.finish(t.again(m, target), target)
		var changed int64
		for _, b := range rec.Bytes() {
			changed += bit(b != fill)
		}
		t.Equal(rule, "bytes changed", t.Want(rule, "changed"), changed)
	}}
}

// preemptedBusy: preempted is clear as the running CPU itself sees it, and set as
// others see it once the host has taken the CPU off. Each is the other's control.
func preemptedBusy(running, descheduled string) Check {
	const reads = 100000 // of one program, by the CPU itself
	return Check{Rules: []string{running, descheduled}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m, fill)
		set := uint64(t.Want(descheduled, "preempted"))
		own := spinUntil(rec.at(rec.preempted), rec.mask(rec.preempted), set, reads)
		c := t.contend(m, rec, own)
		seen := t.Until(func() bool { return rec.get(rec.preempted) == set })
		t.Until(func() bool { at, _ := m.At(target); return at > 1 })
		c.end()
		r := m.Results(target)[1]
		t.Equal(descheduled, "preempted as another CPU sees it", set, map[bool]uint64{true: set, false: rec.get(rec.preempted)}[seen])
		if !seen {
			t.Unreached(running, "the CPU was not seen descheduled, so that its own view proves nothing")
		}
		t.Equal(running, "preempted as the CPU itself sees it", t.Want(running, "preempted"), r.Value&rec.mask(rec.preempted))
		t.Equal(running, "reads by the CPU itself, none of them set", uint64(reads), r.Aux)
	}}
}

// preemptedIdle: preempted is clear while the CPU waits and while it is out in the
// VMM, and whatever it held is cleared when the CPU enters.
func preemptedIdle(waiting, inVMM, cleared string) Check {
	return Check{Rules: []string{waiting, inVMM, cleared}, Run: func(t *T) {
		m := t.Open(machine())
		rec := t.record(m, fill)
		t.start(m, target, rec.on(), exit(1), load(rec.at(rec.preempted), 1), exit(2), load(rec.at(rec.preempted), 1), waitOp(0))
		t.exits(m, target)
		look := func(rule string) {
			for range staysLooks {
				t.Equal(rule, "preempted", t.Want(rule, "preempted"), rec.get(rec.preempted))
			}
		}
		rec.set(rec.preempted, 1)
		t.exits(t.again(m, target), target)
		look(inVMM)
		rec.set(rec.preempted, 0xff)
		t.again(m, target)
		t.Control("the waiter sleeps, in operation", 5, t.settle(m, target, 6))
		look(waiting)
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)
		r := m.Results(target)
		for i, op := range []int{2, 4} {
			t.Equal(cleared, fmt.Sprintf("preempted after entry %d", i+1), t.Want(cleared, "preempted"), r[op].Value)
		}
	}}
}

// again resumes a CPU that is out by an Exit.
func (t *T) again(m microvm.Machine, cpu int) microvm.Machine {
	t.Check(fmt.Sprintf("resume CPU %d", cpu), m.Resume(cpu))
	return m
}

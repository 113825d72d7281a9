package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/s390x"
	"pvabi/conformance/microvm"
)

// S390Machine is what the checks of s390 ask of a machine besides. Package s390 has one, of three
// CPUs, of which the last one, spare, runs no programs and can be taken offline.
type S390Machine interface {
	microvm.Machine
	// Real returns the address that the hypervisor knows an area by.
	Real(a arch.Area) (uint64, error)
	// Interruptions returns how many interruptions of a class a CPU took since the guest was
	// started. Classes go by their names in /proc/interrupts.
	Interruptions(cpu int, class string) (uint64, error)
	// SetOnline has the kernel take the spare CPU offline, which stops it, or bring it back.
	// Reset brings it back, too.
	SetOnline(online bool) error
	// LastByte returns the largest address that there is memory at.
	LastByte() (uint64, error)
	// Unprivileged runs a program in problem state, in a process of its own, and returns what
	// its operations left. An exception ends its operation only.
	Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error)
}

// spare is the CPU that runs no programs.
const spare = 2

// The classes of interruptions (arch/s390/kernel/irq.c, irqclass_main_desc and
// irqclass_sub_desc, Linux 7.2).
const (
	s390External        = "EXT" // all external ones
	s390IO              = "I/O" // all for input and output
	s390ExternalCall    = "EXC"
	s390EmergencySignal = "EMS"
)

// S390 is the suite for the hypervisor side of s390: the hypervisor below the Linux guest that
// the suite runs in, asked by CPUs of that guest. open makes machines of package s390.
func S390(ctx context.Context, i Implementer, open func(microvm.Config) (microvm.Machine, error)) (*Suite, error) {
	s := &Suite{
		ABI: abi.S390(), ISA: s390x.ISA, Open: open, Implementer: i, Deviations: Deviations,
		Checks: s390Checks(), Costs: s390Costs(), Looks: Looks,
	}
	return s, s.s390Discover(ctx)
}

// S390Rules are the rules that S390 has a result for, in the order of its results. Left out are
// those that take a counter of the host's, a machine without a facility, a wait of a program's own,
// and a stopped CPU that is enabled for interruptions, which Linux has none of.
func S390Rules() []abi.Rule {
	return (&Suite{ABI: abi.S390(), Checks: s390Checks()}).Rules()
}

// S390Disturbing are those of them, and of S390GuestRules, that [Suite.Gentle] leaves, with what their
// check does.
func S390Disturbing() map[string]string {
	return disturbingOf(slices.Concat(s390Checks(), s390GuestChecks()))
}

// s390Checks are the checks of s390, in the order of the report.
func s390Checks() []Check {
	return []Check{
		s390Discovery(),
		s390Privilege(),
		s390Undefined(),
		s390CodeFromAddress(),
		s390TimeSliceEnd(),
		s390Virtio(),
		s390StorageLimit(),
		s390PfaultRefused(),
		disturbing("has the hypervisor tell of page faults, if the kernel has not", s390PfaultEstablished()),
		s390Yield(),
		disturbing(takesOffline, s390YieldStopped()),
		s390YieldWakes(),
		s390YieldField(),
		s390AbsentCPU(),
		s390InvalidOrder(),
		s390OrderAddress(),
		s390Operands(),
		s390Parameter(),
		s390Emergency(),
		s390EmergencyFromEach(),
		s390Sense(),
		disturbing(takesOffline, s390Stopped()),
		s390Descheduled(),
		s390CallWakes(),
		s390CallKept(),
		s390CallSelf(),
		s390CallSender(),
	}
}

// takesOffline is what a check does to a CPU of the kernel that runs.
const takesOffline = "takes a CPU of the kernel offline, and brings it back"

// s390Machine is what the checks run on.
func (t *T) s390Machine() S390Machine {
	m := t.Open(microvm.Config{CPUs: 3})
	guest, ok := m.(S390Machine)
	if !ok {
		t.Fatal(fmt.Errorf("a %T is no machine of a guest's own CPUs", m))
	}
	return guest
}

// s390Discover asks a machine which facilities it has, and whether codes are there, as a guest
// does: by using them.
func (s *Suite) s390Discover(ctx context.Context) error {
	m, err := s.machines().get(microvm.Config{CPUs: 3})
	if err != nil {
		return err
	}
	self := map[string]uint64{"r1": m.ID(caller)}
	if err := m.Start(caller, arch.Program{
		{Kind: arch.Interrupts},
		{Kind: arch.Discover, Arg: [6]uint64{s390x.Facilities}},
		s390x.Form("diag r1,r0,0x9c", self),
		s390x.Form("diag r2,r4,0x500", map[string]uint64{"r1": s.ABI.Call("STORAGE_LIMIT").Number}),
	}); err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	if _, err := m.Wait(ctx, caller); err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	r := m.Results(caller)
	s.Offers = func(f abi.Feature) (bool, error) {
		switch {
		case f.Word == "facilities":
			return r[1].Regs[f.Bit/64]>>(63-f.Bit%64)&1 == 1, nil
		case f.Name == "DIAG9C":
			return r[2].Trap == 0, nil
		case f.Name == "STORAGE_LIMIT":
			return r[3].Trap == 0, nil
		case f.Name == "PFAULT":
			// Linux uses the code wherever DIAGNOSE 0x9c is: both are of KVM, z/VM and
			// partitions.
			return r[2].Trap == 0, nil
		}
		return false, fmt.Errorf("no way to find out about %s of %s", f.Name, f.Word)
	}
	return nil
}

// quiet runs operations with interruptions off, so that what a program interruption leaves is
// not overwritten.
func (t *T) quiet(m microvm.Machine, cpu int, ops ...arch.Op) []arch.Result {
	var out []arch.Result
	for part := range slices.Chunk(ops, arch.MaxOps-2) {
		r := t.run(m, cpu, append([]arch.Op{interruptions(0)}, part...)...)
		out = append(out, r[1:]...)
	}
	return out
}

func interruptions(on uint64) arch.Op { return arch.Op{Kind: arch.Interrupts, Arg: [6]uint64{on}} }

// diagnose is a form of DIAGNOSE with poison in the registers that are not given.
func diagnose(form string, registers map[string]uint64) arch.Op {
	return filled(s390x.Form(form, registers), registers)
}

func filled(op arch.Op, registers map[string]uint64) arch.Op {
	for i, name := range s390x.ISA.Registers {
		if _, given := registers[name]; !given {
			op.Regs[i] = poison(i)
		}
	}
	op.Flags = 2
	return op
}

// coded is a DIAGNOSE whose code is in the base register.
func coded(code uint64) arch.Op {
	return diagnose("diag r1,r0,0x0(r3)", map[string]uint64{"r3": code})
}

// order is an order of SIGNAL PROCESSOR, by its name.
func (t *T) order(name string, id uint64) arch.Op { return t.orderNumber(t.ABI.Call(name).Number, id) }

// orderNumber is an order by its number, with the parameter 0.
func (t *T) orderNumber(number, id uint64) arch.Op {
	return signal(map[string]uint64{"r3": 0, "r4": id, "r5": number})
}

// signal is the form of SIGNAL PROCESSOR that has status in R2, parameter in R3, CPU in R4
// and order in R5.
func signal(registers map[string]uint64) arch.Op {
	return filled(s390x.Form("sigp r2,r4,0x0(r5)", registers), registers)
}

// answer is what an order gave, as the table has it: the condition code times 2^32, plus, with
// condition code 1, the status in the register of R1.
func answer(r arch.Result) int64 { return answerIn(r, "r2") }

func answerIn(r arch.Result, register string) int64 {
	a := int64(r.Flags) << 32
	if r.Flags == 1 {
		a |= int64(uint32(r.Regs[s390x.ISA.Register(register)]))
	}
	return a
}

// inTurn is signals of orders whose answers depend on those before: each is given once that before it is done.
func (t *T) inTurn(m microvm.Machine, cpu int, orders ...arch.Op) (r []arch.Result) {
	for _, o := range orders {
		r = append(r, t.signals(m, cpu, o)...)
	}
	return r
}

// signals gives orders, and in the end gives those again for which the CPU, or the hypervisor, was busy
// with one before.
func (t *T) signals(m microvm.Machine, cpu int, orders ...arch.Op) []arch.Result {
	r := t.quiet(m, cpu, orders...)
	for i, o := range orders {
		t.Until(func() bool {
			if answer(r[i]) != t.ABI.Errno("BUSY") {
				return true
			}
			r[i] = t.quiet(m, cpu, o)[0]
			return false
		})
	}
	return r
}

// tries is how often something is looked at again that others who use the CPUs, the kernel for one, may
// have come into.
const tries = 16

// sharedTries are tries on a machine that others use, too.
const sharedTries = 100

// tried does something until it holds, and tells whether it did.
func (t *T) tried(holds func() bool) bool {
	n := tries
	if t.shared {
		n = sharedTries
	}
	for range n {
		if holds() {
			return true
		}
	}
	return false
}

// clear looks until others cannot have come into what was seen. look returns that and whether they may
// have. What is seen nearly each time is what the hypervisor does, whoever comes; the last look is one of
// those then. What is not, is in doubt.
func (t *T) clear(look func() (seen string, doubtful bool)) {
	times := map[string]int{}
	n := 0
	if t.tried(func() bool {
		seen, doubtful := look()
		times[seen]++
		n++
		return !doubtful
	}) {
		return
	}
	if t.shared {
		t.GiveUp(fmt.Sprintf("others interrupted the kernel's CPUs each of %d times; keep them from all but the first (isolcpus)", n))
	}
	often := func(seen string) bool { return times[seen] >= n-n/4 }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(times)), often) || !t.tried(func() bool { seen, _ := look(); return often(seen) }) {
		t.Fatal(fmt.Errorf("each of %d times something came in between; keep interrupts from CPUs but the first (isolcpus, irqaffinity)", n))
	}
}

// intruded tells whether the answers to orders are those of somebody who came in between: an order found
// another one not done yet, or the first of the external calls one that was pending.
func (t *T) intruded(orders []arch.Op, r []arch.Result) bool {
	called := false
	for i, o := range orders {
		a := answer(r[i])
		if !isOrder(o) {
			continue
		}
		if a == t.ABI.Errno("BUSY") {
			return true
		}
		if o.Regs[s390x.ISA.Register("r5")] == t.ABI.Call("EXTERNAL_CALL").Number && !called {
			called = true
			if a == t.ABI.Errno("EXT_CALL_PENDING") {
				return true
			}
		}
	}
	return false
}

// isOrder tells whether an operation is a SIGNAL PROCESSOR.
func isOrder(o arch.Op) bool {
	return o.Kind == arch.Call && strings.HasPrefix(s390x.ISA.Instructions[o.Arg[0]], "sigp")
}

// given is what orders gave, for people and to compare.
func given(r []arch.Result) (out []Hex) {
	for _, one := range r {
		out = append(out, Hex(answer(one)))
	}
	return out
}

// interruptions is how many interruptions of a class a CPU took.
func (t *T) interruptions(m S390Machine, cpu int, class string) uint64 {
	n, err := m.Interruptions(cpu, class)
	t.Check("count interruptions", err)
	return n
}

// taken has the caller do something that is to give a CPU interruptions of a class. It returns how many
// that took, and what the operations left. One that the kernel itself sends meanwhile counts as well, so
// that it is done again if there are more than wanted; none at all has the full budget of looks to come.
func (t *T) taken(m S390Machine, cpu int, class string, want uint64, ops ...arch.Op) (n uint64, r []arch.Result) {
	t.clear(func() (string, bool) {
		before := t.interruptions(m, cpu, class)
		r = t.quiet(m, caller, ops...)
		n = t.tookSince(m, cpu, class, before, want)
		return fmt.Sprint(n, given(r)), n > want || t.intruded(ops, r)
	})
	return n, r
}

// takenWaiting is taken by a CPU that is seen to wait right before, of one order. That it waits is told by
// the same program.
func (t *T) takenWaiting(m S390Machine, cpu int, class string, order arch.Op) (n uint64, got int64) {
	ops := []arch.Op{t.order("SENSE_RUNNING", m.ID(cpu)), order}
	waited := false
	t.clear(func() (string, bool) {
		t.idle(m, cpu)
		before := t.interruptions(m, cpu, class)
		r := t.quiet(m, caller, ops...)
		n, got = t.tookSince(m, cpu, class, before, 1), answer(r[1])
		waited = answer(r[0]) == t.ABI.Result("SENSE_RUNNING", "descheduled target")
		return fmt.Sprint(n, given(r)), !waited || n > 1 || t.intruded(ops, r)
	})
	t.Control("the CPU waited when it was signalled", true, waited)
	return n, got
}

// tookSince returns how many interruptions a CPU took since it was seen to have taken before,
// looking until there are as many as wanted.
func (t *T) tookSince(m S390Machine, cpu int, class string, before, want uint64) uint64 {
	if want > 0 {
		t.Until(func() bool { return t.interruptions(m, cpu, class) >= before+want })
	}
	// What comes too many, comes while the caller runs a program.
	t.passes(m, cpu)
	return t.interruptions(m, cpu, class) - before
}

// passes has the caller look at another CPU for a while, and so lets that take what is pending.
func (t *T) passes(m S390Machine, cpu int) {
	look := t.order("SENSE", m.ID(cpu))
	t.run(m, caller, slices.Repeat([]arch.Op{look}, 16)...)
}

// held has the target be with interruptions off while the caller does something, and returns
// what both left: the target's operations in then come after that, with interruptions still off.
// begun and done, where they are not nil, are called before that and after the target had
// interruptions on again, and while it runs: to begin a program, and to go on after one, takes
// external calls of the kernel's.
func (t *T) held(m microvm.Machine, begun, done func(), do []arch.Op, then ...arch.Op) (did, after []arch.Result) {
	flag := m.Alloc(8, 8, 0)
	const running, begin, off, on, over, end = 1, 2, 3, 4, 5, 6
	await := func(v uint64) arch.Op { return spinUntil(flag.Address(), ^uint64(0), v, 0) }
	say := func(v uint64) arch.Op { return store(flag.Address(), v, 8) }
	seen := func(v uint64, call func()) {
		if !t.Until(func() bool { return flag.Load(0, 8) == v }) {
			t.Fatal(fmt.Errorf("CPU %d does not come to step %d of its program", target, v))
		}
		if call != nil {
			call()
		}
	}
	// The caller first: a CPU with interruptions off must not wait for this process.
	p := append(arch.Program{await(off)}, do...)
	t.start(m, caller, append(p, say(on))...)
	q := arch.Program{say(running), await(begin), interruptions(0), say(off), await(on)}
	head := len(q)
	t.start(m, target, append(append(q, then...), interruptions(1), say(over), await(end))...)
	seen(running, begun)
	flag.Store(0, 8, begin)
	t.finish(m, caller)
	did = m.Results(caller)[1:][:len(do)]
	seen(over, done)
	flag.Store(0, 8, end)
	t.finish(m, target)
	return did, m.Results(target)[head:][:len(then)]
}

// heldTaken is held, and how many interruptions of a class the target took from then on; see taken.
func (t *T) heldTaken(m S390Machine, class string, want uint64, do []arch.Op, then ...arch.Op) (n uint64, did, after []arch.Result) {
	t.clear(func() (string, bool) {
		n, did, after = t.heldOnce(m, class, want, do, then...)
		return fmt.Sprint(n, given(did), given(after)), n > want || t.intruded(do, did) || t.intruded(then, after)
	})
	return n, did, after
}

func (t *T) heldOnce(m S390Machine, class string, want uint64, do []arch.Op, then ...arch.Op) (n uint64, did, after []arch.Result) {
	var before uint64
	did, after = t.held(m,
		func() { before = t.interruptions(m, target, class) },
		func() { n = t.tookSince(m, target, class, before, want) }, do, then...)
	return n, did, after
}

// idle waits until a CPU is seen in an enabled wait. SENSE_RUNNING tells.
func (t *T) idle(m S390Machine, cpu int) {
	want := t.ABI.Result("SENSE_RUNNING", "descheduled target")
	var got int64
	t.Control("a CPU without a program is seen to wait", true, t.Until(func() bool {
		got = answer(t.signals(m, caller, t.order("SENSE_RUNNING", m.ID(cpu)))[0])
		return got == want
	}))
}

// absent are addresses that no CPU has.
func s390Absent(m microvm.Machine) []uint64 {
	named := []uint64{0}
	for cpu := range m.CPUs() {
		named = append(named, m.ID(cpu))
	}
	out := []uint64{1<<8 - 1, 1<<15 - 1, 1<<16 - 1, slices.Max(named) + 1}
	for _, id := range named {
		out = append(out, id|1<<8, id|1<<15)
	}
	return out
}

// s390Discovery: what a guest asks at boot.
func s390Discovery() Check {
	const (
		level   = "discovery/level"
		program = "discovery/control-program"
		probe   = "discovery/probe-ends"
	)
	return Check{Rules: []string{level, program, probe}, Run: func(t *T) {
		m := t.s390Machine()
		block := m.Alloc(4096, 4096, 0)
		stsi := func(function, first, second uint64) arch.Op {
			return arch.Op{Kind: arch.Discover, Arg: [6]uint64{s390x.SystemInformation, function<<28 | first, second, block.Address()}}
		}
		selector := t.ABI.Word("stsi-selector")
		r := t.run(m, caller, stsi(0, 0, 0), stsi(t.ABI.Word("stsi-function"), selector, selector))
		t.Equal(level, "level", t.ABI.Word("stsi-level-vm"), r[0].Regs[0]>>28&0xf)
		t.Equal(program, "condition code", 0, r[1].Flags)
		count := block.Load(t.ABI.Word("stsi-count-at"), 1) & 0xf
		name := block.Load(t.ABI.Word("stsi-program-at"), 4) >> 8
		t.Evidence(program, "answer", fmt.Sprintf("%x", block.Bytes()[:96]))
		t.Equal(program, "name", Hex(t.ABI.Word("program-kvm")), Hex(name))
		t.Equal(program, "names found", t.Want(program, "found"), bit(count > 0 && name == t.ABI.Word("program-kvm")))

		var traps []uint64
		for _, cpu := range []int{caller, target} {
			one := diagnose("diag r1,r0,0x9c", map[string]uint64{"r1": m.ID(cpu)})
			for _, r := range t.quiet(m, cpu, one, one, one) {
				traps = append(traps, r.Trap)
			}
		}
		t.Evidence(probe, "exceptions, 1 more than their code", traps)
		t.OneOf(probe, "exception code, -1 for none", []int64{-1, t.Want(probe, "exception")}, int64(traps[0])-1)
		t.Truth(probe, "every time alike", len(slices.Compact(slices.Clone(traps))) == 1)
	}}
}

// s390Privilege: from problem state all forms are refused. The control is that one is not with
// privilege.
func s390Privilege() Check {
	const refused = "privilege/user-refused"
	return Check{Rules: []string{refused}, Run: func(t *T) {
		m := t.s390Machine()
		var names []string
		var p arch.Program
		user := func(name string, op arch.Op) { names, p = append(names, name), append(p, op) }
		for _, form := range []string{"diag r0,r0,0x44", "diag r1,r0,0x9c", "diag r1,r0,0xfff", "diag r2,r4,0x500"} {
			user(form, diagnose(form, map[string]uint64{"r1": 0, "r2": 0}))
		}
		for _, name := range []string{"SENSE", "EXTERNAL_CALL", "EMERGENCY_SIGNAL"} {
			user(name, t.order(name, m.ID(target)))
		}
		user("an order that is none", t.orderNumber(t.ABI.Word("first-free-order"), m.ID(target)))
		r, err := m.Unprivileged(t.ctx, p)
		t.Check("a program in problem state", err)
		for i, name := range names {
			t.Equal(refused, name, t.Want(refused, "exception"), int64(r[i].Trap)-1)
		}
		t.Control("exceptions of the same with privilege", 0, t.quiet(m, caller, diagnose("diag r0,r0,0x44", nil))[0].Trap)
	}}
}

// s390Undefined: codes that are none end in a specification exception. The control is one that
// is there, between them.
func s390Undefined() Check {
	const rule = "diag/undefined-code"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		var p []arch.Op
		var names []string
		for code := t.ABI.Word("first-free-code"); code <= t.ABI.Word("last-free-code"); code++ {
			p = append(p, coded(code))
			names = append(names, "code "+Hex(code).String())
		}
		p = append(p, diagnose("diag r1,r0,0xfff", nil))
		names = append(names, "code 0xfff as displacement")
		for i, r := range t.quiet(m, caller, p...) {
			t.Equal(rule, names[i], t.Want(rule, "exception"), int64(r.Trap)-1)
		}
		t.Control("exceptions of a code that is there", 0, t.quiet(m, caller, diagnose("diag r0,r0,0x44", nil))[0].Trap)
	}}
}

// s390CodeFromAddress: the code in base and displacement, and garbage above it. The control is
// the code in the displacement alone.
func s390CodeFromAddress() Check {
	const (
		address = "diag/code-from-address"
		high    = "diag/code-high-bits"
	)
	return Check{Rules: []string{address, high}, Run: func(t *T) {
		m := t.s390Machine()
		code := t.ABI.Call("TIME_SLICE_END").Number
		t.Control("exceptions of the code as displacement", 0, t.quiet(m, caller, diagnose("diag r0,r0,0x44", nil))[0].Trap)
		r := t.quiet(m, caller, coded(code), diagnose("diag r1,r0,0x9c(r3)", map[string]uint64{"r3": code - 0x9c}))
		t.Equal(address, "exceptions, in the base register", t.Want(address, "exceptions"), bit(r[0].Trap != 0))
		t.Equal(address, "exceptions, in part in the base register", t.Want(address, "exceptions"), bit(r[1].Trap != 0))
		t.Evidence(address, "exceptions, 1 more than their code", []uint64{r[0].Trap, r[1].Trap})
		for _, b := range []int{16, 31, 32, 63} {
			r := t.quiet(m, caller, coded(code|1<<b))
			t.Equal(high, fmt.Sprintf("exceptions with bit %d", b), t.Want(high, "exceptions"), bit(r[0].Trap != 0))
		}
	}}
}

// changedRegisters counts the registers that an operation changed, but for those named.
func (t *T) changedRegisters(op arch.Op, r arch.Result, but ...string) int64 {
	var n int64
	for i, name := range t.ISA.Registers {
		if name != "r15" && !slices.Contains(but, name) {
			n += bit(r.Regs[i] != op.Regs[i])
		}
	}
	return n + bit(r.Regs[t.ISA.Register("r15")] != 0)
}

// s390TimeSliceEnd: the code that yields to anybody, and what it leaves alone.
func s390TimeSliceEnd() Check {
	const (
		ends      = "diag/time-slice-end"
		preserved = "diag/registers-preserved"
	)
	return Check{Rules: []string{ends, preserved}, Run: func(t *T) {
		m := t.s390Machine()
		forms := []arch.Op{diagnose("diag r0,r0,0x44", nil)}
		offered, err := t.Offers(t.ABI.Feature("DIAG9C"))
		t.Check("discovery", err)
		if offered {
			forms = append(forms, diagnose("diag r5,r0,0x9c", map[string]uint64{"r5": m.ID(target)}))
		}
		for i, op := range forms {
			for cc := range uint64(4) {
				op.Flags = cc
				r := t.quiet(m, caller, op)[0]
				if i == 0 {
					t.Equal(ends, "exceptions", t.Want(ends, "exceptions"), bit(r.Trap != 0))
				}
				what := fmt.Sprintf("%s with condition code %d", t.ISA.Instructions[op.Arg[0]], cc)
				t.Equal(preserved, what, t.Want(preserved, "changed"), t.changedRegisters(op, r)+bit(r.Flags != cc))
			}
		}
	}}
}

// s390Virtio: KVM's own calls, of which one is there that does nothing.
func s390Virtio() Check {
	const (
		unknown   = "virtio/unknown-subcode"
		width     = "virtio/subcode-width"
		absent    = "virtio/absent-subchannel"
		preserved = "virtio/registers-preserved"
	)
	return Check{Rules: []string{unknown, width, absent, preserved}, Run: func(t *T) {
		m := t.s390Machine()
		const form = "diag r2,r4,0x500"
		subcode := func(n, first, second uint64) arch.Op {
			return diagnose(form, map[string]uint64{"r1": n, "r2": first, "r3": second, "r4": 0})
		}
		notify, ccw := t.ABI.Call("VIRTIO_NOTIFY").Number, t.ABI.Call("VIRTIO_CCW_NOTIFY").Number
		r2 := t.ISA.Register("r2")

		harmless := subcode(notify, 0, 0)
		r := t.quiet(m, caller, harmless)[0]
		t.Control("exceptions of a subcode that is there", 0, r.Trap)
		t.Control("its result", t.ABI.Result("VIRTIO_NOTIFY", "called"), int64(r.Regs[r2]))
		t.Equal(preserved, "VIRTIO_NOTIFY", t.Want(preserved, "changed"), t.changedRegisters(harmless, r, "r2"))

		var defined []uint64
		for _, c := range t.ABI.AllCalls() {
			if c.Convention == "DIAGNOSE 0x500" {
				defined = append(defined, c.Number)
			}
		}
		for _, n := range []uint64{slices.Max(defined) + 1, 99, 1<<31 - 1} {
			r := t.quiet(m, caller, subcode(n, 0, 0))[0]
			t.Equal(unknown, "subcode "+Hex(n).String(), t.Want(unknown, "exception"), int64(r.Trap)-1)
		}
		for _, n := range []uint64{notify, ccw} {
			for _, b := range []int{32, 63} {
				r := t.quiet(m, caller, subcode(1<<b|n, 0, 0))[0]
				t.Equal(width, "subcode "+Hex(1<<b|n).String(), t.Want(width, "exception"), int64(r.Trap)-1)
			}
		}
		// A subchannel-identification word has bit 16 set, and then the number.
		for _, subchannel := range []uint64{1<<16 | 0xffff, 1<<16 | 0xfffe, 0} {
			op := subcode(ccw, subchannel, 0)
			r := t.quiet(m, caller, op)[0]
			t.Equal(absent, "sign of the result for "+Hex(subchannel).String(), t.Want(absent, "sign"), sign(int64(r.Regs[r2])))
			t.Equal(absent, "exceptions", 0, r.Trap)
			t.Equal(preserved, "VIRTIO_CCW_NOTIFY", t.Want(preserved, "changed"), t.changedRegisters(op, r, "r2"))
		}
	}}
}

func sign(n int64) int64 { return bit(n > 0) - bit(n < 0) }

// s390StorageLimit: the largest address that memory can have.
func s390StorageLimit() Check {
	const rule = "virtio/storage-limit"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		last, err := m.LastByte()
		t.Check("how much memory there is", err)
		r := t.quiet(m, caller, diagnose("diag r2,r4,0x500", map[string]uint64{"r1": t.ABI.Call("STORAGE_LIMIT").Number}))[0]
		limit := r.Regs[t.ISA.Register("r2")]
		t.Evidence(rule, "limit and last byte", []string{Hex(limit).String(), Hex(last).String()})
		t.Equal(rule, "exceptions", 0, r.Trap)
		t.Equal(rule, "bytes of memory beyond it", t.Want(rule, "below"), last-min(limit, last))
	}}
}

// pfault is a block for PAGE_REFERENCE to establish a token, at an offset from one that is aligned,
// and the call with it.
func (t *T) pfault(m S390Machine, offset uint64, change func(block arch.Area)) arch.Op {
	l := t.ABI.Layout("pfault_refbk")
	area := m.Alloc(2*l.Size, 4096, 0)
	for name, v := range map[string]uint64{
		"refdiagc": t.ABI.Call("PAGE_REFERENCE").Number, "refdwlen": l.Size / 8, "refversn": 2, "reserved": 1 << 63,
	} {
		f := l.Field(name)
		area.Store(f.Offset, f.Size, v)
	}
	change(area)
	real, err := m.Real(area)
	t.Check("where the block is", err)
	return diagnose("diag r2,r4,0x258", map[string]uint64{"r2": real + offset})
}

// s390PfaultRefused: blocks that are not good. Nothing is established by them.
func s390PfaultRefused() Check {
	const (
		unaligned = "pfault/unaligned"
		version   = "pfault/version"
	)
	return Check{Rules: []string{unaligned, version}, Run: func(t *T) {
		m := t.s390Machine()
		l := t.ABI.Layout("pfault_refbk")
		for _, offset := range []uint64{1, 2, 4} {
			r := t.quiet(m, caller, t.pfault(m, offset, func(arch.Area) {}))
			t.Equal(unaligned, fmt.Sprintf("exception code at offset %d", offset), t.Want(unaligned, "exception"), int64(r[0].Trap)-1)
		}
		for name, v := range map[string]uint64{"refversn": 1, "refdwlen": 4, "refdiagc": 0x44} {
			f := l.Field(name)
			r := t.quiet(m, caller, t.pfault(m, 0, func(block arch.Area) { block.Store(f.Offset, f.Size, v) }))
			t.Equal(version, fmt.Sprintf("exception code with %s %d", name, v), t.Want(version, "exception"), int64(r[0].Trap)-1)
		}
	}}
}

// s390PfaultEstablished: the kernel has a token for each CPU, so that there cannot be another.
func s390PfaultEstablished() Check {
	const rule = "pfault/established"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		r := t.quiet(m, caller, t.pfault(m, 0, func(arch.Area) {}))
		t.Control("exceptions of a good block", 0, r[0].Trap)
		t.Equal(rule, "result", t.ABI.Result("PAGE_REFERENCE", "token established before"), int64(r[0].Regs[t.ISA.Register("r4")]))
	}}
}

// yieldForm is a yield with the address in a register.
func yieldForm(register string, id uint64) arch.Op {
	return diagnose("diag "+register+",r0,0x9c", map[string]uint64{register: id})
}

// yields yields to a CPU, with its address in several registers. None ends in an exception.
func (t *T) yields(m S390Machine, rule, when string, id uint64) {
	for _, register := range []string{"r1", "r5", "r14"} {
		r := t.quiet(m, caller, yieldForm(register, id))[0]
		t.Equal(rule, fmt.Sprintf("exceptions, address %d in %s", id, register), t.ABI.Result("YIELD_TO", when), bit(r.Trap != 0))
	}
}

// s390Yield: yields to CPUs in each state but one.
func s390Yield() Check {
	rules := []string{"yield/self", "yield/running-target", "yield/waiting-target", "yield/absent-target"}
	return Check{Rules: rules, Run: func(t *T) {
		m := t.s390Machine()
		t.yields(m, rules[0], "self", m.ID(caller))
		end := t.runner(m, target)
		t.yields(m, rules[1], "running target", m.ID(target))
		end()
		t.idle(m, target)
		t.yields(m, rules[2], "waiting target", m.ID(target))
		for _, id := range s390Absent(m) {
			t.yields(m, rules[3], "absent target", id)
		}
	}}
}

// s390YieldStopped: yields to a CPU that is stopped.
func s390YieldStopped() Check {
	const rule = "yield/stopped-target"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		t.Check("take the spare CPU offline", m.SetOnline(false))
		t.yields(m, rule, "stopped target", m.ID(spare))
	}}
}

// s390YieldWakes: a yield gives its target no interruption, and so does not end its wait. The
// control is that an external call does.
func s390YieldWakes() Check {
	const rule = "yield/does-not-wake"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		t.idle(m, target)
		n, _ := t.taken(m, target, s390External, 0, yieldForm("r1", m.ID(target)), yieldForm("r5", m.ID(target)))
		t.Equal(rule, "interruptions", t.Want(rule, "wakes"), n)
		n, _ = t.taken(m, target, s390ExternalCall, 1, t.order("EXTERNAL_CALL", m.ID(target)))
		t.Control("interruptions by a call", true, n > 0)
	}}
}

// s390YieldField: the register that R1 names has the address, and no other is looked at.
func s390YieldField() Check {
	const rule = "yield/register-field"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		for _, register := range []string{"r0", "r1", "r5", "r14"} {
			op := yieldForm(register, m.ID(target))
			r := t.quiet(m, caller, op)[0]
			t.Equal(rule, "exceptions with the address in "+register, t.ABI.Result("YIELD_TO", "waiting target"), bit(r.Trap != 0))
			t.Equal(rule, "registers changed with the address in "+register, 0, t.changedRegisters(op, r))
		}
	}}
}

// s390Orders are orders that no CPU is the worse for.
var s390Orders = []string{"SENSE", "EXTERNAL_CALL", "EMERGENCY_SIGNAL", "COND_EMERGENCY_SIGNAL", "SENSE_RUNNING"}

// s390AbsentCPU: orders for nobody. The control is that the same orders reach somebody.
func s390AbsentCPU() Check {
	const rule = "sigp/absent-cpu"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		var p []arch.Op
		var what []string
		var want []int64
		for _, id := range s390Absent(m) {
			for _, name := range s390Orders {
				p = append(p, t.order(name, id))
				what = append(what, fmt.Sprintf("%s of %d", name, id))
				want = append(want, t.ABI.Result(name, "absent target"))
			}
			p = append(p, t.orderNumber(t.ABI.Word("last-free-order"), id))
			what = append(what, fmt.Sprintf("an order that is none, of %d", id))
			want = append(want, t.ABI.Errno("NOT_OPERATIONAL"))
		}
		for i, r := range t.signals(m, caller, p...) {
			t.Equal(rule, what[i], Hex(want[i]), Hex(answer(r)))
		}
		for _, name := range s390Orders {
			r := t.signals(m, caller, t.order(name, m.ID(target)))[0]
			t.Control(name+" of a CPU gives condition code 3", false, r.Flags == 3)
		}
	}}
}

// s390InvalidOrder: orders that are none, for a CPU that exists.
func s390InvalidOrder() Check {
	const rule = "sigp/invalid-order"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		first := t.ABI.Word("first-free-order")
		var p []arch.Op
		for n := first; n <= t.ABI.Word("last-free-order"); n++ {
			p = append(p, t.orderNumber(n, m.ID(target)))
		}
		for i, r := range t.signals(m, caller, p...) {
			t.Equal(rule, "order "+Hex(first+uint64(i)).String(), Hex(t.ABI.Errno("INVALID_ORDER")), Hex(answer(r)))
		}
		t.Control("condition code of an order that is there", 0, t.signals(m, caller, t.order("SENSE", m.ID(caller)))[0].Flags)
	}}
}

// s390OrderAddress: what of the second-operand address is the order, and what of R3 the address
// of the CPU. SENSE_RUNNING of a CPU that waits is told from all other orders, and from itself of
// others, by its answer.
func s390OrderAddress() Check {
	const (
		low      = "sigp/order-byte"
		division = "sigp/order-from-address"
		width    = "sigp/address-width"
	)
	return Check{Rules: []string{low, division, width}, Run: func(t *T) {
		m := t.s390Machine()
		number := t.ABI.Call("SENSE_RUNNING").Number
		id := m.ID(target)
		waits := Hex(t.ABI.Result("SENSE_RUNNING", "descheduled target"))
		base := func(order, id uint64) arch.Op { return signal(map[string]uint64{"r4": id, "r5": order}) }
		displaced := filled(s390x.Form("sigp r2,r4,0x15", map[string]uint64{"r4": id}), map[string]uint64{"r4": id})
		t.idle(m, target)
		t.Control("SENSE_RUNNING of the caller, which runs", Hex(0), Hex(answer(t.signals(m, caller, base(number, m.ID(caller)))[0])))
		for _, c := range []struct {
			rule, what string
			op         arch.Op
		}{
			{low, "bit 8", base(number|1<<8, id)},
			{low, "bits 8 to 31", base(number|0xffffff00, id)},
			{low, "bit 63", base(number|1<<63, id)},
			{low, "all bits above", base(number|^uint64(0xff), id)},
			{division, "in the base register", base(number, id)},
			{division, "in the displacement", displaced},
			{width, "bit 16", base(number, id|1<<16)},
			{width, "bit 31", base(number, id|1<<31)},
			{width, "bits 16 to 63", base(number, id|^uint64(0xffff))},
		} {
			var got int64
			t.Until(func() bool {
				got = answer(t.signals(m, caller, c.op)[0])
				return Hex(got) == waits
			})
			t.Equal(c.rule, "answer, "+c.what, waits, Hex(got))
			t.Equal(c.rule, "differences, "+c.what, t.Want(c.rule, "differences"), bit(Hex(got) != waits))
		}
	}}
}

// s390Operands: what orders leave alone.
func s390Operands() Check {
	const (
		only      = "sigp/status-only-with-code-1"
		half      = "sigp/status-high-half"
		preserved = "sigp/registers-preserved"
	)
	return Check{Rules: []string{only, half, preserved}, Run: func(t *T) {
		m := t.s390Machine()
		r2 := t.ISA.Register("r2")
		codes := map[uint64]bool{}
		look := func(what string, op arch.Op) {
			r := t.signals(m, caller, op)[0]
			codes[r.Flags] = true
			changed := r.Regs[r2] ^ op.Regs[r2]
			if r.Flags == 1 {
				t.Equal(half, what, t.Want(half, "changed"), bit(changed>>32 != 0))
			} else {
				t.Equal(only, fmt.Sprintf("%s, condition code %d", what, r.Flags), t.Want(only, "changed"), bit(changed != 0))
			}
			t.Equal(preserved, what, t.Want(preserved, "changed"), t.changedRegisters(op, r, "r2"))
		}
		for _, name := range s390Orders {
			for _, id := range []uint64{m.ID(target), m.ID(caller), s390Absent(m)[0]} {
				look(fmt.Sprintf("%s of %d", name, id), t.order(name, id))
			}
		}
		look("an order that is none", t.orderNumber(t.ABI.Word("first-free-order"), m.ID(target)))
		t.idle(m, target)
		look("SENSE_RUNNING of a CPU that waits", t.order("SENSE_RUNNING", m.ID(target)))
		for _, cc := range []uint64{0, 1, 3} {
			t.Control(fmt.Sprintf("condition code %d is among those seen", cc), true, codes[cc])
		}
	}}
}

// s390Parameter: which register has the parameter. SET_PREFIX tells a parameter that is no
// address of memory from one that is, before it finds that a CPU is not stopped, and does
// nothing then.
func s390Parameter() Check {
	const rule = "sigp/parameter-register"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		const nowhere = 0x7fffe000 // the largest prefix
		last, err := m.LastByte()
		t.Check("how much memory there is", err)
		if last >= nowhere {
			t.Unreached(rule, "there is memory at all addresses that a prefix can have, so that no parameter is wrong")
			return
		}
		order := t.ABI.Call("SET_PREFIX").Number
		for _, f := range []struct{ form, status, right, wrong, cpu, order string }{
			{"sigp r2,r4,0x0(r5)", "r2", "r3", "r2", "r4", "r5"},
			{"sigp r1,r3,0x0(r5)", "r1", "r1", "r2", "r3", "r5"},
			{"sigp r11,r12,0x0(r10)", "r11", "r11", "r13", "r12", "r10"},
		} {
			for _, parameter := range []uint64{0, nowhere} {
				want := "INCORRECT_STATE"
				if parameter == nowhere {
					want = "INVALID_PARAMETER"
				}
				registers := map[string]uint64{f.right: parameter, f.wrong: nowhere - parameter, f.cpu: m.ID(target), f.order: order}
				op := filled(s390x.Form(f.form, registers), registers)
				var got int64
				t.Until(func() bool {
					got = answerIn(t.quiet(m, caller, op)[0], f.status)
					return got != t.ABI.Errno("BUSY")
				})
				what := fmt.Sprintf("%s with %#x in %s", f.form, parameter, f.right)
				t.Equal(rule, what, Hex(t.ABI.Errno(want)), Hex(got))
				t.Equal(rule, "differences, "+what, t.Want(rule, "differences"), bit(got != t.ABI.Errno(want)))
			}
		}
	}}
}

// s390Emergency: emergency signals to CPUs in several states, and also while one is pending.
// The controls are counts of interruptions.
func s390Emergency() Check {
	const (
		plain       = "sigp/emergency-signal"
		conditional = "sigp/conditional-emergency"
		ends        = "wait/ended-by-interrupt"
	)
	return Check{Rules: []string{plain, conditional, ends}, Run: func(t *T) {
		m := t.s390Machine()
		for _, c := range []struct{ rule, name string }{{plain, "EMERGENCY_SIGNAL"}, {conditional, "COND_EMERGENCY_SIGNAL"}} {
			one := t.order(c.name, m.ID(target))
			n, got := t.takenWaiting(m, target, s390EmergencySignal, one)
			t.Equal(c.rule, c.name+", waiting target", Hex(t.ABI.Result(c.name, "waiting target")), Hex(got))
			t.Equal(c.rule, "interruptions of a CPU that waits", t.Want(c.rule, "interruptions"), n)
			if c.rule == plain {
				t.Equal(ends, "waits ended", t.Want(ends, "returns"), bit(n > 0))
			}
			end := t.runner(m, target)
			n, r := t.taken(m, target, s390EmergencySignal, 1, one)
			end()
			const when = "running target"
			t.Equal(c.rule, c.name+", "+when, Hex(t.ABI.Result(c.name, when)), Hex(answer(r[0])))
			t.Equal(c.rule, "interruptions of a CPU that runs", t.Want(c.rule, "interruptions"), n)
		}
		one := t.order("EMERGENCY_SIGNAL", m.ID(target))
		// The sender is in a program already: to begin one, a kernel may send a CPU that waits
		// emergency signals of its own. Linux 6.12 was seen to; 7.2 sends external calls
		// (arch/s390/kernel/smp.c, pcpu_ec_call).
		n, _, after := t.heldTaken(m, s390EmergencySignal, 1, nil, one)
		t.Equal(plain, "EMERGENCY_SIGNAL, self", Hex(t.ABI.Result("EMERGENCY_SIGNAL", "self")), Hex(answer(after[0])))
		t.Equal(plain, "interruptions of the sender itself", t.Want(plain, "interruptions"), n)
		pending, did, _ := t.heldTaken(m, s390EmergencySignal, 1, []arch.Op{one, one})
		for i, when := range []string{"running target", "emergency signal pending"} {
			t.Equal(plain, when, Hex(t.ABI.Result("EMERGENCY_SIGNAL", when)), Hex(answer(did[i])))
		}
		t.Equal(plain, "interruptions by two signals of one sender", t.Want(plain, "interruptions"), pending)
	}}
}

// s390EmergencyFromEach: a CPU with interruptions off is sent an emergency signal by another
// one and by itself.
func s390EmergencyFromEach() Check {
	const rule = "sigp/emergency-signal-from-each"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		one := t.order("EMERGENCY_SIGNAL", m.ID(target))
		want := uint64(t.Want(rule, "interruptions"))
		var n, last uint64
		// Another interruption, of the clock for one, may come between the last signal and the
		// look at what it left, and leaves its own code. Such a look tells nothing of the sender.
		own := false
		t.clear(func() (string, bool) {
			do, then := []arch.Op{one}, []arch.Op{one, interruptions(1), interruptions(0), load(lowcoreExternal, 4)}
			took, did, after := t.heldOnce(m, s390EmergencySignal, want, do, then...)
			n, last = took, after[3].Value
			own = last&0xffff == uint64(t.Want(rule, "code"))
			return fmt.Sprint(n, last, given(did), given(after[:1])), !own || n > want || t.intruded(do, did) || t.intruded(then, after)
		})
		t.Equal(rule, "interruptions", want, n)
		t.Truth(rule, "the last one has the code of an emergency signal", own)
		t.Truth(rule, "the last one names one of both senders", slices.Contains([]uint64{m.ID(caller), m.ID(target)}, last>>16))
		t.Evidence(rule, "address and code", Hex(last).String())
		n, _, _ = t.heldTaken(m, s390EmergencySignal, 1, []arch.Op{one, one})
		t.Control("interruptions by the two signals of one sender", 1, n)
	}}
}

// lowcoreExternal is where an external interruption leaves the address of a CPU, 2 bytes, and its
// code, 2 bytes (arch/s390/include/asm/lowcore.h, ext_cpu_addr, Linux 7.2).
const lowcoreExternal = 0x84

// s390Sense: what SENSE and SENSE_RUNNING tell of CPUs that are not stopped. A CPU that runs may be
// taken off by the host, and a CPU that waits may be woken, so that each is looked at until seen;
// that they differ is the control.
func s390Sense() Check {
	const (
		running = "sigp/sense-of-running"
		waiting = "sigp/sense-of-waiting"
		pending = "sigp/sense-external-call-pending"
		self    = "sigp/sense-running-of-self"
		runs    = "preempted/running"
	)
	return Check{Rules: []string{running, waiting, pending, self, runs}, Run: func(t *T) {
		m := t.s390Machine()
		until := func(rule, what string, op arch.Op, want int64) {
			var got int64
			t.Until(func() bool { got = answer(t.signals(m, caller, op)[0]); return got == want })
			t.Equal(rule, what, Hex(want), Hex(got))
		}
		sense, senseRunning := t.order("SENSE", m.ID(target)), t.order("SENSE_RUNNING", m.ID(target))
		t.idle(m, target)
		until(waiting, "SENSE", sense, t.ABI.Result("SENSE", "waiting target"))

		end := t.runner(m, target)
		until(running, "SENSE", sense, t.ABI.Result("SENSE", "running target"))
		var got int64
		preempted := t.ABI.Result("SENSE_RUNNING", "descheduled target")
		t.Until(func() bool { got = answer(t.signals(m, caller, senseRunning)[0]); return got != preempted })
		t.Equal(runs, "answer", Hex(t.ABI.Result("SENSE_RUNNING", "running target")), Hex(got))
		t.Equal(runs, "preempted", t.Want(runs, "preempted"), bit(got == preempted))
		end()
		t.idle(m, target) // the control of both

		until(self, "SENSE_RUNNING", t.order("SENSE_RUNNING", m.ID(caller)), t.ABI.Result("SENSE_RUNNING", "self"))

		ops := []arch.Op{sense, t.order("EXTERNAL_CALL", m.ID(target)), sense}
		var before, after int64
		t.clear(func() (string, bool) {
			did, _ := t.held(m, nil, nil, ops)
			before, after = answer(did[0]), answer(did[2])
			return fmt.Sprint(given(did)), before != t.ABI.Result("SENSE", "running target") || t.intruded(ops, did)
		})
		t.ControlOf(pending, "SENSE before a call is pending", Hex(t.ABI.Result("SENSE", "running target")), Hex(before))
		t.Equal(pending, "SENSE", Hex(t.ABI.Result("SENSE", "external call pending")), Hex(after))
	}}
}

// s390Stopped: a CPU that the guest takes offline is stopped. The controls are what the same orders
// give before, but for those whose effect on it would be the kernel's to deal with. Whatever is pending
// at the CPU goes when the kernel resets it, which it does before it brings it back. It is called by
// nobody else, so that a call from problem state would be seen to be pending at it, as the one after it,
// with privilege, is.
func s390Stopped() Check {
	const (
		sense   = "sigp/sense-of-stopped"
		running = "sigp/sense-running-of-stopped"
		call    = "external-call/stopped-target"
		offline = "preempted/offline"
		user    = "external-call/user-has-no-effect"
	)
	return Check{Rules: []string{sense, running, call, offline, user}, Run: func(t *T) {
		m := t.s390Machine()
		id := m.ID(spare)
		stopped := t.ABI.Result("SENSE", "stopped target")
		look := t.order("SENSE", id)
		t.ControlOf(sense, "SENSE tells that the CPU is stopped, before", false, answer(t.signals(m, caller, look)[0]) == stopped)
		end := t.runner(m, target)
		preempted := t.ABI.Result("SENSE_RUNNING", "descheduled target")
		runs := t.Until(func() bool {
			return answer(t.signals(m, caller, t.order("SENSE_RUNNING", m.ID(target)))[0]) != preempted
		})
		end()
		for _, rule := range []string{running, offline} {
			t.ControlOf(rule, "SENSE_RUNNING tells of a CPU that it runs", true, runs)
		}

		t.Check("take the spare CPU offline", m.SetOnline(false))
		alone := t.signals(m, caller, look, t.order("SENSE_RUNNING", id))
		refused, err := m.Unprivileged(t.ctx, arch.Program{t.order("EXTERNAL_CALL", id)})
		t.Check("a program in problem state", err)
		t.Evidence(user, "exception, 1 more than its code", refused[0].Trap)
		r := t.inTurn(m, caller, look, t.order("EXTERNAL_CALL", id), look, t.order("EXTERNAL_CALL", id))
		t.Check("bring the spare CPU back", m.SetOnline(true))
		t.Equal(sense, "SENSE", Hex(stopped), Hex(answer(alone[0])))
		t.Equal(running, "SENSE_RUNNING", Hex(t.ABI.Result("SENSE_RUNNING", "stopped target")), Hex(answer(alone[1])))
		t.Equal(offline, "SENSE_RUNNING", Hex(preempted), Hex(answer(alone[1])))
		t.Equal(offline, "preempted", t.Want(offline, "preempted"), bit(answer(alone[1]) == preempted))
		pending := t.ABI.Result("SENSE", "stopped target, external call pending")
		t.Equal(user, "calls pending", t.Want(user, "wakes"), bit(answer(r[0]) == pending))
		t.ControlOf(user, "SENSE after the same call with privilege", Hex(pending), Hex(answer(r[2])))
		t.ControlOf(call, "SENSE before the call tells of another", false, answer(r[0]) == pending)
		t.Equal(call, "EXTERNAL_CALL", Hex(t.ABI.Result("EXTERNAL_CALL", "stopped target")), Hex(answer(r[1])))
		t.Equal(call, "SENSE", Hex(pending), Hex(answer(r[2])))
		t.Equal(call, "interruptions kept", t.Want(call, "latched"), bit(answer(r[2]) == pending))
		t.Equal(call, "a second EXTERNAL_CALL", Hex(t.ABI.Result("EXTERNAL_CALL", "external call pending")), Hex(answer(r[3])))
	}}
}

// s390Descheduled: a CPU that beats time in memory has been taken off if no beat comes while
// another CPU does a lot. What is said of it then counts, if no beat comes after that either. The
// control is that beats do come.
func s390Descheduled() Check {
	const rule = "preempted/descheduled"
	const looks = 48 // in a row, with not one beat between
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		flag, beat := m.Alloc(8, 8, 0), m.Alloc(8, 8, 0)
		var p arch.Program
		const beats = 50
		for i := range uint64(beats) {
			p = append(p, store(beat.Address(), i+1, 8))
		}
		// The target loops until its count of loops is spent; the flag tells that it began.
		p = append(p, arch.Op{Kind: arch.Loop, Arg: [6]uint64{0, 1 << 62}})
		t.start(m, target, append(arch.Program{store(flag.Address(), 1, 8)}, loopFrom(p, 1)...)...)
		t.Control("the CPU runs", true, t.Until(func() bool { return flag.Load(0, 8) == 1 }))

		see := load(beat.Address(), 8)
		ask := t.order("SENSE_RUNNING", m.ID(target))
		ops := append(slices.Repeat([]arch.Op{see}, 4), ask, see)
		for len(ops) < looks {
			ops = append(ops, ask, see)
		}
		want := t.Want(rule, "preempted")
		preempted := t.ABI.Result("SENSE_RUNNING", "descheduled target")
		var moved, still, said int64
		t.Until(func() bool {
			r := t.run(m, caller, ops...)
			var seen []uint64
			said = 0
			for i, op := range ops {
				if op.Kind == arch.Load {
					seen = append(seen, r[i].Value)
				} else {
					said = max(said, bit(answer(r[i]) == preempted))
				}
			}
			if len(slices.Compact(seen)) > 1 {
				moved++
				return false
			}
			still++
			return moved > 0
		})
		t.Check("stop the beat", m.Reset())
		t.Control("beats come", true, moved > 0)
		if still == 0 {
			t.Unreached(rule, "the host was not seen to take a CPU off; it has CPUs to spare")
			return
		}
		t.Evidence(rule, "programs with beats and without", []int64{moved, still})
		t.Equal(rule, "preempted while no beat comes", want, said)
	}}
}

// loopFrom moves the loops of a program that comes after n other operations.
func loopFrom(p arch.Program, n uint64) arch.Program {
	out := slices.Clone(p)
	for i := range out {
		if out[i].Kind == arch.Loop {
			out[i].Arg[0] += n
		}
	}
	return out
}

// s390CallWakes: an external call to a CPU that waits. That it waited is told by the same program,
// that it went on by the interruption that it took.
func s390CallWakes() Check {
	const (
		wakes = "external-call/wakes-waiter"
		once  = "external-call/once"
	)
	return Check{Rules: []string{wakes, once}, Run: func(t *T) {
		m := t.s390Machine()
		call := t.order("EXTERNAL_CALL", m.ID(target))
		t.idle(m, target)
		n, _ := t.taken(m, target, s390ExternalCall, 0, t.order("SENSE", m.ID(target)))
		t.Control("interruptions by an order that is no call", 0, n)
		n, got := t.takenWaiting(m, target, s390ExternalCall, call)
		t.Equal(wakes, "EXTERNAL_CALL", Hex(t.ABI.Result("EXTERNAL_CALL", "waiting target")), Hex(got))
		t.Equal(wakes, "waits ended", t.Want(wakes, "wakes"), bit(n > 0))

		end := t.runner(m, target)
		n, r := t.taken(m, target, s390ExternalCall, uint64(t.Want(once, "interruptions")), call)
		end()
		t.Equal(once, "EXTERNAL_CALL", Hex(t.ABI.Result("EXTERNAL_CALL", "running target")), Hex(answer(r[0])))
		t.Equal(once, "interruptions of a CPU that runs", t.Want(once, "interruptions"), n)
	}}
}

// s390CallKept: an external call, and then a second one, to a CPU with interruptions off. The
// control is the same without calls.
func s390CallKept() Check {
	const (
		kept   = "external-call/kept"
		second = "external-call/second"
	)
	return Check{Rules: []string{kept, second}, Run: func(t *T) {
		m := t.s390Machine()
		call := t.order("EXTERNAL_CALL", m.ID(target))
		for _, calls := range []int{0, 1, 2} {
			n, did, _ := t.heldTaken(m, s390ExternalCall, uint64(min(calls, 1)), slices.Repeat([]arch.Op{call}, calls))
			switch calls {
			case 0:
				t.Control("interruptions without a call", 0, n)
			case 1:
				t.Equal(kept, "EXTERNAL_CALL", Hex(t.ABI.Result("EXTERNAL_CALL", "running target")), Hex(answer(did[0])))
				t.Equal(kept, "interruptions once they are on", t.Want(kept, "latched"), n)
			case 2:
				t.Equal(second, "the second EXTERNAL_CALL", Hex(t.ABI.Result("EXTERNAL_CALL", "external call pending")), Hex(answer(did[1])))
				t.Equal(second, "interruptions by both", t.Want(second, "interruptions"), n)
			}
		}
	}}
}

// s390CallSelf: a CPU with interruptions off calls itself. The control is that it does not.
func s390CallSelf() Check {
	const rule = "external-call/self"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		n, _, _ := t.heldTaken(m, s390ExternalCall, 0, nil)
		t.Control("interruptions without a call", 0, n)
		n, _, after := t.heldTaken(m, s390ExternalCall, 1, nil, t.order("EXTERNAL_CALL", m.ID(target)))
		result := answer(after[0])
		t.Equal(rule, "EXTERNAL_CALL", Hex(t.ABI.Result("EXTERNAL_CALL", "self")), Hex(result))
		t.Equal(rule, "interruptions", t.Want(rule, "interruptions"), n)
	}}
}

// s390CallSender: what an external call leaves in the lowcore of the CPU that takes it. Two
// senders, one after the other, are each other's control. Another interruption may come right
// after it, so that this is looked at until seen.
func s390CallSender() Check {
	const rule = "external-call/names-sender"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Machine()
		call := t.order("EXTERNAL_CALL", m.ID(target))
		take := []arch.Op{interruptions(1), interruptions(0), load(lowcoreExternal, 4)}
		for _, c := range []struct {
			name   string
			sender int
			do     func() []arch.Result
		}{
			{"by another CPU", caller, func() []arch.Result {
				did, after := t.held(m, nil, nil, []arch.Op{call}, take...)
				return append(did, after...)
			}},
			{"by itself", target, func() []arch.Result { return t.quiet(m, target, append([]arch.Op{call}, take...)...) }},
		} {
			want := m.ID(c.sender)<<16 | uint64(t.Want(rule, "code"))
			var got uint64
			t.clear(func() (string, bool) {
				r := c.do()
				got = r[3].Value
				return fmt.Sprint(got, given(r[:1])), got != want
			})
			t.Equal(rule, "address and code, "+c.name, Hex(want), Hex(got))
		}
	}}
}

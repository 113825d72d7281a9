package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/ppc64le"
	"pvabi/conformance/microvm"
)

// PAPRMachine is what the checks of powerpc-papr ask of a machine besides. Packages pseries and
// kvmhv have one each.
type PAPRMachine interface {
	microvm.Machine
	// Real returns the address that the hypervisor knows an area by.
	Real(a arch.Area) (uint64, error)
	// Area returns the virtual processor area that a CPU has registered, and AreaAddress where
	// it is: as programs know it and as the hypervisor does.
	Area(cpu int) ([]byte, error)
	AreaAddress(cpu int) (address, real uint64, err error)
	// Disturbed counts what makes findings about waits doubtful: interrupts of somebody
	// else's that CPUs took in them, and CPUs that were taken to sleep before they did.
	Disturbed() (uint64, error)
	// Interrupt has an external interrupt come to each CPU that runs a program.
	Interrupt() error
	// Unprivileged runs a program in problem state.
	Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error)
}

// PowerPCPAPR is the suite for the hypervisor side of powerpc-papr. The machines that open
// makes must be PAPRMachines. hypertas is the property ibm,hypertas-functions of the node
// /rtas of their device tree, or nil if there is none.
func PowerPCPAPR(i Implementer, hypertas []byte, open func(microvm.Config) (microvm.Machine, error)) *Suite {
	p := abi.PowerPCPAPR()
	names := bytes.Split(hypertas, []byte{byte(p.Word("string-end"))})
	return &Suite{
		ABI: p, ISA: ppc64le.ISA, Native: "sc 1", FlagsPoison: paprFlagsPoison,
		Checks: paprChecks(hypertas), Costs: paprCosts(false), Open: open,
		Offers: func(f abi.Feature) (bool, error) {
			return slices.ContainsFunc(names, func(n []byte) bool { return string(n) == f.Word }), nil
		},
		Implementer: i, Deviations: Deviations, Looks: paprLooks,
	}
}

// PowerPCPAPRRules are the rules that PowerPCPAPR has a result for, in the order of its
// results.
func PowerPCPAPRRules() []abi.Rule {
	return (&Suite{ABI: abi.PowerPCPAPR(), Checks: paprChecks(nil)}).Rules()
}

// PowerPCPAPRDisturbing are those of them, and of PowerPCGuestRules, that [Suite.Gentle] leaves, with
// what their check does.
func PowerPCPAPRDisturbing() map[string]string {
	return disturbingOf(slices.Concat(paprChecks(nil), paprGuestChecks()))
}

const (
	// paprFlagsPoison is what the condition register is before a call, each field another.
	paprFlagsPoison = 0x12345678
	// paprFlagsKept are its fields 2, 3 and 4, field 0 being the most significant.
	paprFlagsKept = 0x00fff000
	// paprLooks are fewer than for a microvm, whose waits nothing but a call ends.
	paprLooks = 1000
	// soon is what the decrementer begins at where it is to end a wait, in ticks: some
	// milliseconds, so that the CPU waits before.
	soon = 1 << 21
)

// paprChecks are the checks of powerpc-papr, in the order of the report.
func paprChecks(hypertas []byte) []Check {
	id := func(cpu int) func(microvm.Machine) uint64 {
		return func(m microvm.Machine) uint64 { return m.ID(cpu) }
	}
	checks := []Check{
		paprDiscovery(hypertas),
		paprFunctionSets(),
		paprShared(),
		paprConvention(),
		paprPrivilege(),
		undisturbed(paprUserEffects()),
		paprUndefined(),
		paprCedeResult(),

		undisturbed(kickWakes("kick/wakes-waiter", machine(), 0)),
		undisturbed(kickWakes("kick/wakes-waiter-interrupts-on", machine(), 1)),
		undisturbed(kickEarly("kick/before-wait", "latched", 1)),
		undisturbed(kickEarly("kick/two-kicks", "wakes", 2)),
		undisturbed(kickSelf("kick/self")),
		undisturbed(kickEarly("kick/running-target", "returns", 1)),
		undisturbed(paprSpent("kick/spent")),
		undisturbed(kickAbsent("kick/absent-target")),
		undisturbed(paprHighHalf("kick/target-high-half")),
		undisturbed(kickResult("kick/result")),

		undisturbed(waitSleeps("wait/sleeps-without-kick")),
		undisturbed(paprInterrupt("wait/ended-by-interrupt")),
		undisturbed(paprDecrementer("wait/ended-by-decrementer")),
		undisturbed(paprInterruptEatsKick("wait/interrupt-eats-kick")),
		undisturbed(paprEnables("wait/enables-interrupts")),

		undisturbed(yieldTo("yield/running-target", "running target", id(third))),
		undisturbed(yieldTo("yield/waiting-target", "waiting target", id(target))),
		undisturbed(yieldTo("yield/absent-target", "absent target", func(microvm.Machine) uint64 { return absentID })),
		undisturbed(paprYieldWakes("yield/does-not-wake")),
		disturbing(movesArea, undisturbed(paprConfer())),
		disturbing(untilProd, undisturbed(paprConferSelf("confer/self-waits", "confer/self-prodded"))),
		paprConferInterrupts("confer/keeps-interrupts"),

		disturbing(untilProd, undisturbed(paprJoin())),
		disturbing(untilProd, undisturbed(paprJoinEarly("join/prod-before"))),
		disturbing(untilProd, paprJoinDecrementer("join/not-ended-by-decrementer")),

		disturbing(movesArea, paprRegister()),
		disturbing(movesArea, paprInUse()),

		undisturbed(paprRunning("preempted/running", "preempted/waiting")),
		undisturbed(paprDispatches("count/rises-over-wait", "count/never-falls", "steal/monotonic")),
		disturbing(movesArea, paprParity("count/corrects-parity")),
		disturbing(movesArea, undisturbed(paprTrace())),
	}
	return checks
}

// What checks do to the CPUs of a kernel that runs.
const (
	movesArea = "takes the virtual processor areas of CPUs away from the kernel for a while"
	untilProd = "stops CPUs so that only a prod gets them going again, if the hypervisor is in order"
)

// disturbances is how often a check is tried if the kernel whose CPUs these are interrupts
// waits: what ended them is then not known.
const disturbances = 8

// undisturbed is a check whose findings count only if nothing but the check itself can have
// ended a wait, see also [T.interrupting].
func undisturbed(c Check) Check {
	run := c.Run
	c.Run = func(t *T) {
		for n := 1; ; n++ {
			before := t.disturbed()
			t.own = 0
			failure := t.try(run)
			switch taken := t.disturbed() - before - t.own; {
			case taken == 0 && failure != nil:
				t.Fatal(failure)
			case taken == 0:
				return
			case n == disturbances && t.shared:
				// Nobody keeps the others away from these CPUs.
				t.GiveUp(fmt.Sprintf("others interrupted the kernel's CPUs each of %d times; keep them from all but the first (isolcpus, irqaffinity)", n))
			case n == disturbances:
				t.Fatal(fmt.Errorf("each of %d times something came in between, %d interrupts the last time; keep them from CPUs but the first (isolcpus, irqaffinity)", n, taken))
			}
			for rule := range t.findings {
				t.findings[rule] = &finding{evidence: map[string]any{}}
			}
		}
	}
	return c
}

// try runs a check and returns what it ended with, if that was not its end.
func (t *T) try(run func(*T)) (failure error) {
	defer func() {
		if p := recover(); p != nil {
			s, ok := p.(stop)
			if !ok || s.giveUp != "" {
				panic(p)
			}
			failure = s.err
		}
	}()
	run(t)
	return nil
}

// interrupting has a check do what makes interrupts: those that CPUs take meanwhile disturb
// nothing.
func (t *T) interrupting(do func()) {
	before := t.disturbed()
	defer func() { t.own += t.disturbed() - before }()
	do()
}

// disturbed sums the interrupts that all machines know of.
func (t *T) disturbed() uint64 {
	var sum uint64
	for _, m := range t.pool.machines {
		n, err := t.papr(m).Disturbed()
		t.Check("interrupts of CPUs that wait", err)
		sum += n
	}
	return sum
}

func (t *T) papr(m microvm.Machine) PAPRMachine {
	p, ok := m.(PAPRMachine)
	if !ok {
		t.Fatal(fmt.Errorf("a machine of type %T is none for PAPR", m))
	}
	return p
}

// vpa is the virtual processor area of a CPU as it is now.
type vpa struct {
	layout abi.Layout
	bytes  []byte
}

func (t *T) vpa(m microvm.Machine, cpu int) vpa {
	b, err := t.papr(m).Area(cpu)
	t.Check("the area of a CPU", err)
	v := vpa{t.ABI.Layout("lppaca"), b}
	if uint64(len(b)) < v.layout.Size {
		t.Fatal(fmt.Errorf("the area of CPU %d has %d bytes, less than %d", cpu, len(b), v.layout.Size))
	}
	return v
}

// field is the number in a field, which is big-endian.
func (v vpa) field(name string) uint64 {
	f := v.layout.Field(name)
	var word [8]byte
	copy(word[8-f.Size:], v.bytes[f.Offset:][:f.Size])
	return binary.BigEndian.Uint64(word[:])
}

// yielded is what preempted reads of a CPU.
func (t *T) yielded(m microvm.Machine, cpu int) int64 {
	_, field, mask := t.ABI.PreemptedField()
	return bit(t.vpa(m, cpu).field(field.Name)&mask != 0)
}

func (t *T) yieldCount(m microvm.Machine, cpu int) uint64 {
	_, field, _ := t.ABI.PreemptedField()
	return t.vpa(m, cpu).field(field.Name)
}

func interruptsOp(on uint64) arch.Op { return arch.Op{Kind: arch.Interrupts, Arg: [6]uint64{on}} }

func (t *T) decrementer(ticks uint64) arch.Op {
	return writeRegister(t.ABI.Register("DEC").Number, ticks)
}

// enabled tells whether interrupts were on after a call.
func (t *T) enabled(r arch.Result) int64 {
	return bit(r.Regs[t.ISA.Register("msr")]&t.ABI.Register("MSR").Bit("EE") != 0)
}

func paprDiscovery(hypertas []byte) Check {
	const rule = "discovery/hypertas"
	return Check{Rules: []string{rule}, Unprivileged: true, Run: func(t *T) {
		whole := len(hypertas) > 0 && hypertas[len(hypertas)-1] == byte(t.ABI.Word("string-end"))
		t.Equal(rule, "properties that are lists of names", t.Want(rule, "found"), bit(whole))
		t.Evidence(rule, "property", string(bytes.ReplaceAll(hypertas, []byte{0}, []byte{' '})))
	}}
}

// paprHarmless makes a call that has no effect, or none that lasts, and whose result is listed
// for the outcome. Of a CEDE that is not refused something has to end the wait: see
// paprHarmlessly.
func (t *T) paprHarmless(m microvm.Machine, c abi.Call) (op arch.Op, outcome string) {
	switch c.Name {
	case "REGISTER_VPA":
		return t.call(c.Name, uint64(c.Arg("flags").Value("RESERVED_0")), m.ID(caller), 0), "reserved subfunction"
	case "CEDE":
		return t.call(c.Name), "interrupted"
	case "CONFER":
		return t.call(c.Name, absentID, 0), "absent target"
	case "PROD":
		return t.call(c.Name, absentID), "absent target"
	case "SET_PPP":
		return t.call(c.Name, 0, uint64(c.Arg("weight").Value("WEIGHT_MAXIMUM"))+1), "weight too large"
	case "JOIN":
		return t.call(c.Name), "interrupts on"
	case "POLL_PENDING":
		return t.call(c.Name), "nothing pending"
	case "HOME_NODE_ASSOCIATIVITY":
		return t.call(c.Name, uint64(c.Arg("flags").Value("PROCESSOR")), m.ID(caller)), "called"
	}
	return t.call(c.Name), "called"
}

// paprHarmlessly has a CPU make that call, with privilege, and returns what it left and the
// outcome.
func (t *T) paprHarmlessly(m microvm.Machine, cpu int, c abi.Call) (arch.Op, arch.Result, string) {
	op, outcome := t.paprHarmless(m, c)
	p := arch.Program{op}
	if c.Name == t.ABI.Scheduling.Wait {
		// The decrementer has expired before the call is made.
		p = arch.Program{interruptsOp(0), t.decrementer(0), op}
	}
	r := t.run(m, cpu, p...)
	return op, r[len(p)-1], outcome
}

// paprOffered lists the calls of all function sets that are offered.
func (t *T) paprOffered() []abi.Call {
	return slices.DeleteFunc(slices.Clone(t.ABI.AllCalls()), func(c abi.Call) bool {
		if c.Feature == "" {
			return true
		}
		ok, err := t.Offers(t.ABI.Feature(c.Feature))
		t.Check("discovery", err)
		return !ok
	})
}

func paprFunctionSets() Check {
	const rule = "discovery/function-set-complete"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		var missing []string
		calls := t.paprOffered()
		for _, c := range calls {
			if _, r, _ := t.paprHarmlessly(m, caller, c); t.returned(r) == t.ABI.Errno("FUNCTION") {
				missing = append(missing, c.Name)
			}
		}
		t.Evidence(rule, "missing", missing)
		t.Equal(rule, fmt.Sprintf("calls missing of the %d in sets that are named", len(calls)), t.Want(rule, "missing"), len(missing))
	}}
}

func paprShared() Check {
	const rule = "discovery/shared-processor"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		shared := func(cpu int) bool {
			v := t.vpa(m, cpu)
			return v.field("__old_status")&v.layout.Bit("__old_status", "SHARED_PROC") != 0
		}
		first, differ := shared(caller), int64(0)
		for cpu := range m.CPUs() {
			differ += bit(shared(cpu) != first)
		}
		t.Equal(rule, "CPUs that read something else than the first", t.Want(rule, "differences"), differ)
		t.Evidence(rule, "SHARED_PROC", first)
	}}
}

// paprConvention: what a call leaves alone. All registers are poisoned before it.
func paprConvention() Check {
	const (
		instruction = "convention/instruction"
		length      = "convention/instruction-length"
		stored      = "convention/status-stored"
		registers   = "convention/registers-preserved"
		special     = "convention/special-registers-preserved"
		reduced     = "convention/reduced-kill-set"
	)
	return Check{Rules: []string{instruction, length, stored, registers, special, reduced}, Run: func(t *T) {
		m := t.Open(machine())
		conv := t.ABI.MainConvention()
		r3 := t.ISA.Register(conv.Result)
		type call struct {
			name    string
			op      arch.Op
			r       arch.Result
			reduced bool
		}
		var calls []call
		for _, c := range t.paprOffered() {
			op, r, _ := t.paprHarmlessly(m, caller, c)
			calls = append(calls, call{c.Name, op, r, c.Name == "PROD" || c.Name == "CONFER"})
		}
		for _, c := range []call{
			{name: "no call", op: t.noKick()},
			{name: "CONFER to all", op: t.call("CONFER", uint64(t.ABI.Call("CONFER").Arg("processor").Value("ALL")), 0), reduced: true},
			{name: "PROD of itself", op: t.call("PROD", m.ID(caller)), reduced: true},
			{name: "CONFER to a running CPU", op: t.call("CONFER", m.ID(target), 0), reduced: true},
		} {
			c.r = t.run(m, caller, c.op)[0]
			calls = append(calls, c)
		}
		var left int64
		for _, c := range calls {
			r := c.r
			t.Equal(instruction, c.name+": exception", 0, r.Trap)
			t.Equal(length, c.name, conv.Instructions[0].Length, r.Value)
			if r.Regs[r3] == c.op.Regs[r3] {
				left++
				t.Evidence(stored, c.name, "the number is still there")
			}
			kept := bits.OnesCount64(r.Aux) + int(bit(r.Regs[t.ISA.Register("r14")] != c.op.Regs[t.ISA.Register("r14")]))
			t.Equal(registers, c.name, t.Want(registers, "changed"), kept)
			t.Equal(special, c.name, t.Want(special, "changed"),
				bit(r.Regs[t.ISA.Register("lr")] != c.op.Regs[t.ISA.Register("lr")])+bit((r.Flags^c.op.Flags)&paprFlagsKept != 0))
			if c.reduced {
				for i, name := range t.ISA.Registers[:t.ISA.Register("lr")] {
					if i != r3 && r.Regs[i] != c.op.Regs[i] {
						kept++
						t.Evidence(reduced, c.name+": "+name, Hex(r.Regs[i]).String())
					}
				}
				t.Equal(reduced, c.name, t.Want(reduced, "changed"), kept)
			}
		}
		t.Equal(stored, fmt.Sprintf("calls of %d that left their number", len(calls)), t.Want(stored, "left"), left)
		t.Control("result of a call that there is none of", t.ABI.Errno("FUNCTION"), t.returned(t.run(m, caller, t.noKick())[0]))
	}}
}

// paprPrivilege: each call, from problem state. The control is that the calls give something
// else with privilege.
func paprPrivilege() Check {
	const (
		defined   = "privilege/user-refused"
		undefined = "privilege/user-refused-undefined"
	)
	return Check{Rules: []string{defined, undefined}, Run: func(t *T) {
		m := t.Open(machine())
		refused := t.ABI.Errno("PRIVILEGE")
		type call struct{ rule, name string }
		var calls []call
		var p arch.Program
		look := func(rule, name string, op arch.Op, privileged arch.Result) {
			calls, p = append(calls, call{rule, name}), append(p, op)
			t.Control("privilege makes a difference to "+name, true, t.returned(privileged) != refused)
		}
		for _, c := range t.paprOffered() {
			op, r, _ := t.paprHarmlessly(m, caller, c)
			look(defined, c.Name, op, r)
		}
		for _, n := range []uint64{0, t.ABI.Word("first-free"), t.ABI.Word("last-free")} {
			op := t.callNumber(n)
			look(undefined, "number "+Hex(n).String(), op, t.run(m, caller, op)[0])
		}
		for i, r := range t.unprivileged(m, p...) {
			t.Equal(calls[i].rule, calls[i].name+": exception", 0, r.Trap)
			t.Equal(calls[i].rule, calls[i].name, refused, t.returned(r))
		}
	}}
}

// unprivileged makes calls in problem state.
func (t *T) unprivileged(m microvm.Machine, ops ...arch.Op) []arch.Result {
	r, err := t.papr(m).Unprivileged(t.ctx, ops)
	t.Check("calls without privilege", err)
	return r
}

// paprUserEffects: what a call from problem state must not bring about. The control is that
// the same with privilege does.
func paprUserEffects() Check {
	const (
		kick = "privilege/user-has-no-effect"
		cede = "privilege/user-cannot-cede"
	)
	return Check{Rules: []string{kick, cede}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		r := t.unprivileged(m, t.kick(m.ID(target)))[0]
		t.Evidence(kick, "result", t.returned(r))
		t.Equal(kick, "waits ended", t.Want(kick, "wakes"), bit(!t.stays(m, target, 0)))
		t.run(m, caller, t.kick(m.ID(target)))
		t.Control("waits ended by the same kick with privilege", 1, t.woken(m))
		// A CEDE that is carried out gives what is listed for its end. Whether it waited
		// cannot be seen by what the process finds, as it is interrupted all the time.
		r = t.unprivileged(m, t.call("CEDE"))[0]
		t.Equal(cede, "calls carried out", t.Want(cede, "waits"), bit(r.Trap == 0 && t.returned(r) == t.ABI.Result("CEDE", "interrupted")))
		t.Evidence(cede, "result", t.returned(r))
	}}
}

// paprUndefined: numbers that are no call's. The control is that a call's number is
// one.
func paprUndefined() Check {
	const (
		undefined = "number/undefined"
		odd       = "number/not-multiple-of-four"
		extreme   = "number/extreme"
		high      = "number/high-half"
	)
	return Check{Rules: []string{undefined, odd, extreme, high}, Run: func(t *T) {
		m := t.Open(machine())
		none := t.ABI.Errno("FUNCTION")
		look := func(rule string, numbers ...uint64) {
			for i, r := range t.runAll(m, caller, t.callNumbers(numbers)) {
				if got := t.returned(r); got != none {
					t.Equal(rule, "number "+Hex(numbers[i]).String(), none, got)
				}
			}
			t.Equal(rule, fmt.Sprintf("%d numbers", len(numbers)), none, none)
			t.Evidence(rule, "numbers", fmt.Sprintf("%d, from %#x to %#x", len(numbers), slices.Min(numbers), slices.Max(numbers)))
		}
		first, last, step := t.ABI.Word("first-free"), t.ABI.Word("last-free"), t.ABI.Word("call-step")
		if step == 0 || last < first || (last-first)/step > 1<<14 {
			t.Fatal(fmt.Errorf("abi lists no free numbers: %#x to %#x in steps of %#x", first, last, step))
		}
		numbers := []uint64{0}
		for n := first; n <= last; n += step {
			numbers = append(numbers, n)
		}
		look(undefined, numbers...)
		look(extreme, 1<<31, 1<<32-4, 1<<63, 1<<64-4)
		var not, above []uint64
		for _, c := range t.ABI.AllCalls() {
			if c.Feature == "" {
				continue // what one of these does if it is taken for a call may be the end
			}
			above = append(above, 1<<32|c.Number)
			for i := range step - 1 {
				not = append(not, c.Number+i+1)
			}
		}
		look(odd, not...)
		look(high, above...)
		t.Control("the number of a call is one", true, t.returned(t.run(m, caller, t.kick(absentID))[0]) != none)
	}}
}

// paprCedeResult: what CEDE gives, by what ended it. If something else did before, that makes no
// difference.
func paprCedeResult() Check {
	const rule = "number/cede"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.start(m, target, waitOp(0))
		t.settle(m, target, 1)
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)
		t.Equal(rule, "prodded", t.ABI.Result("CEDE", "prodded"), t.returned(m.Results(target)[0]))
		_, r, outcome := t.paprHarmlessly(m, caller, t.ABI.Call("CEDE"))
		t.Equal(rule, outcome, t.ABI.Result("CEDE", outcome), t.returned(r))
	}}
}

// paprSpent: a prod that ended a wait does not end the next.
func paprSpent(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.start(m, target, waitOp(0), waitOp(0))
		t.Control("the waiter sleeps, in operation", 0, t.settle(m, target, 2))
		t.run(m, caller, t.kick(m.ID(target)))
		t.Control("waits ended by the kick", 1, t.woken(m))
		ended := t.settle(m, target, 2) - 1
		if ended == 0 && !t.stays(m, target, 1) {
			ended = 1
		}
		t.Equal(rule, "further waits ended", t.Want(rule, "latched"), ended)
	}}
}

// paprHighHalf: a prod of 2^32 plus a waiter's number. The control is a prod of the number.
func paprHighHalf(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		for _, shift := range []int{32, 63} {
			r := t.run(m, caller, t.kick(1<<shift|m.ID(target)))
			t.Equal(rule, fmt.Sprintf("result with bit %d", shift), t.ABI.Result(t.ABI.Scheduling.Kick, "target with high half"), t.returned(r[0]))
		}
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), bit(!t.stays(m, target, 0)))
		t.run(m, caller, t.kick(m.ID(target)))
		t.Control("waits ended by a kick of the number", 1, t.woken(m))
	}}
}

// paprInterrupt: an interrupt that the kernel sends ends a wait. The control is that the
// waiter sleeps on without.
func paprInterrupt(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, interrupts := range []uint64{0, 1} {
			m := t.Open(machine())
			t.sleeper(m, target, interrupts)
			t.Control("the waiter sleeps on without an interrupt", true, t.stays(m, target, 0))
			t.interrupting(func() {
				before := t.disturbed()
				t.Check("interrupt", t.papr(m).Interrupt())
				t.Equal(rule, fmt.Sprintf("waits ended, interrupts %d", interrupts), t.Want(rule, "returns"), t.woken(m))
				t.Truth(rule, "the interrupt was taken", t.disturbed() > before)
			})
		}
	}}
}

// paprDecrementer: the decrementer ends a wait. The control is that the wait goes on with
// the decrementer far away, as it is by itself.
func paprDecrementer(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, interrupts := range []uint64{0, 1} {
			m := t.Open(machine())
			t.sleeper(m, target, interrupts)
			t.Control("the waiter sleeps on with the decrementer far away", true, t.stays(m, target, 0))
			// It must expire in the wait, not on the way to it, which takes some time at
			// times: if in doubt, it is set to expire later.
			var ended bool
			t.interrupting(func() {
				for ticks := uint64(soon); !ended && ticks <= soon<<6; ticks <<= 2 {
					m = t.Open(machine())
					t.start(m, target, t.decrementer(ticks), waitOp(interrupts))
					ended = t.Until(func() bool { _, n := m.At(target); return n > 1 })
				}
			})
			t.Equal(rule, fmt.Sprintf("waits ended, interrupts %d", interrupts), t.Want(rule, "returns"), bit(ended))
		}
	}}
}

// paprInterruptEatsKick: prod and interrupt are both there when a CPU waits; the next wait
// sleeps.
func paprInterruptEatsKick(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		dec := t.ABI.Register("DEC").Number
		// The second DEC is for what the kernel sets when it takes the interrupt.
		p := arch.Program{t.decrementer(0), t.kick(m.ID(target)), readRegister(dec), waitOp(0), t.decrementer(1<<31 - 1), waitOp(0)}
		t.interrupting(func() {
			t.start(m, target, p...)
			t.Control("the first wait ends", true, t.Until(func() bool { _, n := m.At(target); return n > 3 }))
		})
		t.Control("the decrementer had expired before it", true, int32(m.Results(target)[2].Value) <= 0)
		at := t.settle(m, target, len(p))
		if at == 5 && !t.stays(m, target, 5) {
			at = 6
		}
		t.Equal(rule, "waits ended by what is left of the kick", t.Want(rule, "latched"), at-5)
	}}
}

// paprEnables: interrupts are on after a wait that was made with them off.
func paprEnables(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		t.run(m, caller, t.kick(m.ID(target)))
		t.finish(m, target)
		t.Equal(rule, "interrupts after a wait", t.Want(rule, "enabled"), t.enabled(m.Results(target)[0]))
		r := t.run(m, caller, interruptsOp(0), t.noKick())
		t.Control("interrupts after another call with them off", int64(0), t.enabled(r[1]))
	}}
}

// paprYieldWakes: a confer to a waiter, with its count, does not wake it. The control is that
// a kick does.
func paprYieldWakes(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		count := t.yieldCount(m, target)
		t.Control("the waiter's count is odd", uint64(1), count%2)
		t.run(m, caller, t.yield(m.ID(target)), t.call("CONFER", m.ID(target), count), t.call("CONFER", m.ID(target), count))
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), bit(!t.stays(m, target, 0)))
		t.run(m, caller, t.kick(m.ID(target)))
		t.Control("waits ended by a kick", int64(1), t.woken(m))
	}}
}

// paprConfer: what CONFER gives, by its count.
func paprConfer() Check {
	const (
		all      = "confer/all-processors"
		matching = "confer/matching-odd-count"
		high     = "confer/count-high-half"
		even     = "confer/even-count"
		stale    = "confer/stale-count"
		without  = "confer/without-area"
	)
	return Check{Rules: []string{all, matching, high, even, stale, without}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, 0)
		count := t.yieldCount(m, target)
		t.Control("the waiter's count is odd", uint64(1), count%2)
		_, area, err := t.papr(m).AreaAddress(third)
		t.Check("the third CPU's area", err)
		function := t.ABI.Call("REGISTER_VPA").Arg("flags")
		end := t.runner(m, third, interruptsOp(0), t.call("REGISTER_VPA", uint64(function.Value("DEREGISTER_VPA")), m.ID(third), 0))
		every := uint64(t.ABI.Call("CONFER").Arg("processor").Value("ALL"))
		for _, c := range []struct {
			rule, outcome string
			id, count     uint64
		}{
			{all, "all processors", every, 0},
			{all, "all processors", every, count},
			{matching, "matching odd count", m.ID(target), count},
			{high, "matching odd count", m.ID(target), 1<<32 | count},
			{high, "matching odd count", m.ID(target), 1<<63 | count},
			{even, "even count", m.ID(target), count + 1},
			{even, "even count", m.ID(target), 0},
			{stale, "stale count", m.ID(target), count + 2},
			{stale, "stale count", m.ID(target), count - 2},
			{without, "target without VPA", m.ID(third), 1},
			{without, "target without VPA", m.ID(third), 0},
		} {
			r := t.run(m, caller, t.call("CONFER", c.id, c.count))
			t.Equal(c.rule, fmt.Sprintf("%#x, count %#x", c.id, c.count), t.ABI.Result("CONFER", c.outcome), t.returned(r[0]))
		}
		t.Control("the waiter's count at the end", count, t.yieldCount(m, target))
		end()
		r := t.run(m, third, t.call("REGISTER_VPA", uint64(function.Value("REGISTER_VPA")), m.ID(third), area))
		t.Control("the kernel's area is registered again", t.ABI.Result("REGISTER_VPA", "VPA registered"), t.returned(r[0]))
	}}
}

// paprConferSelf: a confer to the calling CPU itself waits until it is prodded.
func paprConferSelf(waits, prodded string) Check {
	return Check{Rules: []string{waits, prodded}, Run: func(t *T) {
		for _, count := range []uint64{0, 1, 1<<32 - 1} {
			m := t.Open(machine())
			t.start(m, target, interruptsOp(0), t.call("CONFER", m.ID(target), count))
			at := t.settle(m, target, 2)
			if at == 1 && !t.stays(m, target, 1) {
				at = 2
			}
			t.Equal(waits, fmt.Sprintf("waits ended, count %#x", count), t.Want(waits, "returns"), at-1)
			t.run(m, caller, t.kick(m.ID(target)))
			t.Equal(prodded, "waits ended by a kick", t.Want(prodded, "wakes"), bit(at == 1 && t.Until(func() bool { _, n := m.At(target); return n > 1 })))
			t.finish(m, target)
			t.Equal(prodded, "result", t.ABI.Result("CONFER", "self, prodded"), t.returned(m.Results(target)[1]))
		}
	}}
}

// paprConferInterrupts: interrupts are after a confer as they were before.
func paprConferInterrupts(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		for _, on := range []uint64{0, 1} {
			for _, id := range []uint64{m.ID(target), absentID, uint64(t.ABI.Call("CONFER").Arg("processor").Value("ALL"))} {
				r := t.run(m, caller, interruptsOp(on), t.call("CONFER", id, 0))
				t.Equal(rule, fmt.Sprintf("changed by a confer to %#x, interrupts %d", id, on), t.Want(rule, "changed"), bit(t.enabled(r[1]) != int64(on)))
			}
		}
	}}
}

// paprJoin: a join with interrupts on is refused, one with interrupts off waits for a prod.
func paprJoin() Check {
	const (
		on    = "join/interrupts-on"
		ended = "join/ended-by-prod"
		off   = "join/keeps-interrupts-off"
	)
	return Check{Rules: []string{on, ended, off}, Run: func(t *T) {
		m := t.Open(machine())
		r := t.run(m, caller, interruptsOp(1), t.call("JOIN"))
		t.Equal(on, "result", t.ABI.Result("JOIN", "interrupts on"), t.returned(r[1]))
		t.start(m, target, interruptsOp(0), t.call("JOIN"))
		t.Control("a joined CPU sleeps, in operation", 1, t.settle(m, target, 2))
		t.run(m, caller, t.noKick())
		t.Control("it sleeps on after a call that is no kick", true, t.stays(m, target, 1))
		t.run(m, caller, t.kick(m.ID(target)))
		t.Equal(ended, "waits ended", t.Want(ended, "wakes"), bit(t.Until(func() bool { _, n := m.At(target); return n > 1 })))
		t.finish(m, target)
		joined := m.Results(target)[1]
		t.Equal(ended, "result", t.ABI.Result("JOIN", "prodded"), t.returned(joined))
		t.Equal(off, "interrupts after it", t.Want(off, "enabled"), t.enabled(joined))
	}}
}

// paprJoinEarly: a prod comes before a join. The control is the same without a prod.
func paprJoinEarly(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, kicks := range []int{0, 1} {
			m := t.Open(machine())
			flag := m.Alloc(8, 8, 0)
			t.start(m, target, interruptsOp(0), spinUntil(flag.Address(), ^uint64(0), 1, 0), t.call("JOIN"))
			p := arch.Program{store(flag.Address(), 1, 8)}
			if kicks > 0 {
				p = append(arch.Program{t.kick(m.ID(target))}, p...)
			}
			t.run(m, caller, p...)
			ended := t.settle(m, target, 3) - 2
			if kicks == 0 {
				t.Control("joins ended without a prod", 0, ended)
				continue
			}
			t.Equal(rule, "joins ended by a prod before", t.Want(rule, "latched"), ended)
		}
	}}
}

// paprJoinDecrementer: the decrementer expires during a join, which goes on. The control is
// that it ends a cede, and that a prod ends the join.
func paprJoinDecrementer(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, wait := range []arch.Op{waitOp(0), t.call("JOIN")} {
			m := t.Open(machine())
			t.start(m, target, interruptsOp(0), t.decrementer(soon), wait)
			gone := func() bool { _, n := m.At(target); return n > 2 }
			ended := bit(t.Until(gone))
			if wait.Kind == arch.Wait {
				t.Control("cedes ended by the decrementer", int64(1), ended)
				continue
			}
			t.Equal(rule, "joins ended", t.Want(rule, "returns"), ended)
			t.run(m, caller, t.kick(m.ID(target)))
			t.Control("the join ends with a prod, at the latest", true, t.Until(gone))
		}
	}}
}

// paprRunning: YIELDED of a CPU, as it sees it itself while it runs, and as others see it
// while it waits. Each is the other's control.
func paprRunning(running, waiting string) Check {
	const reads = 100000
	return Check{Rules: []string{running, waiting}, Run: func(t *T) {
		m := t.Open(machine())
		_, field, mask := t.ABI.PreemptedField()
		address, _, err := t.papr(m).AreaAddress(target)
		t.Check("the target's area", err)
		// The probe reads words of 8 bytes in its own order, the least byte first.
		little := bits.ReverseBytes64(mask) >> (64 - 8*field.Size)
		want := uint64(0)
		if t.Want(running, "preempted") == 0 {
			want = little
		}
		r := t.run(m, target, interruptsOp(0), spinUntil(address+field.Offset, little, want, reads))[1]
		t.Equal(running, "YIELDED as the CPU itself sees it", t.Want(running, "preempted"), bit(r.Value&little != 0))
		t.Equal(running, "reads by the CPU itself, none of them other", uint64(reads), r.Aux)
		t.start(m, target, waitOp(0))
		seen := t.Until(func() bool {
			n, _ := m.At(target)
			return n == 0 && t.yielded(m, target) == t.Want(waiting, "preempted")
		})
		t.Equal(waiting, "YIELDED as another CPU sees it", t.Want(waiting, "preempted"), t.yielded(m, target))
		if t.Want(waiting, "preempted") != 0 {
			t.Truth(waiting, "the CPU waits when it is seen", seen && t.stays(m, target, 0))
		}
	}}
}

// paprDispatches: what a CPU's waits do to its yield_count, and to the times of its area.
func paprDispatches(rises, falls, steal string) Check {
	const waits = 8
	return Check{Rules: []string{rises, falls, steal}, Run: func(t *T) {
		m := t.Open(machine())
		p := make(arch.Program, waits)
		for i := range p {
			p[i] = waitOp(0)
		}
		t.start(m, target, p...)
		var counts []uint64
		var times [2]uint64
		var less int64
		look := func() {
			v := t.vpa(m, target)
			for i, f := range []string{"enqueue_dispatch_tb", "ready_enqueue_tb"} {
				less += bit(v.field(f) < times[i])
				times[i] = v.field(f)
			}
		}
		// What is asked does not depend on how many waits a kick ends.
		for at := t.settle(m, target, waits); at < waits; at = t.settle(m, target, waits) {
			counts = append(counts, t.yieldCount(m, target))
			look()
			t.run(m, caller, t.kick(m.ID(target)))
			t.Control("the wait ends", true, t.Until(func() bool { look(); _, n := m.At(target); return n > uint64(at) }))
		}
		t.Control("the waiter slept twice or more", true, len(counts) >= 2)
		var fallen int64
		for i := 1; i < len(counts); i++ {
			rise := uint64(uint32(counts[i] - counts[i-1]))
			t.Equal(rises, "rise over a wait, modulo 2", t.Want(rises, "parity"), rise%2)
			t.Truth(rises, fmt.Sprintf("rise is at least %d", t.Want(rises, "least")), rise >= uint64(t.Want(rises, "least")) && rise < 1<<31)
			fallen += bit(rise >= 1<<31)
		}
		t.Evidence(rises, "yield_count in each wait", counts)
		t.Equal(falls, "falls", t.Want(falls, "decreases"), fallen)
		t.Equal(steal, "falls", t.Want(steal, "decreases"), less)
		t.Evidence(steal, "enqueue_dispatch_tb, ready_enqueue_tb", times[:])
	}}
}

// area is memory that a CPU registers as one of its areas.
type paprArea struct {
	arch.Area
	real uint64 // as the hypervisor knows it
}

// paprAlloc sets memory aside for an area that begins at an offset from a boundary that areas must
// not cross. There is room for two of those behind it.
func (t *T) paprAlloc(m microvm.Machine, fill byte) paprArea {
	boundary := uint64(t.ABI.Call("REGISTER_VPA").Arg("area").Value("BOUNDARY"))
	a := m.Alloc(2*boundary, boundary, fill)
	real, err := t.papr(m).Real(a)
	t.Check("address of an area", err)
	return paprArea{a, real}
}

// put writes a number as the areas have it, big-endian.
func (a paprArea) put(offset, size, value uint64) {
	a.Store(offset, size, bits.ReverseBytes64(value)>>(64-8*size))
}

// get reads one.
func (a paprArea) get(offset, size uint64) uint64 {
	return bits.ReverseBytes64(a.Load(offset, size)) >> (64 - 8*size)
}

// registration makes calls of REGISTER_VPA.
type registration struct {
	t    *T
	call abi.Call
}

func (t *T) registration() registration { return registration{t, t.ABI.Call("REGISTER_VPA")} }

func (r registration) op(function string, id, area uint64) arch.Op {
	return r.t.call(r.call.Name, uint64(r.call.Arg("flags").Value(function)), id, area)
}

func (r registration) limit(name string) uint64 { return uint64(r.call.Arg("area").Value(name)) }

// lengthSize is how many bytes the length of an area has, at LENGTH_AT.
func lengthSize(function string) uint64 {
	if function == "REGISTER_VPA" {
		return 2
	}
	return 4
}

// paprRegister: the whole matrix of REGISTER_VPA, in one program of a CPU that has interrupts
// off until the kernel's own area is registered again.
func paprRegister() Check {
	type step struct {
		rule, what, outcome string
		op                  arch.Op
	}
	rules := []string{
		"vpa/register", "vpa/absent-cpu", "vpa/reserved-subfunction", "vpa/zero-address",
		"vpa/unaligned", "vpa/outside-memory", "vpa/too-short", "vpa/crosses-boundary",
		"vpa/trace", "vpa/trace-unaligned", "vpa/trace-too-short", "vpa/trace-crosses-boundary", "vpa/trace-without-area", "vpa/trace-order",
		"vpa/shadow", "vpa/shadow-unaligned", "vpa/shadow-too-short", "vpa/shadow-crosses-boundary", "vpa/shadow-without-area",
		"vpa/deregister", "vpa/deregister-absent", "vpa/deregister-with-trace", "vpa/deregister-with-shadow", "vpa/deregister-ignores-address",
	}
	return Check{Rules: rules, Run: func(t *T) {
		m := t.Open(machine())
		reg := t.registration()
		_, own, err := t.papr(m).AreaAddress(caller)
		t.Check("the kernel's area", err)
		id := m.ID(caller)
		const vpa, dtl, slb = "REGISTER_VPA", "REGISTER_DTL", "REGISTER_SLB"
		minimum := map[string]uint64{vpa: reg.limit("VPA_MINIMUM"), dtl: reg.limit("DTL_MINIMUM"), slb: reg.limit("SLB_MINIMUM")}
		align, boundary := reg.limit("ALIGNMENT"), reg.limit("BOUNDARY")
		page := t.paprAlloc(m, 0)
		at := page.real
		next := uint64(0)
		// with returns the address of an area of that length, misaligned by so much; across has
		// it cross the boundary by its last byte.
		with := func(function string, length, misaligned uint64) uint64 {
			offset := next*align + misaligned
			next++
			page.put(offset+reg.limit("LENGTH_AT"), lengthSize(function), length)
			return at + offset
		}
		across := func(function string) uint64 {
			offset := boundary - align
			page.put(offset+reg.limit("LENGTH_AT"), lengthSize(function), align+8)
			if minimum[function] > align {
				// Long enough, and a multiple of the alignment away.
				offset = boundary - minimum[function]
				offset -= offset % align
				page.put(offset+reg.limit("LENGTH_AT"), lengthSize(function), boundary-offset+8)
			}
			return at + offset
		}
		good := with(vpa, minimum[vpa], 0)
		next += minimum[vpa]/align + 1
		long := with(vpa, minimum[vpa]+align, 0)
		next += minimum[vpa]/align + 2
		goodDTL := with(dtl, minimum[dtl], 0)
		goodSLB := with(slb, minimum[slb], 0)
		short := map[string][]uint64{}
		for _, f := range []string{vpa, dtl, slb} {
			short[f] = []uint64{with(f, minimum[f]-1, 0), with(f, 0, 0)}
		}
		// Half of the alignment is room enough for a length, and no more is looked at.
		crooked := map[string]uint64{vpa: with(vpa, minimum[vpa], 64), dtl: with(dtl, minimum[dtl], 64), slb: with(slb, minimum[slb], 64)}

		steps := []step{
			{"", "", "", reg.op("DEREGISTER_SLB", id, 0)},
			{"", "", "", reg.op("DEREGISTER_DTL", id, 0)},
			{"vpa/deregister-absent", "SLB shadow", "deregistered, not registered", reg.op("DEREGISTER_SLB", id, 0)},
			{"vpa/deregister-absent", "trace", "deregistered, not registered", reg.op("DEREGISTER_DTL", id, 0)},
			{"vpa/deregister", "VPA", "VPA deregistered", reg.op("DEREGISTER_VPA", id, 0)},
			{"vpa/deregister-absent", "VPA", "deregistered, not registered", reg.op("DEREGISTER_VPA", id, 0)},
			{"vpa/trace-without-area", "trace", "DTL without VPA", reg.op(dtl, id, goodDTL)},
			{"vpa/trace-order", "short trace", "DTL too short without VPA", reg.op(dtl, id, short[dtl][0])},
			{"vpa/shadow-without-area", "shadow", "SLB without VPA", reg.op(slb, id, goodSLB)},
			{"vpa/register", "minimum", "VPA registered", reg.op(vpa, id, good)},
			{"vpa/register", "longer", "VPA registered again", reg.op(vpa, id, long)},
			{"vpa/zero-address", "VPA", "zero address", reg.op(vpa, id, 0)},
			{"vpa/zero-address", "trace", "zero address", reg.op(dtl, id, 0)},
			{"vpa/zero-address", "SLB shadow", "zero address", reg.op(slb, id, 0)},
			{"vpa/unaligned", "by 64", "unaligned", reg.op(vpa, id, crooked[vpa])},
			{"vpa/outside-memory", "2^50", "outside memory", reg.op(vpa, id, 1<<50)},
			{"vpa/too-short", "by 1", "VPA too short", reg.op(vpa, id, short[vpa][0])},
			{"vpa/too-short", "length 0", "VPA too short", reg.op(vpa, id, short[vpa][1])},
			{"vpa/reserved-subfunction", "0", "reserved subfunction", reg.op("RESERVED_0", id, good)},
			{"vpa/reserved-subfunction", "4", "reserved subfunction", reg.op("RESERVED_4", id, good)},
			{"vpa/trace-too-short", "by 1", "DTL too short", reg.op(dtl, id, short[dtl][0])},
			{"vpa/trace-too-short", "length 0", "DTL too short", reg.op(dtl, id, short[dtl][1])},
			{"vpa/trace", "minimum", "DTL registered", reg.op(dtl, id, goodDTL)},
			{"vpa/deregister-with-trace", "VPA", "VPA deregistered, DTL registered", reg.op("DEREGISTER_VPA", id, 0)},
			{"vpa/deregister", "trace", "DTL deregistered", reg.op("DEREGISTER_DTL", id, 0)},
			{"vpa/trace-unaligned", "by 64", "unaligned", reg.op(dtl, id, crooked[dtl])},
			{"", "", "", reg.op("DEREGISTER_DTL", id, 0)},
			{"vpa/shadow-too-short", "by 1", "SLB too short", reg.op(slb, id, short[slb][0])},
			{"vpa/shadow-too-short", "length 0", "SLB too short", reg.op(slb, id, short[slb][1])},
			{"vpa/shadow", "minimum", "SLB registered", reg.op(slb, id, goodSLB)},
			{"vpa/deregister-with-shadow", "VPA", "VPA deregistered, SLB registered", reg.op("DEREGISTER_VPA", id, 0)},
			{"vpa/deregister", "SLB shadow", "SLB deregistered", reg.op("DEREGISTER_SLB", id, 0)},
			{"vpa/shadow-unaligned", "by 64", "unaligned", reg.op(slb, id, crooked[slb])},
			{"", "", "", reg.op("DEREGISTER_SLB", id, 0)},
			{"vpa/deregister-ignores-address", "VPA", "VPA deregistered", reg.op("DEREGISTER_VPA", id, ^uint64(0))},
			{"", "", "", reg.op(vpa, id, own)},
		}
		for _, f := range []string{vpa, dtl, slb, "DEREGISTER_VPA", "DEREGISTER_DTL", "DEREGISTER_SLB"} {
			steps = append(steps, step{"vpa/absent-cpu", f, "absent target", reg.op(f, absentID, good)})
		}
		crossing := []step{
			{"vpa/crosses-boundary", "VPA", "VPA crosses boundary", arch.Op{}},
			{"vpa/trace-crosses-boundary", "trace", "DTL crosses boundary", arch.Op{}},
			{"vpa/shadow-crosses-boundary", "SLB shadow", "SLB crosses boundary", arch.Op{}},
		}
		look := func(steps ...step) {
			p := arch.Program{interruptsOp(0)}
			for _, s := range steps {
				p = append(p, s.op)
			}
			r := t.run(m, caller, p...)[1:]
			for i, s := range steps {
				if s.rule != "" {
					t.Equal(s.rule, s.what, t.ABI.Result(reg.call.Name, s.outcome), t.returned(r[i]))
				}
			}
			t.Control("the kernel's area is registered at the end", own, t.registeredAt(m, caller))
		}
		look(steps...)
		// The three share memory, and are looked at one after the other.
		for i, f := range []string{vpa, dtl, slb} {
			crossing[i].op = reg.op(f, id, across(f))
			look(crossing[i], step{"", "", "", reg.op("DEREGISTER_DTL", id, 0)}, step{"", "", "", reg.op("DEREGISTER_SLB", id, 0)},
				step{"", "", "", reg.op(vpa, id, own)})
		}
	}}
}

// registeredAt returns the address of the kernel's area if it is the one that the hypervisor
// writes, else 0.
func (t *T) registeredAt(m microvm.Machine, cpu int) uint64 {
	_, real, err := t.papr(m).AreaAddress(cpu)
	t.Check("the kernel's area", err)
	before := t.yieldCount(m, cpu)
	t.run(m, cpu, interruptsOp(0), t.decrementer(1), waitOp(0))
	if t.yieldCount(m, cpu) == before {
		return 0
	}
	return real
}

// paprInUse: which of several areas the hypervisor writes, and which fields of it. In each
// step the CPU waits for its decrementer once.
func paprInUse() Check {
	const (
		again   = "vpa/register-again"
		refused = "vpa/refused-has-no-effect"
		gone    = "vpa/deregistered-not-written"
		fields  = "vpa/guest-fields-untouched"
	)
	return Check{Rules: []string{again, refused, gone, fields}, Run: func(t *T) {
		m := t.Open(machine())
		reg := t.registration()
		_, own, err := t.papr(m).AreaAddress(caller)
		t.Check("the kernel's area", err)
		id, layout := m.ID(caller), t.ABI.Layout("lppaca")
		_, count, _ := t.ABI.PreemptedField()
		size := layout.Field("size")
		area := func() paprArea {
			a := t.paprAlloc(m, fill)
			a.put(size.Offset, size.Size, layout.Size)
			a.put(count.Offset, count.Size, 0)
			return a
		}
		first, second := area(), area()
		counts := func() [2]uint64 {
			return [2]uint64{first.get(count.Offset, count.Size), second.get(count.Offset, count.Size)}
		}
		// phase has the CPU do calls and wait, and tells what they gave and which areas were
		// written.
		phase := func(ops ...arch.Op) (results []int64, written [2]bool) {
			before := counts()
			p := append(arch.Program{interruptsOp(0)}, ops...)
			r := t.run(m, caller, append(p, t.decrementer(1), waitOp(0), reg.op("REGISTER_VPA", id, own))...)
			for i := range ops {
				results = append(results, t.returned(r[1+i]))
			}
			for i, n := range counts() {
				written[i] = n != before[i]
			}
			return results, written
		}

		one, other := reg.op("REGISTER_VPA", id, first.real), reg.op("REGISTER_VPA", id, second.real)
		_, written := phase(one)
		t.Control("of two areas the one that is registered is written", [2]bool{true, false}, written)
		results, written := phase(one, other)
		t.Equal(again, "result", t.ABI.Result(reg.call.Name, "VPA registered again"), results[1])
		t.Equal(again, "the later area is written", t.Want(again, "moves"), bit(written[1]))
		results, written = phase(one, reg.op("REGISTER_VPA", id, second.real+64), reg.op("RESERVED_4", id, second.real))
		t.Control("registrations are refused", true, results[1] < 0 && results[2] < 0)
		t.Equal(refused, "registrations changed", t.Want(refused, "changed"), bit(written != [2]bool{true, false}))

		var changed []string
		for _, f := range layout.Fields {
			if f.Writer != string(abi.Guest) || f.Name == size.Name {
				continue
			}
			for i := range f.Size {
				if first.Load(f.Offset+i, 1) != fill {
					changed = append(changed, f.Name)
					break
				}
			}
		}
		t.Evidence(fields, "changed", changed)
		t.Equal(fields, "fields changed", t.Want(fields, "changed"), len(changed))

		// A second call off the area makes sure that the first has taken effect, and so does a wait.
		off := reg.op("DEREGISTER_VPA", id, 0)
		look := load(first.Address()+count.Offset, count.Size)
		r := t.run(m, caller, interruptsOp(0), one, off, t.decrementer(1), waitOp(0), look, t.decrementer(1), waitOp(0), look, reg.op("REGISTER_VPA", id, own))
		t.Equal(gone, "yield_count changed by a wait", t.Want(gone, "changed"), bit(r[5].Value != r[8].Value))
		phase(one, off)
		old := first.Bytes()
		phase(off)
		var n int64
		for i, b := range first.Bytes() {
			n += bit(b != old[i])
		}
		t.Equal(gone, "bytes changed", t.Want(gone, "changed"), n)
	}}
}

// paprParity: yield_count of a CPU that runs is even, whatever it was in the memory that became
// its area.
func paprParity(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		reg := t.registration()
		_, own, err := t.papr(m).AreaAddress(caller)
		t.Check("the kernel's area", err)
		layout, count, _ := t.ABI.PreemptedField()
		size := layout.Field("size")
		for _, left := range []uint64{0, 1, 6, 7, 1<<32 - 1} {
			a := t.paprAlloc(m, 0)
			a.put(size.Offset, size.Size, layout.Size)
			a.put(count.Offset, count.Size, left)
			r := t.run(m, caller, interruptsOp(0), reg.op("REGISTER_VPA", m.ID(caller), a.real), t.decrementer(1), waitOp(0),
				load(a.Address()+count.Offset, count.Size), reg.op("REGISTER_VPA", m.ID(caller), own))
			got := bits.ReverseBytes64(r[4].Value) >> (64 - 8*count.Size)
			t.Equal(rule, fmt.Sprintf("%#x, modulo 2, after %#x was left", got, left), t.Want(rule, "parity"), got%2)
		}
	}}
}

// paprLog is a dispatch trace log.
type paprLog struct {
	paprArea
	layout abi.Layout
	length uint64 // of as many entries as fit
}

// entry reads a field of the entry in that place.
func (l paprLog) entry(i uint64, name string) uint64 {
	f := l.layout.Field(name)
	return l.get(i*l.layout.Size+f.Offset, f.Size)
}

func (l paprLog) entries() uint64 { return l.length / l.layout.Size }

// logged has the target wait so many times, prodded out of each, while it has a dispatch trace log
// of that length. It returns how many entries the hypervisor says that there are, the log, and
// what the first wait left.
func (t *T) logged(mask, length uint64, waits int) (index uint64, l paprLog, wait arch.Result) {
	reg := t.registration()
	layout := t.ABI.Layout("lppaca")
	m := t.Open(machine())
	id := m.ID(target)
	_, own, err := t.papr(m).AreaAddress(target)
	t.Check("the target's area", err)
	a := t.paprAlloc(m, 0)
	l = paprLog{t.paprAlloc(m, fill), t.ABI.Layout("dtl_entry"), length}
	put := func(name string, value uint64) {
		f := layout.Field(name)
		a.put(f.Offset, f.Size, value)
	}
	put("size", layout.Size)
	put("dtl_enable_mask", mask)
	l.put(reg.limit("LENGTH_AT"), 4, length)
	p := arch.Program{interruptsOp(0), reg.op("REGISTER_VPA", id, a.real), reg.op("REGISTER_DTL", id, l.real)}
	first := len(p)
	for range waits {
		p = append(p, waitOp(0))
	}
	p = append(p, reg.op("DEREGISTER_DTL", id, 0), reg.op("REGISTER_VPA", id, own))
	t.start(m, target, p...)
	_, count, mark := t.ABI.PreemptedField()
	for done := first; done < first+waits; {
		// Whether it sleeps does the new area tell.
		var at int
		t.Control("the waiter sleeps, or has ended its waits", true, t.Until(func() bool {
			at, _ = m.At(target)
			return at >= first+waits || at >= done && a.get(count.Offset, count.Size)&mark != 0
		}))
		t.run(m, caller, t.kick(id))
		t.Control("the wait ends", true, t.Until(func() bool { _, n := m.At(target); return n > uint64(at) }))
		_, n := m.At(target)
		done = int(n)
	}
	t.finish(m, target)
	r := m.Results(target)
	t.Control("results of the registrations", int64(0), t.returned(r[1])|t.returned(r[2])|t.returned(r[len(p)-1]))
	f := layout.Field("dtl_idx")
	return a.get(f.Offset, f.Size), l, r[first]
}

// paprTrace: the dispatch trace log of a CPU that waits and is prodded, with a mask of all and
// of nothing, and one that is too small.
func paprTrace() Check {
	const (
		entry  = "trace/entry"
		base   = "trace/timebase"
		reason = "trace/reason-prod"
		zero   = "trace/mask-zero"
		wraps  = "trace/wraps"
	)
	return Check{Rules: []string{entry, base, reason, zero, wraps}, Run: func(t *T) {
		layout, size := t.ABI.Layout("lppaca"), t.ABI.Layout("dtl_entry").Size
		var all uint64
		for _, b := range []string{"CEDE", "PREEMPT", "FAULT"} {
			all |= layout.Bit("dtl_enable_mask", b)
		}
		boundary := t.registration().limit("BOUNDARY")
		n, l, wait := t.logged(all, boundary, 1)
		t.Truth(entry, fmt.Sprintf("dtl_idx is at least %d", t.Want(entry, "least")), n >= uint64(t.Want(entry, "least")))
		t.Evidence(entry, "dtl_idx", n)
		// The dispatch that the prod brought about is one of those between the two readings
		// of the time base.
		var reasons []uint64
		for i := range min(n, l.entries()) {
			if time := l.entry(i, "timebase"); wait.Begin <= time && time <= wait.End {
				reasons = append(reasons, l.entry(i, "dispatch_reason"))
			}
		}
		t.Equal(base, "an entry's time base is between those before and after the wait", t.Want(base, "inside"), bit(len(reasons) > 0))
		t.Equal(reason, "entries with this reason among those", bit(true), bit(slices.Contains(reasons, uint64(t.Want(reason, "reason")))))
		t.Evidence(reason, "reasons", reasons)
		if n == 0 {
			t.Unreached(zero, "nothing is written with a mask of all either, so that nothing with a mask of zero proves nothing")
		}
		n, _, _ = t.logged(0, boundary, 1)
		t.Equal(zero, "entries", t.Want(zero, "written"), n)

		// Room for some entries, and for a part of one.
		const room = 4
		n, l, _ = t.logged(all, room*size+size/2, 3*room)
		t.Truth(wraps, "there are more entries than the log has room for", n > room)
		var behind, older int64
		for at := room * size; at < l.Size(); at++ {
			behind += bit(l.Load(at, 1) != fill)
		}
		// The oldest entry is where the next one would be.
		for i := range uint64(room - 1) {
			older += bit(l.entry((n+i)%room, "timebase") > l.entry((n+i+1)%room, "timebase"))
		}
		t.Equal(wraps, "bytes changed behind the last entry", t.Want(wraps, "changed"), behind)
		t.Equal(wraps, "entries older than the one before", 0, older)
		t.Evidence(wraps, "dtl_idx", n)
	}}
}

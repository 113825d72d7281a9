package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// X86KVM is the suite for the hypervisor side of x86-kvm: the KVM of the kernel that
// the suite runs on, in that release, asked by the CPUs of a machine of our own.
func X86KVM(ctx context.Context, release string, open func(microvm.Config) (microvm.Machine, error)) (*Suite, error) {
	s := x86Suite(Implementer{Name: "Linux KVM", Version: release}, open)
	// The carrier is the VMM, and offers all that KVM does.
	s.Checks, s.Costs, s.Direct = x86Checks(), x86Costs(), true
	return s, s.discover(ctx)
}

// X86KVMBelow is the suite for the KVM below the machine that the suite runs on, asked
// by an ordinary process. The error is ErrNoKVM where there is none.
func X86KVMBelow(ctx context.Context, open func(microvm.Config) (microvm.Machine, error)) (*Suite, error) {
	// What version of KVM it is, its guests cannot tell.
	s := x86Suite(Implementer{Name: "Linux KVM"}, open)
	s.Checks, s.Rest = x86BelowChecks(), x86BelowRest
	return s, s.discover(ctx)
}

// X86KVMRules are the rules that X86KVM has a result for, in the order of its results.
func X86KVMRules() []abi.Rule {
	return (&Suite{ABI: abi.X86KVM(), Checks: x86Checks()}).Rules()
}

// X86KVMBelowRules are those of X86KVMBelow.
func X86KVMBelowRules() []abi.Rule {
	return (&Suite{ABI: abi.X86KVM(), Checks: x86BelowChecks(), Rest: x86BelowRest}).Rules()
}

func x86BelowChecks() []Check {
	return []Check{x86Discovery(false), x86Privilege(), x86Convention([]int{caller})}
}

const x86BelowRest = "needs a CPU with privilege; an ordinary process has none"

// ErrNoKVM says that discovery does not find KVM.
var ErrNoKVM = errors.New("no KVM: its signature is in no leaf of CPUID")

func x86Suite(i Implementer, open func(microvm.Config) (microvm.Machine, error)) *Suite {
	return &Suite{
		ABI: abi.X86KVM(), ISA: amd64.ISA, Open: open, Implementer: i, Deviations: Deviations,
		FlagsPoison: x86FlagsPoison, Looks: Looks,
	}
}

// discover asks a machine for what the suite has to know of its processor and of what
// KVM offers.
func (s *Suite) discover(ctx context.Context) error {
	m, err := s.machines().get(machine())
	if err != nil {
		return err
	}
	leaf := s.ABI.Word("first-leaf")
	if err := m.Start(caller, arch.Program{discover(0, 0), discover(leaf, 0), discover(leaf+s.ABI.Word("features-leaf"), 0)}); err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	if _, err := m.Wait(ctx, caller); err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	r := m.Results(caller)
	if !s.signature(r[1]) {
		s.machines().close()
		return ErrNoKVM
	}
	s.Native = x86Native(s.ISA, r[0])
	words := map[string]uint64{"features": s.out(r[2], "eax"), "hints": s.out(r[2], "edx")}
	s.Offers = func(f abi.Feature) (bool, error) {
		w, ok := words[f.Word]
		if !ok {
			return false, fmt.Errorf("no word of discovery named %q", f.Word)
		}
		return w>>f.Bit&1 == 1, nil
	}
	return nil
}

// x86FlagsPoison is what the flags are before a call, of which x86Flags are looked at:
// some set, some clear, interrupts off. Bit 1 is always set.
const (
	x86FlagsPoison   = 1<<0 | 1<<1 | 1<<4 | 1<<7 | 1<<11 // CF, AF, SF, OF
	x86InterruptFlag = 1 << 9
	x86Flags         = 1<<0 | 1<<2 | 1<<4 | 1<<6 | 1<<7 | x86InterruptFlag | 1<<10 | 1<<11
)

// x86Native is the mnemonic of the call instruction that is native to the processor
// whose leaf 0 this is. Linux decides by vendor, too (arch/x86/kernel/cpu/amd.c and
// hygon.c set X86_FEATURE_VMMCALL).
func x86Native(isa *arch.ISA, leaf arch.Result) string {
	switch uint32(leaf.Regs[isa.Register("rbx")]) {
	case 'A' | 'u'<<8 | 't'<<16 | 'h'<<24, 'H' | 'y'<<8 | 'g'<<16 | 'o'<<24: // AuthenticAMD, HygonGenuine
		return "vmmcall"
	}
	return "vmcall"
}

// x86Checks are the checks of x86-kvm, in the order of the report.
func x86Checks() []Check {
	split := machine()
	split.IRQChip = microvm.Split
	areas := x86Areas()
	return []Check{
		x86Discovery(true),
		x86OtherHypervisor(),
		x86Privilege(),
		x86UserKick(),
		x86Undefined(),
		x86Extreme(),
		x86HighHalf("number/high-half"),
		x86Defined(),
		x86MapRange("number/map-gpa-range-without-exit"),
		x86OtherClock("number/clock-pairing-other-clock"),
		x86SendIPI("number/send-ipi-one-target"),
		x86Gates(),
		x86Convention(nil, []int{caller}),
		x86HighHalf("convention/number-not-truncated"),

		kickWakes("kick/wakes-waiter", machine(), 0),
		kickWakes("kick/wakes-waiter-interrupts-on", machine(), 1),
		kickWakes("kick/wakes-waiter-split-irqchip", split, 0),
		kickWakes("kick/wakes-waiter-split-interrupts-on", split, 1),
		kickEarly("kick/before-wait", "latched", 1),
		kickEarly("kick/two-kicks", "wakes", 2),
		kickSelf("kick/self"),
		kickEarly("kick/running-target", "returns", 1),
		kickAbsent("kick/absent-target"),
		kickVariant("kick/flags-ignored", func(t *T, id uint64) arch.Op {
			return t.call(t.ABI.Scheduling.Kick, ^uint64(0), id)
		}),
		kickVariant("kick/target-high-half", func(t *T, id uint64) arch.Op { return t.kick(1<<32 | id) }),
		kickResult("kick/result"),

		waitSleeps("wait/sleeps-without-kick"),
		x86Interrupt("wait/ended-by-interrupt", 1, testVector, func(id uint64) arch.Op { return amd64.Interrupt(id, testVector) }),
		x86Interrupt("wait/ended-by-nmi", 0, amd64.NMI, amd64.NonMaskable),
		x86InterruptEatsKick("wait/interrupt-eats-kick"),

		yieldTo("yield/self", "self", func(m microvm.Machine) uint64 { return m.ID(caller) }),
		yieldTo("yield/running-target", "running target", func(m microvm.Machine) uint64 { return m.ID(third) }),
		yieldTo("yield/waiting-target", "waiting target", func(m microvm.Machine) uint64 { return m.ID(target) }),
		yieldTo("yield/absent-target", "absent target", func(microvm.Machine) uint64 { return absentID }),
		yieldTo("yield/target-high-half", "target with high half", func(m microvm.Machine) uint64 { return 1<<32 | m.ID(third) }),
		yieldWakes("yield/does-not-wake"),
		x86Counters("counter/hypercalls", "counter/directed-yield-attempted"),

		stealRegister("steal/enable-reads-back", "steal/reserved-bits"),
		stealGrows("steal/layout-written", "steal/padding-untouched", "steal/flags-untouched"),
		stealReader("steal/version-protocol", "steal/monotonic"),
		stealOff("steal/disabled"),
		preemptedBusy("preempted/running", "preempted/descheduled", "PREEMPTED"),
		preemptedIdle("preempted/waiting", "preempted/in-vmm", "preempted/cleared-at-entry"),

		x86ResetValues("register/reset-values"),
		x86AfterInit("register/after-init"),
		x86ReadsBack("register/reads-back"),
		x86Reserved("register/reserved-bits"),
		x86UndefinedRegisters("register/undefined"),
		x86RegisterGates(),
		x86ControlBits("register/control-bits-gated"),
		x86NeedsAPIC("register/needs-apic"),
		x86Area(areas[0]), x86Area(areas[1]), x86Area(areas[2]), x86Area(areas[3]),
		x86ClockEven("clock/version-even"),
		x86ClockReader("clock/version-protocol"),
		x86ClockOrder("clock/order-across-cpus"),
		x86WallClock(),
		x86GuestStopped("clock/guest-stopped"),
		x86EOI(),
		x86EOIAnother("eoi/clear-with-another"),
		x86Fault(),
		x86FaultNext("async-pf/next-after-ack"),
		x86FaultHeld("async-pf/held-while-apic-off"),
		x86NoFault("async-pf/user-only", 1, func(t *T) uint64 { return t.faultBits() &^ t.ABI.Register("ASYNC_PF_EN").Bit("SEND_ALWAYS") }),
		x86NoFault("async-pf/interrupts-off", 0, (*T).faultBits),
		x86IPI(),
		x86IPIOff("ipi/apic-off"),
		x86IPINarrow("ipi/protected-mode"),
		x86OtherKick("kick/broadcast", func(*T) microvm.Config { return machine() }, []int{target, third},
			func(t *T, _ microvm.Machine) arch.Op { return t.kick(0xff) }),
		x86OtherKick("kick/remote-read-command", func(t *T) microvm.Config { return t.hidden() }, []int{target},
			func(_ *T, m microvm.Machine) arch.Op { return amd64.Kick(m.ID(target)) }),
		x86OtherKick("kick/remote-read-send-ipi", func(t *T) microvm.Config { return t.hidden("PV_SEND_IPI") }, []int{target},
			func(t *T, m microvm.Machine) arch.Op { return t.sendIPI(1<<m.ID(target), 0, 0, remoteRead) }),
		x86KickRace("kick/race"),
		x86Withdrawn("discovery/pv-unhalt-withdrawn"),
		x86Foreign(),
		x86Narrow("convention/protected-mode", microvm.Protected),
		x86Narrow("convention/real-mode", microvm.Real),
		x86RunDelay("steal/run-delay"),
		x86NoFlushOffered("preempted/cleared-without-tlb-flush"),
		x86Flush("preempted/flush-tlb"),
		x86Pairing(),
		x86MapRangeExit(),
	}
}

// x86Scan scans the leaves for the platform's signature as a guest does, on one CPU,
// and returns the bases at which it was found.
func (t *T) x86Scan(m microvm.Machine, cpu int) []uint64 {
	first, last, step := t.ABI.Word("first-leaf"), t.ABI.Word("last-leaf"), t.ABI.Word("leaf-step")
	if step == 0 || last < first || (last-first)/step > 1<<12 {
		t.Fatal(fmt.Errorf("abi lists no leaves that can be scanned: %#x to %#x in steps of %#x", first, last, step))
	}
	var p arch.Program
	var found []uint64
	flush := func() {
		for i, r := range t.run(m, cpu, p...) {
			if t.signature(r) {
				found = append(found, p[i].Arg[0])
			}
		}
		p = nil
	}
	for leaf := first; leaf <= last; leaf += step {
		if p = append(p, discover(leaf, 0)); len(p) == arch.MaxOps-1 {
			flush()
		}
	}
	if len(p) > 0 {
		flush()
	}
	return found
}

// signature tells whether a leaf holds the platform's signature.
func (s *Suite) signature(r arch.Result) bool {
	for _, reg := range []string{"ebx", "ecx", "edx"} {
		if s.out(r, reg) != s.ABI.Word("signature-"+reg) {
			return false
		}
	}
	return true
}

// out is the 32-bit register that a leaf of discovery came back in.
func (s *Suite) out(r arch.Result, reg string) uint64 {
	return r.Regs[s.ISA.Register("r"+reg[1:])] & (1<<32 - 1)
}

// x86Discovery: what the leaves say. Where the machine's VMM is not the suite's own, it
// chose the words that the leaves hold; what KVM itself offers cannot be seen then.
func x86Discovery(ownVMM bool) Check {
	const (
		present   = "discovery/hypervisor-bit"
		signature = "discovery/signature"
		maxLeaf   = "discovery/max-leaf"
		known     = "discovery/features-known"
		reserved  = "discovery/reserved-registers"
		same      = "discovery/same-on-all-cpus"
		hints     = "discovery/hints"
	)
	return Check{Rules: []string{present, signature, maxLeaf, known, reserved, same, hints}, Run: func(t *T) {
		m := t.Open(machine())
		for cpu := range m.CPUs() {
			r := t.run(m, cpu, discover(t.ABI.Word("hypervisor-leaf"), 0))
			t.Equal(present, fmt.Sprintf("bit on CPU %d", cpu), t.Want(present, "set"), t.out(r[0], "ecx")>>t.ABI.Word("hypervisor-bit")&1)
		}
		bases := t.x86Scan(m, caller)
		t.Evidence(signature, "bases", bases)
		t.Equal(signature, "leaves with the signature", t.Want(signature, "found"), len(bases))
		base := t.ABI.Word("first-leaf")
		if len(bases) > 0 {
			base = bases[0]
		}
		leaves := arch.Program{discover(base, 0), discover(base+t.ABI.Word("features-leaf"), 0)}
		r := t.run(m, caller, leaves...)
		last := t.ABI.Word("max-leaf") - t.ABI.Word("first-leaf") + base
		t.Equal(maxLeaf, "EAX of the signature leaf", Hex(last), Hex(t.out(r[0], "eax")))

		features := t.out(r[1], "eax")
		var mask uint64
		for _, f := range t.ABI.AllFeatures() {
			if f.Word == "features" && f.Offered == "kernel" {
				mask |= 1 << f.Bit
			}
		}
		if !ownVMM {
			for _, rule := range []string{known, hints} {
				t.Unreached(rule, "the VMM of this machine chose the word; what KVM itself offers cannot be seen in a guest")
			}
		}
		t.Evidence(known, "features", Hex(features).String())
		t.Equal(known, "bits that are not the kernel's to offer", Hex(0), Hex(features&^mask))
		t.Truth(known, "some feature is offered", features != 0)
		t.Equal(reserved, "EBX", t.Want(reserved, "ebx"), t.out(r[1], "ebx"))
		t.Equal(reserved, "ECX", t.Want(reserved, "ecx"), t.out(r[1], "ecx"))
		t.Equal(hints, "EDX", t.Want(hints, "edx"), t.out(r[1], "edx"))

		var differ int64
		for _, cpu := range []int{target, third} {
			other := t.run(m, cpu, leaves...)
			differ += bit(other[0].Regs != r[0].Regs || other[1].Regs != r[1].Regs)
		}
		t.Equal(same, "CPUs that read something else", t.Want(same, "differences"), differ)
	}}
}

// x86OtherHypervisor: with a foreign leaf at the first base and KVM's own at the next, or
// at the last, the features that KVM enforces are those of KVM's own leaf: one call is
// offered there, another is not.
func x86OtherHypervisor() Check {
	const rule = "discovery/signature-after-other"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		next := t.ABI.Word("first-leaf") + uint64(t.Want(rule, "step"))*t.ABI.Word("leaf-step")
		offered, hidden := t.ABI.Call("SCHED_YIELD"), t.ABI.Call("SEND_IPI")
		features := uint32(1) << t.ABI.Feature(offered.Feature).Bit
		for _, c := range []struct {
			config uint32
			base   uint64
		}{{0x40000100, next}, {0x4000ff00, t.ABI.Word("last-leaf")}} {
			m := t.Open(microvm.Config{KVMBase: c.config, Features: &features, Enforce: true})
			t.Equal(rule, "bases found", fmt.Sprintf("%#x", []uint64{c.base}), fmt.Sprintf("%#x", t.x86Scan(m, caller)))
			r := t.run(m, caller, discover(c.base+t.ABI.Word("features-leaf"), 0), t.harmless(m, offered), t.harmless(m, hidden))
			t.Control("features in KVM's own leaf", uint64(features), t.out(r[0], "eax"))
			t.Equal(rule, fmt.Sprintf("%s, offered in KVM's leaf %#x", offered.Name, c.base), t.harmlessResult(offered), t.returned(r[1]))
			t.Equal(rule, fmt.Sprintf("%s, hidden in KVM's leaf %#x", hidden.Name, c.base), t.ABI.Result(hidden.Name, "hidden and enforced"), t.returned(r[2]))
		}
	}}
}

// defined lists the numbers that have a meaning on the platform.
func (t *T) defined() []abi.Call {
	return slices.DeleteFunc(slices.Clone(t.ABI.AllCalls()), func(c abi.Call) bool { return c.Undefined })
}

// harmless makes a defined call with arguments that are good but have no effect.
func (t *T) harmless(m microvm.Machine, c abi.Call) arch.Op {
	switch c.Name {
	case t.ABI.Scheduling.Kick:
		return t.kick(absentID)
	case t.ABI.Scheduling.Yield:
		return t.yield(absentID)
	case "CLOCK_PAIRING":
		l := t.ABI.Layout("kvm_clock_pairing")
		return t.call(c.Name, m.Alloc(l.Size, 64, 0).Address(), 0)
	}
	return t.call(c.Name, make([]uint64, len(c.Args))...)
}

// harmlessOutcome names, for each defined call, the outcome that harmless calls for.
var harmlessOutcome = map[string]string{
	"VAPIC_POLL_IRQ": "called",
	"KICK_CPU":       "absent target",
	"CLOCK_PAIRING":  "written",
	"SEND_IPI":       "empty bitmap",
	"SCHED_YIELD":    "absent target",
	"MAP_GPA_RANGE":  "exit not enabled",
}

// harmlessResult is the result that is listed for a harmless call.
func (t *T) harmlessResult(c abi.Call) int64 { return t.ABI.Result(c.Name, harmlessOutcome[c.Name]) }

// harmlessAll makes all defined calls so, in their order.
func (t *T) harmlessAll(m microvm.Machine) arch.Program {
	var p arch.Program
	for _, c := range t.defined() {
		p = append(p, t.harmless(m, c))
	}
	return p
}

// undefined lists the numbers of one sweep that have no meaning on the platform.
func (t *T) undefined(upTo uint64) []uint64 {
	var out []uint64
	for n := range upTo + 1 {
		if !slices.ContainsFunc(t.defined(), func(c abi.Call) bool { return c.Number == n }) {
			out = append(out, n)
		}
	}
	return out
}

const sweep = 64

func x86Privilege() Check {
	const (
		defined   = "privilege/user-refused"
		undefined = "privilege/user-refused-undefined"
	)
	return Check{Rules: []string{defined, undefined}, Run: func(t *T) {
		m := t.Open(microvm.Config{CPUs: 3, IDs: sparse, User: []int{caller}})
		refused := t.ABI.Errno("EPERM")
		for i, r := range t.runAll(m, caller, t.harmlessAll(m)) {
			name := t.defined()[i].Name
			t.Equal(defined, name, refused, t.returned(r))
			t.Equal(defined, name+" exception", 0, r.Trap)
		}
		numbers := t.undefined(sweep)
		for i, r := range t.runAll(m, caller, t.callNumbers(numbers)) {
			t.Equal(undefined, fmt.Sprint("number ", numbers[i]), refused, t.returned(r))
		}
		// The control: the same CPU is really without privilege.
		r := t.run(m, caller, readRegister(t.ABI.Register(t.ABI.Scheduling.Area).Number))
		t.Control("exception of a privileged instruction on the same CPU", 1+generalProtection, r[0].Trap)
	}}
}

// x86UserKick: a kick without privilege wakes nobody. The control is that the same
// kick with privilege does.
func x86UserKick() Check {
	const rule = "privilege/user-has-no-effect"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(microvm.Config{CPUs: 3, IDs: sparse, User: []int{caller}})
		t.sleeper(m, target, 0)
		t.run(m, caller, t.kick(m.ID(target)))
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), bit(!t.stays(m, target, 0)))
		t.run(m, third, t.kick(m.ID(target)))
		t.Control("waits ended by the same kick with privilege", 1, t.woken(m))
	}}
}

func x86Undefined() Check {
	const rule = "number/undefined"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		numbers := t.undefined(sweep)
		for i, r := range t.runAll(t.Open(machine()), caller, t.callNumbers(numbers)) {
			t.Equal(rule, fmt.Sprint("number ", numbers[i]), t.ABI.Errno("ENOSYS"), t.returned(r))
		}
	}}
}

func x86Extreme() Check {
	const rule = "number/extreme"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		numbers := []uint64{1 << 31, 1<<32 - 1, 1 << 63, 1<<64 - 1}
		for i, r := range t.runAll(t.Open(machine()), caller, t.callNumbers(numbers)) {
			t.Equal(rule, "number "+Hex(numbers[i]).String(), t.ABI.Errno("ENOSYS"), t.returned(r))
		}
	}}
}

// x86HighHalf: a number with a bit of its high half set is another number.
func x86HighHalf(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		width := int(t.ABI.MainConvention().Width)
		shifts := []int{32}
		if rule == "convention/number-not-truncated" {
			shifts = []int{33, 40, 47, 48, 62, 63}
		}
		var p arch.Program
		for _, c := range t.defined() {
			for _, shift := range shifts {
				op := t.harmless(m, c)
				op.Regs[t.ISA.Register(t.ABI.MainConvention().Number)] |= 1 << shift
				p = append(p, op)
			}
		}
		for i, r := range t.runAll(m, caller, p) {
			c, shift := t.defined()[i/len(shifts)], shifts[i%len(shifts)]
			want := t.ABI.Errno("ENOSYS")
			if shift >= width {
				want = t.harmlessResult(c)
			}
			t.Equal(rule, fmt.Sprintf("%s with bit %d", c.Name, shift), want, t.returned(r))
		}
	}}
}

// x86Defined: each defined call but MAP_GPA_RANGE gives a result that is listed for it.
func x86Defined() Check {
	rules := map[string]string{
		"VAPIC_POLL_IRQ": "number/vapic-poll-irq",
		"KICK_CPU":       "number/kick-cpu",
		"CLOCK_PAIRING":  "number/clock-pairing",
		"SEND_IPI":       "number/send-ipi-empty",
		"SCHED_YIELD":    "number/sched-yield",
	}
	c := Check{}
	for _, call := range abi.X86KVM().Calls {
		if rule := rules[call.Name]; rule != "" {
			c.Rules = append(c.Rules, rule)
		}
	}
	c.Run = func(t *T) {
		m := t.Open(machine())
		for _, call := range t.defined() {
			rule := rules[call.Name]
			if rule == "" {
				continue
			}
			r := t.run(m, caller, t.harmless(m, call))
			if call.Name == "CLOCK_PAIRING" {
				t.OneOf(rule, "result", []int64{t.harmlessResult(call), t.ABI.Result(call.Name, "no TSC clock")}, t.returned(r[0]))
				continue
			}
			t.Equal(rule, "result", t.harmlessResult(call), t.returned(r[0]))
		}
	}
	return c
}

// x86MapRange: MAP_GPA_RANGE is refused unless the VMM has asked to be told of it. The
// control is a machine whose VMM has.
func x86MapRange(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		call := t.ABI.Call("MAP_GPA_RANGE")
		for _, told := range []bool{true, false} {
			c := machine()
			if told {
				c = microvm.Config{ExitHypercalls: 1 << call.Number}
			}
			m := t.Open(c)
			got := t.returned(t.run(m, caller, t.call(call.Name, 0, 1))[0])
			if told {
				t.Control("result where the VMM has asked to be told", t.ABI.Result(call.Name, "left to the VMM"), got)
				continue
			}
			t.Equal(rule, "result", t.ABI.Result(call.Name, "exit not enabled"), got)
		}
	}}
}

// x86OtherClock: a clock type that CLOCK_PAIRING does not know, in either half of the
// argument.
func x86OtherClock(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		address := t.harmless(m, t.ABI.Call("CLOCK_PAIRING")).Regs[t.ISA.Register(t.ABI.MainConvention().Args[0])]
		for _, clock := range []uint64{1, 1 << 31, 1 << 32, 1<<64 - 1} {
			r := t.run(m, caller, t.call("CLOCK_PAIRING", address, clock))
			t.Equal(rule, "result for clock type "+Hex(clock).String(), t.ABI.Result("CLOCK_PAIRING", "other clock"), t.returned(r[0]))
		}
	}}
}

// x86SendIPI: an interrupt that SEND_IPI sends to one CPU, once to another and once to the
// calling one. How often it is taken is not asked: some emulations of SVM deliver one twice
// now and then. The control is that both have taken none before.
func x86SendIPI(rule string) Check {
	const below = 1 // between the lowest id of the bitmap and the target's
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		end := t.runner(m, target, interrupts(1))
		t.run(m, caller, interrupts(1), t.noKick(), interrupts(0))
		for _, c := range []struct {
			name string
			cpu  int
		}{{"another CPU", target}, {"the calling CPU", caller}} {
			t.Control("interrupts taken before by "+c.name, 0, m.Events(c.cpu, testVector))
			send := t.call("SEND_IPI", 1<<below, 0, m.ID(c.cpu)-below, testVector)
			r := t.run(m, caller, send, interrupts(1), t.noKick(), interrupts(0))
			t.Equal(rule, "result for "+c.name, t.ABI.Result("SEND_IPI", "one target"), t.returned(r[0]))
			t.Equal(rule, "taken by "+c.name, t.Want(rule, "taken"),
				bit(t.Until(func() bool { return m.Events(c.cpu, testVector) > 0 })))
		}
		end()
	}}
}

// x86Gates: what hiding a feature does to the call that it gates, with and without
// enforcement. Offered are no features; that of one gated call alone, for each of them;
// and all that gate none. So a call's own feature is told from all others.
func x86Gates() Check {
	const (
		free     = "number/gated-free"
		enforced = "number/gated-enforced"
		ungated  = "number/ungated-enforced"
		offered  = "number/gated-offered"
	)
	return Check{Rules: []string{free, enforced, ungated, offered}, Run: func(t *T) {
		own := func(c abi.Call) uint32 { return 1 << t.ABI.Feature(c.Feature).Bit }
		var others uint32
		for _, f := range t.ABI.AllFeatures() {
			if f.Word == "features" {
				others |= 1 << f.Bit
			}
		}
		type offer struct {
			features uint32
			enforce  bool
		}
		offers := []offer{{0, false}, {0, true}}
		for _, call := range t.defined() {
			if call.Feature != "" {
				offers = append(offers, offer{own(call), true})
				others &^= own(call)
			}
		}
		offers = append(offers, offer{others, true})
		for _, o := range offers {
			m := t.Open(microvm.Config{Features: &o.features, Enforce: o.enforce})
			got := t.runAll(m, caller, t.harmlessAll(m))
			for i, call := range t.defined() {
				got, name := t.returned(got[i]), fmt.Sprintf("%s with features %#x", call.Name, o.features)
				switch {
				case call.Feature == "" && o == offer{0, true}:
					plain := t.Open(machine())
					t.Equal(ungated, call.Name, t.returned(t.run(plain, caller, t.harmless(plain, call))[0]), got)
				case call.Feature == "":
				case !o.enforce:
					t.Equal(free, name, t.harmlessResult(call), got)
				case o.features&own(call) == 0:
					t.Equal(enforced, name, t.ABI.Result(call.Name, "hidden and enforced"), got)
				default:
					t.Equal(offered, name, t.harmlessResult(call), got)
				}
			}
		}
	}}
}

// x86Convention: what a call leaves alone, with the CPUs that are without privilege in
// each of its rounds. All registers are poisoned before a call.
func x86Convention(rounds ...[]int) Check {
	const (
		native    = "convention/native-instruction"
		registers = "convention/registers-preserved"
		flags     = "convention/flags-preserved"
		vectors   = "convention/vectors-preserved"
		length    = "convention/instruction-length"
	)
	return Check{Rules: []string{native, registers, flags, vectors, length}, Run: func(t *T) {
		conv := t.ABI.MainConvention()
		instruction := conv.Instructions[slices.IndexFunc(conv.Instructions, func(i abi.Instruction) bool { return i.Mnemonic == t.Native })]
		result := t.ISA.Register(conv.Result)
		for _, user := range rounds {
			watched := uint64(x86Flags)
			if user != nil {
				watched &^= x86InterruptFlag // not a program's to choose
			}
			m := t.Open(microvm.Config{CPUs: 3, IDs: sparse, User: user})
			wide := t.x86Wide(m, caller)
			ops := arch.Program{t.noKick()}
			for _, c := range t.defined() {
				ops = append(ops, t.harmless(m, c))
			}
			for _, op := range ops {
				name := fmt.Sprintf("number %d", op.Regs[t.ISA.Register(conv.Number)])
				if user != nil {
					name += " without privilege"
				}
				long := op
				long.Kind = arch.CallLength
				before := vectorPoison()
				t.Check("vector registers", m.SetVectors(caller, before))
				r := t.run(m, caller,
					arch.Op{Kind: arch.LoadVectors, Arg: [6]uint64{wide}}, op, arch.Op{Kind: arch.StoreVectors, Arg: [6]uint64{wide}}, long)
				after := m.Vectors(caller)
				t.Control("exceptions of access to the vector registers", uint64(0), r[0].Trap|r[2].Trap)
				t.Equal(native, name+": exception", 0, r[1].Trap)
				var changed []string
				for i, v := range r[1].Regs {
					if v != op.Regs[i] && i != result && t.ISA.Registers[i] != "rsp" {
						changed = append(changed, t.ISA.Registers[i])
					}
				}
				if r[1].Regs[t.ISA.Register("rsp")] != 0 {
					changed = append(changed, "rsp")
				}
				if len(changed) > 0 {
					t.Evidence(registers, name, changed)
				}
				t.Equal(registers, name, t.Want(registers, "changed"), len(changed))
				t.Equal(flags, name, t.Want(flags, "changed"), bits.OnesCount64((r[1].Flags^op.Flags)&watched))
				t.Equal(vectors, name, t.Want(vectors, "changed"), countDifferent(before, after, 16<<wide))
				t.Evidence(vectors, "bits of a register", 128<<wide)
				t.Equal(length, name, instruction.Length, r[3].Value)
			}
		}
	}}
}

// x86Wide is 1 if a CPU has vector registers of 256 bits and they may be used, else 0: bits
// 28 (AVX) and 27 (OSXSAVE) of ECX of leaf 1 (Intel SDM volume 1, "Detection of Intel AVX
// instructions").
func (t *T) x86Wide(m microvm.Machine, cpu int) uint64 {
	const avx = 1<<28 | 1<<27
	return uint64(bit(t.out(t.run(m, cpu, discover(1, 0))[0], "ecx")&avx == avx))
}

// vectorPoison fills 16 registers of 32 bytes, no two bytes of a register alike.
func vectorPoison() []byte {
	out := make([]byte, 16*32)
	for i := range out {
		out[i] = byte(i*7 + i/32)
	}
	return out
}

// countDifferent counts the registers, in 32 bytes each, whose first width bytes
// differ.
func countDifferent(a, b []byte, width int) int {
	n := 0
	for i := 0; i+32 <= len(a); i += 32 {
		if string(a[i:i+width]) != string(b[i:i+width]) {
			n++
		}
	}
	return n
}

const (
	testVector        = 0x41
	generalProtection = 13
)

// x86Interrupt: an interrupt that another CPU sends by its interrupt command register,
// no call involved, ends a wait.
func x86Interrupt(rule string, interrupts uint64, vector uint8, send func(id uint64) arch.Op) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		t.sleeper(m, target, interrupts)
		t.run(m, caller, t.noKick())
		t.Control("the waiter sleeps on without an interrupt", true, t.stays(m, target, 0))
		t.run(m, caller, send(m.ID(target)))
		t.Equal(rule, "waits ended", t.Want(rule, "returns"), t.woken(m))
		t.Truth(rule, "the interrupt was taken", t.Until(func() bool { return m.Events(target, vector) > 0 }))
		t.Evidence(rule, "interrupts taken", m.Events(target, vector))
	}}
}

// x86InterruptEatsKick: a kick and an interrupt are both pending when a CPU waits. The
// wait ends, the interrupt is taken, and the next wait sleeps: of the kick nothing is
// left. The control is the same without the interrupt, in which the kick alone ends the
// first wait.
func x86InterruptEatsKick(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, interrupt := range []bool{false, true} {
			m := t.Open(machine())
			flag := m.Alloc(8, 8, 0)
			t.start(m, target, spinUntil(flag.Address(), ^uint64(0), 1, 0), waitOp(1), waitOp(0))
			p := arch.Program{t.kick(m.ID(target))}
			if interrupt {
				p = append(p, amd64.Interrupt(m.ID(target), testVector))
			}
			t.run(m, caller, append(p, store(flag.Address(), 1, 8))...)
			ended := int64(t.settle(m, target, 3) - 1)
			if !interrupt {
				t.Control("waits ended by the kick alone", int64(1), ended)
				continue
			}
			t.Control("the interrupt was taken", true, m.Events(target, testVector) > 0)
			t.Equal(rule, "waits ended by what is left of the kick", t.Want(rule, "latched"), ended-1)
			if ended == 1 {
				t.Truth(rule, "the next wait sleeps", t.stays(m, target, 2))
			}
		}
	}}
}

// x86Counters: KVM's own counters agree with what the guest did.
func x86Counters(calls, yields string) Check {
	return Check{Rules: []string{calls, yields}, Run: func(t *T) {
		m := t.Open(machine())
		p := arch.Program{
			t.noKick(), t.noKick(), t.harmless(m, t.ABI.Call("VAPIC_POLL_IRQ")),
			t.yield(m.ID(caller)), t.yield(absentID), t.yield(1<<32 | m.ID(target)),
			t.kick(absentID), t.kick(m.ID(caller)),
		}
		const directed = 5 // of the calls in p
		t.count(m, calls, "hypercalls", int64(len(p)), p)
		t.count(m, yields, "directed_yield_attempted", directed, p)

		user := t.Open(microvm.Config{CPUs: 3, IDs: sparse, User: []int{caller}})
		t.count(user, calls, "hypercalls", int64(len(p)), p)
		t.count(user, yields, "directed_yield_attempted", 0, p)
	}}
}

// count runs a program and holds what it adds to a counter of its CPU against n times
// what the rule demands for each.
func (t *T) count(m microvm.Machine, rule, counter string, n int64, p arch.Program) {
	before, err := m.Counter(caller, counter)
	t.Check("counter "+counter, err)
	t.run(m, caller, p...)
	after, err := m.Counter(caller, counter)
	t.Check("counter "+counter, err)
	t.Equal(rule, fmt.Sprintf("%s after %d of %d calls that count", counter, n, len(p)), n*t.Want(rule, "increment"), after-before)
}

package conformance

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/loong64"
	"pvabi/conformance/microvm"
)

// LoongArchGuest is what a machine has besides whose CPUs are those of a guest's kernel. Package
// loongarch has one.
type LoongArchGuest interface {
	microvm.Machine
	// Real returns the address that the hypervisor knows an area by.
	Real(a arch.Area) (uint64, error)
	// Taken returns how many times a CPU took software interrupt 0 since the guest was started.
	Taken(cpu int) (uint64, error)
	// Unprivileged runs a program at privilege level 3, in a process of its own, and returns what
	// its operations left. An exception ends its operation only.
	Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error)
}

// LoongArch is the suite for the hypervisor side of loongarch-kvm, asked by the CPUs of machines of
// our own, of which features and numbers of CPUs can be chosen.
func LoongArch(ctx context.Context, i Implementer, open func(microvm.Config) (microvm.Machine, error)) (*Suite, error) {
	return loongSuite(ctx, i, open, loong{plain: microvm.Config{CPUs: 3, IDs: loongIDs}})
}

// LoongArchBelow is the suite for the hypervisor below the Linux guest that the suite runs in, asked
// by CPUs of that guest. Where that offers nothing, all rules are absent but the one that says what
// there must not be then.
func LoongArchBelow(ctx context.Context, i Implementer, open func(microvm.Config) (microvm.Machine, error)) (*Suite, error) {
	return loongSuite(ctx, i, open, loong{plain: microvm.Config{CPUs: 3}})
}

// LoongArchReference is LoongArchBelow for a guest of the reference hypervisor, whose host its machines
// can ask for more than that of a real one: they choose features, and have CPUs taken off.
func LoongArchReference(ctx context.Context, i Implementer, open func(microvm.Config) (microvm.Machine, error)) (*Suite, error) {
	return loongSuite(ctx, i, open, loong{plain: microvm.Config{CPUs: 3}, asks: true})
}

// LoongArchRules are the rules that all these suites have a result for, in the order of their results. Left out
// are the guest's, and the one about vector registers, which a kernel does not lend.
func LoongArchRules() []abi.Rule {
	return (&Suite{ABI: abi.LoongArch(), Checks: loongChecks(loong{})}).Rules()
}

func loongSuite(ctx context.Context, i Implementer, open func(microvm.Config) (microvm.Machine, error), c loong) (*Suite, error) {
	s := &Suite{
		ABI: abi.LoongArch(), ISA: loong64.ISA, Open: open, Implementer: i, Deviations: Deviations,
		Looks: Looks,
	}
	s.Native = s.ABI.Conventions[0].Instructions[0].Mnemonic
	s.Checks, s.Costs = loongChecks(c), loongCosts(c)
	return s, s.loongDiscover(ctx, c)
}

// LoongArchDisturbing are those of them that [Suite.Gentle] leaves, with what their check does.
func LoongArchDisturbing() map[string]string { return disturbingOf(loongChecks(loong{})) }

// loongIDs are the numbers of a machine's CPUs: one bitmap has room for all of them, and the
// target's has room before it for both words.
var loongIDs = []uint64{120, 200, 140}

// loong is what the checks have to know of their machines: the configuration of a plain one. If
// that does not choose the CPUs' numbers, they are those of a guest's kernel, and nothing can be
// chosen, unless the machine can ask its host.
type loong struct {
	plain microvm.Config
	asks  bool
}

func (c loong) guest() bool { return c.plain.IDs == nil }

// chooses tells whether features can be chosen.
func (c loong) chooses() bool { return !c.guest() || c.asks }

// loongTried is tried where a kernel has a say in what its CPUs are sent, and once where nobody has.
func (t *T) loongTried(c loong, holds func() bool) bool {
	if c.guest() {
		return t.tried(holds)
	}
	return holds()
}

// loongClear is clear where a kernel has a say in what its CPUs are sent; where nobody has, it looks once.
func (t *T) loongClear(c loong, look func() (seen string, doubtful bool)) {
	if c.guest() {
		t.clear(look)
		return
	}
	look()
}

// loongMoments are how many reads of memory a CPU is given, one time after the other, to get what was
// sent to it: a host that is a machine of its own takes a moment to reach another of its CPUs.
var loongMoments = []uint64{1, 1 << 8, 1 << 12, 1 << 14}

func loongMoment(try int) uint64 { return loongMoments[min(try, len(loongMoments)-1)] }

// loongDiscover asks a machine what is offered.
func (s *Suite) loongDiscover(ctx context.Context, c loong) error {
	m, err := s.machines().get(c.plain)
	if err != nil {
		return err
	}
	// A hypervisor that is a debugger's finds a CPU's code by the first call in it. It is of no function.
	first := (&T{Suite: s}).nothing()
	p := arch.Program{first, discover(s.ABI.Word("signature-word"), 0), discover(s.ABI.Word("features-word"), 0)}
	for cpu := range m.CPUs() {
		if err := m.Start(cpu, p); err != nil {
			return fmt.Errorf("discovery: %w", err)
		}
		if _, err := m.Wait(ctx, cpu); err != nil {
			return fmt.Errorf("discovery: %w", err)
		}
	}
	r4 := s.ISA.Register("r4")
	signature, features := m.Results(caller)[1].Regs[r4], m.Results(caller)[2].Regs[r4]
	if signature == 0 {
		for i, check := range s.Checks {
			s.Checks[i].Run = func(t *T) { t.loongNothing(c, check.Rules) }
		}
		s.Offers = func(abi.Feature) (bool, error) { return false, nil }
		return nil
	}
	s.Offers = func(f abi.Feature) (bool, error) { return features>>f.Bit&1 == 1, nil }
	return nil
}

// loongChecks are the checks of loongarch-kvm, in the order of the report.
func loongChecks(c loong) []Check {
	// What registers memory takes away what the kernel has registered, until its CPUs are offline once.
	area := func(check Check) Check {
		check.Disturbs = "registers memory for steal time in place of the kernel's, which gets that back by taking CPUs offline"
		return check
	}
	return []Check{
		loongDiscovery(c),
		loongChosen(c),
		area(loongPrivilege(c)),
		loongUserIPI(c),
		loongUndefined(c),
		loongExtreme(c),
		area(loongHighHalf(c)),
		loongKickOf2024(c),
		area(loongVendorNumbers(c)),
		area(loongGates(c)),
		area(loongCodes(c)),
		area(loongConvention(c)),

		loongWakes(c),
		loongRunning(c),
		loongAbsent(c),
		loongResult(c),
		loongSleeps(c),
		loongInterrupted(c),

		loongInterrupt(c),
		loongKept(c),
		loongSelf(c),
		loongWords(c),
		loongTargets(c),

		area(loongRegisters(c)),
		area(loongOwnArea(c)),
		area(loongReplaces(c)),
		area(loongTakesBack(c)),
		area(loongRefused(c)),
		area(loongNowhere(c)),

		area(loongGrows(c)),
		area(loongReader(c)),
		area(loongBusy(c)),
		area(loongWaiting(c)),
		area(loongUntouched(c)),
	}
}

// offered tells whether a feature is offered.
func (t *T) offered(name string) bool {
	ok, err := t.Offers(t.ABI.Feature(name))
	t.Check("discovery of "+name, err)
	return ok
}

// real is the address that the hypervisor knows a piece of memory by.
func (t *T) real(m microvm.Machine, a arch.Area) uint64 {
	if g, ok := m.(LoongArchGuest); ok {
		address, err := g.Real(a)
		t.Check("where the memory is", err)
		return address
	}
	return a.Address()
}

// taken0 is how many times a CPU took software interrupt 0.
func (t *T) taken0(m microvm.Machine, cpu int) uint64 {
	if g, ok := m.(LoongArchGuest); ok {
		n, err := g.Taken(cpu)
		t.Check("count interrupts", err)
		return n
	}
	return m.Events(cpu, uint8(t.ABI.Register("ESTAT").Bits[0].Bit))
}

// openUser returns a machine on which user runs an operation at privilege level 3, which no CPU
// but the caller does. A guest has a process do it.
func (t *T) openUser(c loong) (m microvm.Machine, user func(arch.Op) arch.Result) {
	config := c.plain
	if c.guest() {
		m := t.Open(config)
		g, ok := m.(LoongArchGuest)
		if !ok {
			t.Fatal(fmt.Errorf("a %T is no machine of a guest's own CPUs", m))
		}
		return m, func(o arch.Op) arch.Result {
			r, err := g.Unprivileged(t.ctx, arch.Program{o})
			t.Check("a program at privilege level 3", err)
			return r[0]
		}
	}
	config.User = []int{caller}
	m = t.Open(config)
	return m, func(o arch.Op) arch.Result { return t.run(m, caller, o)[0] }
}

// Interrupts. ESTAT has those that are pending at a CPU.

// swi0 is the bit of ESTAT of the interrupt that an IPI makes.
func (t *T) swi0() uint64 { return t.ABI.Register("ESTAT").Bit("SWI0") }

func (t *T) readESTAT() arch.Op          { return readRegister(t.ABI.Register("ESTAT").Number) }
func (t *T) writeESTAT(v uint64) arch.Op { return writeRegister(t.ABI.Register("ESTAT").Number, v) }

// Other lines of ESTAT, and the registers that an interrupt is sent by without a hypervisor (LoongArch
// Reference Manual volume 1, "Exception Status"; arch/loongarch/include/asm/loongarch.h,
// LOONGARCH_IOCSR_IPI_SEND, and arch/loongarch/kernel/smp.c, ipi_write_action, Linux 7.2).
const (
	loongLines = 1<<13 - 1
	loongTimer = 1 << 11
	loongIPI   = 1 << 12

	loongSend       = loong64.IOCSR + 0x1040
	loongSendWaits  = 1 << 31
	loongSendID     = 16 // shift of the number of a CPU
	loongReschedule = 1  // an interrupt that a kernel looks for nothing at
)

// What the timer's configuration is written with: its time in ticks of 10 ns or so, a multiple of 4, and
// the bit that turns it on. For as long as a program waits, a kernel's clock is put off by loongPause;
// after that it is made to look at once. A wait that nothing else ends, ends then.
const (
	loongPause = 1<<30 | 1
	loongSoon  = 1<<12 | 1
)

// quiet is a program in which nothing but interrupts that are sent end a wait: with interrupts off,
// none that were there before pending, and the clock put off. At its end the kernel, if there is one,
// is made to look for what it was sent meanwhile.
func (t *T) quietly(ops ...arch.Op) arch.Program {
	p := arch.Program{interruptions(0), writeRegister(loong64.TCFG, loongPause), t.writeESTAT(0)}
	return append(append(p, ops...), t.loud()...)
}

// loud ends a quiet program.
func (t *T) loud() arch.Program {
	return arch.Program{t.writeESTAT(t.swi0()), writeRegister(loong64.TCFG, loongSoon)}
}

// Where, in a quiet program of a wait and a look at ESTAT, they are.
const (
	loongWaitAt = 3
	loongLookAt = loongWaitAt + 1
)

// waiter has a CPU wait quietly, and sees it fall asleep.
func (t *T) waiter(c loong, m microvm.Machine, cpu int) {
	p := t.quietly(waitOp(0), t.readESTAT())
	sleeps := false
	t.loongClear(c, func() (string, bool) {
		t.start(m, cpu, p...)
		if sleeps = t.settle(m, cpu, len(p)) == loongWaitAt && t.stays(m, cpu, loongWaitAt); sleeps {
			return "", false
		}
		return t.wokenBy(m, cpu), true
	})
	t.Control("the waiter sleeps before the kick", true, sleeps)
}

// wokenBy has a waiter come to its end whose wait has ended, and tells what interrupts were pending then.
func (t *T) wokenBy(m microvm.Machine, cpu int) string {
	t.finish(m, cpu)
	return Hex(m.Results(cpu)[loongLookAt].Value & loongLines).String()
}

// endedOnly is endedBy, for [T.loongClear]: an end that none of the interrupts is pending at is in doubt.
func (t *T) endedOnly(m microvm.Machine, cpu int, lines uint64) (ends int64, seen string, doubtful bool) {
	ends = t.endedBy(m, cpu, lines)
	at, _ := m.At(cpu)
	seen = Hex(m.Results(cpu)[loongLookAt].Value & loongLines).String()
	return ends, seen, ends == 0 && at > loongWaitAt
}

// sleeping tells whether a waiter still is one.
func (t *T) sleeping(m microvm.Machine, cpu int) bool { return t.stays(m, cpu, loongWaitAt) }

// endedBy looks for the end of a waiter's wait, and tells whether one of the given interrupts was
// pending then.
func (t *T) endedBy(m microvm.Machine, cpu int, lines uint64) int64 {
	if !t.Until(func() bool { at, _ := m.At(cpu); return at > loongWaitAt }) {
		return 0
	}
	t.finish(m, cpu)
	return bit(m.Results(cpu)[loongLookAt].Value&lines != 0)
}

// kicked wakes a waiter at a check's end, which shows that it could be woken all along.
func (t *T) kicked(m microvm.Machine, by, cpu int) {
	if t.offered("IPI") {
		t.run(m, by, t.kick(m.ID(cpu)))
		t.Control("waits ended by a kick", 1, t.endedBy(m, cpu, t.swi0()))
	}
}

// nothing is a call of a function that there is none of, far from those that there are.
func (t *T) nothing() arch.Op { return t.callNumber(loongNowhere64) }

const loongNowhere64 = 64

// ipi is the call of that name.
func (t *T) ipi(low, high, lowest uint64) arch.Op {
	return t.call(t.ABI.Scheduling.Kick, low, high, lowest)
}

// notify is the call of that name with a word for the address.
func (t *T) notify(word uint64) arch.Op {
	return t.call(t.ABI.Scheduling.Area, uint64(t.ABI.Call(t.ABI.Scheduling.Area).Arg("what").Value("STEAL_TIME")), word)
}

// valid is the bit of such a word that registers.
func (t *T) valid() uint64 {
	return uint64(t.ABI.Call(t.ABI.Scheduling.Area).Arg("address").Value("VALID"))
}

// form is a call by another form of the instruction: that with the code of a word of discovery.
func (t *T) form(word string, op arch.Op) arch.Op {
	op.Arg[0] = t.ISA.Instruction(fmt.Sprintf("hvcl %#x", t.ABI.Word(word)))
	return op
}

// nothingRule is about a machine that has no signature.
const nothingRule = "discovery/nothing-without-signature"

// loongNothing is in place of the checks where there is no signature: nothing else may be there either.
func (t *T) loongNothing(c loong, rules []string) {
	for _, rule := range rules {
		if rule != nothingRule {
			t.Absent(rule, "nothing is offered: CPUCFG of the word for the signature gives 0")
		}
	}
	if !slices.Contains(rules, nothingRule) {
		return
	}
	m := t.Open(c.plain)
	for cpu := range m.CPUs() {
		for _, form := range t.ISA.Instructions {
			op := t.ipi(0, 0, 0)
			op.Arg[0] = t.ISA.Instruction(form)
			t.Equal(nothingRule, "exception of "+form, t.Want(nothingRule, "exception"), int64(t.run(m, cpu, op)[0].Trap)-1)
		}
		var p arch.Program
		for w := t.ABI.Word("first-word"); w <= t.ABI.Word("last-word"); w++ {
			p = append(p, discover(w, 0))
		}
		var sum uint64
		for _, r := range t.runAll(m, cpu, p) {
			sum |= r.Regs[t.ISA.Register("r4")]
		}
		t.Equal(nothingRule, fmt.Sprintf("words of CPUCFG, CPU %d", cpu), t.Want(nothingRule, "value"), sum)
	}
}

// loongDiscovery: what a guest asks at boot.
func loongDiscovery(c loong) Check {
	const (
		present   = "discovery/hypervisor-bit"
		signature = "discovery/signature"
		known     = "discovery/features-known"
		alone     = "discovery/preempt-with-steal"
		reserved  = "discovery/reserved-words"
		outside   = "discovery/outside-words"
		half      = "discovery/index-high-half"
		same      = "discovery/same-on-all-cpus"
	)
	return Check{Rules: []string{present, signature, known, alone, reserved, outside, half, nothingRule, same}, Run: func(t *T) {
		t.Absent(nothingRule, "there is a signature")
		m := t.Open(c.plain)
		r4 := t.ISA.Register("r4")
		words := func(cpu int, indices ...uint64) (out []uint64) {
			var p arch.Program
			for _, w := range indices {
				p = append(p, discover(w, 0))
			}
			for _, r := range t.runAll(m, cpu, p) {
				out = append(out, r.Regs[r4])
			}
			return out
		}
		for cpu := range m.CPUs() {
			features := t.ABI.Register("FEATURES")
			r := t.run(m, cpu, readRegister(features.Number))[0]
			t.Equal(present, fmt.Sprintf("bit on CPU %d", cpu), t.Want(present, "set"), bit(r.Value&features.Bit("VM") != 0))
		}
		ours := []uint64{t.ABI.Word("signature-word"), t.ABI.Word("features-word")}
		first := words(caller, ours...)
		t.Equal(signature, "signature", Hex(t.ABI.Word("signature")), Hex(first[0]))
		var mask uint64
		for _, f := range t.ABI.AllFeatures() {
			mask |= 1 << f.Bit
		}
		t.Evidence(known, "features", Hex(first[1]).String())
		t.Equal(known, "bits that mean nothing", Hex(0), Hex(first[1]&^mask))
		has := func(name string) bool { return first[1]>>t.ABI.Feature(name).Bit&1 == 1 }
		t.Equal(alone, "PREEMPT without STEAL_TIME", t.Want(alone, "alone"), bit(has("PREEMPT") && !has("STEAL_TIME")))

		var rest []uint64
		for w := t.ABI.Word("first-word"); w <= t.ABI.Word("last-word"); w++ {
			if !slices.Contains(ours, w) {
				rest = append(rest, w)
			}
		}
		for i, v := range words(caller, rest...) {
			t.Equal(reserved, "word "+Hex(rest[i]).String(), t.Want(reserved, "value"), v)
		}
		around := []uint64{t.ABI.Word("first-word") - 1, t.ABI.Word("last-word") + 1}
		for i, v := range words(caller, around...) {
			t.Equal(outside, "word "+Hex(around[i]).String(), t.Want(outside, "value"), v)
		}
		for _, b := range []int{32, 33, 47, 63} {
			got := words(caller, 1<<b|ours[0], 1<<b|ours[1])
			for i, name := range []string{"signature", "features"} {
				t.Equal(half, fmt.Sprintf("%s with bit %d of the index", name, b), Hex(first[i]), Hex(got[i]))
			}
		}
		var differ int64
		for _, cpu := range []int{target, third} {
			differ += bit(!slices.Equal(words(cpu, ours...), first))
		}
		t.Equal(same, "CPUs that read something else", t.Want(same, "differences"), differ)
	}}
}

// loongChosen: what is shown where features were chosen: each alone, all, and none.
func loongChosen(c loong) Check {
	const rule = "discovery/features-chosen"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		if !c.chooses() {
			t.Unreached(rule, "what the VMM has chosen, its guest cannot know but by asking")
			return
		}
		var all uint32
		words := []uint32{0}
		for _, f := range t.ABI.AllFeatures() {
			words = append(words, 1<<f.Bit)
			all |= 1 << f.Bit
		}
		for _, word := range append(words, all) {
			config := c.plain
			config.Features = &word
			got := t.run(t.Open(config), caller, discover(t.ABI.Word("features-word"), 0))[0].Regs[t.ISA.Register("r4")]
			t.Equal(rule, fmt.Sprintf("bits that differ from %#x", word), t.Want(rule, "differences"), bits.OnesCount64(got^uint64(word)))
		}
	}}
}

// loongPrivilege: calls from privilege level 3. The controls are that calls of the same kind with
// privilege are answered.
func loongPrivilege(c loong) Check {
	const rule = "privilege/user-refused"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m, user := t.openUser(c)
		area := m.Alloc(64, 64, 0)
		ops := map[string]arch.Op{
			"IPI with empty bitmaps": t.ipi(0, 0, 0),
			"NOTIFY":                 t.notify(t.real(m, area) | t.valid()),
			"no function":            t.nothing(),
			"a call for the VMM":     t.form("code-user-service", t.nothing()),
		}
		for name, op := range ops {
			r := user(op)
			success := r.Trap == 0 && t.returned(r) >= 0
			t.Evidence(rule, name, fmt.Sprintf("exception %d, result %d", int64(r.Trap)-1, t.returned(r)))
			t.Equal(rule, name+": successes", t.Want(rule, "successes"), bit(success))
		}
		t.Equal(rule, "bytes of the area written", 0, slices.IndexFunc(area.Bytes(), func(b byte) bool { return b != 0 })+1)
		r := t.run(m, third, t.nothing())[0]
		t.Control("exceptions of a call with privilege", 0, r.Trap)
	}}
}

// loongUserIPI: an IPI without privilege. The control is the same with privilege.
func loongUserIPI(c loong) Check {
	const rule = "privilege/user-has-no-effect"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		var woken int64
		t.loongClear(c, func() (string, bool) {
			m, user := t.openUser(c)
			t.waiter(c, m, target)
			user(t.kick(m.ID(target)))
			woken = bit(!t.sleeping(m, target))
			if woken == 1 {
				return t.wokenBy(m, target), woken != t.Want(rule, "wakes")
			}
			t.kicked(m, third, target)
			return "", false
		})
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), woken)
	}}
}

// loongFunctions are the functions up to a number that no call defines.
func (t *T) loongFunctions(last uint64) (out []uint64) {
	for n := range last + 1 {
		if !slices.ContainsFunc(t.ABI.AllCalls(), func(c abi.Call) bool { return c.Number == n }) {
			out = append(out, n)
		}
	}
	return out
}

func loongUndefined(c loong) Check {
	const rule = "number/undefined"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		numbers := t.loongFunctions(64)
		for i, r := range t.runAll(t.Open(c.plain), caller, t.callNumbers(numbers)) {
			t.Equal(rule, fmt.Sprint("function ", numbers[i]), t.ABI.Errno("INVALID_CODE"), t.returned(r))
			t.Equal(rule, fmt.Sprint("exception of function ", numbers[i]), 0, r.Trap)
		}
	}}
}

func loongExtreme(c loong) Check {
	const rule = "number/extreme"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		numbers := []uint64{1 << 31, 1<<32 - 1, 1 << 63, 1<<64 - 1}
		for i, r := range t.runAll(t.Open(c.plain), caller, t.callNumbers(numbers)) {
			t.Equal(rule, "function "+Hex(numbers[i]).String(), t.ABI.Errno("INVALID_CODE"), t.returned(r))
		}
	}}
}

// loongHighHalf: a function with a bit of its high half set is another one. The calls would have an
// effect without.
func loongHighHalf(c loong) Check {
	const rule = "number/high-half"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(c.plain)
		area := m.Alloc(64, 64, fill)
		for _, b := range []int{32, 33, 40, 47, 62, 63} {
			ops := arch.Program{t.notify(t.real(m, area) | t.valid()), t.kick(m.ID(caller))}
			for i := range ops {
				ops[i].Regs[t.ISA.Register("r4")] |= 1 << b
			}
			quiet := t.run(m, caller, t.quietly(ops[0], ops[1], t.readESTAT())...)[loongWaitAt:]
			for i, name := range []string{"NOTIFY", "IPI"} {
				t.Equal(rule, fmt.Sprintf("%s with bit %d", name, b), t.ABI.Errno("INVALID_CODE"), t.returned(quiet[i]))
			}
			t.Equal(rule, fmt.Sprintf("bytes of memory registered with bit %d", b), 0, notFill(area.Bytes()))
			if c.guest() {
				continue // whose kernel has interrupts of its own
			}
			t.Equal(rule, fmt.Sprintf("interrupts pending with bit %d", b), 0, quiet[2].Value&t.swi0())
		}
	}}
}

// loongKickOf2024: the kick of the patch set of 2024 took the number of a CPU as its only argument, and
// made that runnable. The control is the kick that there is.
func loongKickOf2024(c loong) Check {
	const (
		rule   = "number/not-the-kick-of-2024"
		number = 3
	)
	return Check{Rules: []string{rule}, Run: func(t *T) {
		var woken int64
		t.loongClear(c, func() (string, bool) {
			m := t.Open(c.plain)
			t.waiter(c, m, target)
			r := t.run(m, caller, t.callNumber(number, m.ID(target)))[0]
			t.Equal(rule, "result", t.ABI.Errno("INVALID_CODE"), t.returned(r))
			woken = bit(!t.sleeping(m, target))
			if woken == 1 {
				return t.wokenBy(m, target), woken != t.Want(rule, "wakes")
			}
			t.kicked(m, caller, target)
			return "", false
		})
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), woken)
		t.Evidence(rule, "PREEMPT, which has the bit that announced the kick, is offered", t.offered("PREEMPT"))
	}}
}

// loongVendorNumbers: each call with arguments that are good for the other, and what success is.
func loongVendorNumbers(c loong) Check {
	const (
		swapped = "number/not-the-numbers-of-vendors"
		success = "number/success-is-zero"
		nobody  = 1 << 30 // far from all numbers of CPUs
	)
	return Check{Rules: []string{swapped, success}, Run: func(t *T) {
		m := t.Open(c.plain)
		t.Equal(success, "IPI with empty bitmaps", t.Want(success, "result"), t.returned(t.run(m, caller, t.ipi(0, 0, 0))[0]))
		if t.offered("STEAL_TIME") {
			t.Equal(success, "NOTIFY that takes back", t.Want(success, "result"), t.returned(t.run(m, caller, t.notify(0))[0]))
			area := m.Alloc(64, 64, fill)
			notify := t.notify(t.real(m, area) | t.valid())
			notify.Regs[t.ISA.Register("r4")] = t.ABI.Call("IPI").Number
			notify.Regs[t.ISA.Register("r7")] = nobody
			r := t.run(m, caller, notify)[0]
			t.Equal(swapped, "IPI with the arguments of NOTIFY", t.ABI.Result("IPI", "absent target"), t.returned(r))
			t.Equal(swapped, "areas registered by it", t.Want(swapped, "swapped"), bit(notFill(area.Bytes()) != 0))
			// What the other function does must not outlive the check.
			t.run(m, caller, t.notify(0))
		}
		op := t.ipi(1, 0, m.ID(caller))
		op.Regs[t.ISA.Register("r4")] = t.ABI.Call("NOTIFY").Number
		var r []arch.Result
		t.loongClear(c, func() (string, bool) {
			r = t.run(m, caller, t.quietly(op, t.readESTAT())...)[loongWaitAt:]
			return Hex(r[1].Value & loongLines).String(), r[1].Value&t.swi0() != 0
		})
		t.Equal(swapped, "NOTIFY with the arguments of IPI", t.ABI.Result("NOTIFY", "other"), t.returned(r[0]))
		t.Equal(swapped, "interrupts sent by it", t.Want(swapped, "swapped"), bit(r[1].Value&t.swi0() != 0))
	}}
}

// loongGates: what hiding a feature does to the call that it gates. Where that can be chosen, nothing
// is offered, then one feature of a call alone, for each.
func loongGates(c loong) Check {
	const (
		hidden  = "number/gated"
		offered = "number/gated-offered"
	)
	return Check{Rules: []string{hidden, offered}, Run: func(t *T) {
		words := []uint32{0}
		if !c.chooses() {
			var is uint32
			for _, f := range t.ABI.AllFeatures() {
				if t.offered(f.Name) {
					is |= 1 << f.Bit
				}
			}
			words[0] = is
		}
		for _, call := range t.ABI.AllCalls() {
			if c.chooses() {
				words = append(words, 1<<t.ABI.Feature(call.Feature).Bit)
			}
		}
		seen := map[string]bool{}
		for _, word := range words {
			config := c.plain
			if c.chooses() {
				config.Features = &word
			}
			m := t.Open(config)
			for _, call := range t.ABI.AllCalls() {
				op := t.notify(0)
				good := t.ABI.Result("NOTIFY", "taken back")
				if call.Name == t.ABI.Scheduling.Kick {
					op, good = t.ipi(0, 0, 0), t.ABI.Result("IPI", "empty bitmap")
				}
				r := t.run(m, caller, op)[0]
				what := fmt.Sprintf("%s with features %#x", call.Name, word)
				if word>>t.ABI.Feature(call.Feature).Bit&1 == 0 {
					seen[hidden] = true
					t.Equal(hidden, what, t.ABI.Result(call.Name, "hidden"), t.returned(r))
					continue
				}
				seen[offered] = true
				t.Equal(offered, what, good, t.returned(r))
			}
		}
		if !seen[hidden] {
			t.Unreached(hidden, "the features of all calls are offered, and a guest cannot hide one")
		}
		if !seen[offered] {
			t.Absent(offered, "the feature of no call is offered")
		}
	}}
}

// loongCodes: HVCL with codes that are none for guests, with functions and arguments that would have an
// effect with the code that is.
func loongCodes(c loong) Check {
	const (
		undefined = "code/undefined"
		vendor    = "code/vendor"
		debug     = "code/debug"
		user      = "code/user-service-hidden"
	)
	return Check{Rules: []string{undefined, vendor, debug, user}, Run: func(t *T) {
		if t.offered("USER_HCALL") {
			t.Absent(user, "USER_HCALL is offered, so that the VMM answers")
		}
		m := t.Open(c.plain)
		t.waiter(c, m, target)
		for _, f := range []struct{ rule, word string }{
			{undefined, "code-none"}, {undefined, "code-last"}, {vendor, "code-vendor"}, {debug, "code-debug"}, {user, "code-user-service"},
		} {
			area := m.Alloc(64, 64, fill)
			var woken bool
			t.loongClear(c, func() (seen string, doubtful bool) {
				for name, op := range map[string]arch.Op{
					"function 0": t.callNumber(0), "IPI": t.kick(m.ID(target)), "function 2 with a bitmap of one": t.callNumber(2, 1, 0, m.ID(target)),
					"NOTIFY": t.notify(t.real(m, area) | t.valid()), "function 3": t.callNumber(3, m.ID(target)),
				} {
					r := t.run(m, caller, t.form(f.word, op))[0]
					what := fmt.Sprintf("%s by code %#x", name, t.ABI.Word(f.word))
					t.Equal(f.rule, what, t.ABI.Errno("INVALID_CODE"), t.returned(r))
					t.Equal(f.rule, "exception of "+what, 0, r.Trap)
				}
				// What one code did must not be taken for the next one's.
				t.run(m, caller, t.notify(0))
				if woken = !t.sleeping(m, target); woken {
					seen = t.wokenBy(m, target)
					t.waiter(c, m, target)
				}
				return seen, woken
			})
			t.Equal(f.rule, fmt.Sprintf("bytes of memory registered by code %#x", t.ABI.Word(f.word)), 0, notFill(area.Bytes()))
			if f.rule == vendor {
				t.Equal(vendor, "waits ended", t.Want(vendor, "wakes"), bit(woken))
			} else {
				t.Equal(f.rule, fmt.Sprintf("waits ended by code %#x", t.ABI.Word(f.word)), false, woken)
			}
		}
		t.kicked(m, caller, target)
	}}
}

// loongConvention: what a call leaves alone, whether it is answered or refused. All registers are
// poisoned before a call.
func loongConvention(c loong) Check {
	const (
		registers = "convention/registers-preserved"
		mode      = "convention/mode-preserved"
		length    = "convention/instruction-length"
	)
	return Check{Rules: []string{registers, mode, length}, Run: func(t *T) {
		m := t.Open(c.plain)
		ops := map[string]arch.Op{
			"no function": t.nothing(), "IPI": t.ipi(0, 0, 0), "IPI to nobody": t.ipi(^uint64(0), ^uint64(0), 1<<30),
			"NOTIFY of nothing": t.call("NOTIFY", 0, 0), "NOTIFY that takes back": t.notify(0),
		}
		for _, word := range []string{"code-debug", "code-user-service", "code-none", "code-vendor"} {
			ops[word] = t.form(word, t.nothing())
		}
		for name, op := range ops {
			long := op
			long.Kind = arch.CallLength
			r := t.run(m, caller, interruptions(0), readRegister(loong64.CRMD), op, long)[1:]
			changed := []string{}
			for i, v := range r[1].Regs {
				if v != op.Regs[i] && t.ISA.Registers[i] != t.ABI.MainConvention().Result {
					changed = append(changed, t.ISA.Registers[i])
				}
			}
			for n := range 32 {
				if r[1].Aux>>n&1 == 1 {
					changed = append(changed, fmt.Sprintf("r%d", n))
				}
			}
			slices.Sort(changed)
			changed = slices.Compact(changed)
			if len(changed) > 0 {
				t.Evidence(registers, name, changed)
			}
			t.Equal(registers, name, t.Want(registers, "changed"), len(changed))
			t.Equal(mode, name, t.Want(mode, "changed"), bit(r[0].Value != r[1].Flags))
			t.Equal(length, name, t.ABI.MainConvention().Instructions[0].Length, r[2].Value)
			t.Equal(length, name+": exception", 0, r[2].Trap)
		}
	}}
}

// Kick and wait.

// loongWakes: a CPU waits, and is sent an interrupt.
func loongWakes(c loong) Check {
	const rule = "kick/wakes-waiter"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(c.plain)
		var sleeps bool
		var ends int64
		t.loongClear(c, func() (seen string, doubtful bool) {
			t.waiter(c, m, target)
			t.run(m, caller, t.nothing())
			if sleeps = t.sleeping(m, target); !sleeps {
				return t.wokenBy(m, target), true
			}
			r := t.run(m, caller, t.kick(m.ID(target)))[0]
			t.Evidence(rule, "result", t.returned(r))
			ends, seen, doubtful = t.endedOnly(m, target, t.swi0())
			return seen, doubtful
		})
		t.Control("the waiter sleeps on after a call that is no kick", true, sleeps)
		t.Equal(rule, "waits ended by one kick", t.Want(rule, "wakes"), ends)
	}}
}

// loongLater gives a CPU time to take what was sent to it: reads of memory that never is as it is waited
// for.
func (t *T) loongLater(m microvm.Machine, reads uint64) arch.Op {
	return spinUntil(m.Alloc(8, 8, 0).Address(), ^uint64(0), 1, reads)
}

// loongRunning: a CPU that runs with interrupts on is sent one, and waits then. The control is the same
// without a kick, in which no interrupt is taken.
func loongRunning(c loong) Check {
	const rule = "kick/running-target"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, kicks := range []int{0, 1} {
			var taken uint64
			var returns int64
			t.loongClear(c, func() (string, bool) {
				m := t.Open(c.plain)
				flag := m.Alloc(8, 8, 0)
				head := arch.Program{
					interruptions(1), store(flag.Address(), 1, 8), spinUntil(flag.Address(), ^uint64(0), 2, 0), t.loongLater(m, 1<<12),
					interruptions(0), writeRegister(loong64.TCFG, loongPause),
				}
				p := append(append(head, waitOp(0)), t.loud()...)
				t.start(m, target, p...)
				t.Control("the running CPU runs", true, t.Until(func() bool { return flag.Load(0, 8) == 1 }))
				before := t.taken0(m, target)
				t.run(m, caller, append(slices.Repeat(arch.Program{t.kick(m.ID(target))}, kicks), store(flag.Address(), 2, 8))...)
				at := t.settle(m, target, len(p))
				returns = bit(at != len(head) || !t.stays(m, target, at))
				taken = t.taken0(m, target) - before
				t.run(m, caller, t.kick(m.ID(target)))
				t.finish(m, target)
				return fmt.Sprint(taken, returns), int(taken) > kicks || returns > t.Want(rule, "returns")
			})
			if kicks == 0 {
				t.Control("interrupts without a kick", 0, taken)
				t.Control("waits ended without a kick", 0, returns)
				continue
			}
			t.Equal(rule, "interrupts taken", 1, taken)
			t.Equal(rule, "later waits ended", t.Want(rule, "returns"), returns)
		}
	}}
}

// loongNobody are numbers that no CPU of a machine has.
func (t *T) loongNobody(m microvm.Machine) []uint64 {
	var named []uint64
	for cpu := range m.CPUs() {
		named = append(named, m.ID(cpu))
	}
	cpus := t.ABI.Word("cpus")
	all := append([]uint64{cpus - 1, cpus, cpus + 1, 1<<16 - 1, 1<<31 - 1, 1 << 31, 1<<32 - 2}, neighbours(m, m.ID(target))...)
	for _, id := range named {
		all = append(all, id+cpus, id|1<<16)
	}
	return slices.DeleteFunc(all, func(id uint64) bool { return slices.Contains(named, id) })
}

// loongAbsent: IPIs for nobody. The control is that the sleepers can be woken.
func loongAbsent(c loong) Check {
	const rule = "kick/absent-target"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(c.plain)
		for _, cpu := range []int{target, third} {
			t.waiter(c, m, cpu)
		}
		nobody := t.loongNobody(m)
		if c.guest() {
			// The numbers next to those of the machine are other CPUs of the guest.
			nobody = slices.DeleteFunc(nobody, func(id uint64) bool { return id < t.ABI.Word("cpus")-1 })
		}
		var p arch.Program
		for _, id := range nobody {
			p = append(p, t.kick(id))
		}
		var woken int64
		t.loongClear(c, func() (seen string, doubtful bool) {
			for i, r := range t.runAll(m, caller, p) {
				t.Equal(rule, "result for "+Hex(nobody[i]).String(), t.ABI.Result(t.ABI.Scheduling.Kick, "absent target"), t.returned(r))
			}
			woken = 0
			for _, cpu := range []int{target, third} {
				if !t.sleeping(m, cpu) {
					woken++
					seen += fmt.Sprint(cpu, t.wokenBy(m, cpu))
					t.waiter(c, m, cpu)
				}
			}
			return seen, woken > t.Want(rule, "wakes")
		})
		t.Equal(rule, "CPUs woken", t.Want(rule, "wakes"), woken)
		for _, cpu := range []int{target, third} {
			t.kicked(m, caller, cpu)
		}
	}}
}

// loongResult: what an IPI reports, by what its target is doing.
func loongResult(c loong) Check {
	const rule = "kick/result"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(c.plain)
		end := t.runner(m, third)
		t.waiter(c, m, target)
		for _, o := range []struct {
			when string
			op   arch.Op
		}{
			{"running target", t.kick(m.ID(third))}, {"self", t.kick(m.ID(caller))}, {"absent target", t.kick(1 << 30)},
			{"empty bitmap", t.ipi(0, 0, m.ID(target))}, {"waiting target", t.kick(m.ID(target))},
		} {
			t.Equal(rule, o.when, t.ABI.Result(t.ABI.Scheduling.Kick, o.when), t.returned(t.run(m, caller, o.op)[0]))
		}
		end()
	}}
}

// loongSleeps: a wait that nobody ends does not end, whatever else the caller does.
func loongSleeps(c loong) Check {
	const rule = "wait/sleeps-without-kick"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		var returns int64
		var m microvm.Machine
		t.loongClear(c, func() (string, bool) {
			m = t.Open(c.plain)
			p := t.quietly(waitOp(0), t.readESTAT())
			t.start(m, target, p...)
			at := t.settle(m, target, len(p))
			t.run(m, caller, t.nothing(), t.kick(1<<30), t.kick(m.ID(third)))
			returns = bit(at != loongWaitAt || !t.sleeping(m, target))
			if returns == 0 {
				return "", false
			}
			return t.wokenBy(m, target), returns > t.Want(rule, "returns")
		})
		t.Equal(rule, "waits ended", t.Want(rule, "returns"), returns)
		if returns == 0 {
			t.kicked(m, caller, target)
		}
	}}
}

// loongInterrupted: an interrupt that the interrupt controller brings, no call involved, ends a wait.
func loongInterrupted(c loong) Check {
	const rule = "wait/ended-by-interrupt"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(c.plain)
		var sleeps bool
		var ends int64
		t.loongClear(c, func() (seen string, doubtful bool) {
			t.waiter(c, m, target)
			t.run(m, caller, t.nothing())
			if sleeps = t.sleeping(m, target); !sleeps {
				return t.wokenBy(m, target), true
			}
			r := t.run(m, caller, writeRegister(loongSend, loongSendWaits|m.ID(target)<<loongSendID|loongReschedule))
			t.Control("exceptions of sending an interrupt without a call", 0, r[0].Trap)
			ends, seen, doubtful = t.endedOnly(m, target, loongIPI)
			return seen, doubtful
		})
		t.Control("the waiter sleeps on without an interrupt", true, sleeps)
		t.Equal(rule, "waits ended", t.Want(rule, "returns"), ends)
	}}
}

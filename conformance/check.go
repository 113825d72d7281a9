// Package conformance says what must hold: the checks, the engine that runs them,
// the verdicts, the known deviations and the reports.
//
// A [Check] exercises one or more rules of a platform. It builds programs (package
// arch), has a machine run them, and holds what came back against the platform's
// table (package abi): expected values never stand in a check. The engine, [Run],
// turns what a check found into one [Result] for each of its rules and hands each
// to its caller as an [Event]; the caller, an agent inside a guest, sends it to the
// host, where [Report] folds the events of all targets into one report.
//
// What a check may do is a [T]'s methods. Three habits keep a check honest, and the
// engine enforces them:
//
//   - A rule that its check did not look at is an error, never a pass.
//   - A control ([T.Control]) that does not hold makes an error of all the check's
//     rules: without the kick the waiter has to stay asleep, or its waking with the
//     kick proves nothing.
//   - Waiting is "until seen" within a budget of looks, not of time ([T.Until]), so
//     that a slow or stopped machine cannot turn into a verdict.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// Check exercises rules. Run must judge each of them.
type Check struct {
	// Rules are names, topic/statement, of the platform's rules.
	Rules []string
	Run   func(*T)
	// Disturbs says what the check does to the machine that others who use it could notice
	// or suffer from; empty for nothing of the kind. See [Suite.Gentle].
	Disturbs string
	// Unprivileged tells that the check takes no machine, and so no privilege.
	Unprivileged bool
}

// Suite is the checks of one side of a platform together with what they need to know of its
// machines. Both sides of a target are two suites, as each has its own implementer.
type Suite struct {
	// ABI is what the implementer is held against: the platform's own table, or a
	// changed copy.
	ABI *abi.Platform
	// ISA is the instruction set of the machines.
	ISA *arch.ISA
	// Native is the mnemonic of the call instruction that is native to the CPU, and
	// FlagsPoison the flags that are set before a call.
	Native      string
	FlagsPoison uint64
	// Kick makes a kick of the CPU that is known as id, on platforms where that is more than a
	// call with the id in a register; nil for the others. Unused is a number that no call has;
	// 0 takes the one above those of all calls.
	Kick   func(t *T, m microvm.Machine, id uint64) arch.Op
	Unused uint64
	// Checks are run in this order, which is the order of the report.
	Checks []Check
	// Rest says why the rules that no check is for cannot be looked at. Where it is
	// empty, there have to be checks for all.
	Rest string
	// Guest is the kernel that a suite for the guest's side looks at; nil for the hypervisor's.
	Guest GuestKernel
	// Left says why a rule that a check is for cannot be looked at where this suite runs, by
	// the rule's name.
	Left map[string]string
	// Open makes a machine. The engine closes those that it opened.
	Open func(microvm.Config) (microvm.Machine, error)
	// Offers tells whether the implementer offers a feature, by its own
	// discovery.
	Offers func(abi.Feature) (bool, error)
	// Direct tells that nothing stands between the suite and the implementer that could withhold
	// a feature, so that one that is new enough has to offer it.
	Direct bool
	// Implementer and Deviations say which known deviations apply.
	Implementer Implementer
	Deviations  []Deviation
	// Costs is what is measured of the implementer; nil for nothing.
	Costs *Costs
	// Only, where it is set, selects the rules to look at by name.
	Only func(rule string) bool
	// Looks is how often [T.Until] looks before it gives up. Tests against a
	// model lower it.
	Looks int
	// Alive is called, now and then, while a check that takes long gets on; it may be nil.
	Alive func()

	// shared tells that others use the machine, too.
	shared bool
	pool   *pool
}

// Looks is the default budget of [T.Until]: with a pause of a millisecond between
// two looks it is 5 seconds on a machine that does nothing else.
const Looks = 5000

// Run runs the suite's checks one after the other and emits one result for each
// rule. It returns ctx's error if that ended the run, and nil otherwise: what went
// wrong with a check is in the results.
func (s *Suite) Run(ctx context.Context, emit func(Result)) error {
	defer s.machines().close()
	for _, c := range s.Checks {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		for _, r := range s.run(ctx, c) {
			emit(r)
		}
	}
	for _, rule := range s.rest() {
		emit(Result{Rule: rule.ID, Side: rule.Side, Verdict: Unreached, Reason: s.Rest})
	}
	return nil
}

// Gentle makes the suite one for a machine that others use, too: rules whose check would
// disturb them are left. It returns the suite.
func (s *Suite) Gentle() *Suite {
	left := maps.Clone(s.Left)
	if left == nil {
		left = map[string]string{}
	}
	for name, does := range disturbingOf(s.Checks) {
		if left[name] == "" {
			left[name] = "looking could disturb the machine: the check " + does
		}
	}
	s.Left, s.shared = left, true
	return s
}

// Near returns a copy of the suite that has the checks of rules, by name, and so many others before them, of
// which each turn has the next ones. Both share their machines.
func (s *Suite) Near(rules []string, others, turn int) *Suite {
	s.machines()
	near := *s
	var rest []Check
	near.Checks = nil
	for _, c := range s.Checks {
		if slices.ContainsFunc(c.Rules, func(r string) bool { return slices.Contains(rules, r) }) {
			near.Checks = append(near.Checks, c)
		} else {
			rest = append(rest, c)
		}
	}
	for n := range min(others, len(rest)) {
		near.Checks = slices.Insert(near.Checks, n, rest[(turn*others+n)%len(rest)])
	}
	return &near
}

// Unprivileged makes the suite one for a process without privilege: rules whose check needs a
// machine are left. It returns the suite.
func (s *Suite) Unprivileged() *Suite {
	s.Left = map[string]string{}
	for _, c := range s.Checks {
		for _, name := range c.Rules {
			if !c.Unprivileged {
				s.Left[name] = "looking takes root"
			}
		}
	}
	return s
}

// disturbingOf tells of the rules that [Suite.Gentle] leaves, by name, what their check does.
func disturbingOf(checks []Check) map[string]string {
	out := map[string]string{}
	for _, c := range checks {
		for _, name := range c.Rules {
			if c.Disturbs != "" {
				out[name] = c.Disturbs
			}
		}
	}
	return out
}

// disturbing says of a check what it disturbs.
func disturbing(what string, c Check) Check {
	c.Disturbs = what
	return c
}

// Ready makes the machine that most checks use, or tells why there is none.
func (s *Suite) Ready() error {
	_, err := s.machines().get(machine())
	return err
}

// Rules lists the rules that Run will emit a result for, in that order.
func (s *Suite) Rules() []abi.Rule {
	var out []abi.Rule
	for _, c := range s.Checks {
		for _, name := range c.Rules {
			if s.selected(name) {
				out = append(out, s.ABI.Rule(name))
			}
		}
	}
	return append(out, s.rest()...)
}

// rest lists the selected rules of the hypervisor's side that no check is for.
func (s *Suite) rest() []abi.Rule {
	if s.Rest == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.ABI.Rules), func(r abi.Rule) bool {
		return r.Side != abi.Hypervisor || !s.selected(r.Name()) || slices.ContainsFunc(s.Checks, func(c Check) bool { return slices.Contains(c.Rules, r.Name()) })
	})
}

func (s *Suite) selected(name string) bool { return s.Only == nil || s.Only(name) }

// run runs one check and returns the results of its selected rules.
func (s *Suite) run(ctx context.Context, c Check) []Result {
	names := slices.DeleteFunc(slices.Clone(c.Rules), func(n string) bool { return !s.selected(n) })
	if len(names) == 0 {
		return nil
	}
	begin := time.Now()
	t := &T{ctx: ctx, Suite: s, findings: map[string]*finding{}}
	for _, n := range c.Rules {
		t.findings[n] = &finding{evidence: map[string]any{}}
	}
	if s.anyReachable(t, names) {
		t.protect(c.Run)
	}
	share := time.Since(begin).Seconds() / float64(len(names))
	var out []Result
	for _, n := range names {
		r := t.findings[n].result(s.ABI.Rule(n), t.failure)
		r.Seconds = share
		out = append(out, s.forgive(s.ABI.Rule(n), s.weigh(r)))
	}
	return out
}

// anyReachable marks the rules that are left, and judges those whose features are not offered, and
// tells whether there is any other to look at.
func (s *Suite) anyReachable(t *T, names []string) bool {
	any := false
	for _, n := range names {
		if why := s.Left[n]; why != "" {
			t.Unreached(n, why)
			continue
		}
		missing := false
		for _, need := range s.ABI.Rule(n).Needs {
			f := s.ABI.Feature(need)
			ok, err := s.Offers(f)
			if err != nil {
				t.failure = fmt.Errorf("discovery of %s: %w", need, err)
				return false
			}
			if !ok && !missing {
				missing = true
				t.notOffered(n, f)
			}
		}
		any = any || !missing
	}
	return any
}

// notOffered judges a rule by a feature that it needs and that is not offered: an implementer that is
// new enough for both, and has no reason of its own, is at fault; any other does not have it.
func (t *T) notOffered(rule string, f abi.Feature) {
	word := fmt.Sprintf("%s (bit %d of %s)", f.Name, f.Bit, f.Word)
	owed, ever := f.Owed()
	if since := t.ABI.Rule(rule).Since; CompareVersions(since, owed) > 0 {
		owed = since
	}
	i := t.Implementer
	switch {
	case !t.Direct || f.Offered != "kernel" || !ever || owed == "" || i.Version == "":
		t.Absent(rule, word+" is not offered")
	case CompareVersions(i.Version, owed) < 0:
		t.Absent(rule, fmt.Sprintf("%s is not offered, nor need it be before %s", word, owed))
	default:
		found := t.finding(rule)
		found.verdict(Fail, "the check was not run")
		found.expected = fmt.Sprintf("%s: offered, as since %s", word, owed)
		found.observed = fmt.Sprintf("%s: not offered by %s %s", word, i.Name, i.Version)
	}
}

// forgive makes a rule absent that is broken by an implementer from before what it is about, unless
// that offers a feature that is as new, which it may have from a later version.
func (s *Suite) forgive(rule abi.Rule, r Result) Result {
	i := s.Implementer
	if r.Verdict != Fail || rule.Since == "" || i.Version == "" || CompareVersions(i.Version, rule.Since) >= 0 ||
		slices.ContainsFunc(rule.Needs, func(n string) bool { return CompareVersions(s.ABI.Feature(n).Since, rule.Since) >= 0 }) {
		return r
	}
	r.Verdict, r.Reason = Absent, fmt.Sprintf("%s %s is from before what the rule is about, which came with %s", i.Name, i.Version, rule.Since)
	return r
}

// T is one run of a check.
type T struct {
	*Suite
	ctx      context.Context
	findings map[string]*finding
	failure  error
	// machine is the one that was opened last.
	machine microvm.Machine
	// after is done at the check's end, however it came about.
	after []func()
	// alive is when it was last told that the check gets on.
	alive time.Time
	// own is how many interrupts the check had CPUs take, see [T.interrupting].
	own uint64
}

// stop is what Fatal and GiveUp panic with.
type stop struct {
	err    error
	giveUp string
}

func (t *T) protect(run func(*T)) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stop:
			t.failure = p.err
			if p.giveUp != "" {
				for rule, f := range t.findings {
					if len(f.bad()) == 0 { // a rule that was seen to be broken is
						t.Unreached(rule, p.giveUp)
					}
				}
			}
		default:
			t.failure = fmt.Errorf("panic in the check: %v\n%s", p, debug.Stack())
		}
		for _, f := range t.after {
			f()
		}
		if t.failure != nil {
			// What a failed check left running must not reach the next one.
			t.machines().close()
		}
	}()
	run(t)
}

// Fatal ends the check: its equipment failed. Rules that were not judged before
// get the verdict error.
func (t *T) Fatal(err error) { panic(stop{err: err}) }

// GiveUp ends the check: none of its rules that were not seen to be broken before can be looked at here.
func (t *T) GiveUp(reason string) { panic(stop{giveUp: reason}) }

// Check ends the check if err is not nil. What the machine cannot do, or its kernel does not show, is no
// failure of it.
func (t *T) Check(doing string, err error) {
	switch {
	case errors.Is(err, errLimited):
		t.GiveUp(errLimited.Error())
	case errors.Is(err, ErrHidden):
		t.GiveUp(fmt.Sprintf("%s: %v", doing, err))
	case err != nil:
		t.Fatal(fmt.Errorf("%s: %w", doing, err))
	}
}

// Equal holds got against want for a rule. The rule passes if all that is held for
// it is equal, and at least one thing was. The formats are those of fmt for %v;
// numbers that are better read in hexadecimal come as [Hex].
func (t *T) Equal(rule, what string, want, got any) {
	t.finding(rule).compare(what, fmt.Sprint(want), fmt.Sprint(got), fmt.Sprint(want) == fmt.Sprint(got))
}

// OneOf is Equal where the ABI allows several values.
func (t *T) OneOf(rule, what string, want []int64, got int64) {
	t.finding(rule).compare(what, "one of "+fmt.Sprint(want), fmt.Sprint(got), slices.Contains(want, got))
}

// Truth is Equal for a statement.
func (t *T) Truth(rule, what string, holds bool) {
	t.finding(rule).compare(what, "holds", map[bool]string{true: "holds", false: "does not hold"}[holds], holds)
}

// Control states what must be so for the check to prove anything. The check ends as
// an error if it is not.
func (t *T) Control(what string, want, got any) {
	if fmt.Sprint(want) != fmt.Sprint(got) {
		t.Fatal(fmt.Errorf("control failed, so nothing was proved: %s: want %v, got %v", what, want, got))
	}
	text := fmt.Sprintf("%s: %v", what, got)
	for _, f := range t.findings {
		if !slices.Contains(f.controls, text) {
			f.controls = append(f.controls, text)
		}
	}
}

// ControlOf is Control for one of the check's rules: that one has the verdict error if it does not hold, the
// others are judged.
func (t *T) ControlOf(rule, what string, want, got any) {
	f := t.finding(rule)
	if fmt.Sprint(want) != fmt.Sprint(got) {
		f.verdict(Error, fmt.Sprintf("control failed, so nothing was proved: %s: want %v, got %v", what, want, got))
		return
	}
	if text := fmt.Sprintf("%s: %v", what, got); !slices.Contains(f.controls, text) {
		f.controls = append(f.controls, text)
	}
}

// Evidence keeps a raw value with the result of a rule.
func (t *T) Evidence(rule, name string, value any) { t.finding(rule).evidence[name] = value }

// Unreached says that the rule cannot be looked at here.
func (t *T) Unreached(rule, reason string) { t.finding(rule).verdict(Unreached, reason) }

// Absent says that the implementer does not offer what the rule is about.
func (t *T) Absent(rule, reason string) { t.finding(rule).verdict(Absent, reason) }

func (t *T) finding(rule string) *finding {
	f := t.findings[rule]
	if f == nil {
		panic(fmt.Sprintf("the check does not list rule %q", rule))
	}
	return f
}

// Want is a number that the rule demands.
func (t *T) Want(rule, value string) int64 { return t.ABI.Want(rule, value) }

// Open returns a machine in its state after creation. Machines of equal
// configuration are used again, after a reset, from check to check.
func (t *T) Open(c microvm.Config) microvm.Machine {
	m, err := t.machines().get(c)
	t.Check("machine", err)
	t.machine = m
	return m
}

// Until looks, pausing in between, until seen returns true or the budget of looks is
// spent. It tells whether it was seen. A pause is one millisecond, so that what is
// waited for can run; the budget counts looks, not time.
func (t *T) Until(seen func() bool) bool { return t.within(t.Looks, seen) }

// within is Until with a budget of its own.
func (t *T) within(looks int, seen func() bool) bool {
	for range max(looks, 1) {
		if seen() {
			return true
		}
		if err := context.Cause(t.ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		t.getsOn() // each of the looks may take long
	}
	return seen()
}

// getsOn is for a check that takes long to say, as often as it likes, that it got on.
func (t *T) getsOn() {
	const every = 10 * time.Second
	if t.Alive != nil && time.Since(t.alive) >= every {
		t.alive = time.Now()
		t.Alive()
	}
}

// finding gathers what a check saw about one rule.
type finding struct {
	said   Verdict // Absent or Unreached, Error for a control of its own, or Fail before the check was begun
	reason string
	// expected and observed are set with Fail.
	expected, observed string
	compared           []comparison
	controls           []string
	evidence           map[string]any
}

type comparison struct {
	what, want, got string
	ok              bool
}

func (f *finding) verdict(v Verdict, reason string) {
	if f.said == "" {
		f.said, f.reason = v, reason
	}
}

// compare keeps a comparison; the same one again and again counts once.
func (f *finding) compare(what, want, got string, ok bool) {
	if c := (comparison{what, want, got, ok}); !slices.Contains(f.compared, c) {
		f.compared = append(f.compared, c)
	}
}

// bad are the comparisons that do not hold.
func (f *finding) bad() []comparison {
	return slices.DeleteFunc(slices.Clone(f.compared), func(c comparison) bool { return c.ok })
}

func (f *finding) result(rule abi.Rule, failure error) Result {
	r := Result{Rule: rule.ID, Side: rule.Side, Evidence: f.evidence}
	if len(f.controls) > 0 {
		r.Evidence["control"] = f.controls
	}
	if len(f.compared) > 1 {
		var seen []string
		for _, c := range f.compared {
			seen = append(seen, c.what+": "+c.got)
		}
		r.Evidence["seen"] = seen
	}
	bad := f.bad()
	switch {
	case f.said != "":
		r.Verdict, r.Reason, r.Expected, r.Observed = f.said, f.reason, f.expected, f.observed
	case failure != nil:
		r.Verdict, r.Reason = Error, failure.Error()
	case len(f.compared) == 0:
		r.Verdict, r.Reason = Error, "the check did not look at the rule"
	case len(bad) > 0:
		r.Verdict = Fail
		r.Expected, r.Observed = summary(bad, func(c comparison) string { return c.want }), summary(bad, func(c comparison) string { return c.got })
		if n := len(f.compared) - len(bad); n > 0 {
			r.Reason = fmt.Sprintf("%d of %d comparisons hold", n, len(f.compared))
		}
	default:
		r.Verdict = Pass
		r.Expected, r.Observed = summary(f.compared, func(c comparison) string { return c.want }), summary(f.compared, func(c comparison) string { return c.got })
	}
	return r
}

// summary renders one side of comparisons: cases with the same value together, the
// first few by name.
func summary(cs []comparison, side func(comparison) string) string {
	var values []string
	cases := map[string][]string{}
	for _, c := range cs {
		v := side(c)
		if cases[v] == nil {
			values = append(values, v)
		}
		cases[v] = append(cases[v], c.what)
	}
	const named = 4
	var out []string
	for i, v := range values {
		if i == named {
			out = append(out, fmt.Sprintf("and %d other values", len(values)-named))
			break
		}
		what := cases[v]
		if len(what) > named {
			what = append(slices.Clone(what[:named-1]), fmt.Sprintf("%d more", len(what)-named+1))
		}
		out = append(out, strings.Join(what, ", ")+": "+v)
	}
	return strings.Join(out, "; ")
}

// Hex prints as a hexadecimal number.
type Hex uint64

// String implements fmt.Stringer.
func (h Hex) String() string { return fmt.Sprintf("%#x", uint64(h)) }

// pool keeps machines by configuration. Making one costs a good part of what a check
// costs, a reset next to nothing.
type pool struct {
	open     func(microvm.Config) (microvm.Machine, error)
	machines map[string]microvm.Machine
}

// machines is the pool of the suite, which its changed copies share.
func (s *Suite) machines() *pool {
	if s.pool == nil {
		s.pool = &pool{open: s.Open, machines: map[string]microvm.Machine{}}
	}
	return s.pool
}

func (p *pool) get(c microvm.Config) (microvm.Machine, error) {
	key := c.Key()
	if m := p.machines[key]; m != nil {
		if err := m.Reset(); err != nil {
			return nil, errors.Join(fmt.Errorf("reset: %w", err), p.drop(key))
		}
		return m, nil
	}
	m, err := p.open(c)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	p.machines[key] = m
	return m, nil
}

func (p *pool) drop(key string) error {
	m := p.machines[key]
	delete(p.machines, key)
	return m.Close()
}

// close closes all machines. An error of closing has no bearing on a verdict that
// was given before.
func (p *pool) close() {
	for key := range maps.Clone(p.machines) {
		_ = p.drop(key)
	}
}

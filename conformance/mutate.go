package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pvabi/abi"
)

// What a check would notice: the checks are held against tables with one value changed. The
// implementer is the same, so that a rule that depends on the value has to fail.

// Fate is what became of a mutation of a platform's table.
type Fate string

// The fates.
const (
	// Begun says that checks are about to be run for the mutation.
	Begun Fate = "begun"
	// Killed says that a rule failed that holds with the table as it is.
	Killed Fate = "killed"
	// Survived says that no rule failed, and nobody knows why.
	Survived Fate = "survived"
	// Equivalent says that no rule failed, and that a [Spared] says why none can.
	Equivalent Fate = "equivalent"
	// Unread says that no rule failed, as none that holds here depends on that part of the table.
	Unread Fate = "unread"
	// Lost says that the equipment failed.
	Lost Fate = "lost"
)

// Fates lists the fates of finished mutations in the order in which totals are printed.
var Fates = []Fate{Killed, Equivalent, Unread, Survived, Lost}

// Mutated is a mutation and what became of it.
type Mutated struct {
	abi.Mutation
	// Number is the mutation's in the list of abi.Platform.Mutations, from 1.
	Number int  `json:"number"`
	Fate   Fate `json:"fate"`
	// Rule is the one that failed, by its id, and what it then said. Verdict is Error where the
	// check could not even be carried out: its control failed.
	Rule     string  `json:"rule,omitempty"`
	Verdict  Verdict `json:"verdict,omitempty"`
	Expected string  `json:"expected,omitempty"`
	Observed string  `json:"observed,omitempty"`
	// Reason says why the fate is not Killed, or what an error is.
	Reason string `json:"reason,omitempty"`
	// Tried is how many checks were run.
	Tried int `json:"tried"`
	// Seconds is how long they took.
	Seconds float64 `json:"seconds"`
}

// Mutate runs the suites of a target's checks as Run does, and then for each mutation of the
// table, until one of its rules fails. from is the Number of the first mutation to look at. It tells
// result of what the checks find with the table as it is, and mutated of each mutation twice: when it
// begins, and what became of it.
//
// Checks that read the mutation's row come first, those before that read no more than it, the quick ones
// before the slow ones; then, if none of these notices, all others. Mutations that no check is known to depend on, and those that spared has a reason for, are
// made all at once, and told apart only if that is noticed. After each kill the check that made it
// is run with the table as it is: it has to pass again.
func Mutate(ctx context.Context, suites []*Suite, from int, spared func(abi.Mutation) string, result func(Result), mutated func(Mutated)) error {
	m := &mutator{ctx: ctx, spared: spared, mutated: mutated}
	for _, s := range suites {
		pool := s.machines()
		defer pool.close()
		for _, c := range s.Checks {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			m.checks = append(m.checks, trace(ctx, s, c, result))
		}
		for _, rule := range s.rest() {
			result(Result{Rule: rule.ID, Side: rule.Side, Verdict: Unreached, Reason: s.Rest})
		}
	}
	m.checks = slices.DeleteFunc(m.checks, func(c *traced) bool { return len(c.passed) == 0 })
	slices.SortStableFunc(m.checks, func(a, b *traced) int { return cmp.Compare(a.seconds, b.seconds) })
	return m.run(suites[0].ABI.Mutations(), from)
}

// traced is a check that was run with the table as it is.
type traced struct {
	suite  *Suite
	check  Check
	passed []string // the rules that it passed, by name
	// read are the rows that it asked the table for.
	read    map[string]bool
	seconds float64
}

func trace(ctx context.Context, s *Suite, c Check, result func(Result)) *traced {
	t := &traced{suite: s, check: c, read: map[string]bool{}}
	watched := *s
	var mu sync.Mutex
	watched.ABI = s.ABI.Watched(func(row string) {
		mu.Lock()
		defer mu.Unlock()
		t.read[row] = true
	})
	begin := time.Now()
	results := watched.run(ctx, c)
	t.seconds = time.Since(begin).Seconds()
	for _, r := range results {
		if r.Verdict == Pass || r.Verdict == Mended {
			t.passed = append(t.passed, strings.TrimPrefix(r.Rule, s.ABI.Name+"/"))
		}
		result(r)
	}
	return t
}

// reads tells how closely the check asked for the row that a value is in: the length of the row's path,
// 0 for not at all. What the platform's kick, wait and so on are is in every check.
func (t *traced) reads(path string) int {
	closest := 0
	if strings.HasPrefix(path, "scheduling/") {
		closest = 1
	}
	for row := range t.read {
		if strings.HasPrefix(path, row+"/") {
			closest = max(closest, len(row))
		}
	}
	return closest
}

type mutator struct {
	ctx     context.Context
	checks  []*traced // those that passed any rule
	spared  func(abi.Mutation) string
	mutated func(Mutated)
}

func (m *mutator) run(all []abi.Mutation, from int) error {
	var quiet []*Mutated // of which nothing is expected
	for i, change := range all {
		f := &Mutated{Mutation: change, Number: i + 1}
		var first, others []*traced
		for _, c := range m.checks {
			if c.reads(change.Path) > 0 {
				first = append(first, c)
			} else {
				others = append(others, c)
			}
		}
		slices.SortStableFunc(first, func(a, b *traced) int { return cmp.Compare(b.reads(change.Path), a.reads(change.Path)) })
		switch why := m.spared(change); {
		case why != "":
			f.Fate, f.Reason = Equivalent, why
		case len(first) == 0:
			f.Fate, f.Reason = Unread, "no rule that holds here asks for it"
		}
		if f.Fate != "" {
			quiet = append(quiet, f)
			continue
		}
		if f.Number < from {
			continue
		}
		f.Fate, f.Reason = Survived, "no rule notices it"
		if err := m.try([]*Mutated{f}, first); err != nil {
			return err
		}
		if f.Fate == Survived {
			if err := m.try([]*Mutated{f}, others); err != nil {
				return err
			}
		}
		m.mutated(*f)
	}
	return m.sift(quiet)
}

// sift makes mutations of which nothing is expected, as many at once as there are different values.
func (m *mutator) sift(quiet []*Mutated) error {
	for left := quiet; len(left) > 0; {
		var now, later []*Mutated
		seen := map[string]bool{}
		for _, f := range left {
			if seen[f.Path] {
				later = append(later, f)
			} else {
				now = append(now, f)
			}
			seen[f.Path] = true
		}
		if err := m.halve(now, m.checks); err != nil {
			return err
		}
		left = later
	}
	for _, f := range quiet {
		m.mutated(*f)
	}
	return nil
}

// halve looks for those of some mutations that are noticed by one of some checks.
func (m *mutator) halve(some []*Mutated, checks []*traced) error {
	for len(checks) > 0 {
		together := make([]*Mutated, len(some))
		for i, f := range some {
			copied := *f
			together[i] = &copied
		}
		noticed, err := m.tryOne(together, checks[0])
		switch {
		case err != nil:
			return err
		case !noticed:
		case len(some) == 1:
			*some[0] = *together[0]
			return nil
		default:
			// Each half is held against the checks that are left, this one among them.
			if err := m.halve(some[:len(some)/2], checks); err != nil {
				return err
			}
			return m.halve(some[len(some)/2:], checks)
		}
		checks = checks[1:]
	}
	return nil
}

// maxErrors is after how many checks that could not be carried out with a mutation the search for one that
// says fail ends.
const maxErrors = 3

// try runs checks with mutations until one fails.
func (m *mutator) try(some []*Mutated, checks []*traced) error {
	var unable *Mutated
	errors := 0
	for _, c := range checks {
		noticed, err := m.tryOne(some, c)
		if err != nil {
			return err
		}
		f := some[0]
		if !noticed {
			continue
		}
		if f.Verdict != Error {
			return nil
		}
		if unable == nil {
			copied := *f
			unable = &copied
		}
		if errors++; errors == maxErrors {
			break
		}
		f.Fate, f.Reason = Survived, ""
	}
	if unable != nil {
		unable.Tried, unable.Seconds = some[0].Tried, some[0].Seconds
		*some[0] = *unable
	}
	return nil
}

// tryOne runs a check with mutations, and again with the table as it is if that was noticed. What it finds
// is in each of them.
func (m *mutator) tryOne(some []*Mutated, c *traced) (noticed bool, err error) {
	begun := *some[0]
	begun.Fate = Begun
	m.mutated(begun)
	mutant := *c.suite
	mutant.ABI = c.suite.ABI.Clone()
	for _, f := range some {
		if err := mutant.ABI.Set(f.Path, f.Is); err != nil {
			return false, fmt.Errorf("change the table: %w", err)
		}
	}
	// What is wrong on purpose is no deviation, and need not be waited for long.
	mutant.Deviations = nil
	mutant.Looks = max(c.suite.Looks/10, min(c.suite.Looks, 100))
	same := mutant
	same.ABI = c.suite.ABI
	begin := time.Now()
	worst := m.worst(&mutant, c)
	// What fails of the equipment fails once, what the mutation makes impossible again.
	if worst != nil && worst.Verdict == Error && m.worst(&same, c) == nil {
		worst = m.worst(&mutant, c)
	}
	if worst != nil {
		if still := m.worst(&same, c); still != nil {
			worst.Reason = fmt.Sprintf("%s has the verdict %s with the table as it is, too: %s %s", still.Rule, still.Verdict, still.Observed, still.Reason)
			for _, f := range some {
				f.Fate = Lost
			}
		}
	}
	if err := context.Cause(m.ctx); err != nil {
		return false, err
	}
	for _, f := range some {
		f.Tried++
		f.Seconds += time.Since(begin).Seconds()
		if worst == nil {
			continue
		}
		if f.Fate != Lost {
			f.Fate = Killed
		}
		f.Rule, f.Verdict, f.Expected, f.Observed, f.Reason = worst.Rule, worst.Verdict, worst.Expected, worst.Observed, worst.Reason
	}
	return worst != nil, nil
}

// worst runs a check and returns the first result that says fail of a rule that holds, or else the first
// that says error, or nil.
func (m *mutator) worst(s *Suite, c *traced) *Result {
	var worst *Result
	for _, r := range s.run(m.ctx, c.check) {
		if !slices.Contains(c.passed, strings.TrimPrefix(r.Rule, s.ABI.Name+"/")) {
			continue
		}
		if r.Verdict == Fail || r.Verdict == Error && worst == nil {
			worst = &r
		}
		if r.Verdict == Fail {
			break
		}
	}
	return worst
}

// Spared says of values of a platform's tables why no check can notice that they are others.
type Spared struct {
	// Pattern is of paths, or of PATH=NUMBER where it is about one of the changes; a star stands for
	// anything.
	Pattern string
	Why     string
	// Targets are those that it is said of; none for all.
	Targets []string
}

// sparedBy lists what is spared, by platform.
var sparedBy = map[string][]Spared{
	"x86-kvm":       x86KVMSpared,
	"x86-xen":       xenSpared,
	"loongarch-kvm": loongArchSpared,
	"powerpc-papr":  paprSpared,
	"s390":          s390Spared,
}

// SparedOf lists what is spared of a platform at a target; at none, what is at every target.
func SparedOf(platform, target string) []Spared {
	return slices.DeleteFunc(slices.Clone(sparedBy[platform]), func(s Spared) bool {
		return len(s.Targets) > 0 && !slices.Contains(s.Targets, target)
	})
}

// WhySpared says why no check of a platform at a target can notice a mutation; empty if one should.
func WhySpared(platform, target string, m abi.Mutation) string {
	for _, s := range SparedOf(platform, target) {
		if s.Matches(m) {
			return s.Why
		}
	}
	return ""
}

// Matches tells whether a mutation is one of the pattern's.
func (s Spared) Matches(m abi.Mutation) bool {
	return like(s.Pattern, m.Path) || like(s.Pattern, fmt.Sprintf("%s=%d", m.Path, m.Is))
}

// like tells whether a text is of a pattern whose stars stand for anything.
func like(pattern, text string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return text == pattern
	}
	if !strings.HasPrefix(text, first) {
		return false
	}
	for text = text[len(first):]; ; text = text[1:] {
		if like(rest, text) {
			return true
		}
		if text == "" {
			return false
		}
	}
}

package conformance

import (
	"fmt"
	"io"
	"strings"

	"pvabi/abi"
)

// KTAP writes a report in the Kernel Test Anything Protocol, version 1, while it
// comes in: one test per target, one subtest per rule. Directives are those of the
// kernel's kselftest: SKIP for what was not looked at, XFAIL for a known deviation,
// XPASS for one that no longer shows, ERROR for failed equipment.
type KTAP struct {
	w      io.Writer
	target int
	rule   int
	bad    bool
	totals map[Verdict]int
	err    error
}

// NewKTAP writes the header for so many targets.
func NewKTAP(w io.Writer, targets int) *KTAP {
	k := &KTAP{w: w, totals: map[Verdict]int{}}
	k.line("", "KTAP version 1")
	k.line("", "1..%d", targets)
	return k
}

const ktapIndent = "    "

// Begin starts a target with the rules that are planned for it.
func (k *KTAP) Begin(target string, rules []abi.Rule) {
	k.target, k.rule, k.bad = k.target+1, 0, false
	k.line(ktapIndent, "KTAP version 1")
	k.line(ktapIndent, "# Subtest: %s", target)
	k.line(ktapIndent, "1..%d", len(rules))
}

// Comment writes a diagnostic line.
func (k *KTAP) Comment(format string, args ...any) {
	for _, l := range strings.Split(fmt.Sprintf(format, args...), "\n") {
		k.line(ktapIndent, "# %s", l)
	}
}

// Result writes the line of one rule.
func (k *KTAP) Result(r Result) {
	k.rule++
	k.totals[r.Verdict]++
	ok, text := "ok", ""
	switch r.Verdict {
	case Pass:
		text = "pass"
	case Fail:
		ok, text = "not ok", fmt.Sprintf("fail: expected %s; observed %s", r.Expected, r.Observed)
	case Deviates:
		text = fmt.Sprintf("XFAIL deviates: %s; observed %s", r.Deviation, r.Observed)
	case Mended:
		text = "XPASS mended: " + r.Deviation
	case Absent, Unreached:
		text = fmt.Sprintf("SKIP %s: %s", r.Verdict, r.Reason)
	case Error:
		ok, text = "not ok", "ERROR "+r.Reason
	}
	k.bad = k.bad || ok != "ok"
	k.line(ktapIndent, "%s %d %s # %s", ok, k.rule, r.Rule, oneLine(text))
}

// EndTarget closes a target. A target that could not run at all gives its reason.
func (k *KTAP) EndTarget(run *Run) {
	switch {
	case run.Unreached != "":
		k.line("", "ok %d %s # SKIP unreached: %s", k.target, run.Target, oneLine(run.Unreached))
	case run.Error != "":
		k.line("", "not ok %d %s # ERROR %s", k.target, run.Target, oneLine(run.Error))
	case k.bad:
		k.line("", "not ok %d %s", k.target, run.Target)
	default:
		k.line("", "ok %d %s", k.target, run.Target)
	}
}

// Skip reports a target that cannot run here.
func (k *KTAP) Skip(run *Run) {
	k.target++
	k.EndTarget(run)
}

// Portable writes the portable questions with the verdicts of all targets as diagnostic lines.
func (k *KTAP) Portable(r *Report) {
	var b strings.Builder
	if err := r.WritePortable(&b); err != nil && k.err == nil {
		k.err = err
	}
	for l := range strings.Lines(b.String()) {
		k.line("", "# %s", strings.TrimRight(l, "\n"))
	}
}

// End writes the totals, which kselftest calls by other names, and returns the
// first error of writing.
func (k *KTAP) End() error {
	t := k.totals
	k.line("", "# Totals: pass:%d fail:%d xfail:%d xpass:%d skip:%d error:%d",
		t[Pass], t[Fail], t[Deviates], t[Mended], t[Absent]+t[Unreached], t[Error])
	var parts []string
	for _, v := range Verdicts {
		parts = append(parts, fmt.Sprintf("%d %s", t[v], v))
	}
	k.line("", "# pvabi: %s", strings.Join(parts, ", "))
	return k.err
}

func (k *KTAP) line(indent, format string, args ...any) {
	if _, err := fmt.Fprintf(k.w, indent+format+"\n", args...); err != nil && k.err == nil {
		k.err = err
	}
}

// oneLine keeps text within its line and its place behind the "#".
func oneLine(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "#", "no. ")
}

package conformance

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// FatesOf counts the mutations of a run by fate.
func (r *Run) FatesOf() map[Fate]int {
	out := map[Fate]int{}
	for _, m := range r.Mutated {
		out[m.Fate]++
	}
	return out
}

// MutationStatus is the exit status that mutations amount to: ExitBroken where one survived,
// ExitFailed where the equipment failed, a rule that is broken on its own, or nothing was mutated.
func (r *Report) MutationStatus(named bool) int {
	status, any := ExitConforms, false
	for _, run := range r.Runs {
		fates := run.FatesOf()
		any = any || len(run.Mutated) > 0
		switch {
		case run.Error != "", named && run.Unreached != "", fates[Lost] > 0:
			status = ExitFailed
		case fates[Survived] > 0:
			status = max(status, ExitBroken)
		}
	}
	if !any {
		return ExitFailed
	}
	return status
}

// String says in one line what became of the mutation.
func (m Mutated) String() string {
	text := fmt.Sprintf("%-11s%s: %d -> %d", m.Fate, m.Path, m.Was, m.Is)
	switch {
	case m.Rule != "" && m.Verdict == Fail:
		text += fmt.Sprintf("  by %s: want %s, got %s", m.Rule, m.Expected, m.Observed)
	case m.Rule != "":
		text += fmt.Sprintf("  by %s, which cannot be looked at: %s", m.Rule, m.Reason)
	case m.Reason != "":
		text += "  " + m.Reason
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// WriteMutated writes what became of each mutation, a line each, and totals for each target.
func WriteMutated(w io.Writer, r *Report) error {
	var b strings.Builder
	for _, run := range r.Runs {
		for _, m := range run.Mutated {
			fmt.Fprintf(&b, "%s  %s\n", run.Target, m)
		}
		why := run.Error + run.Unreached
		if why != "" {
			why = "; " + why
		}
		fmt.Fprintf(&b, "%s: %d mutations: %s%s\n", run.Target, len(run.Mutated), fates(run.FatesOf()), why)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func fates(count map[Fate]int) string {
	var out []string
	for _, f := range Fates {
		out = append(out, fmt.Sprintf("%d %s", count[f], f))
	}
	return strings.Join(out, ", ")
}

// WriteMutatedMarkdown writes totals for each target, what survived, and why what is equivalent is so.
func WriteMutatedMarkdown(w io.Writer, r *Report) error {
	var b strings.Builder
	head := []string{"target", "implementer", "mutations"}
	for _, f := range Fates {
		head = append(head, string(f))
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, run := range r.Runs {
		cells := []string{"`" + run.Target + "`", strings.TrimSpace(run.Implementer.Name + " " + run.Implementer.Version), fmt.Sprint(len(run.Mutated))}
		for _, f := range Fates {
			cells = append(cells, fmt.Sprint(run.FatesOf()[f]))
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	for _, run := range r.Runs {
		list(&b, run, Survived, "No rule of `"+run.Target+"` notices these")
		list(&b, run, Lost, "With `"+run.Target+"` the equipment failed at these")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func list(b *strings.Builder, run *Run, fate Fate, title string) {
	some := slices.DeleteFunc(slices.Clone(run.Mutated), func(m Mutated) bool { return m.Fate != fate })
	if len(some) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n", title)
	for _, m := range some {
		fmt.Fprintf(b, "- `%s`: %d, changed to %d; %s\n", m.Path, m.Was, m.Is, strings.ReplaceAll(m.Reason, "\n", " "))
	}
}

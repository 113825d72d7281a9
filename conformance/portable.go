package conformance

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"pvabi/abi"
)

// WritePortable writes the portable questions, one a line, and what each target that was asked any of
// them answers: the verdict, "silent" where the ABI of its platform has no rule, and "-" where the target
// has no result. It writes nothing if no target was asked.
func (r *Report) WritePortable(w io.Writer) error {
	platforms := map[string]*abi.Platform{}
	for _, p := range abi.Platforms() {
		platforms[p.Name] = p
	}
	answer := func(run *Run, question string) string {
		p := platforms[run.Platform]
		if p == nil {
			return "-"
		}
		for _, res := range run.Results {
			if res.Rule == p.Name+"/"+question {
				return string(res.Verdict)
			}
		}
		if p.Answer(question).Rule == nil {
			return "silent"
		}
		return "-"
	}
	questions := abi.Questions()
	asked := func(run *Run) bool {
		return slices.ContainsFunc(questions, func(q abi.Question) bool { return !slices.Contains([]string{"silent", "-"}, answer(run, q.Name)) })
	}
	runs := slices.DeleteFunc(slices.Clone(r.Runs), func(run *Run) bool { return !asked(run) })
	if len(runs) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(first string, cell func(*Run) string) {
		cells := []string{first}
		for _, run := range runs {
			cells = append(cells, cell(run))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	row("question", func(run *Run) string { return run.Target })
	for _, q := range questions {
		row(q.Name, func(run *Run) string { return answer(run, q.Name) })
	}
	return t.Flush()
}

// Difference is one rule in which two implementers of one platform differ.
type Difference struct {
	Rule string `json:"rule"`
	// Verdicts and Observed are what was found of each of the two.
	Verdicts [2]Verdict `json:"verdicts"`
	Observed [2]string  `json:"observed"`
	// Deviations are the ids of the deviations that explain a verdict, empty for none.
	Deviations [2]string `json:"deviations"`
}

// Comparison is two implementers of one platform, side by side.
type Comparison struct {
	Platform string `json:"platform"`
	// Targets are those at which the implementers were looked at.
	Targets      [2]string      `json:"targets"`
	Implementers [2]Implementer `json:"implementers"`
	// Both is how many rules both were looked at for; of others nothing is said.
	Both int `json:"both"`
	// Differ has the rules whose verdicts differ, or where the ABI leaves more than one thing open and
	// they do different ones.
	Differ []Difference `json:"differ"`
	// Silent are the portable questions to which the platform's ABI has no rule: there they may differ.
	Silent []string `json:"silent"`
}

// Implementers puts each two implementers of one platform side by side, in the order of their runs. Rules
// of the guest's side are left: they are not theirs.
func (r *Report) Implementers() []Comparison {
	var out []Comparison
	for i, a := range r.Runs {
		for _, b := range r.Runs[i+1:] {
			if a.Platform != b.Platform || a.Implementer == b.Implementer {
				continue
			}
			if c := sideBySide(a, b); c.Both > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}

func sideBySide(a, b *Run) Comparison {
	c := Comparison{Platform: a.Platform, Targets: [2]string{a.Target, b.Target}, Implementers: [2]Implementer{a.Implementer, b.Implementer}}
	for _, x := range a.Results {
		i := slices.IndexFunc(b.Results, func(y Result) bool { return y.Rule == x.Rule })
		if i < 0 || x.Side != abi.Hypervisor {
			continue
		}
		y := b.Results[i]
		answered := func(v Verdict) bool { return v.Looked() || v == Absent }
		if !answered(x.Verdict) || !answered(y.Verdict) {
			continue
		}
		c.Both++
		if x.Verdict != y.Verdict || x.Observed != y.Observed {
			c.Differ = append(c.Differ, Difference{
				Rule: x.Rule, Verdicts: [2]Verdict{x.Verdict, y.Verdict},
				Observed: [2]string{x.Observed, y.Observed}, Deviations: [2]string{x.Deviation, y.Deviation},
			})
		}
	}
	// Other verdicts come before other ways to keep a rule.
	slices.SortStableFunc(c.Differ, func(x, y Difference) int {
		return int(bit(x.Verdicts[0] == x.Verdicts[1]) - bit(y.Verdicts[0] == y.Verdicts[1]))
	})
	for _, p := range abi.Platforms() {
		if p.Name == a.Platform {
			for _, s := range p.Silences {
				c.Silent = append(c.Silent, s.Question)
			}
		}
	}
	return c
}

// WriteComparisons lists comparisons for people.
func WriteComparisons(w io.Writer, all []Comparison) error {
	var b strings.Builder
	for i, c := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		name := func(i int) string {
			return fmt.Sprintf("%s (%s)", strings.TrimSpace(c.Implementers[i].Name+" "+c.Implementers[i].Version), c.Targets[i])
		}
		fmt.Fprintf(&b, "%s: %s and %s differ in %d of %d rules that both were asked about\n", c.Platform, name(0), name(1), len(c.Differ), c.Both)
		for _, d := range c.Differ {
			fmt.Fprintf(&b, "  %s\n", d.Rule)
			for i := range d.Verdicts {
				text := strings.Join(strings.Fields(d.Observed[i]), " ")
				if d.Deviations[i] != "" {
					text = d.Deviations[i] + ": " + text
				}
				fmt.Fprintf(&b, "    %-9s %s: %s\n", d.Verdicts[i], c.Targets[i], text)
			}
		}
		if len(c.Silent) > 0 {
			fmt.Fprintf(&b, "  The ABI says nothing about %s.\n", strings.Join(c.Silent, ", "))
		}
	}
	if len(all) == 0 {
		b.WriteString("no two implementers of one platform\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

package conformance

import (
	"fmt"
	"io"
	"strings"
)

// WriteSummary writes what a person wants to know first: of each target who was looked at, how many
// rules have which verdict, and each rule that is broken or could not be looked at for a fault.
func (r *Report) WriteSummary(w io.Writer) error {
	var b strings.Builder
	for _, run := range r.Runs {
		who := strings.TrimSpace(run.Implementer.Name + " " + run.Implementer.Version)
		if run.QEMU.Version != "" {
			who += ", QEMU " + run.QEMU.Version
		}
		fmt.Fprintf(&b, "%s: %s, %.0f s\n", run.Target, who, run.Seconds.Total)
		totals := run.Totals()
		var counts []string
		for _, v := range Verdicts {
			if totals[v] > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", totals[v], v))
			}
		}
		fmt.Fprintf(&b, "  %s\n", strings.Join(counts, ", "))
		switch {
		case run.Error != "":
			fmt.Fprintf(&b, "  error      %s\n", oneLine(run.Error))
			for _, line := range run.Console {
				fmt.Fprintf(&b, "             | %s\n", line)
			}
			continue
		case run.Unreached != "":
			fmt.Fprintf(&b, "  unreached  %s\n", oneLine(run.Unreached))
			continue
		}
		for _, res := range run.Results {
			switch res.Verdict {
			case Fail:
				fmt.Fprintf(&b, "  fail       %s: expected %s; observed %s\n", res.Rule, oneLine(res.Expected), oneLine(res.Observed))
			case Error:
				fmt.Fprintf(&b, "  error      %s: %s\n", res.Rule, oneLine(res.Reason))
			}
		}
		writeReasons(&b, run)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeReasons writes why rules are unreached or absent, each reason once.
func writeReasons(b *strings.Builder, run *Run) {
	for _, v := range []Verdict{Unreached, Absent} {
		count := map[string]int{}
		var reasons []string
		for _, res := range run.Results {
			if res.Verdict == v {
				if count[res.Reason] == 0 {
					reasons = append(reasons, res.Reason)
				}
				count[res.Reason]++
			}
		}
		for _, reason := range reasons {
			fmt.Fprintf(b, "  %-10s %d: %s\n", v, count[reason], oneLine(reason))
		}
	}
}

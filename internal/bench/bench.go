// Package bench turns what runs have measured into statistics, tables and the format of Go's
// benchmarks. The statistics are those of golang.org/x/perf.
package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"pvabi/conformance"
)

// Confidence is the level of all intervals.
const Confidence = 0.95

// Row is what a cost came to with one kind of sharing.
type Row struct {
	Cost, Sharing string
	N             int // values
	// Of the values, in nanoseconds. SD is the standard deviation, Median has its interval.
	Mean, SD float64
	Median   benchmath.Summary
	// Against compares with the same cost without sharing; nil where there is nothing to compare.
	Against *Comparison
	// Seed is the ratio that was published for the same cost; 0 for none.
	Seed float64
}

// Comparison is one sample held against another that was taken together with it, value by value.
type Comparison struct {
	// Ratio is the median of the ratios of the values of one round.
	Ratio benchmath.Summary
	// Test tells whether the two differ.
	Test benchmath.Comparison
}

// Significant tells whether the difference is not to be put down to chance.
func (c Comparison) Significant() bool { return c.Test.P < c.Test.Alpha }

// Compare compares two samples of equal length whose values of one position were taken in one round.
func Compare(base, other []float64) Comparison {
	ratios := make([]float64, len(base))
	for i := range base {
		ratios[i] = other[i] / base[i]
	}
	return Comparison{
		benchmath.AssumeNothing.Summary(sample(ratios), Confidence),
		benchmath.AssumeNothing.Compare(sample(base), sample(other)),
	}
}

func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(values, &benchmath.DefaultThresholds)
}

// Rows are the rows of a run, in the order in which it measured. Each cost is compared with the first
// of its rows.
func Rows(run *conformance.Run) []Row {
	first := map[string][]float64{}
	var out []Row
	for _, m := range run.Measured {
		if m.Failed != "" {
			continue
		}
		s := stats.Sample{Xs: m.Nanoseconds}
		r := Row{
			Cost: m.Cost, Sharing: m.Sharing, N: len(m.Nanoseconds),
			Mean: s.Mean(), SD: s.StdDev(),
			Median: benchmath.AssumeNothing.Summary(sample(m.Nanoseconds), Confidence),
		}
		if base, ok := first[m.Cost]; ok {
			c := Compare(base, m.Nanoseconds)
			r.Against = &c
			r.Seed = exits2012[exit2012{run.Platform, m.Cost, m.Sharing}]
		} else {
			first[m.Cost] = m.Nanoseconds
		}
		out = append(out, r)
	}
	return out
}

// WriteGo writes what runs have measured as Go writes benchmarks, one line for each value, with the
// parts of a name as benchstat takes them: benchstat -col /areas compares as the tables do.
func WriteGo(w io.Writer, runs []*conformance.Run) error {
	out := benchfmt.NewWriter(w)
	for _, run := range runs {
		config := [][2]string{
			{"goos", "linux"}, {"goarch", run.Guest.GOARCH}, {"pkg", "pvabi"},
			{"implementer", run.Implementer.Name + " " + run.Implementer.Version},
			{"guest", run.Guest.Release}, {"qemu", run.QEMU.Version},
		}
		for _, m := range run.Measured {
			name := fmt.Sprintf("Exit/target=%s/op=%s/areas=%s-%d", run.Target, m.Cost, m.Sharing, max(run.Guest.CPUs, 1))
			for _, v := range m.Nanoseconds {
				r := &benchfmt.Result{
					Name: benchfmt.Name(name), Iters: int(m.Turns),
					Values: []benchfmt.Value{{Value: v * 1e-9, Unit: "sec/op", OrigValue: v, OrigUnit: "ns/op"}},
				}
				for _, c := range config {
					r.Config = append(r.Config, benchfmt.Config{Key: c[0], Value: []byte(c[1]), File: true})
				}
				if err := out.Write(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Warning is what a reader of times has to know first.
const Warning = "Processors are emulated by QEMU TCG: a time means nothing by itself. Compare rows of one operation, which were\n" +
	"measured in turn in one boot."

// WriteTables writes a table for each run that has measured something, and why there is none for the
// others, as Markdown.
func WriteTables(w io.Writer, runs []*conformance.Run) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", Warning)
	for _, run := range runs {
		fmt.Fprintf(&b, "\n## %s: %s\n\n", run.Target, strings.TrimSpace(run.Implementer.Name+" "+run.Implementer.Version))
		if len(run.Measured) == 0 {
			fmt.Fprintf(&b, "Nothing was measured: %s\n", cmp.Or(run.Error, run.Unreached, "the target measures nothing"))
			continue
		}
		fmt.Fprintf(&b, "Guest %s with %d CPUs, QEMU %s\n", run.Guest.Release, run.Guest.CPUs, run.QEMU.Version)
		for _, n := range run.Notes {
			fmt.Fprintf(&b, "\nNote: %s\n", n)
		}
		b.WriteByte('\n')
		table(&b, header, cells(Rows(run)))
		for _, m := range run.Measured {
			switch {
			case m.Failed != "":
				fmt.Fprintf(&b, "\n%s, areas %s: not measured: %s\n", m.Cost, m.Sharing, m.Failed)
			case m.Retaken > 0:
				fmt.Fprintf(&b, "\n%s, areas %s: %d values were taken again, as a CPU waited in vain.\n", m.Cost, m.Sharing, m.Retaken)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var header = []string{"operation", "areas", "n", "mean ns", "sd", "median ns", "95 %", "ratio", "95 %", "p", "in 2012"}

// cells are rows as a table has them. Columns that no row has anything for stay empty.
func cells(rows []Row) (out [][]string) {
	for _, r := range rows {
		c := make([]string, len(header))
		copy(c, []string{r.Cost, r.Sharing, strconv.Itoa(r.N), number(r.Mean), number(r.SD), number(r.Median.Center), interval(r.Median, number)})
		if r.Against != nil {
			p := strconv.FormatFloat(r.Against.Test.P, 'f', 3, 64)
			if r.Against.Significant() {
				p += " *"
			}
			copy(c[7:], []string{ratio(r.Against.Ratio.Center), interval(r.Against.Ratio, ratio), p})
		}
		if r.Seed != 0 {
			c[10] = ratio(r.Seed)
		}
		out = append(out, c)
	}
	return out
}

// table writes a table of Markdown that is one for the eye, too: the first two columns are text, the
// others numbers. A column without anything in it is left out.
func table(b *strings.Builder, header []string, rows [][]string) {
	width := make([]int, len(header))
	for i := range header {
		for _, r := range rows {
			if r[i] != "" {
				width[i] = max(width[i], len(header[i]), utf8.RuneCountInString(r[i]), 2)
			}
		}
	}
	line := func(cells []string) {
		for i, c := range cells {
			switch {
			case width[i] == 0:
			case i < 2:
				fmt.Fprintf(b, "| %-*s ", width[i], c)
			default:
				fmt.Fprintf(b, "| %*s ", width[i], c)
			}
		}
		b.WriteString("|\n")
	}
	line(header)
	rule := make([]string, len(header))
	for i, w := range width {
		switch {
		case w == 0:
		case i < 2:
			rule[i] = strings.Repeat("-", w)
		default:
			rule[i] = strings.Repeat("-", w-1) + ":"
		}
	}
	line(rule)
	for _, r := range rows {
		line(r)
	}
}

// number has three significant digits or more, ratio is one in which two can be told apart.
func number(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// interval is an interval; where there are too few values for one, it has no ends.
func interval(s benchmath.Summary, format func(float64) string) string {
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		return "unknown"
	}
	return format(s.Lo) + "-" + format(s.Hi)
}

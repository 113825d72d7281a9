package conformance

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"pvabi/abi"
)

// Implementer is whose code answers, and which version of it.
type Implementer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Deviation is a known difference of an implementer from the ABI: a rule that it
// is known to break, in a range of its versions.
type Deviation struct {
	ID string
	// Rule is the full id of the rule.
	Rule string
	// Implementer is the Name of an Implementer.
	Implementer string
	// From is the first version that deviates, Before the first that no longer
	// does. Either may be empty: from the beginning, to this day.
	From, Before string
	Text         string
	Sources      []abi.Source
}

// Applies tells whether the deviation is one of that implementer. Of one whose version is
// not known it may be.
func (d Deviation) Applies(i Implementer) bool {
	return d.Implementer == i.Name && (i.Version == "" ||
		(d.From == "" || CompareVersions(d.From, i.Version) <= 0) &&
			(d.Before == "" || CompareVersions(i.Version, d.Before) < 0))
}

// certain tells, of a deviation that applies, whether it is known to.
func (d Deviation) certain(i Implementer) bool {
	return i.Version != "" || d.From == "" && d.Before == ""
}

// weigh holds a result against the list of known deviations.
func (s *Suite) weigh(r Result) Result {
	for _, d := range s.Deviations {
		if d.Rule != r.Rule || !d.Applies(s.Implementer) {
			continue
		}
		switch r.Verdict {
		case Fail:
			r.Verdict, r.Deviation, r.Reason = Deviates, d.ID, d.Text
		case Pass:
			if !d.certain(s.Implementer) {
				break
			}
			r.Verdict, r.Deviation, r.Reason = Mended, d.ID, "expected to fail: "+d.Text
		}
		break
	}
	return r
}

// CompareVersions orders version strings by their leading dotted numbers:
// "7.2.12+deb14-amd64" is 7.2.12. A missing part counts as 0.
func CompareVersions(a, b string) int {
	x, y := numbers(a), numbers(b)
	n := max(len(x), len(y))
	return slices.CompareFunc(pad(x, n), pad(y, n), cmp.Compare[int])
}

func numbers(version string) []int {
	end := strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end >= 0 {
		version = version[:end]
	}
	var out []int
	for _, part := range strings.Split(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}

func pad(v []int, n int) []int { return append(v, make([]int, n-len(v))...) }

// Deviations lists what is known of all implementers.
var Deviations = slices.Concat(linuxLoongArchDeviations, linuxX86GuestDeviations, linuxKVMDeviations, qemuPAPRDeviations, qemuS390Deviations, xenDeviations)

// WriteDeviations writes the known deviations as a table in Markdown for each
// implementer, in the order of their names. Those that go by the size of a kernel's pages
// are of one with 4 KiB.
func WriteDeviations(w io.Writer) error {
	byImplementer := map[string][]Deviation{}
	for _, d := range slices.Concat(Deviations, kvmPAPRDeviations(4096), []Deviation{kvmNestedPAPRDeviation}) {
		byImplementer[d.Implementer] = append(byImplementer[d.Implementer], d)
	}
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(byImplementer)) {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s\n\n| rule | versions | what it does instead | sources |\n|---|---|---|---|\n", name)
		for _, d := range byImplementer[name] {
			versions := "all that were looked at"
			switch {
			case d.From != "" && d.Before != "":
				versions = fmt.Sprintf("from %s, before %s", d.From, d.Before)
			case d.From != "":
				versions = "from " + d.From
			case d.Before != "":
				versions = "before " + d.Before
			}
			var sources []string
			for _, s := range d.Sources {
				sources = append(sources, s.String())
			}
			cells := []string{"`" + d.Rule + "`", versions, d.Text, strings.Join(sources, "; ")}
			for i := range cells {
				cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Schema is the version of the form of results.json.
const Schema = 1

// Report is what all targets of one invocation found: the contents of results.json.
type Report struct {
	Schema int `json:"schema"`
	// Drift lists what in the kernel's tree, or its types, is not what the ABI says, where that
	// was looked at without booting.
	Drift []string `json:"drift,omitempty"`
	Runs  []*Run   `json:"runs"`
}

// Run is what one target found.
type Run struct {
	Target      string      `json:"target"`
	Platform    string      `json:"platform"`
	Implementer Implementer `json:"implementer"`
	Guest       Guest       `json:"guest"`
	QEMU        QEMU        `json:"qemu"`
	Seconds     Seconds     `json:"seconds"`
	// PeakRSS is the most memory that QEMU held, in bytes; 0 if unknown.
	PeakRSS int64 `json:"peak_rss,omitempty"`
	// Unreached says why the target could not run here at all.
	Unreached string `json:"unreached,omitempty"`
	// Error says what failed of the equipment; Console is the end of the
	// guest's console then.
	Error   string   `json:"error,omitempty"`
	Console []string `json:"console,omitempty"`
	// Notes tell what a reader should know: a retry, a slow teardown.
	Notes   []string `json:"notes,omitempty"`
	Results []Result `json:"results"`
	// Mutants are the results of checks that were held against a changed table.
	Mutants []Result `json:"mutants,omitempty"`
	// Mutated is what became of changes to each value of the table.
	Mutated []Mutated `json:"mutated,omitempty"`
	// Changed are results of later looks whose verdict is not the first one's: each is
	// a fault of the equipment, or a behaviour that is left to chance.
	Changed []Result `json:"changed,omitempty"`
	// Measured is what the implementer's costs came to, in a run that measured them.
	Measured []Measured `json:"measured,omitempty"`
}

// Guest is the guest of a run, as asked for and as it told of itself.
type Guest struct {
	Identity
	Kernel Artefact `json:"kernel"`
	// Config is the file that has the kernel's configuration, as far as that was found.
	Config  string     `json:"config,omitempty"`
	Modules []Module   `json:"modules"`
	Image   Artefact   `json:"initramfs"`
	Other   []Artefact `json:"other,omitempty"`
}

// QEMU is the emulator of a run.
type QEMU struct {
	Artefact
	// Command is its full command line, quoted for a shell.
	Command string `json:"command"`
}

// Artefact is a file that a run was made with.
type Artefact struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
	// Size is in bytes, 0 where it was not taken.
	Size int64 `json:"size,omitempty"`
}

// Seconds says where the time of a run went.
type Seconds struct {
	// Boot is from QEMU's start to the agent's first event; the longest where a target takes
	// several boots.
	Boot float64 `json:"boot"`
	// Modules is the loading of modules in the guest.
	Modules float64 `json:"modules"`
	// Checks is from the end of that to the last verdict.
	Checks float64 `json:"checks"`
	// Total is from QEMU's start to its end, or from the first one's to the last one's.
	Total float64 `json:"total"`
}

// Totals counts the results of a run by verdict.
func (r *Run) Totals() map[Verdict]int {
	out := map[Verdict]int{}
	for _, res := range r.Results {
		out[res.Verdict]++
	}
	return out
}

// The exit statuses of a run.
const (
	ExitConforms = 0 // no rule that was looked at is broken
	ExitBroken   = 1 // a rule is broken
	ExitFailed   = 2 // the equipment failed, or nothing was looked at
)

// ExitStatus is the exit status that the report amounts to. Targets that were named
// by the user must have run. With strict, a deviation that no longer shows is a
// failure.
func (r *Report) ExitStatus(named, strict bool) int {
	status, looked := ExitConforms, false
	for _, run := range r.Runs {
		if run.Error != "" || named && run.Unreached != "" || len(run.Changed) > 0 {
			status = ExitFailed
		}
		for _, res := range run.Results {
			looked = looked || res.Verdict.Looked()
			switch {
			case res.Verdict == Error:
				status = ExitFailed
			case res.Verdict == Fail, res.Verdict == Mended && strict:
				status = max(status, ExitBroken)
			}
		}
		if named && run.Error == "" && !slices.ContainsFunc(run.Results, func(x Result) bool { return x.Verdict.Looked() }) {
			status = ExitFailed
		}
	}
	if !looked {
		return ExitFailed
	}
	return status
}

// WriteJSON writes the report as results.json.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

// ReadJSON reads a results.json. It refuses other schemas, unknown verdicts, and what is
// there twice or not at all, so that a comparison never passes over what it does not
// understand.
func ReadJSON(rd io.Reader) (*Report, error) {
	r := new(Report)
	dec := json.NewDecoder(rd)
	if err := dec.Decode(r); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, fmt.Errorf("not a results.json: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a results.json: there is more after it")
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("results.json of schema %d; this program reads schema %d", r.Schema, Schema)
	}
	if r.Runs == nil {
		return nil, errors.New("not a results.json: no runs")
	}
	seen := map[string]bool{}
	once := func(what, key string) error {
		if seen[key] {
			return fmt.Errorf("not a results.json: it has %s twice", what)
		}
		seen[key] = true
		return nil
	}
	for _, run := range r.Runs {
		if run == nil || run.Target == "" {
			return nil, errors.New("not a results.json: a run without a target")
		}
		if err := once("target "+run.Target, run.Target); err != nil {
			return nil, err
		}
		for _, res := range run.Results {
			if !slices.Contains(Verdicts, res.Verdict) {
				return nil, fmt.Errorf("results.json has the unknown verdict %q for rule %q", res.Verdict, res.Rule)
			}
			if err := once("rule "+res.Rule+" of target "+run.Target, run.Target+"\x00"+res.Rule); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// Change is how the verdict of one rule on one target differs between two reports.
type Change struct {
	Target   string  `json:"target"`
	Rule     string  `json:"rule"`
	Old      Verdict `json:"old"` // empty: the rule is new
	New      Verdict `json:"new"` // empty: the rule is gone
	Observed string  `json:"observed,omitempty"`
	Reason   string  `json:"reason,omitempty"`
}

// rank orders verdicts from good to bad for a comparison.
var rank = map[Verdict]int{Pass: 0, Mended: 0, Deviates: 1, Absent: 2, Unreached: 3, Error: 4, Fail: 5}

// Worse tells whether the rule got worse: it is no longer looked at, or breaks the
// ABI where it did not before. A rule that is new and fails counts, too.
func (c Change) Worse() bool {
	switch {
	case c.Old == "":
		return c.New == Fail || c.New == Error
	case c.New == "":
		return c.Old.Looked()
	}
	return rank[c.New] > rank[c.Old]
}

// Diff lists what changed from one report to another, by target and rule.
func Diff(before, after *Report) []Change {
	type key struct{ target, rule string }
	index := func(r *Report) map[key]Result {
		out := map[key]Result{}
		for _, run := range r.Runs {
			for _, res := range run.Results {
				out[key{run.Target, res.Rule}] = res
			}
		}
		return out
	}
	was, is := index(before), index(after)
	all := maps.Clone(was)
	maps.Copy(all, is)
	keys := slices.SortedFunc(maps.Keys(all), func(a, b key) int {
		return strings.Compare(a.target+"\x00"+a.rule, b.target+"\x00"+b.rule)
	})
	var out []Change
	for _, k := range keys {
		if was[k].Verdict != is[k].Verdict {
			out = append(out, Change{Target: k.target, Rule: k.rule, Old: was[k].Verdict, New: is[k].Verdict, Observed: is[k].Observed, Reason: is[k].Reason})
		}
	}
	return out
}

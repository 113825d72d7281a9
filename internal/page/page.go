// Package page makes one page of what runs found: self-contained HTML that needs no
// network, and Markdown for the summary of a CI job.
//
// The page has a table for the portable questions, with the runs as columns, and one for
// each platform, with a row for each rule and the platform's runs side by side. A cell
// opens what the verdict was judged from. Two runs can be compared, and all runs of two sources.
package page

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"pvabi/abi"
	"pvabi/conformance"
)

//go:embed page.html
var source string

//go:embed page.css
var style string

//go:embed page.js
var script string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"span": func(c []column) int { return len(c) + 1 }, "sign": sign,
}).Parse(source))

// sign is what stands for a verdict where there is no room for its name; it tells
// verdicts apart without colour.
func sign(v conformance.Verdict) string {
	return map[conformance.Verdict]string{
		conformance.Pass: "✓", conformance.Fail: "✗", conformance.Deviates: "≠", conformance.Mended: "+",
		conformance.Absent: "–", conformance.Unreached: "○", conformance.Error: "!",
	}[v]
}

// Named is a run with the name of where it comes from, which tells it from other runs
// of the same target; empty if there is one report only.
type Named struct {
	From string
	*conformance.Run
}

// column is a run as a column of tables.
type column struct {
	ID, Target, Platform, Title, From string
	Error, Unreached                  string
	Totals                            []total
	Facts                             []fact
	results                           map[string]conformance.Result
}

type total struct {
	Verdict conformance.Verdict
	Count   int
}

// fact is one thing to know about a run.
type fact struct{ Name, Text string }

// cell is what one run found about one rule; Verdict is empty where the run has no result
// for the rule.
type cell struct {
	Run, Rule string
	Verdict   conformance.Verdict
	// Detail is the key of what there is to know, for the script. Silent says that
	// the platform's ABI has no rule, and Detail is why.
	Detail string
	Silent bool
}

type row struct {
	Name, Text string
	Side       abi.Side
	Verdicts   string // all in the row, separated by blanks
	Cells      []cell
}

type table struct {
	ID, Title, Platform string
	Columns             []column
	Topics              []topic
}

type topic struct {
	Name string
	Rows []row
}

// rule is what the script shows of a rule.
type rule struct {
	Text    string   `json:"text"`
	Side    string   `json:"side"`
	Want    []string `json:"want,omitempty"`
	Sources []string `json:"sources"`
}

// silence is what the script shows where a platform has no rule for a question.
type silence struct {
	Question string   `json:"question"`
	Why      string   `json:"why"`
	Sources  []string `json:"sources"`
}

// view is what the template gets.
type view struct {
	Style     template.CSS
	Script    template.JS
	Title     string
	Columns   []column
	Sources   []string // where runs come from, if there are several
	Portable  table
	Platforms []table
	Verdicts  []verdictText
	Rules     map[string]rule
	Results   map[string]conformance.Result
	Runs      map[string]runDetail
	Silences  map[string]silence
}

type verdictText struct {
	Verdict conformance.Verdict
	Text    string
}

// runDetail is what the script shows of the run that a result is of.
type runDetail struct {
	Target string `json:"target"`
	From   string `json:"from"`
	Title  string `json:"title"`
	Again  string `json:"again"`
}

var verdictTexts = []verdictText{
	{conformance.Pass, "looked, and the rule holds"},
	{conformance.Fail, "looked, and it does not"},
	{conformance.Deviates, "fails as a listed deviation says"},
	{conformance.Mended, "a listed deviation no longer shows"},
	{conformance.Absent, "not offered by the implementer"},
	{conformance.Unreached, "could not be looked at"},
	{conformance.Error, "the equipment failed"},
}

// HTML writes the page of the runs, in the order that they are given in, but for those of the
// same target, which stand side by side.
func HTML(w io.Writer, runs []Named) error {
	v := view{
		Style: template.CSS(style), Script: template.JS(script),
		Title: "pvabi: paravirtual ABI conformance", Verdicts: verdictTexts,
		Rules: map[string]rule{}, Results: map[string]conformance.Result{}, Runs: map[string]runDetail{},
		Silences: map[string]silence{},
	}
	first := func(r Named) int {
		return slices.IndexFunc(runs, func(x Named) bool { return x.Target == r.Target })
	}
	sorted := slices.SortedStableFunc(slices.Values(runs), func(x, y Named) int { return cmp.Compare(first(x), first(y)) })
	for i, r := range sorted {
		c := newColumn(fmt.Sprintf("r%d", i+1), r)
		v.Columns = append(v.Columns, c)
		v.Runs[c.ID] = runDetail{Target: c.Target, From: c.From, Title: c.Title, Again: again(r.Run)}
		if c.From != "" && !slices.Contains(v.Sources, c.From) {
			v.Sources = append(v.Sources, c.From)
		}
		for id, res := range c.results {
			v.Results[c.ID+" "+id] = res
		}
	}
	for _, p := range abi.Platforms() {
		for _, r := range p.Rules {
			v.Rules[r.ID] = newRule(r)
		}
		for _, s := range p.Silences {
			v.Silences[p.Name+"/"+s.Question] = silence{s.Question, s.Why, sources(s.Sources)}
		}
	}
	v.Portable = portable(v.Columns)
	for _, p := range known(v.Columns) {
		if t := platformTable(p, v.Columns); len(t.Columns) > 0 {
			v.Platforms = append(v.Platforms, t)
		}
	}
	return page.Execute(w, v)
}

// known are the platforms, and after them those of runs that another version of pvabi made
// and that this one does not know.
func known(columns []column) []*abi.Platform {
	out := abi.Platforms()
	for _, c := range columns {
		if !slices.ContainsFunc(out, func(p *abi.Platform) bool { return p.Name == c.Platform }) {
			out = append(out, &abi.Platform{Name: c.Platform, Title: "A platform of another version of pvabi"})
		}
	}
	return out
}

func newRule(r abi.Rule) rule {
	out := rule{Text: r.Text, Side: string(r.Side), Sources: sources(r.Sources)}
	for _, w := range r.Want {
		out.Want = append(out.Want, strings.TrimSpace(fmt.Sprintf("%s: %d %s", w.Name, w.Number, w.Unit)))
	}
	return out
}

func sources(from []abi.Source) []string {
	out := []string{}
	for _, s := range from {
		out = append(out, s.String())
	}
	return out
}

func newColumn(id string, r Named) column {
	c := column{
		ID: id, Target: r.Target, Platform: r.Platform, From: r.From,
		Title: strings.TrimSpace(r.Implementer.Name + " " + r.Implementer.Version),
		Error: r.Error, Unreached: r.Unreached,
		results: map[string]conformance.Result{},
	}
	totals := r.Totals()
	for _, v := range conformance.Verdicts {
		if totals[v] > 0 {
			c.Totals = append(c.Totals, total{v, totals[v]})
		}
	}
	for _, res := range r.Results {
		c.results[res.Rule] = res
	}
	add := func(name, text string) {
		if text != "" {
			c.Facts = append(c.Facts, fact{name, text})
		}
	}
	add("from", r.From)
	add("guest", strings.TrimSpace(r.Guest.Release+" "+r.Guest.Machine))
	add("kernel", strings.TrimSpace(r.Guest.Kernel.Version))
	add("kernel's SHA-256", r.Guest.Kernel.SHA256)
	add("QEMU", r.QEMU.Version)
	add("QEMU's SHA-256", r.QEMU.SHA256)
	if r.Seconds.Total > 0 {
		add("seconds", fmt.Sprintf("boot %.1f, modules %.1f, checks %.1f, total %.1f", r.Seconds.Boot, r.Seconds.Modules, r.Seconds.Checks, r.Seconds.Total))
	}
	add("error", r.Error)
	add("unreached", r.Unreached)
	for _, n := range r.Notes {
		add("note", n)
	}
	add("command", r.QEMU.Command)
	return c
}

// again is the command that looks at one rule of a run again; the script puts the rule in.
func again(r *conformance.Run) string { return "pvabi run -rules 'RULE' " + r.Target }

// portable is the table of the portable questions, with the runs that answer any of
// them. A platform that has no rule for one says why.
func portable(columns []column) table {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(abi.Questions(), func(q abi.Question) bool { return c.cell(c.Platform+"/"+q.Name).Verdict != "" })
	})
	silent := map[string]bool{}
	for _, p := range abi.Platforms() {
		for _, s := range p.Silences {
			silent[p.Name+"/"+s.Question] = true
		}
	}
	t := table{ID: "portable", Title: "Portable questions", Columns: columns}
	var current *topic
	for _, q := range abi.Questions() {
		name, _, _ := strings.Cut(q.Name, "/")
		if current == nil || current.Name != name {
			t.Topics = append(t.Topics, topic{Name: name})
			current = &t.Topics[len(t.Topics)-1]
		}
		r := row{Name: q.Name, Text: q.Text, Side: abi.Hypervisor}
		for _, c := range columns {
			cell := c.cell(c.Platform + "/" + q.Name)
			if silent[cell.Rule] {
				cell.Silent, cell.Detail = true, cell.Rule
			}
			r.Cells = append(r.Cells, cell)
		}
		r.Verdicts = verdicts(r.Cells)
		current.Rows = append(current.Rows, r)
	}
	return t
}

func platformTable(p *abi.Platform, columns []column) table {
	t := table{ID: p.Name, Title: p.Title, Platform: p.Name}
	for _, c := range columns {
		if c.Platform == p.Name {
			t.Columns = append(t.Columns, c)
		}
	}
	index := map[string]int{}
	for _, rule := range append(slices.Clone(p.Rules), strangers(p, t.Columns)...) {
		r := row{Name: rule.Name(), Text: rule.Text, Side: rule.Side}
		looked := false
		for _, c := range t.Columns {
			cell := c.cell(rule.ID)
			looked = looked || cell.Verdict != ""
			r.Cells = append(r.Cells, cell)
		}
		if !looked {
			continue
		}
		r.Verdicts = verdicts(r.Cells)
		i, ok := index[rule.Topic()]
		if !ok {
			i = len(t.Topics)
			index[rule.Topic()] = i
			t.Topics = append(t.Topics, topic{Name: rule.Topic()})
		}
		t.Topics[i].Rows = append(t.Topics[i].Rows, r)
	}
	return t
}

// strangers are the rules of results that the tables of this program do not have: those
// of another version.
func strangers(p *abi.Platform, columns []column) []abi.Rule {
	seen := map[string]bool{}
	for _, r := range p.Rules {
		seen[r.ID] = true
	}
	var out []abi.Rule
	for _, c := range columns {
		for _, id := range slices.Sorted(maps.Keys(c.results)) {
			if !seen[id] {
				seen[id] = true
				out = append(out, abi.Rule{ID: id, Side: c.results[id].Side, Text: "A rule of another version of pvabi."})
			}
		}
	}
	return out
}

func (c column) cell(rule string) cell {
	out := cell{Run: c.ID, Rule: rule}
	if res, ok := c.results[rule]; ok {
		out.Verdict, out.Detail = res.Verdict, c.ID+" "+rule
	}
	return out
}

func verdicts(cells []cell) string {
	seen := map[string]bool{}
	for _, c := range cells {
		if c.Verdict != "" {
			seen[string(c.Verdict)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
}

// Data is the rules, results and runs as JSON for the script.
func (v view) Data() (template.JS, error) {
	b, err := json.Marshal(map[string]any{"rules": v.Rules, "results": v.Results, "runs": v.Runs, "silences": v.Silences})
	return template.JS(b), err
}

// Markdown writes a summary: a line for each run, the portable questions, and what is
// not as it should be.
func Markdown(w io.Writer, runs []Named) error {
	var columns []column
	for i, r := range runs {
		columns = append(columns, newColumn(fmt.Sprintf("r%d", i+1), r))
	}
	var b strings.Builder
	b.WriteString("| target | implementer |")
	for _, v := range conformance.Verdicts {
		fmt.Fprintf(&b, " %s |", v)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(conformance.Verdicts)) + "\n")
	for i, c := range columns {
		fmt.Fprintf(&b, "| %s | %s |", escape(strings.TrimSpace(c.Target+" "+c.From)), escape(c.Title))
		totals := runs[i].Totals()
		for _, v := range conformance.Verdicts {
			fmt.Fprintf(&b, " %d |", totals[v])
		}
		b.WriteString("\n")
	}
	t := portable(columns)
	b.WriteString("\n| question |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", escape(strings.TrimSpace(c.Target+" "+c.From)))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, topic := range t.Topics {
		for _, r := range topic.Rows {
			fmt.Fprintf(&b, "| %s |", r.Name)
			for _, c := range r.Cells {
				if c.Silent {
					b.WriteString(" no rule |")
				} else {
					fmt.Fprintf(&b, " %s |", c.Verdict)
				}
			}
			b.WriteString("\n")
		}
	}
	first := true
	for i, c := range columns {
		if c.Error != "" {
			fmt.Fprintf(&b, "\n**%s failed**: %s\n", c.Target, escape(c.Error))
		}
		for _, res := range runs[i].Results {
			// What a failed run did not come to is no news.
			if res.Verdict != conformance.Fail && res.Verdict != conformance.Mended && (res.Verdict != conformance.Error || c.Error != "") {
				continue
			}
			if first {
				b.WriteString("\n")
				first = false
			}
			fmt.Fprintf(&b, "- **%s** %s `%s`: expected %s, observed %s %s\n", res.Verdict, escape(c.Target), res.Rule,
				escape(cmp.Or(res.Expected, "-")), escape(cmp.Or(res.Observed, "-")), escape(res.Reason))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// escape makes a text fit into a cell of a Markdown table.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`, "_", `\_`, "`", "'").Replace(text)
}

package abi

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Document is a table that can be printed: a [Platform], a [PortableTable] or a
// [HistoryTable].
type Document interface {
	sections() []section
}

// section is a titled list of entries; columns names the cells of each.
type section struct {
	title   string
	columns []string
	entries []entry
}

// entry is one row: short cells, then sentences.
type entry struct {
	cells   []string
	text    string
	notes   []note
	sources []Source
}

// bare tells that the entries have nothing but cells.
func (s section) bare() bool {
	return !slices.ContainsFunc(s.entries, func(e entry) bool {
		return e.text != "" || len(e.notes)+len(e.sources) > 0
	})
}

// note is a part of an entry: an argument, a field, an answer.
type note struct {
	label, text string
	sources     []Source
}

// textWidth is the number of columns that sentences are wrapped to.
const textWidth = 100

// Text prints the document for reading in a terminal.
func Text(w io.Writer, d Document) error {
	var b strings.Builder
	for i, s := range d.sections() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s\n%s\n", s.title, strings.Repeat("=", utf8.RuneCountInString(s.title)))
		widths := make([]int, len(s.columns))
		for _, row := range append([]entry{{cells: s.columns}}, s.entries...) {
			for i, c := range row.cells {
				widths[i] = max(widths[i], utf8.RuneCountInString(c))
			}
		}
		line(&b, widths, s.columns)
		for _, e := range s.entries {
			if !s.bare() {
				b.WriteByte('\n')
			}
			line(&b, widths, e.cells)
			wrap(&b, "    ", e.text)
			for _, n := range e.notes {
				wrap(&b, "      ", n.label+": "+n.text)
				for _, src := range n.sources {
					wrap(&b, "        ", "- "+src.String())
				}
			}
			for _, src := range e.sources {
				wrap(&b, "    ", "- "+src.String())
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line writes cells padded to widths.
func line(b *strings.Builder, widths []int, cells []string) {
	var padded strings.Builder
	for i, c := range cells {
		padded.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
	}
	b.WriteString(strings.TrimRight(padded.String(), " ") + "\n")
}

// wrap writes text in lines of at most textWidth columns, each indented.
func wrap(b *strings.Builder, indent, text string) {
	used := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case used == 0:
			b.WriteString(indent + word)
			used = len(indent) + n
		case used+1+n > textWidth:
			b.WriteString("\n" + indent + "  " + word)
			used = len(indent) + 2 + n
		default:
			b.WriteString(" " + word)
			used += 1 + n
		}
	}
	if used > 0 {
		b.WriteByte('\n')
	}
}

// Markdown prints the document as tables in GitHub's dialect.
func Markdown(w io.Writer, d Document) error {
	var b strings.Builder
	for i, s := range d.sections() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "## %s\n\n", escape(s.title))
		columns := slices.Clone(s.columns)
		if !s.bare() {
			columns = append(columns, "text", "sources")
		}
		fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
		for _, e := range s.entries {
			for _, c := range e.cells {
				fmt.Fprintf(&b, "| %s ", escape(c))
			}
			if s.bare() {
				b.WriteString("|\n")
				continue
			}
			var text, sources []string
			if e.text != "" {
				text = append(text, escape(e.text))
			}
			for _, n := range e.notes {
				text = append(text, "**"+escape(n.label)+"**: "+escape(n.text))
				for _, src := range n.sources {
					sources = append(sources, escape(src.String()))
				}
			}
			for _, src := range e.sources {
				sources = append(sources, escape(src.String()))
			}
			fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(text, "<br>"), strings.Join(sources, "<br>"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// escape keeps text from being taken for markup.
var escape = strings.NewReplacer(
	"|", `\|`, "_", `\_`, "*", `\*`, "`", "\\`", "<", "&lt;", ">", "&gt;", "&", "&amp;", "\n", " ",
).Replace

// JSON prints the document as one JSON value, indented.
func JSON(w io.Writer, d Document) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}

func (p *Platform) sections() []section {
	s := []section{
		{title: p.Title + " (" + p.Name + "): kick, wait, yield, preempted", columns: []string{"what", "is"}, entries: p.Scheduling.entries()},
		{title: "Discovery", columns: []string{"word", "number"}},
		{title: "Calling conventions", columns: []string{"convention", "number", "arguments", "result", "bits"}},
		{title: "Calls", columns: []string{"call", "number", "feature"}},
		{title: "Errors", columns: []string{"error", "result"}},
		{title: "Features", columns: []string{"feature", "word", "bit", "offered by", "since"}},
		{title: "Registers", columns: []string{"register", "number", "feature", "reserved bits", "enable", "reset"}},
		{title: "Memory", columns: []string{"layout", "bytes", "aligned to"}},
		{title: "Rules", columns: []string{"rule", "owed by", "demands", "needs", "since"}},
	}
	discovery, conventions, calls, errors, features, registers, layouts, rules := &s[1], &s[2], &s[3], &s[4], &s[5], &s[6], &s[7], &s[8]
	for _, w := range p.Discovery {
		discovery.add(entry{cells: []string{w.Name, hex(w.Number)}, text: w.Text, sources: w.Sources})
	}
	for _, c := range p.Conventions {
		e := entry{
			cells: []string{c.Name, c.Number, strings.Join(c.Args, " "), c.Result, fmt.Sprint(c.Width)},
			text:  c.Text, sources: c.Sources,
		}
		for _, i := range c.Instructions {
			e.notes = append(e.notes, note{label: i.Mnemonic, text: fmt.Sprintf("%s, %d bytes, on %s", i.Code, i.Length, i.When)})
		}
		conventions.add(e)
	}
	for _, c := range p.Calls {
		e := entry{cells: []string{c.Name, number(int64(c.Number), 16), dash(c.Feature)}, text: c.Text, sources: c.Sources}
		if c.Convention != "" {
			e.text += " Made by " + c.Convention + "."
		}
		if c.Undefined {
			e.text += " Not on this platform: refused like a number without a name."
		}
		for i, a := range c.Args {
			n := note{label: fmt.Sprintf("argument %d, %s", i, a.Name), text: a.Text}
			for _, v := range a.Values {
				n.text += fmt.Sprintf(" %s: %s.", v.Name, strings.TrimSpace(number(v.Number, 10000)+" "+v.Unit))
			}
			e.notes = append(e.notes, n)
		}
		for _, o := range c.Outcomes {
			result := number(p.Result(c.Name, o.When), 10000)
			if o.Error != "" {
				result += " (" + o.Error + ")"
			}
			e.notes = append(e.notes, note{label: "result, " + o.When, text: result})
		}
		calls.add(e)
	}
	for _, x := range p.Errors {
		errors.add(entry{cells: []string{x.Name, number(x.Result, 10000)}, text: x.Text, sources: x.Sources})
	}
	for _, f := range p.Features {
		e := entry{
			cells: []string{f.Name, f.Word, fmt.Sprint(f.Bit), f.Offered, dash(f.Since)}, text: f.Text, sources: f.Sources,
		}
		if f.Given != "" {
			e.notes = append(e.notes, note{label: "given that", text: f.Given + map[bool]string{true: ", and always since " + f.Always + "."}[f.Always != ""]})
		}
		features.add(e)
	}
	for _, r := range p.Registers {
		e := entry{cells: []string{r.Name, hex(r.Number), dash(r.Feature), hex(r.Reserved), hex(r.Enable), hex(r.Reset)}, text: r.Text, sources: r.Sources}
		for _, b := range r.Bits {
			e.notes = append(e.notes, note{label: fmt.Sprintf("bit %d, %s", b.Bit, b.Name), text: b.Text})
		}
		registers.add(e)
	}
	for _, l := range p.Layouts {
		e := entry{cells: []string{l.Name, fmt.Sprint(l.Size), fmt.Sprint(l.Align)}, text: l.Text, sources: l.Sources}
		for _, f := range l.Fields {
			e.notes = append(e.notes, note{
				label: fmt.Sprintf("byte %d, %s", f.Offset, f.Name),
				text:  fmt.Sprintf("%s Size %d, written by %s.", f.Text, f.Size, f.Writer),
			})
		}
		for _, b := range l.Bits {
			e.notes = append(e.notes, note{label: fmt.Sprintf("bit %d of %s, %s", b.Bit, b.Field, b.Name), text: b.Text})
		}
		layouts.add(e)
	}
	for _, r := range p.Rules {
		rules.add(entry{
			cells: []string{r.ID, string(r.Side), dash(r.demands()), dash(strings.Join(r.Needs, " ")), dash(r.Since)},
			text:  r.Text, sources: r.Sources,
		})
	}
	if len(p.Silences) > 0 {
		silences := section{title: "Portable questions without a rule", columns: []string{"question"}}
		for _, q := range p.Silences {
			silences.add(entry{cells: []string{q.Question}, text: q.Why, sources: q.Sources})
		}
		s = append(s, silences)
	}
	return s
}

func (t *PortableTable) sections() []section {
	what := section{title: "What is what", columns: []string{"what"}}
	questions := section{title: "Questions", columns: []string{"question"}}
	for i, c := range t.Platforms {
		what.columns = append(what.columns, c.Platform)
		questions.columns = append(questions.columns, c.Platform)
		for j, e := range c.Scheduling.entries() {
			if i == 0 {
				what.add(e)
			} else {
				what.entries[j].cells = append(what.entries[j].cells, e.cells[1])
			}
		}
	}
	for _, row := range t.Rows {
		e := entry{cells: []string{row.Question.Name}, text: row.Question.Text}
		for _, a := range row.Answers {
			cell, n := "-", note{label: a.Platform, text: "no answer"}
			switch {
			case a.Rule != nil:
				if cell = a.Rule.demands(); cell == "" {
					cell = "as listed"
				}
				n.text, n.sources = a.Rule.Text, a.Rule.Sources
			case a.Silence != nil:
				cell = "silent"
				n.text, n.sources = a.Silence.Why, a.Silence.Sources
			}
			e.cells = append(e.cells, cell)
			e.notes = append(e.notes, n)
		}
		questions.add(e)
	}
	return []section{what, questions}
}

func (h HistoryTable) sections() []section {
	threads := section{title: "Threads, and where each ended", columns: []string{"date", "platforms", "thread"}}
	for _, t := range h.Threads {
		threads.add(entry{
			cells:   []string{t.Date, strings.Join(t.Platforms, ", "), t.Subject},
			notes:   []note{{label: "proposed", text: t.Proposed}, {label: "ended", text: t.Ended}},
			sources: t.Sources,
		})
	}
	s := section{title: "What was proposed, and what it is today", columns: []string{"date", "platform", "kind", "number", "proposed"}}
	for _, p := range h.Proposals {
		s.add(entry{
			cells: []string{p.Date, p.Platform, p.Kind, dash(p.Number), p.Name},
			notes: []note{
				{label: "thread", text: p.Thread}, {label: "today", text: p.Today}, {label: "collision", text: p.Collision},
			},
			sources: p.Sources,
		})
	}
	return []section{threads, s}
}

func (s *section) add(e entry) { s.entries = append(s.entries, e) }

// entries lists what is what, one row each.
func (s Scheduling) entries() []entry {
	target := func(call string, arg uint64) string {
		if call == "" {
			return "-"
		}
		return fmt.Sprintf("%s, target in argument %d", call, arg)
	}
	return []entry{
		{cells: []string{"kick", target(s.Kick, s.KickTarget)}},
		{cells: []string{"wait", dash(s.Wait)}},
		{cells: []string{"yield", target(s.Yield, s.YieldTarget)}},
		{cells: []string{"preempted", dash(s.Preempted)}},
		{cells: []string{"steal time", dash(s.Steal)}},
		{cells: []string{"registered by", dash(s.Area)}},
	}
}

// demands lists the rule's numbers.
func (r Rule) demands() string {
	var out []string
	for _, v := range r.Want {
		out = append(out, fmt.Sprintf("%s=%d", v.Name, v.Number))
	}
	return strings.Join(out, " ")
}

// number prints n in decimal below limit, and in hexadecimal from there on.
func number(n, limit int64) string {
	if n < limit {
		return fmt.Sprint(n)
	}
	return hex(uint64(n))
}

func hex(n uint64) string { return fmt.Sprintf("0x%x", n) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

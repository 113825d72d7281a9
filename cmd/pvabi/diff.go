package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"pvabi/conformance"
)

func diff(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("diff", "OLD.json NEW.json", "Tells which rules have another verdict in NEW than in OLD. Exits 1 if one got worse. "+
		"With -implementers, tells in what implementers of one platform differ from each other.", stderr)
	format := fs.String("format", "text", "`form` of the output: text, markdown or json")
	implementers := fs.Bool("implementers", false, "hold implementers of one platform in results.json files against each other; -format is text or json")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if *implementers {
		return sideBySide(fs.Args(), *format, stdout)
	}
	if fs.NArg() != 2 {
		fs.Usage()
		return 0, errUsage
	}
	if !slices.Contains([]string{"text", "markdown", "json"}, *format) {
		return 0, fmt.Errorf("unknown format %q; there are text, markdown and json", *format)
	}
	var reports [2]*conformance.Report
	for i, path := range fs.Args() {
		var err error
		if reports[i], err = readReport(path); err != nil {
			return 0, err
		}
	}
	changes := conformance.Diff(reports[0], reports[1])
	switch *format {
	case "json":
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		return statusOf(changes), enc.Encode(append([]conformance.Change{}, changes...))
	case "markdown":
		fmt.Fprint(stdout, "| | target | rule | was | is | why |\n|---|---|---|---|---|---|\n")
		for _, c := range changes {
			why := strings.NewReplacer("|", `\|`, "\n", " ").Replace(c.Observed + c.Reason)
			fmt.Fprintf(stdout, "| %s | %s | `%s` | %s | %s | %s |\n", how(c), c.Target, c.Rule, or(c.Old, "no such rule"), or(c.New, "no such rule"), why)
		}
		return statusOf(changes), nil
	}
	return writeChanges(stdout, changes), nil
}

// sideBySide holds the implementers in results.json files against each other.
func sideBySide(paths []string, format string, stdout io.Writer) (int, error) {
	if len(paths) == 0 {
		return 0, errors.New("-implementers wants the names of results.json files")
	}
	all := new(conformance.Report)
	for _, path := range paths {
		r, err := readReport(path)
		if err != nil {
			return 0, err
		}
		all.Runs = append(all.Runs, r.Runs...)
	}
	switch found := all.Implementers(); format {
	case "text":
		return conformance.ExitConforms, conformance.WriteComparisons(stdout, found)
	case "json":
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		return conformance.ExitConforms, enc.Encode(append([]conformance.Comparison{}, found...))
	}
	return 0, fmt.Errorf("unknown format %q; -implementers has text and json", format)
}

// statusOf is the exit status that changes amount to.
func statusOf(changes []conformance.Change) int {
	if slices.ContainsFunc(changes, conformance.Change.Worse) {
		return conformance.ExitBroken
	}
	return conformance.ExitConforms
}

// how says in one word which way a change goes.
func how(c conformance.Change) string {
	switch {
	case c.Worse():
		return "worse"
	case c.Old == "":
		return "new"
	case c.New == "":
		return "gone"
	}
	return "changed"
}

// writeChanges lists changes for people, and returns the exit status for them.
func writeChanges(w io.Writer, changes []conformance.Change) int {
	for _, c := range changes {
		fmt.Fprintf(w, "%-8s%s  %s: %s -> %s", how(c), c.Target, c.Rule, or(c.Old, "no such rule"), or(c.New, "no such rule"))
		if text := c.Observed + c.Reason; text != "" {
			fmt.Fprintf(w, " (%s)", text)
		}
		fmt.Fprintln(w)
	}
	if len(changes) == 0 {
		fmt.Fprintln(w, "no rule has another verdict")
	}
	return statusOf(changes)
}

func or(v conformance.Verdict, instead string) string {
	if v == "" {
		return instead
	}
	return string(v)
}

func readReport(path string) (*conformance.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := conformance.ReadJSON(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

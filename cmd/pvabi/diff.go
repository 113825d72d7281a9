package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"pvabi/conformance"
)

func diff(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("diff", "OLD.json NEW.json", "Tells which rules have another verdict in NEW than in OLD. Exits 1 if one got worse.", stderr)
	format := fs.String("format", "text", "`form` of the output: text, markdown or json")
	if err := parse(fs, args); err != nil {
		return 0, err
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

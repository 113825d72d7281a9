package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"pvabi/conformance"
)

func diff(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("diff", "OLD.json NEW.json", "Tells which rules have another verdict in NEW than in OLD. Exits 1 if one got worse.", stderr)
	format := fs.String("format", "text", "`form` of the output: text or json")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() != 2 {
		fs.Usage()
		return 0, errUsage
	}
	if *format != "text" && *format != "json" {
		return 0, fmt.Errorf("unknown format %q; there are text and json", *format)
	}
	var reports [2]*conformance.Report
	for i, path := range fs.Args() {
		var err error
		if reports[i], err = readReport(path); err != nil {
			return 0, err
		}
	}
	changes := conformance.Diff(reports[0], reports[1])
	status := conformance.ExitConforms
	for _, c := range changes {
		if c.Worse() {
			status = conformance.ExitBroken
		}
	}
	if *format == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		return status, enc.Encode(append([]conformance.Change{}, changes...))
	}
	for _, c := range changes {
		how := "changed"
		if c.Worse() {
			how = "worse"
		}
		fmt.Fprintf(stdout, "%-8s%s  %s: %s -> %s", how, c.Target, c.Rule, or(c.Old, "no such rule"), or(c.New, "no such rule"))
		if text := c.Observed + c.Reason; text != "" {
			fmt.Fprintf(stdout, " (%s)", text)
		}
		fmt.Fprintln(stdout)
	}
	if len(changes) == 0 {
		fmt.Fprintln(stdout, "no rule has another verdict")
	}
	return status, nil
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

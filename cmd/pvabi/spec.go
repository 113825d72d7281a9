package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"pvabi/abi"
	"pvabi/conformance"
)

func spec(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("spec", "", "Prints what the ABI says: numbers, layouts and rules, each with its sources.", stderr)
	name := fs.String("platform", "", "print one `platform` only")
	format := fs.String("format", "text", "`form` of the output: text, json or markdown")
	portable := fs.Bool("portable", false, "print the portable questions, platforms side by side")
	history := fs.Bool("history", false, "print what was once proposed, and what its numbers mean today")
	findings := fs.Bool("findings", false, "print in Markdown what implementers are known to do otherwise, with versions and sources")
	defects := fs.Bool("defects", false, "print in Markdown which rules notice public defects of the past, and why no rule notices the others")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() > 0 {
		return 0, fmt.Errorf("unexpected argument %q; name a platform by -platform", fs.Arg(0))
	}
	if *findings {
		return conformance.ExitConforms, conformance.WriteDeviations(stdout)
	}
	if *defects {
		return conformance.ExitConforms, conformance.WriteDefects(stdout)
	}
	print, ok := map[string]func(io.Writer, abi.Document) error{"text": abi.Text, "json": abi.JSON, "markdown": abi.Markdown}[*format]
	if !ok {
		return 0, fmt.Errorf("unknown format %q; there are text, json and markdown", *format)
	}
	platforms, err := choose(*name)
	if err != nil {
		return 0, err
	}
	var docs []abi.Document
	if *portable {
		docs = append(docs, abi.Portable(platforms...))
	}
	if *history {
		docs = append(docs, abi.History())
	}
	if len(docs) == 0 {
		for _, p := range platforms {
			docs = append(docs, p)
		}
	}
	for i, d := range docs {
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		if err := print(stdout, d); err != nil {
			return 0, err
		}
	}
	return conformance.ExitConforms, nil
}

// choose returns the named platform, or all for "".
func choose(name string) ([]*abi.Platform, error) {
	var names []string
	for _, p := range abi.Platforms() {
		if p.Name == name {
			return []*abi.Platform{p}, nil
		}
		names = append(names, p.Name)
	}
	if name != "" {
		return nil, fmt.Errorf("unknown platform %q; there is %s", name, strings.Join(names, ", "))
	}
	return abi.Platforms(), nil
}

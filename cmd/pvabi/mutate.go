package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"pvabi/conformance"
	"pvabi/internal/progress"
	"pvabi/vmtests"
)

func mutate(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("mutate", "[target...]", "Changes each value of the ABI's tables in turn, in one booted guest for each target, and tells which rule "+
		"notices. Exits 1 where none does and nothing says why none can.", stderr)
	r := &vmtests.Runner{}
	artefactFlags(fs, r)
	output := fs.String("o", "results-mutate", "write results.json, and the consoles of guests, to this `folder`")
	format := fs.String("format", "text", "`form` of the output: text, markdown or json")
	rules := fs.String("rules", "", "look only at rules that match one of these comma-separated `patterns` of topic/statement, such as kick/*")
	cache := fs.String("cache", "", "keep artefacts in this `folder` (default $PVABI_CACHE, or pvabi in the user's cache folder)")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	write, ok := map[string]func(io.Writer, *conformance.Report) error{
		"text": conformance.WriteMutated, "markdown": conformance.WriteMutatedMarkdown,
		"json": func(w io.Writer, r *conformance.Report) error { return r.WriteJSON(w) },
	}[*format]
	if !ok {
		return 0, fmt.Errorf("unknown format %q; there are text, markdown and json", *format)
	}
	targets, err := vmtests.Find(fs.Args()...)
	if err != nil {
		return 0, err
	}
	if r.Only, err = patterns(*rules, targets); err != nil {
		return 0, err
	}
	screen := progress.New(stderr)
	defer screen.Close()
	stdout, stderr = screen.Writer(stdout), screen.Writer(stderr)
	r.Store, r.Output = opened(cache, nil, screen), *output
	folder, err := claim(r.Output, targets)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	named := fs.NArg() > 0
	report := &conformance.Report{Schema: conformance.Schema, Runs: []*conformance.Run{}}
	for _, t := range targets {
		if ctx.Err() != nil {
			break
		}
		screen.Target(t.Name, 1)
		run := r.Mutations(ctx, t)
		screen.Target("", 0)
		report.Runs = append(report.Runs, run)
		for _, n := range run.Notes {
			fmt.Fprintf(stderr, "pvabi mutate: %s: %s\n", t.Name, n)
		}
	}
	if err := errors.Join(save(report.WriteJSON, r.Output, results), write(stdout, report)); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("what was finished is in %s", filepath.Join(r.Output, results))
	}
	for _, run := range report.Runs {
		if why := run.Error + run.Unreached; why != "" && (named || run.Error != "") {
			fmt.Fprintf(stderr, "pvabi mutate: %s: %s\n", run.Target, why)
		}
		if i := slices.IndexFunc(run.Mutated, func(m conformance.Mutated) bool { return m.Fate == conformance.Lost }); i >= 0 {
			fmt.Fprintf(stderr, "pvabi mutate: %s: %s\n", run.Target, run.Mutated[i])
		}
	}
	return report.MutationStatus(named), nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"pvabi/conformance"
	"pvabi/internal/bench"
	"pvabi/internal/progress"
	"pvabi/vmtests"
)

// The files in the folder for results that have what was measured.
const (
	benchResults = "bench.json"
	benchLines   = "bench.txt"
)

func runBench(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("bench", "[target...]", "Boots the targets and measures what it costs their CPUs to leave for the hypervisor and come back,\nwithout shared areas and with them. Without targets: every one that can run here.", stderr)
	r := &vmtests.Runner{}
	bootFlags(fs, r)
	fs.IntVar(&r.Rounds, "rounds", 10, "measure everything this often, in turn; below 6 there are no intervals")
	fs.StringVar(&r.Output, "o", "results", "write "+benchResults+", "+benchLines+" in the format of Go's benchmarks, and the consoles of guests, to this `folder`")
	cache := cacheFlag(fs)
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if r.Rounds < 1 {
		return 0, errors.New("-rounds wants a number from 1")
	}
	targets, err := vmtests.Find(fs.Args()...)
	if err != nil {
		return 0, err
	}
	named := fs.NArg() > 0
	if i := slices.IndexFunc(targets, func(t vmtests.Target) bool { return !t.Costs }); named && i >= 0 {
		return 0, fmt.Errorf("target %s has no costs to be measured; leave it out", targets[i].Name)
	}
	targets = slices.DeleteFunc(targets, func(t vmtests.Target) bool { return !t.Costs })
	if err := checkBoot(r, targets); err != nil {
		return 0, err
	}
	folder, err := claim(r.Output, targets, benchResults, benchLines)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	screen := progress.New(stderr)
	defer screen.Close()
	stdout, stderr = screen.Writer(stdout), screen.Writer(stderr)
	r.Store = opened(cache, nil, screen)
	report := &conformance.Report{Schema: conformance.Schema, Runs: []*conformance.Run{}}
	status := conformance.ExitConforms
	for _, t := range targets {
		if ctx.Err() != nil {
			break
		}
		if err := t.Reachable(ctx); err != nil {
			report.Runs = append(report.Runs, (&printer{}).skip(t, err))
			continue
		}
		fmt.Fprintf(stderr, "pvabi bench: %s\n", t.Name)
		screen.Target(t.Name, 1)
		run := r.Run(ctx, t)
		screen.Target("", 0)
		report.Runs = append(report.Runs, run)
		if run.Error != "" || named && run.Unreached != "" {
			status = conformance.ExitFailed
		}
	}
	lines := func(w io.Writer) error { return bench.WriteGo(w, report.Runs) }
	if err := errors.Join(save(report.WriteJSON, r.Output, benchResults), save(lines, r.Output, benchLines)); err != nil {
		return 0, err
	}
	if err := bench.WriteTables(stdout, report.Runs); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("what was finished is in %s", filepath.Join(r.Output, benchResults))
	}
	return status, nil
}

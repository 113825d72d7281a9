package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"pvabi/conformance"
	"pvabi/internal/progress"
	"pvabi/vmtests"
)

func targets(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("targets", "", "Lists what there is, what can run here, and why the rest cannot.", stderr)
	asJSON := fs.Bool("json", false, "print JSON")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() > 0 {
		return 0, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	type row struct {
		Target      string `json:"target"`
		Platform    string `json:"platform"`
		Implementer string `json:"implementer"`
		GOARCH      string `json:"goarch,omitempty"` // of the guest
		Rules       int    `json:"rules"`
		Reachable   bool   `json:"reachable"`
		Reason      string `json:"reason,omitempty"`
		Text        string `json:"text"`
	}
	var rows []row
	for _, t := range vmtests.Targets() {
		r := row{Target: t.Name, Platform: t.Platform, Implementer: t.Implementer, Rules: len(t.Rules), Text: t.Text}
		if t.Guest != nil {
			r.GOARCH = t.Guest.GOARCH
		}
		if err := t.Reachable(ctx); err != nil {
			r.Reason = err.Error()
		} else {
			r.Reachable = true
		}
		rows = append(rows, r)
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		return conformance.ExitConforms, enc.Encode(rows)
	}
	w := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TARGET\tIMPLEMENTER\tRULES\tRUNS HERE\tWHAT IS LOOKED AT")
	for _, r := range rows {
		here := "yes"
		if !r.Reachable {
			here = "no: " + r.Reason
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", r.Target, r.Implementer, r.Rules, here, r.Text)
	}
	return conformance.ExitConforms, w.Flush()
}

func fetch(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("fetch", "[target...]", "Fetches what the targets boot from into the cache: kernels, modules, QEMU, firmware.", stderr)
	r := &vmtests.Runner{}
	artefactFlags(fs, r)
	cache := cacheFlag(fs)
	refresh := fs.Bool("refresh", false, "ask the archive for newer versions, whatever the cache has")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	chosen, err := vmtests.Find(fs.Args()...)
	if err != nil {
		return 0, err
	}
	screen := progress.New(stderr)
	defer screen.Close()
	stdout = screen.Writer(stdout)
	r.Store = opened(cache, refresh, screen)
	for _, t := range chosen {
		got, err := r.Fetch(ctx, t)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", t.Name, err)
		}
		for _, g := range got {
			fmt.Fprintf(stdout, "%s: %s %s\n", t.Name, g.Path, g.Version)
		}
	}
	return conformance.ExitConforms, nil
}

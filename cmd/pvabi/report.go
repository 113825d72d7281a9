package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pvabi/conformance"
	"pvabi/internal/page"
)

func reportCommand(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("report", "DIR|FILE...", "Makes one report of the results in folders, or of results.json files: of one machine, or of many. "+
		"The exit status is what the runs' would have been.", stderr)
	html := fs.String("html", "", "`file` for a self-contained page; - is standard output")
	markdown := fs.String("markdown", "", "`file` for a summary in Markdown; - is standard output")
	versions := fs.String("versions", "", "`file` for a table in Markdown of QEMUs and kernels with the counts of verdicts; - is standard output")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() == 0 {
		fs.Usage()
		return 0, errUsage
	}
	if *html == "" && *markdown == "" && *versions == "" {
		return 0, errors.New("no form of the report is asked for; give -html FILE, -markdown FILE or -versions FILE")
	}
	names := sources(fs.Args())
	var runs []page.Named
	all := new(conformance.Report)
	for i, path := range fs.Args() {
		file := path
		if info, err := os.Stat(path); err != nil {
			return 0, err
		} else if info.IsDir() {
			file = filepath.Join(path, results)
		}
		r, err := readReport(file)
		if err != nil {
			return 0, err
		}
		for _, run := range r.Runs {
			runs = append(runs, page.Named{From: names[i], Run: run})
		}
		all.Runs = append(all.Runs, r.Runs...)
	}
	for _, form := range []struct {
		file  string
		write func(io.Writer, []page.Named) error
	}{{*html, page.HTML}, {*markdown, page.Markdown}, {*versions, func(w io.Writer, _ []page.Named) error { return page.Versions(w, all.Runs) }}} {
		if err := writeTo(form.file, stdout, func(w io.Writer) error { return form.write(w, runs) }); err != nil {
			return 0, err
		}
	}
	return all.ExitStatus(false, false), nil
}

// sources names where results come from, which tells them apart: by the last folder of each
// path, or by all of it where that is another's, too. One alone needs no name.
func sources(paths []string) []string {
	names := make([]string, len(paths))
	if len(paths) == 1 {
		return names
	}
	paths = slices.Clone(paths)
	seen := map[string]int{}
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Clean(path), string(filepath.Separator)+results)
		names[i] = filepath.Base(paths[i])
		seen[names[i]]++
	}
	for i, name := range names {
		if seen[name] > 1 {
			names[i] = paths[i]
		}
	}
	return names
}

// writeTo has a file written whole or not at all; - is standard output and no name is
// nothing to do.
func writeTo(name string, stdout io.Writer, write func(io.Writer) error) (err error) {
	switch name {
	case "":
		return nil
	case "-":
		return write(stdout)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write the report: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return os.Rename(f.Name(), name)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"pvabi/conformance"
	"pvabi/internal/drift"
)

func driftCommand(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("drift", "", "Tells, without booting, what in a kernel's headers or type information is not what abi says. "+
		"Exits 1 if a number moved or vanished, or if there is a new one.", stderr)
	linux := fs.String("linux", "", "top `folder` of a Linux tree, whose headers and documents are read")
	vmlinux := fs.String("vmlinux", "", "built kernel, whose BTF or DWARF is read; `file` is a vmlinux or an image that has one inside")
	format := fs.String("format", "text", "`form` of the output: text, markdown or json")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() > 0 {
		fs.Usage()
		return 0, errUsage
	}
	if *linux == "" && *vmlinux == "" {
		return 0, errors.New("nothing to read; give a tree by -linux, a built kernel by -vmlinux, or both")
	}
	var reports []*drift.Report
	for _, source := range []struct {
		name string
		read func(string) (*drift.Report, error)
	}{{*linux, drift.Tree}, {*vmlinux, drift.Kernel}} {
		if source.name == "" {
			continue
		}
		r, err := source.read(source.name)
		if err != nil {
			return 0, err
		}
		reports = append(reports, r)
	}
	status := conformance.ExitConforms
	for _, r := range reports {
		if r.Drifted() {
			status = conformance.ExitBroken
		}
	}
	switch *format {
	case "text":
		for _, r := range reports {
			fmt.Fprint(stdout, r.Text())
		}
	case "markdown":
		for _, r := range reports {
			fmt.Fprint(stdout, r.Markdown())
		}
	case "json":
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		return status, enc.Encode(reports)
	default:
		return 0, fmt.Errorf("unknown format %q; there are text, markdown and json", *format)
	}
	return status, nil
}

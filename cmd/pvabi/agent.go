package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"pvabi/conformance"
	local "pvabi/initramfs/suites"
	"pvabi/internal/progress"
	"pvabi/vmtests"
)

const agentText = `Checks the hypervisor that this machine runs on; -list tells what that is. On amd64 the target
x86-kvm, if it is named, is the machine's own KVM.

On ppc64le and s390x it takes root and a kernel that loads modules: it writes one for the kernel
that runs, loads it, and unloads it. What could disturb the machine is not done without -disturb.`

// runAgent is the agent as a plain program on a machine that is somebody's.
func runAgent(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("agent", "[target...]", agentText, stderr)
	var how local.Options
	fs.BoolVar(&how.Unprivileged, "unprivileged", false, "look only at what needs no root")
	fs.BoolVar(&how.Disturb, "disturb", false, "do also what others on this machine could suffer from; -list tells what that is")
	fs.StringVar(&how.Implementer.Version, "hypervisor-version", "", "the `version` of the hypervisor, where its guest cannot know it: known deviations have ranges of versions")
	selfCheck := fs.Bool("self-check", false, "only look whether the kernel takes our module and is none the worse for it")
	list := fs.Bool("list", false, "list the targets that this machine is, and what -disturb allows")
	o := reportFlags(fs, "ktap")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	targets, err := vmtests.Here(how, fs.Args()...)
	if err != nil {
		return 0, err
	}
	if *selfCheck {
		if fs.NArg() > 0 {
			return 0, fmt.Errorf("-self-check looks at no target, and %q was named", fs.Arg(0))
		}
		return checkSelf(ctx, stdout)
	}
	if *list {
		return listHere(ctx, targets, stdout)
	}
	if !how.Unprivileged && os.Geteuid() != 0 && slices.ContainsFunc(targets, func(t vmtests.Target) bool { return t.Disturbs() != nil }) {
		return 0, fmt.Errorf("loading a module takes root; -unprivileged looks at what does not")
	}
	o.named = fs.NArg() > 0
	screen := progress.New(stderr)
	defer screen.Close()
	return o.run(ctx, &vmtests.Runner{}, targets, screen, stdout, stderr)
}

// checkSelf tells on standard output whether this kernel takes our module.
func checkSelf(ctx context.Context, stdout io.Writer) (int, error) {
	run := (&vmtests.Runner{}).Run(ctx, vmtests.SelfCheck())
	switch {
	case run.Error != "":
		return 0, fmt.Errorf("%s", run.Error)
	case run.Unreached != "":
		return 0, fmt.Errorf("this kernel takes no module of ours: %s", run.Unreached)
	}
	for _, note := range run.Notes {
		fmt.Fprintln(stdout, note)
	}
	return conformance.ExitConforms, nil
}

// listHere lists local targets.
func listHere(ctx context.Context, targets []vmtests.Target, stdout io.Writer) (int, error) {
	w := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	for _, t := range targets {
		here := "yes"
		if err := t.Reachable(ctx); err != nil {
			here = "no: " + err.Error()
		}
		fmt.Fprintf(w, "%s: %d rules; implementer: %s; runs here: %s\n", t.Name, len(t.Rules), t.Implementer, here)
		fmt.Fprintf(w, "  %s\n", t.Text)
		disturbs := t.Disturbs()
		for _, rule := range slices.Sorted(maps.Keys(disturbs)) {
			fmt.Fprintf(w, "  only by -disturb: %s\t%s\n", rule, disturbs[rule])
		}
	}
	return conformance.ExitConforms, w.Flush()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"pvabi/initramfs"
	"pvabi/internal/drift"
	"pvabi/internal/kbuild"
	"pvabi/internal/progress"
	"pvabi/vmtests"
)

func check(ctx context.Context, args []string, stdout, stderr io.Writer) (status int, err error) {
	defer func() { status = bisected(args, status, err) }()
	fs := flags("check", "[target...]", "Holds a kernel of your own against the ABI: the numbers of its tree, or else its types, which takes seconds, "+
		"and then how it behaves, booted. Without targets: those that look at such a kernel.", stderr)
	r := &vmtests.Runner{}
	bootFlags(fs, r)
	tree := fs.String("linux", "", "`tree` that the kernel was built in, a source tree or the folder of make O=; without -kernel, check the kernel that was built there")
	o := reportFlags(fs, "summary")
	bisectFlag(fs, o)
	consolesFlag(fs, o)
	cache := cacheFlag(fs)
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if *tree == "" && r.Kernel == "" {
		return 0, errors.New("nothing to check; give the tree that your kernel was built in by -linux, or its file by -kernel")
	}
	found, err := still(*tree, r.Kernel)
	if err != nil {
		return 0, err
	}
	if found != nil {
		for i, p := range found.Platforms {
			found.Platforms[i].Findings = slices.DeleteFunc(p.Findings, func(f drift.Finding) bool { return !f.Kind.Drift() })
		}
		fmt.Fprint(stderr, found.Text())
		o.drift = found.Drift()
	}
	if r.Kernel != "" {
		*tree = ""
	}
	if err := fromTree(r, *tree); err != nil {
		return 0, fmt.Errorf("how it behaves cannot be looked at: %w; pvabi drift -linux looks at the numbers alone", err)
	}
	targets, err := vmtests.Find(fs.Args()...)
	if err != nil {
		return 0, err
	}
	o.named = fs.NArg() > 0
	if !o.named {
		if targets, err = fitting(targets, r, stderr); err != nil {
			return 0, err
		}
	}
	if err := checkBoot(r, targets); err != nil {
		return 0, err
	}
	screen := progress.New(stderr)
	defer screen.Close()
	r.Store = opened(cache, nil, screen)
	return o.run(ctx, r, targets, screen, stdout, stderr)
}

// still looks at a kernel without booting it: at the headers of its tree or, where there is none, at
// the types that the kernel has with it. It is nil where there are none either.
func still(tree, kernel string) (*drift.Report, error) {
	if tree == "" {
		found, err := drift.Kernel(kernel)
		if errors.Is(err, drift.ErrNoTypes) {
			return nil, nil
		}
		return found, err
	}
	return drift.Tree(kbuild.Source(tree))
}

// fitting are the targets that look at a runner's kernel, as far as its configuration is known to let
// them; of others it tells why not.
func fitting(targets []vmtests.Target, r *vmtests.Runner, w io.Writer) (out []vmtests.Target, err error) {
	info, err := initramfs.InspectKernel(r.Kernel)
	if err != nil {
		return nil, err
	}
	config, _, err := kbuild.ConfigOf(r.Kernel, info.Release, r.Modules)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if !t.Judges() || t.Guest.GOARCH != info.GOARCH {
			continue
		}
		var lacking []string
		for _, x := range t.Guest.Lacking(config, r.Modules != "") {
			if x.Side == "" {
				lacking = append(lacking, "CONFIG_"+x.Name)
			}
		}
		if len(lacking) > 0 {
			fmt.Fprintf(w, "pvabi check: target %s is left: the kernel was built without %s\n", t.Name, strings.Join(lacking, ", "))
			continue
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no target looks at kernel %s, of %s, as it is configured; name the targets to run", r.Kernel, info.GOARCH)
	}
	return out, nil
}

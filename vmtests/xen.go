package vmtests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pvabi/conformance"
	"pvabi/initramfs"
	"pvabi/internal/qemu"
	"pvabi/internal/store"
)

// Xen chooses the hypervisor below a guest, which becomes its domain 0.
type Xen struct {
	// Suite is Debian's, and Version what the versions of Xen begin with that may be taken from
	// it; empty for the store's defaults. A user's own Xen takes the place of one without a Version.
	Suite, Version string
}

// dom0Flavour is that of Debian's kernels for amd64 that can be a domain 0; the smaller one for
// clouds cannot.
const dom0Flavour = "amd64"

// xenAsked are the words for a domain 0 whose vCPUs but the first are left to programs that ask Xen:
// nothing else runs there, and the kernel's timer does not end their waits. Events go by the bits
// that these programs' machine looks at.
var xenAsked = []string{"isolcpus=1-3", "nohz_full=1-3", "irqaffinity=0", "xen.fifo_events=0"}

// xenTarget is a target on a Xen: its domain 0 has that many vCPUs, which share one CPU, and
// words on its command line. Xen itself is asked, too, where there are vCPUs for that and no words.
func xenTarget(name, text string, x Xen, cpus int, words ...string) Target {
	rules := conformance.XenGuestRules()
	asked := cpus > 1 && len(words) == 0
	if asked {
		rules, words = append(conformance.X86XenRules(), rules...), xenAsked
	}
	return Target{
		Name: name, Platform: "x86-xen", Implementer: "Xen",
		Text:  text + " under QEMU TCG, and its domain 0, a Linux guest",
		Rules: rules, Costs: asked,
		Guest: &Guest{
			GOARCH: "amd64", CPUs: cpus, Xen: &x, Flavour: dom0Flavour,
			// Linux patches its code, which QEMU's threads do not always see in the right order.
			Threads: qemu.OneThread,
			Modules: []string{"xen_privcmd", "xen_evtchn"}, Needs: []string{"/dev/xen/privcmd", "/dev/xen/evtchn"},
			Append:  words,
			Options: conformance.X86XenOptions(),
		},
	}
}

// TakesXen tells whether the target's Xen may be replaced by one of the user's.
func (t Target) TakesXen() bool {
	return t.Guest != nil && t.Guest.Xen != nil && t.Guest.Xen.Version == ""
}

// hypervisor is a Xen as an artefact, with the release that it is known to be, if any.
func (r *Runner) hypervisor(ctx context.Context, g *Guest) (artefact conformance.Artefact, release string, err error) {
	if r.Xen != "" && g.Xen.Version == "" {
		sum, err := store.SHA256(r.Xen)
		if err != nil {
			return artefact, "", err
		}
		return conformance.Artefact{Path: r.Xen, Version: "of the user's own", SHA256: sum}, "", nil
	}
	s, err := r.Store()
	if err != nil {
		return artefact, "", err
	}
	x, err := s.Xen(ctx, store.XenSpec{GOARCH: g.GOARCH, Suite: g.Xen.Suite, Version: g.Xen.Version})
	if err != nil {
		return artefact, "", fmt.Errorf("a Xen: %w", err)
	}
	return conformance.Artefact{Path: x.Path, Version: "Xen " + x.Version, SHA256: x.SHA256}, x.Release, nil
}

// xen unpacks a target's Xen into the folder temp, for QEMU to boot.
func (r *Runner) xen(ctx context.Context, g *Guest, temp string, o *outcome) (*qemu.Xen, error) {
	artefact, release, err := r.hypervisor(ctx, g)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(temp, "xen")
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("unpack Xen: %w", err)
	}
	id, err := initramfs.UnpackXen(f, artefact.Path)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	o.run.Guest.Other = append(o.run.Guest.Other, artefact)
	return &qemu.Xen{File: name, Release: release, BuildID: id}, nil
}

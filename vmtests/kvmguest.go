package vmtests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"pvabi/conformance"
	"pvabi/initramfs/agent"
	"pvabi/internal/qemu"
)

// nestedSilence and nestedWhole bound a guest that boots guests of its own, some ten, and tells of each when
// it has ended.
const (
	nestedSilence = 12 * time.Minute
	nestedWhole   = time.Hour
)

// kvmGuest boots a target's guest several times beside each other. Each boots guests of its own, its share of
// conformance.KVMGuestBoots, and what was seen of all of them is judged here.
func (r *Runner) kvmGuest(ctx context.Context, t Target, o *outcome) error {
	temp, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	g, err := r.prepare(ctx, t, o, temp)
	if err != nil || g == nil {
		return err
	}
	if err := g.hold(g.Kernel); err != nil {
		return err
	}
	g.Silence, g.Whole = nestedSilence, nestedWhole
	var (
		lock    sync.Mutex // of what events are folded into
		boots   = conformance.KVMGuestBoots()
		reports = make([]qemu.Report, bootsAtOnce)
		files   = make([]string, bootsAtOnce)
		began   = time.Now()
	)
	for i := range boots {
		boots[i].Err = "nothing was told of it"
	}
	group, together := errgroup.WithContext(ctx) // one that fails ends the others
	for i := range reports {
		files[i] = filepath.Join(temp, fmt.Sprint("console", i))
		group.Go(func() (err error) {
			config := g.Config
			config.Append = append(slices.Clone(g.Append), agent.ShareWord(i+1, len(reports)))
			config.Console = files[i]
			if line := g.Line; line != nil {
				config.Line = func(text string) { line(fmt.Sprintf("%d: %s", i+1, text)) }
			}
			var whole conformance.Whole
			var broken error
			reports[i], err = qemu.Run(together, config, func(e conformance.Event) {
				lock.Lock()
				defer lock.Unlock()
				if e.Part == nil {
					o.event(e)
					return
				}
				var b conformance.KVMGuestBoot
				complete, err := whole.Add(*e.Part, &b)
				if complete {
					err = keep(boots, b)
				}
				broken = errors.Join(broken, err)
			})
			return errors.Join(err, broken)
		})
	}
	err = errors.Join(group.Wait(), join(g.Console, files))
	for _, report := range reports {
		o.reported(report)
		s := &o.run.Seconds
		s.Boot = max(s.Boot, report.ToIdentity)
		s.Modules = max(s.Modules, report.ToLoaded-report.ToIdentity)
		s.Total = time.Since(began).Seconds()
		s.Checks = s.Total - s.Boot - s.Modules
	}
	if err := o.ended(t.Guest, g, err); err != nil || o.run.Unreached != "" || o.fatal != "" {
		return err
	}
	return agent.Run(ctx, agent.Job{Target: t.Name, Only: r.Only, Looks: r.Looks, Mutants: r.Mutants, Mutate: r.Mutate}, o.event,
		conformance.LinuxKVM(o.run.Implementer.Version, boots))
}

// heldAt is where in the guest's memory it has the kernel of its own guests: far above its own kernel, and below
// the initramfs, which QEMU puts at the end.
const (
	heldAt   = 256 << 20
	heldMost = 512 << 20
)

// hold has the guest find a kernel in its memory. In an initramfs it would be there twice.
func (g *ready) hold(kernel string) error {
	info, err := os.Stat(kernel)
	if err != nil {
		return fmt.Errorf("the kernel for the guest's own guests: %w", err)
	}
	const page = 4096
	size := (info.Size() + page - 1) &^ (page - 1)
	if size > heldMost {
		return fmt.Errorf("%s: %d bytes are too many for a kernel that a guest boots guests with", kernel, info.Size())
	}
	g.Args = append(g.Args, "-device", fmt.Sprintf("loader,addr=%#x,force-raw=on,file=%s", heldAt, strings.ReplaceAll(kernel, ",", ",,")))
	g.Append = append(g.Append, fmt.Sprintf("memmap=%#x$%#x", size, heldAt), agent.Region{Address: heldAt, Size: info.Size()}.Word())
	return nil
}

// keep puts a boot in its place.
func keep(boots []conformance.KVMGuestBoot, b conformance.KVMGuestBoot) error {
	i := slices.IndexFunc(boots, func(x conformance.KVMGuestBoot) bool { return x.Name == b.Name })
	if i < 0 {
		return fmt.Errorf("the agent tells of a boot %q that there is not", b.Name)
	}
	boots[i] = b
	return nil
}

// join writes files into one. Of those that are not there, nothing came.
func join(name string, files []string) error {
	var all []byte
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("keep a guest's console: %w", err)
		}
		all = fmt.Appendf(all, "pvabi: guest %d of %d\n%s\n", i+1, len(files), text)
	}
	if err := os.WriteFile(name, all, 0o644); err != nil {
		return fmt.Errorf("keep the guests' consoles: %w", err)
	}
	return nil
}

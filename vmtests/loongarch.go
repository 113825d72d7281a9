package vmtests

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/initramfs/agent"
	"pvabi/internal/qemu"
	"pvabi/internal/refhv"
	"pvabi/internal/refhv/tcg"
)

// referenceHypervisor is the Implementer where the project's own model answers.
const referenceHypervisor = "reference hypervisor"

// referenceSilence is how long a guest of the reference hypervisor may be silent: at each call all of its CPUs stand
// still until this process has had its turn, several times, on a host that may be busy.
const referenceSilence = 5 * time.Minute

// loongArchChanges are what makes a reference hypervisor offer those features, all that a kernel would
// where they are nil, and what breaks it by the name of a mutant, if that is not empty.
func loongArchChanges(offered []string, mutant string) ([]func(*refhv.LoongArch), error) {
	var changes []func(*refhv.LoongArch)
	if offered != nil {
		table := abi.LoongArch()
		var word uint64
		for _, name := range offered {
			word |= 1 << table.Feature(name).Bit
		}
		changes = append(changes, func(h *refhv.LoongArch) {
			if err := h.SetFeatures(word); err != nil {
				panic(err) // features of the table, and the first choice
			}
		})
	}
	if mutant != "" {
		m, ok := refhv.Find(refhv.LoongArchMutants(), mutant)
		if !ok {
			return nil, fmt.Errorf("the reference hypervisor has no mutant %q", mutant)
		}
		changes = append(changes, m.Change)
	}
	return changes, nil
}

// reference is a hypervisor that waits for its guest.
type reference struct {
	// args are QEMU's, by which the guest is reached.
	args []string
	host *refhv.Host
	ids  []uint64

	cancel context.CancelFunc
	done   chan error
}

// serveLoongArch begins to run a reference hypervisor for the guest that QEMU is about to boot from a
// file, with sockets in the folder temp, by a plugin of QEMU's if there is one. script, where it is not nil, makes
// the host's Watch. failed is told of an error, after which the guest stands still for ever.
func serveLoongArch(ctx context.Context, failed func(error), kernel, temp, plugin string, changes []func(*refhv.LoongArch),
	script func(*abi.Platform, *refhv.Host) func(refhv.Event)) (*reference, error) {
	image, err := os.ReadFile(kernel)
	if err != nil {
		return nil, fmt.Errorf("read the kernel: %w", err)
	}
	code, err := tcg.ReadKernel(image)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kernel, err)
	}
	table := abi.LoongArch()
	link := tcg.NewLink(temp, plugin, code, table)
	r := &reference{args: link.Args(), done: make(chan error, 1)}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		err := func() error {
			guest, err := link.Open(ctx)
			if err != nil {
				return err
			}
			for cpu := range guest.CPUs() {
				r.ids = append(r.ids, guest.ID(cpu))
			}
			r.host = refhv.NewHost(guest, binary.LittleEndian, table, changes...)
			if script != nil {
				r.host.Watch = script(table, r.host)
			}
			return errors.Join(r.host.Run(ctx), guest.Close())
		}()
		if err != nil {
			failed(err)
		}
		r.done <- err
	}()
	return r, nil
}

// end ends the hypervisor, after its guest, and returns what it saw.
func (r *reference) end() ([]refhv.Event, error) {
	r.cancel()
	err := <-r.done
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if r.host == nil {
		return nil, err
	}
	return r.host.Log(), err
}

// onReference runs a guest on a reference hypervisor that offers what a kernel does.
func (r *Runner) onReference(ctx context.Context, version string, c qemu.Config, o *outcome) (qemu.Report, error) {
	temp, remove, err := scratch()
	if err != nil {
		return qemu.Report{}, err
	}
	defer remove()
	plugin, err := r.trap(ctx, version, temp, o)
	if err != nil || o.run.Unreached != "" {
		return qemu.Report{}, err
	}
	guest, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	h, err := serveLoongArch(ctx, failed, c.Kernel, temp, plugin, nil, nil)
	if err != nil {
		return qemu.Report{}, err
	}
	c.Args, c.Once = append(c.Args, h.args...), true
	report, err := qemu.Run(guest, c, o.event)
	_, other := h.end()
	return report, errors.Join(err, other)
}

// loongArchGuest boots the guest that is looked at once for each of conformance.LoongArchBoots, on a
// reference hypervisor, and judges what was seen from both sides.
func (r *Runner) loongArchGuest(ctx context.Context, t Target, o *outcome) error {
	g := t.Guest
	board, err := qemu.BoardOf(g.GOARCH)
	if err != nil {
		return err
	}
	kernel, err := r.kernel(ctx, g, o)
	if err != nil {
		return o.unless(err)
	}
	if err := o.configured(kernel, g); err != nil {
		return err
	}
	emulator, err := r.emulator(ctx, g, o)
	if err != nil {
		return o.unless(err)
	}
	temp, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	plugin, err := r.trap(ctx, emulator.Version, temp, o)
	if err != nil || o.run.Unreached != "" {
		return err
	}
	image, err := r.image(ctx, g, kernel, temp)
	if err != nil {
		return roomy(err)
	}
	file, err := direct(kernel.artefact.Path, temp)
	if err != nil {
		return roomy(err)
	}
	o.run.Guest.Kernel = kernel.artefact
	o.run.Guest.Image = conformance.Artefact{Version: "built for this run", SHA256: image.SHA256, Size: image.Size}
	o.run.QEMU.Artefact = program(emulator)
	if err := os.MkdirAll(r.Output, 0o755); err != nil {
		return fmt.Errorf("the folder for results: %w", err)
	}
	console, err := os.Create(t.Console(r.Output))
	if err != nil {
		return fmt.Errorf("make the console's file: %w", err)
	}
	defer console.Close()
	boots := conformance.LoongArchBoots()
	booted := make([]loongArchBooted, len(boots))
	began := time.Now()
	line := r.line(t)
	group, together := errgroup.WithContext(ctx) // one that fails ends the others
	group.SetLimit(bootsAtOnce)
	for i := range boots {
		group.Go(func() error {
			b := &boots[i]
			own := filepath.Join(temp, fmt.Sprint(i))
			if err := os.Mkdir(own, 0o755); err != nil {
				return fmt.Errorf("make a folder for a boot: %w", err)
			}
			config := qemu.Config{
				QEMU: emulator.Command, Env: emulator.Env, Board: board, CPUs: g.CPUs, Threads: g.Threads,
				Kernel: file, Initramfs: image.Path, Release: kernel.release,
				Append: g.Append, Console: filepath.Join(own, "console"), Exit: time.Minute, Boot: referenceSilence, Silence: referenceSilence,
			}
			if line != nil {
				config.Line = func(text string) { line(b.Name + ": " + text) }
			}
			job := agent.Job{Target: t.Name, Modules: image.Names(), Scenario: b.Scenario, End: b.End}
			done, err := bootLoongArch(together, config, plugin, job, b)
			booted[i] = done
			b.Other = notEnded(b.End, done.console)
			return err
		})
	}
	err = group.Wait()
	o.run.Seconds.Total = time.Since(began).Seconds()
	for i, done := range booted {
		if done.identity != nil {
			o.event(conformance.Event{Identity: done.identity})
		}
		o.run.QEMU.Command = done.Command
		o.run.PeakRSS = max(o.run.PeakRSS, done.PeakRSS)
		o.run.Seconds.Boot = max(o.run.Seconds.Boot, done.ToIdentity)
		for _, n := range done.Notes {
			o.say(fmt.Sprintf("boot %q: %s", boots[i].Name, n))
		}
		if _, e := fmt.Fprintf(console, "pvabi: boot %d of %d: %s\n%s\n", i+1, len(boots), boots[i].Name, done.console); e != nil {
			err = errors.Join(err, fmt.Errorf("keep the console: %w", e))
		}
	}
	if err != nil {
		return err
	}
	o.run.Implementer.Version = o.run.Guest.Identity.Release
	start := time.Now()
	err = agent.Run(ctx, agent.Job{Target: t.Name, Only: r.Only, Mutants: r.Mutants, Mutate: r.Mutate}, o.event,
		conformance.LinuxLoongArch(o.run.Guest.Identity.Release, boots))
	o.run.Seconds.Checks = time.Since(start).Seconds()
	return err
}

// bootsAtOnce is how many guests are booted beside each other: a boot is busy on hardly more than one CPU.
const bootsAtOnce = 2

// loongArchBooted is what there is of a boot beside what was seen of its guest.
type loongArchBooted struct {
	qemu.Report
	identity *conformance.Identity
	console  string
}

// bootLoongArch boots a guest on the reference hypervisor and fills in what was seen of it. What goes
// wrong is in there, too; an error is one of ours.
func bootLoongArch(ctx context.Context, c qemu.Config, plugin string, job agent.Job, b *conformance.LoongArchBoot) (done loongArchBooted, err error) {
	changes, err := loongArchChanges(b.Offered, b.Change)
	if err != nil {
		return done, err
	}
	guest, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	h, err := serveLoongArch(ctx, failed, c.Kernel, filepath.Dir(c.Console), plugin, changes, conformance.LoongArchScript)
	if err != nil {
		return done, err
	}
	c.Args, c.Once, c.Append = h.args, true, append(job.Words(), c.Append...)
	b.Shown = map[string]string{}
	done.Report, err = qemu.Run(guest, c, func(e conformance.Event) {
		switch {
		case e.Shown != nil:
			b.Shown[e.Shown.Name] = e.Shown.Text
		case e.Fatal != "":
			b.Err = errors.New("the agent failed: " + e.Fatal)
		case e.Identity != nil:
			done.identity = e.Identity
		}
	})
	events, other := h.end()
	b.Events, b.IDs, b.Err = events, h.ids, errors.Join(b.Err, err, other)
	if ctx.Err() != nil {
		return done, context.Cause(ctx)
	}
	text, err := os.ReadFile(c.Console)
	if err != nil {
		return done, fmt.Errorf("keep the console: %w", err)
	}
	done.console = string(text)
	return done, nil
}

// notEnded says why a guest did not end as it was told to, by what its console has, or is empty.
func notEnded(how, console string) string {
	_, failed, ok := strings.Cut(console, "pvabi: agent: "+how+": ")
	why, _, _ := strings.Cut(failed, "\n")
	switch {
	case ok:
		return fmt.Sprintf("the guest did not end by %s: %s", how, strings.TrimSpace(why))
	case how == agent.EndPanic && !strings.Contains(console, "Kernel panic - not syncing"),
		how != agent.EndPowerOff && how != "" && strings.Contains(console, "reboot: Power down"):
		return fmt.Sprintf("the guest did not end by %s", how)
	}
	return ""
}

// The ways in which the CPUs of a guest come out to the reference hypervisor, see package tcg.
const (
	TrapGDBStub = "gdbstub"
	TrapPlugin  = "plugin"
)

// trap returns the file of the plugin of QEMU's by which CPUs come out to the reference hypervisor, empty for gdbstub. A
// run that the machine has not got what it takes for is unreached.
func (r *Runner) trap(ctx context.Context, version, temp string, o *outcome) (plugin string, err error) {
	if o.run.Unreached = tooOld(version, r.Trap); o.run.Unreached != "" || r.Trap != TrapPlugin {
		return "", nil
	}
	plugin, err = tcg.BuildPlugin(ctx, temp)
	if errors.Is(err, tcg.ErrNoCompiler) {
		o.run.Unreached = err.Error() + ", or run without -trap plugin"
		return "", nil
	}
	return plugin, err
}

// tooOld says why a version of QEMU does not do, or is empty.
func tooOld(version, trap string) string {
	const first = "11"
	switch {
	case conformance.CompareVersions(version, first) < 0:
		return strings.Join([]string{
			"QEMU " + version + " is too old for the reference hypervisor: before 10 it does not boot such a kernel, and before " + first,
			"its gdbstub forgets all translated code at each stop; `pvabi fetch` without -qemu and -qemu-version gets a newer one",
		}, " ")
	case trap == TrapPlugin && conformance.CompareVersions(version, tcg.FirstPlugin) < 0:
		return fmt.Sprintf("QEMU %s is too old for -trap plugin, which takes %s; `pvabi fetch` without -qemu and -qemu-version gets a newer one, and -trap gdbstub needs none",
			version, tcg.FirstPlugin)
	}
	return ""
}

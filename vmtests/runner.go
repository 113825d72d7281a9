package vmtests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/initramfs"
	"pvabi/initramfs/agent"
	"pvabi/internal/kbuild"
	"pvabi/internal/qemu"
	"pvabi/internal/store"
)

// Runner runs targets. The zero value, with a Store, runs them as the project's
// defaults have it.
type Runner struct {
	// Store has the artefacts. It is opened when the first target needs it.
	Store func() (*store.Store, error)
	// Kernel, Modules and QEMU are files and a folder of the user's that replace
	// those of the store. A Kernel without Modules is booted without any. Modules is
	// lib/modules/RELEASE of the kernel, or the tree that it was built in.
	Kernel, Modules, QEMU string
	// Replace are files of the user's that stand in for single modules of those; each target
	// has to load them.
	Replace []string
	// Xen is a file of the user's that replaces the store's in targets that take it.
	Xen string
	// KernelSuite, KernelVersion, QEMUSuite and QEMUVersion choose among what
	// Debian has; empty for the store's defaults.
	KernelSuite, KernelVersion string
	QEMUSuite, QEMUVersion     string
	// Threads replaces the targets' own choice.
	Threads qemu.Threads
	// Trap is how CPUs come out to the reference hypervisor, TrapGDBStub if it is empty.
	Trap string
	// Output is the folder that the guests' consoles are kept in.
	Output string
	// Consoles, where set, is what the guests' consoles are written to as they come, each
	// line behind its target's name.
	Consoles io.Writer
	// Only lists patterns, of path.Match, that select rules by topic/statement;
	// none selects all.
	Only []string
	// Mutants are numbers of the platform's table to change, each in a further
	// run of the checks in the same guest; see agent.Job.
	Mutants []agent.Mutant
	// Mutate has the checks held against the platform's table with each of its values changed in
	// turn, from the one of that number on: see agent.Job. [Runner.Mutations] does so over boots.
	Mutate int
	// Looks is how often a guest's checks are run in one boot, and Boots how often a
	// target is run; 0 is once. A verdict that changes is in the Run, see Changed.
	Looks, Boots int
	// Rounds is how often a guest's costs are measured. If it is not 0, no rule is looked at.
	Rounds int
	// Events, where set, is told of results and notes as they come.
	Events Events
}

// Events is told how a run goes on.
type Events interface {
	// Begin starts a target, for which there will be a Result for each rule.
	Begin(t Target, rules []abi.Rule)
	// Say tells of something on the way that is no result.
	Say(text string)
	Result(r conformance.Result)
	End(run *conformance.Run)
}

// Run runs a target. What goes wrong is in the Run.
func (r *Runner) Run(ctx context.Context, t Target) *conformance.Run {
	run := r.once(ctx, t)
	for boot := 2; boot <= r.Boots && ctx.Err() == nil; boot++ {
		again := *r
		again.Events = nil
		next := again.once(ctx, t)
		changed := slices.Clone(next.Changed)
		for _, res := range next.Results {
			if i := slices.IndexFunc(run.Results, func(x conformance.Result) bool { return x.Rule == res.Rule }); i < 0 || run.Results[i].Verdict != res.Verdict {
				res.Look = boot
				changed = append(changed, res)
			}
		}
		run.Changed = append(run.Changed, changed...)
		note := fmt.Sprintf("boot %d of %d: %d of %d verdicts are others than before", boot, r.Boots, len(changed), len(next.Results))
		if next.Error != "" {
			note += "; " + next.Error
		}
		run.Notes = append(run.Notes, note)
		if r.Events != nil {
			r.Events.Say(note)
		}
	}
	return run
}

// once runs a target in one boot.
func (r *Runner) once(ctx context.Context, t Target) *conformance.Run {
	run := &conformance.Run{
		Target: t.Name, Platform: t.Platform,
		Implementer: conformance.Implementer{Name: t.Implementer},
		Results:     []conformance.Result{},
	}
	o := &outcome{run: run, events: r.Events}
	if r.Rounds == 0 {
		o.rules = r.selected(t.Rules)
	}
	o.begin(t)
	var err error
	switch {
	case t.local != nil:
		err = r.here(ctx, t, o)
	case t.boot != nil:
		err = t.boot(r, ctx, t, o)
	default:
		err = r.guest(ctx, t, o)
	}
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", qemu.ErrCanceled, context.Cause(ctx))
	}
	o.end(err)
	return run
}

func (r *Runner) selected(rules []abi.Rule) []abi.Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(x abi.Rule) bool { return !agent.Selected(r.Only, x.Name()) })
}

// outcome fills in a run.
type outcome struct {
	run    *conformance.Run
	rules  []abi.Rule
	events Events
	fatal  string
	// lacking are options that the guest's kernel is known to be built without.
	lacking []conformance.Option
}

func (o *outcome) begin(t Target) {
	if o.events != nil {
		o.events.Begin(t, o.rules)
	}
}

// say notes what a reader of the report should know.
func (o *outcome) say(text string) {
	o.run.Notes = append(o.run.Notes, text)
	if o.events != nil {
		o.events.Say(text)
	}
}

func (o *outcome) result(r conformance.Result) {
	if r.Verdict == conformance.Unreached {
		r.Reason = o.because(r.Reason, func(x conformance.Option) bool { return x.Side != "" && x.Side == r.Side })
	}
	if r.Mutant != "" {
		o.run.Mutants = append(o.run.Mutants, r)
		return
	}
	if r.Look > 1 {
		o.run.Changed = append(o.run.Changed, r)
		return
	}
	o.run.Results = append(o.run.Results, r)
	if o.events != nil {
		o.events.Result(r)
	}
}

// because adds to a reason the options that the kernel lacks, of those that are meant.
func (o *outcome) because(reason string, meant func(conformance.Option) bool) string {
	var names []string
	for _, x := range o.lacking {
		if meant(x) {
			names = append(names, "CONFIG_"+x.Name)
		}
	}
	if len(names) == 0 {
		return reason
	}
	return reason + "; the kernel was built without " + strings.Join(names, ", ")
}

// configured looks for what the guest's kernel was built without, where its configuration is known.
func (o *outcome) configured(k bootable, g *Guest) error {
	c, file, err := kbuild.ConfigOf(k.artefact.Path, k.release, k.modules)
	if err != nil || c == nil {
		return err
	}
	o.run.Guest.Config = file
	o.lacking = g.Lacking(c, k.modules != "")
	for _, x := range o.lacking {
		o.say(fmt.Sprintf("%s is without %v", file, x))
	}
	return nil
}

// event folds one event of an agent into the run.
func (o *outcome) event(e conformance.Event) {
	switch {
	case e.Identity != nil:
		o.run.Guest.Identity = *e.Identity
	case e.Loaded != nil:
		o.run.Guest.Modules = e.Loaded.Modules
		o.run.Implementer.Version = e.Loaded.Implementer
	case e.Result != nil:
		o.result(*e.Result)
	case e.Measured != nil:
		o.run.Measured = append(o.run.Measured, *e.Measured)
	case e.Mutated != nil:
		o.mutated(*e.Mutated)
	case e.Note != "":
		o.say(e.Note)
	case e.Unreached != "":
		o.run.Unreached = e.Unreached
	case e.Fatal != "":
		o.fatal = e.Fatal
	}
}

// end gives a verdict to each rule that has none: none may be passed over in silence.
func (o *outcome) end(err error) {
	switch {
	case err != nil:
		o.run.Error = err.Error()
		var failed *qemu.Error
		if errors.As(err, &failed) {
			o.run.Error = failed.Err.Error()
			if console := strings.TrimRight(failed.Console, "\n"); console != "" {
				o.run.Console = strings.Split(console, "\n")
			}
			// That it was killed is what QEMU says of that, too.
			if failed.Stderr != "" && !errors.Is(err, qemu.ErrKilled) {
				o.run.Error += ": " + failed.Stderr
			}
		}
	case o.fatal != "":
		o.run.Error = "the agent failed: " + o.fatal
	}
	verdict, reason := conformance.Error, "not looked at: the target failed"
	everything := func(x conformance.Option) bool { return x.Side == "" }
	switch {
	case o.run.Error != "":
		o.run.Error = o.because(o.run.Error, everything)
	case o.run.Unreached != "":
		o.run.Unreached = o.because(o.run.Unreached, everything)
	}
	switch {
	case o.run.Error == "" && o.run.Unreached != "":
		verdict, reason = conformance.Unreached, o.run.Unreached
	case o.run.Error == "":
		reason = "the agent finished without a result for the rule"
	}
	for _, rule := range o.rules {
		if !slices.ContainsFunc(o.run.Results, func(r conformance.Result) bool { return r.Rule == rule.ID }) {
			o.result(conformance.Result{Rule: rule.ID, Side: rule.Side, Verdict: verdict, Reason: reason})
		}
	}
	if o.events != nil {
		o.events.End(o.run)
	}
}

// ready is a guest that is ready to be booted.
type ready struct {
	qemu.Config
	kernel   bootable
	emulator *store.QEMU
}

// guest boots a target's guest, whose agent judges.
func (r *Runner) guest(ctx context.Context, t Target, o *outcome) error {
	temp, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	g, err := r.prepare(ctx, t, o, temp)
	if err != nil || g == nil {
		return err
	}
	if r.Mutate > 0 || len(r.Mutants) > 0 || r.Looks > 1 || t.Guest.Scenario != "" {
		g.Whole = max(g.Whole, mutateBound)
	}
	if r.Rounds > 0 {
		// A KVM that polls before it has a CPU sleep keeps an emulator from its other CPUs, as it
		// likes: round trips take some time, or ten times that.
		g.Append = append(g.Append, "kvm.halt_poll_ns=0")
	}
	var report qemu.Report
	if t.Guest.Reference {
		if r.Rounds > 0 {
			o.say("what is measured is the project's own model of a hypervisor and the way in which CPUs come out to it, nothing of a real KVM")
		}
		report, err = r.onReference(ctx, g.emulator.Version, g.Config, o)
	} else {
		report, err = qemu.Run(ctx, g.Config, o.event)
	}
	o.reported(report)
	o.run.Seconds = conformance.Seconds{
		Boot: report.ToIdentity, Modules: max(report.ToLoaded-report.ToIdentity, 0),
		Checks: max(report.ToResult-report.ToLoaded, 0), Total: report.Total,
	}
	return o.ended(t.Guest, g, err)
}

// prepare makes all that it takes to boot a target's guest, with files in the folder temp; nothing where the
// target is unreached.
func (r *Runner) prepare(ctx context.Context, t Target, o *outcome, temp string) (*ready, error) {
	g := t.Guest
	board, err := qemu.BoardOf(g.GOARCH)
	if err != nil {
		return nil, err
	}
	if g.Xen != nil {
		board = qemu.XenBoard
	}
	if g.Memory != 0 {
		board.Memory = g.Memory
	}
	if g.Machine != "" {
		board.Machine += "," + g.Machine
	}
	board.CPU = cmp.Or(g.CPU, board.CPU)
	kernel, err := r.kernel(ctx, g, o)
	if err != nil {
		return nil, o.unless(err)
	}
	if err := o.configured(kernel, g); err != nil {
		return nil, err
	}
	emulator, err := r.emulator(ctx, g, o)
	if err != nil {
		return nil, o.unless(err)
	}
	boot, err := direct(kernel.artefact.Path, temp)
	if err != nil {
		return nil, roomy(err)
	}
	o.run.Guest.Other, err = r.replaced(kernel.release)
	if err != nil {
		return nil, err
	}
	image, err := r.image(ctx, g, kernel, temp)
	if errors.Is(err, initramfs.ErrModuleMissing) {
		o.run.Unreached = fmt.Sprintf("%v; the target needs a kernel that has it, built in or as a module", err)
		return nil, nil
	}
	if err != nil {
		return nil, roomy(err)
	}
	if f := emulator.Firmware; f != nil && boot == kernel.artefact.Path {
		board.Firmware = f.Path
		o.run.Guest.Other = append(o.run.Guest.Other, conformance.Artefact{Path: f.Path, SHA256: f.SHA256})
	}
	var xen *qemu.Xen
	if g.Xen != nil {
		if xen, err = r.xen(ctx, g, temp, o); err != nil {
			return nil, roomy(o.unless(err))
		}
	}
	o.run.Guest.Kernel = kernel.artefact
	o.run.Guest.Image = conformance.Artefact{Version: "built for this run", SHA256: image.SHA256, Size: image.Size}
	o.run.QEMU.Artefact = program(emulator)
	if err := os.MkdirAll(r.Output, 0o755); err != nil {
		return nil, fmt.Errorf("the folder for results: %w", err)
	}
	job := agent.Job{
		Target: t.Name, Modules: image.Names(), Needs: g.Needs, Only: r.Only, Looks: r.Looks, Rounds: r.Rounds, Scenario: g.Scenario, Mutate: r.Mutate,
	}
	if t.Implementer == implementedByQEMU {
		job.Implementer = emulator.Version
	}
	config := qemu.Config{
		QEMU: emulator.Command, Env: emulator.Env, Board: board,
		CPUs: g.CPUs, Threads: cmp.Or(r.Threads, g.Threads),
		Kernel: boot, Initramfs: image.Path, Release: kernel.release, Xen: xen,
		Append:  append(job.Words(), g.Append...),
		Console: t.Console(r.Output), Line: r.line(t),
	}
	if g.Reference {
		config.Boot, config.Silence = referenceSilence, referenceSilence
	}
	return &ready{config, kernel, emulator}, nil
}

// unless returns an error, or nothing where it is that Debian does not have what the target takes, which is then
// unreached.
func (o *outcome) unless(err error) error {
	if !errors.Is(err, store.ErrNone) {
		return err
	}
	o.run.Unreached = err.Error()
	return nil
}

// reported takes over what there is to say about a guest, or one of several.
func (o *outcome) reported(report qemu.Report) {
	o.run.QEMU.Command = report.Command
	o.run.PeakRSS = max(o.run.PeakRSS, report.PeakRSS)
	for _, n := range report.Notes {
		o.say(n)
	}
}

// ended is told how a guest ended, and returns the error if it is one: a QEMU that cannot have the machine makes
// its target unreached.
func (o *outcome) ended(g *Guest, booted *ready, err error) error {
	if name := lacking(err, g.Machine); name != "" {
		o.run.Unreached = fmt.Sprintf("QEMU %s has no property %s of the machine", booted.emulator.Version, name)
		err = nil
	}
	if o.run.Unreached != "" && booted.kernel.modules == "" && len(g.Modules) > 0 {
		o.run.Unreached += "; if the kernel has modules, give their folder by -modules, or the tree that they were built in by -modules-from"
	}
	return err
}

// line returns what writes a line of a target's console; nil where nobody wants them.
func (r *Runner) line(t Target) func(string) {
	if r.Consoles == nil {
		return nil
	}
	var lock sync.Mutex // for targets that boot several guests beside each other
	return func(line string) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Fprintf(r.Consoles, "%s: %s\n", t.Name, line)
	}
}

// lacking returns the property of a machine that a QEMU ended for because it does not know it, or
// nothing.
func lacking(err error, properties string) string {
	var failed *qemu.Error
	if properties == "" || !errors.As(err, &failed) {
		return ""
	}
	for property := range strings.SplitSeq(properties, ",") {
		name, _, _ := strings.Cut(property, "=")
		// qom/object.c, object_property_find_err
		if strings.Contains(failed.Stderr, "."+name+"' not found") {
			return name
		}
	}
	return ""
}

// direct returns the file to boot for a kernel: one that is unpacked into the folder
// temp where QEMU can enter that directly, or the kernel's own.
func direct(kernel, temp string) (string, error) {
	name := filepath.Join(temp, "vmlinux")
	f, err := os.Create(name)
	if err != nil {
		return "", fmt.Errorf("unpack the kernel: %w", err)
	}
	err = initramfs.UnpackKernel(f, kernel)
	if errors.Is(err, initramfs.ErrNotDirect) {
		return kernel, f.Close()
	}
	return name, errors.Join(err, f.Close())
}

// bootable is a kernel that was looked into.
type bootable struct {
	artefact conformance.Artefact
	release  string // uname -r, empty if not known
	modules  string // the folder of its modules, empty for none
}

func (r *Runner) kernel(ctx context.Context, g *Guest, o *outcome) (bootable, error) {
	if r.Kernel != "" {
		info, err := initramfs.CheckKernel(r.Kernel, g.GOARCH)
		if err != nil {
			return bootable{}, err
		}
		sum, err := store.SHA256(r.Kernel)
		if err != nil {
			return bootable{}, err
		}
		return bootable{conformance.Artefact{Path: r.Kernel, Version: info.Release, SHA256: sum}, info.Release, r.Modules}, nil
	}
	s, err := r.Store()
	if err != nil {
		return bootable{}, err
	}
	k, err := s.Kernel(ctx, store.KernelSpec{GOARCH: g.GOARCH, Flavour: g.Flavour, Suite: r.KernelSuite, Version: r.KernelVersion})
	if err != nil {
		return bootable{}, fmt.Errorf("a kernel: %w", err)
	}
	b := bootable{conformance.Artefact{Path: k.Image, Version: k.Release + " (" + k.Version + ")", SHA256: k.SHA256}, k.Release, k.Modules}
	if r.Modules != "" {
		b.modules = r.Modules
	}
	return b, nil
}

// emulator returns the QEMU to use: the user's, the store's, or, where the store has
// none and cannot get any, the installed one.
func (r *Runner) emulator(ctx context.Context, g *Guest, o *outcome) (*store.QEMU, error) {
	if r.QEMU != "" {
		return store.QEMUFile(ctx, g.GOARCH, r.QEMU)
	}
	s, err := r.Store()
	if err != nil {
		return nil, err
	}
	q, err := s.QEMU(ctx, store.QEMUSpec{GOARCH: g.GOARCH, Suite: r.QEMUSuite, Version: r.QEMUVersion})
	if err == nil || ctx.Err() != nil || r.QEMUSuite != "" || r.QEMUVersion != "" {
		return q, err
	}
	installed, other := store.InstalledQEMU(ctx, g.GOARCH)
	if other != nil {
		return nil, fmt.Errorf("no QEMU: %w; and none is installed: %w", err, other)
	}
	o.say(fmt.Sprintf("using the installed QEMU %s, because the store has none: %v", installed.Version, err))
	return installed, nil
}

func (r *Runner) image(ctx context.Context, g *Guest, k bootable, temp string) (*initramfs.Image, error) {
	init, err := initramfs.BuildAgent(ctx, temp, g.GOARCH)
	if err != nil {
		return nil, err
	}
	c := initramfs.Config{Agent: init, GOARCH: g.GOARCH, Release: k.release, Path: filepath.Join(temp, "initramfs.cpio")}
	c.Files = map[string]string{}
	if len(r.Mutants) > 0 {
		words := filepath.Join(temp, "mutants")
		if err := os.WriteFile(words, []byte(strings.Join(agent.MutantWords(r.Mutants), "\n")), 0o600); err != nil {
			return nil, fmt.Errorf("write the changes of a table for the image: %w", err)
		}
		c.Files[agent.MutantsFile] = words
	}
	if k.modules != "" {
		c.Modules, c.Load, c.May, c.Replace = k.modules, g.Modules, agent.ChannelModules, r.Replace
	}
	return initramfs.Build(c)
}

// replaced lists the modules of the user's that stand in for those of a kernel.
func (r *Runner) replaced(release string) (out []conformance.Artefact, err error) {
	for _, file := range r.Replace {
		sum, err := store.SHA256(file)
		if err != nil {
			return nil, err
		}
		out = append(out, conformance.Artefact{Path: file, Version: release, SHA256: sum})
	}
	return out, nil
}

// Fetch gets what a target boots from into the store, and lists it.
func (r *Runner) Fetch(ctx context.Context, t Target) ([]conformance.Artefact, error) {
	if t.Guest == nil {
		return nil, nil
	}
	o := &outcome{run: new(conformance.Run), events: r.Events}
	k, err := r.kernel(ctx, t.Guest, o)
	if err != nil {
		return nil, err
	}
	q, err := r.emulator(ctx, t.Guest, o)
	if err != nil {
		return nil, err
	}
	artefacts := []conformance.Artefact{k.artefact, program(q)}
	if t.Guest.Xen != nil {
		x, _, err := r.hypervisor(ctx, t.Guest)
		if err != nil {
			return nil, err
		}
		artefacts = append(artefacts, x)
	}
	return artefacts, nil
}

// program is a QEMU as an artefact.
func program(q *store.QEMU) conformance.Artefact {
	return conformance.Artefact{Path: q.Program, Version: q.Version, SHA256: q.SHA256}
}

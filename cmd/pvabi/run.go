package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/initramfs/agent"
	"pvabi/internal/kbuild"
	"pvabi/internal/progress"
	"pvabi/internal/qemu"
	"pvabi/internal/store"
	"pvabi/vmtests"
)

// artefactFlags adds the flags that choose what targets boot from.
func artefactFlags(fs *flag.FlagSet, r *vmtests.Runner) {
	fs.StringVar(&r.KernelSuite, "kernel-suite", "", "take kernels from this Debian `suite` (default "+store.Suite+")")
	fs.StringVar(&r.KernelVersion, "kernel-version", "", "take the newest kernel whose `version` begins so, such as 6.12")
	fs.StringVar(&r.QEMUSuite, "qemu-suite", "", "take QEMU from this Debian `suite` (default "+store.Suite+")")
	fs.StringVar(&r.QEMUVersion, "qemu-version", "", "take the newest QEMU whose `version` begins so")
}

// bootFlags adds those, and the flags that name files of the user's.
func bootFlags(fs *flag.FlagSet, r *vmtests.Runner) {
	fs.StringVar(&r.Kernel, "kernel", "", "boot this kernel `file`")
	fs.StringVar(&r.Modules, "modules", "", "load modules out of this `folder`, lib/modules/RELEASE of the kernel")
	fs.Func("module", "load this `file`, such as kvm.ko of an own build, in the place of the kernel's module of its name; may be given more than once", func(file string) error {
		r.Replace = append(r.Replace, file)
		return nil
	})
	fs.StringVar(&r.QEMU, "qemu", "", "run this QEMU `file`; its firmware may be in a folder pc-bios beside it")
	fs.StringVar(&r.Xen, "xen", "", "boot on this Xen `file`, such as xen/xen.gz of an own build")
	fs.StringVar(&r.Trap, "trap", vmtests.TrapGDBStub, "have CPUs come out to the reference hypervisor by QEMU's `gdbstub`, or by a plugin of QEMU 11.1, which takes a C compiler")
	artefactFlags(fs, r)
}

// checkBoot refuses what is wrong, and files of the user's that are not for all of the targets.
func checkBoot(r *vmtests.Runner, targets []vmtests.Target) error {
	if r.Trap != vmtests.TrapGDBStub && r.Trap != vmtests.TrapPlugin {
		return fmt.Errorf("unknown -trap %q; there are %s and %s", r.Trap, vmtests.TrapGDBStub, vmtests.TrapPlugin)
	}
	if (r.Kernel != "" || r.Modules != "" || len(r.Replace) > 0 || r.QEMU != "") && !oneArchitecture(targets) {
		return errors.New("-kernel, -modules, -module and -qemu are for guests of one architecture; name the targets to run")
	}
	if len(r.Replace) > 0 && r.Kernel != "" && r.Modules == "" {
		return errors.New("-module stands in for one of the kernel's modules; give the folder of the others by -modules, or the tree that they were built in")
	}
	if i := slices.IndexFunc(targets, func(t vmtests.Target) bool { return !t.TakesXen() }); r.Xen != "" && i >= 0 {
		return fmt.Errorf("-xen is not for target %s; name targets that boot on any Xen", targets[i].Name)
	}
	return nil
}

// cacheFlag adds the flag for the folder of the store.
func cacheFlag(fs *flag.FlagSet) *string {
	return fs.String("cache", "", "keep artefacts in this `folder` (default $PVABI_CACHE, or pvabi in the user's cache folder)")
}

// opened opens the store in its folder once, when it is needed.
func opened(dir *string, refresh *bool, screen *progress.Display) func() (*store.Store, error) {
	return sync.OnceValues(func() (*store.Store, error) {
		s, err := store.Open(*dir, screen)
		if err == nil && refresh != nil {
			s.Refresh = *refresh
		}
		return s, err
	})
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int, err error) {
	defer func() { status = bisected(args, status, err) }()
	fs := flags("run", "[target...]", "Boots the targets, checks them and reports. Without targets: every one that can run here.", stderr)
	r := &vmtests.Runner{}
	bootFlags(fs, r)
	tree := fs.String("modules-from", "", "load modules out of this `tree`, in which the kernel was built; without -kernel, boot the kernel that was built there")
	threads := fs.String("threads", "", "emulate CPUs on a `single` thread or on multi, one for each (default: the target's choice)")
	fs.IntVar(&r.Looks, "looks", 1, "look at each rule this often in one boot; exit 2 if a verdict changes")
	fs.IntVar(&r.Boots, "boots", 1, "boot each target this often; exit 2 if a verdict changes")
	o := reportFlags(fs, "ktap")
	bisectFlag(fs, o)
	consolesFlag(fs, o)
	cache := cacheFlag(fs)
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if r.Looks < 1 || r.Boots < 1 {
		return 0, errors.New("-looks and -boots want numbers from 1")
	}
	switch r.Threads = qemu.Threads(*threads); r.Threads {
	case "", qemu.OneThread, qemu.ThreadPerCPU:
	default:
		return 0, fmt.Errorf("unknown -threads %q; there are %s and %s", *threads, qemu.OneThread, qemu.ThreadPerCPU)
	}
	targets, err := vmtests.Find(fs.Args()...)
	if err != nil {
		return 0, err
	}
	if err := fromTree(r, *tree); err != nil {
		return 0, fmt.Errorf("-modules-from: %w", err)
	}
	if err := checkBoot(r, targets); err != nil {
		return 0, err
	}
	screen := progress.New(stderr)
	defer screen.Close()
	r.Store = opened(cache, nil, screen)
	o.named = fs.NArg() > 0
	return o.run(ctx, r, targets, screen, stdout, stderr)
}

// fromTree has a runner boot what was built in a tree, as far as it has no files of the user's; it does
// nothing without a tree.
func fromTree(r *vmtests.Runner, dir string) error {
	if dir == "" {
		return nil
	}
	if r.Kernel == "" && r.Modules != "" {
		return errors.New("modules of another folder are not for the kernel of the tree; give its file by -kernel, too, or no -modules")
	}
	t, err := kbuild.Open(dir)
	if err != nil {
		return err
	}
	if r.Kernel == "" || r.Modules == "" {
		r.Modules = t.Modules
	}
	r.Kernel = cmp.Or(r.Kernel, t.Kernel)
	return nil
}

// forms are those of a report on standard output.
var forms = []string{"ktap", "summary", "json", "junit"}

// reporting is how targets are run and reported.
type reporting struct {
	command string // for messages

	output, format, rules, against string

	strict bool
	// consoles has what guests print on their consoles shown.
	consoles bool
	named    bool // the targets were named, and so must run
	bisect   bool // see bisected
	// drift is what was found without booting, see conformance.Report.
	drift []string
}

// reportFlags adds the flags of commands that run targets. form is what the report is printed as
// unless the user wants another one.
func reportFlags(fs *flag.FlagSet, form string) *reporting {
	o := &reporting{command: strings.TrimPrefix(fs.Name(), "pvabi ")}
	fs.StringVar(&o.output, "o", "results", "write results.json, and the consoles of guests, to this `folder`")
	fs.StringVar(&o.format, "format", form, "`form` of the report on standard output: "+strings.Join(forms, ", "))
	fs.StringVar(&o.rules, "rules", "", "look only at rules that match one of these comma-separated `patterns` of topic/statement, such as kick/*")
	fs.BoolVar(&o.strict, "strict", false, "exit 1 where a listed deviation no longer shows")
	fs.StringVar(&o.against, "against", "", "tell on standard error what changed from the results.json in this `file`, and exit 1 only where a rule got worse")
	return o
}

// run runs targets, reports, and returns the exit status.
func (o *reporting) run(ctx context.Context, r *vmtests.Runner, targets []vmtests.Target, screen *progress.Display, stdout, stderr io.Writer) (int, error) {
	if !slices.Contains(forms, o.format) {
		return 0, fmt.Errorf("unknown format %q; there are %s", o.format, strings.Join(forms, ", "))
	}
	base, err := readBase(o.against)
	if err != nil {
		return 0, err
	}
	if r.Only, err = patterns(o.rules, targets); err != nil {
		return 0, err
	}
	r.Output = o.output
	folder, err := claim(r.Output, targets, results)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	// A reader of the report that goes away does not end the run: writes fail, which
	// is told at the end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	stdout, stderr = screen.Writer(stdout), screen.Writer(stderr)
	if o.consoles {
		r.Consoles = stderr
	}
	out := &printer{w: stdout, stderr: stderr, screen: screen}
	if o.format == "ktap" {
		out.ktap = conformance.NewKTAP(stdout, len(targets))
	}
	r.Events = out
	report := &conformance.Report{Schema: conformance.Schema, Drift: o.drift, Runs: []*conformance.Run{}}
	for _, t := range targets {
		if ctx.Err() != nil {
			break
		}
		if err := t.Reachable(ctx); err != nil {
			report.Runs = append(report.Runs, out.skip(t, err))
			continue
		}
		report.Runs = append(report.Runs, r.Run(ctx, t))
	}
	if err := errors.Join(save(report.WriteJSON, r.Output, results), out.end(report, o.format)); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("what was finished is in %s", filepath.Join(r.Output, results))
	}
	for _, f := range failures(report, o.named) {
		fmt.Fprintf(stderr, "pvabi %s: %s\n", o.command, f)
	}
	status := o.status(report)
	switch {
	case status == conformance.ExitFailed:
		return status, nil
	case base == nil && len(o.drift) > 0:
		return conformance.ExitBroken, nil
	case base == nil:
		return status, nil
	}
	return o.judge(stderr, base, report, r.Only), nil
}

// status is the exit status for a report, without a base. A bisection is told of a rule that was seen to
// be broken though the equipment failed for others, as it may by the same defect.
func (o *reporting) status(r *conformance.Report) int {
	status := r.ExitStatus(o.named, o.strict)
	broken := func(r conformance.Result) bool { return r.Verdict == conformance.Fail }
	if o.bisect && status == conformance.ExitFailed &&
		slices.ContainsFunc(r.Runs, func(r *conformance.Run) bool { return slices.ContainsFunc(r.Results, broken) }) {
		return conformance.ExitBroken
	}
	return status
}

// judge tells what changed from the base to a report, and returns the exit status for it.
func (o *reporting) judge(w io.Writer, base, report *conformance.Report, only []string) int {
	changes := compare(base, report, only)
	status := writeChanges(w, changes)
	unknown := !slices.ContainsFunc(changes, func(c conformance.Change) bool {
		return c.Worse() && c.New != conformance.Unreached && c.New != conformance.Error
	})
	if o.bisect && status == conformance.ExitBroken && unknown {
		status = conformance.ExitFailed
	}
	for _, f := range report.Drift {
		if !slices.Contains(base.Drift, f) {
			fmt.Fprintf(w, "%-8s%s\n", "drift", f)
			status = conformance.ExitBroken
		}
	}
	return status
}

// consolesFlag adds the flag of commands whose targets are guests.
func consolesFlag(fs *flag.FlagSet, o *reporting) {
	fs.BoolVar(&o.consoles, "v", false, "print the guests' consoles on standard error as they come")
}

// bisectFlag adds the flag for git bisect.
func bisectFlag(fs *flag.FlagSet, o *reporting) {
	fs.BoolVar(&o.bisect, "bisect", false, fmt.Sprintf("exit as git bisect run wants it: %d, not 2, where this commit cannot be tested, and %d where no commit can", exitSkip, exitAbort))
}

// Exit statuses for git bisect run, of a command line with -bisect.
const (
	exitSkip  = 125 // what was to be tested cannot be
	exitAbort = 128 // nor can any other commit
)

// bisected turns the exit status of a command line, or its error, into what git bisect run
// understands, where -bisect is among its arguments: other statuses up to 127 are those of a bad
// commit.
func bisected(args []string, status int, err error) int {
	switch {
	case !slices.ContainsFunc(args, func(a string) bool { return strings.TrimLeft(a, "-") == "bisect" }):
		return status
	case errors.Is(err, kbuild.ErrNoBuild), err == nil && status == conformance.ExitFailed:
		return exitSkip
	case err != nil && !errors.Is(err, flag.ErrHelp):
		return exitAbort
	}
	return status
}

// readBase reads the results to compare with; nil for no name. It comes before the run,
// so that a wrong name does not cost one.
func readBase(path string) (*conformance.Report, error) {
	if path == "" {
		return nil, nil
	}
	r, err := readReport(path)
	if err != nil {
		return nil, fmt.Errorf("-against: %w", err)
	}
	return r, nil
}

// compare tells what changed. Of the base only what this run was to look at counts.
func compare(base, report *conformance.Report, only []string) []conformance.Change {
	mine := &conformance.Report{Schema: base.Schema}
	for _, run := range base.Runs {
		if !slices.ContainsFunc(report.Runs, func(r *conformance.Run) bool { return r.Target == run.Target }) {
			continue
		}
		part := *run
		part.Results = slices.DeleteFunc(slices.Clone(run.Results), func(r conformance.Result) bool {
			_, name, _ := strings.Cut(r.Rule, "/")
			return !agent.Selected(only, name)
		})
		mine.Runs = append(mine.Runs, &part)
	}
	return conformance.Diff(mine, report)
}

// failures tells why a run's exit status is that of failed equipment.
func failures(r *conformance.Report, named bool) (out []string) {
	anything := false
	for _, run := range r.Runs {
		looked := slices.ContainsFunc(run.Results, func(x conformance.Result) bool { return x.Verdict.Looked() })
		anything = anything || looked
		why := run.Error
		switch {
		case why != "" || !named:
		case run.Unreached != "":
			why = "unreached: " + run.Unreached
		case !looked:
			why = "no rule was looked at"
		}
		if why != "" {
			out = append(out, run.Target+": "+why)
		}
		for _, r := range run.Changed {
			out = append(out, fmt.Sprintf("%s: look %d at %s gave %s: %s", run.Target, r.Look, r.Rule, r.Verdict, cmp.Or(r.Observed, r.Reason)))
		}
	}
	if len(out) == 0 && !anything {
		out = []string{"no rule was looked at"}
	}
	return out
}

// patterns splits and checks the patterns of -rules: each must select something.
func patterns(list string, targets []vmtests.Target) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	all := strings.Split(list, ",")
	for i, p := range all {
		p = strings.TrimSpace(p)
		all[i] = p
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("-rules %q: %w", p, err)
		}
		if !slices.ContainsFunc(targets, func(t vmtests.Target) bool {
			return slices.ContainsFunc(t.Rules, func(r abi.Rule) bool { ok, _ := path.Match(p, r.Name()); return ok })
		}) {
			return nil, fmt.Errorf("-rules %q selects no rule of these targets; pvabi spec lists them", p)
		}
	}
	return all, nil
}

// oneArchitecture tells whether all targets with a guest have guests of one
// architecture, and there is one.
func oneArchitecture(targets []vmtests.Target) bool {
	seen := map[string]bool{}
	for _, t := range targets {
		if t.Guest != nil {
			seen[t.Guest.GOARCH] = true
		}
	}
	return len(seen) == 1
}

// printer prints a report as it comes.
type printer struct {
	w      io.Writer
	stderr io.Writer
	screen *progress.Display
	ktap   *conformance.KTAP // nil for the forms that are printed at the end
}

// Begin implements vmtests.Events.
func (o *printer) Begin(t vmtests.Target, rules []abi.Rule) {
	o.screen.Target(t.Name, len(rules))
	if o.ktap != nil {
		o.ktap.Begin(t.Name, rules)
		o.ktap.Comment("%s: %s", t.Implementer, t.Text)
	}
}

// Say implements vmtests.Events.
func (o *printer) Say(text string) {
	if o.ktap != nil {
		o.ktap.Comment("%s", text)
	} else {
		fmt.Fprintln(o.stderr, text)
	}
}

// Result implements vmtests.Events.
func (o *printer) Result(r conformance.Result) {
	if o.ktap != nil {
		o.ktap.Result(r)
	}
	o.screen.Checked()
}

// End implements vmtests.Events.
func (o *printer) End(run *conformance.Run) {
	o.screen.Target("", 0)
	if o.ktap == nil {
		return
	}
	if run.Guest.Release != "" {
		implementer := strings.TrimSpace(run.Implementer.Name + " " + run.Implementer.Version)
		if run.QEMU.Version != "" {
			o.ktap.Comment("%s, guest %s, QEMU %s", implementer, run.Guest.Release, run.QEMU.Version)
		} else {
			o.ktap.Comment("%s, this machine %s", implementer, run.Guest.Release)
		}
	}
	switch s := run.Seconds; {
	case s.Boot > 0:
		o.ktap.Comment("boot %.1f s, modules %.1f s, checks %.1f s, all %.1f s", s.Boot, s.Modules, s.Checks, s.Total)
	case s.Total > 0:
		o.ktap.Comment("%.1f s", s.Total)
	}
	if len(run.Console) > 0 {
		o.ktap.Comment("the console ends with:\n%s", strings.Join(run.Console, "\n"))
	}
	o.ktap.EndTarget(run)
}

// skip reports a target that cannot run on this machine.
func (o *printer) skip(t vmtests.Target, why error) *conformance.Run {
	run := &conformance.Run{
		Target: t.Name, Platform: t.Platform, Implementer: conformance.Implementer{Name: t.Implementer},
		Unreached: why.Error(), Results: []conformance.Result{},
	}
	if o.ktap != nil {
		o.ktap.Skip(run)
	}
	return run
}

func (o *printer) end(r *conformance.Report, format string) error {
	switch format {
	case "json":
		return r.WriteJSON(o.w)
	case "junit":
		return r.WriteJUnit(o.w)
	case "summary":
		return r.WriteSummary(o.w)
	}
	o.ktap.Portable(r)
	return o.ktap.End()
}

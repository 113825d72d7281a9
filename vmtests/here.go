package vmtests

import (
	"cmp"
	"context"
	"errors"
	"time"

	"pvabi/initramfs/agent"
	"pvabi/initramfs/suites"
)

// local is a target of the machine that this process runs on, and how to look at it.
type local struct {
	suites.Local
	options suites.Options
}

// Here are the targets that this machine itself is and that have these names; for none all that
// are below it.
func Here(o suites.Options, names ...string) ([]Target, error) {
	var all []Target
	for _, l := range suites.Locals() {
		if !l.Named || len(names) > 0 {
			all = append(all, here(l, o))
		}
	}
	return Choose(all, names...)
}

// here is a local target. What the machine cannot know of the implementer, the options may say.
func here(l suites.Local, o suites.Options) Target {
	o.Implementer.Name = l.Implementer.Name
	o.Implementer.Version = cmp.Or(l.Implementer.Version, o.Implementer.Version)
	return Target{
		Name: l.Name, Platform: l.Platform, Implementer: l.Implementer.Name, Text: l.Text, Rules: l.Rules,
		local: &local{l, o},
	}
}

// SelfCheck looks at the carrier that agents use, on this machine: it has no rules.
func SelfCheck() Target {
	return Target{
		Name: suites.SelfCheck, Text: "the kernel of this machine, and whether it takes modules of ours and is none the worse for them",
		local: &local{Local: suites.Local{
			Name:      suites.SelfCheck,
			Reachable: func(context.Context) error { return nil },
			Suite:     func(suites.Options) agent.Suite { return suites.All()[suites.SelfCheck] },
		}},
	}
}

// Disturbs tells of the rules of a local target that are left unless that is allowed, by name,
// what their check does.
func (t Target) Disturbs() map[string]string {
	if t.local == nil {
		return nil
	}
	return t.local.Disturbs
}

// here runs a local target.
func (r *Runner) here(ctx context.Context, t Target, o *outcome) error {
	start := time.Now()
	job := agent.Job{Target: t.Name, Only: r.Only, Rounds: r.Rounds}
	agent.Here(ctx, job, map[string]agent.Suite{t.Name: t.local.Suite(t.local.options)}, o.event)
	// Who is below a machine is no matter of the kernel that runs on it.
	o.run.Implementer = t.local.options.Implementer
	o.run.Seconds.Checks = time.Since(start).Seconds()
	o.run.Seconds.Total = o.run.Seconds.Checks
	if ctx.Err() != nil {
		return errors.New("it did not come to its end")
	}
	return nil
}

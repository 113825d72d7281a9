// Package suites has what an agent can look at: the suites by the names of their targets. The
// agent that boots (command initramfs/init) and the one that is a plain program
// (pvabi agent) know the same ones.
//
// The suites of an architecture are in the file named after it, which adds them to the list. A
// [Local] is a target that needs no guest of ours: the machine that this process runs on is the
// system under test, and its kernel is somebody's.
package suites

import (
	"context"
	"fmt"
	"maps"
	"time"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/conformance/kmod"
	"pvabi/initramfs/agent"
)

// all are the suites that the agent knows. Those of its architecture are added by the
// file named after it.
var all = map[string]agent.Suite{
	// boot looks at nothing: a guest that starts and ends, to measure and to
	// test what boots it.
	"boot":    func(context.Context, agent.Job, func(conformance.Event)) error { return nil },
	SelfCheck: selfCheck,
}

// All returns the suites of this architecture by target.
func All() map[string]agent.Suite { return maps.Clone(all) }

// Local is a target of the machine that this process runs on.
type Local struct {
	Name, Platform string
	// Implementer is who answers, as far as the machine can know. Its version is empty where it
	// cannot, and may be set by who knows.
	Implementer conformance.Implementer
	// Text says what is looked at, by which means.
	Text string
	// Named tells that only who names the target means it: it is not below this machine.
	Named bool
	// Rules are what a run has a result for.
	Rules []abi.Rule
	// Reachable returns nil if the target is there, and otherwise what is instead.
	Reachable func(context.Context) error
	// Suite makes the suite of a job.
	Suite func(Options) agent.Suite
	// Disturbs tells of the rules that Options.Disturb is for what their checks do, by the rules'
	// names.
	Disturbs map[string]string
}

// Options are how a local target is looked at.
type Options struct {
	// Implementer is whose known deviations apply.
	Implementer conformance.Implementer
	// Unprivileged looks at what needs no root only.
	Unprivileged bool
	// Disturb allows checks that others who use the machine could suffer from.
	Disturb bool
}

// SelfCheck is the name of the suite that looks at the carrier kmod and not at a hypervisor. It has
// no rules: it is unreached where the kernel takes no module, and fails where that does harm.
const SelfCheck = "self-check"

func selfCheck(ctx context.Context, _ agent.Job, emit func(conformance.Event)) error {
	_, err := checkSelf(ctx, emit)
	return err
}

// checkSelf tells whether the carrier kmod works here. Where the kernel is against it, it says so.
func checkSelf(ctx context.Context, emit func(conformance.Event)) (bool, error) {
	begin := time.Now()
	if err := kmod.SelfCheck(ctx, kmod.Config{Most: selfCheckCPUs}); err != nil {
		return false, unreached(fmt.Errorf("self-check: %w", err), emit)
	}
	emit(conformance.Event{Note: fmt.Sprintf("self-check: modules of ours were loaded, ran programs, survived a load of no memory, and are gone; the kernel is as it was; %.1f s", time.Since(begin).Seconds())})
	return true, nil
}

// selfCheckCPUs are enough for a self-check: one after the other they do the same.
const selfCheckCPUs = 2

// unreached says of an error that is the kernel's refusal, or a machine's smallness, that no rule
// can be looked at, and returns nil; others it returns.
func unreached(err error, emit func(conformance.Event)) error {
	if !kmod.Unreached(err) {
		return err
	}
	emit(conformance.Event{Unreached: err.Error()})
	return nil
}

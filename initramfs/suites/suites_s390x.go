//go:build linux

package suites

import (
	"context"
	"os"
	"slices"

	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/conformance/s390"
	"pvabi/initramfs/agent"
)

func init() { all["s390-qemu"] = s390QEMU }

// s390QEMU looks at the hypervisor below the kernel that the agent runs on, and at that kernel.
func s390QEMU(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	return runS390(ctx, job, emit, conformance.Implementer{Name: "QEMU", Version: job.Implementer}, true)
}

// runS390 looks at both, gently unless it may disturb.
func runS390(ctx context.Context, job agent.Job, emit func(conformance.Event), i conformance.Implementer, disturb bool) error {
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	host, err := conformance.S390(ctx, i, s390.Open)
	if err != nil {
		return unreached(err, emit)
	}
	guest := conformance.S390Guest(release, linuxguest.New(), host)
	if !disturb {
		host.Gentle()
		guest.Gentle()
	}
	return agent.Run(ctx, job, emit, host, guest)
}

// Locals are the targets that this machine can be.
func Locals() []Local {
	below := func() (conformance.Implementer, string, error) {
		sysinfo, err := os.ReadFile("/proc/sysinfo")
		if err != nil {
			return conformance.Implementer{}, "", err
		}
		return s390Below(string(sysinfo))
	}
	i, unknown, _ := below()
	text := "the hypervisor below this very machine, asked by a module in its kernel, and that kernel"
	if unknown != "" {
		text += "; not known: " + unknown
	}
	return []Local{{
		Name: "s390-below", Platform: "s390", Implementer: i, Text: text,
		Rules: slices.Concat(conformance.S390Rules(), conformance.S390GuestRules()),
		Reachable: func(context.Context) error {
			_, _, err := below()
			return err
		},
		Disturbs: conformance.S390Disturbing(),
		Suite: func(o Options) agent.Suite {
			if o.Unprivileged {
				return func(_ context.Context, _ agent.Job, emit func(conformance.Event)) error {
					emit(conformance.Event{Unreached: "without root there is nothing to be asked on s390; leave out -unprivileged"})
					return nil
				}
			}
			return careful(func(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
				return runS390(ctx, job, emit, o.Implementer, o.Disturb)
			})
		},
	}}
}

package suites

import (
	"context"
	"errors"

	"pvabi/conformance"
	"pvabi/conformance/user"
	"pvabi/initramfs/agent"
)

// X86KVMBelow is the KVM that this machine is a guest of. Where there is none it says so.
func X86KVMBelow() Local {
	return Local{
		Name: "x86-kvm-below", Platform: "x86-kvm",
		// What version of KVM it is, its guests cannot tell.
		Implementer: conformance.Implementer{Name: "Linux KVM"},
		Text:        "the KVM that this very machine is a guest of, asked by an ordinary process",
		Rules:       conformance.X86KVMBelowRules(),
		Reachable: func(ctx context.Context) error {
			_, err := conformance.X86KVMBelow(ctx, user.Open)
			return err
		},
		Suite: func(o Options) agent.Suite {
			return func(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
				s, err := conformance.X86KVMBelow(ctx, user.Open)
				if errors.Is(err, conformance.ErrNoKVM) {
					emit(conformance.Event{Unreached: err.Error()})
					return nil
				}
				if err != nil {
					return err
				}
				s.Implementer = o.Implementer
				return agent.Run(ctx, job, emit, s)
			}
		},
	}
}

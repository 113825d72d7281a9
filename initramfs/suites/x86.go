package suites

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"pvabi/conformance"
	"pvabi/conformance/microvm"
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

// X86KVMHost is the KVM of this machine's own kernel.
func X86KVMHost() Local {
	i := conformance.Implementer{Name: "Linux KVM"}
	i.Version, _ = release() // the suite tells of an error
	return Local{
		Name: "x86-kvm-host", Platform: "x86-kvm", Implementer: i, Named: true,
		Text:      "the KVM of this machine's own kernel, asked by virtual CPUs of our own",
		Rules:     conformance.X86KVMRules(),
		Reachable: x86HostReachable,
		Suite: func(Options) agent.Suite {
			return func(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
				version, err := release()
				if err != nil {
					return err
				}
				s, fit, err := conformance.X86KVMHost(ctx, version, microvm.Open)
				if err != nil {
					return err
				}
				emit(conformance.Event{Note: fit})
				return agent.Run(ctx, job, emit, s)
			}
		},
	}
}

// x86HostReachable returns nil if this machine's KVM makes machines for this process.
func x86HostReachable(context.Context) error {
	const device = "/dev/kvm"
	if runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		return fmt.Errorf("this machine is %s/%s, and the target is for linux/amd64", runtime.GOOS, runtime.GOARCH)
	}
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w; it takes a machine with virtualization, the module kvm_amd or kvm_intel, and root or the group kvm", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	m, err := microvm.Open(microvm.Config{})
	if err != nil {
		return fmt.Errorf("%s makes no machine: %w", device, err)
	}
	return m.Close()
}

//go:build linux

package suites

import (
	"context"

	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/conformance/microvm"
	"pvabi/initramfs/agent"
)

func init() { all["x86-kvm"] = x86KVM }

// x86KVM looks at the KVM of the kernel that the agent runs on.
func x86KVM(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	s, err := conformance.X86KVM(ctx, release, microvm.Open)
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, emit, s)
}

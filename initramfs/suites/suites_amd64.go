//go:build linux

package suites

import (
	"context"

	"golang.org/x/sys/unix"

	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/initramfs/agent"
)

func init() { all["x86-kvm"] = x86KVM }

// x86KVM looks at the KVM of the kernel that the agent runs on.
func x86KVM(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	s, err := conformance.X86KVM(ctx, unix.ByteSliceToString(u.Release[:]), microvm.Open)
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, s, emit)
}

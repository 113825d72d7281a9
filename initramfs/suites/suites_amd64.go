//go:build linux

package suites

import (
	"context"

	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/conformance/microvm"
	"pvabi/initramfs/agent"
)

func init() {
	all["x86-kvm"] = x86KVM
	for _, target := range []string{"x86-xen", "x86-xen-4.17", "x86-xen-nopvspin", "x86-xen-one-vcpu"} {
		all[target] = x86Xen
	}
}

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

// x86Xen looks at the kernel that the agent runs on, as a guest of Xen.
func x86Xen(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, emit, conformance.XenGuest(release, linuxguest.New()))
}

//go:build linux

package suites

import (
	"context"

	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/conformance/microvm"
	"pvabi/conformance/privcmd"
	"pvabi/initramfs/agent"
)

func init() {
	all["x86-kvm"] = x86KVM
	all["x86-xen"] = x86Xen
	all["x86-xen-4.17"] = x86Xen
	all["x86-xen-nopvspin"] = xenGuest
	all["x86-xen-one-vcpu"] = xenGuest
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

// x86Xen looks at the Xen that the agent's domain runs on, and at the domain's kernel.
func x86Xen(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	s, err := conformance.X86Xen(ctx, job.Implementer, privcmd.Open)
	if err != nil {
		return err
	}
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, emit, s, conformance.XenGuest(release, linuxguest.New()))
}

// xenGuest looks at the kernel that the agent runs on, as a guest of Xen.
func xenGuest(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, emit, conformance.XenGuest(release, linuxguest.New()))
}

// Locals are the targets that this machine can be: who is below it, and, where it is a host
// itself, its own KVM, which machines of ours ask and nobody else notices.
func Locals() []Local { return []Local{X86KVMBelow(), X86KVMHost()} }

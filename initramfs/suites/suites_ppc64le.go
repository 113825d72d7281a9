//go:build linux

package suites

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"pvabi/conformance"
	"pvabi/conformance/kvmhv"
	"pvabi/conformance/linuxguest"
	"pvabi/conformance/pseries"
	"pvabi/initramfs/agent"
)

func init() {
	all["powerpc-qemu"] = powerpcQEMU
	all["powerpc-kvm"] = powerpcKVM
}

// powerpcKVM looks at the KVM of the kernel that the agent runs on.
func powerpcKVM(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	s := conformance.PowerPCKVM(unix.ByteSliceToString(u.Release[:]), os.Getpagesize(), kvmhv.Answers, kvmhv.Open)
	return agent.Run(ctx, job, emit, s)
}

// powerpcQEMU looks at the hypervisor below the kernel that the agent runs on, and at that kernel.
func powerpcQEMU(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	hypertas, err := os.ReadFile("/proc/device-tree/rtas/ibm,hypertas-functions")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	i := conformance.Implementer{Name: "QEMU", Version: job.Implementer}
	return agent.Run(ctx, job, emit,
		conformance.PowerPCPAPR(i, hypertas, pseries.Open),
		conformance.PowerPCGuest(release, linuxguest.New(), hypertas, pseries.Open))
}

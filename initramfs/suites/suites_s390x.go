//go:build linux

package suites

import (
	"context"

	"pvabi/conformance"
	"pvabi/conformance/s390"
	"pvabi/initramfs/agent"
)

func init() { all["s390-qemu"] = s390QEMU }

// s390QEMU looks at the hypervisor below the kernel that the agent runs on.
func s390QEMU(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	s, err := conformance.S390(ctx, conformance.Implementer{Name: "QEMU", Version: job.Implementer}, s390.Open)
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, emit, s)
}

//go:build linux

package suites

import (
	"context"
	"errors"
	"fmt"

	"pvabi/arch"
	"pvabi/arch/loong64"
	"pvabi/conformance"
	"pvabi/conformance/loongarch"
	"pvabi/conformance/microvm"
	"pvabi/initramfs/agent"
)

func init() {
	all["loongarch-probe"] = loongarchProbe
}

// loongarchProbe looks at the hypervisor below the kernel that the agent runs on.
func loongarchProbe(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	open := func(c microvm.Config) (microvm.Machine, error) { return openCalled(ctx, c) }
	s, err := conformance.LoongArchBelow(ctx, conformance.Implementer{Name: "reference hypervisor", Version: job.Implementer}, open)
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, emit, s)
}

// openCalled opens a machine and has it make a call that does nothing: a hypervisor that has to be shown
// code by an exception, as the reference hypervisor has, has seen it then. What asks the processor comes
// before it, so that its pages are in the CPU's translations, by which QEMU reads them for a debugger.
func openCalled(ctx context.Context, c microvm.Config) (microvm.Machine, error) {
	m, err := loongarch.Open(c)
	if err != nil {
		return nil, err
	}
	const none = 1 << 20 // a function
	err = m.Start(0, arch.Program{
		{Kind: arch.Discover}, {Kind: arch.ReadRegister, Arg: [6]uint64{loong64.IOCSR + 8}}, loong64.Hypercall("hvcl 0x100", none),
	})
	if err == nil {
		_, err = m.Wait(ctx, 0)
	}
	if err == nil {
		err = m.Reset()
	}
	if err != nil {
		return nil, fmt.Errorf("a first call: %w", errors.Join(err, m.Close()))
	}
	return m, nil
}

package kmod

import (
	"context"
	"errors"
	"fmt"

	"pvabi/arch"
	"pvabi/arch/amd64"
	module "pvabi/internal/kmod"
)

var this = isa{
	probe: func() (module.Probe, error) {
		c, err := amd64.Copy()
		if err != nil {
			return module.Probe{}, err
		}
		return probeOf(c.Bytes, c.Run, c.Fixups), nil
	},
	run:     func(f arch.Frame) uint64 { return uint64(amd64.Run(f, false)) },
	signals: []signal{{[]string{"SIGILL"}, 1 + 6}},
	begin:   0, resume: 1,
	kernelFrom: 1 << 63,
	// A hole that is left for hypervisors (Documentation/arch/x86/x86_64/mm.rst), and a page
	// fault.
	nowhere: 0xffff800000000000, trap: 1 + 14,
	endless: true, // HLT
}

// name returns the APIC id, as the CPU knows it: leaf 0xb has all of it, leaf 1 the lower 8
// bits.
func (m *machine) name(cpu int) (uint64, error) {
	if err := m.Start(cpu, arch.Program{
		{Kind: arch.Discover}, {Kind: arch.Discover, Arg: [6]uint64{1}}, {Kind: arch.Discover, Arg: [6]uint64{0xb}},
	}); err != nil {
		return 0, err
	}
	if stop, err := m.Wait(context.Background(), cpu); err != nil || !stop.Ended {
		return 0, errors.Join(fmt.Errorf("kmod: CPU %d tells no APIC id: %s", m.cpus[cpu].number, stop.Reason), err)
	}
	ax, bx, dx := amd64.ISA.Register("rax"), amd64.ISA.Register("rbx"), amd64.ISA.Register("rdx")
	r := m.Results(cpu)
	if r[0].Regs[ax] >= 0xb && r[2].Regs[bx] != 0 {
		return r[2].Regs[dx], nil
	}
	return r[1].Regs[bx] >> 24, nil
}

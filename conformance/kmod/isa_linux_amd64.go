package kmod

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

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
	signals: []signal{{sigill, 0, 1 + 6}},
	// The address to return to is on the stack, which is zeros.
	call:   func(r *unix.PtraceRegs, first, second, stack uint64) { r.Rdi, r.Rsi, r.Rsp = first, second, stack-8 },
	result: func(r *unix.PtraceRegs) uint64 { return r.Rax },
	begin:  0, resume: 1,
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

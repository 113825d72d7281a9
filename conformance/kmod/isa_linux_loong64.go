package kmod

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"pvabi/arch"
	"pvabi/arch/loong64"
	module "pvabi/internal/kmod"
)

var this = isa{
	probe: func() (module.Probe, error) {
		c, err := loong64.Copy()
		if err != nil {
			return module.Probe{}, err
		}
		p := probeOf(c.Bytes, c.Run, c.Fixups)
		for _, f := range c.Illegal {
			p.Illegal = append(p.Illegal, module.Fixup(f))
		}
		return p, nil
	},
	process: loong64.Process,
	signals: []signal{{sigill, 0, loong64.Illegal}},
	call: func(r *unix.PtraceRegs, first, second, stack uint64) {
		r.Regs[4], r.Regs[5], r.Regs[1], r.Regs[3] = first, second, 0, stack
	},
	result: func(r *unix.PtraceRegs) uint64 { return r.Regs[4] },
	begin:  0, resume: loong64.Resumed,
	kernelFrom: 1 << 63,
	// In the last page of all, which is never mapped: pointers into it stand for errors
	// (include/linux/err.h).
	nowhere: ^uint64(0xfff), trap: 1,
}

// coreID are the bits of the register CPUID that are the CPU's number
// (arch/loongarch/include/asm/loongarch.h, CSR_CPUID_COREID, Linux 7.2).
const coreID = 0x7ff

// name returns the number that the CPU's own register has.
func (m *machine) name(cpu int) (uint64, error) {
	if err := m.Start(cpu, arch.Program{{Kind: arch.ReadRegister, Arg: [6]uint64{loong64.CPUID}}}); err != nil {
		return 0, err
	}
	if stop, err := m.Wait(context.Background(), cpu); err != nil || !stop.Ended {
		return 0, errors.Join(fmt.Errorf("kmod: CPU %d does not tell its number: %s", m.cpus[cpu].number, stop.Reason), err)
	}
	return m.Results(cpu)[0].Value & coreID, nil
}

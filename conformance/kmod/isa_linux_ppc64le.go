package kmod

import (
	"golang.org/x/sys/unix"

	"pvabi/arch/ppc64le"
	module "pvabi/internal/kmod"
)

var this = isa{
	probe: func() (module.Probe, error) {
		c, err := ppc64le.Copy()
		if err != nil {
			return module.Probe{}, err
		}
		return probeOf(c.Bytes, c.Run, c.Fixups), nil
	},
	process: ppc64le.Process,
	// Where a call is no call without privilege, Linux makes a signal of it.
	signals: []signal{{sigill, 0, 1}},
	call: func(r *unix.PtraceRegs, first, second, stack uint64) {
		r.Gpr[3], r.Gpr[4], r.Link = first, second, 0
		r.Gpr[1] = stack - 96 // a caller's frame, where the callee saves the link register
	},
	result: func(r *unix.PtraceRegs) uint64 { return r.Gpr[3] },
	begin:  0, resume: ppc64le.Resumed,
	// The kernel's quadrant, and in it an address above all memory (arch/powerpc/include/asm/
	// book3s/64/radix.h and hash.h).
	kernelFrom: 0xc000000000000000,
	nowhere:    0xc00fffff00000000, trap: 1,
}

// name returns the number of the CPU's node in the device tree (arch/powerpc/kernel/sysfs.c,
// show_physical_id).
func (m *machine) name(cpu int) (uint64, error) {
	return numberFile(m.cpus[cpu].number, "physical_id")
}

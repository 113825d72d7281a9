package kmod

import (
	"golang.org/x/sys/unix"

	"pvabi/arch/s390x"
	module "pvabi/internal/kmod"
)

var this = isa{
	probe: func() (module.Probe, error) {
		c, err := s390x.Copy()
		if err != nil {
			return module.Probe{}, err
		}
		return probeOf(c.Bytes, c.Run, c.Fixups), nil
	},
	process: s390x.Process,
	// The signal's code tells which exception it was (arch/s390/kernel/traps.c, DO_ERROR_INFO,
	// Linux 7.2): ILL_ILLOPC, operation; ILL_ILLOPN, specification, and some more; ILL_PRVOPC,
	// privileged operation.
	signals: []signal{{sigill, 1, 1 + 1}, {sigill, 2, 1 + 6}, {sigill, 5, 1 + 2}},
	call: func(r *unix.PtraceRegs, first, second, stack uint64) {
		r.Gprs[2], r.Gprs[3], r.Gprs[14] = first, second, 0
		r.Gprs[15] = stack - 160 // where the callee saves registers
	},
	result: func(r *unix.PtraceRegs) uint64 { return r.Gprs[2] },
	begin:  0, resume: s390x.Resumed,
	// The kernel has an address space of its own, which user space is not in, and which ends
	// far below this address. What the trap is can be told with interrupts off only.
	nowhere: 0x00f0000000000000,
}

// name returns the CPU's address (arch/s390/kernel/smp.c, show_cpu_address).
func (m *machine) name(cpu int) (uint64, error) {
	return numberFile(m.cpus[cpu].number, "address")
}

package kmod

import (
	"pvabi/arch"
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
	run: func(f arch.Frame) uint64 { return uint64(s390x.Run(f, false)) },
	// The signal's code tells which exception it was (arch/s390/kernel/traps.c, DO_ERROR_INFO,
	// Linux 7.2): ILL_ILLOPC, operation; ILL_ILLOPN, specification, and some more; ILL_PRVOPC,
	// privileged operation.
	signals: []signal{
		{[]string{"SIGILL", "sigcode=1\n"}, 1 + 1},
		{[]string{"SIGILL", "sigcode=2\n"}, 1 + 6},
		{[]string{"SIGILL", "sigcode=5\n"}, 1 + 2},
	},
	begin: 0, resume: s390x.Resumed,
	// The kernel has an address space of its own, which user space is not in, and which ends
	// far below this address. What the trap is can be told with interrupts off only.
	nowhere: 0x00f0000000000000,
}

// name returns the CPU's address (arch/s390/kernel/smp.c, show_cpu_address).
func (m *machine) name(cpu int) (uint64, error) {
	return numberFile(m.cpus[cpu].number, "address")
}

package kmod

import (
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
	begin: 0, resume: s390x.Resumed,
	// The kernel has an address space of its own, which user space is not in, and which ends
	// far below this address. What the trap is can be told with interrupts off only.
	nowhere: 0x00f0000000000000,
}

// name returns the CPU's address (arch/s390/kernel/smp.c, show_cpu_address).
func (m *machine) name(cpu int) (uint64, error) {
	return numberFile(m.cpus[cpu].number, "address")
}

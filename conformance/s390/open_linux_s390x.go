package s390

import (
	"errors"
	"fmt"
	"os"

	"pvabi/arch"
	"pvabi/conformance/kmod"
	"pvabi/conformance/microvm"
)

// cpus are those that run programs.
const cpus = 3

type machine struct {
	kmod.Machine
	numbers []int  // the kernel's, of the machine's CPUs
	spare   uint64 // its address
}

// Open makes a machine. Only one can be there at a time. A configuration that asks for more than
// CPUs is an error.
func Open(c microvm.Config) (microvm.Machine, error) {
	if err := kmod.Plain(c, cpus); err != nil {
		return nil, err
	}
	online, err := kmod.Online()
	if err != nil {
		return nil, err
	}
	if len(online) <= Spare {
		return nil, fmt.Errorf("s390: %w: %d online, and at least %d are needed", kmod.ErrFewCPUs, len(online), Spare+1)
	}
	m := &machine{numbers: online[1:min(1+cpus, len(online))]}
	if len(m.numbers) > Spare {
		text, err := os.ReadFile(m.file("address"))
		if err != nil {
			return nil, fmt.Errorf("s390: the address of the last CPU: %w", err)
		}
		if _, err := fmt.Sscan(string(text), &m.spare); err != nil {
			return nil, fmt.Errorf("s390: the address of the last CPU: %q: %w", text, err)
		}
	}
	if m.Machine, err = kmod.Open(kmod.Config{CPUs: m.numbers[:Spare]}); err != nil {
		return nil, err
	}
	return m, nil
}

// file is a file that the kernel has of the spare CPU.
func (m *machine) file(name string) string {
	return fmt.Sprintf("/sys/devices/system/cpu/cpu%d/%s", m.numbers[Spare], name)
}

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return len(m.numbers) }

// ID implements arch.Machine: the CPU's address.
func (m *machine) ID(cpu int) uint64 {
	if cpu == Spare {
		return m.spare
	}
	return m.Machine.ID(cpu)
}

// Number implements conformance.KernelMachine.
func (m *machine) Number(cpu int) int { return m.numbers[cpu] }

// Start implements arch.Machine.
func (m *machine) Start(cpu int, p arch.Program) error {
	if cpu >= Spare {
		return fmt.Errorf("s390: CPU %d runs no programs", cpu)
	}
	return m.Machine.Start(cpu, p)
}

// Reset implements arch.Machine.
func (m *machine) Reset() error { return errors.Join(m.restore(), m.Machine.Reset()) }

// Close implements microvm.Machine.
func (m *machine) Close() error { return errors.Join(m.restore(), m.Machine.Close()) }

// restore brings the spare CPU back, if there is one.
func (m *machine) restore() error {
	if len(m.numbers) <= Spare {
		return nil
	}
	return m.SetOnline(true)
}

// Interruptions implements conformance.S390Machine.
func (m *machine) Interruptions(cpu int, class string) (uint64, error) {
	return kmod.Interrupts(m.numbers[cpu], func(row []string) bool { return row[0] == class+":" })
}

// SetOnline implements conformance.S390Machine.
func (m *machine) SetOnline(online bool) error {
	if len(m.numbers) <= Spare {
		return fmt.Errorf("s390: %w: this takes %d that are online", kmod.ErrFewCPUs, 1+cpus)
	}
	return kmod.SetOnline(m.numbers[Spare], online)
}

// LastByte implements conformance.S390Machine.
func (m *machine) LastByte() (uint64, error) {
	f, err := os.Open("/proc/iomem")
	if err != nil {
		return 0, fmt.Errorf("s390: how much memory there is: %w; is /proc mounted?", err)
	}
	defer f.Close()
	return lastByte(f)
}

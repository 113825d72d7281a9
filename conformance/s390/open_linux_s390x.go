package s390

import (
	"errors"
	"fmt"
	"os"

	"pvabi/arch"
	"pvabi/conformance/kmod"
	"pvabi/conformance/microvm"
)

type machine struct {
	kmod.Machine
	spare uint64 // its address
}

// first is the kernel's number of the machine's first CPU.
const first = 1

// Open makes a machine. Only one can be there at a time. A configuration that asks for more than
// CPUs is an error.
func Open(c microvm.Config) (microvm.Machine, error) {
	if err := check(c); err != nil {
		return nil, err
	}
	var numbers []int
	for cpu := range Spare {
		numbers = append(numbers, first+cpu)
	}
	m := &machine{}
	if err := m.SetOnline(true); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/address", first+Spare))
	if err != nil {
		return nil, fmt.Errorf("s390: the address of the last CPU: %w", err)
	}
	if _, err := fmt.Sscan(string(text), &m.spare); err != nil {
		return nil, fmt.Errorf("s390: the address of the last CPU: %q: %w", text, err)
	}
	if m.Machine, err = kmod.Open(kmod.Config{CPUs: numbers}); err != nil {
		return nil, err
	}
	return m, nil
}

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return cpus }

// ID implements arch.Machine: the CPU's address.
func (m *machine) ID(cpu int) uint64 {
	if cpu == Spare {
		return m.spare
	}
	return m.Machine.ID(cpu)
}

// Start implements arch.Machine.
func (m *machine) Start(cpu int, p arch.Program) error {
	if cpu >= Spare {
		return fmt.Errorf("s390: CPU %d runs no programs", cpu)
	}
	return m.Machine.Start(cpu, p)
}

// Reset implements arch.Machine.
func (m *machine) Reset() error { return errors.Join(m.SetOnline(true), m.Machine.Reset()) }

// Close implements microvm.Machine.
func (m *machine) Close() error { return errors.Join(m.SetOnline(true), m.Machine.Close()) }

// Interruptions implements conformance.S390Machine.
func (m *machine) Interruptions(cpu int, class string) (uint64, error) {
	f, err := os.Open("/proc/interrupts")
	if err != nil {
		return 0, fmt.Errorf("s390: interruptions of a CPU: %w; is /proc mounted?", err)
	}
	defer f.Close()
	return interruptions(f, first+cpu, class)
}

// SetOnline implements conformance.S390Machine.
func (m *machine) SetOnline(online bool) error {
	name := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", first+Spare)
	want := "0"
	if online {
		want = "1"
	}
	now, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("s390: the machine needs %d CPUs of the kernel, and the last one is not there: %w", first+cpus, err)
	}
	if string(now) == want+"\n" {
		return nil
	}
	if err := os.WriteFile(name, []byte(want), 0); err != nil {
		return fmt.Errorf("s390: write %s to %s: %w; the kernel's log may tell more", want, name, err)
	}
	return nil
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

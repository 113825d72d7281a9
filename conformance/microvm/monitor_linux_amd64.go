package microvm

import (
	"fmt"
	"os"
	"slices"
	"time"

	"pvabi/arch"
)

var _ Monitor = (*machine)(nil)

// Restart implements Monitor.
func (m *machine) Restart(cpu int) error {
	c := m.cpus[cpu]
	if err := c.halt(); err != nil {
		return fmt.Errorf("microvm: restart CPU %d: %w", cpu, err)
	}
	taken, err := c.vcpu.Inited()
	if err != nil {
		return fmt.Errorf("microvm: restart: %w", err)
	}
	if !taken {
		return fmt.Errorf("microvm: restart CPU %d: it has taken no INIT", cpu)
	}
	if err := c.vcpu.Restore(c.reset); err != nil {
		return fmt.Errorf("microvm: restart: %w", err)
	}
	c.state, c.stop, c.program = idle, arch.Stop{}, 0
	return nil
}

// MarkStopped implements Monitor.
func (m *machine) MarkStopped(cpu int) error {
	c := m.cpus[cpu]
	if c.state != idle {
		return fmt.Errorf("microvm: CPU %d is not idle", cpu)
	}
	return c.vcpu.MarkStopped()
}

// ResetClock implements Monitor.
func (m *machine) ResetClock() error { return m.vm.ResetClock() }

// TimeOfDay implements Monitor.
func (*machine) TimeOfDay() uint64 { return uint64(time.Now().UnixNano()) }

// Delay implements Monitor, by what the host's scheduler counts for the CPU's thread.
func (m *machine) Delay(cpu int) (uint64, error) {
	name := fmt.Sprintf("/proc/self/task/%d/schedstat", m.cpus[cpu].vcpu.Thread())
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("microvm: how long a CPU's thread waited: %w; a kernel needs CONFIG_SCHED_INFO", err)
	}
	var ran, waited uint64
	if _, err := fmt.Sscan(string(text), &ran, &waited); err != nil {
		return 0, fmt.Errorf("microvm: how long a CPU's thread waited: %s holds %q: %w", name, text, err)
	}
	return waited, nil
}

// Passed implements Monitor.
func (m *machine) Passed(cpu int) []Passed { return slices.Clone(m.cpus[cpu].passed) }

// Answer implements Monitor.
func (m *machine) Answer(cpu int, result uint64) { m.cpus[cpu].result = result }

// Withhold implements Monitor.
func (m *machine) Withhold(page uint64) error { return m.vm.Withhold(int(page)) }

// Supply implements Monitor.
func (m *machine) Supply(page uint64) error { return m.vm.Supply(int(page)) }

// Asked implements Monitor.
func (m *machine) Asked(page uint64) (bool, error) { return m.vm.Asked(int(page)) }

func (m *machine) supply() error { return m.vm.SupplyAll() }

package microvm

import (
	"fmt"
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

// Withhold implements Monitor.
func (m *machine) Withhold(page uint64) error { return m.vm.Withhold(int(page)) }

// Supply implements Monitor.
func (m *machine) Supply(page uint64) error { return m.vm.Supply(int(page)) }

// Asked implements Monitor.
func (m *machine) Asked(page uint64) (bool, error) { return m.vm.Asked(int(page)) }

func (m *machine) supply() error { return m.vm.SupplyAll() }

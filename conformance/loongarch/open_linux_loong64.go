package loongarch

import (
	"errors"
	"fmt"
	"time"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/loong64"
	"pvabi/conformance/kmod"
	"pvabi/conformance/microvm"
	"pvabi/internal/membarrier"
)

// A machine has so many CPUs, the first of which is the kernel's second.
const (
	cpus  = 3
	first = 1
)

type machine struct {
	kmod.Machine
	// registered are the CPUs of which the kernel's own memory is no longer registered, it may be.
	registered map[int]bool
}

// Open makes a machine. Only one can be there at a time. A configuration that asks for more than
// three CPUs is an error.
func Open(c microvm.Config) (microvm.Machine, error) {
	if err := kmod.Plain(c, cpus); err != nil {
		return nil, err
	}
	var numbers []int
	for cpu := range cpus {
		numbers = append(numbers, first+cpu)
	}
	m, err := kmod.Open(kmod.Config{CPUs: numbers})
	if err != nil {
		return nil, fmt.Errorf("loongarch: a guest must have %d CPUs or more: %w", first+cpus, err)
	}
	// Asking for barriers waits until every CPU was once seen outside of the kernel, for
	// ever if one is in a program.
	if err := membarrier.Register(); err != nil {
		return nil, fmt.Errorf("loongarch: %w", errors.Join(err, m.Close()))
	}
	return &machine{m, map[int]bool{}}, nil
}

// softwareInterrupt is what the kernel calls its handler of the interrupt that an IPI makes
// (arch/loongarch/kernel/paravirt.c, pv_init_ipi, Linux 7.2).
const softwareInterrupt = "SWI0-IPI"

// notify is the function that registers memory.
var notify = abi.LoongArch().Call("NOTIFY").Number

// Start implements arch.Machine.
func (m *machine) Start(cpu int, p arch.Program) error {
	for _, o := range p {
		if o.Kind == arch.Call && o.Regs[loong64.ISA.Register("r4")] == notify {
			m.registered[cpu] = true
		}
	}
	return m.Machine.Start(cpu, p)
}

// Reset implements arch.Machine.
func (m *machine) Reset() error { return m.interrupting(m.Machine.Reset) }

// Close implements microvm.Machine.
func (m *machine) Close() error {
	errs := []error{m.interrupting(m.Machine.Close)}
	for cpu := range m.registered {
		errs = append(errs, kmod.SetOnline(first+cpu, false), kmod.SetOnline(first+cpu, true))
	}
	return errors.Join(errs...)
}

// interrupting does what has CPUs come to the end of their programs, and interrupts them meanwhile: one that
// waits may have put off its clock, and nobody else ends its wait.
func (m *machine) interrupting(do func() error) error {
	done, interrupted := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			err := membarrier.Interrupt()
			select {
			case <-done:
				interrupted <- err
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	err := do()
	close(done)
	if err != nil { // and it may be that a CPU never takes an interrupt
		return err
	}
	return <-interrupted
}

// Taken implements conformance.LoongArchGuest.
func (m *machine) Taken(cpu int) (uint64, error) {
	return kmod.Interrupts(first+cpu, func(row []string) bool { return row[len(row)-1] == softwareInterrupt })
}

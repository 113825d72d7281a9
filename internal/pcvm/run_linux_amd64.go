package pcvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"pvabi/internal/kvm"
)

// Config describes a machine and what it boots.
type Config struct {
	Kernel    *Kernel
	Initramfs []byte
	// Line is the kernel's command line.
	Line string
	// Memory is in bytes, a multiple of 2 MiB.
	Memory int
	// IDs are the APIC ids of the CPUs, of which the first one boots.
	IDs []uint32
	// Leaves makes the leaves of CPUID of the CPU with an APIC id.
	Leaves func(id uint32) ([]kvm.Entry, error)
	// Message is told which CPU says what by the mailbox, in order, and returns an answer. It is called
	// in the CPU's thread. An error ends the machine; ErrEnd ends it as meant.
	Message func(cpu int, message []byte) (answer []byte, err error)
}

// Machine is one that has not run yet, or has.
type Machine struct {
	config Config
	vm     *kvm.VM
	cpus   []*kvm.VCPU

	bell    sync.Mutex
	lock    sync.Mutex
	console bytes.Buffer
}

// ErrEnd is what a Message returns to end the machine without an error.
var ErrEnd = errors.New("the machine has done what it was for")

// LeftError is why a CPU cannot go on.
type LeftError struct {
	CPU int
	kvm.Exit
}

func (e LeftError) Error() string { return fmt.Sprintf("pcvm: CPU %d: %s", e.CPU, e.Exit) }

// New makes a machine.
func New(system *kvm.System, c Config) (*Machine, error) {
	vm, err := system.NewVM(kvm.Config{Memory: c.Memory, Large: true})
	if err != nil {
		return nil, err
	}
	m := &Machine{config: c, vm: vm}
	if err := m.setUp(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Machine) setUp() error {
	c := m.config
	long := kvm.Long{}
	long.Tables(m.vm.Memory)
	for i, id := range c.IDs {
		leaves, err := c.Leaves(id)
		if err != nil {
			return err
		}
		cpu, err := m.vm.NewVCPU(id, leaves, false)
		if err != nil {
			return err
		}
		m.cpus = append(m.cpus, cpu)
		if i > 0 {
			continue // it waits for the first one to start it
		}
		// There is nothing that a kernel could measure its clock against.
		khz, err := cpu.TSCFrequency()
		if err != nil {
			return err
		}
		if err := c.Kernel.load(m.vm.Memory, c.Initramfs, fmt.Sprintf("%s tsc_early_khz=%d", c.Line, khz), c.IDs); err != nil {
			return err
		}
		s, err := cpu.Sregs()
		if err != nil {
			return err
		}
		const alwaysOne = 1 << 1 // of RFLAGS
		err = errors.Join(
			// As firmware leaves it. A CPU whose local APIC is off is not told that a page has come
			// that it was stopped for, once it has enabled asynchronous page faults, and waits for
			// ever (kvm_arch_can_dequeue_async_page_present in arch/x86/kvm/x86.c, Linux 7.2); Linux
			// enables them before its APIC.
			cpu.EnableAPIC(),
			cpu.SetSregs(long.Sregs(s, 0, 0, 0, false, false)),
			cpu.SetRegs(kvm.Regs{RIP: c.Kernel.entry, RSI: zeroPage, RFLAGS: alwaysOne}),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// Memory is the guest's.
func (m *Machine) Memory() []byte { return m.vm.Memory }

// CPUs are the machine's.
func (m *Machine) CPUs() []*kvm.VCPU { return m.cpus }

// Console is what the guest wrote to its console.
func (m *Machine) Console() string {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.console.String()
}

// Run boots the guest and returns when it has ended: nil when a Message said so, and otherwise why. It
// can be called once.
func (m *Machine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i, cpu := range m.cpus {
		cpu.Enter(func(e kvm.Exit) bool {
			on, err := m.exit(i, e)
			if err != nil {
				cancel(err)
				return false
			}
			return on
		})
		all.Go(func() {
			e := <-cpu.Exits()
			if !e.Stopped {
				cancel(LeftError{i, e})
			}
		})
	}
	<-ctx.Done()
	var errs []error
	for _, cpu := range m.cpus {
		errs = append(errs, cpu.Stop())
	}
	all.Wait()
	err := context.Cause(ctx)
	if errors.Is(err, ErrEnd) {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}

// Ports of the serial port, and of the timer and the clock that a PC has.
const (
	timerData  = 0x42
	clockData  = 0x71
	serialData = 0x3f8
	serialLine = serialData + 5
	// lineIdle says that all was written (include/uapi/linux/serial_reg.h, UART_LSR_THRE and
	// UART_LSR_TEMT).
	lineIdle = 0x60
)

// exit does what a CPU needs that left its guest, and tells whether it may go on.
func (m *Machine) exit(number int, e kvm.Exit) (bool, error) {
	cpu := m.cpus[number]
	switch {
	case e.Reason == kvm.ExitIO && e.Reads > 0:
		value := ^uint64(0)
		switch e.Port {
		case serialLine:
			value = lineIdle
		case timerData, clockData:
			value = 0 // all ones have a kernel wait for something to happen
		}
		cpu.Give(e, value)
		return true, nil
	case e.Reason == kvm.ExitIO && e.Port == Bell:
		return true, m.ring(number, e.Data)
	case e.Reason == kvm.ExitIO:
		if e.Port == serialData {
			m.lock.Lock()
			m.console.WriteByte(byte(e.Data))
			m.lock.Unlock()
		}
		return true, nil
	case e.Reason == kvm.ExitMMIO && e.Reads > 0:
		cpu.Give(e, ^uint64(0))
		return true, nil
	case e.Reason == kvm.ExitMMIO:
		return true, nil
	}
	return false, nil
}

// ring takes a CPU's message out of the mailbox, and puts the answer into it.
func (m *Machine) ring(cpu int, value uint64) error {
	m.bell.Lock()
	defer m.bell.Unlock()
	box := m.vm.Memory[len(m.vm.Memory)-Reserved:]
	var message []byte
	if value == ringMessage {
		var err error
		if message, err = getMessage(box); err != nil {
			return fmt.Errorf("pcvm: a guest's mailbox: %w", err)
		}
	}
	answer, err := m.config.Message(cpu, message)
	if err != nil {
		return err
	}
	putMessage(box, answer)
	return nil
}

// Close gives everything back.
func (m *Machine) Close() error { return m.vm.Close() }

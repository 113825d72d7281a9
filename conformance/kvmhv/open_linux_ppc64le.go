package kvmhv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/ppc64le"
	"pvabi/conformance/microvm"
	"pvabi/internal/kvm"
	"pvabi/internal/membarrier"
)

// Answers tells whether KVM itself answers the call of PAPR with that number.
func Answers(number uint64) (bool, error) {
	s, err := kvm.Open()
	if err != nil {
		return false, err
	}
	return s.Answers(number)
}

type machine struct {
	microvm.Machine
	user    int         // the CPU in problem state
	areas   []arch.Area // of all CPUs before it
	running []bool
	taken   uint64 // external interrupts, up to the last Reset
}

// Open makes a machine.
func Open(c microvm.Config) (microvm.Machine, error) {
	inner, err := microvm.Open(config(c))
	if err != nil {
		return nil, err
	}
	n := inner.CPUs()
	m := &machine{Machine: inner, user: n - 1, running: make([]bool, n)}
	if err := m.register(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// register has each CPU register its area.
func (m *machine) register() error {
	papr := abi.PowerPCPAPR()
	layout, call := papr.Layout("lppaca"), papr.Call("REGISTER_VPA")
	size := layout.Field("size")
	length := layout.Size
	m.areas = nil
	for i := range m.user {
		// No multiple of a power of two crosses one of a larger.
		a := m.Alloc(1024, 1024, 0)
		a.Store(size.Offset, 1, length>>8)
		a.Store(size.Offset+1, 1, length&0xff)
		m.areas = append(m.areas, a)
		op := ppc64le.Hcall(call.Number, uint64(call.Arg("flags").Value("REGISTER_VPA")), m.ID(i), a.Address())
		if err := m.Start(i, arch.Program{op}); err != nil {
			return err
		}
	}
	for i := range m.user {
		r, err := m.end(context.Background(), i)
		if err != nil {
			return err
		}
		if got := int64(result(r[0])); got != 0 {
			return fmt.Errorf("kvmhv: CPU %d cannot register its area: REGISTER_VPA gives %d", i, got)
		}
	}
	return nil
}

func result(r arch.Result) uint64 { return r.Regs[ppc64le.ISA.Register("r3")] }

// end waits for the end of a CPU's program, which is in no need of any help.
func (m *machine) end(ctx context.Context, i int) ([]arch.Result, error) {
	stop, err := m.Wait(ctx, i)
	if err == nil && !stop.Ended {
		err = fmt.Errorf("kvmhv: CPU %d does not come to its program's end: %s", i, stop.Reason)
	}
	return m.Results(i), err
}

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return m.user }

// Start implements arch.Machine.
func (m *machine) Start(i int, p arch.Program) error {
	err := m.Machine.Start(i, p)
	m.running[i] = err == nil
	return err
}

// Wait implements arch.Machine.
func (m *machine) Wait(ctx context.Context, i int) (arch.Stop, error) {
	stop, err := m.Machine.Wait(ctx, i)
	if err == nil && stop.Ended {
		m.running[i] = false
	}
	return stop, err
}

// Reset implements arch.Machine.
func (m *machine) Reset() error {
	m.taken += m.events()
	if err := m.Machine.Reset(); err != nil {
		return err
	}
	clear(m.running)
	return m.register()
}

// events counts the external interrupts since the last Reset.
func (m *machine) events() (n uint64) {
	for i := range m.user {
		n += m.Events(i, ppc64le.External)
	}
	return n
}

// Passed implements microvm.Passer.
func (m *machine) Passed(i int) (number uint64, args [9]uint64) {
	return m.Machine.(microvm.Passer).Passed(i)
}

// Real implements Machine.
func (m *machine) Real(a arch.Area) (uint64, error) { return a.Address(), nil }

// Area implements Machine.
func (m *machine) Area(i int) ([]byte, error) { return m.areas[i].Bytes(), nil }

// AreaAddress implements Machine.
func (m *machine) AreaAddress(i int) (address, real uint64, err error) {
	address = m.areas[i].Address()
	return address, address, nil
}

// Disturbed implements Machine.
func (m *machine) Disturbed() (uint64, error) { return m.taken + m.events(), nil }

// hIPI asks PAPR's interrupt controller for an interrupt of a CPU, with a priority of which 0 is
// the most favored (arch/powerpc/include/asm/hvcall.h, H_IPI).
const (
	hIPI     = 0x6c
	priority = 4
)

// Interrupt implements Machine.
func (m *machine) Interrupt() error {
	idle := slices.Index(m.running[:m.user], false)
	if idle < 0 {
		return errors.New("kvmhv: no CPU is idle that could send an interrupt")
	}
	var p arch.Program
	for i := range m.user {
		if m.running[i] {
			p = append(p, ppc64le.Hcall(hIPI, m.ID(i), priority))
		}
	}
	if err := m.Start(idle, p); err != nil {
		return err
	}
	results, err := m.end(context.Background(), idle)
	if err != nil {
		return err
	}
	for _, r := range results {
		if got := int64(result(r)); got != 0 {
			return fmt.Errorf("kvmhv: H_IPI gives %d; does KVM emulate the interrupt controller?", got)
		}
	}
	return nil
}

// pause is between two looks whether a CPU in problem state sleeps, and between two interrupts
// of a host's processor.
const pause = time.Millisecond

// Unprivileged implements Machine.
func (m *machine) Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error) {
	if err := m.Start(m.user, p); err != nil {
		return nil, err
	}
	for {
		short, cancel := context.WithTimeout(ctx, pause)
		r, err := m.end(short, m.user)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return r, err
		}
		asleep, err := m.Asleep(m.user)
		if err == nil && asleep {
			err = m.Machine.(microvm.Rouser).Rouse(m.user)
		}
		if err != nil {
			return nil, err
		}
	}
}

// Crowd implements arch.Machine. Where the host is itself a guest, of QEMU 11.1 with cap-nested-hv,
// the timer that is to take the processor back from a guest's CPU does not always come: not
// if it has expired already when the CPU enters, by when the host took it to be in the
// future. Interrupts from the host's other processors do come, and are made all the time.
func (m *machine) Crowd(cpus ...int) (release func(), err error) {
	if err := membarrier.Register(); err != nil {
		return nil, fmt.Errorf("kvmhv: %w", err)
	}
	leave, err := m.Machine.Crowd(cpus...)
	if err != nil {
		return nil, err
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(pause):
				// Register has shown that there is no reason for an error.
				_ = membarrier.Interrupt()
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		leave()
	}, nil
}

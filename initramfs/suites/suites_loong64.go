//go:build linux

package suites

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pvabi/arch"
	"pvabi/arch/loong64"
	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/conformance/loongarch"
	"pvabi/conformance/microvm"
	"pvabi/initramfs/agent"
	"pvabi/internal/refhv"
)

func init() {
	all["loongarch-probe"] = loongarchProbe
	all["loongarch-plain"] = loongarchPlain
}

// loongarchPlain looks at a machine without a hypervisor, and at the kernel that the agent runs on.
func loongarchPlain(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	k := acts{Kernel: linuxguest.New(), emit: emit}
	if err := k.messages(); err != nil {
		return err
	}
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	s := conformance.LoongArchPlain(conformance.Implementer{Name: "QEMU", Version: job.Implementer}, loongarch.Open, release, k)
	return agent.Run(ctx, job, emit, s...)
}

// loongarchProbe looks at the reference hypervisor below the kernel that the agent runs on, or, if it
// is given a scenario, at mutants of it.
func loongarchProbe(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	h := &asking{ctx: ctx}
	i := conformance.Implementer{Name: "reference hypervisor", Version: job.Implementer}
	s, err := conformance.LoongArchReference(ctx, i, h.open)
	if err != nil {
		return err
	}
	if job.Scenario != "" {
		return h.mutants(job.Scenario, s, emit)
	}
	return agent.Run(ctx, job, emit, s)
}

// mutants has a suite look at mutants of the reference hypervisor, one after the other, which the kernel
// has not below it. A scenario of refhv.MutantsAll has all checks look at each, one of refhv.MutantsOwn those
// of the rules that it is said to break, and another one, in turn.
func (h *asking) mutants(scenario string, s *conformance.Suite, emit func(conformance.Event)) error {
	// The CPUs stay the machine's from mutant to mutant.
	kept, err := h.open(microvm.Config{})
	if err != nil {
		return err
	}
	what, names, _ := strings.Cut(scenario, ":")
	for i, m := range refhv.LoongArchMutants() {
		if names != "" && !slices.Contains(strings.Split(names, ","), m.Name) {
			continue
		}
		h.mutant = uint64(i + 1)
		mutant := s.Near(m.Rules, refhv.MutantsOthers, i)
		if what == refhv.MutantsAll {
			mutant = s.Near(m.Rules, len(s.Checks), i)
		}
		// What is wrong on purpose need not be waited for long.
		mutant.Looks = conformance.Looks / 10
		if err := mutant.Run(h.ctx, func(r conformance.Result) {
			r.Mutant = m.Name
			emit(conformance.Event{Result: &r})
		}); err != nil {
			return err
		}
	}
	return kept.Close()
}

// asking opens machines whose host is the reference hypervisor's, which can be asked for things. The
// machines, of whatever configuration, are the same CPUs.
type asking struct {
	ctx   context.Context
	below conformance.LoongArchGuest
	users int
	// crowded tells that CPUs compete, and mutant which one there is, as AskOwn wants it.
	crowded bool
	mutant  uint64
}

// open makes a machine.
func (h *asking) open(c microvm.Config) (microvm.Machine, error) {
	m := &askingMachine{h, h.below, c.Features}
	c.Features = nil
	if h.users == 0 {
		below, err := openCalled(h.ctx, c)
		if err != nil {
			return nil, err
		}
		h.below = below.(conformance.LoongArchGuest)
		m.LoongArchGuest = h.below
	}
	h.users++
	if err := m.Reset(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// ask asks the host for something, by way of a CPU that is idle.
func (h *asking) ask(what refhv.Ask, args ...uint64) error {
	const cpu = 0
	p := arch.Program{loong64.Hypercall(fmt.Sprintf("hvcl %#x", refhv.AskCode), refhv.AskFunction, append([]uint64{uint64(what)}, args...)...)}
	if err := h.below.Start(cpu, p); err != nil {
		return fmt.Errorf("ask the reference hypervisor's host: %w", err)
	}
	if _, err := h.below.Wait(h.ctx, cpu); err != nil {
		return fmt.Errorf("ask the reference hypervisor's host: %w", err)
	}
	if r4 := h.below.Results(cpu)[0].Regs[loong64.ISA.Register("r4")]; r4 != 0 {
		return fmt.Errorf("the reference hypervisor's host does not do what it is asked for: %d, with %#x", what, args)
	}
	return nil
}

// askingMachine is a machine of one configuration.
type askingMachine struct {
	h *asking
	conformance.LoongArchGuest
	features *uint32
}

// Reset implements arch.Machine: what the host was asked for before does not stay. A hypervisor that is
// a mutant, or whose features are chosen, is not the kernel's.
func (m *askingMachine) Reset() error {
	if err := m.LoongArchGuest.Reset(); err != nil {
		return err
	}
	if err := m.disperse(); err != nil {
		return err
	}
	features := uint64(refhv.AskFeatures)
	switch {
	case m.features != nil:
		features = uint64(*m.features)
	case m.h.mutant == 0:
		return m.h.ask(refhv.AskShared)
	}
	return m.h.ask(refhv.AskOwn, features, m.h.mutant)
}

// Crowd implements arch.Machine.
func (m *askingMachine) Crowd(cpus ...int) (release func(), err error) {
	var ids uint64
	for _, cpu := range cpus {
		ids |= 1 << m.ID(cpu)
	}
	m.h.crowded = true
	if err := m.h.ask(refhv.AskCrowd, ids); err != nil {
		return nil, err
	}
	// What goes wrong here is found by Reset.
	return func() { _ = m.disperse() }, nil
}

func (m *askingMachine) disperse() error {
	if !m.h.crowded {
		return nil
	}
	err := m.h.ask(refhv.AskCrowd, 0)
	m.h.crowded = err != nil
	return err
}

// Close implements microvm.Machine.
func (m *askingMachine) Close() error {
	if m.h.users--; m.h.users > 0 {
		return nil
	}
	return m.LoongArchGuest.Close()
}

// openCalled opens a machine and has it make a call that does nothing: a hypervisor that has to be shown
// code by an exception, as the reference hypervisor has, has seen it then. What asks the processor comes
// before it, so that its pages are in the CPU's translations, by which QEMU reads them for a debugger.
func openCalled(ctx context.Context, c microvm.Config) (microvm.Machine, error) {
	m, err := loongarch.Open(c)
	if err != nil {
		return nil, err
	}
	const none = 1 << 20 // a function
	err = m.Start(0, arch.Program{
		{Kind: arch.Discover}, {Kind: arch.ReadRegister, Arg: [6]uint64{loong64.IOCSR + 8}}, loong64.Hypercall("hvcl 0x100", none),
	})
	if err == nil {
		_, err = m.Wait(ctx, 0)
	}
	if err == nil {
		err = m.Reset()
	}
	if err != nil {
		return nil, fmt.Errorf("a first call: %w", errors.Join(err, m.Close()))
	}
	return m, nil
}

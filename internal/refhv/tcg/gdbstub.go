package tcg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"pvabi/internal/refhv"
	"pvabi/internal/remote"
)

// The transport by gdbstub. The instructions that a guest of KVM leaves by are found in the kernel's code (see
// [Kernel.Sites]) and get breakpoints; where a CPU comes to one, all CPUs stand still, and the registers are read
// and written, and the program counter is moved on. The code in memory stays as it is. A CPU can be held while
// others run: gdbstub resumes CPUs one by one. illegal.go tells of code that is not the kernel's image.

// Registers of gdbstub's description (gdb-xml/loongarch-base64.xml, QEMU 11.1).
const (
	registerA0 = 4
	registerPC = 33
	registers  = 35
)

// stopped is a guest whose CPUs come out by breakpoints.
type stopped struct {
	machine
	gdb   *remote.GDB
	sites map[uint64]Site
	// asleep are the CPUs that have come to an IDLE that they were let do.
	asleep map[int]bool
	// registers are those of the CPUs that are out by a call.
	registers [][]uint64
	// vectors are where each CPU goes on when an instruction is illegal; 0 while that is not known.
	vectors []uint64
	// held are those that the CPUs that go on next are all but.
	held []int
}

// openStopped connects to gdbstub and sets the breakpoints.
func openStopped(ctx context.Context, m machine, socket string) (*stopped, error) {
	g := &stopped{
		machine: m, sites: map[uint64]Site{}, asleep: map[int]bool{},
		vectors: make([]uint64, len(m.cpus)), registers: make([][]uint64, len(m.cpus)),
	}
	conn, err := remote.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	g.gdb = remote.NewGDB(conn, binary.LittleEndian)
	for _, site := range m.kernel.Sites(g.ours) {
		if err := g.add(site); err != nil {
			return nil, errors.Join(err, g.gdb.Close())
		}
	}
	return g, nil
}

func (g *stopped) add(s Site) error {
	if _, is := g.sites[s.Address]; is {
		return nil
	}
	g.sites[s.Address] = s
	return g.gdb.Break(s.Address)
}

// Close implements refhv.Trap.
func (g *stopped) Close() error { return errors.Join(g.gdb.Close(), g.machine.Close()) }

// Next implements refhv.Trap. Where two CPUs come to breakpoints at once QEMU stops all twice: the second time as soon
// as they go on, for the same CPU, which may be one that is held and has come out already.
func (g *stopped) Next(ctx context.Context, held []int) (*refhv.Exit, error) {
	g.held = held
	for {
		stop, err := g.run(ctx)
		switch {
		case err != nil:
			return nil, ended(err)
		case stop.Signal == remote.SIGTRAP && !slices.Contains(held, stop.CPU):
			e, err := g.exit(ctx, stop.CPU)
			if e != nil || err != nil {
				return e, ended(err)
			}
		}
		if ctx.Err() != nil {
			return nil, nil
		}
	}
}

// run lets the CPUs go on, all but those that are held, until all stand still again, which they do
// at the latest when ctx ends.
func (g *stopped) run(ctx context.Context) (remote.Stop, error) {
	var cpus []int
	if len(g.held) > 0 {
		for cpu := range g.cpus {
			if !slices.Contains(g.held, cpu) {
				cpus = append(cpus, cpu)
			}
		}
		if cpus == nil {
			<-ctx.Done()
			return remote.Stop{Signal: remote.SIGINT}, nil
		}
	}
	if err := g.gdb.Resume(cpus...); err != nil {
		return remote.Stop{}, err
	}
	stop, err := g.gdb.Wait(ctx)
	if err == nil || ctx.Err() == nil {
		return stop, err
	}
	if err := g.gdb.Interrupt(); err != nil {
		return stop, err
	}
	return g.gdb.Wait(context.WithoutCancel(ctx))
}

// exit looks at what a CPU has come to. It is nil where that is nothing of the hypervisor's, which
// is then done.
func (g *stopped) exit(ctx context.Context, cpu int) (*refhv.Exit, error) {
	r, err := g.all(cpu)
	if err != nil {
		return nil, err
	}
	pc := r[registerPC]
	if slices.Contains(g.vectors, pc) {
		return nil, g.raised(ctx, cpu, pc)
	}
	s, is := g.sites[pc]
	if !is {
		return nil, nil
	}
	if g.unchecked(pc) {
		b, err := g.gdb.Memory(pc, length)
		if err != nil {
			return nil, fmt.Errorf("read the guest's kernel at %#x: %w", pc, err)
		}
		if err := g.check(pc, binary.LittleEndian.Uint32(b)); err != nil {
			return nil, err
		}
	}
	e := &refhv.Exit{CPU: cpu, PC: s.Address, Kernel: g.kernel.has(s.Address)}
	switch s.Kind {
	case HVCL:
		e.Kind, e.Number = refhv.ExitCall, s.Code
		copy(e.Args[:], r[registerA0:])
		g.registers[cpu] = r
		return e, g.learn(cpu)
	case CPUCFG:
		e.Kind, e.Number = refhv.ExitDiscover, uint64(uint32(r[s.From]))
	case IOCSRRD:
		e.Kind = refhv.ExitFeatures
	case IDLE:
		e.Kind = refhv.ExitIdle
		return e, nil
	case awake:
		if !g.asleep[cpu] {
			return nil, g.step(ctx, cpu, s)
		}
		e.Kind = refhv.ExitAwake
		return e, nil
	}
	// The machine does it, and the hypervisor has the last word.
	if err := g.step(ctx, cpu, s); err != nil {
		return nil, err
	}
	if !g.ours(s.Kind, r[s.From]) {
		return nil, nil
	}
	if r, err = g.all(cpu); err != nil {
		return nil, err
	}
	e.Value = r[s.To]
	return e, nil
}

// all returns the registers of a CPU.
func (g *stopped) all(cpu int) ([]uint64, error) {
	if err := g.gdb.Select(cpu); err != nil {
		return nil, err
	}
	r, err := g.gdb.Registers()
	if err == nil && len(r) < registers {
		err = fmt.Errorf("gdbstub has %d registers, want %d", len(r), registers)
	}
	return r, err
}

// step has a CPU do the instruction of a site. All may be stopped before it has, see Next.
func (g *stopped) step(ctx context.Context, cpu int, s Site) error {
	if err := g.gdb.Unbreak(s.Address); err != nil {
		return err
	}
	for at := s.Address; at == s.Address; {
		if err := g.gdb.Step(context.WithoutCancel(ctx), cpu); err != nil {
			return err
		}
		r, err := g.all(cpu)
		if err != nil {
			return err
		}
		at = r[registerPC]
	}
	return g.gdb.Break(s.Address)
}

// PC implements refhv.Trap.
func (g *stopped) PC(cpu int) (uint64, error) {
	r, err := g.all(cpu)
	if err != nil {
		return 0, ended(err)
	}
	return r[registerPC], nil
}

// Waits implements refhv.Trap.
func (g *stopped) Waits(cpu int) (bool, error) {
	waits, err := g.gdb.Halted(cpu)
	return waits, ended(err)
}

// sleep has a CPU do the IDLE that it is at, alone. It may be awake again then, right behind it.
func (g *stopped) sleep(cpu int, s Site) error {
	if err := g.gdb.Unbreak(s.Address); err != nil {
		return err
	}
	for at := s.Address; at == s.Address; {
		if err := g.gdb.Resume(cpu); err != nil {
			return err
		}
		if err := g.gdb.Interrupt(); err != nil {
			return err
		}
		if _, err := g.gdb.Wait(context.Background()); err != nil {
			return err
		}
		r, err := g.all(cpu)
		if err != nil {
			return err
		}
		at = r[registerPC]
	}
	g.asleep[cpu] = true
	return g.gdb.Break(s.Address)
}

// Return implements refhv.Trap.
func (g *stopped) Return(e *refhv.Exit) error { return ended(g.goBack(e)) }

func (g *stopped) goBack(e *refhv.Exit) error {
	s := g.sites[e.PC]
	switch e.Kind {
	case refhv.ExitIdle:
		return g.sleep(e.CPU, s)
	case refhv.ExitAwake:
		delete(g.asleep, e.CPU)
		return g.step(context.Background(), e.CPU, s)
	}
	if err := g.gdb.Select(e.CPU); err != nil {
		return err
	}
	if e.Kind != refhv.ExitCall {
		return g.gdb.SetRegister(s.To, e.Value)
	}
	r := g.registers[e.CPU]
	copy(r[registerA0:], e.Args[:])
	r[registerPC] = e.PC + length
	return g.gdb.SetRegisters(r)
}

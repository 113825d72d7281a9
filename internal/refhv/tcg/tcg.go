// Package tcg is the transport of package refhv to a stock QEMU that emulates LoongArch, which
// knows nothing of a hypervisor below the guest.
//
// # How a CPU comes out
//
// By breakpoints of QEMU's gdbstub. The instructions that a guest of KVM leaves by are found in the
// kernel's code (see [Kernel.Sites]); where a CPU comes to one, all CPUs stand still, and the
// transport reads the registers, writes the results, and moves the program counter on. The code in
// memory stays as it is, and so does QEMU. A CPU can be held while others run: gdbstub resumes CPUs
// one by one.
//
// Code that is not the kernel's image, a module's, is found out by the exception that HVCL raises on a
// machine without hypervisor: there is a breakpoint at its vector, too, once a CPU has made a call. An
// HVCL that raised it gets a breakpoint, and so do the other instructions near it; the CPU goes back to
// it by a return from exception. An HVCL of a process stays illegal.
//
// A guest of KVM leaves by IDLE as well. That of a module is a site, so that the hypervisor knows of
// the wait; the kernel's own would stop all CPUs each time that one has nothing to do.
//
// # How it goes back
//
// Interrupts and memory are QEMU's qtest's: an input line of the CPU is a bit of ESTAT, as it is for
// KVM.
//
// # What it takes
//
// QEMU 11 or later. Up to 10.1 gdbstub threw away all translated code at each stop, which takes
// minutes (gdbstub/system.c, tb_flush), and QEMU before 10 does not boot such a kernel.
package tcg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"pvabi/abi"
	"pvabi/internal/refhv"
	"pvabi/internal/remote"
)

// Sockets are where QEMU is reached.
type Sockets struct{ gdb, qtest, qmp string }

// SocketsIn are sockets in a folder that is whoever's calls.
func SocketsIn(dir string) Sockets {
	return Sockets{filepath.Join(dir, "gdb"), filepath.Join(dir, "qtest"), filepath.Join(dir, "qmp")}
}

// Args are the arguments by which QEMU makes the sockets and waits for a Guest before it starts the
// CPUs.
func (s Sockets) Args() []string {
	unix := func(path string) string { return "unix:" + strings.ReplaceAll(path, ",", ",,") + ",server=on,wait=off" }
	return []string{"-S", "-gdb", unix(s.gdb), "-qtest", unix(s.qtest), "-qtest-log", "/dev/null", "-qmp", unix(s.qmp)}
}

// Registers of gdbstub's description (gdb-xml/loongarch-base64.xml, QEMU 11.1).
const (
	registerA0 = 4
	registerPC = 33
	registers  = 35
)

// Guest is a guest of QEMU: a refhv.Trap.
type Guest struct {
	table  *abi.Platform
	kernel *Kernel
	gdb    *remote.GDB
	qtest  *remote.QTest
	qmp    *remote.QMP
	cpus   []remote.CPU
	ram    []span
	sites  map[uint64]Site
	// asleep are the CPUs that have come to an IDLE that they were let do.
	asleep map[int]bool
	// registers are those of the CPUs that are out by a call.
	registers [][]uint64
	// vectors are where each CPU goes on when an instruction is illegal; 0 while that is not known.
	vectors []uint64

	// checked tells that the kernel was found where it was looked for.
	checked bool
	// held are those that the CPUs that go on next are all but.
	held []int
	// Passed counts by address how often a site was reached for nothing of the hypervisor's.
	Passed map[uint64]int
}

// span is a range of memory, both ends included.
type span struct{ first, last uint64 }

// Open connects to a QEMU that is being started and sets the breakpoints. The CPUs begin to run at the
// first Next.
func Open(ctx context.Context, s Sockets, kernel *Kernel, table *abi.Platform) (g *Guest, err error) {
	g = &Guest{table: table, kernel: kernel, sites: map[uint64]Site{}, asleep: map[int]bool{}, Passed: map[uint64]int{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("reach QEMU: %w", errors.Join(err, g.Close()))
		}
	}()
	conn, err := remote.Dial(ctx, s.qmp)
	if err != nil {
		return g, err
	}
	if g.qmp, err = remote.NewQMP(conn); err != nil {
		return g, err
	}
	if conn, err = remote.Dial(ctx, s.qtest); err != nil {
		return g, err
	}
	g.qtest = remote.NewQTest(conn)
	if conn, err = remote.Dial(ctx, s.gdb); err != nil {
		return g, err
	}
	g.gdb = remote.NewGDB(conn, binary.LittleEndian)
	if g.cpus, err = g.qmp.CPUs(); err != nil {
		return g, err
	}
	for _, c := range g.cpus {
		if c.Props.Socket != 0 || c.Props.Thread != 0 || c.Props.Core != c.Index {
			return g, fmt.Errorf("CPU %d is socket %d, core %d, thread %d; the number that it goes by is known for one socket without threads only",
				c.Index, c.Props.Socket, c.Props.Core, c.Props.Thread)
		}
	}
	g.vectors, g.registers = make([]uint64, len(g.cpus)), make([][]uint64, len(g.cpus))
	tree, err := g.qmp.Monitor(0, "info mtree -f")
	if err != nil {
		return g, err
	}
	if g.ram = memory(tree); len(g.ram) == 0 {
		return g, errors.New("QEMU's monitor lists no memory")
	}
	for _, site := range kernel.Sites(g.ours) {
		if err := g.add(site); err != nil {
			return g, err
		}
	}
	return g, nil
}

// ours tells whether a word of CPUCFG or an address of IOCSR is the hypervisor's business.
func (g *Guest) ours(kind Kind, number uint64) bool {
	switch kind {
	case CPUCFG:
		word := uint64(uint32(number))
		return word >= g.table.Word("first-word") && word <= g.table.Word("last-word")
	case IOCSRRD:
		return number == uint64(uint32(g.table.Register("FEATURES").Number))
	}
	return true
}

func (g *Guest) add(s Site) error {
	if _, is := g.sites[s.Address]; is {
		return nil
	}
	g.sites[s.Address] = s
	return g.gdb.Break(s.Address)
}

// ramLine is a line of the monitor's "info mtree -f" about memory.
var ramLine = regexp.MustCompile(`^\s+([0-9a-f]{16})-([0-9a-f]{16}) \(prio -?\d+, ram\): `)

// memory finds the ranges of memory in what the monitor lists of the address space "memory".
func memory(tree string) []span {
	var out []span
	inside := false
	for line := range strings.Lines(tree) {
		switch {
		case strings.HasPrefix(line, "FlatView"):
			inside = false
		case strings.Contains(line, `AS "memory"`):
			inside = true
		}
		m := ramLine.FindStringSubmatch(line)
		if m == nil || !inside {
			continue
		}
		first, err1 := strconv.ParseUint(m[1], 16, 64)
		last, err2 := strconv.ParseUint(m[2], 16, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		if n := len(out); n > 0 && out[n-1].last+1 == first {
			out[n-1].last = last
			continue
		}
		out = append(out, span{first, last})
	}
	return out
}

// Close ends the connections. QEMU goes on without a hypervisor, if it has not ended.
func (g *Guest) Close() error {
	var errs []error
	if g.gdb != nil {
		errs = append(errs, g.gdb.Close())
	}
	if g.qtest != nil {
		errs = append(errs, g.qtest.Close())
	}
	if g.qmp != nil {
		errs = append(errs, g.qmp.Close())
	}
	return errors.Join(errs...)
}

// CPUs implements refhv.Trap.
func (g *Guest) CPUs() int { return len(g.cpus) }

// ID implements refhv.Trap.
func (g *Guest) ID(cpu int) uint64 { return uint64(g.cpus[cpu].Props.Core) }

// Memory implements refhv.Trap.
func (g *Guest) Memory(address, size uint64) bool {
	return slices.ContainsFunc(g.ram, func(s span) bool {
		return address >= s.first && address <= s.last && size-1 <= s.last-address
	})
}

// Read implements refhv.Trap.
func (g *Guest) Read(address uint64, size int) ([]byte, error) {
	b, err := g.qtest.Read(address, size)
	return b, ended(err)
}

// Write implements refhv.Trap.
func (g *Guest) Write(address uint64, b []byte) error { return ended(g.qtest.Write(address, b)) }

// ended has an error of a QEMU that is no more tell so.
func ended(err error) error {
	if errors.Is(err, remote.ErrExited) {
		return fmt.Errorf("%w: %w", refhv.ErrEnded, err)
	}
	return err
}

// Interrupt implements refhv.Trap.
func (g *Guest) Interrupt(cpu int, lines uint64) error {
	for line := range 64 {
		if lines>>line&1 == 0 {
			continue
		}
		if err := g.qtest.SetIRQ(g.cpus[cpu].Path, "unnamed-gpio-in", line, 1); err != nil {
			return ended(err)
		}
	}
	return nil
}

// Next implements refhv.Trap.
func (g *Guest) Next(ctx context.Context, held []int) (*refhv.Exit, error) {
	g.held = held
	for {
		stop, err := g.run(ctx)
		switch {
		case errors.Is(err, remote.ErrExited):
			return nil, fmt.Errorf("%w: %w", refhv.ErrEnded, err)
		case err != nil:
			return nil, err
		case stop.Signal == remote.SIGTRAP:
			e, err := g.exit(ctx, stop.CPU)
			if e != nil || err != nil {
				return e, err
			}
		}
		if ctx.Err() != nil {
			return nil, nil
		}
	}
}

// run lets the CPUs go on, all but those that are held, until all stand still again, which they do
// at the latest when ctx ends.
func (g *Guest) run(ctx context.Context) (remote.Stop, error) {
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
func (g *Guest) exit(ctx context.Context, cpu int) (*refhv.Exit, error) {
	r, err := g.gdb.Registers()
	if err != nil {
		return nil, err
	}
	if len(r) < registers {
		return nil, fmt.Errorf("gdbstub has %d registers, want %d", len(r), registers)
	}
	pc := r[registerPC]
	if slices.Contains(g.vectors, pc) {
		return nil, g.raised(ctx, cpu, pc)
	}
	s, is := g.sites[pc]
	if !is {
		return nil, nil
	}
	if err := g.check(s); err != nil {
		return nil, err
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
		g.Passed[s.Address]++
		return nil, nil
	}
	if r, err = g.gdb.Registers(); err != nil {
		return nil, err
	}
	e.Value = r[s.To]
	return e, nil
}

// check makes sure, once, that the code in memory is the kernel's that the sites were found in.
func (g *Guest) check(s Site) error {
	if g.checked || !g.kernel.has(s.Address) {
		return nil
	}
	at := s.Address - g.kernel.Base
	want := g.kernel.Text[at:min(at+64, uint64(len(g.kernel.Text)))]
	got, err := g.gdb.Memory(s.Address, len(want))
	if err != nil {
		return fmt.Errorf("read the guest's kernel at %#x: %w", s.Address, err)
	}
	// Some instructions are patched at boot; the site itself is not.
	if !slices.Equal(got[:4], want[:4]) {
		return fmt.Errorf("the guest's kernel at %#x is %x, and %x in its file: it does not run where its file says; boot it with nokaslr", s.Address, got[:4], want[:4])
	}
	g.checked = true
	return nil
}

// step has a CPU do the instruction of a site.
func (g *Guest) step(ctx context.Context, cpu int, s Site) error {
	if err := g.gdb.Unbreak(s.Address); err != nil {
		return err
	}
	if err := g.gdb.Step(context.WithoutCancel(ctx), cpu); err != nil {
		return err
	}
	return g.gdb.Break(s.Address)
}

// PC implements refhv.Trap.
func (g *Guest) PC(cpu int) (uint64, error) {
	if err := g.gdb.Select(cpu); err != nil {
		return 0, err
	}
	r, err := g.gdb.Registers()
	if err != nil {
		return 0, err
	}
	if len(r) < registers {
		return 0, fmt.Errorf("gdbstub has %d registers, want %d", len(r), registers)
	}
	return r[registerPC], nil
}

// Waits implements refhv.Trap.
func (g *Guest) Waits(cpu int) (bool, error) { return g.gdb.Halted(cpu) }

// sleep has a CPU do the IDLE that it is at, alone. It may be awake again then, right behind it.
func (g *Guest) sleep(cpu int, s Site) error {
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
		_, err := g.gdb.Wait(context.Background())
		if err != nil {
			return err
		}
		if at, err = g.PC(cpu); err != nil {
			return err
		}
	}
	g.asleep[cpu] = true
	return g.gdb.Break(s.Address)
}

// length is that of an instruction, in bytes.
const length = 4

// Return implements refhv.Trap.
func (g *Guest) Return(e *refhv.Exit) error {
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

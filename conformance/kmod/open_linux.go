//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pvabi/arch"
	"pvabi/internal/cpulist"
	module "pvabi/internal/kmod"
)

// areasSize is the memory for areas, in bytes. The kernel finds that much in one piece
// even when its memory is in many.
const areasSize = 128 << 10

// What all probes leave with: the type Status of each.
const (
	statusEnded  = 0
	statusExited = 1
)

// isa is what differs between architectures; the file named after each has it, and the
// method name, which returns the number by which the platform's calls name a CPU.
type isa struct {
	probe func() (module.Probe, error)
	// begin and resume are the second argument of the probe's function that runs a
	// program.
	begin, resume uint64
	// process is the same of a probe in a process without privilege, and signals are what may come of that.
	process uint64
	signals []signal
	// call has a thread that is stopped call what it is at, with two arguments and a stack, and come back to
	// the address 0; result is what it gave. All is of C's calling convention.
	call   func(r *unix.PtraceRegs, first, second, stack uint64)
	result func(*unix.PtraceRegs) uint64
	// kernelFrom is the first address that is the kernel's. An access below it from a kernel
	// is taken for an attack.
	kernelFrom uint64
	// nowhere is an address of the kernel's that there is no memory at, and trap what
	// Result.Trap is after a Load there, 0 for any.
	nowhere, trap uint64
	// endless tells whether nothing but a call can end a Wait with interrupts off.
	endless bool
}

// probeOf makes a Probe of what is in the type Code of a probe's package.
func probeOf[F ~struct{ At, Resume int }](code []byte, run int, fixups []F) module.Probe {
	p := module.Probe{Bytes: code, Run: run}
	for _, f := range fixups {
		p.Fixups = append(p.Fixups, module.Fixup(f))
	}
	return p
}

type machine struct {
	window *module.Module // through which all memory is looked at
	cpus   []*cpu
	areas  uint64 // address
	used   uint64 // of the memory for areas
}

type cpu struct {
	module *module.Module
	number int    // the kernel's
	id     uint64 // the platform's
	// shadow is memory in which a frame is put together, and taken apart.
	shadow  arch.Frame
	program arch.Program

	start chan uint64  // the second argument of the probe's function
	left  chan outcome // how it returned
	state state
	stop  arch.Stop // of a CPU that does not run
}

type outcome struct {
	status uint64
	err    error
}

type state int

const (
	idle state = iota
	running
	out    // by an Exit
	broken // left in a way from which only Reset brings it back
)

// Open makes a machine of CPUs of the machine that this process runs on. Errors that tell
// of a kernel that takes no module wrap a Refusal of package internal/kmod.
func Open(c Config) (Machine, error) {
	m, err := open(c)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func open(c Config) (*machine, error) {
	numbers, err := choose(c.CPUs)
	if err != nil {
		return nil, err
	}
	if c.Most > 0 {
		numbers = numbers[:min(c.Most, len(numbers))]
	}
	if err := sweep(); err != nil {
		return nil, err
	}
	kernel, err := sibling(c.Sibling)
	if err != nil {
		return nil, err
	}
	probe, err := this.probe()
	if err != nil {
		return nil, err
	}
	glue, err := module.CopyGlue()
	if err != nil {
		return nil, err
	}
	load := func(role string, memory int) (*module.Module, error) {
		name := fmt.Sprintf(modulePrefix+"%d_%s", os.Getpid(), role)
		image, err := module.Image(module.Spec{Name: name, GOARCH: runtime.GOARCH, Kernel: kernel, Probe: probe, Glue: glue})
		if err != nil {
			return nil, err
		}
		return module.Load(name, image, memory)
	}
	m := &machine{}
	if m.window, err = load("window", areasSize); err != nil {
		return nil, err
	}
	m.areas = m.window.Memory
	for _, n := range numbers {
		if err := m.add(n, load, len(probe.Illegal) > 0); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	for i, c := range m.cpus {
		if c.id, err = m.name(i); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

// sweep unloads the modules that processes left which did not come to unload them: killed ones.
func sweep() error {
	loaded, err := loadedModules()
	if err != nil {
		return err
	}
	for _, name := range stale(loaded, alive) {
		if err := module.Unload(name); err != nil {
			return fmt.Errorf("kmod: unload what a process left that was killed: %w", err)
		}
	}
	return nil
}

// stale lists our modules, of those in /proc/modules, whose process is not alive.
func stale(loaded string, alive func(pid int) bool) (names []string) {
	for line := range strings.Lines(loaded) {
		name, _, _ := strings.Cut(line, " ")
		rest, ours := strings.CutPrefix(name, modulePrefix)
		word, _, _ := strings.Cut(rest, "_")
		if pid, err := strconv.Atoi(word); ours && err == nil && !alive(pid) {
			names = append(names, name)
		}
	}
	return names
}

func alive(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// choose returns the numbers of the CPUs to use.
func choose(asked []int) ([]int, error) {
	if len(asked) > 0 {
		sorted := slices.Sorted(slices.Values(asked))
		if len(slices.Compact(sorted)) != len(asked) {
			return nil, fmt.Errorf("kmod: CPUs %v: each can be used once", asked)
		}
		return asked, nil
	}
	online, err := Online()
	if err != nil {
		return nil, err
	}
	return online[min(1, len(online)-1):], nil
}

// Online returns the kernel's numbers of the CPUs that are online, in their order.
func Online() ([]int, error) {
	const name = "/sys/devices/system/cpu/online"
	list, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("kmod: which CPUs there are: %w; is /sys mounted?", err)
	}
	online, err := cpulist.Parse(string(bytes.TrimSpace(list)))
	if err != nil {
		return nil, fmt.Errorf("kmod: %s: %w", name, err)
	}
	return online, nil
}

// sibling learns what modules of the kernel that runs look like.
func sibling(file string) (*module.Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("kmod: uname: %w", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	if file == "" {
		k, err := module.FindSibling(filepath.Join("/lib/modules", release), release, runtime.GOARCH)
		if errors.Is(err, module.NoSibling) {
			var other error
			if k, other = module.FromBTF(release); other != nil {
				return nil, fmt.Errorf("%w; and without one: %w", err, other)
			}
			return k, nil
		}
		return k, err
	}
	k, err := module.ReadSibling(file, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	if k.Release() != release {
		return nil, fmt.Errorf("%w: %s is of release %s, and %s runs", module.OtherKernel, file, k.Release(), release)
	}
	return k, nil
}

// add loads the module of a CPU, which is to have a guard or not, and starts the thread that runs
// its programs.
func (m *machine) add(number int, load func(role string, memory int) (*module.Module, error), guard bool) error {
	loaded, err := load(strconv.Itoa(number), 0)
	if err != nil {
		return err
	}
	c := &cpu{module: loaded, number: number, start: make(chan uint64), left: make(chan outcome, 1)}
	m.cpus = append(m.cpus, c)
	if guard {
		if err := loaded.Guard(); err != nil {
			c.start = nil
			return err
		}
	}
	shadow := make([]uint64, arch.FrameSize/8)
	if c.shadow, err = arch.NewFrame(bytesOf(shadow)); err != nil {
		return err
	}
	ready := make(chan error)
	go c.serve(ready)
	if err := <-ready; err != nil {
		c.start = nil
		return fmt.Errorf("kmod: move a thread to CPU %d: %w; is it online?", number, err)
	}
	return nil
}

// serve runs programs on the CPU until there are no more. Its thread ends with it.
func (c *cpu) serve(ready chan<- error) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(c.number)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		ready <- err
		return
	}
	ready <- nil
	for how := range c.start {
		status, err := c.module.Call(c.module.Probe, c.module.Frame, how)
		c.left <- outcome{status, err}
	}
}

// read and write move memory through the window.
func (m *machine) read(address uint64, content []byte) {
	if err := m.window.Read(address, content); err != nil {
		panic(err)
	}
}

func (m *machine) write(address uint64, content []byte) {
	if err := m.window.Write(address, content); err != nil {
		panic(err)
	}
}

// fetch brings a piece of a CPU's frame into its shadow; send does the reverse.
func (m *machine) fetch(c *cpu, offset, size int) {
	m.read(c.module.Frame+uint64(offset), c.shadow[offset:][:size])
}

func (m *machine) send(c *cpu, offset, size int) {
	m.write(c.module.Frame+uint64(offset), c.shadow[offset:][:size])
}

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return len(m.cpus) }

// ID implements arch.Machine.
func (m *machine) ID(cpu int) uint64 { return m.cpus[cpu].id }

// Alloc implements arch.Machine.
func (m *machine) Alloc(size, align uint64, fill byte) arch.Area {
	at := (m.used + align - 1) &^ (align - 1)
	end := (at + size + 7) &^ 7
	if end > areasSize {
		panic(fmt.Sprintf("kmod: no room for an area of %d bytes in %d, of which %d are used", size, areasSize, m.used))
	}
	// Whole words are filled, so that areas must not share one.
	at0 := at &^ 7
	m.write(m.areas+at0, bytes.Repeat([]byte{fill}, int(end-at0)))
	m.used = end
	return &area{m, m.areas + at, size}
}

// Start implements arch.Machine.
func (m *machine) Start(cpu int, p arch.Program) error {
	c := m.cpus[cpu]
	if c.state != idle {
		return fmt.Errorf("kmod: CPU %d is not idle; wait for its program's end, or reset the machine", cpu)
	}
	for i, o := range p {
		if err := allowed(o); err != nil {
			return fmt.Errorf("kmod: operation %d: %w", i, err)
		}
	}
	p = bounded(p)
	if err := c.shadow.Load(p); err != nil {
		return err
	}
	c.program = p
	// Operations up to the End, and as many results, are all that the probe looks at.
	size := min(len(p)+1, arch.MaxOps) * arch.SlotSize
	c.shadow.SetWord(arch.FrameSelf, c.module.Frame)
	m.send(c, 0, arch.FrameScratch)
	m.send(c, arch.FrameOps, size)
	m.send(c, arch.FrameResults, size)
	m.enter(c, this.begin)
	return nil
}

// forever is how often at most a program goes round without anybody's doing: for a minute or more,
// longer than anybody has use for, but not for ever on a CPU whose process was killed.
const forever = 1 << 35

// bounded is the program with all that goes round for ever, or as good as, bounded by forever.
func bounded(p arch.Program) arch.Program {
	p = slices.Clone(p)
	for i := range p {
		switch o := &p[i]; {
		case o.Kind == arch.SpinUntil && (o.Arg[3] == 0 || o.Arg[3] > forever):
			o.Arg[3] = forever
		case o.Kind == arch.Loop && o.Arg[1] > forever:
			o.Arg[1] = forever
		}
	}
	return p
}

// allowed tells why an operation would stop the kernel, or nil.
func allowed(o arch.Op) error {
	addresses := map[arch.Kind]int{arch.Load: 1, arch.Store: 1, arch.SpinUntil: 1, arch.Sample: 2}[o.Kind]
	for _, a := range o.Arg[:addresses] {
		if a < this.kernelFrom {
			return fmt.Errorf("%#x is no address of the kernel, which does not survive the access", a)
		}
	}
	if o.Kind == arch.Wait && o.Arg[0] == 0 && this.endless {
		return errors.New("a wait with interrupts off may never end, and this CPU is the kernel's")
	}
	return nil
}

func (m *machine) enter(c *cpu, how uint64) {
	c.state = running
	c.start <- how
}

// Wait implements arch.Machine.
func (m *machine) Wait(ctx context.Context, cpu int) (arch.Stop, error) {
	c := m.cpus[cpu]
	if c.state != running {
		return c.stop, nil
	}
	select {
	case <-ctx.Done():
		return arch.Stop{}, fmt.Errorf("kmod: CPU %d: %w", cpu, context.Cause(ctx))
	case o := <-c.left:
		return m.returned(c, o)
	}
}

// returned notes how a CPU left its program.
func (m *machine) returned(c *cpu, o outcome) (arch.Stop, error) {
	c.state, c.stop = broken, arch.Stop{}
	if o.err != nil {
		c.stop.Reason = o.err.Error()
		return c.stop, o.err
	}
	m.fetch(c, 0, arch.FrameScratch)
	switch o.status {
	case statusEnded:
		c.state, c.stop = idle, arch.Stop{Ended: true}
	case statusExited:
		c.state, c.stop = out, arch.Stop{Exit: c.shadow.Word(arch.FrameExit)}
	default:
		op, _ := c.shadow.At()
		c.stop.Reason = fmt.Sprintf("the probe does not know operation %d", op)
	}
	return c.stop, nil
}

// Resume implements arch.Machine.
func (m *machine) Resume(cpu int) error {
	c := m.cpus[cpu]
	if c.state != out {
		return fmt.Errorf("kmod: CPU %d is not out by an exit", cpu)
	}
	m.enter(c, this.resume)
	return nil
}

// At implements arch.Machine.
func (m *machine) At(cpu int) (op int, completed uint64) {
	var at [16]byte // the two words are next to each other
	m.read(m.cpus[cpu].module.Frame+arch.FrameAt, at[:])
	return int(binary.NativeEndian.Uint64(at[:])), binary.NativeEndian.Uint64(at[arch.FrameCompleted-arch.FrameAt:])
}

// Asleep implements arch.Machine.
func (m *machine) Asleep(cpu int) (bool, error) {
	c := m.cpus[cpu]
	if c.state != running {
		return false, nil
	}
	op, _ := m.At(cpu)
	return op < len(c.program) && c.program[op].Kind == arch.Wait, nil
}

// Results implements arch.Machine.
func (m *machine) Results(cpu int) []arch.Result {
	c := m.cpus[cpu]
	m.fetch(c, arch.FrameResults, len(c.program)*arch.SlotSize)
	return c.shadow.Results(len(c.program))
}

// vectorsSize is the size of the block of vector registers in a frame, in bytes.
const vectorsSize = 16 * 32

// Vectors implements arch.Machine.
func (m *machine) Vectors(cpu int) []byte {
	c := m.cpus[cpu]
	m.fetch(c, arch.FrameVectors, vectorsSize)
	return bytes.Clone(c.shadow[arch.FrameVectors:][:vectorsSize])
}

// SetVectors implements arch.Machine.
func (m *machine) SetVectors(cpu int, registers []byte) error {
	if len(registers) != vectorsSize {
		return fmt.Errorf("kmod: %d bytes of vector registers, not %d", len(registers), vectorsSize)
	}
	m.write(m.cpus[cpu].module.Frame+arch.FrameVectors, registers)
	return nil
}

// Events implements arch.Machine.
func (m *machine) Events(int, uint8) uint64 { return 0 }

// errNone is the answer to what a guest cannot do.
var errNone = fmt.Errorf("kmod: only the hypervisor can do this, and a guest runs on it: %w", errors.ErrUnsupported)

// Counter implements arch.Machine.
func (m *machine) Counter(int, string) (uint64, error) { return 0, errNone }

// Crowd implements arch.Machine.
func (m *machine) Crowd(...int) (func(), error) { return nil, errNone }

// Real implements Machine.
func (m *machine) Real(a arch.Area) (uint64, error) { return module.Real(a.Address()) }

// Number implements Machine.
func (m *machine) Number(cpu int) int { return m.cpus[cpu].number }

// Busy implements Machine.
func (m *machine) Busy(cpu int) string { return m.cpus[cpu].module.File() }

// Peek implements Machine.
func (m *machine) Peek(address uint64, content []byte) error { return m.window.Read(address, content) }

// Invoke implements Machine.
func (m *machine) Invoke(cpu int, function uint64, args ...uint64) (uint64, error) {
	c := m.cpus[cpu]
	if c.state != idle {
		return 0, fmt.Errorf("kmod: CPU %d is not idle; wait for its program's end, or reset the machine", cpu)
	}
	return c.module.Call(function, args...)
}

// haltBudget is how long a CPU may take to leave a program that was cut short. Interrupts
// end a wait, after less than a second.
const haltBudget = 10 * time.Second

// halt has a CPU come to the end of its program if it runs: what is left of the program is
// made an End, and what it spins for is made true.
func (m *machine) halt(cpu int) error {
	c := m.cpus[cpu]
	if c.state != running {
		return nil
	}
	// Nothing but the kinds may change: the CPU may be about to read an operation's arguments.
	for i := range c.program {
		c.shadow.SetWord(arch.FrameOps+uint64(i)*arch.SlotSize+arch.OpKind, uint64(arch.End))
	}
	m.send(c, arch.FrameOps, len(c.program)*arch.SlotSize)
	budget := time.After(haltBudget)
	for {
		op, _ := m.At(cpu)
		if op < len(c.program) {
			o := c.program[op]
			if a := o.Arg[0]; o.Kind == arch.SpinUntil && a%8 == 0 && a >= m.areas && a < m.areas+areasSize {
				m.write(a, words(o.Arg[2]))
			}
		}
		select {
		case o := <-c.left:
			_, err := m.returned(c, o)
			return err
		case <-budget:
			return fmt.Errorf("kmod: CPU %d of the kernel does not come back from operation %d; only a reboot gets it back", c.number, op)
		case <-time.After(time.Millisecond):
		}
	}
}

// Reset implements arch.Machine.
func (m *machine) Reset() error {
	for i := range m.cpus {
		if err := m.halt(i); err != nil {
			return err
		}
	}
	m.used = 0
	for _, c := range m.cpus {
		clear(c.shadow)
		m.send(c, arch.FrameVectors, vectorsSize)
		c.state, c.stop, c.program = idle, arch.Stop{}, nil
	}
	return nil
}

// Close implements Machine.
func (m *machine) Close() error {
	var errs []error
	for i := range m.cpus {
		errs = append(errs, m.halt(i))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the modules stay: a CPU that is not back is in them
	}
	for _, c := range m.cpus {
		if c.start != nil {
			close(c.start)
		}
		errs = append(errs, c.module.Unload())
	}
	return errors.Join(append(errs, m.window.Unload())...)
}

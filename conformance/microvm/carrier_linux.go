//go:build amd64 || ppc64le

package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"pvabi/arch"
	"pvabi/internal/kvm"
)

// The guest's memory: the machine's own tables, the probe, then for each CPU its frame and
// stacks, then what Alloc gives away.
const (
	cpuSize = 0x10000
	// From the beginning of a CPU's part: the frame, and the top of the stack that the
	// probe uses.
	stackTop = 0xd000

	areasSize = 1 << 20
)

// machine is the carrier. What depends on the architecture is in machineArch and cpuArch, and
// in these methods:
//
//   - prepare makes the machine without CPUs, and addCPU one of them;
//   - load writes the probe into the memory, for programs may write there;
//   - begin has an idle CPU's registers ready for the entry of the probe, at the frame's program;
//   - answer does what a call asks that is for the carrier, and tells whether the CPU goes on;
//   - supply gives back what was taken away from the memory;
//   - restore brings a CPU that stands still and its frame back to the state after creation,
//     and settle has those do the rest, which only a CPU that runs can do;
//   - first shows that this KVM runs programs, and leaves the machine as after creation.
type machine struct {
	config Config
	vm     *kvm.VM
	areas  *arch.Memory
	cpus   []*cpu
	machineArch
}

type cpu struct {
	id      uint64
	vcpu    *kvm.VCPU
	frame   arch.Frame
	program int // operations of the last one

	state state
	stop  arch.Stop // of a CPU that does not run
	cpuArch
}

type state int

const (
	idle state = iota
	running
	out    // by an Exit
	broken // left in a way from which only Reset brings it back
)

// Open makes a machine. The errors of package kvm say what a host lacks for it.
func Open(c Config) (Machine, error) {
	m, err := open(c)
	if err != nil {
		return nil, fmt.Errorf("microvm: %w", err)
	}
	return m, nil
}

func open(c Config) (*machine, error) {
	if c.IDs != nil && len(c.IDs) != c.cpus() {
		return nil, fmt.Errorf("%d ids for %d CPUs", len(c.IDs), c.cpus())
	}
	if c.cpus() > maxCPUs {
		return nil, fmt.Errorf("%d CPUs; there is room for %d", c.cpus(), maxCPUs)
	}
	system, err := kvm.Open()
	if err != nil {
		return nil, err
	}
	m := &machine{config: c}
	if err := m.prepare(system, areasAt(c)+areasSize); err != nil {
		return nil, err
	}
	m.areas = arch.NewMemory(m.vm.Memory[areasAt(c):], uint64(areasAt(c)))
	for i := range c.cpus() {
		if err := m.addCPU(i); err != nil {
			return nil, errors.Join(err, m.vm.Close())
		}
	}
	if err := m.first(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func areasAt(c Config) int { return cpusAt + c.cpus()*cpuSize }

func cpuAt(i int) uint64 { return cpusAt + uint64(i)*cpuSize }

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return len(m.cpus) }

// ID implements arch.Machine: a CPU's APIC id, or its number for PAPR's calls.
func (m *machine) ID(cpu int) uint64 { return m.cpus[cpu].id }

// Alloc implements arch.Machine.
func (m *machine) Alloc(size, align uint64, fill byte) arch.Area {
	return m.areas.Alloc(size, align, fill)
}

// Start implements arch.Machine.
func (m *machine) Start(cpu int, p arch.Program) error {
	c := m.cpus[cpu]
	if c.state != idle {
		return fmt.Errorf("microvm: CPU %d is not idle; wait for its program's end, or reset the machine", cpu)
	}
	if err := c.frame.Load(p); err != nil {
		return err
	}
	c.program = len(p)
	if err := m.begin(cpu); err != nil {
		return err
	}
	m.enter(c)
	return nil
}

// enter lets a CPU run.
func (m *machine) enter(c *cpu) {
	c.state = running
	c.vcpu.Enter(c.answer)
}

// Wait implements arch.Machine.
func (m *machine) Wait(ctx context.Context, cpu int) (arch.Stop, error) {
	c := m.cpus[cpu]
	if c.state != running {
		return c.stop, nil
	}
	select {
	case <-ctx.Done():
		return arch.Stop{}, fmt.Errorf("microvm: CPU %d: %w", cpu, context.Cause(ctx))
	case e := <-c.vcpu.Exits():
		return c.left(e)
	}
}

// left notes how a CPU left its program.
func (c *cpu) left(e kvm.Exit) (arch.Stop, error) {
	c.state, c.stop = broken, arch.Stop{Reason: e.String()}
	if e.Err != nil || e.Stopped || e.Reason != kvm.ExitMMIO || e.Address != door || e.Reads != 0 {
		return c.stop, e.Err
	}
	switch e.Data {
	case ended:
		c.stop = arch.Stop{Ended: true}
		// The CPU is to step over the instruction that it left by now, not when it
		// begins another program.
		if err := c.vcpu.Finish(); err != nil {
			return c.stop, err
		}
		c.state = idle
	case exited:
		c.state, c.stop = out, arch.Stop{Exit: c.frame.Word(arch.FrameExit)}
	default:
		op, _ := c.frame.At()
		c.stop = arch.Stop{Reason: fmt.Sprintf("the probe does not know operation %d", op)}
	}
	return c.stop, nil
}

// Resume implements arch.Machine.
func (m *machine) Resume(cpu int) error {
	c := m.cpus[cpu]
	if c.state != out {
		return fmt.Errorf("microvm: CPU %d is not out by an exit", cpu)
	}
	m.enter(c)
	return nil
}

// At implements arch.Machine.
func (m *machine) At(cpu int) (op int, completed uint64) { return m.cpus[cpu].frame.At() }

// threadState returns the state of a thread of this process as proc_pid_stat(5) has it: 'R' if it
// runs or is ready to, 'S' if it sleeps until something happens.
func threadState(thread int) (byte, error) {
	name := fmt.Sprintf("/proc/self/task/%d/stat", thread)
	stat, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("state of a CPU's thread: %w", err)
	}
	// The state follows the command's name, which is in parentheses.
	_, after, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if !ok || len(after) == 0 {
		return 0, fmt.Errorf("state of a CPU's thread: %s holds %q", name, stat)
	}
	return after[0], nil
}

// Results implements arch.Machine.
func (m *machine) Results(cpu int) []arch.Result {
	c := m.cpus[cpu]
	return c.frame.Results(c.program)
}

// Vectors implements arch.Machine.
func (m *machine) Vectors(cpu int) []byte { return bytes.Clone(m.vectors(cpu)) }

// SetVectors implements arch.Machine.
func (m *machine) SetVectors(cpu int, registers []byte) error {
	if len(registers) != len(m.vectors(cpu)) {
		return fmt.Errorf("microvm: %d bytes of vector registers, not %d", len(registers), len(m.vectors(cpu)))
	}
	copy(m.vectors(cpu), registers)
	return nil
}

func (m *machine) vectors(cpu int) []byte { return m.cpus[cpu].frame[arch.FrameVectors:][:16*32] }

// Events implements arch.Machine.
func (m *machine) Events(cpu int, vector uint8) uint64 { return m.cpus[cpu].frame.Events(vector) }

// Crowd implements arch.Machine: the threads of the CPUs may only use one CPU of the host
// from now on, the last, and all other threads of the process only the others, if there are
// others.
func (m *machine) Crowd(cpus ...int) (release func(), err error) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("microvm: CPUs of the host: %w", err)
	}
	last := 0
	for n, seen := 0, 0; seen < before.Count(); n++ {
		if before.IsSet(n) {
			last, seen = n, seen+1
		}
	}
	var one unix.CPUSet
	one.Set(last)
	rest := before
	rest.Clear(last)
	if rest.Count() == 0 {
		rest = one
	}
	crowd := map[int]bool{}
	for _, cpu := range cpus {
		crowd[m.cpus[cpu].vcpu.Thread()] = true
	}
	if err := m.place(func(thread int) *unix.CPUSet {
		if crowd[thread] {
			return &one
		}
		return &rest
	}); err != nil {
		return nil, errors.Join(err, m.place(func(int) *unix.CPUSet { return &before }))
	}
	return func() {
		// What was allowed before is allowed again; a thread that ended has no need.
		_ = m.place(func(int) *unix.CPUSet { return &before })
	}, nil
}

// place moves all threads of the process.
func (m *machine) place(to func(thread int) *unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("microvm: threads of the process: %w", err)
	}
	for _, t := range tasks {
		thread, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(thread, to(thread)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("microvm: move thread %d to other CPUs of the host: %w", thread, err)
		}
	}
	return nil
}

// Reset implements arch.Machine.
func (m *machine) Reset() error {
	// All must stand still before any is brought back, and none may wait for memory.
	if err := m.supply(); err != nil {
		return fmt.Errorf("microvm: reset: %w", err)
	}
	for i, c := range m.cpus {
		if err := c.halt(); err != nil {
			return fmt.Errorf("microvm: reset CPU %d: %w", i, err)
		}
	}
	// KVM must no longer write memory on a CPU's account before it is cleared.
	for _, c := range m.cpus {
		if err := errors.Join(c.vcpu.Finish(), c.vcpu.Quiet()); err != nil {
			return err
		}
	}
	m.load()
	for i, c := range m.cpus {
		if err := m.restore(i); err != nil {
			return err
		}
		c.state, c.stop, c.program = idle, arch.Stop{}, 0
	}
	if err := m.settle(); err != nil {
		return fmt.Errorf("microvm: reset: %w", err)
	}
	m.areas.Reset()
	return nil
}

// halt stops a CPU if it runs.
func (c *cpu) halt() error {
	if c.state != running {
		return nil
	}
	if err := c.vcpu.Stop(); err != nil {
		return err
	}
	<-c.vcpu.Exits()
	c.state = broken
	return nil
}

// Close implements Machine.
func (m *machine) Close() error {
	errs := []error{m.supply()}
	for _, c := range m.cpus {
		errs = append(errs, c.halt())
	}
	return errors.Join(append(errs, m.vm.Close())...)
}

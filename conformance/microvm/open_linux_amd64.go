package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/internal/kvm"
)

// The guest's memory: the tables of package kvm, the probe, then for each CPU its frame
// and stacks, then what Alloc gives away.
const (
	codeAt = kvm.FreeMemory
	cpusAt = 0x20000

	cpuSize = 0x10000
	// From the beginning of a CPU's part: the frame, and the tops of the stacks that
	// the probe and its interrupts at privilege level 3 use.
	stackTop  = 0xd000
	stack0Top = 0x10000

	areasSize = 1 << 20
	pageSize  = 4096
)

type machine struct {
	config Config
	vm     *kvm.VM
	code   *amd64.Code
	areas  *arch.Memory
	cpus   []*cpu
}

type cpu struct {
	id      uint64
	vcpu    *kvm.VCPU
	frame   arch.Frame
	reset   *kvm.State
	program int // operations of the last one

	state state
	stop  arch.Stop // of a CPU that does not run
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
	if c.cpus() > kvm.MaxCPUs {
		return nil, fmt.Errorf("%d CPUs; there is room for %d", c.cpus(), kvm.MaxCPUs)
	}
	code, err := amd64.Copy()
	if err != nil {
		return nil, err
	}
	system, err := kvm.Open()
	if err != nil {
		return nil, err
	}
	supported, err := system.Supported()
	if err != nil {
		return nil, err
	}
	m := &machine{config: c, code: code}
	areasAt := cpusAt + c.cpus()*cpuSize
	m.vm, err = system.NewVM(kvm.Config{
		Memory:        areasAt + areasSize,
		IRQChip:       map[IRQChip]kvm.IRQChip{Full: kvm.FullIRQChip, Split: kvm.SplitIRQChip, None: kvm.NoIRQChip}[c.IRQChip],
		WideIDs:       slices.ContainsFunc(c.IDs, func(id uint64) bool { return id >= 0xff }),
		DisableQuirks: c.DisableQuirks, ExitHypercalls: c.ExitHypercalls, DisableExits: c.DisableExits,
	})
	if err != nil {
		return nil, err
	}
	m.areas = arch.NewMemory(m.vm.Memory[areasAt:], uint64(areasAt))
	copy(m.vm.Memory[codeAt:cpusAt], code.Bytes)
	long := kvm.Long{Gates: codeAt + uint64(code.Vectors), Stride: amd64.VectorStride}
	for i := range c.cpus() {
		long.Stacks = append(long.Stacks, cpuAt(i)+stack0Top)
	}
	long.Tables(m.vm.Memory)
	for i := range c.cpus() {
		if err := m.addCPU(i, long, supported); err != nil {
			return nil, errors.Join(err, m.vm.Close())
		}
	}
	if err := m.touch(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// touchBudget is for a KVM on which a CPU never gets to its program's end.
const touchBudget = 30 * time.Second

// touch has each CPU use the memory that it needs to take an exception, so that KVM has
// mapped it before the first one. On SVM as QEMU 11.1 emulates it, a machine whose first
// exception found that memory unmapped has been seen to fail at the next access to memory
// that is not there, which is how a program leaves: KVM took it for an access in the middle
// of an exception's delivery and gave up (suberror 3). It also shows that this KVM runs such
// code at all.
func (m *machine) touch() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), touchBudget,
		fmt.Errorf("a program of loads and stores has no end after %v: this KVM does not run such code", touchBudget))
	defer cancel()
	for i := range m.cpus {
		var p arch.Program
		for page := uint64(0); page < codeAt+uint64(len(m.code.Bytes)); page += pageSize {
			p = append(p, arch.Op{Kind: arch.Load, Arg: [6]uint64{page, 8}})
		}
		p = append(p, arch.Op{Kind: arch.Store, Arg: [6]uint64{cpuAt(i) + stack0Top - 8, 0, 8}})
		if err := m.Start(i, p); err != nil {
			return err
		}
		stop, err := m.Wait(ctx, i)
		if err != nil {
			return err
		}
		if !stop.Ended {
			return fmt.Errorf("the first program of CPU %d: %s", i, stop.Reason)
		}
	}
	return m.Reset()
}

func cpuAt(i int) uint64 { return cpusAt + uint64(i)*cpuSize }

func (m *machine) addCPU(i int, long kvm.Long, supported []kvm.Entry) error {
	id := m.config.id(i)
	if id>>32 != 0 {
		return fmt.Errorf("id %#x of CPU %d is no APIC id: it has more than 32 bits", id, i)
	}
	leaves, err := kvm.CPUID(supported, kvm.Identity{
		ID: uint32(id), Features: m.config.Features, Hints: m.config.Hints, Base: m.config.base(),
	})
	if err != nil {
		return err
	}
	frame, err := arch.NewFrame(m.vm.Memory[cpuAt(i):])
	if err != nil {
		return err
	}
	c := &cpu{id: id, frame: frame}
	if c.vcpu, err = m.vm.NewVCPU(uint32(id), leaves, m.config.Enforce); err != nil {
		return err
	}
	m.cpus = append(m.cpus, c)
	c.frame.SetWord(arch.FrameSelf, cpuAt(i))
	s, err := c.vcpu.Sregs()
	if err != nil {
		return err
	}
	level := uint8(0)
	if slices.Contains(m.config.User, i) {
		level = 3
	}
	xcr0 := vectors(leaves)
	if err := c.vcpu.SetSregs(long.Sregs(s, i, level, cpuAt(i), xcr0 != 0, m.config.IRQChip != None)); err != nil {
		return err
	}
	if xcr0 != 0 {
		if err := c.vcpu.SetXCR0(xcr0); err != nil {
			return err
		}
	}
	if m.config.IRQChip != None {
		if err := c.vcpu.EnableAPIC(); err != nil {
			return err
		}
	}
	if err := c.vcpu.Wake(); err != nil {
		return err
	}
	c.reset, err = c.vcpu.Save()
	return err
}

// vectors is the value of XCR0 for x87, SSE and, if the processor has it, AVX; 0 if it has
// no XSAVE. Leaf 1 ECX bit 26 is XSAVE, leaf 0xd EAX the parts of the state.
func vectors(leaves []kvm.Entry) uint64 {
	xsave, parts := false, uint32(0)
	for _, e := range leaves {
		switch {
		case e.Function == 1:
			xsave = e.ECX>>26&1 == 1
		case e.Function == 0xd && e.Index == 0:
			parts = e.EAX
		}
	}
	if !xsave {
		return 0
	}
	const x87, sse, avx = 1, 2, 4
	return uint64(parts & (x87 | sse | avx))
}

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return len(m.cpus) }

// ID implements arch.Machine: a CPU's APIC id.
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
	at := cpuAt(cpu)
	const alwaysOne = 1 << 1 // of RFLAGS
	if err := c.vcpu.SetRegs(kvm.Regs{
		RIP: codeAt + uint64(m.code.Guest), RSP: at + stackTop, RFLAGS: alwaysOne, RDI: at,
	}); err != nil {
		return err
	}
	m.enter(c)
	return nil
}

// enter lets a CPU run, and returns to the guest with 0 what Config.ExitHypercalls sends
// here.
func (m *machine) enter(c *cpu) {
	c.state = running
	c.vcpu.Enter(func(e kvm.Exit) bool { return e.Reason == kvm.ExitHypercall })
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
	if e.Err != nil || e.Stopped || e.Reason != kvm.ExitMMIO || e.Address != amd64.Door {
		return c.stop, e.Err
	}
	switch status := amd64.Status(e.Data); status {
	case amd64.Ended:
		c.stop = arch.Stop{Ended: true}
		// The CPU is to step over the instruction that it left by now, not when it
		// begins another program.
		if err := c.vcpu.Finish(); err != nil {
			return c.stop, err
		}
		c.state = idle
	case amd64.Exited:
		c.state, c.stop = out, arch.Stop{Exit: c.frame.Word(arch.FrameExit)}
	default:
		op, _ := c.frame.At()
		c.stop = arch.Stop{Reason: fmt.Sprintf("the probe does not know operation %d", op)}
	}
	return c.stop, nil
}

// callPort is the I/O port by which a call in another mode says that it is over.
const callPort = 0xf4

// CallIn implements Caller.
func (m *machine) CallIn(ctx context.Context, mode Mode, cpu int, o arch.Op) (arch.Result, error) {
	c := m.cpus[cpu]
	if c.state != idle || o.Kind != arch.Call || o.Arg[0] >= uint64(len(amd64.Encodings)) {
		return arch.Result{}, fmt.Errorf("microvm: CPU %d is not idle, or operation %d, form %d, is no call", cpu, o.Kind, o.Arg[0])
	}
	const outAL, hlt = 0xe6, 0xf4 // OUT to a port in the next byte; HLT, never reached
	code := append(bytes.Clone(amd64.Encodings[o.Arg[0]]), outAL, callPort, hlt)
	copy(m.vm.Memory[kvm.OneShot:], code)
	long, err := c.vcpu.Sregs()
	if err != nil {
		return arch.Result{}, err
	}
	sregs := kvm.Protected(long)
	if mode == Real {
		sregs = kvm.Real(long)
	}
	c.state, c.stop = broken, arch.Stop{Reason: "a call in another mode did not come to its end"}
	const stack = kvm.OneShot + pageSize - 16
	r := kvm.Regs{RIP: kvm.OneShot, RFLAGS: o.Flags}
	general := registers(&r)
	for i, v := range o.Regs {
		*general[i] = v & (1<<32 - 1)
	}
	r.RSP = stack
	if err := errors.Join(c.vcpu.SetSregs(sregs), c.vcpu.SetRegs(r)); err != nil {
		return arch.Result{}, err
	}
	m.enter(c)
	var e kvm.Exit
	select {
	case <-ctx.Done():
		return arch.Result{}, fmt.Errorf("microvm: CPU %d: %w", cpu, context.Cause(ctx))
	case e = <-c.vcpu.Exits():
		c.state = broken
	}
	if e.Reason != kvm.ExitIO || e.Port != callPort || e.Stopped {
		return arch.Result{}, fmt.Errorf("microvm: a call in another mode on CPU %d: %s", cpu, e)
	}
	if err := c.vcpu.Finish(); err != nil {
		return arch.Result{}, err
	}
	if r, err = c.vcpu.Regs(); err != nil {
		return arch.Result{}, err
	}
	result := arch.Result{Count: 1, Flags: r.RFLAGS}
	r.RSP -= stack
	for i, v := range registers(&r) {
		result.Regs[i] = *v
	}
	if err := c.vcpu.SetSregs(long); err != nil {
		return arch.Result{}, err
	}
	c.state = idle
	return result, nil
}

// registers are the general registers in the order of amd64.ISA.
func registers(r *kvm.Regs) [16]*uint64 {
	return [16]*uint64{
		&r.RAX, &r.RBX, &r.RCX, &r.RDX, &r.RSI, &r.RDI, &r.RBP, &r.RSP,
		&r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15,
	}
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

// blocking is 1 while KVM has put a CPU to sleep (virt/kvm/kvm_main.c, kvm_vcpu_block);
// Linux has it since 5.16.
const blocking = "blocking"

// Asleep implements arch.Machine. A CPU is asleep if KVM says that it blocks, or, where
// KVM does not say, if its program is at a Wait, and if its thread sleeps. The latter
// tells at once of a wake-up: what wakes a thread makes it runnable before it returns
// (Linux 7.2, kernel/sched/core.c, try_to_wake_up), while KVM's word for it changes when
// the thread gets to run.
func (m *machine) Asleep(cpu int) (bool, error) {
	c := m.cpus[cpu]
	if c.vcpu.HasStatistic(blocking) {
		if n, err := c.vcpu.Statistic(blocking); err != nil || n == 0 {
			return false, err
		}
	} else {
		op, _ := c.frame.At()
		if op >= arch.MaxOps || arch.Kind(c.frame.Word(arch.FrameOps+uint64(op)*arch.SlotSize+arch.OpKind)) != arch.Wait {
			return false, nil
		}
	}
	name := fmt.Sprintf("/proc/self/task/%d/stat", c.vcpu.Thread())
	stat, err := os.ReadFile(name)
	if err != nil {
		return false, fmt.Errorf("microvm: state of the thread of CPU %d: %w", cpu, err)
	}
	// The state follows the command's name, which is in parentheses (proc_pid_stat(5)).
	_, after, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if !ok || len(after) == 0 {
		return false, fmt.Errorf("microvm: state of the thread of CPU %d: %s holds %q", cpu, name, stat)
	}
	return after[0] == 'S', nil
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

// Counter implements arch.Machine: a statistic of KVM by its name.
func (m *machine) Counter(cpu int, name string) (uint64, error) {
	return m.cpus[cpu].vcpu.Statistic(name)
}

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
	// All must stand still before any is brought back, and KVM must no longer write memory
	// on a CPU's account before it is cleared.
	for i, c := range m.cpus {
		if err := c.halt(); err != nil {
			return fmt.Errorf("microvm: reset CPU %d: %w", i, err)
		}
	}
	for _, c := range m.cpus {
		if err := errors.Join(c.vcpu.Finish(), c.vcpu.Quiet()); err != nil {
			return err
		}
	}
	m.areas.Reset()
	copy(m.vm.Memory[codeAt:], m.code.Bytes)
	for i, c := range m.cpus {
		if err := c.vcpu.Restore(c.reset); err != nil {
			return err
		}
		clear(c.frame)
		c.frame.SetWord(arch.FrameSelf, cpuAt(i))
		c.state, c.stop, c.program = idle, arch.Stop{}, 0
	}
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
	var errs []error
	for _, c := range m.cpus {
		errs = append(errs, c.halt())
	}
	return errors.Join(append(errs, m.vm.Close())...)
}

package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/internal/kvm"
)

const (
	maxCPUs = kvm.MaxCPUs

	// Addresses in the guest's memory, after the tables of package kvm.
	codeAt = kvm.FreeMemory
	cpusAt = 0x20000
	// stack0Top is, from the beginning of a CPU's part, the top of the stack that interrupts
	// at privilege level 3 use.
	stack0Top = 0x10000
	pageSize  = 4096

	// How a program leaves.
	door   = amd64.Door
	ended  = uint64(amd64.Ended)
	exited = uint64(amd64.Exited)
)

type machineArch struct {
	code      *amd64.Code
	supported []kvm.Entry // leaves of CPUID
	long      kvm.Long
}

type cpuArch struct {
	reset *kvm.State
	// What Config.ExitHypercalls sent here, and what is answered.
	passed []Passed
	result uint64
}

func (m *machine) prepare(system *kvm.System, memory int) error {
	c := m.config
	if c.Leave != nil {
		return errors.New("field Leave of the configuration: only PowerPC has such a thing")
	}
	var err error
	if m.code, err = amd64.Copy(); err != nil {
		return err
	}
	if m.supported, err = system.Supported(); err != nil {
		return err
	}
	m.vm, err = system.NewVM(kvm.Config{
		Memory:        memory,
		IRQChip:       map[IRQChip]kvm.IRQChip{Full: kvm.FullIRQChip, Split: kvm.SplitIRQChip, None: kvm.NoIRQChip}[c.IRQChip],
		WideIDs:       slices.ContainsFunc(c.IDs, func(id uint64) bool { return id >= 0xff }),
		DisableQuirks: c.DisableQuirks, ExitHypercalls: c.ExitHypercalls, DisableExits: c.DisableExits,
	})
	if err != nil {
		return err
	}
	m.load()
	m.long = kvm.Long{Gates: codeAt + uint64(m.code.Vectors), Stride: amd64.VectorStride}
	for i := range c.cpus() {
		m.long.Stacks = append(m.long.Stacks, cpuAt(i)+stack0Top)
	}
	m.long.Tables(m.vm.Memory)
	return nil
}

func (m *machine) load() { copy(m.vm.Memory[codeAt:cpusAt], m.code.Bytes) }

// touchBudget is for a KVM on which a CPU never gets to its program's end. Below an emulator on a busy host
// half a minute was seen to be too little for one that does.
const touchBudget = 100 * time.Second

// first has each CPU use the memory that it needs to take an exception, so that KVM has
// mapped it before the first one. On SVM as QEMU 11.1 emulates it, a machine whose first
// exception found that memory unmapped has been seen to fail at the next access to memory
// that is not there, which is how a program leaves: KVM took it for an access in the middle
// of an exception's delivery and gave up (suberror 3). It also shows that this KVM runs such
// code at all.
func (m *machine) first() error {
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

func (m *machine) addCPU(i int) error {
	id := m.config.id(i)
	if id>>32 != 0 {
		return fmt.Errorf("id %#x of CPU %d is no APIC id: it has more than 32 bits", id, i)
	}
	leaves, err := kvm.CPUID(m.supported, kvm.Identity{
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
	if err := c.vcpu.SetSregs(m.long.Sregs(s, i, level, cpuAt(i), xcr0 != 0, m.config.IRQChip != None)); err != nil {
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

func (m *machine) begin(cpu int) error {
	at := cpuAt(cpu)
	const alwaysOne = 1 << 1 // of RFLAGS
	return m.cpus[cpu].vcpu.SetRegs(kvm.Regs{
		RIP: codeAt + uint64(m.code.Guest), RSP: at + stackTop, RFLAGS: alwaysOne, RDI: at,
	})
}

// answer takes what Config.ExitHypercalls sends here, and reads of IdlePort.
func (c *cpu) answer(e kvm.Exit) bool {
	if e.Reason == kvm.ExitIO && e.Port == IdlePort {
		return true
	}
	if e.Reason != kvm.ExitHypercall {
		return false
	}
	c.passed = append(c.passed, Passed{e.Number, [3]uint64(e.Args[:3])})
	c.vcpu.Answer(c.result)
	return true
}

func (m *machine) restore(cpu int) error {
	c := m.cpus[cpu]
	if err := c.vcpu.Restore(c.reset); err != nil {
		return err
	}
	clear(c.frame)
	c.frame.SetWord(arch.FrameSelf, cpuAt(cpu))
	c.passed, c.result = nil, 0
	return nil
}

// settleBudget is for a KVM on which a CPU that was kicked waits nevertheless.
const settleBudget = 30 * time.Second

// settle has a CPU wait that has kept a kick which nobody waited for: before Linux 6.15 it cannot be
// taken back otherwise.
func (m *machine) settle() error {
	if m.config.IRQChip == None || m.config.DisableExits != 0 {
		return nil // no CPU can be kicked
	}
	for i, c := range m.cpus {
		kicked, err := c.vcpu.Kicked()
		if err != nil {
			return err
		}
		if !kicked {
			continue
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), settleBudget,
			fmt.Errorf("CPU %d was kicked, and its wait has no end after %v", i, settleBudget))
		defer cancel()
		if err := m.Start(i, arch.Program{{Kind: arch.Wait}}); err != nil {
			return err
		}
		stop, err := m.Wait(ctx, i)
		if err != nil {
			return err
		}
		if !stop.Ended {
			return fmt.Errorf("CPU %d did not end a wait: %s", i, stop.Reason)
		}
		if err := m.restore(i); err != nil {
			return err
		}
	}
	return nil
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
	state, err := threadState(c.vcpu.Thread())
	if err != nil {
		return false, fmt.Errorf("microvm: CPU %d: %w", cpu, err)
	}
	return state == 'S', nil
}

// Counter implements arch.Machine: a statistic of KVM by its name.
func (m *machine) Counter(cpu int, name string) (uint64, error) {
	return m.cpus[cpu].vcpu.Statistic(name)
}

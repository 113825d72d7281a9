package model

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/loong64"
	"pvabi/conformance/microvm"
	"pvabi/internal/refhv"
)

// The hypervisor of loongarch-kvm is the reference hypervisor, package refhv. Here are the
// processor below it and its interrupts: those of ESTAT and ECFG, and the instruction IDLE.

// loongArch is the reference hypervisor of one machine, and the refhv.Machine that it runs on.
type loongArch struct {
	m    *machine
	abi  *abi.Platform
	hv   *refhv.LoongArch
	cpus []loongCPU
	// idleLooks has IDLE look at the interrupts that the CPU has, not only at those that are
	// still to be handed to it.
	idleLooks bool
	// bare is a machine without a hypervisor.
	bare bool
	// guest is a machine of the CPUs of a guest's kernel, in whose way the rest of that guest comes
	// once in so many turns, in the mean; 0 for a machine of our own.
	guest uint64
}

// loongCPU is a processor's interrupts.
type loongCPU struct {
	pending uint64 // kvm_vcpu_arch.irq_pending: not yet handed to the CPU
	estat   uint64
	ecfg    uint64
	tcfg    uint64 // the timer's; it is slower than everything, and never comes to its end
	native  uint64 // IOCSR FEATURES as the machine has it
}

// loongInterrupts are the bits of ESTAT that are interrupts.
const loongInterrupts = 1<<13 - 1

// loongArchHosts are hosts that differ in what the ABI leaves open.
func loongArchHosts() []Host {
	return []Host{
		{Name: "kvm", Text: "A host whose IDLE looks only at what is to be handed to the CPU yet, as KVM's.", Open: openLoongArch(func(*loongArch) {})},
		{Name: "idle-looks", Text: "A host whose IDLE ends at once where an interrupt is pending at the CPU.", Open: openLoongArch(func(l *loongArch) { l.idleLooks = true })},
		{
			Name: "none", Text: "A machine without a hypervisor, on which a call is no instruction.",
			Absent: loongAbsent(), Open: openLoongArch(func(l *loongArch) { l.bare = true }),
		},
	}
}

// loongAbsent are the rules that do not apply without a hypervisor: all of its rules but one.
func loongAbsent() (out []string) {
	for _, r := range abi.LoongArch().Rules {
		if r.Side == abi.Hypervisor && r.Name() != "discovery/nothing-without-signature" {
			out = append(out, r.Name())
		}
	}
	return out
}

func loongArchMutants() []Mutant {
	var ms []Mutant
	for _, r := range refhv.LoongArchMutants() {
		ms = append(ms, Mutant{Name: r.Name, Text: r.Text, Rules: r.Rules, Controls: r.Controls, Open: openLoongArch(func(*loongArch) {}, r.Change)})
	}
	return ms
}

// openLoongArch makes machines whose processors are set up by set, and whose hypervisor by changes.
func openLoongArch(set func(*loongArch), changes ...func(*refhv.LoongArch)) Opener {
	return func(seed uint64, c microvm.Config) (microvm.Machine, error) {
		table := abi.LoongArch()
		if f := c.Features; f != nil {
			if err := refhv.CheckLoongArchFeatures(table, uint64(*f)); err != nil {
				return nil, fmt.Errorf("model: %w", err)
			}
		}
		return newMachine(seed, c, func(m *machine) hypervisor {
			l := &loongArch{m: m, abi: table, cpus: make([]loongCPU, len(m.cpus))}
			set(l)
			if l.guest > 0 {
				m.random += m.created // what others do is something else each time
			}
			for i := range l.cpus {
				l.cpus[i].ecfg = loongInterrupts
				m.cpus[i].interrupts = l.guest > 0
			}
			l.hv = refhv.NewLoongArch(l, table, append([]func(*refhv.LoongArch){func(h *refhv.LoongArch) {
				if f := c.Features; f != nil {
					if err := h.SetFeatures(uint64(*f)); err != nil {
						panic(err) // it was looked at above
					}
				}
			}}, changes...)...)
			return l
		})
	}
}

// loongGuest is a machine of the CPUs of a guest's kernel, as package conformance wants it.
type loongGuest struct{ *machine }

// LoongArchDisturbed opens machines of the CPUs of a guest's kernel, in whose way the rest of the guest
// comes: it sends them interrupts by call and without, and a device has one. One comes in so many turns of
// the CPUs, in the mean.
func LoongArchDisturbed(turns uint64) Opener {
	open := openLoongArch(func(l *loongArch) { l.guest = turns })
	return func(seed uint64, c microvm.Config) (microvm.Machine, error) {
		for i := range max(c.CPUs, 1) { // the first CPU is left to the rest of the guest
			c.IDs = append(c.IDs, 1+uint64(i))
		}
		m, err := open(seed, c)
		if err != nil {
			return nil, err
		}
		return loongGuest{m.(*machine)}, nil
	}
}

// turn comes with each turn of a CPU. One that has no program takes what the kernel is sent there.
func (l *loongArch) turn(c *cpu) bool {
	if l.guest == 0 {
		return false
	}
	const device = 3
	if l.m.below(l.guest) == 1 {
		l.Interrupt(c.index, []uint64{1, 1 << device, 1 << loongIPI}[l.m.below(3)-1])
	}
	s := &l.cpus[c.index]
	if c.state != idle || s.pending == 0 && s.estat&s.ecfg == 0 {
		return false
	}
	l.interrupt(c)
	return true
}

// Real implements conformance.LoongArchGuest.
func (m loongGuest) Real(a arch.Area) (uint64, error) { return a.Address(), nil }

// Taken implements conformance.LoongArchGuest.
func (m loongGuest) Taken(cpu int) (uint64, error) { return m.Events(cpu, 0), nil }

// Unprivileged implements conformance.LoongArchGuest. Of programs it takes calls.
func (m loongGuest) Unprivileged(_ context.Context, program arch.Program) ([]arch.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	process := *m.cpus[0]
	process.user = true
	out := make([]arch.Result, len(program))
	for i, op := range program {
		if op.Kind != arch.Call {
			return nil, fmt.Errorf("model: operation %d at privilege level 3 is no call", op.Kind)
		}
		r := &out[i]
		*r = arch.Result{Count: 1, Regs: op.Regs, Flags: op.Flags}
		if _, t := m.hv.call(&process, op.Arg[0], &r.Regs, &r.Flags); t.raised {
			r.Trap, r.Code = 1+t.vector, t.code
		}
	}
	return out, nil
}

// What the hypervisor has below it: refhv.Machine.

// CPUs implements refhv.Machine.
func (l *loongArch) CPUs() int { return len(l.m.cpus) }

// ID implements refhv.Machine.
func (l *loongArch) ID(cpu int) uint64 { return l.m.cpus[cpu].id }

// Load implements refhv.Machine.
func (l *loongArch) Load(address, size uint64) (uint64, bool) {
	if !l.m.mapped(address, size) {
		return 0, false
	}
	return l.m.load(address, size), true
}

// Store implements refhv.Machine.
func (l *loongArch) Store(address, size, value uint64) bool {
	if !l.m.mapped(address, size) {
		return false
	}
	l.m.store(address, size, value)
	return true
}

// Interrupt implements refhv.Machine.
func (l *loongArch) Interrupt(cpu int, lines uint64) { l.cpus[cpu].pending |= lines }

// Delay implements refhv.Machine.
func (l *loongArch) Delay(cpu int) uint64 { return l.m.cpus[cpu].delay }

// Pause implements refhv.Machine.
func (l *loongArch) Pause(cpu int) { l.m.cpus[cpu].pause() }

// What the machine has above it: hypervisor.

func (l *loongArch) isa() *arch.ISA { return loong64.ISA }

// call goes by the code in the name of the form. At privilege level 3 the processor has no such
// instruction: that is its part, as the hypervisor does not look.
func (l *loongArch) call(c *cpu, form uint64, regs *[16]uint64, _ *uint64) (uint64, trap) {
	const length = 4
	if c.user || l.bare {
		return 0, trap{raised: true, vector: loong64.Illegal - 1}
	}
	_, digits, _ := strings.Cut(l.isa().Instructions[form], " ")
	code, err := strconv.ParseUint(digits, 0, 64)
	if err != nil {
		panic(fmt.Sprintf("model: a form of the call instruction without a code: %v", err))
	}
	r4 := l.isa().Register("r4")
	a := (*[6]uint64)(regs[r4 : r4+6])
	l.hv.Call(c.index, code, a)
	return length, trap{}
}

func (l *loongArch) discover(c *cpu, leaf, _ uint64) [16]uint64 {
	var out [16]uint64
	if l.bare {
		return out
	}
	out[l.isa().Register("r4")], _ = l.hv.CPUCFG(c.index, uint32(leaf))
	return out
}

func (l *loongArch) readRegister(c *cpu, number uint64) (uint64, trap) {
	s := &l.cpus[c.index]
	switch number {
	case loong64.CRMD:
		if c.interrupts {
			return 1 << 2, trap{} // IE
		}
		return 0, trap{}
	case loong64.ESTAT:
		l.deliver(c)
		return s.estat, trap{}
	case loong64.ECFG:
		return s.ecfg, trap{}
	case loong64.CPUID:
		return c.id, trap{}
	case loong64.TCFG:
		return s.tcfg, trap{}
	case l.abi.Register("FEATURES").Number:
		return l.hv.Features(c.index, s.native), trap{}
	}
	return 0, l.privilege()
}

// writeRegister writes ECFG, and the bits of ESTAT that a guest may write: software interrupts.
func (l *loongArch) writeRegister(c *cpu, number, value uint64) trap {
	const software = 3
	s := &l.cpus[c.index]
	switch number {
	case loong64.ESTAT:
		l.deliver(c)
		s.estat = s.estat&^software | value&software
	case loong64.ECFG:
		s.ecfg = value & loongInterrupts
	case loong64.TCFG:
		s.tcfg = value
	case loongSend:
		l.send(value)
	default:
		return l.privilege()
	}
	return trap{}
}

// loongSend is the register by which the interrupt controller sends an interrupt from one CPU to another:
// the number of that from bit 16 on (arch/loongarch/include/asm/loongarch.h, LOONGARCH_IOCSR_IPI_SEND).
const loongSend = loong64.IOCSR + 0x1040

// loongIPI is the line of ESTAT of such an interrupt.
const loongIPI = 12

func (l *loongArch) send(value uint64) {
	for cpu, c := range l.m.cpus {
		if c.id == value>>16&0x3ff {
			l.Interrupt(cpu, 1<<loongIPI)
		}
	}
}

// deliver is kvm_deliver_intr of interrupt.c.
func (l *loongArch) deliver(c *cpu) {
	s := &l.cpus[c.index]
	s.estat, s.pending = s.estat|s.pending, 0
}

// interrupt has the CPU take all that it may, and its handler clear it.
func (l *loongArch) interrupt(c *cpu) {
	l.deliver(c)
	if !c.interrupts {
		return
	}
	s := &l.cpus[c.index]
	for line := range 13 {
		if s.estat&s.ecfg>>line&1 == 1 {
			s.estat &^= 1 << line
			c.events[line]++
		}
	}
}

// wait is kvm_emu_idle of exit.c. The instruction is done with interrupts off; where they are to
// be on after it, what came before it is taken then.
func (l *loongArch) wait(c *cpu) waiting {
	l.hv.Idle(c.index)
	s := &l.cpus[c.index]
	if s.pending != 0 || s.estat&s.ecfg != 0 && (l.idleLooks || c.interrupts) {
		return goesOn
	}
	return sleeps
}

// awake is kvm_arch_vcpu_runnable of vcpu.c.
func (l *loongArch) awake(c *cpu) bool { return l.cpus[c.index].pending != 0 }

func (l *loongArch) woken(*cpu) {}

func (l *loongArch) enter(c *cpu) { l.hv.Enter(c.index) }

func (l *loongArch) leave(c *cpu, why reason) {
	l.hv.Leave(c.index, why == preempted)
	if why == exits {
		c.interrupts = c.interrupts || l.guest > 0
	}
}

func (l *loongArch) counter(c *cpu, name string) (uint64, bool) { return l.hv.Counter(c.index, name) }

// Linux does not tell which exception it was: it is 0 (package loong64).
func (l *loongArch) access() trap    { return trap{raised: true} }
func (l *loongArch) privilege() trap { return trap{raised: true} }

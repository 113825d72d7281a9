package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// What checks build programs from, and how they have them run.

// The CPUs of a check's machine. Caller and target differ, so that a call that
// confuses them shows.
const (
	caller = 0
	target = 1
	third  = 2
)

// sparse is the numbers by which calls name the CPUs of a machine: with gaps, and
// not in the order of the CPUs.
var sparse = []uint64{2, 9, 5}

// absentID names no CPU of a machine, but lies below the largest number of one.
const absentID = 4

// poison is what a register holds before a call if nothing else must be in it. Each
// register has a value of its own, with all its bytes different.
func poison(register int) uint64 {
	return 0x1122334455667788 + uint64(register+1)*0x0101010101010101
}

// callNumber is a call by its number, with poison in each register that carries
// nothing.
func (t *T) callNumber(number uint64, args ...uint64) arch.Op {
	conv := t.ABI.MainConvention()
	op := arch.Op{Kind: arch.Call, Flags: t.FlagsPoison}
	op.Arg[0] = t.ISA.Instruction(t.Native)
	for i := range op.Regs {
		op.Regs[i] = poison(i)
	}
	for i, a := range args {
		op.Regs[t.ISA.Register(conv.Args[i])] = a
	}
	op.Regs[t.ISA.Register(conv.Number)] = number
	return op
}

// call is a call by its name.
func (t *T) call(name string, args ...uint64) arch.Op {
	return t.callNumber(t.ABI.Call(name).Number, args...)
}

// directed is a call of which one argument names a CPU; the others are 0, or what stands for one CPU
// where that has a name.
func (t *T) directed(name string, position, id uint64) arch.Op {
	args := make([]uint64, len(t.ABI.Call(name).Args))
	for i, a := range t.ABI.Call(name).Args {
		for _, v := range a.Values {
			if v.Name == "one" {
				args[i] = uint64(v.Number)
			}
		}
	}
	args[position] = id
	return t.call(name, args...)
}

// kick is the platform's kick of the CPU that is known as id.
func (t *T) kick(id uint64) arch.Op {
	if t.Kick != nil {
		return t.Kick(t, t.machine, id)
	}
	return t.directed(t.ABI.Scheduling.Kick, t.ABI.Scheduling.KickTarget, id)
}

// yield is the platform's directed yield to the CPU that is known as id.
func (t *T) yield(id uint64) arch.Op {
	return t.directed(t.ABI.Scheduling.Yield, t.ABI.Scheduling.YieldTarget, id)
}

// returned is the result that a call returned.
func (t *T) returned(r arch.Result) int64 {
	return int64(r.Regs[t.ISA.Register(t.ABI.MainConvention().Result)])
}

// The order in which an operation's arguments stand is package arch's business;
// these say it once.

func waitOp(interrupts uint64) arch.Op {
	return arch.Op{Kind: arch.Wait, Arg: [6]uint64{interrupts}}
}

func load(address, size uint64) arch.Op {
	return arch.Op{Kind: arch.Load, Arg: [6]uint64{address, size}}
}

func store(address, value, size uint64) arch.Op {
	return arch.Op{Kind: arch.Store, Arg: [6]uint64{address, value, size}}
}

func spinUntil(address, mask, value, limit uint64) arch.Op {
	return arch.Op{Kind: arch.SpinUntil, Arg: [6]uint64{address, mask, value, limit}}
}

func readRegister(number uint64) arch.Op {
	return arch.Op{Kind: arch.ReadRegister, Arg: [6]uint64{number}}
}

func writeRegister(number, value uint64) arch.Op {
	return arch.Op{Kind: arch.WriteRegister, Arg: [6]uint64{number, value}}
}

func exit(code uint64) arch.Op { return arch.Op{Kind: arch.Exit, Arg: [6]uint64{code}} }

func discover(leaf, subleaf uint64) arch.Op {
	return arch.Op{Kind: arch.Discover, Arg: [6]uint64{leaf, subleaf}}
}

// watchdog ends a program that its check expects to come to its end. It is for
// broken equipment: no verdict depends on it.
const watchdog = 60 * time.Second

// run has a CPU run a program to its end.
func (t *T) run(m microvm.Machine, cpu int, p ...arch.Op) []arch.Result {
	t.start(m, cpu, p...)
	t.finish(m, cpu)
	return m.Results(cpu)[:len(p)]
}

// runAll has a CPU run operations in as few programs as they fit in.
func (t *T) runAll(m microvm.Machine, cpu int, ops arch.Program) []arch.Result {
	var out []arch.Result
	for part := range slices.Chunk(ops, arch.MaxOps-1) {
		out = append(out, t.run(m, cpu, part...)...)
	}
	return out
}

// callNumbers makes one call of each number.
func (t *T) callNumbers(numbers []uint64) arch.Program {
	var p arch.Program
	for _, n := range numbers {
		p = append(p, t.callNumber(n))
	}
	return p
}

// start has a CPU begin a program.
func (t *T) start(m microvm.Machine, cpu int, p ...arch.Op) {
	t.Check(fmt.Sprintf("start CPU %d", cpu), m.Start(cpu, p))
}

// finish waits for the end of a CPU's program.
func (t *T) finish(m microvm.Machine, cpu int) {
	if s := t.leave(m, cpu); !s.Ended {
		t.Fatal(fmt.Errorf("CPU %d left its program by exit %d, unexpectedly", cpu, s.Exit))
	}
}

// leave waits until a CPU ended its program or left it by an Exit.
func (t *T) leave(m microvm.Machine, cpu int) arch.Stop {
	ctx, cancel := context.WithTimeoutCause(t.ctx, watchdog, fmt.Errorf("no end after %v", watchdog))
	defer cancel()
	s, err := m.Wait(ctx, cpu)
	if err != nil {
		at, _ := m.At(cpu)
		t.Fatal(fmt.Errorf("CPU %d at operation %d: %w", cpu, at, err))
	}
	if s.Reason != "" {
		at, _ := m.At(cpu)
		t.Fatal(fmt.Errorf("CPU %d at operation %d: %s", cpu, at, s.Reason))
	}
	return s
}

// exits waits for an Exit and tells its code.
func (t *T) exits(m microvm.Machine, cpu int) uint64 {
	s := t.leave(m, cpu)
	if s.Ended {
		t.Fatal(fmt.Errorf("CPU %d ended its program before its exit", cpu))
	}
	return s.Exit
}

// asleepAt tells whether a CPU sleeps in the operation with that index. It looks where
// the CPU is before and after, because that and whether it sleeps cannot be seen at once.
func (t *T) asleepAt(m microvm.Machine, cpu, op int) bool {
	if at, _ := m.At(cpu); at != op {
		return false
	}
	asleep, err := m.Asleep(cpu)
	t.Check("is the CPU asleep", err)
	at, _ := m.At(cpu)
	return asleep && at == op
}

// settle waits until a CPU whose program is ops operations long sleeps in one of
// them, or is at its end, and returns the index of the operation that it sleeps in:
// ops at the end. A CPU that does neither within the budget is an error.
func (t *T) settle(m microvm.Machine, cpu, ops int) int {
	var at int
	if !t.Until(func() bool {
		at, _ = m.At(cpu)
		return at >= ops || t.asleepAt(m, cpu, at)
	}) {
		t.Fatal(fmt.Errorf("CPU %d neither sleeps nor ended its program; it is at operation %d of %d", cpu, at, ops))
	}
	return min(at, ops)
}

// staysLooks is how often stays looks. Where Asleep tells of a wake-up at once, as a
// microvm's does, one look would do.
const staysLooks = 3

// stays tells whether a CPU still sleeps in the operation, looked at several times. A CPU
// that is seen awake in it may be about to go on, or to sleep again: the hypervisor wakes
// its threads for reasons of its own (KVM for one where a CPU of the machine enters, Linux
// 7.2.12, arch/x86/kvm/x86.c, kvm_gen_kvmclock_update). Only having gone on counts.
func (t *T) stays(m microvm.Machine, cpu, op int) bool {
	for range staysLooks {
		var at int
		if !t.Until(func() bool {
			at, _ = m.At(cpu)
			return at != op || t.asleepAt(m, cpu, op)
		}) {
			t.Fatal(fmt.Errorf("CPU %d neither sleeps in operation %d nor goes on", cpu, op))
		}
		if at != op {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// sleeper starts a waiter and sees it fall asleep.
func (t *T) sleeper(m microvm.Machine, cpu int, interrupts uint64) {
	t.start(m, cpu, waitOp(interrupts))
	t.Control("the waiter sleeps before the kick, in operation", 0, t.settle(m, cpu, 1))
}

// runner has a CPU do what is in p and then run, and sees it run, until end is called.
func (t *T) runner(m microvm.Machine, cpu int, p ...arch.Op) (end func()) {
	flag := m.Alloc(8, 8, 0)
	t.start(m, cpu, append(p, store(flag.Address(), 1, 8), spinUntil(flag.Address(), ^uint64(0), 2, 0))...)
	t.Control("the running CPU runs", true, t.Until(func() bool { return flag.Load(0, 8) == 1 }))
	return func() {
		flag.Store(0, 8, 2)
		t.finish(m, cpu)
	}
}

// crowd makes CPUs compete for one CPU of the host until release is called, or else until
// the check's end.
func (t *T) crowd(m microvm.Machine, cpus ...int) (release func()) {
	release, err := m.Crowd(cpus...)
	t.Check("put CPUs on one CPU of the host", err)
	release = sync.OnceFunc(release)
	t.after = append(t.after, release)
	return release
}

// bit is 1 for true: promises are counted.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

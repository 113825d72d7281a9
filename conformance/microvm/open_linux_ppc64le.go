package microvm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pvabi/arch"
	"pvabi/arch/ppc64le"
	"pvabi/internal/kvm"
)

const (
	maxCPUs = 256

	// Addresses in the guest's memory: vectors at 0, tables for the MMU, the probe, the CPUs.
	processAt = 0x3000
	nextAt    = 0x4000
	rootAt    = 0x10000
	codeAt    = 0x20000
	cpusAt    = 0x30000

	// How a program leaves.
	door   = ppc64le.Door
	ended  = uint64(ppc64le.Ended)
	exited = uint64(ppc64le.Exited)
)

type machineArch struct{ code *ppc64le.Code }

// cpuArch has what KVM left to the carrier: how many calls, and the last of them.
type cpuArch struct {
	passed atomic.Uint64
	last   atomic.Pointer[kvm.Exit]
}

func (m *machine) prepare(system *kvm.System, memory int) error {
	if set := onlyX86(m.config); len(set) > 0 {
		return fmt.Errorf("%s of the configuration: only x86 has such a thing", strings.Join(set, ", "))
	}
	var err error
	if m.code, err = ppc64le.Copy(); err != nil {
		return err
	}
	m.vm, err = system.NewVM(kvm.Config{Memory: memory, ProcessTable: processAt, XICS: m.config.IRQChip == Full, Leave: m.config.Leave})
	return err
}

// onlyX86 lists the fields that are set and mean nothing here.
func onlyX86(c Config) []string {
	var set []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"IRQChip Split", c.IRQChip == Split},
		{"Features", c.Features != nil},
		{"Hints", c.Hints != 0},
		{"Enforce", c.Enforce},
		{"KVMBase", c.KVMBase != 0},
		{"DisableQuirks", c.DisableQuirks != 0},
		{"ExitHypercalls", c.ExitHypercalls != 0},
		{"DisableExits", c.DisableExits != 0},
	} {
		if f.set {
			set = append(set, f.name)
		}
	}
	return set
}

func (m *machine) load() {
	copy(m.vm.Memory, ppc64le.Vectors(codeAt+uint64(m.code.Gate)))
	kvm.Radix{Process: processAt, Root: rootAt, Next: nextAt}.Tables(m.vm.Memory)
	copy(m.vm.Memory[codeAt:cpusAt], m.code.Bytes)
}

func (m *machine) addCPU(i int) error {
	id := m.config.id(i)
	if id>>32 != 0 {
		return fmt.Errorf("id %#x of CPU %d is none of KVM's: it has more than 32 bits", id, i)
	}
	frame, err := arch.NewFrame(m.vm.Memory[cpuAt(i):])
	if err != nil {
		return err
	}
	c := &cpu{id: id, frame: frame}
	if c.vcpu, err = m.vm.NewVCPU(uint32(id)); err != nil {
		return err
	}
	m.cpus = append(m.cpus, c)
	return nil
}

// first is a reset: it has each CPU run a program.
func (m *machine) first() error { return m.Reset() }

// MSR of a CPU (Power ISA 3.1B, book III, "Machine State Register"): 64 bits, vector and
// floating-point registers to be used, machine checks taken, addresses translated, recoverable,
// little endian. In problem state interrupts are on, whatever was asked for.
const (
	msrSupervisor = 1<<63 | 1<<25 | 1<<23 | 1<<13 | 1<<12 | 1<<5 | 1<<4 | 1<<1 | 1<<0
	msrProblem    = msrSupervisor | 1<<15 | 1<<14
)

func (m *machine) begin(cpu int) error {
	return m.beginIn(cpu, slices.Contains(m.config.User, cpu))
}

func (m *machine) beginIn(cpu int, problem bool) error {
	at := cpuAt(cpu)
	r := kvm.Regs{PC: codeAt + uint64(m.code.Guest), MSR: msrSupervisor}
	r.SPRG[0] = at
	r.GPR[1], r.GPR[3], r.GPR[4] = at+stackTop-ppc64le.StackHeader, at, ppc64le.Bare
	if problem {
		r.MSR, r.GPR[4] = msrProblem, ppc64le.Process
	}
	return m.cpus[cpu].vcpu.SetRegs(r)
}

// hFunction is H_FUNCTION, PAPR's result of a call that there is none of
// (arch/powerpc/include/asm/hvcall.h, Linux 7.2).
const hFunction = ^uint64(1)

// answer refuses calls that KVM does not know.
func (c *cpu) answer(e kvm.Exit) bool {
	if e.Reason != kvm.ExitPAPR {
		return false
	}
	c.passed.Add(1)
	c.last.Store(&e)
	c.vcpu.Answer(hFunction)
	return true
}

func (m *machine) restore(cpu int) error {
	c := m.cpus[cpu]
	clear(c.frame)
	c.frame.SetWord(arch.FrameSelf, cpuAt(cpu))
	c.frame.SetWord(ppc64le.FrameServer, c.id)
	c.passed.Store(0)
	c.last.Store(nil)
	return nil
}

// settleBudget is for a KVM on which a CPU never gets to its program's end, settleReads for an
// interrupt that comes twice.
const (
	settleBudget = 30 * time.Second
	settleReads  = 1 << 20
)

// supply has nothing to do: no memory is taken away.
func (*machine) supply() error { return nil }

// settle has each CPU take a decrementer interrupt in a wait. A kick that nobody waited for
// cannot be taken back otherwise: KVM keeps it until the next wait (kvmppc_cede in
// arch/powerpc/kvm/book3s_hv.c, Linux 7.2). It also turns the decrementer off for as long as it
// can be, which the probe does after each such interrupt, and makes KVM let go of the areas that
// Quiet told it to (kvmppc_update_vpas, there).
func (m *machine) settle() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), settleBudget,
		fmt.Errorf("a wait that the decrementer ends has no end after %v: this KVM does not run such code", settleBudget))
	defer cancel()
	for i, c := range m.cpus {
		// With interrupts on, this one would be taken before the wait; and it may come late.
		taken := cpuAt(i) + arch.FrameEvents + 8*ppc64le.Decrementer
		p := arch.Program{
			{Kind: arch.WriteRegister, Arg: [6]uint64{ppc64le.DEC, 0}},
			{Kind: arch.Wait},
			{Kind: arch.Interrupts, Arg: [6]uint64{1}},
			{Kind: arch.SpinUntil, Arg: [6]uint64{taken, ^uint64(0), 1, settleReads}},
		}
		if err := c.frame.Load(p); err != nil {
			return err
		}
		if err := m.beginIn(i, false); err != nil {
			return err
		}
		m.enter(c)
		stop, err := m.Wait(ctx, i)
		if err != nil {
			return err
		}
		if !stop.Ended || c.frame.Events(ppc64le.Decrementer) == 0 {
			return fmt.Errorf("CPU %d took no interrupt of its decrementer: %s", i, stop.Reason)
		}
		if err := m.restore(i); err != nil {
			return err
		}
	}
	return nil
}

// Asleep implements arch.Machine. A CPU is asleep if its thread sleeps in KVM_RUN, for which
// H_CEDE is the only reason (Linux 7.2, arch/powerpc/kvm/book3s_hv.c, kvmhv_run_single_vcpu); KVM's
// statistic "blocking" is not kept here. It tells at once of a wake-up: what wakes a thread
// makes it runnable before it returns (kernel/sched/core.c, try_to_wake_up).
func (m *machine) Asleep(cpu int) (bool, error) {
	thread := m.cpus[cpu].vcpu.Thread()
	state, err := threadState(thread)
	if err != nil {
		return false, fmt.Errorf("microvm: CPU %d: %w", cpu, err)
	}
	if state != 'S' {
		return false, nil
	}
	// "running", or number, arguments and more of the system call that the thread is blocked
	// in (proc_pid_syscall(5)).
	name := fmt.Sprintf("/proc/self/task/%d/syscall", thread)
	line, err := os.ReadFile(name)
	if err != nil {
		return false, fmt.Errorf("microvm: what the thread of CPU %d does: %w; the kernel needs CONFIG_HAVE_ARCH_TRACEHOOK", cpu, err)
	}
	f := strings.Fields(string(line))
	return len(f) > 3 && f[0] == fmt.Sprint(unix.SYS_IOCTL) && f[2] == fmt.Sprintf("%#x", kvm.Run), nil
}

// Counter implements arch.Machine: a statistic of KVM by its name, or PassedCalls.
func (m *machine) Counter(cpu int, name string) (uint64, error) {
	if name == PassedCalls {
		return m.cpus[cpu].passed.Load(), nil
	}
	return m.cpus[cpu].vcpu.Statistic(name)
}

// Rouse implements Rouser.
func (m *machine) Rouse(cpu int) error {
	c := m.cpus[cpu]
	if c.state != running {
		return nil
	}
	if err := c.vcpu.Stop(); err != nil {
		return err
	}
	if e := <-c.vcpu.Exits(); !e.Stopped {
		_, err := c.left(e)
		return err
	}
	m.enter(c)
	return nil
}

// Passed implements Passer.
func (m *machine) Passed(cpu int) (number uint64, args [9]uint64) {
	if e := m.cpus[cpu].last.Load(); e != nil {
		return e.Number, e.Args
	}
	return 0, args
}

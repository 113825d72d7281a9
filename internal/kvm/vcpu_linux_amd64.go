package kvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// VCPU is a CPU of a machine.
type VCPU struct {
	vm     *VM
	fd     int
	id     uint32
	thread int // of the operating system
	shared []byte

	work  chan func() // what the thread has to do; closed to end it
	ended chan struct{}
	exits chan Exit

	lock     sync.Mutex
	running  bool
	stopping bool

	stats     *Statistics
	statsFile *os.File
	statsErr  error
	paravirt  []msrEntry // registers of the paravirtual ABI that there are, and their values at reset
}

// NewVCPU makes a CPU with an APIC id and leaves of CPUID. If enforce is true, KVM refuses
// what the leaf of paravirtual features does not offer.
func (v *VM) NewVCPU(id uint32, leaves []Entry, enforce bool) (*VCPU, error) {
	c := &VCPU{vm: v, id: id, fd: -1, work: make(chan func()), ended: make(chan struct{}), exits: make(chan Exit, 1)}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the CPU
		c.thread = unix.Gettid()
		close(ready)
		for f := range c.work {
			f()
		}
		close(c.ended)
	}()
	<-ready
	v.cpus = append(v.cpus, c)
	return c, c.do(func() error { return c.setUp(leaves, enforce) })
}

// do has the CPU's thread do something, and waits for it. The CPU must not run.
func (c *VCPU) do(f func() error) error {
	done := make(chan error)
	c.work <- func() { done <- f() }
	if err := <-done; err != nil {
		return fmt.Errorf("kvm: CPU with APIC id %d: %w", c.id, err)
	}
	return nil
}

func (c *VCPU) setUp(leaves []Entry, enforce bool) error {
	var err error
	if c.fd, err = control(c.vm.fd, createVCPU, uintptr(c.id)); err != nil {
		return fmt.Errorf("KVM_CREATE_VCPU: %w", err)
	}
	if c.shared, err = unix.Mmap(c.fd, 0, c.vm.system.mmapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map struct kvm_run: %w", err)
	}
	if enforce {
		if err := enable(c.fd, CapEnforcePVFeature, "KVM_CAP_ENFORCE_PV_FEATURE_CPUID", 1); err != nil {
			return err
		}
	}
	if len(leaves) > maxCPUID {
		return fmt.Errorf("%d leaves of CPUID, more than %d", len(leaves), maxCPUID)
	}
	t := &cpuid{Count: uint32(len(leaves))}
	copy(t.Entries[:], leaves)
	if err := pass(c.fd, setCPUID2, t); err != nil {
		return fmt.Errorf("KVM_SET_CPUID2: %w", err)
	}
	c.stats, c.statsFile, c.statsErr = statistics(c.fd)
	return c.findParavirt()
}

func (c *VCPU) close() error {
	close(c.work)
	<-c.ended
	var errs []error
	if c.statsFile != nil {
		errs = append(errs, c.statsFile.Close())
	}
	if c.shared != nil {
		errs = append(errs, unix.Munmap(c.shared))
	}
	if c.fd >= 0 {
		errs = append(errs, unix.Close(c.fd))
	}
	return errors.Join(errs...)
}

// Thread is the number of the operating system's thread of the CPU.
func (c *VCPU) Thread() int { return c.thread }

// Statistic reads one of KVM's counters of the CPU.
func (c *VCPU) Statistic(name string) (uint64, error) {
	if c.statsErr != nil {
		return 0, c.statsErr
	}
	return c.stats.Value(name)
}

// HasStatistic tells whether KVM keeps such a counter.
func (c *VCPU) HasStatistic(name string) bool { return c.stats != nil && c.stats.Has(name) }

// Enter lets the CPU run and returns at once. An exit for which goOn returns true lets it
// run on; any other is sent to Exits, one for each Enter. goOn is called in the CPU's own
// thread.
func (c *VCPU) Enter(goOn func(Exit) bool) {
	c.lock.Lock()
	c.running = true
	c.lock.Unlock()
	c.work <- func() {
		e := c.run()
		for e.Err == nil && !e.Stopped && goOn(e) {
			e = c.run()
		}
		c.lock.Lock()
		c.running, c.stopping = false, false
		c.immediateExit(false)
		c.lock.Unlock()
		c.exits <- e
	}
}

// Exits has one Exit for each Enter.
func (c *VCPU) Exits() <-chan Exit { return c.exits }

// Stop ends a run, if there is one; the exit says so, unless the CPU left by itself
// before.
func (c *VCPU) Stop() error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if !c.running {
		return nil
	}
	c.stopping = true
	c.immediateExit(true)
	// SIGURG is the signal that Go's runtime expects at any time.
	if err := unix.Tgkill(os.Getpid(), c.thread, unix.SIGURG); err != nil {
		return fmt.Errorf("kvm: stop the CPU with APIC id %d: %w", c.id, err)
	}
	return nil
}

// immediateExit sets the field of that name in struct kvm_run: KVM_RUN does what is left
// of the last exit and returns EINTR.
func (c *VCPU) immediateExit(on bool) {
	var word uint32
	if on {
		word = 1 << 8
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&c.shared[0])), word)
}

// run enters the guest once.
func (c *VCPU) run() Exit {
	for {
		_, err := control(c.fd, run, 0)
		switch {
		case err == nil:
			return decodeExit(c.shared)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			c.lock.Lock()
			stopping := c.stopping
			c.lock.Unlock()
			if stopping {
				return Exit{Stopped: true}
			}
		default:
			return Exit{Err: fmt.Errorf("kvm: KVM_RUN of the CPU with APIC id %d: %w", c.id, err)}
		}
	}
}

// Finish has KVM do what is left of the last exit, such as to step over the instruction
// that caused it, without running the guest.
func (c *VCPU) Finish() error {
	return c.do(func() error {
		c.immediateExit(true)
		defer c.immediateExit(false)
		if _, err := control(c.fd, run, 0); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("finish the last exit: %w", err)
		}
		return nil
	})
}

// Regs reads the general registers.
func (c *VCPU) Regs() (r Regs, err error) {
	return r, c.do(func() error { return named("KVM_GET_REGS", pass(c.fd, getRegs, &r)) })
}

// SetRegs writes the general registers.
func (c *VCPU) SetRegs(r Regs) error {
	return c.do(func() error { return named("KVM_SET_REGS", pass(c.fd, setRegs, &r)) })
}

// Sregs reads the system registers.
func (c *VCPU) Sregs() (s Sregs, err error) {
	return s, c.do(func() error { return named("KVM_GET_SREGS", pass(c.fd, getSregs, &s)) })
}

// SetSregs writes the system registers.
func (c *VCPU) SetSregs(s Sregs) error {
	return c.do(func() error { return named("KVM_SET_SREGS", pass(c.fd, setSregs, &s)) })
}

func named(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// SetXCR0 chooses which parts of the extended state programs may use.
func (c *VCPU) SetXCR0(value uint64) error {
	return c.do(func() error {
		x := xcrs{Count: 1}
		x.XCR[0].Value = value
		return named("KVM_SET_XCRS", pass(c.fd, setXCRs, &x))
	})
}

// spuriousVector is the register in the page of the local APIC; its bit 8 enables it.
const spuriousVector = 0xf0

// EnableAPIC enables the CPU's local APIC, as firmware does.
func (c *VCPU) EnableAPIC() error {
	return c.do(func() error {
		var l lapic
		if err := pass(c.fd, getLAPIC, &l); err != nil {
			return named("KVM_GET_LAPIC", err)
		}
		binary.LittleEndian.PutUint32(l[spuriousVector:], 1<<8|0xff)
		return named("KVM_SET_LAPIC", pass(c.fd, setLAPIC, &l))
	})
}

// runnable is KVM_MP_STATE_RUNNABLE.
const runnable = 0

// Wake makes the CPU one that runs, not one that waits to be started by another. It also
// forgets a kick that nobody waited for (kvm_set_mp_state in arch/x86/kvm/x86.h).
func (c *VCPU) Wake() error {
	return c.do(func() error {
		state := uint32(runnable)
		return named("KVM_SET_MP_STATE", pass(c.fd, setMPState, &state))
	})
}

// The model-specific registers of the paravirtual ABI, MSR_KVM_* in
// arch/x86/include/uapi/asm/kvm_para.h, in an order in which they can be written.
var paravirt = []uint32{
	0x4b564d03,             // steal time
	0x4b564d04,             // end of interrupt
	0x4b564d02, 0x4b564d06, // asynchronous page faults, enabling before the vector
	0x4b564d05,       // polling while halted
	0x4b564d01, 0x12, // clock, by both its numbers
}

// findParavirt reads the values that those registers have at reset. KVM may refuse to
// know one, by its version or because it is not offered.
func (c *VCPU) findParavirt() error {
	for _, index := range paravirt {
		m := msrs{Count: 1, Entries: [maxMSRs]msrEntry{{Index: index}}}
		n, err := c.passMSRs(getMSRs, &m)
		if err != nil {
			return named("KVM_GET_MSRS", err)
		}
		if n == 0 {
			continue
		}
		if n, err = c.passMSRs(setMSRs, &m); err != nil {
			return named("KVM_SET_MSRS", err)
		}
		if n == 1 {
			c.paravirt = append(c.paravirt, m.Entries[0])
		}
	}
	return nil
}

// passMSRs returns how many of the registers KVM came by.
func (c *VCPU) passMSRs(request uintptr, m *msrs) (int, error) {
	var pin runtime.Pinner
	pin.Pin(m)
	defer pin.Unpin()
	return control(c.fd, request, uintptr(unsafe.Pointer(m)))
}

// State is all that a program can change about a CPU.
type State struct {
	regs   Regs
	sregs  Sregs
	lapic  *lapic
	events events
	xsave  xsave
	xcrs   xcrs
}

// Save returns the CPU's state. It is meant for a CPU before it first runs: the registers
// of the paravirtual ABI are taken to be as at reset.
func (c *VCPU) Save() (*State, error) {
	s := &State{}
	return s, c.do(func() error {
		if c.vm.config.IRQChip != NoIRQChip {
			s.lapic = &lapic{}
			if err := pass(c.fd, getLAPIC, s.lapic); err != nil {
				return named("KVM_GET_LAPIC", err)
			}
		}
		return errors.Join(
			named("KVM_GET_REGS", pass(c.fd, getRegs, &s.regs)),
			named("KVM_GET_SREGS", pass(c.fd, getSregs, &s.sregs)),
			named("KVM_GET_VCPU_EVENTS", pass(c.fd, getEvents, &s.events)),
			named("KVM_GET_XSAVE", pass(c.fd, getXSave, &s.xsave)),
			named("KVM_GET_XCRS", pass(c.fd, getXCRs, &s.xcrs)),
		)
	})
}

// Quiet gives the registers of the paravirtual ABI their values at reset: KVM no longer
// writes the guest's memory on the CPU's account.
func (c *VCPU) Quiet() error {
	return c.do(func() error {
		m := msrs{Count: uint32(len(c.paravirt))}
		copy(m.Entries[:], c.paravirt)
		n, err := c.passMSRs(setMSRs, &m)
		if err == nil && n < len(c.paravirt) {
			err = fmt.Errorf("register %#x is refused", c.paravirt[n].Index)
		}
		return named("KVM_SET_MSRS", err)
	})
}

// Restore gives the CPU a state that it had. Kicks, interrupts and exceptions that are
// pending are forgotten.
func (c *VCPU) Restore(s *State) error {
	err := c.do(func() error {
		err := errors.Join(
			named("KVM_SET_SREGS", pass(c.fd, setSregs, &s.sregs)),
			named("KVM_SET_XCRS", pass(c.fd, setXCRs, &s.xcrs)),
			named("KVM_SET_XSAVE", pass(c.fd, setXSave, &s.xsave)),
			named("KVM_SET_REGS", pass(c.fd, setRegs, &s.regs)),
		)
		if s.lapic != nil {
			err = errors.Join(err, named("KVM_SET_LAPIC", pass(c.fd, setLAPIC, s.lapic)))
		}
		return errors.Join(err, named("KVM_SET_VCPU_EVENTS", pass(c.fd, setEvents, &s.events)))
	})
	return errors.Join(err, c.Wake())
}

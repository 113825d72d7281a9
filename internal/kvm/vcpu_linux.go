//go:build amd64 || ppc64le

package kvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
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

	threadErr error
	stats     *Statistics
	statsFile *os.File
	statsErr  error

	vcpuArch
}

// newVCPU makes a CPU by the number that KVM_CREATE_VCPU takes. setUp does in the CPU's thread
// what else has to be done.
func (v *VM) newVCPU(id uint32, setUp func(*VCPU) error) (*VCPU, error) {
	c := &VCPU{vm: v, id: id, fd: -1, work: make(chan func()), ended: make(chan struct{}), exits: make(chan Exit, 1)}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the CPU
		c.thread = unix.Gettid()
		c.threadErr = onlyKicks()
		close(ready)
		for f := range c.work {
			f()
		}
		close(c.ended)
	}()
	<-ready
	if c.threadErr != nil {
		return nil, errors.Join(c.threadErr, c.close())
	}
	v.cpus = append(v.cpus, c)
	return c, c.do(func() error {
		if err := c.create(); err != nil {
			return err
		}
		return setUp(c)
	})
}

func (c *VCPU) create() error {
	var err error
	if c.fd, err = control(c.vm.fd, createVCPU, uintptr(c.id)); err != nil {
		return fmt.Errorf("KVM_CREATE_VCPU: %w", err)
	}
	if c.shared, err = unix.Mmap(c.fd, 0, c.vm.system.mmapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map struct kvm_run: %w", err)
	}
	c.stats, c.statsFile, c.statsErr = statistics(c.fd)
	return nil
}

// do has the CPU's thread do something, and waits for it. The CPU must not run.
func (c *VCPU) do(f func() error) error {
	done := make(chan error)
	c.work <- func() { done <- f() }
	if err := <-done; err != nil {
		return fmt.Errorf("kvm: CPU with id %d: %w", c.id, err)
	}
	return nil
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
	if err := unix.Tgkill(os.Getpid(), c.thread, kick); err != nil {
		return fmt.Errorf("kvm: stop the CPU with id %d: %w", c.id, err)
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
			return Exit{Err: fmt.Errorf("kvm: KVM_RUN of the CPU with id %d: %w", c.id, err)}
		}
	}
}

// kick is the signal that ends a run. Go's runtime does nothing about it.
const kick = unix.SIGIO

// onlyKicks blocks all other signals in the calling thread, but for those that it causes
// itself and those that libraries send to every thread (SIGRTMIN and the next). One that
// comes in a run would end it, and on PowerPC with it a wait of the guest
// (kvmhv_run_single_vcpu in arch/powerpc/kvm/book3s_hv.c, Linux 7.2); Go's scheduler sends many.
func onlyKicks() error {
	var set unix.Sigset_t
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case kick, unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, 32, 33:
		default:
			set.Val[(s-1)/64] |= 1 << ((s - 1) % 64)
		}
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &set, nil); err != nil {
		return fmt.Errorf("kvm: block signals in the thread of a CPU: %w", err)
	}
	return nil
}

// Give has a CPU read a value where an exit says that it reads, in the CPU's own thread, as in
// what Enter is given.
func (c *VCPU) Give(e Exit, value uint64) {
	var data [8]byte
	binary.LittleEndian.PutUint64(data[:], value)
	at := uint64(runUnion) + 8 // the address of an ExitMMIO is before
	if e.Reason == ExitIO {
		at = binary.LittleEndian.Uint64(c.shared[runUnion+8:])
	}
	copy(c.shared[at:], data[:e.Reads])
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

func named(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

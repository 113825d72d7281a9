package privcmd

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"pvabi/arch"
)

// cpuid is CPUID as Xen answers it, clock the time stamp counter.
func cpuid(leaf, subleaf uint32) (a, b, c, d uint32)
func clock() uint64

// cpu is a vCPU and the thread that runs its programs.
type cpu struct {
	m      *machine
	number int // the kernel's, and Xen's
	user   bool
	port   uint32
	// scratch is memory for arguments of the thread's own hypercalls.
	scratch arch.Area

	frame   arch.Frame
	program arch.Program
	thread  int
	begin   chan struct{} // to begin a program, or to go on after an Exit
	left    chan arch.Stop
	state   state
	stop    arch.Stop
	// inside is true while the thread is in a hypercall of a program's. halting has the
	// program come to its end.
	inside, halting atomic.Bool
}

type state int

const (
	idle state = iota
	running
	out    // by an Exit
	broken // left in a way from which only Reset brings it back
)

// serve runs programs on the vCPU until there are no more. Its thread ends with it.
func (c *cpu) serve(ready chan<- error) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(c.number)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		ready <- err
		return
	}
	c.thread = unix.Gettid()
	ready <- nil
	for range c.begin {
		c.left <- c.run()
	}
}

// run runs a program from its beginning to its end.
func (c *cpu) run() arch.Stop {
	at, completed := 0, uint64(0)
	for at < len(c.program) {
		o := &c.program[at]
		if o.Kind == arch.End || c.halting.Load() {
			break
		}
		c.frame.SetWord(arch.FrameAt, uint64(at))
		result := uint64(arch.FrameResults + at*arch.SlotSize)
		set := func(field, value uint64) { c.frame.SetWord(result+field, value) }
		count := c.frame.Word(result+arch.ResultCount) + 1
		set(arch.ResultBegin, clock())
		next := at + 1
		switch o.Kind {
		case arch.Exit:
			c.left <- arch.Stop{Exit: o.Arg[0]}
			if _, more := <-c.begin; !more {
				return arch.Stop{Ended: true}
			}
		case arch.Loop:
			if count < o.Arg[1] {
				next = int(o.Arg[0])
			}
		default:
			if reason := c.do(o, set); reason != "" {
				return arch.Stop{Reason: fmt.Sprintf("operation %d: %s", at, reason)}
			}
		}
		set(arch.ResultEnd, clock())
		set(arch.ResultCount, count)
		completed++
		c.frame.SetWord(arch.FrameCompleted, completed)
		at = next
	}
	c.frame.SetWord(arch.FrameAt, uint64(at))
	return arch.Stop{Ended: true}
}

// do does an operation that goes on to the next. A reason tells why there is no going on.
func (c *cpu) do(o *arch.Op, set func(field, value uint64)) (reason string) {
	switch o.Kind {
	case arch.Call:
		regs := o.Regs
		regs[rax] = c.call(&regs)
		regs[rsp] = 0
		for i, v := range regs {
			set(arch.ResultRegs+8*uint64(i), v)
		}
		set(arch.ResultFlags, o.Flags)
	case arch.Wait:
		return c.wait(o.Arg[0] == 1, set)
	case arch.Load:
		set(arch.ResultValue, load(o.Arg[0], o.Arg[1]))
	case arch.Store:
		store(o.Arg[0], o.Arg[2], o.Arg[1])
	case arch.SpinUntil:
		for n := uint64(1); ; n++ {
			v := load(o.Arg[0], 8)
			set(arch.ResultValue, v)
			set(arch.ResultAux, n)
			if v&o.Arg[1] == o.Arg[2] || n == o.Arg[3] || c.halting.Load() {
				return ""
			}
		}
	case arch.Clock:
		set(arch.ResultValue, clock())
	case arch.Discover:
		ra, rb, rc, rd := cpuid(uint32(o.Arg[0]), uint32(o.Arg[1]))
		for i, v := range []uint32{ra, rb, rc, rd} { // in the places of RAX, RBX, RCX, RDX
			set(arch.ResultRegs+8*uint64(i), uint64(v))
		}
	}
	return ""
}

// call makes the call of a program and returns the result.
func (c *cpu) call(regs *[16]uint64) uint64 {
	a := [5]uint64{regs[rdi], regs[rsi], regs[rdx], regs[r10], regs[r8]}
	if c.user {
		r, _, errno := unix.RawSyscall6(uintptr(regs[rax]), uintptr(a[0]), uintptr(a[1]), uintptr(a[2]), uintptr(a[3]), uintptr(a[4]), uintptr(regs[r9]))
		if errno != 0 {
			return -uint64(errno)
		}
		return uint64(r)
	}
	o := operation{regs[rax], a[0]}
	c.m.ledger.registering(o, a[1])
	c.inside.Store(true)
	r := c.m.hypercall(regs[rax], a)
	c.inside.Store(false)
	c.m.note(o, a, r)
	return uint64(r)
}

// wait polls the CPU's own port.
func (c *cpu) wait(once bool, set func(field, value uint64)) (reason string) {
	base := c.scratch.Address()
	c.scratch.Store(offset("sched_poll", "ports"), 8, base+portAt)
	c.scratch.Store(offset("sched_poll", "nr_ports"), 4, 1)
	c.scratch.Store(offset("sched_poll", "timeout"), 8, 0)
	c.scratch.Store(portAt, 4, uint64(c.port))
	for polls := uint64(1); ; polls++ {
		c.inside.Store(true)
		r := c.m.hypercall(opPoll.hypercall, [5]uint64{opPoll.number, base})
		c.inside.Store(false)
		set(arch.ResultValue, polls)
		switch {
		case r != 0:
			return fmt.Sprintf("a poll of port %d gives %d", c.port, r)
		case once || c.m.takePending(c.port) || c.halting.Load():
			return ""
		}
	}
}

// portAt is where in scratch memory the port of a poll is, behind its sched_poll.
const portAt = 64

// hypercall has the kernel make a hypercall in the calling thread.
func (m *machine) hypercall(number uint64, arg [5]uint64) int64 {
	request := struct {
		number uint64
		arg    [5]uint64
	}{number, arg}
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m.fd), ioctlHypercall, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return -int64(errno)
	}
	return int64(r)
}

// load and store are single accesses to memory of the machine's.
func load(address, size uint64) uint64 {
	switch p := pointer(address); size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(atomic.LoadUint32((*uint32)(p)))
	default:
		return atomic.LoadUint64((*uint64)(p))
	}
}

func store(address, size, value uint64) {
	switch p := pointer(address); size {
	case 1:
		*(*uint8)(p) = uint8(value)
	case 2:
		*(*uint16)(p) = uint16(value)
	case 4:
		atomic.StoreUint32((*uint32)(p), uint32(value))
	default:
		atomic.StoreUint64((*uint64)(p), value)
	}
}

package privcmd

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"pvabi/arch"
)

// ledger is what has to be given back, in memory that outlives the process.
type ledger struct {
	// vcpus are those whose areas programs may register.
	count uint64
	vcpus [maxVCPUs]entry
	// ports has a bit for each port that is open.
	ports [4096 / 32]uint32
}

const maxVCPUs = 32

// entry is a vCPU, the area that the kernel has registered for its runstate, 0 for none, and a bit
// for each operation by which a program has registered another one.
type entry struct{ number, runstate, registered uint64 }

// registers are the operations that register an area; the bit of each is its position.
var registers = []operation{opRunstate, opTime, opRunstatePhys, opTimePhys}

func newLedger(memory []byte) *ledger { return (*ledger)(unsafe.Pointer(&memory[0])) }

// add enters a vCPU.
func (l *ledger) add(number, runstate uint64) error {
	if l.count == maxVCPUs {
		return fmt.Errorf("privcmd: more than %d vCPUs", maxVCPUs)
	}
	l.vcpus[l.count] = entry{number: number, runstate: runstate}
	l.count++
	return nil
}

// entry returns the entry of a vCPU, or nil.
func (l *ledger) entry(number uint64) *entry {
	for i := range l.vcpus[:l.count] {
		if l.vcpus[i].number == number {
			return &l.vcpus[i]
		}
	}
	return nil
}

// open notes that a port is open.
func (l *ledger) open(port uint32) { atomic.OrUint32(&l.ports[port/32], 1<<(port%32)) }

// registering notes that an area of a vCPU is about to be registered.
func (l *ledger) registering(o operation, vcpu uint64) {
	e := l.entry(vcpu)
	for i, r := range registers {
		if e != nil && o == r {
			atomic.OrUint64(&e.registered, 1<<i)
		}
	}
}

// giveBack gives back all that the ledger has. argument is memory for arguments, and call makes a
// hypercall.
func (l *ledger) giveBack(argument arch.Area, call func(o operation, arg ...uint64) int64) error {
	var errs []error
	for i := range l.vcpus[:l.count] {
		e := &l.vcpus[i]
		registered := atomic.SwapUint64(&e.registered, 0)
		for bit, o := range registers {
			if registered>>bit&1 == 0 {
				continue
			}
			address := map[operation]uint64{
				opRunstate: e.runstate, opRunstatePhys: table.Word("unregister"), opTimePhys: table.Word("unregister"),
			}[o]
			argument.Store(0, 8, address)
			// What Xen does not offer cannot have been registered.
			if r := call(o, e.number, argument.Address()); r != 0 && r != table.Errno("ENOSYS") {
				errs = append(errs, fmt.Errorf("privcmd: take back the area of vCPU %d by operation %d: Xen says %d", e.number, o.number, r))
			}
		}
	}
	for i := range l.ports {
		for open := atomic.SwapUint32(&l.ports[i], 0); open != 0; open &= open - 1 {
			port := uint64(32*i + bits.TrailingZeros32(open))
			argument.Store(0, 8, port)
			if r := call(opClose, argument.Address()); r != 0 && r != table.Errno("EINVAL") {
				errs = append(errs, fmt.Errorf("privcmd: close port %d: Xen says %d", port, r))
			}
		}
	}
	return errors.Join(errs...)
}

func (m *machine) giveBack() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.giveBack(m.control, m.operate)
}

// note keeps the ledger when a program has made a hypercall.
func (m *machine) note(o operation, arg [5]uint64, result int64) {
	if at, ok := opens[o]; ok && result == 0 {
		m.ledger.open(uint32(load(arg[1]+at, 4)))
	}
}

// guardWord marks the second process. Its argument is the address of the memory; its files from 3
// on are the memory, Xen's device, and a pipe that ends when the first process does.
const guardWord = "pvabi-privcmd-guard"

// watch starts the second process.
func (m *machine) watch() error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("privcmd: watch over what is to be given back: %w", err)
	}
	defer r.Close()
	device := os.NewFile(uintptr(m.fd), device)
	if m.fd, err = unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return errors.Join(fmt.Errorf("privcmd: watch over what is to be given back: %w", err), device.Close(), w.Close())
	}
	defer device.Close()
	c := exec.Command("/proc/self/exe", guardWord, strconv.FormatUint(m.base, 16))
	c.Args[0] = "pvabi"
	c.Stderr = os.Stderr
	c.ExtraFiles = []*os.File{m.file, device, r}
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return errors.Join(fmt.Errorf("privcmd: watch over what is to be given back: %w", err), w.Close())
	}
	m.guard, m.alive = c, w
	return nil
}

// dismiss has the second process end.
func (m *machine) dismiss() error {
	if m.guard == nil {
		return nil
	}
	err := errors.Join(m.alive.Close(), m.guard.Wait())
	m.guard = nil
	return err
}

// init is the second process. Being an init function it works in every program that can open a
// machine, tests included, before these look at their arguments.
func init() {
	if len(os.Args) != 3 || os.Args[1] != guardWord {
		return
	}
	if err := guard(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "pvabi:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// guard gives back what the first process left, once that is gone.
func guard(word string) error {
	base, err := strconv.ParseUint(word, 16, 64)
	if err != nil {
		return fmt.Errorf("privcmd: address of the memory: %w", err)
	}
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	const memoryFile, deviceFile, pipe = 3, 4, 5
	if _, err := io.Copy(io.Discard, os.NewFile(pipe, "pipe")); err != nil {
		return fmt.Errorf("privcmd: watch the first process: %w", err)
	}
	memory, err := mapMemory(os.NewFile(memoryFile, "memory"), base)
	if err != nil {
		return err
	}
	m := &machine{fd: deviceFile}
	argument := arch.NewMemory(memory[scratchAt:areasAt], base+scratchAt).Alloc(pageSize, pageSize, 0)
	return newLedger(memory).giveBack(argument, m.operate)
}

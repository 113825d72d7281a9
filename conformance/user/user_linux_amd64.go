package user

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// The shared memory has a frame for each CPU, then areas. A program finds it at this
// address, which neither Go's heap nor the kernel's choice of mappings comes near.
const (
	memoryAddress = 0x5a0000000000
	areasSize     = 1 << 20
)

// machine is a machine of the CPUs that the process may run on.
type machine struct {
	memory []byte
	file   *os.File
	host   []int // by CPU, the CPU of the host
	cpus   []cpu
	areas  *arch.Memory
}

type cpu struct {
	frame   arch.Frame
	program int // operations of the last program
	child   *exec.Cmd
	said    bytes.Buffer
	done    chan error
	trap    uint64 // of the operation that ended the child
}

// Open makes a machine. Its CPUs stand for the CPUs that the process may run on, in
// turn. A configuration that asks for more than a process has is an error.
func Open(c microvm.Config) (microvm.Machine, error) {
	if err := wants(c); err != nil {
		return nil, err
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("user: which CPUs may be used: %w", err)
	}
	var host []int
	for n := 0; len(host) < allowed.Count(); n++ {
		if allowed.IsSet(n) {
			host = append(host, n)
		}
	}
	m := &machine{cpus: make([]cpu, max(c.CPUs, 1))}
	size := len(m.cpus)*arch.FrameSize + areasSize
	fd, err := unix.MemfdCreate("pvabi-user", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("user: memory to share: %w", err)
	}
	m.file = os.NewFile(uintptr(fd), "pvabi-user")
	if err := m.file.Truncate(int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("user: %d bytes of memory to share: %w", size, err), m.file.Close())
	}
	if m.memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, errors.Join(fmt.Errorf("user: map %d bytes of memory to share: %w", size, err), m.file.Close())
	}
	frames := len(m.cpus) * arch.FrameSize
	m.areas = arch.NewMemory(m.memory[frames:], memoryAddress+uint64(frames))
	for i := range m.cpus {
		m.host = append(m.host, host[i%len(host)])
		if m.cpus[i].frame, err = arch.NewFrame(m.memory[i*arch.FrameSize:]); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

// probeWord marks a process that runs one program. Its arguments are the CPU of the
// machine and the CPU of the host; the shared memory is its file 3.
const probeWord = "pvabi-user-probe"

// init is such a process. Being an init function it works in every program that can
// open a machine, tests included, before these look at their arguments.
func init() {
	if len(os.Args) != 4 || os.Args[1] != probeWord {
		return
	}
	if err := probe(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "pvabi:", err)
		os.Exit(exitFailed)
	}
	os.Exit(exitEnded)
}

// The exit statuses of such a process. Go's own, after a signal, is 2.
const (
	exitEnded   = 0
	exitFailed  = 3
	exitUnknown = 4
)

// probe runs the program in a CPU's frame.
func probe(cpuWord, hostWord string) error {
	cpu, err := strconv.Atoi(cpuWord)
	if err != nil {
		return err
	}
	host, err := strconv.Atoi(hostWord)
	if err != nil {
		return err
	}
	const file = 3
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return fmt.Errorf("shared memory: %w", err)
	}
	memory, err := unix.Mmap(file, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("shared memory: %w", err)
	}
	if _, _, errno := unix.Syscall6(unix.SYS_MMAP, memoryAddress, uintptr(st.Size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, file, 0); errno != 0 {
		return fmt.Errorf("shared memory at %#x: %w", memoryAddress, errno)
	}
	frame, err := arch.NewFrame(memory[cpu*arch.FrameSize:])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(host)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("move to CPU %d: %w", host, err)
	}
	if s := amd64.Run(frame, false); s != amd64.Ended {
		os.Exit(exitUnknown)
	}
	return nil
}

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return len(m.cpus) }

// ID implements arch.Machine: without privilege no call reaches another CPU, so that
// any number will do.
func (m *machine) ID(cpu int) uint64 { return uint64(cpu) }

// Alloc implements arch.Machine.
func (m *machine) Alloc(size, align uint64, fill byte) arch.Area {
	return m.areas.Alloc(size, align, fill)
}

// Start implements arch.Machine.
func (m *machine) Start(cpu int, p arch.Program) error {
	c := &m.cpus[cpu]
	if c.child != nil {
		return fmt.Errorf("user: CPU %d is not idle", cpu)
	}
	if err := c.frame.Load(p); err != nil {
		return err
	}
	c.program, c.trap = len(p), 0
	c.said.Reset()
	child := exec.Command("/proc/self/exe", probeWord, strconv.Itoa(cpu), strconv.Itoa(m.host[cpu]))
	child.Args[0] = "pvabi"
	child.Stderr = &c.said
	child.ExtraFiles = []*os.File{m.file}
	// One thread is enough, and a smaller process starts faster.
	child.Env = append(os.Environ(), "GOMAXPROCS=1", "GOTRACEBACK=none")
	child.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	started := make(chan error)
	c.done = make(chan error, 1)
	go func() {
		// The child dies with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := child.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		c.done <- child.Wait()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("user: start a process for CPU %d: %w", cpu, err)
	}
	c.child = child
	return nil
}

// Wait implements arch.Machine.
func (m *machine) Wait(ctx context.Context, cpu int) (arch.Stop, error) {
	c := &m.cpus[cpu]
	if c.child == nil {
		return arch.Stop{Ended: true}, nil
	}
	var err error
	select {
	case <-ctx.Done():
		return arch.Stop{}, errors.Join(context.Cause(ctx), m.stop(cpu))
	case err = <-c.done:
	}
	c.child = nil
	if err == nil {
		return arch.Stop{Ended: true}, nil
	}
	if c.trap = exception(c.said.String()); c.trap != 0 {
		return arch.Stop{Ended: true}, nil
	}
	return arch.Stop{}, fmt.Errorf("user: the process of CPU %d: %w: %s", cpu, err, strings.TrimSpace(c.said.String()))
}

// signals are the exceptions that Linux makes signals of, as Go reports these, and
// their vectors (Intel SDM volume 3, "Exception and interrupt reference"). An access
// that is not allowed and a privileged instruction are the same signal.
var signals = []struct {
	text   string
	vector uint64
}{
	{"SIGILL", 6},
	{"SIGSEGV", 13},
	{"unexpected fault address", 13},
	{"SIGFPE", 0},
	{"SIGTRAP", 3},
	{"SIGBUS", 17},
}

// exception is Result.Trap for what Go said before it ended, 0 if that was no signal.
func exception(said string) uint64 {
	for _, s := range signals {
		if strings.Contains(said, s.text) {
			return 1 + s.vector
		}
	}
	return 0
}

// stop ends the process of a CPU.
func (m *machine) stop(cpu int) error {
	c := &m.cpus[cpu]
	if c.child == nil {
		return nil
	}
	err := c.child.Process.Kill()
	<-c.done
	c.child = nil
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return err
}

// errNone is the answer to what takes privilege.
var errNone = errors.New("user: an ordinary process cannot do this")

// Resume implements arch.Machine. A program here has nobody to exit to.
func (m *machine) Resume(int) error { return errNone }

// At implements arch.Machine.
func (m *machine) At(cpu int) (op int, completed uint64) { return m.cpus[cpu].frame.At() }

// Asleep implements arch.Machine. A process cannot wait as a CPU does.
func (m *machine) Asleep(int) (bool, error) { return false, errNone }

// Results implements arch.Machine.
func (m *machine) Results(cpu int) []arch.Result {
	c := &m.cpus[cpu]
	out := c.frame.Results(c.program)
	if at, _ := c.frame.At(); c.trap != 0 && at < len(out) {
		out[at].Trap = c.trap
	}
	return out
}

// Vectors implements arch.Machine.
func (m *machine) Vectors(cpu int) []byte { return bytes.Clone(m.vectors(cpu)) }

// SetVectors implements arch.Machine.
func (m *machine) SetVectors(cpu int, registers []byte) error {
	if len(registers) != len(m.vectors(cpu)) {
		return fmt.Errorf("user: %d bytes of vector registers, not %d", len(registers), len(m.vectors(cpu)))
	}
	copy(m.vectors(cpu), registers)
	return nil
}

func (m *machine) vectors(cpu int) []byte { return m.cpus[cpu].frame[arch.FrameVectors:][:16*32] }

// Events implements arch.Machine. A process takes no interrupts.
func (m *machine) Events(int, uint8) uint64 { return 0 }

// Counter implements arch.Machine. The counters are the host's.
func (m *machine) Counter(int, string) (uint64, error) { return 0, errNone }

// Crowd implements arch.Machine.
func (m *machine) Crowd(...int) (func(), error) { return nil, errNone }

// Reset implements arch.Machine.
func (m *machine) Reset() error {
	var errs []error
	for i := range m.cpus {
		errs = append(errs, m.stop(i))
	}
	m.areas.Reset()
	for _, c := range m.cpus {
		clear(c.frame)
	}
	return errors.Join(errs...)
}

// Close implements microvm.Machine.
func (m *machine) Close() error {
	err := m.Reset()
	return errors.Join(err, unix.Munmap(m.memory), m.file.Close())
}

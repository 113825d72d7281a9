package privcmd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
	"pvabi/internal/cpulist"
)

// The kernel's interface (include/uapi/xen/privcmd.h): IOCTL_PRIVCMD_HYPERCALL and
// IOCTL_PRIVCMD_MMAPBATCH_V2.
const (
	device         = "/dev/xen/privcmd"
	ioctlHypercall = 0x305000
	ioctlMap       = 0x205004
)

// Positions of registers in Op.Regs.
var (
	rax, rdx, rsi, rdi = amd64.ISA.Register("rax"), amd64.ISA.Register("rdx"), amd64.ISA.Register("rsi"), amd64.ISA.Register("rdi")
	rsp, r8, r9, r10   = amd64.ISA.Register("rsp"), amd64.ISA.Register("r8"), amd64.ISA.Register("r9"), amd64.ISA.Register("r10")
)

// The machine's memory: what the second process needs to know, then memory for the carrier's own
// hypercalls, then areas. It is at this address in each process that has it, which neither Go's
// heap nor the kernel's choice of mappings comes near: what Xen still writes to an address
// while another process runs must not be anything of that one's.
const (
	firstAddress  = 0x5b0000000000
	addressStride = 1 << 30
	maxMachines   = 16
	pageSize      = 4096
	scratchAt     = pageSize // the first page is a ledger
	scratchPages  = 16
	areasAt       = scratchAt + scratchPages*pageSize
	areasSize     = 64 * pageSize
	memorySize    = areasAt + areasSize
)

type machine struct {
	fd     int
	file   *os.File // the memory
	memory []byte
	base   uint64 // its address
	ledger *ledger
	areas  *arch.Memory
	// shared is the page that the domain shares with Xen, by sharedAddress.
	shared        []byte
	sharedAddress uint64

	cpus    []*cpu
	vcpus   uint64     // of the domain
	spare   uint64     // one that was never brought up, or vcpus
	mu      sync.Mutex // for control
	control arch.Area  // memory for arguments of hypercalls by no CPU in particular
	image   *os.File   // of the kernel's memory
	core    *core
	p2m     uint64 // where the kernel has a table from pages of the domain to those of the machine
	guard   *exec.Cmd
	alive   *os.File // closed, it lets the second process go
	procs   int      // what GOMAXPROCS was
}

// Open makes a machine. A configuration that asks for more than CPUs, with privilege or without, is
// an error.
func Open(c microvm.Config) (microvm.Machine, error) {
	if err := check(c); err != nil {
		return nil, err
	}
	m := &machine{fd: -1, procs: runtime.GOMAXPROCS(0)}
	if err := m.open(c); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *machine) open(c microvm.Config) (err error) {
	if m.fd, err = unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("privcmd: open %s: %w; it takes root in a domain on Xen, and the module xen-privcmd", device, err)
	}
	if m.file, err = shareable(); err != nil {
		return err
	}
	for i := range uint64(maxMachines) {
		m.base = firstAddress + i*addressStride
		if m.memory, err = mapMemory(m.file, m.base); !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	if err != nil {
		return err
	}
	m.ledger = newLedger(m.memory)
	scratch := arch.NewMemory(m.memory[scratchAt:areasAt], m.base+scratchAt)
	m.areas = arch.NewMemory(m.memory[areasAt:], m.base+areasAt)
	m.control = scratch.Alloc(pageSize, pageSize, 0)
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	n := max(c.CPUs, 1)
	if len(online) < n+1 {
		return fmt.Errorf("privcmd: %d CPUs besides the first, and %d are needed; boot the domain with more", len(online)-1, n)
	}
	online = online[1:][:n]
	if err := m.find(online); err != nil {
		return err
	}
	if err := m.watch(); err != nil {
		return err
	}
	// Programs that spin must not keep those from running that they wait for.
	runtime.GOMAXPROCS(max(m.procs, n+2))
	for _, number := range online {
		if err := m.add(number, c, scratch); err != nil {
			return err
		}
	}
	return m.bind()
}

func onlineCPUs() ([]int, error) {
	const name = "/sys/devices/system/cpu/online"
	list, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("privcmd: which CPUs there are: %w; is /sys mounted?", err)
	}
	online, err := cpulist.Parse(strings.TrimSpace(string(list)))
	if err != nil {
		return nil, fmt.Errorf("privcmd: %s: %w", name, err)
	}
	return online, nil
}

// shareable makes the machine's memory.
func shareable() (*os.File, error) {
	fd, err := unix.MemfdCreate("pvabi-privcmd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("privcmd: memory to share: %w", err)
	}
	file := os.NewFile(uintptr(fd), "pvabi-privcmd")
	if err := file.Truncate(memorySize); err != nil {
		return nil, errors.Join(fmt.Errorf("privcmd: %d bytes of memory to share: %w", memorySize, err), file.Close())
	}
	return file, nil
}

// mapMemory maps a machine's memory, to stay where it is: Xen does not wait for a page. Where there
// is something at the address, the error is EEXIST.
func mapMemory(file *os.File, address uint64) ([]byte, error) {
	const flags = unix.MAP_SHARED | unix.MAP_LOCKED | unix.MAP_POPULATE | unix.MAP_FIXED_NOREPLACE
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(address), memorySize, unix.PROT_READ|unix.PROT_WRITE, flags, file.Fd(), 0)
	if errno != 0 {
		return nil, fmt.Errorf("privcmd: map %d bytes at %#x: %w; is there a limit on locked memory?", memorySize, address, errno)
	}
	return unsafe.Slice((*byte)(pointer(uint64(at))), memorySize), nil
}

// pointer makes a pointer of an address of memory that is not Go's.
func pointer(address uint64) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// kernelSymbols are the addresses of variables of the kernel. All symbols are many; they are looked
// through once.
var kernelSymbols = sync.OnceValues(func() ([]uint64, error) {
	names, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("privcmd: the kernel's symbols: %w", err)
	}
	defer names.Close()
	return symbols(names, "xen_start_info", "xen_p2m_addr", "__per_cpu_offset", "xen_runstate")
})

// find finds out what only the kernel knows, and maps the page that is shared with Xen.
func (m *machine) find(online []int) error {
	at, err := kernelSymbols()
	if err != nil {
		return err
	}
	if m.image, err = os.Open("/proc/kcore"); err != nil {
		return fmt.Errorf("privcmd: the kernel's memory: %w", err)
	}
	if m.core, err = newCore(m.image); err != nil {
		return err
	}
	start, err := m.core.word(at[0])
	if err != nil {
		return err
	}
	// struct start_info of include/xen/interface/xen.h: a magic of 32 bytes, the number of
	// pages, and the machine address of shared_info.
	const sharedAt = 40
	shared, err := m.core.word(start + sharedAt)
	if err != nil {
		return err
	}
	if m.shared, err = m.mapFrame(shared / pageSize); err != nil {
		return err
	}
	m.sharedAddress = uint64(uintptr(unsafe.Pointer(&m.shared[0])))
	if m.p2m, err = m.core.word(at[1]); err != nil {
		return err
	}
	for _, number := range online {
		base, err := m.core.word(at[2] + 8*uint64(number))
		if err != nil {
			return err
		}
		if err := m.ledger.add(uint64(number), base+at[3]); err != nil {
			return err
		}
	}
	return m.count()
}

// count finds out how many vCPUs the domain has, and whether one of them is spare.
func (m *machine) count() error {
	var spare []uint64
	for up := int64(0); ; m.vcpus++ {
		if up = m.operate(opIsUp, m.vcpus, 0); up < 0 {
			break
		}
		if up == 0 {
			spare = append(spare, m.vcpus)
		}
	}
	if m.spare = m.vcpus; len(spare) == 0 {
		return nil
	}
	m.spare = spare[0]
	return m.ledger.add(m.spare, 0)
}

// mapFrame maps a page of the domain's own by its number in the machine.
func (m *machine) mapFrame(frame uint64) ([]byte, error) {
	page, err := unix.Mmap(m.fd, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("privcmd: map a page of Xen's: %w", err)
	}
	failed := int32(0)
	request := struct {
		num     uint32
		domain  uint16
		address uint64
		frames  *uint64
		errs    *int32
	}{1, uint16(table.Word("self")), uint64(uintptr(unsafe.Pointer(&page[0]))), &frame, &failed}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m.fd), ioctlMap, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&request)
	if errno != 0 || failed != 0 {
		return nil, errors.Join(fmt.Errorf("privcmd: map the machine's page %#x: %w, %d", frame, errno, failed), unix.Munmap(page))
	}
	return page, nil
}

// add starts the thread of a CPU.
func (m *machine) add(number int, config microvm.Config, scratch *arch.Memory) error {
	c := &cpu{
		m: m, number: number, scratch: scratch.Alloc(pageSize, pageSize, 0),
		begin: make(chan struct{}), left: make(chan arch.Stop, 1),
	}
	for _, u := range config.User {
		c.user = c.user || u == len(m.cpus)
	}
	words := make([]uint64, arch.FrameSize/8)
	var err error
	if c.frame, err = arch.NewFrame(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), arch.FrameSize)); err != nil {
		return err
	}
	ready := make(chan error)
	go c.serve(ready)
	if err := <-ready; err != nil {
		return fmt.Errorf("privcmd: move a thread to CPU %d: %w", number, err)
	}
	m.cpus = append(m.cpus, c)
	return nil
}

// operate makes a hypercall with an operation, by no CPU in particular. A pointer in its arguments
// is that of the control area, which the caller has locked if it uses it.
func (m *machine) operate(o operation, arg ...uint64) int64 {
	a := [5]uint64{o.number}
	copy(a[1:], arg)
	return m.hypercall(o.hypercall, a)
}

// bind gives each CPU a port, which becomes its ID.
func (m *machine) bind() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.cpus {
		m.control.Store(offset("evtchn_bind_ipi", "vcpu"), 4, uint64(c.number))
		if r := m.operate(opBindIPI, m.control.Address()); r != 0 {
			return fmt.Errorf("privcmd: bind a port to vCPU %d: Xen says %d", c.number, r)
		}
		port := uint32(m.control.Load(offset("evtchn_bind_ipi", "port"), 4))
		m.ledger.open(port)
		m.SetMasked(uint64(port), true)
		c.port = port
	}
	// Whether events go by the bits is seen at the first of them.
	c := m.cpus[0]
	m.control.Store(0, 4, uint64(c.port))
	if r := m.operate(opSend, m.control.Address()); r != 0 {
		return fmt.Errorf("privcmd: send to port %d: Xen says %d", c.port, r)
	}
	if !m.takePending(c.port) {
		return errors.New("privcmd: the kernel does not have events go by the bits of shared_info; boot it with xen.fifo_events=0")
	}
	return nil
}

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return len(m.cpus) }

// ID implements arch.Machine.
func (m *machine) ID(cpu int) uint64 { return uint64(m.cpus[cpu].port) }

// VCPU returns the number by which Xen knows a CPU.
func (m *machine) VCPU(cpu int) uint64 { return uint64(m.cpus[cpu].number) }

// Spare returns the number of a vCPU that was never brought up, and whether there is one.
func (m *machine) Spare() (vcpu uint64, ok bool) { return m.spare, m.spare < m.vcpus }

// Alloc implements arch.Machine.
func (m *machine) Alloc(size, align uint64, fill byte) arch.Area {
	return m.areas.Alloc(size, align, fill)
}

// allowed tells why an operation cannot be done, or nil.
func (m *machine) allowed(o arch.Op) error {
	var address, size uint64
	switch o.Kind {
	case arch.End, arch.Wait, arch.Clock, arch.Discover, arch.Exit, arch.Loop:
		return nil
	case arch.Call:
		if o.Arg[0] != 0 {
			return fmt.Errorf("there is no form %d of the call instruction", o.Arg[0])
		}
		vcpu := o.Regs[rsi]
		if slices.Contains(registers, operation{o.Regs[rax], o.Regs[rdi]}) && vcpu < m.vcpus && m.ledger.entry(vcpu) == nil {
			return fmt.Errorf("the areas of vCPU %d are the kernel's: what it has registered there could not be given back", vcpu)
		}
		return nil
	case arch.Load:
		address, size = o.Arg[0], o.Arg[1]
	case arch.Store:
		address, size = o.Arg[0], o.Arg[2]
	case arch.SpinUntil:
		address, size = o.Arg[0], 8
	default:
		return errNone
	}
	for _, known := range []struct{ address, size uint64 }{{m.base + areasAt, areasSize}, {m.sharedAddress, pageSize}} {
		if address-known.address < known.size && known.size-(address-known.address) >= size && address%max(size, 1) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d bytes at %#x are not in an area of the machine's", size, address)
}

// Start implements arch.Machine.
func (m *machine) Start(cpu int, p arch.Program) error {
	c := m.cpus[cpu]
	if c.state != idle {
		return fmt.Errorf("privcmd: CPU %d is not idle; wait for its program's end, or reset the machine", cpu)
	}
	for i, o := range p {
		if err := m.allowed(o); err != nil {
			return fmt.Errorf("privcmd: operation %d: %w", i, err)
		}
	}
	if err := c.frame.Load(p); err != nil {
		return err
	}
	c.program = p
	m.enter(c)
	return nil
}

func (m *machine) enter(c *cpu) {
	c.state = running
	c.begin <- struct{}{}
}

// Wait implements arch.Machine.
func (m *machine) Wait(ctx context.Context, cpu int) (arch.Stop, error) {
	c := m.cpus[cpu]
	if c.state != running {
		return c.stop, nil
	}
	select {
	case <-ctx.Done():
		return arch.Stop{}, fmt.Errorf("privcmd: CPU %d: %w", cpu, context.Cause(ctx))
	case s := <-c.left:
		c.returned(s)
		return s, nil
	}
}

func (c *cpu) returned(s arch.Stop) {
	c.stop = s
	switch {
	case s.Reason != "":
		c.state = broken
	case s.Ended:
		c.state = idle
	default:
		c.state = out
	}
}

// Resume implements arch.Machine.
func (m *machine) Resume(cpu int) error {
	c := m.cpus[cpu]
	if c.state != out {
		return fmt.Errorf("privcmd: CPU %d is not out by an exit", cpu)
	}
	m.enter(c)
	return nil
}

// At implements arch.Machine.
func (m *machine) At(cpu int) (op int, completed uint64) { return m.cpus[cpu].frame.At() }

// Asleep implements arch.Machine.
func (m *machine) Asleep(cpu int) (bool, error) {
	c := m.cpus[cpu]
	if c.state != running || !c.inside.Load() {
		return false, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.runstate(uint64(c.number))
	if err != nil {
		return false, err
	}
	return uint64(binary.LittleEndian.Uint32(r[offset("vcpu_runstate_info", "state"):])) == table.Word("blocked"), nil
}

// Results implements arch.Machine.
func (m *machine) Results(cpu int) []arch.Result {
	c := m.cpus[cpu]
	return c.frame.Results(len(c.program))
}

// errNone is the answer to what takes more than a process.
var errNone = errors.New("privcmd: user space cannot do this")

// Vectors implements arch.Machine. No program has vector registers.
func (m *machine) Vectors(int) []byte { return nil }

// SetVectors implements arch.Machine.
func (m *machine) SetVectors(int, []byte) error { return errNone }

// Events implements arch.Machine. Events are the kernel's.
func (m *machine) Events(int, uint8) uint64 { return 0 }

// Counter implements arch.Machine. Xen shows no counters of a vCPU.
func (m *machine) Counter(int, string) (uint64, error) { return 0, errNone }

// Crowd implements arch.Machine.
func (m *machine) Crowd(...int) (func(), error) {
	return nil, errors.New("privcmd: which vCPU has which CPU is for Xen to say")
}

// bit is the word of a bit map of shared_info that a port's bit is in, and the bit.
func (m *machine) bit(field string, port uint64) (*uint32, uint32) {
	return (*uint32)(unsafe.Pointer(&m.shared[offset("shared_info", field)+port/32*4])), 1 << (port % 32)
}

// Pending tells whether a port is pending; SetPending sets or clears that.
func (m *machine) Pending(port uint64) bool { return m.isSet("evtchn_pending", port) }

// SetPending sets or clears pending of a port, as a guest may.
func (m *machine) SetPending(port uint64, on bool) { m.set("evtchn_pending", port, on) }

// Masked tells whether a port is masked.
func (m *machine) Masked(port uint64) bool { return m.isSet("evtchn_mask", port) }

// SetMasked sets or clears the mask of a port.
func (m *machine) SetMasked(port uint64, on bool) { m.set("evtchn_mask", port, on) }

func (m *machine) isSet(field string, port uint64) bool {
	word, bit := m.bit(field, port)
	return atomic.LoadUint32(word)&bit != 0
}

func (m *machine) set(field string, port uint64, on bool) {
	word, bit := m.bit(field, port)
	if on {
		atomic.OrUint32(word, bit)
	} else {
		atomic.AndUint32(word, ^bit)
	}
}

// takePending clears pending of a port and tells whether it was set.
func (m *machine) takePending(port uint32) bool {
	word, bit := m.bit("evtchn_pending", uint64(port))
	return atomic.AndUint32(word, ^bit)&bit != 0
}

// KernelRunstate returns what is in the area that the kernel has registered for the runstate of a
// CPU, and what Xen says of it right before and after.
func (m *machine) KernelRunstate(cpu int) (area, before, after []byte, err error) {
	vcpu := m.VCPU(cpu)
	area = make([]byte, table.Layout("vcpu_runstate_info").Size)
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, err = m.runstate(vcpu); err != nil {
		return nil, nil, nil, err
	}
	if err = m.core.read(m.ledger.entry(vcpu).runstate, area); err != nil {
		return nil, nil, nil, err
	}
	after, err = m.runstate(vcpu)
	return area, before, after, err
}

// runstate asks Xen for the runstate of a vCPU. The control area is the caller's.
func (m *machine) runstate(vcpu uint64) ([]byte, error) {
	if r := m.operate(opGetRunstate, vcpu, m.control.Address()); r != 0 {
		return nil, fmt.Errorf("privcmd: state of vCPU %d: Xen says %d", vcpu, r)
	}
	return m.control.Bytes()[:table.Layout("vcpu_runstate_info").Size], nil
}

// Real returns the address that Xen knows an area by. Pages that follow each other in an area
// need not do so there.
func (m *machine) Real(a arch.Area) (uint64, error) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return 0, fmt.Errorf("privcmd: where an area is in memory: %w", err)
	}
	defer f.Close()
	var b [8]byte
	if _, err := f.ReadAt(b[:], int64(a.Address()/pageSize*8)); err != nil {
		return 0, fmt.Errorf("privcmd: where an area is in memory: %w", err)
	}
	// Bits 54:0 of a page that is present (Documentation/admin-guide/mm/pagemap.rst).
	page := binary.LittleEndian.Uint64(b[:]) & (1<<55 - 1)
	if page == 0 {
		return 0, errors.New("privcmd: the kernel does not tell where an area is in memory; it takes CAP_SYS_ADMIN")
	}
	frame, err := m.core.word(m.p2m + 8*page)
	if err != nil {
		return 0, err
	}
	return frame*pageSize + a.Address()%pageSize, nil
}

// haltBudget is how long a CPU may take to leave a program that was cut short.
const haltBudget = 10 * time.Second

// halt has a CPU come to the end of its program.
func (m *machine) halt(c *cpu) error {
	c.halting.Store(true)
	defer c.halting.Store(false)
	if c.state == out {
		m.enter(c)
	}
	if c.state != running {
		c.state, c.stop = idle, arch.Stop{}
		return nil
	}
	for budget := time.After(haltBudget); c.state == running; {
		// A signal has the kernel send the vCPU an event, which ends any poll. The Go
		// runtime uses this one for the like.
		if err := unix.Tgkill(os.Getpid(), c.thread, unix.SIGURG); err != nil {
			return fmt.Errorf("privcmd: interrupt the thread of CPU %d: %w", c.number, err)
		}
		select {
		case s := <-c.left:
			if c.returned(s); c.state == out {
				m.enter(c)
			}
		case <-time.After(time.Millisecond):
		case <-budget:
			op, _ := c.frame.At()
			return fmt.Errorf("privcmd: CPU %d does not come back from operation %d", c.number, op)
		}
	}
	c.state, c.stop = idle, arch.Stop{}
	return nil
}

// Reset implements arch.Machine.
func (m *machine) Reset() error {
	for _, c := range m.cpus {
		if err := m.halt(c); err != nil {
			return err
		}
	}
	if err := m.giveBack(); err != nil {
		return err
	}
	m.areas.Reset()
	for _, c := range m.cpus {
		clear(c.frame)
		c.program = nil
	}
	return m.bind()
}

// Close implements microvm.Machine. It can be called on what Open left unfinished.
func (m *machine) Close() error {
	var errs []error
	for _, c := range m.cpus {
		errs = append(errs, m.halt(c))
		close(c.begin)
	}
	if m.ledger != nil && m.fd >= 0 {
		errs = append(errs, m.giveBack())
	}
	errs = append(errs, m.dismiss())
	if m.shared != nil {
		errs = append(errs, unix.Munmap(m.shared))
	}
	if m.memory != nil {
		_, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(m.base), memorySize, 0)
		if errno != 0 {
			errs = append(errs, fmt.Errorf("privcmd: unmap memory: %w", errno))
		}
	}
	for _, f := range []*os.File{m.file, m.image} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if m.fd >= 0 {
		errs = append(errs, unix.Close(m.fd))
	}
	runtime.GOMAXPROCS(m.procs)
	return errors.Join(errs...)
}

package pseries

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/ppc64le"
	"pvabi/conformance/kmod"
	"pvabi/conformance/linuxguest"
	"pvabi/conformance/microvm"
	"pvabi/internal/membarrier"
)

// far is what the decrementer begins at in a program that waits, in ticks of the time base, of
// which there are 512 million in a second: the largest number that is positive in 32 bits,
// as wide as some decrementers are. It gives a CPU back that nobody wakes.
const far = 1<<31 - 1

type machine struct {
	kmod.Machine
	cpus      []*cpu
	disturbed uint64
	pacas     uint64 // address of the kernel's paca_ptrs, 0 if the kernel does not tell, for which
	hidden    error  // there is a reason
}

type cpu struct {
	number int      // the kernel's
	area   *os.File // shows the kernel's area
	// Of the last program: as it was given; whether it has not ended yet; its gates, nil
	// if it is not surrounded; and the count of interrupts at the first of them.
	program arch.Program
	running bool
	gates   arch.Area
	base    uint64
	slept   *sleep // as last seen, or nil
	// near says that the decrementer has to be set near, for a program that did so was
	// cut short.
	near bool
}

// kernel is the one that runs.
var kernel = linuxguest.New()

// Open makes a machine. Only one can be there at a time. A configuration that asks for more
// than CPUs is an error.
func Open(c microvm.Config) (microvm.Machine, error) {
	wanted := max(c.CPUs, 1)
	if err := kmod.Plain(c, wanted); err != nil {
		return nil, err
	}
	inner, err := kmod.Open(kmod.Config{Most: wanted})
	if err != nil {
		return nil, err
	}
	m := &machine{Machine: inner}
	// Later would be too late: to ask, the kernel's code is changed, for which CPUs have to take
	// interrupts.
	m.pacas, _, m.hidden = kernel.Symbol(m, "paca_ptrs")
	// Asking for barriers waits until every CPU was once seen outside of the kernel, for
	// ever if one is in a program.
	if err := membarrier.Register(); err != nil {
		return nil, errors.Join(fmt.Errorf("pseries: %w", err), m.Close())
	}
	if err := m.find(wanted); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// find finds where the kernel shows the areas of the CPUs.
func (m *machine) find(wanted int) error {
	if n := m.Machine.CPUs(); n < wanted {
		return fmt.Errorf("pseries: %w: %d besides the first, and %d are needed; give the guest more", kmod.ErrFewCPUs, n, wanted)
	}
	for i := range m.Machine.CPUs() {
		number := m.Number(i)
		f, err := openArea(number)
		if err != nil {
			return err
		}
		m.cpus = append(m.cpus, &cpu{number: number, area: f})
	}
	return nil
}

// openArea opens what the kernel shows of a CPU's area.
func openArea(number int) (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/sys/kernel/debug/powerpc/vpa/cpu-%d", number))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; mount debugfs at /sys/kernel/debug; only a kernel on shared processors has it", err)
	}
	if err != nil {
		return nil, fmt.Errorf("pseries: %w: the area of CPU %d: %w", ErrNoAreas, number, err)
	}
	return f, nil
}

// Start implements arch.Machine.
func (m *machine) Start(i int, p arch.Program) error {
	c := m.cpus[i]
	if !waits(p) {
		if err := m.Machine.Start(i, p); err != nil {
			return err
		}
		c.program, c.gates, c.running, c.slept = p, nil, true, nil
		return nil
	}
	gates := m.Alloc(16, 8, 0)
	if err := m.Machine.Start(i, surround(p, gates.Address(), ppc64le.DEC, far)); err != nil {
		return err
	}
	c.program, c.gates, c.running, c.near, c.slept = p, gates, true, true, nil
	// It comes to the gate without anybody's help.
	for at := 0; at < before-1; at, _ = m.Machine.At(i) {
		time.Sleep(100 * time.Microsecond)
	}
	var err error
	c.base, err = c.interrupts()
	gates.Store(0, 8, 1)
	return err
}

// interrupts is the kernel's count of interrupts of the CPU.
func (c *cpu) interrupts() (uint64, error) {
	return kmod.Interrupts(c.number, func([]string) bool { return true })
}

// taken is how many interrupts the CPU took since the first gate of a program that has not
// come beyond the second.
func (c *cpu) taken() (uint64, error) {
	if !c.running || c.gates == nil {
		return 0, nil
	}
	n, err := c.interrupts()
	return n - c.base, err
}

// Wait implements arch.Machine.
func (m *machine) Wait(ctx context.Context, i int) (arch.Stop, error) {
	c := m.cpus[i]
	for c.running && c.gates != nil {
		if op, _ := m.Machine.At(i); op == before+len(c.program) {
			if err := m.release(c); err != nil {
				return arch.Stop{}, err
			}
			c.near = false
			break
		}
		// It may also leave in another way, by an operation that is not known.
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		stop, err := m.Machine.Wait(short, i)
		cancel()
		if err == nil {
			m.ended(i)
			return stop, nil
		}
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return stop, err
		}
	}
	stop, err := m.Machine.Wait(ctx, i)
	if err == nil {
		m.ended(i)
	}
	return stop, err
}

// ended notes that a CPU's program ended, and whether its gates did what they are for.
func (m *machine) ended(i int) {
	c := m.cpus[i]
	if c.running && c.surrounded() && !opened(m.Machine.Results(i), len(c.program)) {
		m.disturbed++
	}
	c.running = false
}

// release notes how often a CPU was interrupted and opens both of its gates.
func (m *machine) release(c *cpu) error {
	n, err := c.taken()
	m.disturbed += n
	c.gates.Store(0, 8, 1)
	c.gates.Store(8, 8, 1)
	c.gates = nil
	return err
}

// Disturbed implements conformance.PAPRMachine.
func (m *machine) Disturbed() (uint64, error) {
	if err := m.noteMistakes(); err != nil {
		return 0, err
	}
	sum := m.disturbed
	for _, c := range m.cpus {
		n, err := c.taken()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// noteMistakes counts the CPUs that were taken to sleep when they did not, each once.
func (m *machine) noteMistakes() error {
	for i, c := range m.cpus {
		now, err := m.look(i)
		if err != nil {
			return err
		}
		if c.running && c.mistaken(now) {
			m.disturbed++
			c.slept = nil
		}
	}
	return nil
}

// surrounded tells whether the last program of a CPU was.
func (c *cpu) surrounded() bool { return waits(c.program) }

// At implements arch.Machine.
func (m *machine) At(i int) (op int, completed uint64) {
	op, completed = m.Machine.At(i)
	if c := m.cpus[i]; c.surrounded() {
		return inside(op, completed, len(c.program))
	}
	return op, completed
}

// Results implements arch.Machine.
func (m *machine) Results(i int) []arch.Result {
	r := m.Machine.Results(i)
	if c := m.cpus[i]; c.surrounded() {
		return r[before : before+len(c.program)]
	}
	return r
}

// sleep is a sleep as it was seen: where, and with which yield_count.
type sleep struct {
	op        int
	completed uint64
	count     uint32
}

// Asleep implements arch.Machine.
func (m *machine) Asleep(i int) (bool, error) {
	c := m.cpus[i]
	if !c.running || !m.blocks(i) {
		return false, nil
	}
	var seen [2]sleep
	for n := range seen {
		var err error
		if seen[n], err = m.look(i); err != nil {
			return false, err
		}
	}
	if seen[0] != seen[1] || seen[0].count%2 == 0 {
		return false, nil
	}
	if c.mistaken(seen[0]) {
		m.disturbed++
	}
	c.slept = &seen[0]
	return true, nil
}

func (m *machine) look(i int) (s sleep, err error) {
	s.op, s.completed = m.At(i)
	s.count, err = m.cpus[i].yieldCount()
	return s, err
}

// mistaken tells, of what is seen of a CPU, that the CPU did not sleep when it last seemed
// to: it is still in that operation, but was dispatched meanwhile. It had been taken off before
// it came to sleep.
func (c *cpu) mistaken(now sleep) bool {
	return c.slept != nil && c.slept.op == now.op && c.slept.completed == now.completed && c.slept.count != now.count
}

// waiting are the calls that may wait.
var waiting = func() (numbers []uint64) {
	for _, name := range []string{"CEDE", "CONFER", "JOIN"} {
		numbers = append(numbers, abi.PowerPCPAPR().Call(name).Number)
	}
	return numbers
}()

// blocks tells whether a CPU is at an operation that may wait.
func (m *machine) blocks(i int) bool {
	op, _ := m.Machine.At(i)
	p := m.cpus[i].program
	if m.cpus[i].surrounded() {
		op -= before
	}
	if op < 0 || op >= len(p) {
		return false
	}
	return p[op].Kind == arch.Wait || p[op].Kind == arch.Call && slices.Contains(waiting, p[op].Regs[ppc64le.ISA.Register("r3")])
}

// countAt is where yield_count is in an area.
var countAt = int64(abi.PowerPCPAPR().Layout("lppaca").Field("yield_count").Offset)

func (c *cpu) yieldCount() (uint32, error) {
	var word [4]byte
	if _, err := c.area.ReadAt(word[:], countAt); err != nil {
		return 0, fmt.Errorf("pseries: yield_count of CPU %d: %w", c.number, err)
	}
	return binary.BigEndian.Uint32(word[:]), nil
}

// Area implements conformance.PAPRMachine.
func (m *machine) Area(i int) ([]byte, error) {
	content, err := io.ReadAll(io.NewSectionReader(m.cpus[i].area, 0, 1<<16))
	if err != nil {
		return nil, fmt.Errorf("pseries: the area of CPU %d: %w", m.cpus[i].number, err)
	}
	return content, nil
}

// region takes an address in the kernel's map of memory to that in memory itself
// (arch/powerpc/include/asm/page.h, __pa).
const region = 0xf000000000000000

// AreaAddress implements conformance.PAPRMachine.
func (m *machine) AreaAddress(i int) (address, real uint64, err error) {
	return m.KernelArea(m.cpus[i].number)
}

// KernelArea implements conformance.PAPRGuestMachine. An area's address is the first word of the CPU's
// paca, to which paca_ptrs points (arch/powerpc/include/asm/paca.h, struct paca_struct).
func (m *machine) KernelArea(number int) (address, real uint64, err error) {
	if m.hidden != nil {
		return 0, 0, fmt.Errorf("pseries: where the kernel keeps its areas: %w", m.hidden)
	}
	address = m.pacas
	for _, offset := range []uint64{0, 8 * uint64(number), 0} {
		var word [8]byte
		if err := m.Peek(address+offset, word[:]); err != nil {
			return 0, 0, err
		}
		address = binary.LittleEndian.Uint64(word[:])
	}
	return address, address &^ region, nil
}

// Interrupt implements conformance.PAPRMachine.
func (m *machine) Interrupt() error {
	if err := membarrier.Interrupt(); err != nil {
		return fmt.Errorf("pseries: %w", err)
	}
	return nil
}

// prods is how often a CPU that is to be reset is prodded out of its waits.
const prods = 100

// Reset implements arch.Machine. CPUs that wait are prodded, for nothing else ends their waits.
func (m *machine) Reset() error {
	if err := m.noteMistakes(); err != nil {
		return err
	}
	idle := -1
	for i, c := range m.cpus {
		switch {
		case !c.running:
			idle = i
		case c.gates != nil:
			if err := m.release(c); err != nil {
				return err
			}
		}
	}
	for i, c := range m.cpus {
		// What spins is for the carrier to end, which also leaves nothing to wait for then.
		for n := 0; idle >= 0 && n < prods && c.running && m.blocks(i); n++ {
			if err := m.prod(idle, m.ID(i)); err != nil {
				return err
			}
			short, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
			if _, err := m.Machine.Wait(short, i); err == nil {
				c.running, c.near = false, false
			}
			cancel()
		}
	}
	if err := m.Machine.Reset(); err != nil {
		return err
	}
	for i, c := range m.cpus {
		c.program, c.gates, c.running = nil, nil, false
		if c.near {
			if err := m.do(i, arch.Op{Kind: arch.WriteRegister, Arg: [6]uint64{ppc64le.DEC, 1}}); err != nil {
				return err
			}
			c.near = false
		}
	}
	return nil
}

func (m *machine) prod(i int, id uint64) error {
	return m.do(i, ppc64le.Hcall(abi.PowerPCPAPR().Call("PROD").Number, id))
}

// do has an idle CPU do one operation.
func (m *machine) do(i int, o arch.Op) error {
	if err := m.Machine.Start(i, arch.Program{o}); err != nil {
		return err
	}
	_, err := m.Machine.Wait(context.Background(), i)
	return err
}

// Close implements microvm.Machine.
func (m *machine) Close() error {
	errs := []error{m.Reset(), m.Machine.Close()}
	for _, c := range m.cpus {
		errs = append(errs, c.area.Close())
	}
	return errors.Join(errs...)
}

// Package model is the project's own model of what hypervisors do for their guests:
// machines in pure Go on which the checks of package conformance run in milliseconds,
// without a virtual machine. It is there to test the checks, never to be reported on: a
// suite that passes on the model and fails, as listed, on each of its [Mutants] has been
// shown to notice.
//
// # Two halves
//
// A [machine] is what all platforms share: CPUs that interpret the programs of package
// arch as the probes do, memory, and a host that runs the CPUs by turns. What a platform's
// hypervisor has a say in, it leaves to a [hypervisor]: what a call does, what a register
// holds, what ends a wait, what happens to shared memory when a CPU enters the guest and
// when the host takes it off. Each platform's hypervisor is in a file of its own, written
// from the sources that abi names and from nothing else, the checks least of all. It takes
// its numbers from its own copy of the platform's table, so that a suite with a changed
// table finds itself contradicted.
//
// # Time
//
// Nothing runs on its own. Whoever looks at a machine ([arch.Machine.At], Asleep, Wait,
// a load from an [arch.Area]) thereby has it run for a while, and finds what it looks at in
// whatever state it was then caught in. A CPU is a coroutine that stops at each boundary
// between two instructions and at some places in the midst of the hypervisor's own work;
// how far each gets before the next has its turn comes from a generator whose seed is given.
// So events come in all the orders that they have on a real machine, and with the same seed
// in the same one, whatever else the computer does.
//
// The clock counts steps. A step stands for one nanosecond.
package model

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// platforms are the platforms that there is a model of.
var platforms = map[string]struct {
	hosts   func() []Host
	mutants func() []Mutant
}{
	"x86-kvm":       {x86KVMHosts, x86KVMMutants},
	"powerpc-papr":  {paprHosts, paprMutants},
	"x86-xen":       {xenHosts, xenMutants},
	"loongarch-kvm": {loongArchHosts, loongArchMutants},
	"s390":          {s390Hosts, s390Mutants},
}

// Opener makes machines of a model. Machines of different seeds differ in the order of
// events and in nothing else.
type Opener func(seed uint64, c microvm.Config) (microvm.Machine, error)

// Host is a platform's hypervisor that keeps the ABI.
type Host struct {
	Name string
	// Text says in what the host differs from others, a sentence.
	Text string
	// Absent are the names of the rules that do not apply, because the host does not
	// offer what they are about, Unreached of those that cannot be looked at.
	Absent, Unreached []string
	// Version is one that such a host can be of, and has nothing known to deviate; empty for the
	// newest. A newer one has no excuse for what is Absent.
	Version string
	// Open makes machines of the host.
	Open Opener
}

// Hosts lists the hosts of a platform, the plainest first; none for a platform without a
// model.
func Hosts(platform string) []Host {
	p, ok := platforms[platform]
	if !ok {
		return nil
	}
	return p.hosts()
}

// Mutant is a platform's hypervisor with one thing about it broken.
type Mutant struct {
	Name string
	// Text says what is broken, a sentence.
	Text string
	// Rules are the names of the rules that a suite must find broken: these and no
	// others.
	Rules []string
	// Controls are the names of the rules that a suite cannot judge on this mutant
	// because the control of their check fails: their verdict must be error or unreached.
	Controls []string
	// Version is that of [Host].
	Version string
	// Open makes machines of the mutant.
	Open Opener
}

// Mutants lists the mutants of a platform; none for a platform without a model.
func Mutants(platform string) []Mutant {
	p, ok := platforms[platform]
	if !ok {
		return nil
	}
	return p.mutants()
}

// hypervisor is what a platform does for the CPUs of a machine. Its methods run on the
// CPU's own coroutine unless they say otherwise.
type hypervisor interface {
	isa() *arch.ISA
	// call does the call instruction of that form. regs and flags are what the guest
	// finds after it, length how many bytes further it goes on.
	call(c *cpu, form uint64, regs *[16]uint64, flags *uint64) (length uint64, t trap)
	readRegister(c *cpu, number uint64) (uint64, trap)
	writeRegister(c *cpu, number, value uint64) trap
	discover(c *cpu, leaf, subleaf uint64) [16]uint64
	// wait does the wait instruction, as far as deciding what becomes of the CPU.
	wait(c *cpu) waiting
	// awake tells whether there is something that ends the wait of a sleeping CPU.
	// The host asks.
	awake(c *cpu) bool
	// woken comes once when a CPU that slept is run again.
	woken(c *cpu)
	// interrupt has the CPU take what interrupts it may take now.
	interrupt(c *cpu)
	// enter comes when the CPU is about to run guest code and did not before.
	enter(c *cpu)
	// leave comes when the CPU stops running guest code. Where that is against the CPU's
	// will, the host calls it.
	leave(c *cpu, why reason)
	// counter is one of the implementer's counters, false if it has none of that name.
	// The host asks.
	counter(c *cpu, name string) (uint64, bool)
	// access and privilege are the exceptions of an access outside of memory and of an
	// instruction that takes privilege.
	access() trap
	privilege() trap
}

// monitored is a hypervisor whose machines are microvm.Monitors. The host calls all but missing.
type monitored interface {
	hypervisor
	// missing comes when the CPU loads from a page that is withheld. It returns an exception and
	// the address that this tells, or none once the page is there.
	missing(c *cpu, page uint64) (t trap, address uint64)
	// supplied comes when a page is given back.
	supplied(page uint64)
	markStopped(c *cpu) error
	resetClock()
	passed(c *cpu) []microvm.Passed
	answer(c *cpu, result uint64)
	timeOfDay() uint64
	// callIn does the call instruction of that form in a mode of 32 bits.
	callIn(c *cpu, form uint64, regs *[16]uint64, flags *uint64) trap
}

// waiter is a hypervisor whose Wait is a call, which leaves registers.
type waiter interface {
	waitCall(c *cpu, interrupts bool, op *arch.Op, r *arch.Result) trap
}

// kernel is a hypervisor below a guest whose kernel runs on the machine's CPUs, besides programs.
type kernel interface {
	hypervisor
	// turn comes with each turn of a CPU, whatever that does, and tells whether the turn is spent.
	// The host calls it.
	turn(c *cpu) bool
}

// lowcore is a hypervisor whose CPUs have low memory of their own, and whose Discover takes and leaves more than
// a leaf has room for.
type lowcore interface {
	hypervisor
	// ask does a Discover.
	ask(c *cpu, op *arch.Op, r *arch.Result) trap
	// low is a load from low memory, false for none.
	low(c *cpu, address, size uint64) (uint64, bool)
}

// trap is an exception; the zero value is none.
type trap struct {
	raised       bool
	vector, code uint64
}

// waiting is what becomes of a CPU that waits.
type waiting int

const (
	goesOn waiting = iota // there is something pending that ends the wait
	sleeps                // until hypervisor.awake
	leaves                // the hypervisor has no means to end the wait
)

// reason is why a CPU leaves the guest.
type reason int

const (
	preempted reason = iota // the host gave its CPU to another
	waits                   // the CPU went to sleep
	exits                   // the CPU left for the carrier
)

// machine is a microvm.Machine.
type machine struct {
	config microvm.Config
	seed   uint64
	open   func(*machine) hypervisor

	mu     sync.Mutex
	closed bool
	hv     hypervisor
	cpus   []*cpu
	crowds []*crowd
	memory []byte
	// clock counts steps, turn is the CPU whose turn is next.
	clock  uint64
	turn   int
	random uint64
	// withheld are the pages that are withheld, by address; true for those that a CPU has asked
	// for.
	withheld map[uint64]*bool
	// created counts how often the machine was brought to that state.
	created uint64
	// taken counts external interrupts that CPUs took, over all resets.
	taken uint64
}

// memoryBase is the address of the first byte of memory. It is not 0, so that an address
// that a guest forgot to give is none.
const memoryBase = 1 << 20

// newMachine makes a machine of the hypervisor that open makes.
func newMachine(seed uint64, c microvm.Config, open func(*machine) hypervisor) (*machine, error) {
	n := max(c.CPUs, 1)
	for _, user := range c.User {
		if user < 0 || user >= n {
			return nil, fmt.Errorf("model: CPU %d, to run without privilege, is not one of %d", user, n)
		}
	}
	if c.IDs != nil && len(c.IDs) != n {
		return nil, fmt.Errorf("model: %d ids for %d CPUs", len(c.IDs), n)
	}
	m := &machine{config: c, seed: seed, open: open}
	m.create()
	return m, nil
}

// create brings everything to the state after creation.
func (m *machine) create() {
	m.cpus, m.crowds, m.memory, m.clock, m.turn = nil, nil, nil, 0, 0
	m.random = m.seed
	m.created++
	m.withheld = map[uint64]*bool{}
	for i := range max(m.config.CPUs, 1) {
		c := &cpu{m: m, index: i, id: uint64(i), user: slices.Contains(m.config.User, i)}
		if m.config.IDs != nil {
			c.id = m.config.IDs[i]
		}
		m.cpus = append(m.cpus, c)
	}
	m.hv = m.open(m)
}

// stop ends the coroutines of all CPUs.
func (m *machine) stop() {
	for _, c := range m.cpus {
		if c.halt != nil {
			c.halt()
		}
	}
}

// CPUs implements arch.Machine.
func (m *machine) CPUs() int { return len(m.cpus) }

// ID implements arch.Machine.
func (m *machine) ID(cpu int) uint64 { return m.cpus[cpu].id }

// Start implements arch.Machine.
func (m *machine) Start(cpu int, p arch.Program) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.cpu(cpu)
	if err != nil {
		return err
	}
	if c.state != idle {
		return fmt.Errorf("model: start of CPU %d: it has not ended the program before", cpu)
	}
	if len(p) > arch.MaxOps || len(p) == arch.MaxOps && p[arch.MaxOps-1].Kind != arch.End {
		return fmt.Errorf("model: a program of %d operations; a frame holds %d, an End included", len(p), arch.MaxOps)
	}
	c.start(p)
	return nil
}

// patience is how many steps Wait has a machine run before it gives up. The longest that a
// check needs is some hundred thousand.
const patience = 1 << 23

// Wait implements arch.Machine. As nothing but the caller's own next step could help, a
// CPU that sleeps while no other runs is an error at once.
func (m *machine) Wait(ctx context.Context, cpu int) (arch.Stop, error) {
	for deadline := m.now() + patience; ; {
		if err := context.Cause(ctx); err != nil {
			return arch.Stop{}, fmt.Errorf("model: wait for CPU %d: %w", cpu, err)
		}
		stop, done, err := m.poll(cpu, deadline)
		if done || err != nil {
			return stop, err
		}
	}
}

func (m *machine) now() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock
}

// poll runs the machine for a while and tells whether the CPU has stopped.
func (m *machine) poll(cpu int, deadline uint64) (stop arch.Stop, done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.cpu(cpu)
	if err != nil {
		return stop, false, err
	}
	moving := m.run()
	switch {
	case c.stopped():
		return c.stop, true, nil
	case !moving:
		return stop, false, fmt.Errorf("model: CPU %d sleeps in operation %d and no CPU runs that could wake it", cpu, c.at)
	case m.clock >= deadline:
		return stop, false, fmt.Errorf("model: CPU %d is in operation %d after %d steps; it will not come to its end", cpu, c.at, uint64(patience))
	}
	return stop, false, nil
}

// Resume implements arch.Machine.
func (m *machine) Resume(cpu int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.cpu(cpu)
	if err != nil {
		return err
	}
	if c.state != outside {
		return fmt.Errorf("model: resume of CPU %d: it is not out by an Exit", cpu)
	}
	c.state, c.out = ready, true
	return nil
}

// At implements arch.Machine.
func (m *machine) At(cpu int) (op int, completed uint64) {
	c := m.look(cpu)
	defer m.mu.Unlock()
	return c.at, c.completed
}

// Asleep implements arch.Machine.
func (m *machine) Asleep(cpu int) (bool, error) {
	c := m.look(cpu)
	defer m.mu.Unlock()
	return c.state == asleep && !m.hv.awake(c) || c.state == parked, nil
}

// Results implements arch.Machine.
func (m *machine) Results(cpu int) []arch.Result {
	c := m.look(cpu)
	defer m.mu.Unlock()
	return slices.Clone(c.results)
}

// Events implements arch.Machine.
func (m *machine) Events(cpu int, vector uint8) uint64 {
	c := m.look(cpu)
	defer m.mu.Unlock()
	return c.events[vector]
}

// Counter implements arch.Machine.
func (m *machine) Counter(cpu int, name string) (uint64, error) {
	c := m.look(cpu)
	defer m.mu.Unlock()
	n, ok := m.hv.counter(c, name)
	if !ok {
		return 0, fmt.Errorf("model: there is no counter %q", name)
	}
	return n, nil
}

// Restart implements microvm.Monitor.
func (m *machine) Restart(cpu int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.cpu(cpu)
	if err != nil {
		return err
	}
	if c.state != parked {
		return fmt.Errorf("model: restart of CPU %d: nothing has stopped it", cpu)
	}
	c.state, c.stop, c.interrupts = idle, arch.Stop{}, false
	return nil
}

// MarkStopped implements microvm.Monitor.
func (m *machine) MarkStopped(cpu int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.cpu(cpu)
	if err != nil {
		return err
	}
	return m.monitored().markStopped(c)
}

// ResetClock implements microvm.Monitor.
func (m *machine) ResetClock() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.monitored().resetClock()
	return nil
}

// TimeOfDay implements microvm.Monitor.
func (m *machine) TimeOfDay() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.monitored().timeOfDay()
}

// CallIn implements microvm.Caller. An exception is an error, as no handler is modelled.
func (m *machine) CallIn(_ context.Context, _ microvm.Mode, cpu int, o arch.Op) (arch.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.cpu(cpu)
	if err != nil {
		return arch.Result{}, err
	}
	if c.state != idle || o.Kind != arch.Call {
		return arch.Result{}, fmt.Errorf("model: CPU %d is not idle, or operation %d is no call", cpu, o.Kind)
	}
	r := arch.Result{Count: 1, Regs: o.Regs, Flags: o.Flags}
	if t := m.monitored().callIn(c, o.Arg[0], &r.Regs, &r.Flags); t.raised {
		return arch.Result{}, fmt.Errorf("model: exception %d in a call of CPU %d", t.vector, cpu)
	}
	return r, nil
}

func (m *machine) monitored() monitored { return m.hv.(monitored) }

// Delay implements microvm.Monitor.
func (m *machine) Delay(cpu int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cpus[cpu].delay, nil
}

// Passed implements microvm.Monitor.
func (m *machine) Passed(cpu int) []microvm.Passed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.monitored().passed(m.cpus[cpu]))
}

// Answer implements microvm.Monitor.
func (m *machine) Answer(cpu int, result uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.monitored().answer(m.cpus[cpu], result)
}

// Withhold implements microvm.Monitor.
func (m *machine) Withhold(at uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if page(at) != at || !m.mapped(at, microvm.PageSize) {
		return fmt.Errorf("model: no page at %#x", at)
	}
	m.withheld[at] = new(bool)
	return nil
}

// Supply implements microvm.Monitor.
func (m *machine) Supply(at uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.withheld[at] == nil {
		return fmt.Errorf("model: the page at %#x is not withheld", at)
	}
	delete(m.withheld, at)
	m.monitored().supplied(at)
	return nil
}

// Asked implements microvm.Monitor.
func (m *machine) Asked(at uint64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.run()
	asked := m.withheld[at]
	return asked != nil && *asked, nil
}

// page is the page that an address is in.
func page(address uint64) uint64 { return address &^ (microvm.PageSize - 1) }

// look has the machine run for a while and returns the CPU with the machine locked.
func (m *machine) look(cpu int) *cpu {
	m.mu.Lock()
	m.run()
	return m.cpus[cpu]
}

// Vectors returns the vector registers in the CPU's frame, 16 of 32 bytes each;
// SetVectors sets them.
func (m *machine) Vectors(cpu int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.cpus[cpu].frame[:])
}

// SetVectors implements microvm.Machine.
func (m *machine) SetVectors(cpu int, v []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.cpu(cpu)
	if err != nil {
		return err
	}
	if len(v) != len(c.frame) {
		return fmt.Errorf("model: %d bytes of vector registers, want %d", len(v), len(c.frame))
	}
	copy(c.frame[:], v)
	return nil
}

// Reset implements arch.Machine.
func (m *machine) Reset() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("model: the machine is closed")
	}
	m.stop()
	m.create()
	return nil
}

// Close implements microvm.Machine.
func (m *machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.stop()
	return nil
}

func (m *machine) cpu(cpu int) (*cpu, error) {
	switch {
	case m.closed:
		return nil, fmt.Errorf("model: the machine is closed")
	case cpu < 0 || cpu >= len(m.cpus):
		return nil, fmt.Errorf("model: no CPU %d; there are %d", cpu, len(m.cpus))
	}
	return m.cpus[cpu], nil
}

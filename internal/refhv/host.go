package refhv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pvabi/abi"
)

// Trap is a transport: how the CPUs of a machine come out of the guest to the hypervisor, and go
// back. All stand still but during Next. Errors that wrap ErrEnded say that the machine is no more.
type Trap interface {
	CPUs() int
	// ID is the number that a CPU has in its register CPUID.
	ID(cpu int) uint64
	// Memory tells whether there is memory at all of the addresses.
	Memory(address, size uint64) bool
	// Read and Write reach guest-physical memory.
	Read(address uint64, size int) ([]byte, error)
	Write(address uint64, b []byte) error
	// Interrupt makes interrupts pending at a CPU, those whose bit in lines is set.
	Interrupt(cpu int, lines uint64) error
	// Next lets the CPUs go on, all but those that are held, until one comes out of the guest. It
	// returns nil if ctx ended before.
	Next(ctx context.Context, held []int) (*Exit, error)
	// PC is where a CPU stands, and Waits tells whether it is asleep until an interrupt comes.
	PC(cpu int) (uint64, error)
	Waits(cpu int) (bool, error)
	// Return completes what a CPU came out for: registers are as in the Exit, and the CPU is to go
	// on behind the instruction, or, after an ExitIdle, to be asleep there.
	Return(e *Exit) error
	Close() error
}

// ErrEnded is wrapped by errors of a Trap whose machine is no more.
var ErrEnded = errors.New("the machine has ended")

// ExitKind is what a CPU came out of the guest for.
type ExitKind string

// The kinds.
const (
	ExitCall     ExitKind = "call"     // HVCL
	ExitDiscover ExitKind = "cpucfg"   // CPUCFG of a word that is not the CPU's own
	ExitFeatures ExitKind = "features" // a read of IOCSR FEATURES
	ExitIdle     ExitKind = "idle"     // IDLE; not of the kernel's own, which nobody is told of
	ExitAwake    ExitKind = "awake"    // the end of a wait that began with an ExitIdle
)

// Exit is a CPU that came out of the guest.
type Exit struct {
	CPU  int
	Kind ExitKind
	// Number is the code of a call, the number of a word.
	Number uint64
	// Args are the registers R4 to R9 of a call, before and, to be filled in, after it.
	Args [6]uint64
	// Value is what a question is answered with; before, what the machine itself has for it.
	Value uint64
	// PC is where the instruction is, and Kernel tells whether that is in the kernel's image.
	PC     uint64
	Kernel bool
}

// EventKind is what a host did or was asked for.
type EventKind string

// The kinds. Those of exits are their own.
const (
	EventStore     EventKind = "store"     // the hypervisor wrote memory
	EventInterrupt EventKind = "interrupt" // it made interrupts pending at a CPU
	EventHeld      EventKind = "held"      // the host took a CPU off
	EventReleased  EventKind = "released"  // and put it on again
	EventNote      EventKind = "note"      // what whoever watches has to say
	EventAsked     EventKind = "asked"     // the guest asked something of the host, see Ask
)

// Event is a line of a host's log.
type Event struct {
	Kind EventKind `json:"kind"`
	// CPU is the one that asked, or that something was done to; for a store, the one that is
	// being served.
	CPU int `json:"cpu"`
	// Number is an Exit's; of an interrupt the lines; of a store the address.
	Number uint64 `json:"number,omitempty"`
	// Args are a call's arguments, and Value its result; of a store size and value, of a
	// question the answer, of a release the nanoseconds that the CPU was off.
	Args  [6]uint64 `json:"args,omitzero"`
	Size  uint64    `json:"size,omitempty"`
	Value uint64    `json:"value,omitempty"`
	PC    uint64    `json:"pc,omitempty"`
	Text  string    `json:"text,omitempty"`
}

// Host runs the CPUs of a machine behind a Trap for a hypervisor: it hands over what they come
// out for, takes them off and puts them on, and keeps a log of it all.
//
// A CPU runs whenever the guest wants it to, but while it is held. The time for which it is held is
// what the hypervisor knows as its delay. How long QEMU's threads wait for a CPU of the machine that
// they run on does not count: it is nothing that two runs have in common.
type Host struct {
	trap  Trap
	order binary.ByteOrder
	table *abi.Platform
	// hv is the kernel's hypervisor, own that of other code; nil where that has none of its own.
	hv, own *LoongArch
	// Watch, where it is set, is told of each event as it is logged. It may call Hold, After, Peek,
	// Poke and Note.
	Watch func(Event)

	log    []Event
	held   map[int]time.Time // since when
	timers []timer
	crowd  crowd
	turns  int // how many crowds there were
	delay  []uint64
	serves int // the CPU that is being served
	failed error

	// ctx is Run's. ended tells that the machine is no more, and out has the exits of CPUs that are out:
	// of the one that is served, or is the next one to be, and of those that came out meanwhile.
	ctx   context.Context
	ended bool
	out   []*Exit
}

// timer is something to be done at a time.
type timer struct {
	at time.Time
	do func()
}

// NewHost makes the host of a machine behind a Trap, and its hypervisor; see NewLoongArch.
func NewHost(t Trap, order binary.ByteOrder, table *abi.Platform, changes ...func(*LoongArch)) *Host {
	h := &Host{trap: t, order: order, table: table, held: map[int]time.Time{}, delay: make([]uint64, t.CPUs())}
	h.hv = NewLoongArch(h, table, changes...)
	return h
}

// hypervisors are those that there are.
func (h *Host) hypervisors() []*LoongArch {
	if h.own == nil {
		return []*LoongArch{h.hv}
	}
	return []*LoongArch{h.hv, h.own}
}

// Log returns what was logged so far, in order.
func (h *Host) Log() []Event { return h.log }

func (h *Host) event(e Event) {
	h.log = append(h.log, e)
	if h.Watch != nil {
		h.Watch(e)
	}
}

// Area returns the address of the area that a CPU has registered, false if it has none.
func (h *Host) Area(cpu int) (address uint64, ok bool) {
	r, ok := h.hv.record(cpu)
	return r.address, ok
}

// PC returns where a CPU stands between two instructions.
func (h *Host) PC(cpu int) uint64 {
	pc, err := h.trap.PC(cpu)
	h.fail("read a program counter", err)
	return pc
}

// Note logs a text.
func (h *Host) Note(text string) { h.log = append(h.log, Event{Kind: EventNote, CPU: -1, Text: text}) }

// After does something when that time has passed, between two instructions of the guest's, while all
// CPUs stand still. It may be called from Watch.
func (h *Host) After(d time.Duration, do func()) {
	h.timers = append(h.timers, timer{time.Now().Add(d), do})
}

// Hold takes a CPU off, as a host does that has other work for its own CPU, and puts it on again
// after d. All others go on. One that waits is not taken off. It may be called from Watch.
func (h *Host) Hold(cpu int, d time.Duration) {
	if h.takeOff(cpu) {
		h.After(d, func() { h.putOn(cpu) })
	}
}

// waits tells whether a CPU waits for an interrupt.
func (h *Host) waits(cpu int) bool {
	waits, err := h.trap.Waits(cpu)
	h.fail("ask whether a CPU waits", err)
	return waits
}

// takeOff takes a CPU off, unless it is off, or waits.
func (h *Host) takeOff(cpu int) bool {
	if _, is := h.held[cpu]; is || h.waits(cpu) {
		return false
	}
	h.held[cpu] = time.Now()
	for _, hv := range h.hypervisors() {
		hv.Leave(cpu, true)
	}
	h.event(Event{Kind: EventHeld, CPU: cpu})
	return true
}

// putOn puts a CPU on again that was taken off.
func (h *Host) putOn(cpu int) {
	since, is := h.held[cpu]
	if !is {
		return
	}
	off := uint64(time.Since(since))
	delete(h.held, cpu)
	h.delay[cpu] += off
	h.serves = cpu
	h.event(Event{Kind: EventReleased, CPU: cpu, Value: off})
	for _, hv := range h.hypervisors() {
		hv.Enter(cpu)
	}
}

// Poke writes memory as no hypervisor would, for an experiment. Peek reads it.
func (h *Host) Poke(address, size, value uint64) { h.Store(address, size, value) }

// Peek reads memory.
func (h *Host) Peek(address, size uint64) uint64 {
	v, _ := h.Load(address, size)
	return v
}

// Run runs the CPUs until the machine has ended, or ctx has.
func (h *Host) Run(ctx context.Context) error {
	h.ctx = ctx
	for h.failed == nil && !h.ended {
		err := h.next(ctx)
		switch {
		case errors.Is(err, ErrEnded):
			return h.failed
		case err != nil:
			return err
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		}
		h.expire()
		if len(h.out) == 0 || h.ended {
			continue
		}
		h.serve(h.out[0])
		if h.ended {
			continue
		}
		h.fail("let a CPU go back", h.trap.Return(h.out[0]))
		h.out = h.out[1:]
	}
	return h.failed
}

// expire does what it is time for.
func (h *Host) expire() {
	now := time.Now()
	due := slices.Clone(h.timers)
	h.timers = slices.DeleteFunc(h.timers, func(t timer) bool { return !now.Before(t.at) })
	for _, t := range due {
		if !now.Before(t.at) {
			t.do()
		}
	}
}

// next lets the CPUs go on until one comes out or it is time for something, unless one is out.
func (h *Host) next(ctx context.Context) error {
	if len(h.out) > 0 {
		return nil
	}
	if len(h.timers) > 0 {
		first := slices.MinFunc(h.timers, func(a, b timer) int { return a.at.Compare(b.at) })
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, first.at)
		defer cancel()
	}
	return h.goOn(ctx, nil)
}

// goOn lets the CPUs go on, all but those that are out or held, and others, until one comes out or ctx ends.
func (h *Host) goOn(ctx context.Context, others []int) error {
	held := slices.AppendSeq(others, maps.Keys(h.held))
	for _, e := range h.out {
		held = append(held, e.CPU)
	}
	slices.Sort(held)
	e, err := h.trap.Next(ctx, slices.Compact(held))
	if e != nil {
		h.out = append(h.out, e)
	}
	return err
}

// serve has the hypervisor do what a CPU came out for.
func (h *Host) serve(e *Exit) {
	h.serves = e.CPU
	if h.asked(e) {
		return
	}
	hv := h.hv
	if h.own != nil && !e.Kernel {
		hv = h.own
	}
	line := Event{Kind: EventKind(e.Kind), CPU: e.CPU, Number: e.Number, Args: e.Args, PC: e.PC}
	switch e.Kind {
	case ExitCall:
		hv.Call(e.CPU, e.Number, &e.Args)
		line.Value = e.Args[0]
	case ExitDiscover:
		if v, ok := hv.CPUCFG(e.CPU, uint32(e.Number)); ok {
			e.Value = v
		}
		line.Value = e.Value
	case ExitFeatures:
		e.Value = hv.Features(e.CPU, e.Value)
		line.Value = e.Value
	case ExitIdle:
		for _, hv := range h.hypervisors() {
			hv.Idle(e.CPU)
			hv.Leave(e.CPU, false)
		}
	case ExitAwake:
		for _, hv := range h.hypervisors() {
			hv.Enter(e.CPU)
		}
	}
	h.event(line)
}

// fail keeps the first error, which ends Run, as the machine's end does, which is none.
func (h *Host) fail(doing string, err error) {
	switch {
	case errors.Is(err, ErrEnded):
		h.ended = true
	case err != nil && h.failed == nil:
		h.failed = fmt.Errorf("reference hypervisor: %s: %w", doing, err)
	}
}

// CPUs implements Machine.
func (h *Host) CPUs() int { return h.trap.CPUs() }

// ID implements Machine.
func (h *Host) ID(cpu int) uint64 { return h.trap.ID(cpu) }

// Load implements Machine.
func (h *Host) Load(address, size uint64) (uint64, bool) {
	if !h.trap.Memory(address, size) {
		return 0, false
	}
	b, err := h.trap.Read(address, int(size))
	h.fail("read memory", err)
	if err != nil {
		return 0, false
	}
	var word [8]byte
	if h.order == binary.ByteOrder(binary.BigEndian) {
		copy(word[8-size:], b)
	} else {
		copy(word[:], b)
	}
	return h.order.Uint64(word[:]), true
}

// Store implements Machine.
func (h *Host) Store(address, size, value uint64) bool {
	if !h.trap.Memory(address, size) {
		return false
	}
	var word [8]byte
	h.order.PutUint64(word[:], value)
	b := word[:size]
	if h.order == binary.ByteOrder(binary.BigEndian) {
		b = word[8-size:]
	}
	err := h.trap.Write(address, b)
	h.fail("write memory", err)
	h.event(Event{Kind: EventStore, CPU: h.serves, Number: address, Size: size, Value: value})
	return err == nil
}

// Interrupt implements Machine.
func (h *Host) Interrupt(cpu int, lines uint64) {
	h.fail("interrupt", h.trap.Interrupt(cpu, lines))
	h.event(Event{Kind: EventInterrupt, CPU: cpu, Number: lines})
}

// Delay implements Machine.
func (h *Host) Delay(cpu int) uint64 { return h.delay[cpu] }

// pause is how long the other CPUs have to look in between two stores.
const pause = 200 * time.Microsecond

// Pause implements Machine: all CPUs go on but the one that it is about, those that are held, and those
// that are out or come out meanwhile.
func (h *Host) Pause(cpu int) {
	if h.failed != nil || h.ended {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, pause)
	defer cancel()
	h.fail("let CPUs go on", h.goOn(ctx, []int{cpu}))
}

package refhv

import "time"

// What a guest can ask of its host, and of no real one: a program that checks the hypervisor has to
// have CPUs taken off, and features chosen, as monitors and busy hosts do.
//
// It asks by HVCL with AskCode and AskFunction in R4, what it asks for in R5 and arguments after it. R4 is
// then 0, or not 0 if there is no such thing to ask for. The hypervisor does not see the call.
const (
	AskCode     = 0x7fff
	AskFunction = 0x70766162692d6173
)

// Ask is what is asked for.
type Ask uint64

// What there is to be asked for.
const (
	// AskCrowd has CPUs compete for one CPU of the host from now on: those with the numbers of the bits
	// that are set in R6. With none, nobody competes any more.
	AskCrowd Ask = iota
	// AskOwn has code that is not the kernel's use a hypervisor of its own, on the same CPUs, as if it
	// had just been made; the kernel keeps the one that it was started with. R6 are the features
	// that its monitor has chosen, AskFeatures for none. R7 is 1 more than the mutant's place
	// among LoongArchMutants that breaks it, 0 for none.
	AskOwn
	// AskShared has all code use the kernel's hypervisor again.
	AskShared
)

// AskFeatures stands for the features that a hypervisor has where a monitor chooses none.
const AskFeatures = ^uint64(0)

// What a guest is told to do about mutants: MutantsOwn to have those checks look at each that have rules which it
// breaks, and another one, MutantsAll all checks. After a colon names of mutants may follow, with commas between them; without any, all are meant.
const (
	MutantsOwn = "mutants"
	MutantsAll = "mutants-all"
)

// MutantsOthers is how many checks look at a mutant with MutantsOwn that are not its own.
const MutantsOthers = 1

// slice is how long a CPU of a crowd has the host's CPU.
const slice = 2 * time.Millisecond

// crowd is CPUs that compete for one CPU of the host. The first has it.
type crowd []int

// asked does what a call asks of the host. It is false for a call that is the hypervisor's.
func (h *Host) asked(e *Exit) bool {
	if e.Kind != ExitCall || e.Number != AskCode || e.Args[0] != AskFunction {
		return false
	}
	ok := true
	switch a := e.Args; Ask(a[1]) {
	case AskCrowd:
		h.disperse()
		for cpu := range h.CPUs() {
			if id := h.ID(cpu); id < 64 && a[2]>>id&1 == 1 {
				h.crowd = append(h.crowd, cpu)
			}
		}
		if h.crowd != nil {
			h.turns++
			h.turn(h.turns)
		}
	case AskOwn:
		ok = h.makeOwn(a[2], a[3])
	case AskShared:
		h.own = nil
	default:
		ok = false
	}
	h.event(Event{Kind: EventAsked, CPU: e.CPU, Args: e.Args, PC: e.PC})
	e.Args[0] = 1
	if ok {
		e.Args[0] = 0
	}
	return true
}

// makeOwn makes the hypervisor of code that is not the kernel's.
func (h *Host) makeOwn(features, mutant uint64) bool {
	var changes []func(*LoongArch)
	ok := true
	if features != AskFeatures {
		changes = append(changes, func(own *LoongArch) { ok = own.SetFeatures(features) == nil })
	}
	ms := LoongArchMutants()
	if mutant > uint64(len(ms)) {
		return false
	}
	if mutant > 0 {
		changes = append(changes, ms[mutant-1].Change)
	}
	h.own = NewLoongArch(h, h.table, changes...)
	return ok
}

// turn gives the host's CPU to the next of the crowd that would run. It is for that crowd only whose
// number is given.
func (h *Host) turn(number int) {
	if number != h.turns || h.crowd == nil {
		return
	}
	for range h.crowd {
		h.crowd = append(h.crowd[1:], h.crowd[0])
		if !h.waits(h.crowd[0]) {
			break
		}
	}
	for _, cpu := range h.crowd[1:] {
		h.takeOff(cpu)
	}
	h.putOn(h.crowd[0])
	h.After(slice, func() { h.turn(number) })
}

// disperse ends the crowd.
func (h *Host) disperse() {
	for _, cpu := range h.crowd {
		h.putOn(cpu)
	}
	h.crowd = nil
}

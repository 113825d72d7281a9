package model

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/s390x"
	"pvabi/conformance/microvm"
)

// The machine of s390, after the Principles of Operation and the codes that KVM adds, as the table
// names them. What QEMU is known to do otherwise is in a host of its own. Of the guest's kernel there is
// what programs rely on: CPUs that are in an enabled wait while they have no program, a CPU that it holds
// offline, and the external call by which it begins a program on a CPU.

// s390 is the machine. Its functions are the steps that it is made of; they are variables so that a
// mutant can replace one.
type s390 struct {
	m     *machine
	abi   *abi.Platform
	forms []s390Form
	cpus  []s390CPU
	// others is how seldom the rest of the guest comes in between, 0 for never; occupied tells that it
	// has the machine at an order, so that the next one finds it busy.
	others   uint64
	occupied bool

	problem     func(c *cpu, f s390Form, regs *[16]uint64, flags *uint64) trap
	code        func(f s390Form, regs *[16]uint64) uint64
	diagnose    func(c *cpu, code uint64, f s390Form, regs *[16]uint64) trap
	subcode     func(number uint64, regs *[16]uint64) trap
	reference   func(c *cpu, block uint64) (result int64, t trap)
	valid       func(block uint64) bool
	yield       func(c *cpu, f s390Form, regs *[16]uint64) trap
	operands    func(f s390Form, regs *[16]uint64) s390Order
	addressed   func(address uint64) *cpu
	order       func(c, to *cpu, o s390Order) int64
	answer      func(f s390Form, answer int64, regs *[16]uint64, flags *uint64)
	sense       func(to *cpu) int64
	runs        func(c *cpu) bool
	call1       func(from, to *cpu) int64
	emergency   func(from, to *cpu) int64
	conditional func(from, to *cpu) int64
	deliver     func(c *cpu)
	take        func(c *cpu, class string, address, code uint64)
	information func(function, first, second, block uint64) (r0 uint64, ok bool)
	restore     func(f s390Form, before, after *[16]uint64, flags *uint64)
}

// s390Form is a form of DIAGNOSE or SIGNAL PROCESSOR: the numbers of its registers, and its displacement.
// A base of 0 is none.
type s390Form struct {
	signal             bool
	r1, r3, base       int
	displacement, form uint64
}

// s390Order is an order of SIGNAL PROCESSOR: its number, the address of the CPU, and the parameter.
type s390Order struct{ number, address, parameter uint64 }

// s390CPU is what there is of a CPU besides.
type s390CPU struct {
	stopped bool
	// token tells that the kernel has one for page faults.
	token bool
	// call is the address of the CPU whose external call is pending, signals are those of the CPUs
	// whose emergency signals are.
	call    *uint64
	signals []uint64
	// clock and io are interruptions of the rest of the guest that are pending.
	clock, io bool
	// taken counts interruptions by class, external is what the last external one left in lowcore.
	taken    map[string]uint64
	external uint64
	// off is for how many turns more the host has taken the CPU off, busy for how many more the kernel
	// has something to do on it.
	off, busy uint64
}

const (
	// the classes of interruptions that the kernel counts
	s390External, s390IO, s390Call, s390Signal = "EXT", "I/O", "EXC", "EMS"
	// program interruption codes
	s390Privileged, s390Addressing, s390Specification = 2, 5, 6
	// external interruption codes
	s390ClockCode, s390SignalCode, s390CallCode = 0x1004, 0x1201, 0x1202
	// s390Lowcore is where an external interruption leaves an address and a code, each of 2 bytes.
	s390Lowcore = 0x84
	// s390Limit is the largest address that memory can have.
	s390Limit = 1<<30 - 1
	// s390First is the address of the guest's first CPU, which is not among the machine's.
	s390First = 0
	// s390Offs is after how many turns the host takes off a CPU that runs, in the mean, and s390Off for
	// how many at most. s390Busy is how many turns the kernel has to do after an interruption, at most.
	s390Offs, s390Off, s390Busy = 256, 1024, 8
)

// s390Hosts are a machine that keeps all that the table says, and one that offers nothing that it need not.
func s390Hosts() []Host {
	return []Host{
		{Name: "s390", Text: "A machine that keeps the Principles of Operation to the letter, below a KVM that offers everything.", Open: openS390(nil)},
		{Name: "plain", Text: "A machine without the codes YIELD_TO and PAGE_REFERENCE.", Open: openS390(withoutCodes),
			Absent: []string{
				"pfault/unaligned", "pfault/version", "pfault/established",
				"yield/self", "yield/running-target", "yield/waiting-target", "yield/absent-target", "yield/stopped-target", "yield/does-not-wake", "yield/register-field",
			}},
	}
}

// withoutCodes takes YIELD_TO and PAGE_REFERENCE away.
func withoutCodes(s *s390) {
	diagnose := s.diagnose
	s.diagnose = func(c *cpu, code uint64, f s390Form, regs *[16]uint64) trap {
		if code == s.abi.Call("YIELD_TO").Number || code == s.abi.Call("PAGE_REFERENCE").Number {
			return s390Trap(s390Specification)
		}
		return diagnose(c, code, f, regs)
	}
}

// S390AsQEMU opens machines of the model with what QEMU is known to do otherwise (QEMU 11.1,
// target/s390x/tcg/translate.c, op_diag, and sigp.c, sigp_sense_running).
func S390AsQEMU() Opener {
	return openS390(func(s *s390) {
		withoutCodes(s)
		s.code = func(f s390Form, _ *[16]uint64) uint64 { return uint64(f.base)<<12 | f.displacement }
		s.runs = func(c *cpu) bool { return !s.of(c).stopped && s.operating(c) }
	})
}

// S390Disturbed opens machines in whose CPUs' way the rest of the guest comes: external calls and
// emergency signals of the guest's first CPU, interruptions of the clock and for input and output, and
// orders that find the machine busy. One comes in so many turns of the CPUs, in the mean.
func S390Disturbed(turns uint64) Opener { return openS390(func(s *s390) { s.others = turns }) }

// s390Machine is a machine of a guest's CPUs, as package conformance wants it.
type s390Machine struct{ *machine }

func openS390(change func(s *s390)) Opener {
	return func(seed uint64, c microvm.Config) (microvm.Machine, error) {
		if c.IDs == nil { // the first CPU is left to the rest of the guest
			for i := range max(c.CPUs, 1) {
				c.IDs = append(c.IDs, s390First+1+uint64(i))
			}
		}
		m, err := newMachine(seed, c, func(m *machine) hypervisor {
			s := &s390{m: m, abi: abi.S390(), cpus: make([]s390CPU, len(m.cpus))}
			for i, name := range s.isa().Instructions {
				s.forms = append(s.forms, parseS390Form(name, uint64(i)))
			}
			s.problem, s.code, s.diagnose, s.subcode = s.refuse, s.codeOf, s.doDiagnose, s.doSubcode
			s.reference, s.valid, s.yield = s.doReference, s.isValid, s.doYield
			s.operands, s.addressed, s.order, s.answer = s.operandsOf, s.find, s.doOrder, s.doAnswer
			s.sense, s.runs, s.call1, s.emergency, s.conditional = s.doSense, s.isRunning, s.doCall, s.doEmergency, s.doEmergency
			s.deliver, s.take, s.information = s.doDeliver, s.doTake, s.doInformation
			s.restore = func(s390Form, *[16]uint64, *[16]uint64, *uint64) {}
			if change != nil {
				change(s)
			}
			if s.others > 0 {
				m.random += m.created // what others do is something else each time
			}
			for i := range s.cpus {
				s.cpus[i] = s390CPU{token: true, taken: map[string]uint64{}}
				m.cpus[i].interrupts = true
			}
			return s
		})
		if err != nil {
			return nil, err
		}
		return s390Machine{m}, nil
	}
}

// parseS390Form takes the name of a form apart: its operands are R1, R3 and D2(B2).
func parseS390Form(name string, form uint64) s390Form {
	mnemonic, operands, _ := strings.Cut(name, " ")
	var parts []int64
	for _, text := range strings.FieldsFunc(operands, func(r rune) bool { return strings.ContainsRune(",()", r) }) {
		n, err := strconv.ParseInt(strings.TrimPrefix(text, "r"), 0, 32)
		if err != nil {
			panic(fmt.Sprintf("model: the form %q of a call: %v", name, err))
		}
		parts = append(parts, n)
	}
	f := s390Form{signal: mnemonic == "sigp", r1: int(parts[0]), r3: int(parts[1]), displacement: uint64(parts[2]), form: form}
	if len(parts) > 3 {
		f.base = int(parts[3])
	}
	return f
}

func (s *s390) of(c *cpu) *s390CPU { return &s.cpus[c.index] }

func (s *s390) isa() *arch.ISA { return s390x.ISA }

func s390Trap(code uint64) trap { return trap{raised: true, vector: code} }

// call is DIAGNOSE or SIGNAL PROCESSOR. Others have a turn before it is carried out.
func (s *s390) call(c *cpu, form uint64, regs *[16]uint64, flags *uint64) (uint64, trap) {
	const length = 4
	f := s.forms[form]
	*flags &= 3
	regs[s390x.ISA.Register("r15")] = 0 // which a program does not have
	if c.user {
		return length, s.problem(c, f, regs, flags)
	}
	c.pause()
	before := *regs
	t := s.carryOut(c, f, regs, flags)
	s.restore(f, &before, regs, flags)
	return length, t
}

// refuse is what either instruction ends in without privilege.
func (s *s390) refuse(*cpu, s390Form, *[16]uint64, *uint64) trap { return s390Trap(s390Privileged) }

func (s *s390) carryOut(c *cpu, f s390Form, regs *[16]uint64, flags *uint64) trap {
	if f.signal {
		s.answer(f, s.signal(c, s.operands(f, regs)), regs, flags)
		return trap{}
	}
	return s.diagnose(c, s.code(f, regs), f, regs)
}

// secondOperand is the address D2(B2).
func (f s390Form) secondOperand(regs *[16]uint64) uint64 {
	if f.base == 0 {
		return f.displacement
	}
	return regs[f.base] + f.displacement
}

func (s *s390) codeOf(f s390Form, regs *[16]uint64) uint64 { return f.secondOperand(regs) & 0xffff }

func (s *s390) doDiagnose(c *cpu, code uint64, f s390Form, regs *[16]uint64) trap {
	const virtio = 0x500
	switch code {
	case s.abi.Call("TIME_SLICE_END").Number:
		return trap{}
	case s.abi.Call("YIELD_TO").Number:
		return s.yield(c, f, regs)
	case s.abi.Call("PAGE_REFERENCE").Number:
		result, t := s.reference(c, regs[f.r1])
		if !t.raised {
			regs[f.r3] = uint64(result)
		}
		return t
	case virtio:
		return s.subcode(regs[s390x.ISA.Register("r1")], regs)
	}
	return s390Trap(s390Specification)
}

// doYield lets a CPU that the host has taken off go on.
func (s *s390) doYield(_ *cpu, f s390Form, regs *[16]uint64) trap {
	if to := s.addressed(regs[f.r1]); to != nil {
		s.of(to).off = 0
	}
	return trap{}
}

// doSubcode is KVM's DIAGNOSE 0x500. There is no subchannel.
func (s *s390) doSubcode(number uint64, regs *[16]uint64) trap {
	r2 := s390x.ISA.Register("r2")
	switch number {
	case s.abi.Call("VIRTIO_NOTIFY").Number:
		if regs[r2] > s.last() {
			regs[r2] = uint64(s.abi.Errno("EINVAL"))
		} else {
			regs[r2] = 0
		}
	case s.abi.Call("VIRTIO_CCW_NOTIFY").Number:
		regs[r2] = uint64(s.abi.Errno("EINVAL"))
	case s.abi.Call("STORAGE_LIMIT").Number:
		regs[r2] = s390Limit
	default:
		return s390Trap(s390Specification)
	}
	return trap{}
}

func (s *s390) last() uint64 { return memoryBase + uint64(len(s.m.memory)) - 1 }

// doReference is PAGE_REFERENCE.
func (s *s390) doReference(c *cpu, block uint64) (int64, trap) {
	k, l := s.of(c), s.abi.Layout("pfault_refbk")
	if block%l.Align != 0 {
		return 0, s390Trap(s390Specification)
	}
	if !s.m.mapped(block, l.Size) {
		return 0, s390Trap(s390Addressing)
	}
	if !s.valid(block) {
		return 0, s390Trap(s390Specification)
	}
	const establish, cancel = 0, 1
	switch s.field(block, "reffcode") {
	case establish:
		if k.token {
			return s.abi.Errno("ESTABLISHED"), trap{}
		}
		k.token = true
	case cancel:
		if !k.token {
			return s.abi.Errno("NOT_ESTABLISHED"), trap{}
		}
		k.token = false
	default:
		return 0, s390Trap(s390Specification)
	}
	return 0, trap{}
}

func (s *s390) field(block uint64, name string) uint64 {
	f := s.abi.Layout("pfault_refbk").Field(name)
	return s.m.load(block+f.Offset, f.Size)
}

func (s *s390) isValid(block uint64) bool {
	return s.field(block, "refversn") == 2 && s.field(block, "refdwlen") >= s.abi.Layout("pfault_refbk").Size/8 &&
		s.field(block, "refdiagc") == s.abi.Call("PAGE_REFERENCE").Number
}

// operandsOf are the operands of SIGNAL PROCESSOR.
func (s *s390) operandsOf(f s390Form, regs *[16]uint64) s390Order {
	return s390Order{number: f.secondOperand(regs) & 0xff, address: regs[f.r3] & 0xffff, parameter: regs[f.r1|1]}
}

// find returns the CPU of that address, or nil.
func (s *s390) find(address uint64) *cpu {
	for _, c := range s.m.cpus {
		if c.id == address {
			return c
		}
	}
	return nil
}

// signal gives an order and returns what it comes to, as the table has it.
func (s *s390) signal(c *cpu, o s390Order) int64 {
	if s.occupied {
		s.occupied = false
		return s.abi.Errno("BUSY")
	}
	return s.order(c, s.addressed(o.address), o)
}

func (s *s390) doOrder(c, to *cpu, o s390Order) int64 {
	i := slices.IndexFunc(s.abi.Calls, func(k abi.Call) bool { return k.Convention == "SIGNAL PROCESSOR" && k.Number == o.number })
	switch {
	case to == nil:
		return s.abi.Errno("NOT_OPERATIONAL")
	case i < 0:
		return s.abi.Errno("INVALID_ORDER")
	}
	switch s.abi.Calls[i].Name {
	case "SENSE":
		return s.sense(to)
	case "SENSE_RUNNING":
		if !s.runs(to) {
			return s.abi.Errno("NOT_RUNNING")
		}
	case "EXTERNAL_CALL":
		return s.call1(c, to)
	case "EMERGENCY_SIGNAL":
		return s.emergency(c, to)
	case "COND_EMERGENCY_SIGNAL": // CPUs that this guest stops are not enabled for interruptions
		return s.conditional(c, to)
	case "SET_PREFIX":
		switch {
		case o.parameter > s390Limit:
			return s.abi.Errno("INVALID_PARAMETER")
		case !s.of(to).stopped:
			return s.abi.Errno("INCORRECT_STATE")
		}
	}
	return 0 // the rest is for CPUs that are being started or stopped, which the kernel does by itself
}

// doAnswer leaves an answer in condition code and operand R1.
func (s *s390) doAnswer(f s390Form, answer int64, regs *[16]uint64, flags *uint64) {
	*flags = uint64(answer >> 32)
	if *flags == 1 {
		regs[f.r1] = regs[f.r1]&^(1<<32-1) | uint64(uint32(answer))
	}
}

func (s *s390) doSense(to *cpu) int64 {
	switch k := s.of(to); {
	case k.stopped && k.call != nil:
		return s.abi.Errno("STOPPED_AND_EXT_CALL_PENDING")
	case k.stopped:
		return s.abi.Errno("STOPPED")
	case k.call != nil:
		return s.abi.Errno("EXT_CALL_PENDING")
	}
	return 0
}

// operating tells whether a CPU that is not stopped does anything, and does not wait.
func (s *s390) operating(c *cpu) bool { return c.state != idle || s.of(c).busy > 0 }

func (s *s390) isRunning(c *cpu) bool {
	k := s.of(c)
	return !k.stopped && k.off == 0 && s.operating(c)
}

func (s *s390) doCall(from, to *cpu) int64 {
	k := s.of(to)
	if k.call != nil {
		return s.abi.Errno("EXT_CALL_PENDING")
	}
	k.call = &from.id
	return 0
}

func (s *s390) doEmergency(from, to *cpu) int64 {
	if k := s.of(to); !slices.Contains(k.signals, from.id) {
		k.signals = append(k.signals, from.id)
	}
	return 0
}

func (s *s390) pending(c *cpu) bool {
	k := s.of(c)
	return k.call != nil || len(k.signals) > 0 || k.clock || k.io
}

// interrupt has the CPU take what is pending, if it may.
func (s *s390) interrupt(c *cpu) {
	if c.interrupts && !c.user && !s.of(c).stopped {
		s.deliver(c)
	}
}

// doDeliver has a CPU take what is pending, by priority.
func (s *s390) doDeliver(c *cpu) {
	k := s.of(c)
	signals, call, clock, io := k.signals, k.call, k.clock, k.io
	k.signals, k.call, k.clock, k.io = nil, nil, false, false
	for _, from := range signals {
		s.take(c, s390Signal, from, s390SignalCode)
	}
	if call != nil {
		s.take(c, s390Call, *call, s390CallCode)
	}
	if clock {
		s.take(c, "", 0, s390ClockCode)
	}
	if io {
		k.taken[s390IO]++
	}
}

// doTake has a CPU take an external interruption.
func (s *s390) doTake(c *cpu, class string, address, code uint64) {
	k := s.of(c)
	k.external = address<<16 | code
	k.taken[s390External]++
	k.taken[class]++
}

// turn comes with each turn of a CPU, and tells whether that is spent: the host has taken the CPU off, or
// it is the kernel that has something to do there.
func (s *s390) turn(c *cpu) bool {
	k := s.of(c)
	if s.others > 0 && !k.stopped && s.m.below(s.others) == 1 {
		s.disturb(c)
	}
	switch {
	case k.stopped:
		return false
	case k.off > 0:
		k.off--
	case c.state == ready && s.m.below(s390Offs) == 1:
		k.off = s.m.below(s390Off)
	case c.state == ready:
		return false
	case s.pending(c):
		s.interrupt(c)
		k.busy = s.m.below(s390Busy)
	case k.busy > 0:
		k.busy--
	default:
		return false
	}
	return true
}

// disturb has the rest of the guest do something to a CPU.
func (s *s390) disturb(c *cpu) {
	first := &cpu{id: s390First}
	switch k := s.of(c); s.m.below(6) {
	case 1, 2:
		s.call1(first, c)
	case 3:
		s.emergency(first, c)
	case 4:
		k.clock = true
	case 5:
		k.io = true
	case 6:
		s.occupied = true
	}
}

// low is what a program finds in the CPU's low memory.
func (s *s390) low(c *cpu, address, size uint64) (uint64, bool) {
	if address != s390Lowcore || size != 4 {
		return 0, false
	}
	return s.of(c).external, true
}

// ask is STORE FACILITY LIST EXTENDED, STORE CPU ADDRESS or STORE SYSTEM INFORMATION.
func (s *s390) ask(c *cpu, op *arch.Op, r *arch.Result) trap {
	leaf := op.Arg[0]
	if c.user && leaf != s390x.Facilities {
		return s.privilege()
	}
	switch leaf {
	case s390x.Facilities:
		r.Regs = [16]uint64{}
		for _, f := range s.abi.Features {
			if f.Word == "facilities" {
				r.Regs[f.Bit/64] |= 1 << (63 - f.Bit%64)
			}
		}
		r.Aux, r.Flags = 1, 0
	case s390x.CPUAddress:
		r.Regs[0] = c.id
	case s390x.SystemInformation:
		if !s.m.mapped(op.Arg[3], microvm.PageSize) {
			return s.access()
		}
		r0, ok := s.information(op.Arg[1]>>28&0xf, op.Arg[1]&0xff, op.Arg[2]&0xffff, op.Arg[3])
		r.Regs, r.Flags = [16]uint64{r0}, 0
		if !ok {
			r.Flags = 3
		}
	}
	return trap{}
}

// s390Name is KVM/Linux in EBCDIC.
var s390Name = []byte{0xd2, 0xe5, 0xd4, 0x61, 0xd3, 0x89, 0x95, 0xa4, 0xa7, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40}

// doInformation is STORE SYSTEM INFORMATION for function code 0, and for the levels of hypervisors.
func (s *s390) doInformation(function, first, second, block uint64) (r0 uint64, ok bool) {
	selector := s.abi.Word("stsi-selector")
	switch {
	case function == 0:
		return s.abi.Word("stsi-level-vm") << 28, true
	case function == s.abi.Word("stsi-function") && first == selector && second == selector:
		s.m.store(block+s.abi.Word("stsi-count-at"), 1, 1)
		copy(s.m.memory[block+s.abi.Word("stsi-program-at")-memoryBase:], s390Name)
		return 0, true
	}
	return 0, false
}

func (s *s390) discover(*cpu, uint64, uint64) [16]uint64 { return [16]uint64{} }

// No program waits, or has registers of the CPU's.
func (s *s390) wait(*cpu) waiting                          { return leaves }
func (s *s390) readRegister(*cpu, uint64) (uint64, trap)   { return 0, s.privilege() }
func (s *s390) writeRegister(*cpu, uint64, uint64) trap    { return s.privilege() }
func (s *s390) awake(*cpu) bool                            { return false }
func (s *s390) woken(*cpu)                                 {}
func (s *s390) enter(*cpu)                                 {}
func (s *s390) counter(*cpu, string) (n uint64, none bool) { return 0, false }
func (s *s390) access() trap                               { return s390Trap(s390Addressing) }
func (s *s390) privilege() trap                            { return s390Trap(s390Privileged) }

// leave has interruptions on at a program's end, as the kernel has them.
func (s *s390) leave(c *cpu, why reason) {
	if why == exits {
		c.interrupts = true
	}
}

func (m s390Machine) hypervisor() *s390 { return m.hv.(*s390) }

// Start implements arch.Machine. The kernel calls the CPU to begin a program.
func (m s390Machine) Start(cpu int, p arch.Program) error {
	if cpu == len(m.cpus)-1 {
		return fmt.Errorf("model: CPU %d is spare, and runs no programs", cpu)
	}
	if err := m.machine.Start(cpu, p); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hypervisor().doTake(m.cpus[cpu], s390Call, s390First, s390CallCode)
	return nil
}

// Real implements conformance.S390Machine.
func (m s390Machine) Real(a arch.Area) (uint64, error) { return a.Address(), nil }

// Interruptions implements conformance.S390Machine.
func (m s390Machine) Interruptions(cpu int, class string) (uint64, error) {
	m.look(cpu)
	defer m.mu.Unlock()
	return m.hypervisor().cpus[cpu].taken[class], nil
}

// SetOnline implements conformance.S390Machine: a CPU takes what is pending before the kernel stops it,
// and is reset before it is brought back.
func (m s390Machine) SetOnline(online bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := &m.hypervisor().cpus[len(m.cpus)-1]
	k.stopped = !online
	k.call, k.signals, k.clock, k.io = nil, nil, false, false
	return nil
}

// LastByte implements conformance.S390Machine.
func (m s390Machine) LastByte() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hypervisor().last(), nil
}

// Unprivileged implements conformance.S390Machine. Of programs it takes calls.
func (m s390Machine) Unprivileged(_ context.Context, program arch.Program) ([]arch.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	process := *m.cpus[0]
	process.user = true
	out := make([]arch.Result, len(program))
	for i, op := range program {
		if op.Kind != arch.Call {
			return nil, fmt.Errorf("model: operation %d in problem state is no call", op.Kind)
		}
		r := &out[i]
		*r = arch.Result{Count: 1, Regs: op.Regs, Flags: op.Flags}
		if _, t := m.hypervisor().call(&process, op.Arg[0], &r.Regs, &r.Flags); t.raised {
			r.Trap, r.Code = 1+t.vector, t.code
		}
	}
	return out, nil
}

package model

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/ppc64le"
	"pvabi/conformance/microvm"
)

// The hypervisor of powerpc-papr, after PAPR's own text and not after an implementer: what KVM-HV and
// QEMU are known to do otherwise is in hosts of their own. Of the guest's kernel there is what programs
// rely on: an area of each CPU, and a decrementer that is set far away once it was taken.

// papr is the hypervisor of one machine. Its functions are the steps that it is made of; they are
// variables so that a mutant can replace one.
type papr struct {
	m    *machine
	abi  *abi.Platform
	cpus []paprCPU
	// lacks are calls of function sets that are offered and are missing all the same.
	lacks []string

	user     func(c *cpu, regs *[16]uint64)
	unknown  func(number uint64) int64
	call1    func(c *cpu, call abi.Call, regs *[16]uint64) int64
	absent   func(id uint64) *cpu
	register func(c *cpu, function int64, address uint64) int64
	checks   func(function int64, address uint64) int64
	aligned  func(function int64, address uint64) bool
	length   func(function int64, length uint64) bool
	across   func(function int64, address, length uint64) bool
	cede     func(c *cpu) int64
	prod     func(to *cpu)
	confer   func(c *cpu, id, count uint64) int64
	join     func(c *cpu) int64
	pending  func(c *cpu) bool
	dispatch func(c *cpu)
	undone   func(c *cpu)
	trace    func(c *cpu)
	restore  func(c *cpu, before [16]uint64, after *[16]uint64)
}

// paprWait is what a CPU waits in.
type paprWait int

const (
	paprRuns paprWait = iota
	paprCeded
	paprJoined
)

// paprCPU is what the hypervisor keeps of a CPU.
type paprCPU struct {
	prodded  bool
	again    bool // a mutant's
	external bool
	wait     paprWait
	// off tells that the CPU is not dispatched, since then.
	off   bool
	since uint64
	// why is the reason of the next dispatch.
	why byte
	// vpa, dtl and slb are addresses of areas, 0 for none, own that of the kernel's vpa. dtlLength is in
	// bytes, of whole entries.
	vpa, dtl, slb, own, dtlLength uint64
	// dec is what the decrementer was set to, at the clock's decAt; idled is what of that went by in
	// waits. far says that it was set to expire in no time that matters.
	dec   int64
	decAt uint64
	idled uint64
	far   bool
}

const (
	// paprFar is from where on the decrementer is taken for one that never expires.
	paprFar = 1<<31 - 1
	// paprPassed is how many ticks go by each time that the host looks for something to do and finds none.
	paprPassed = 1 << 18
	// the subfunctions of REGISTER_VPA, as bits 45 to 47 have them.
	paprVPA, paprDTL, paprSLB, paprOffVPA, paprOffDTL, paprOffSLB = 1, 2, 3, 5, 6, 7
	// reasons of a dispatch
	paprByInterrupt, paprByProd, paprByDecrementer, paprByTimeSlice = 0, 2, 3, 7
)

// PAPRFunctions is the property ibm,hypertas-functions of the model's hosts.
func PAPRFunctions() []byte {
	return []byte("hcall-splpar\x00hcall-join\x00hcall-poll-pending\x00hcall-pic\x00hcall-vphn\x00")
}

// paprHosts are a hypervisor that keeps all that PAPR says, and QEMU.
func paprHosts() []Host {
	return []Host{{Name: "papr", Text: "A hypervisor that keeps PAPR to the letter.", Open: openPAPR(nil)}}
}

// PAPRAsQEMU opens machines of the model with what QEMU is known to do otherwise.
func PAPRAsQEMU() Opener { return openPAPR(asQEMU) }

// asQEMU makes QEMU of it (QEMU 11.1, hw/ppc/spapr_hcall.c and spapr.c).
func asQEMU(p *papr) {
	p.lacks = []string{"GET_PPP", "SET_PPP", "PURR"}
	prod := p.prod
	p.prod = func(to *cpu) {
		if prod(to); p.of(to).wait == paprRuns { // a kick out of the CPU's loop; coming back is a dispatch
			p.of(to).prodded = false
		}
	}
	absent := p.absent
	p.absent = func(id uint64) *cpu { return absent(uint64(uint32(id))) }
	p.pending = func(c *cpu) bool { // a CPU that joined is halted as any other
		return p.of(c).prodded || p.of(c).external || p.expired(c)
	}
	checks, aligned := p.checks, p.aligned
	p.checks = func(function int64, address uint64) int64 {
		if address == 0 {
			return p.abi.Errno("HARDWARE")
		}
		return checks(function, address)
	}
	p.aligned = func(function int64, address uint64) bool { return function != paprVPA || aligned(function, address) }
	p.trace = func(*cpu) {}
}

// paprMachine is a machine of a partition's CPUs, as package conformance wants it.
type paprMachine struct {
	*machine
}

func openPAPR(change func(p *papr)) Opener {
	return func(seed uint64, c microvm.Config) (microvm.Machine, error) {
		m, err := newMachine(seed, c, func(m *machine) hypervisor {
			p := &papr{m: m, abi: abi.PowerPCPAPR(), cpus: make([]paprCPU, len(m.cpus))}
			p.user, p.call1, p.absent, p.register, p.checks = p.refuse, p.carryOut, p.find, p.doRegister, p.doCheck
			p.cede, p.prod, p.confer, p.join, p.pending = p.doCede, p.doProd, p.doConfer, p.doJoin, p.isPending
			p.unknown = p.isUnknown
			p.aligned, p.length, p.across = p.isAligned, p.isLong, p.isAcross
			p.dispatch, p.undone, p.trace = p.doDispatch, p.doUndispatch, p.doTrace
			p.restore = func(*cpu, [16]uint64, *[16]uint64) {}
			if change != nil {
				change(p)
			}
			for i := range p.cpus {
				at := p.kernelArea()
				p.cpus[i] = paprCPU{own: at, far: true}
				p.register(m.cpus[i], paprVPA, at)
			}
			return p
		})
		if err != nil {
			return nil, err
		}
		return paprMachine{m}, nil
	}
}

// kernelArea sets memory aside for the area of a CPU's kernel.
func (p *papr) kernelArea() uint64 {
	m, l := p.m, p.abi.Layout("lppaca")
	boundary := p.limit("BOUNDARY")
	at := (memoryBase + uint64(len(m.memory)) + boundary - 1) / boundary * boundary
	m.memory = append(m.memory, make([]byte, at+boundary-memoryBase-uint64(len(m.memory)))...)
	p.put(at, "size", l.Size)
	return at
}

func (p *papr) of(c *cpu) *paprCPU { return &p.cpus[c.index] }

func (p *papr) limit(name string) uint64 {
	return uint64(p.abi.Call("REGISTER_VPA").Arg("area").Value(name))
}

// get and put are accesses to areas, which are big-endian.
func (p *papr) get(area uint64, field string) uint64 {
	f := p.abi.Layout("lppaca").Field(field)
	return p.read(area+f.Offset, f.Size)
}

func (p *papr) put(area uint64, field string, value uint64) {
	f := p.abi.Layout("lppaca").Field(field)
	p.write(area+f.Offset, f.Size, value)
}

func (p *papr) read(at, size uint64) uint64 {
	var word [8]byte
	copy(word[8-size:], p.m.memory[at-memoryBase:][:size])
	return binary.BigEndian.Uint64(word[:])
}

func (p *papr) write(at, size, value uint64) {
	var word [8]byte
	binary.BigEndian.PutUint64(word[:], value)
	copy(p.m.memory[at-memoryBase:][:size], word[8-size:])
}

func (p *papr) isa() *arch.ISA { return ppc64le.ISA }

var (
	paprR3  = ppc64le.ISA.Register("r3")
	paprMSR = ppc64le.ISA.Register("msr")
)

// call is the instruction sc 1.
func (p *papr) call(c *cpu, _ uint64, regs *[16]uint64, _ *uint64) (uint64, trap) {
	before := *regs
	if c.user {
		p.user(c, regs)
	} else {
		regs[paprR3] = uint64(p.dispatchCall(c, regs))
	}
	ee := p.abi.Register("MSR").Bit("EE")
	regs[paprMSR] &^= ee
	if c.interrupts {
		regs[paprMSR] |= ee
	}
	p.restore(c, before, regs)
	return p.abi.Conventions[0].Instructions[0].Length, trap{}
}

func (p *papr) refuse(_ *cpu, regs *[16]uint64) { regs[paprR3] = uint64(p.abi.Errno("PRIVILEGE")) }

func (p *papr) dispatchCall(c *cpu, regs *[16]uint64) int64 {
	for _, k := range p.abi.Calls {
		if k.Number == regs[paprR3] && !slices.Contains(p.lacks, k.Name) {
			return p.call1(c, k, regs)
		}
	}
	return p.unknown(regs[paprR3])
}

func (p *papr) isUnknown(uint64) int64 { return p.abi.Errno("FUNCTION") }

func (p *papr) carryOut(c *cpu, k abi.Call, regs *[16]uint64) int64 {
	a := regs[ppc64le.ISA.Register("r4"):]
	switch k.Name {
	case "REGISTER_VPA":
		to := p.absent(a[1])
		if to == nil {
			return p.abi.Errno("PARAMETER")
		}
		return p.register(to, int64(a[0]>>45&7), a[2])
	case "CEDE":
		return p.cede(c)
	case "CONFER":
		return p.confer(c, a[0], a[1])
	case "PROD":
		to := p.absent(a[0])
		if to == nil {
			return p.abi.Errno("PARAMETER")
		}
		p.prod(to)
		return 0
	case "JOIN":
		return p.join(c)
	case "SET_PPP":
		if a[1] > uint64(k.Arg("weight").Value("WEIGHT_MAXIMUM")) {
			return p.abi.Errno("PARAMETER")
		}
	case "HOME_NODE_ASSOCIATIVITY":
		if p.absent(a[1]) == nil {
			return p.abi.Errno("P2")
		}
	case "SIGNAL_SYS_RESET":
		return p.abi.Errno("PARAMETER")
	}
	return 0
}

// find returns the CPU of that number, or nil.
func (p *papr) find(id uint64) *cpu {
	for _, c := range p.m.cpus {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (p *papr) doRegister(c *cpu, function int64, address uint64) int64 {
	s := p.of(c)
	switch function {
	case paprVPA, paprDTL, paprSLB:
		if r := p.checks(function, address); r != 0 {
			return r
		}
		if function != paprVPA && s.vpa == 0 {
			return p.abi.Errno("RESOURCE")
		}
		switch function {
		case paprVPA:
			s.vpa = address
			p.put(address, "__old_status", p.get(address, "__old_status")|p.abi.Layout("lppaca").Bit("__old_status", "SHARED_PROC"))
		case paprDTL:
			size := p.abi.Layout("dtl_entry").Size
			s.dtl, s.dtlLength = address, p.read(address+p.limit("LENGTH_AT"), 4)/size*size
		case paprSLB:
			s.slb = address
		}
	case paprOffVPA:
		if s.dtl != 0 || s.slb != 0 {
			return p.abi.Errno("RESOURCE")
		}
		s.vpa = 0
	case paprOffDTL:
		s.dtl = 0
	case paprOffSLB:
		s.slb = 0
	default:
		return p.abi.Errno("PARAMETER")
	}
	return 0
}

// doCheck holds the address and the length of an area against what they have to be.
func (p *papr) doCheck(function int64, address uint64) int64 {
	bad := p.abi.Errno("PARAMETER")
	if address == 0 || !p.aligned(function, address) || !p.m.mapped(address, p.limit("ALIGNMENT")) {
		return bad
	}
	size := uint64(4)
	if function == paprVPA {
		size = 2
	}
	length := p.read(address+p.limit("LENGTH_AT"), size)
	if !p.length(function, length) || p.across(function, address, length) {
		return bad
	}
	return 0
}

func (p *papr) isAligned(_ int64, address uint64) bool { return address%p.limit("ALIGNMENT") == 0 }

func (p *papr) isLong(function int64, length uint64) bool {
	return length >= map[int64]uint64{paprVPA: p.limit("VPA_MINIMUM"), paprDTL: p.limit("DTL_MINIMUM"), paprSLB: p.limit("SLB_MINIMUM")}[function]
}

func (p *papr) isAcross(function int64, address, length uint64) bool {
	return function != paprDTL && address%p.limit("BOUNDARY")+length > p.limit("BOUNDARY")
}

// wait is not asked: a Wait is the call CEDE.
func (p *papr) wait(*cpu) waiting { return goesOn }

// waitCall does a Wait.
func (p *papr) waitCall(c *cpu, interrupts bool, op *arch.Op, r *arch.Result) trap {
	c.interrupts = interrupts
	regs, flags := op.Regs, op.Flags
	regs[paprR3] = p.abi.Call("CEDE").Number
	_, t := p.call(c, 0, &regs, &flags)
	r.Regs, r.Flags = regs, flags
	c.interrupts = false
	return t
}

func (p *papr) doCede(c *cpu) int64 {
	p.sleep(c, paprCeded)
	c.interrupts = true
	p.interrupt(c)
	return 0
}

// sleep has a CPU wait for what ends that kind of wait; a prod is used up by it.
func (p *papr) sleep(c *cpu, kind paprWait) {
	s := p.of(c)
	s.wait = kind
	switch {
	case !p.pending(c):
		c.block()
	case !s.prodded: // the CPU is given up all the same, and dispatched again
		s.since = p.m.clock
		p.undone(c)
		p.why(c)
		p.dispatch(c)
	}
	s.wait, s.prodded = paprRuns, false
}

func (p *papr) why(c *cpu) {
	switch s := p.of(c); {
	case s.prodded:
		s.why = paprByProd
	case p.expired(c):
		s.why = paprByDecrementer
	default:
		s.why = paprByInterrupt
	}
}

// isPending tells whether something is there that ends the wait.
func (p *papr) isPending(c *cpu) bool {
	s := p.of(c)
	return s.prodded || s.wait != paprJoined && (s.external || p.expired(c))
}

func (p *papr) doProd(to *cpu) { p.of(to).prodded = true }

func (p *papr) doConfer(c *cpu, id, count uint64) int64 {
	if int64(id) == p.abi.Call("CONFER").Arg("processor").Value("ALL") {
		return 0
	}
	to := p.absent(uint64(uint32(id)))
	switch {
	case to == nil:
		return p.abi.Errno("PARAMETER")
	case to == c:
		p.sleep(c, paprJoined)
	}
	return 0
}

func (p *papr) doJoin(c *cpu) int64 {
	if c.interrupts {
		return p.abi.Errno("BAD_MODE")
	}
	alone := true
	for _, o := range p.m.cpus {
		alone = alone && (o == c || p.of(o).wait == paprJoined)
	}
	if alone {
		return p.abi.Errno("CONTINUE")
	}
	p.sleep(c, paprJoined)
	return 0
}

// expired tells whether the decrementer is negative, or about to be.
func (p *papr) expired(c *cpu) bool { return !p.of(c).far && p.left(c) <= 0 }

func (p *papr) left(c *cpu) int64 {
	s := p.of(c)
	return s.dec - int64(p.m.clock-s.decAt) - int64(s.idled)
}

func (p *papr) setDecrementer(c *cpu, n uint64) {
	s := p.of(c)
	s.dec, s.decAt, s.idled, s.far = int64(int32(n)), p.m.clock, 0, n&(1<<32-1) >= paprFar && int32(n) > 0
}

func (p *papr) readRegister(c *cpu, number uint64) (uint64, trap) {
	if number != p.abi.Register("DEC").Number {
		return 0, trap{}
	}
	if p.of(c).far {
		return paprFar, trap{}
	}
	return uint64(p.left(c)), trap{}
}

func (p *papr) writeRegister(c *cpu, number, value uint64) trap {
	if number == p.abi.Register("DEC").Number {
		p.setDecrementer(c, value)
	}
	return trap{}
}

func (p *papr) discover(*cpu, uint64, uint64) [16]uint64 { return [16]uint64{} }

// awake has time go by while the host looks for something to do.
func (p *papr) awake(c *cpu) bool {
	p.of(c).idled += paprPassed
	return p.pending(c)
}

func (p *papr) woken(*cpu) {}

func (p *papr) interrupt(c *cpu) {
	s := p.of(c)
	if !c.interrupts || c.user {
		return
	}
	if s.external {
		s.external = false
		p.m.taken++
	}
	if p.expired(c) {
		p.setDecrementer(c, paprFar)
	}
}

func (p *papr) enter(c *cpu) {
	if s := p.of(c); s.off {
		s.off = false
		if s.wait != paprRuns {
			p.why(c)
		}
		p.dispatch(c)
	}
}

func (p *papr) leave(c *cpu, why reason) {
	s := p.of(c)
	if why == exits || s.off {
		return
	}
	s.off, s.since, s.why = true, p.m.clock, paprByTimeSlice
	p.undone(c)
}

// doDispatch writes the area of a CPU that begins to run, doUndispatch that of one that ends.
func (p *papr) doDispatch(c *cpu) {
	s := p.of(c)
	if s.vpa == 0 {
		return
	}
	n := p.get(s.vpa, "yield_count") + 1
	p.put(s.vpa, "yield_count", n+n%2)
	p.put(s.vpa, "enqueue_dispatch_tb", p.get(s.vpa, "enqueue_dispatch_tb")+p.m.clock-s.since)
	p.trace(c)
}

func (p *papr) doUndispatch(c *cpu) {
	s := p.of(c)
	if s.vpa == 0 {
		return
	}
	n := p.get(s.vpa, "yield_count") + 1
	p.put(s.vpa, "yield_count", n+1-n%2)
}

// doTrace writes an entry of the dispatch trace log.
func (p *papr) doTrace(c *cpu) {
	s, lppaca, l := p.of(c), p.abi.Layout("lppaca"), p.abi.Layout("dtl_entry")
	if s.dtl == 0 || p.get(s.vpa, "dtl_enable_mask")&lppaca.Bit("dtl_enable_mask", "CEDE") == 0 {
		return
	}
	n := p.get(s.vpa, "dtl_idx")
	at := s.dtl + n%(s.dtlLength/l.Size)*l.Size
	for i := range l.Size {
		p.write(at+i, 1, 0)
	}
	put := func(field string, value uint64) {
		f := l.Field(field)
		p.write(at+f.Offset, f.Size, value)
	}
	put("dispatch_reason", uint64(s.why))
	put("preempt_reason", 2)
	put("timebase", p.m.clock)
	p.put(s.vpa, "dtl_idx", n+1)
}

func (p *papr) counter(*cpu, string) (uint64, bool) { return 0, false }

// access and privilege are exceptions, of which Linux does not tell which.
func (p *papr) access() trap    { return trap{raised: true} }
func (p *papr) privilege() trap { return trap{raised: true} }

func (m paprMachine) hypervisor() *papr { return m.hv.(*papr) }

// Real implements conformance.PAPRMachine.
func (m paprMachine) Real(a arch.Area) (uint64, error) { return a.Address(), nil }

// Area implements conformance.PAPRMachine.
func (m paprMachine) Area(cpu int) ([]byte, error) {
	m.look(cpu)
	defer m.mu.Unlock()
	p := m.hypervisor()
	at := p.cpus[cpu].own
	return slices.Clone(m.memory[at-memoryBase:][:p.abi.Layout("lppaca").Size]), nil
}

// AreaAddress implements conformance.PAPRMachine.
func (m paprMachine) AreaAddress(cpu int) (address, real uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.hypervisor().cpus[cpu].own
	return at, at, nil
}

// Disturbed implements conformance.PAPRMachine.
func (m paprMachine) Disturbed() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken, nil
}

// Interrupt implements conformance.PAPRMachine.
func (m paprMachine) Interrupt() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.cpus {
		if c.state != idle {
			m.hypervisor().of(c).external = true
		}
	}
	return nil
}

// Unprivileged implements conformance.PAPRMachine. Of programs it takes calls.
func (m paprMachine) Unprivileged(_ context.Context, program arch.Program) ([]arch.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	process := *m.cpus[0]
	process.user = true
	var out []arch.Result
	for _, op := range program {
		if op.Kind != arch.Call {
			return nil, fmt.Errorf("model: operation %d in problem state is no call", op.Kind)
		}
		r := arch.Result{Count: 1, Regs: op.Regs, Flags: op.Flags}
		m.hypervisor().call(&process, op.Arg[0], &r.Regs, &r.Flags)
		out = append(out, r)
	}
	return out, nil
}

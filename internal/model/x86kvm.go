package model

import (
	"fmt"
	"math/bits"
	"slices"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// The hypervisor of x86-kvm, after the KVM of Linux 7.2.12: files are those under
// arch/x86/kvm. What it writes of its own accord is in x86kvm_areas.go. Not modelled are SIPI,
// SMI, level-triggered interrupts and the page tables of the guest.

// x86KVM is the hypervisor of one machine. Its functions are the steps that it is made of,
// after KVM's own; they are variables so that a mutant can replace one.
type x86KVM struct {
	m    *machine
	abi  *abi.Platform
	cpus []x86CPU
	// layouts are those that were looked up in abi.
	layouts map[string]abi.Layout
	// wallClock is kvm->arch.wall_clock.
	wallClock uint64
	// What hosts differ in: the vendor of the processor, whether it has AVX, whether its
	// TSC is the host's clock, and whether the host keeps scheduler statistics.
	intel, noAVX, otherClock, noStatistics bool

	hypercall  func(c *cpu, number uint64, args [4]uint64) int64
	number     func(rax uint64) uint64
	privileged func(c *cpu) bool
	foreign    func(c *cpu) trap
	tell       func(c *cpu, number uint64, a [4]uint64) int64
	ranged     func(address, pages uint64) bool
	pair       func(a x86Area)
	flush      func(c *cpu)
	commanded  func(c *cpu, icr uint64) bool
	result32   func(result uint64) uint64
	offered    func(c *cpu, feature string) bool
	kick       func(c *cpu, args [4]uint64) int64
	yield      func(c *cpu, target uint64)
	match      func(id uint32) []*cpu
	send       func(c *cpu, args [4]uint64) int64
	accept     func(target *cpu, mode, vector uint64) int64
	// withdraws tells whether PV_UNHALT is withdrawn where it has no use, cluster how many ids a
	// word of a bitmap of SEND_IPI is for.
	withdraws bool
	cluster   func(c *cpu) uint32
	runnable  func(c *cpu)
	hasEvents func(c *cpu) bool
	halt      func(c *cpu) waiting
	setMSR    func(c *cpu, r abi.Register, value uint64) bool
	getMSR    func(c *cpu, r abi.Register) uint64
	record    func(c *cpu)
	clear     func(c *cpu, s x86Area)
	publish   func(c *cpu, s x86Area, delay uint64)
	put       func(c *cpu, why reason)
	cpuid     func(c *cpu, leaf, subleaf uint32) [4]uint32
	base      func() uint64
	find      func(c *cpu, number uint64) (abi.Register, bool)

	// What is in x86kvm_areas.go.
	updateClock func(c *cpu)
	wallTime    func(address uint64)
	initCPU     func(c *cpu)
	eoiToGuest  func(c *cpu)
	eoiEnded    func(c *cpu, word uint64) bool
	endOfIRQ    func(c *cpu)
	// atAPIC is where the guest ends an interrupt at the APIC, and interruptible tells whether it
	// takes interrupts.
	atAPIC        func(c *cpu)
	interruptible func(c *cpu) bool
	// absent is where a CPU has reached for a page that is not there.
	absent     func(c *cpu)
	canDeliver func(c *cpu) bool
	canDequeue func(c *cpu) bool
	notPresent func(c *cpu, token uint32) trap
	present    func(c *cpu, token uint32)
	wakeAll    func(c *cpu)

	// after is where a call has come to its end, with what the guest finds.
	after func(c *cpu, regs *[16]uint64, flags *uint64, length *uint64)
}

// x86CPU is what KVM keeps of a CPU.
type x86CPU struct {
	unhalted bool      // arch.pv.pv_unhalted
	nmi      bool      // an NMI is pending
	irr, isr [4]uint64 // interrupts requested and in service at the local APIC
	apicOff  bool      // the local APIC is disabled by software
	narrow   bool      // the CPU makes a call outside of 64-bit mode
	msr      map[string]uint64
	icr      uint64
	clock    x86Clock
	eoi      x86EOI
	faults   x86Faults
	passed   []microvm.Passed // calls for the VMM
	result   uint64           // what it answers
	// delay is arch.st.last_steal, preempted arch.st.preempted.
	delay     uint64
	preempted bool
	counters  map[string]uint64
}

// x86Counters are the counters of a CPU that the model has (x86.c, kvm_vcpu_stats_desc).
var x86Counters = []string{
	"hypercalls", "halt_exits", "halt_wakeup", "irq_injections", "nmi_injections",
	"directed_yield_attempted", "directed_yield_successful", "tlb_flush", "preemption_reported", "preemption_other",
}

// quirkFixHypercall is KVM_X86_QUIRK_FIX_HYPERCALL_INSN (include/uapi/asm/kvm.h), the only
// quirk that the model can do without.
const quirkFixHypercall = 1 << 5

// exitHLT is KVM_X86_DISABLE_EXITS_HLT (include/uapi/linux/kvm.h). That HLT then does not leave the
// guest is not modelled, only what features are offered.
const exitHLT = 1 << 1

// x86KVMHosts are hosts that differ in what the ABI leaves open.
func x86KVMHosts() []Host {
	return []Host{
		{Name: "amd", Text: "A processor of AMD.", Open: openX86KVM(nil)},
		{Name: "intel", Text: "A processor of Intel, one without AVX.", Open: openX86KVM(func(x *x86KVM) { x.intel, x.noAVX = true, true })},
		{
			Name: "other-clock", Text: "A host whose clock is not the TSC.", Unreached: []string{"clock/order-across-cpus", "pairing/content", "pairing/address"},
			Open: openX86KVM(func(x *x86KVM) { x.otherClock = true }),
		},
		{
			Name: "no-statistics", Text: "A host that keeps no scheduler statistics, so that there is no STEAL_TIME.",
			Version: "5.13",
			Absent:  x86Topics("steal", "preempted"),
			Open:    openX86KVM(func(x *x86KVM) { x.noStatistics = true }),
		},
	}
}

// x86Topics lists the rules of topics.
func x86Topics(topics ...string) []string {
	var out []string
	for _, r := range abi.X86KVM().Rules {
		if slices.Contains(topics, r.Topic()) {
			out = append(out, r.Name())
		}
	}
	return out
}

// openX86KVM makes machines whose hypervisor is changed by change, if that is not nil.
func openX86KVM(change func(*x86KVM)) Opener {
	return func(seed uint64, c microvm.Config) (microvm.Machine, error) {
		if c.DisableQuirks&^quirkFixHypercall != 0 || c.DisableExits&^exitHLT != 0 {
			return nil, fmt.Errorf("model: a machine without quirks %#x and exits %#x is not modelled", c.DisableQuirks, c.DisableExits)
		}
		table := abi.X86KVM()
		return newMachine(seed, c, func(m *machine) hypervisor { return newX86KVM(m, table, change) })
	}
}

func newX86KVM(m *machine, table *abi.Platform, change func(*x86KVM)) *x86KVM {
	x := &x86KVM{m: m, abi: table, cpus: make([]x86CPU, len(m.cpus)), layouts: map[string]abi.Layout{}}
	for i := range x.cpus {
		s := &x.cpus[i]
		s.counters, s.msr = map[string]uint64{}, map[string]uint64{}
		for _, r := range x.abi.Registers {
			s.msr[r.Name] = r.Reset
		}
	}
	x.hypercall, x.number, x.privileged, x.offered = x.kvmHypercall, sameNumber, isPrivileged, x.guestPVHas
	x.ranged = goodRange
	x.tell, x.pair, x.flush = x.tellVMM, x.writePair, x.flushTLB
	x.send, x.foreign = x.sendIPI, x.fixForeign
	x.commanded = func(*cpu, uint64) bool { return true }
	x.result32, x.withdraws, x.cluster = cut, true, x.clusterSize
	x.kick, x.yield, x.match, x.accept = x.pvKick, x.schedYield, x.matchPhysical, x.acceptIRQ
	x.runnable, x.hasEvents, x.halt = x.setRunnable, x.vcpuHasEvents, x.emulateHalt
	x.setMSR, x.getMSR = x.setMSRCommon, x.getMSRCommon
	x.record, x.clear, x.publish, x.put = x.recordStealTime, x.clearPreempted, x.publishSteal, x.vcpuPut
	x.cpuid, x.base = x.guestCPUID, x.findBase
	x.find = x.register
	x.updateClock, x.wallTime, x.initCPU = x.guestTimeUpdate, x.writeWallClock, x.vcpuReset
	x.eoiToGuest, x.eoiEnded, x.endOfIRQ = x.syncEOIToGuest, eoiWordClear, x.setEOI
	x.absent, x.atAPIC = func(*cpu) {}, x.exitEOI
	x.interruptible = func(c *cpu) bool { return c.interrupts }
	x.canDeliver, x.canDequeue = x.canDeliverFault, x.canDequeuePresent
	x.notPresent, x.present, x.wakeAll = x.pageNotPresent, x.pagePresent, x.wakeupAll
	x.after = func(*cpu, *[16]uint64, *uint64, *uint64) {}
	if change != nil {
		change(x)
	}
	return x
}

func (x *x86KVM) isa() *arch.ISA { return amd64.ISA }

func (x *x86KVM) state(c *cpu) *x86CPU { return &x.cpus[c.index] }

func (x *x86KVM) count(c *cpu, counter string) { x.state(c).counters[counter]++ }

func (x *x86KVM) counter(c *cpu, name string) (uint64, bool) {
	return x.state(c).counters[name], slices.Contains(x86Counters, name)
}

// Exceptions (Intel SDM volume 3, "Exception and interrupt reference").
func x86Undefined() trap          { return trap{raised: true, vector: 6} }
func (x *x86KVM) privilege() trap { return trap{raised: true, vector: 13} }
func (x *x86KVM) access() trap    { return trap{raised: true, vector: 14} }

// Calls.

// call is the intercept of both forms of the instruction. The one that is not native raises
// an undefined opcode exception, on which KVM rewrites the instruction and runs it again; the
// emulator, which does so, holds it for privileged (emulate.c, em_hypercall; x86.c,
// emulator_fix_hypercall).
func (x *x86KVM) call(c *cpu, form uint64, regs *[16]uint64, flags *uint64) (uint64, trap) {
	isa := x.isa()
	regs[isa.Register("rsp")] = 0
	if isa.Instructions[form] != x.native() {
		if t := x.foreign(c); t.raised {
			return 0, t
		}
	}
	conv := x.abi.Convention("long mode")
	var args [4]uint64
	for i, name := range conv.Args {
		args[i] = regs[isa.Register(name)]
	}
	number := regs[isa.Register(conv.Number)]
	regs[isa.Register(conv.Result)] = uint64(x.hypercall(c, number, args))
	length := conv.Instructions[slices.IndexFunc(conv.Instructions, func(i abi.Instruction) bool { return i.Mnemonic == x.native() })].Length
	x.after(c, regs, flags, &length)
	return length, trap{}
}

// fixForeign is what comes of an instruction that is not native: an exception, or none where it is
// rewritten.
func (x *x86KVM) fixForeign(c *cpu) trap {
	switch {
	case c.user:
		return x.privilege()
	case x.m.config.DisableQuirks&quirkFixHypercall != 0:
		return x86Undefined()
	}
	return trap{}
}

// callIn is a call outside of 64-bit mode: registers have 32 bits, and so has the result.
func (x *x86KVM) callIn(c *cpu, form uint64, regs *[16]uint64, flags *uint64) trap {
	const low = 1<<32 - 1
	for i := range regs {
		regs[i] &= low
		if i >= x.isa().Register("r8") {
			regs[i] = 0
		}
	}
	s := x.state(c)
	s.narrow = true
	defer func() { s.narrow = false }()
	_, t := x.call(c, form, regs, flags)
	regs[x.isa().Register("rax")] = x.result32(regs[x.isa().Register("rax")])
	return t
}

// cut is what a result is cut to outside of 64-bit mode.
func cut(result uint64) uint64 { return result & (1<<32 - 1) }

// native is the form of the call instruction that is the processor's own.
func (x *x86KVM) native() string {
	if x.intel {
		return "vmcall"
	}
	return "vmmcall"
}

// sameNumber: in 64-bit mode RAX is the number as it is (x86.c, ____kvm_emulate_hypercall;
// regs.h, is_64_bit_hypercall).
func sameNumber(rax uint64) uint64 { return rax }

// isPrivileged tells whether the CPU is at CPL 0.
func isPrivileged(c *cpu) bool { return !c.user }

// kvmHypercall is ____kvm_emulate_hypercall of x86.c.
func (x *x86KVM) kvmHypercall(c *cpu, number uint64, a [4]uint64) int64 {
	x.count(c, "hypercalls")
	if !x.privileged(c) {
		return x.abi.Errno("EPERM")
	}
	number = x.number(number)
	at := slices.IndexFunc(x.abi.Calls, func(k abi.Call) bool { return k.Number == number && !k.Undefined })
	if at < 0 {
		return x.abi.Errno("ENOSYS")
	}
	call := x.abi.Calls[at]
	if call.Feature != "" && !x.offered(c, call.Feature) {
		return x.abi.Errno("ENOSYS")
	}
	switch call.Name {
	case "KICK_CPU":
		return x.kick(c, a)
	case "CLOCK_PAIRING":
		return x.clockPairing(a[0], a[1])
	case "SEND_IPI":
		return x.send(c, a)
	case "SCHED_YIELD":
		x.yield(c, a[0])
	case "MAP_GPA_RANGE":
		return x.mapRange(c, call.Number, a)
	}
	return 0
}

// guestPVHas is guest_pv_has of cpuid.h: without enforcement everything is there. The
// features are those of the leaf that KVM finds by the signature (cpuid.c,
// kvm_apply_cpuid_pv_features_quirk).
func (x *x86KVM) guestPVHas(c *cpu, feature string) bool {
	if !x.m.config.Enforce {
		return true
	}
	leaf := x.base() + x.abi.Word("features-leaf")
	return x.guestCPUID(c, uint32(leaf), 0)[0]>>x.abi.Feature(feature).Bit&1 == 1
}

// findBase is kvm_get_hypervisor_cpuid of cpuid.c.
func (x *x86KVM) findBase() uint64 {
	first, last, step := x.abi.Word("first-leaf"), x.abi.Word("last-leaf"), x.abi.Word("leaf-step")
	for base := first; base <= last; base += step {
		if l := x.guestCPUID(nil, uint32(base), 0); uint64(l[1]) == x.abi.Word("signature-ebx") &&
			uint64(l[2]) == x.abi.Word("signature-ecx") && uint64(l[3]) == x.abi.Word("signature-edx") {
			return base
		}
	}
	return 0
}

// Delivery modes of the interrupt command register (asm/apicdef.h).
const (
	dmFixed      = 0
	dmLowest     = 1
	dmRemoteRead = 3
	dmNMI        = 4
	dmInit       = 5
)

// pvKick is the case KVM_HC_KICK_CPU: kvm_pv_kick_cpu_op, which takes the id as an int, and
// then kvm_sched_yield with all of it. The flags, a[0], are not read.
func (x *x86KVM) pvKick(c *cpu, a [4]uint64) int64 {
	for _, target := range x.match(uint32(a[1])) {
		x.accept(target, dmRemoteRead, 0)
	}
	x.yield(c, a[1])
	return 0
}

// matchPhysical is kvm_irq_delivery_to_apic of lapic.c for a physical destination of no
// source: kvm_apic_is_broadcast_dest, kvm_apic_map_get_dest_lapic.
func (x *x86KVM) matchPhysical(id uint32) []*cpu {
	const broadcast = 0xff
	if id == broadcast {
		return x.m.cpus
	}
	return x.byID(uint64(id))
}

func (x *x86KVM) byID(id uint64) []*cpu {
	for _, c := range x.m.cpus {
		if c.id == id {
			return []*cpu{c}
		}
	}
	return nil
}

// acceptIRQ is __apic_accept_irq of lapic.c.
func (x *x86KVM) acceptIRQ(target *cpu, mode, vector uint64) int64 {
	s := x.state(target)
	switch mode {
	case dmFixed, dmLowest:
		if s.apicOff {
			return 0
		}
		s.irr[vector/64] |= 1 << (vector % 64)
	case dmRemoteRead:
		s.unhalted = true
	case dmNMI:
		s.nmi = true
	case dmInit:
		x.initCPU(target)
	default:
		return 0
	}
	return 1
}

// schedYield is kvm_sched_yield of x86.c. A target is ready while the host keeps it waiting.
func (x *x86KVM) schedYield(c *cpu, id uint64) {
	x.count(c, "directed_yield_attempted")
	for _, target := range x.byID(id) {
		if target != c && target.queued && target.crowd == c.crowd {
			x.count(c, "directed_yield_successful")
			c.crowd.yield(target)
		}
	}
}

// clockPairing is kvm_pv_clock_pairing of x86.c.
func (x *x86KVM) clockPairing(address, clock uint64) int64 {
	l := x.abi.Layout("kvm_clock_pairing")
	switch {
	case clock != 0 || x.otherClock:
		return x.abi.Errno("EOPNOTSUPP")
	case !x.m.mapped(address, l.Size):
		return x.abi.Errno("EFAULT")
	}
	x.pair(x86Area{x.m, l, address})
	return 0
}

// writePair writes the time of day and the TSC.
func (x *x86KVM) writePair(a x86Area) {
	for i := range a.layout.Size {
		x.m.store(a.address+i, 1, 0)
	}
	now := x.timeOfDay()
	a.set("sec", now/second)
	a.set("nsec", now%second)
	a.set("tsc", x.m.clock)
}

// clusterSize is cluster_size of kvm_pv_send_ipi.
func (x *x86KVM) clusterSize(c *cpu) uint32 {
	if x.state(c).narrow {
		return 32
	}
	return 64
}

// sendIPI is kvm_pv_send_ipi of lapic.c. The lowest id is counted in 32 bits.
func (x *x86KVM) sendIPI(c *cpu, a [4]uint64) int64 {
	const logical, shorthand, modes = 0x800, 0xc0000, 7
	icr := a[3]
	if icr&(logical|shorthand) != 0 {
		return x.abi.Errno("EINVAL")
	}
	var accepted int64
	for half, bitmap := range a[:2] {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			lowest := uint32(a[2]) + uint32(half)*x.cluster(c)
			for _, target := range x.byID(uint64(lowest) + uint64(bits.TrailingZeros64(bitmap))) {
				accepted += x.accept(target, icr>>8&modes, icr&0xff)
			}
		}
	}
	return accepted
}

// mapRange is the case KVM_HC_MAP_GPA_RANGE.
func (x *x86KVM) mapRange(c *cpu, number uint64, a [4]uint64) int64 {
	address, pages := a[0], a[1]
	switch {
	case x.m.config.ExitHypercalls>>number&1 == 0:
		return x.abi.Errno("ENOSYS")
	case !x.ranged(address, pages):
		return x.abi.Errno("EINVAL")
	}
	return x.tell(c, number, a)
}

// goodRange tells whether a range is whole pages and does not wrap.
func goodRange(address, pages uint64) bool {
	const page = 4096
	return address%page == 0 && address/page+pages > address/page
}

// tellVMM leaves for the VMM, and comes back with what it answers.
func (x *x86KVM) tellVMM(c *cpu, number uint64, a [4]uint64) int64 {
	s := x.state(c)
	s.passed = append(s.passed, microvm.Passed{Number: number, Args: [3]uint64(a[:3])})
	return int64(s.result)
}

func (x *x86KVM) passed(c *cpu) []microvm.Passed { return x.state(c).passed }

func (x *x86KVM) answer(c *cpu, result uint64) { x.state(c).result = result }

// Waits.

func (x *x86KVM) wait(c *cpu) waiting { return x.halt(c) }

// emulateHalt is __kvm_emulate_halt of x86.c.
func (x *x86KVM) emulateHalt(c *cpu) waiting {
	x.count(c, "halt_exits")
	switch {
	case x.m.config.IRQChip == microvm.None:
		return leaves
	case x.hasEvents(c) || x.state(c).unhalted:
		x.runnable(c)
		return goesOn
	}
	return sleeps
}

// awake is kvm_arch_vcpu_runnable of x86.c. A CPU that waits for a page waits for nothing else.
func (x *x86KVM) awake(c *cpu) bool {
	s := x.state(c)
	if s.faults.waits {
		return x.m.withheld[s.faults.page] == nil
	}
	return s.unhalted || len(s.faults.done) > 0 && x.canDequeue(c) || x.hasEvents(c)
}

// woken is the end of vcpu_block of x86.c.
func (x *x86KVM) woken(c *cpu) {
	x.count(c, "halt_wakeup")
	x.runnable(c)
}

// setRunnable is kvm_set_mp_state of x86.h for KVM_MP_STATE_RUNNABLE: whatever was the
// reason, of a kick nothing is left.
func (x *x86KVM) setRunnable(c *cpu) { x.state(c).unhalted = false }

// vcpuHasEvents is kvm_vcpu_has_events of x86.c.
func (x *x86KVM) vcpuHasEvents(c *cpu) bool {
	s := x.state(c)
	return s.nmi || c.interrupts && s.deliverable() >= 0
}

// highest is the highest vector in a register of the local APIC, -1 for none.
func highest(r [4]uint64) int {
	for i := len(r) - 1; i >= 0; i-- {
		if r[i] != 0 {
			return 64*i + bits.Len64(r[i]) - 1
		}
	}
	return -1
}

// deliverable is the vector to take next: the highest that is requested, if its class is above
// that of what is in service (lapic.c, apic_has_interrupt_for_ppr), or else -1.
func (s *x86CPU) deliverable() int {
	v := highest(s.irr)
	if v < 0 || v>>4 <= max(highest(s.isr), 0)>>4 {
		return -1
	}
	return v
}

// interrupt does what KVM has to do at a boundary between two instructions: it serves
// requests, delivers what is pending, an NMI in any case, and keeps the end-of-interrupt word.
func (x *x86KVM) interrupt(c *cpu) {
	s := x.state(c)
	x.serve(c)
	x.syncEOIFromGuest(c)
	if s.nmi {
		s.nmi = false
		c.events[amd64.NMI]++
		x.count(c, "nmi_injections")
	}
	for c.interrupts {
		v := s.deliverable()
		if v < 0 {
			break
		}
		s.irr[v/64] &^= 1 << (v % 64)
		s.isr[v/64] |= 1 << (v % 64)
		s.eoi.cache = v
		c.events[v]++
		x.count(c, "irq_injections")
		x.eoiToGuest(c)
		if v < amd64.FirstQuiet {
			// The probe's handler ends the interrupt at the APIC.
			x.exitEOI(c)
		}
	}
	x.eoiToGuest(c)
}

// Registers.

func (x *x86KVM) writeRegister(c *cpu, number, value uint64) trap {
	if x.m.config.IRQChip != microvm.None {
		switch number {
		case amd64.ICR:
			x.state(c).icr = value
			if x.commanded(c, value) {
				x.command(c, value)
			}
			return trap{}
		case amd64.EOI:
			if value != 0 {
				return x.privilege()
			}
			x.atAPIC(c)
			return trap{}
		case amd64.SVR:
			s := x.state(c)
			s.apicOff = value>>8&1 == 0
			s.faults.check = s.faults.check || !s.apicOff // KVM_REQ_APF_READY
			return trap{}
		}
	}
	r, ok := x.find(c, number)
	if !ok || !x.setMSR(c, r, value) {
		return x.privilege()
	}
	return trap{}
}

func (x *x86KVM) readRegister(c *cpu, number uint64) (uint64, trap) {
	if x.m.config.IRQChip != microvm.None {
		s := x.state(c)
		x.syncEOIFromGuest(c)
		switch {
		case number == amd64.ICR:
			return s.icr, trap{}
		case number >= amd64.ISR && number < amd64.ISR+8:
			n := number - amd64.ISR
			return s.isr[n/2] >> (n % 2 * 32) & (1<<32 - 1), trap{}
		case number >= amd64.IRR && number < amd64.IRR+8:
			n := number - amd64.IRR
			return s.irr[n/2] >> (n % 2 * 32) & (1<<32 - 1), trap{}
		}
	}
	r, ok := x.find(c, number)
	if !ok {
		return 0, x.privilege()
	}
	return x.getMSR(c, r), trap{}
}

// register finds a register that the guest may reach. MIGRATION_CONTROL is the VMM's, and
// this one has none.
func (x *x86KVM) register(c *cpu, number uint64) (abi.Register, bool) {
	at := slices.IndexFunc(x.abi.Registers, func(r abi.Register) bool { return r.Number == number })
	if at < 0 {
		return abi.Register{}, false
	}
	r := x.abi.Registers[at]
	return r, r.Name != "MIGRATION_CONTROL" && x.offered(c, r.Feature)
}

// setMSRCommon is kvm_set_msr_common of x86.c. It tells whether the value was taken.
func (x *x86KVM) setMSRCommon(c *cpu, r abi.Register, value uint64) bool {
	if value&r.Reserved != 0 {
		return false
	}
	switch s := x.state(c); r.Name {
	case "WALL_CLOCK", "WALL_CLOCK_NEW":
		x.wallClock = value
		x.wallTime(value)
	case "SYSTEM_TIME", "SYSTEM_TIME_NEW":
		// Both are arch.time. KVM_REQ_GLOBAL_CLOCK_UPDATE: the clocks of all CPUs are written.
		s.msr["SYSTEM_TIME"], s.msr["SYSTEM_TIME_NEW"] = value, value
		x.resetClock()
	case "ASYNC_PF_EN":
		// kvm_pv_enable_async_pf
		if value&r.Bit("DELIVERY_AS_PF_VMEXIT") != 0 && !x.offered(c, "ASYNC_PF_VMEXIT") ||
			value&r.Bit("DELIVERY_AS_INT") != 0 && !x.offered(c, "ASYNC_PF_INT") ||
			value != 0 && x.m.config.IRQChip == microvm.None {
			return false
		}
		on := r.Enable | r.Bit("DELIVERY_AS_INT")
		if value&on == on && !x.m.mapped(value&^0x3f, 8) {
			return false
		}
		s.msr[r.Name] = value
		if value&on == on {
			x.wakeAll(c)
		} else {
			s.faults.out, s.faults.done = nil, nil
		}
	case "ASYNC_PF_INT":
		if x.m.config.IRQChip == microvm.None {
			return false
		}
		s.msr[r.Name] = value
	case "PV_EOI_EN":
		// lapic.c, kvm_lapic_set_pv_eoi
		if value&r.Enable != 0 && !x.m.mapped(value&^3, 1) {
			return false
		}
		s.msr[r.Name] = value
	case "ASYNC_PF_ACK":
		if value&r.Bit("ACK") != 0 {
			s.faults.check = true
		}
	case "STEAL_TIME":
		if x.noStatistics {
			return false
		}
		s.msr[r.Name] = value
		// KVM_REQ_STEAL_UPDATE: the record is written before the guest goes on.
		x.record(c)
	default:
		s.msr[r.Name] = value
	}
	return true
}

// getMSRCommon is kvm_get_msr_common of x86.c.
func (x *x86KVM) getMSRCommon(c *cpu, r abi.Register) uint64 {
	switch r.Name {
	case "WALL_CLOCK", "WALL_CLOCK_NEW":
		return x.wallClock
	case "ASYNC_PF_ACK":
		return 0
	}
	return x.state(c).msr[r.Name]
}

// command is a write of the interrupt command register: kvm_x2apic_icr_write of lapic.c.
func (x *x86KVM) command(c *cpu, icr uint64) {
	const logical = 0x800
	vector, mode, destination := icr&0xff, icr>>8&7, uint32(icr>>32)
	var targets []*cpu
	switch shorthand := icr >> 18 & 3; {
	case shorthand == 1:
		targets = []*cpu{c}
	case shorthand == 2 || shorthand == 0 && destination == 1<<32-1:
		targets = x.m.cpus
	case shorthand == 3:
		targets = slices.DeleteFunc(slices.Clone(x.m.cpus), func(o *cpu) bool { return o == c })
	case icr&logical != 0:
		// kvm_apic_calc_x2apic_ldr: cluster in the high half, a bit for the CPU in the low.
		targets = slices.DeleteFunc(slices.Clone(x.m.cpus), func(o *cpu) bool {
			return uint32(o.id)>>4 != destination>>16 || destination>>(o.id&15)&1 == 0
		})
	default:
		targets = x.byID(uint64(destination))
	}
	for _, target := range targets {
		x.accept(target, mode, vector)
	}
}

// Steal time.

// x86Area is an area that host and guest share, in mapped memory.
type x86Area struct {
	m       *machine
	layout  abi.Layout
	address uint64
}

func (s x86Area) get(field string) uint64 {
	f := s.layout.Field(field)
	return s.m.load(s.address+f.Offset, f.Size)
}

func (s x86Area) set(field string, value uint64) {
	f := s.layout.Field(field)
	s.m.store(s.address+f.Offset, f.Size, value)
}

// stealTime returns the record of a CPU, false if it has none or none in memory.
func (x *x86KVM) stealTime(c *cpu) (x86Area, bool) {
	l := x.layout("kvm_steal_time")
	msr := x.state(c).msr["STEAL_TIME"]
	s := x86Area{x.m, l, msr &^ (l.Align - 1)}
	return s, msr&x.abi.Register("STEAL_TIME").Enable != 0 && x.m.mapped(s.address, l.Size)
}

// enter is kvm_arch_vcpu_load, which asks for the update of the record, and the beginning
// of vcpu_enter_guest, which does it.
func (x *x86KVM) enter(c *cpu) { x.record(c) }

// recordStealTime is record_steal_time of x86.c.
func (x *x86KVM) recordStealTime(c *cpu) {
	s, ok := x.stealTime(c)
	if !ok {
		return
	}
	x.clear(c, s)
	x.publish(c, s, c.delay-x.state(c).delay)
	x.state(c).delay = c.delay
}

func (x *x86KVM) clearPreempted(c *cpu, s x86Area) {
	if s.get("preempted")&s.layout.Bit("preempted", "FLUSH_TLB") != 0 && x.offered(c, "PV_TLB_FLUSH") {
		x.flush(c)
	}
	s.set("preempted", 0)
	x.state(c).preempted = false
}

// flushTLB is kvm_vcpu_flush_tlb_guest of x86.c.
func (x *x86KVM) flushTLB(c *cpu) { x.count(c, "tlb_flush") }

// publishSteal adds delay to steal. A version that is odd to begin with is what the guest
// left there.
func (x *x86KVM) publishSteal(c *cpu, s x86Area, delay uint64) {
	version := s.get("version")
	version += version&1 + 1
	s.set("version", version)
	c.pause()
	s.set("steal", s.get("steal")+delay)
	c.pause()
	s.set("version", version+1)
}

func (x *x86KVM) leave(c *cpu, why reason) { x.put(c, why) }

// vcpuPut is kvm_arch_vcpu_put of x86.c and what it calls, kvm_steal_time_set_preempted.
// Only a task that was taken off against its will has vcpu->preempted (virt/kvm/kvm_main.c,
// kvm_sched_out).
func (x *x86KVM) vcpuPut(c *cpu, why reason) {
	if why != preempted {
		return
	}
	if !c.boundary {
		x.count(c, "preemption_other")
		return
	}
	x.count(c, "preemption_reported")
	if s, ok := x.stealTime(c); ok && !x.state(c).preempted {
		s.set("preempted", s.layout.Bit("preempted", "PREEMPTED"))
		x.state(c).preempted = true
	}
}

// Discovery.

func (x *x86KVM) discover(c *cpu, leaf, subleaf uint64) [16]uint64 {
	var out [16]uint64
	for i, v := range x.cpuid(c, uint32(leaf), uint32(subleaf)) {
		out[x.isa().Register([]string{"rax", "rbx", "rcx", "rdx"}[i])] = uint64(v)
	}
	return out
}

// guestCPUID is EAX, EBX, ECX and EDX of a leaf: what KVM offers (cpuid.c, __do_cpuid_func)
// as the VMM passes it on. Leaves that are not there read as zero.
func (x *x86KVM) guestCPUID(_ *cpu, leaf, _ uint32) [4]uint32 {
	word := func(name string) uint32 { return uint32(x.abi.Word(name)) }
	first := word("first-leaf")
	base := max(x.m.config.KVMBase, first)
	switch leaf {
	case 0:
		if x.intel {
			return [4]uint32{word("hypervisor-leaf"), 0x756e6547, 0x6c65746e, 0x49656e69} // GenuineIntel
		}
		return [4]uint32{word("hypervisor-leaf"), 0x68747541, 0x444d4163, 0x69746e65} // AuthenticAMD
	case word("hypervisor-leaf"):
		const avx = 1<<28 | 1<<27 // AVX and OSXSAVE
		if x.noAVX {
			return [4]uint32{2: 1 << word("hypervisor-bit")}
		}
		return [4]uint32{2: 1<<word("hypervisor-bit") | avx}
	case base:
		return [4]uint32{base + word("max-leaf") - first, word("signature-ebx"), word("signature-ecx"), word("signature-edx")}
	case base + word("features-leaf"):
		return [4]uint32{0: x.features(), 3: x.m.config.Hints}
	case first:
		return [4]uint32{first, 0x65726f46, 0x446e6769, 0x72656461} // another hypervisor's
	}
	return [4]uint32{}
}

// features is the features word: what the VMM has put there, or else what KVM offers, but for
// PV_UNHALT where HLT does not leave the guest (cpuid.c, kvm_apply_cpuid_pv_features_quirk).
func (x *x86KVM) features() uint32 {
	var word uint32
	for _, f := range x.abi.Features {
		if f.Word == "features" && f.Offered == "kernel" && !(x.noStatistics && f.Name == "STEAL_TIME") {
			word |= 1 << f.Bit
		}
	}
	if f := x.m.config.Features; f != nil {
		word = *f
	}
	if x.m.config.DisableExits&exitHLT != 0 && x.withdraws {
		word &^= 1 << x.abi.Feature("PV_UNHALT").Bit
	}
	return word
}

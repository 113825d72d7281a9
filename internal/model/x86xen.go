package model

import (
	"slices"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// The hypervisor of x86-xen, after Xen 4.20.4 as it serves a paravirtualized domain: files are
// those under xen/common and xen/arch/x86. All vCPUs share one CPU. vCPU 0 is not modelled: it is the
// carrier's. Of the guest's kernel there is what programs rely on: a port of each vCPU that it takes
// events by, one of a timer, and its runstate areas.

// xen is the hypervisor of one machine. Its functions are the steps that it is made of, after Xen's
// own; they are variables so that a mutant can replace one.
type xen struct {
	m     *machine
	abi   *abi.Platform
	vcpus []xenVCPU // those of the machine, then the spare one
	ports []xenPort
	// caller is the CPU that made a call last.
	caller *cpu
	// What hosts differ in: before 4.18 nothing is registered by physical address.
	noPhysical bool

	cpuid       func(c *cpu, leaf uint64) [4]uint64
	user        func(c *cpu, number uint64, a [5]uint64) int64
	hypercall   func(c *cpu, number uint64, a [5]uint64) int64
	operation   func(a uint64) uint64
	undefined   func(hypercall string) int64
	unreadable  func(k abi.Call) int64
	features    func(word uint64) (uint64, int64)
	assist      func(command, about uint64) int64
	vcpu        func(number uint64) (*xenVCPU, int64)
	poll        func(c *cpu, ports []uint64, timeout uint64) int64
	pollable    func(port uint64) int64
	now         func() uint64
	expired     func(v *xenVCPU) bool
	block       func(c *cpu)
	yield       func(c *cpu)
	send        func(port uint64) int64
	setPending  func(port uint64)
	pollers     func(port uint64)
	deliver     func(v *xenVCPU)
	close       func(port uint64) int64
	free        func(port uint64)
	allocate    func() uint64
	bindVCPU    func(port, vcpu uint64) int64
	interdomain func(remote uint64) (uint64, int64)
	status      func(port uint64) [4]uint64
	unmask      func(port uint64) int64
	domain      func(number uint64) int64
	registerVA  func(v *xenVCPU, k abi.Call, address uint64) int64
	registerPA  func(v *xenVCPU, k abi.Call, address, size uint64, at *uint64) int64
	info        func(v *xenVCPU, offset uint64) int64
	change      func(v *xenVCPU, state, at uint64)
	get         func(v *xenVCPU) xenRunstate
	update      func(v *xenVCPU)
	writeTime   func(v *xenVCPU)
}

// xenVCPU is what Xen keeps of a vCPU.
type xenVCPU struct {
	number uint64
	c      *cpu // nil for a spare one
	port   uint64
	// kernelPort is by which the kernel gets events, event that one is to be delivered.
	kernelPort uint64
	event      bool
	// blocked, and of a poll the port, 0 for several, and the timeout.
	blocked     bool
	polls       bool
	pollPort    uint64
	pollTimeout uint64
	// inCall tells that the vCPU is in the kernel.
	inCall bool

	runstate xenRunstate
	delay    uint64 // of the CPU, as far as it is in runstate
	// linear and physical are registered areas; kernelArea for the kernel's own. late tells of one
	// that could not be written.
	linear, physical, time, timePhysical uint64
	kernel                               []byte
	late                                 bool
}

// xenRunstate is a vcpu_runstate_info.
type xenRunstate struct {
	state, entry uint64
	time         [4]uint64
}

// xenPort is an event channel.
type xenPort struct {
	status          uint64
	vcpu            uint64
	remote          uint64
	pending, masked bool
}

const (
	// xenStep is the binary logarithm of how many nanoseconds a step is for Xen.
	xenStep = 10
	// xenBegin is system time at the first step: a machine is up for a while before a guest is.
	xenBegin = 1 << 40
	// kernelArea is the address of areas in the kernel's memory, realOffset what physical
	// addresses are above others.
	kernelArea = 1 << 50
	realOffset = 1 << 40
	// firstPort is the lowest port that the kernel leaves free; xenTimerPort is a timer's.
	xenTimerPort = 1
	xenPage      = 4096
)

// xenHosts are hosts that differ in what the ABI leaves open.
func xenHosts() []Host {
	return []Host{
		{Name: "4.20", Text: "Xen as of 4.18.", Open: openXen(nil)},
		{
			Name: "4.17", Text: "Xen before 4.18, without areas by physical address.",
			Version: "4.17",
			Absent:  xenPhysical(),
			Open:    openXen(func(x *xen) { x.noPhysical = true }),
		},
	}
}

// xenPhysical are the rules of areas by physical address.
func xenPhysical() []string {
	return []string{"runstate/physical", "runstate/physical-refused", "time/physical", "time/physical-refused"}
}

// xenMachine is a machine of a domain's vCPUs, as package conformance wants it.
type xenMachine struct{ *machine }

// openXen makes machines whose hypervisor is changed by change, if that is not nil.
func openXen(change func(*xen)) Opener {
	return func(seed uint64, c microvm.Config) (microvm.Machine, error) {
		table := abi.X86Xen()
		m, err := newMachine(seed, c, func(m *machine) hypervisor { return newXen(m, table, change) })
		if err != nil {
			return nil, err
		}
		return xenMachine{m}, nil
	}
}

func newXen(m *machine, table *abi.Platform, change func(*xen)) *xen {
	x := &xen{m: m, abi: table, ports: make([]xenPort, table.Word("ports"))}
	for i := range x.ports {
		x.ports[i].masked = true
	}
	x.cpuid, x.user, x.hypercall = x.leaves, x.systemCall, x.dispatch
	x.operation = func(a uint64) uint64 { return uint64(uint32(a)) }
	x.undefined = func(string) int64 { return x.abi.Errno("ENOSYS") }
	x.unreadable = func(abi.Call) int64 { return x.abi.Errno("EFAULT") }
	x.features, x.assist, x.vcpu = x.getFeatures, x.vmAssist, x.domainVCPU
	x.poll, x.pollable, x.block, x.yield = x.doPoll, x.portPoll, x.vcpuBlock, x.vcpuYield
	x.now = func() uint64 { return x.at(x.m.clock) }
	x.expired = func(v *xenVCPU) bool { return v.pollTimeout != 0 && x.now() >= v.pollTimeout }
	x.send, x.setPending, x.pollers, x.deliver = x.evtchnSend, x.portSetPending, x.checkPollers, x.markEvents
	x.close, x.free, x.allocate = x.evtchnClose, x.evtchnFree, x.freePort
	x.bindVCPU, x.interdomain, x.status, x.unmask, x.domain = x.evtchnBindVCPU, x.bindInterdomain, x.evtchnStatus, x.evtchnUnmask, x.domainByID
	x.registerVA, x.registerPA, x.info = x.registerLinear, x.mapGuestArea, x.registerInfo
	x.change, x.get, x.update, x.writeTime = x.runstateChange, x.runstateGet, x.updateRunstate, x.updateTime
	if change != nil {
		change(x)
	}
	w := &crowd{m: m}
	x.ports[xenTimerPort] = xenPort{status: x.abi.Word("virq"), vcpu: 1}
	for _, c := range m.cpus {
		v := xenVCPU{number: uint64(c.index) + 1, c: c, linear: kernelArea, kernel: make([]byte, x.abi.Layout("vcpu_runstate_info").Size)}
		v.runstate.state, v.runstate.entry = x.abi.Word("blocked"), xenBegin
		v.kernelPort = x.open(xenPort{status: x.abi.Word("ipi"), vcpu: v.number})
		v.port = x.open(xenPort{status: x.abi.Word("ipi"), vcpu: v.number})
		x.ports[v.port].masked = true
		c.id = v.port
		x.vcpus = append(x.vcpus, v)
		w.members = append(w.members, c)
		c.crowd = w
	}
	m.crowds = append(m.crowds, w)
	spare := xenVCPU{number: uint64(len(m.cpus)) + 1}
	spare.runstate.state, spare.runstate.entry = x.abi.Word("offline"), xenBegin
	x.vcpus = append(x.vcpus, spare)
	return x
}

func (x *xen) isa() *arch.ISA { return xenISA }

// xenISA is x86-64 with the call instruction of a paravirtualized guest.
var xenISA = func() *arch.ISA {
	isa := *amd64.ISA
	isa.Instructions = []string{"syscall"}
	return &isa
}()

// at is system time at a step.
func (x *xen) at(step uint64) uint64 { return xenBegin + step<<xenStep }

func (x *xen) of(c *cpu) *xenVCPU { return &x.vcpus[c.index] }

// open takes the lowest free port into use.
func (x *xen) open(p xenPort) uint64 {
	port := x.allocate()
	p.pending, p.masked = x.ports[port].pending, x.ports[port].masked
	if p.status == x.abi.Word("ipi") && p.vcpu != 0 && len(x.vcpus) < len(x.m.cpus) {
		p.masked = false // the kernel's
	}
	x.ports[port] = p
	return port
}

func (x *xen) freePort() uint64 {
	return 2 + uint64(slices.IndexFunc(x.ports[2:], func(p xenPort) bool { return p.status == x.abi.Word("closed") }))
}

// Calls.

func (x *xen) call(c *cpu, _ uint64, regs *[16]uint64, _ *uint64) (length uint64, t trap) {
	reg := func(name string) *uint64 { return &regs[xenISA.Register(name)] }
	a := [5]uint64{*reg("rdi"), *reg("rsi"), *reg("rdx"), *reg("r10"), *reg("r8")}
	number := *reg("rax")
	*reg("rsp") = 0
	if c.user {
		*reg("rax") = uint64(x.user(c, number, a))
		return 2, trap{}
	}
	v := x.of(c)
	v.inCall, x.caller = true, c
	if v.late {
		x.update(v)
	}
	*reg("rax") = uint64(x.hypercall(c, number, a))
	v.inCall = false
	return 2, trap{}
}

// systemCall is what the guest's kernel makes of the instruction: a file that is not open.
func (x *xen) systemCall(*cpu, uint64, [5]uint64) int64 { return -9 }

// dispatch is _pv_hypercall of pv/hypercall.c.
func (x *xen) dispatch(c *cpu, number uint64, a [5]uint64) int64 {
	for _, h := range x.abi.Calls {
		if h.Convention != "" || h.Number != number {
			continue
		}
		args := a[1:]
		var target *xenVCPU
		switch h.Name {
		case "vm_assist":
			return x.assist(a[0], a[1])
		case "vcpu_op":
			v, r := x.vcpu(a[1])
			if v == nil {
				return r
			}
			target, args = v, a[2:]
		}
		for _, k := range x.abi.Calls {
			if k.Convention == h.Name && k.Number == x.operation(a[0]) {
				return x.do(c, k, target, args[0])
			}
		}
		return x.undefined(h.Name)
	}
	return x.abi.Errno("ENOSYS")
}

// structure is an argument in memory.
type structure struct {
	x       *xen
	layout  abi.Layout
	address uint64
}

func (s structure) get(field string) uint64 {
	f := s.layout.Field(field)
	return s.x.m.load(s.address+f.Offset, f.Size)
}

func (s structure) set(field string, value uint64) {
	f := s.layout.Field(field)
	s.x.m.store(s.address+f.Offset, f.Size, value)
}

// xenArguments are the structures that operations read.
var xenArguments = map[string]string{
	"get_features": "xen_feature_info", "poll": "sched_poll", "get_runstate_info": "vcpu_runstate_info",
	"register_vcpu_info":            "vcpu_register_vcpu_info",
	"register_runstate_memory_area": "area_address", "register_vcpu_time_memory_area": "area_address",
	"register_runstate_phys_area": "area_address", "register_vcpu_time_phys_area": "area_address",
}

// do does an operation.
func (x *xen) do(c *cpu, k abi.Call, v *xenVCPU, pointer uint64) int64 {
	name := xenArguments[k.Name]
	if k.Convention == "event_channel_op" {
		name = "evtchn_" + k.Name
	}
	if k.Feature != "" && x.noPhysical {
		return x.undefined(k.Convention)
	}
	var s structure
	if name != "" {
		s = structure{x, x.abi.Layout(name), pointer}
		if !x.m.mapped(pointer, s.layout.Size) {
			return x.unreadable(k)
		}
	}
	if k.Convention == "event_channel_op" {
		return x.event(k.Name, s)
	}
	switch k.Name {
	case "version":
		return x.abi.Result("version", "major number")<<16 | 20
	case "get_features":
		word, r := x.features(s.get("submap_idx"))
		if r == 0 {
			s.set("submap", word)
		}
		return r
	case "yield":
		x.yield(c)
		return 0
	case "block":
		w := x.of(c)
		if w.blocked = !w.event; w.blocked {
			x.block(c)
		}
		return 0
	case "poll":
		return x.polled(c, s)
	case "is_up":
		return map[bool]int64{true: 1}[v.c != nil]
	case "get_runstate_info":
		x.sync(v)
		x.store(s, x.get(v), 0)
		return 0
	case "register_vcpu_info":
		return x.info(v, s.get("offset"))
	case "register_runstate_memory_area", "register_vcpu_time_memory_area":
		return x.registerVA(v, k, s.get("address"))
	case "register_runstate_phys_area":
		r := x.registerPA(v, k, s.get("address"), x.abi.Layout("vcpu_runstate_info").Size, &v.physical)
		if r == 0 && v.physical != 0 && v.c == c {
			x.update(v)
		}
		return r
	case "register_vcpu_time_phys_area":
		r := x.registerPA(v, k, s.get("address"), x.abi.Layout("pvclock_vcpu_time_info").Size, &v.timePhysical)
		if r == 0 {
			x.writeTime(v)
		}
		return r
	}
	return x.undefined(k.Convention)
}

func (x *xen) getFeatures(word uint64) (uint64, int64) {
	if word != 0 {
		return 0, x.abi.Errno("EINVAL")
	}
	var bits uint64
	for _, f := range x.abi.Features {
		if !x.noPhysical || f.Name == "mmu_pt_update_preserve_ad" {
			bits |= 1 << f.Bit
		}
	}
	return bits, 0
}

// vmAssist is do_vm_assist of domain.c.
func (x *xen) vmAssist(command, about uint64) int64 {
	switch {
	case about != x.abi.Word("assist-update-flag"):
		return x.abi.Errno("EINVAL")
	case command != x.abi.Word("assist-enable") && command != x.abi.Word("assist-disable"):
		return x.abi.Errno("ENOSYS")
	}
	return 0
}

func (x *xen) domainVCPU(number uint64) (*xenVCPU, int64) {
	for i := range x.vcpus {
		if x.vcpus[i].number == uint64(uint32(number)) {
			return &x.vcpus[i], 0
		}
	}
	return nil, x.abi.Errno("ENOENT")
}

// Sleep.

// polled reads a poll's ports, and polls.
func (x *xen) polled(c *cpu, s structure) int64 {
	n, at := s.get("nr_ports"), s.get("ports")
	switch {
	case n > x.abi.Word("poll-limit"):
		return x.abi.Errno("EINVAL")
	case at >= x.abi.Word("hypervisor-memory"):
		return x.abi.Errno("EFAULT")
	}
	var ports []uint64
	for i := range n {
		ports = append(ports, x.m.load(at+4*i, 4))
	}
	return x.poll(c, ports, s.get("timeout"))
}

// doPoll is do_poll of sched/core.c.
func (x *xen) doPoll(c *cpu, ports []uint64, timeout uint64) int64 {
	v := x.of(c)
	if v.event {
		return 0
	}
	for _, p := range ports {
		if r := x.pollable(p); r != 0 {
			return min(r, 0)
		}
	}
	v.blocked, v.polls, v.pollPort, v.pollTimeout = true, true, 0, timeout
	if len(ports) == 1 {
		v.pollPort = ports[0]
	}
	x.block(c)
	return 0
}

// portPoll is evtchn_port_poll of event.h: 1 for pending.
func (x *xen) portPoll(port uint64) int64 {
	if port >= uint64(len(x.ports)) || x.ports[port].status == x.abi.Word("closed") {
		return x.abi.Errno("EINVAL")
	}
	return map[bool]int64{true: 1}[x.ports[port].pending]
}

// vcpuBlock has a CPU sleep until it is no longer blocked.
func (x *xen) vcpuBlock(c *cpu) {
	v := x.of(c)
	c.state = asleep
	x.leave(c, waits)
	c.pause()
	c.out = true
	v.polls, v.pollTimeout = false, 0
	c.enter()
}

// vcpuYield has the others run first.
func (x *xen) vcpuYield(c *cpu) {
	c.crowd.ends = x.m.clock
	c.pause()
	c.enter()
}

func (x *xen) wait(c *cpu) waiting {
	v, once := x.of(c), c.interrupts
	v.inCall = true
	defer func() { v.inCall = false }()
	for {
		x.poll(c, []uint64{v.port}, 0)
		p := &x.ports[v.port]
		if once || p.pending {
			p.pending = p.pending && once
			return goesOn
		}
		v.event = false
	}
}

func (x *xen) awake(c *cpu) bool {
	v := x.of(c)
	if v.blocked && v.pollTimeout != 0 && !slices.ContainsFunc(x.m.cpus, func(o *cpu) bool { return o.state == ready }) {
		x.m.clock += 1 << 8 // time goes on while all sleep
	}
	if v.blocked && x.expired(v) {
		v.blocked = false
	}
	return !v.blocked
}

func (x *xen) woken(*cpu) {}

// interrupt has the guest's kernel take its events.
func (x *xen) interrupt(c *cpu) {
	v := x.of(c)
	v.event = false
	x.ports[v.kernelPort].pending = false
}

// Events.

// event does an operation of event channels.
func (x *xen) event(name string, s structure) int64 {
	domain := func(field string) int64 { return x.domain(s.get(field)) }
	vcpu := func() int64 {
		if v, r := x.domainVCPU(s.get("vcpu")); v == nil {
			return r
		}
		return 0
	}
	switch name {
	case "send":
		return x.send(s.get("port"))
	case "close":
		return x.close(s.get("port"))
	case "unmask":
		return x.unmask(s.get("port"))
	case "reset":
		return domain("dom")
	case "bind_ipi":
		if r := vcpu(); r != 0 {
			return r
		}
		s.set("port", x.open(xenPort{status: x.abi.Word("ipi"), vcpu: s.get("vcpu")}))
	case "bind_vcpu":
		if r := vcpu(); r != 0 {
			return r
		}
		return x.bindVCPU(s.get("port"), s.get("vcpu"))
	case "alloc_unbound":
		if r := domain("dom"); r != 0 {
			return r
		}
		s.set("port", x.open(xenPort{status: x.abi.Word("unbound")}))
	case "bind_interdomain":
		if r := domain("remote_dom"); r != 0 {
			return r
		}
		port, r := x.interdomain(s.get("remote_port"))
		if r != 0 {
			return r
		}
		s.set("local_port", port)
	case "status":
		if r := domain("dom"); r != 0 {
			return r
		}
		if s.get("port") >= uint64(len(x.ports)) {
			return x.abi.Errno("EINVAL")
		}
		for i, v := range x.status(s.get("port")) {
			s.set([]string{"status", "vcpu", "remote_dom", "remote_port"}[i], v)
		}
	}
	return 0
}

func (x *xen) domainByID(number uint64) int64 {
	if number == x.abi.Word("self") || number == 0 {
		return 0
	}
	return x.abi.Errno("ESRCH")
}

// known returns a port that is in use, or nil.
func (x *xen) known(port uint64) *xenPort {
	if port >= uint64(len(x.ports)) || x.ports[port].status == x.abi.Word("closed") {
		return nil
	}
	return &x.ports[port]
}

// evtchnSend is evtchn_send of event_channel.c.
func (x *xen) evtchnSend(port uint64) int64 {
	p := x.known(port)
	switch {
	case p == nil || p.status == x.abi.Word("virq"):
		return x.abi.Errno("EINVAL")
	case p.status == x.abi.Word("ipi"):
		x.setPending(port)
	case p.status == x.abi.Word("interdomain"):
		x.setPending(p.remote)
	}
	return 0
}

// portSetPending is evtchn_2l_set_pending of event_2l.c.
func (x *xen) portSetPending(port uint64) {
	p := &x.ports[port]
	if p.pending {
		return
	}
	p.pending = true
	if v, _ := x.domainVCPU(p.vcpu); !p.masked && v != nil {
		x.deliver(v)
	}
	x.pollers(port)
}

// checkPollers is evtchn_check_pollers.
func (x *xen) checkPollers(port uint64) {
	for i := range x.vcpus {
		if v := &x.vcpus[i]; v.polls && (v.pollPort == 0 || v.pollPort == port) {
			v.blocked = false
		}
	}
}

// markEvents is vcpu_mark_events_pending of domain.c.
func (x *xen) markEvents(v *xenVCPU) { v.event, v.blocked = true, false }

func (x *xen) evtchnClose(port uint64) int64 {
	p := x.known(port)
	if p == nil {
		return x.abi.Errno("EINVAL")
	}
	if p.status == x.abi.Word("interdomain") {
		x.ports[p.remote].status = x.abi.Word("unbound")
	}
	x.free(port)
	return 0
}

func (x *xen) evtchnFree(port uint64) {
	x.ports[port] = xenPort{status: x.abi.Word("closed"), masked: x.ports[port].masked}
}

func (x *xen) evtchnBindVCPU(port, vcpu uint64) int64 {
	p := x.known(port)
	if p == nil || p.status != x.abi.Word("unbound") && p.status != x.abi.Word("interdomain") {
		return x.abi.Errno("EINVAL")
	}
	p.vcpu = vcpu
	return 0
}

func (x *xen) bindInterdomain(remote uint64) (uint64, int64) {
	if p := x.known(remote); p == nil || p.status != x.abi.Word("unbound") {
		return 0, x.abi.Errno("EINVAL")
	}
	port := x.open(xenPort{status: x.abi.Word("interdomain"), remote: remote})
	x.ports[remote].status, x.ports[remote].remote = x.abi.Word("interdomain"), port
	x.setPending(port)
	return port, 0
}

// evtchnStatus is the status of a port, its vCPU, and the domain and port of its other end.
func (x *xen) evtchnStatus(port uint64) [4]uint64 {
	p := x.ports[port]
	return [4]uint64{p.status, p.vcpu, 0, p.remote}
}

func (x *xen) evtchnUnmask(port uint64) int64 {
	if port >= uint64(len(x.ports)) {
		return x.abi.Errno("EINVAL")
	}
	x.ports[port].masked = false
	return 0
}

// Areas.

// registerLinear is the operations that register an area at a linear address.
func (x *xen) registerLinear(v *xenVCPU, k abi.Call, address uint64) int64 {
	if address >= x.abi.Word("hypervisor-memory") {
		return x.abi.Errno("EFAULT")
	}
	if k.Name == "register_runstate_memory_area" {
		v.linear = address
		x.sync(v)
		if v.physical == 0 {
			x.writeRunstate(v, x.get(v))
		}
		return 0
	}
	v.time = address
	x.writeTime(v)
	return 0
}

// mapGuestArea is map_guest_area of domain.c.
func (x *xen) mapGuestArea(_ *xenVCPU, _ abi.Call, address, size uint64, at *uint64) int64 {
	switch {
	case address == x.abi.Word("unregister"):
		*at = 0
		return 0
	case address/xenPage != (address+size-1)/xenPage, address%8 != 0:
		return x.abi.Errno("ENXIO")
	}
	*at = address - realOffset
	return 0
}

// registerInfo is the operation register_vcpu_info. Those of all vCPUs but the spare one are
// registered.
func (x *xen) registerInfo(v *xenVCPU, offset uint64) int64 {
	l := x.abi.Layout("vcpu_info")
	bad := offset+l.Size > xenPage || offset%l.Align != 0
	switch {
	case v.c != nil && !(x.noPhysical && bad):
		return x.abi.Result("register_vcpu_info", map[bool]string{false: "registered already", true: "registered already, before 4.18"}[x.noPhysical])
	case bad:
		return x.abi.Errno("ENXIO")
	}
	return 0
}

// Runstates.

// sync brings the runstate of a vCPU up to what its CPU is doing.
func (x *xen) sync(v *xenVCPU) {
	c := v.c
	if c == nil {
		return
	}
	switch {
	case c.queued:
		x.change(v, x.abi.Word("runnable"), x.at(c.since))
	case c.state == ready && c.crowd.holder == c:
		x.change(v, x.abi.Word("running"), x.at(x.m.clock))
	case c.wants():
		x.change(v, x.abi.Word("runnable"), x.at(x.m.clock))
	default:
		x.change(v, x.abi.Word("blocked"), x.at(x.m.clock))
	}
}

// runstateChange is vcpu_runstate_change of sched/core.c.
func (x *xen) runstateChange(v *xenVCPU, state, at uint64) {
	r := &v.runstate
	if r.state == state {
		return
	}
	if at > r.entry {
		r.time[r.state%4] += at - r.entry
		r.entry = at
	}
	r.state = state
}

// runstateGet is vcpu_runstate_get.
func (x *xen) runstateGet(v *xenVCPU) xenRunstate {
	r := v.runstate
	if now := x.at(x.m.clock); now > r.entry {
		r.time[r.state%4] += now - r.entry
	}
	return r
}

// store writes a runstate into memory.
func (x *xen) store(s structure, r xenRunstate, update uint64) {
	s.set("state", r.state)
	s.set("state_entry_time", r.entry|update)
	for i, field := range []string{"time_running", "time_runnable", "time_blocked", "time_offline"} {
		s.set(field, r.time[i])
	}
}

func (x *xen) enter(c *cpu) {
	v := x.of(c)
	if waited := c.delay - v.delay; waited > 0 {
		x.change(v, x.abi.Word("runnable"), x.at(x.m.clock-waited))
	}
	v.delay = c.delay
	x.change(v, x.abi.Word("running"), x.at(x.m.clock))
	x.update(v)
	x.writeTime(v)
}

func (x *xen) leave(c *cpu, why reason) {
	v := x.of(c)
	state := "blocked"
	if why == preempted {
		state = "runnable"
	}
	x.change(v, x.abi.Word(state), x.at(x.m.clock))
	x.update(v)
}

// updateRunstate is update_runstate_area of domain.c.
func (x *xen) updateRunstate(v *xenVCPU) {
	v.late = false
	x.writeRunstate(v, v.runstate)
}

// writeRunstate writes a runstate to the area of a vCPU.
func (x *xen) writeRunstate(v *xenVCPU, r xenRunstate) {
	l := x.abi.Layout("vcpu_runstate_info")
	at := v.linear
	switch {
	case v.physical != 0:
		at = v.physical
	case at == kernelArea:
		put := func(field string, value uint64) {
			for i := range l.Field(field).Size {
				v.kernel[l.Field(field).Offset+i] = byte(value >> (8 * i))
			}
		}
		put("state", r.state)
		put("state_entry_time", r.entry)
		return
	}
	if at != 0 && x.m.mapped(at, l.Size) {
		s := structure{x, l, at}
		s.set("state_entry_time", r.entry|l.Bit("state_entry_time", "UPDATE"))
		x.store(s, r, l.Bit("state_entry_time", "UPDATE"))
		s.set("state_entry_time", r.entry)
	}
}

// updateTime writes the areas of a vCPU's time.
func (x *xen) updateTime(v *xenVCPU) {
	l := x.abi.Layout("pvclock_vcpu_time_info")
	at := v.time
	if v.timePhysical != 0 {
		at = v.timePhysical
	}
	if at == 0 || !x.m.mapped(at, l.Size) {
		return
	}
	for field, value := range map[string]uint64{
		"version": 2, "pad0": 0, "tsc_timestamp": 0, "system_time": x.at(0),
		// The factor is a half.
		"tsc_to_system_mul": 1 << 31, "tsc_shift": xenStep + 1, "flags": 1, "pad": 0,
	} {
		structure{x, l, at}.set(field, value)
	}
}

// What is left of hypervisor.

func (x *xen) leaves(_ *cpu, leaf uint64) (r [4]uint64) {
	first := x.abi.Word("first-leaf")
	switch leaf {
	case first:
		r = [4]uint64{first + 5, x.abi.Word("signature-ebx"), x.abi.Word("signature-ecx"), x.abi.Word("signature-edx")}
	case first + x.abi.Word("version-leaf"):
		r[0] = uint64(x.abi.Result("version", "major number"))<<16 | 20
	case first + x.abi.Word("hypercall-leaf"):
		r[0], r[1] = x.abi.Word("hypercall-pages"), x.abi.Word("hypercall-register")
	}
	return r
}

func (x *xen) discover(c *cpu, leaf, _ uint64) (out [16]uint64) {
	r := x.cpuid(c, leaf)
	copy(out[:], r[:])
	return out
}

func (x *xen) readRegister(*cpu, uint64) (uint64, trap) { return 0, x.privilege() }
func (x *xen) writeRegister(*cpu, uint64, uint64) trap  { return x.privilege() }
func (x *xen) counter(*cpu, string) (uint64, bool)      { return 0, false }
func (x *xen) access() trap                             { return trap{true, 13, 0} }
func (x *xen) privilege() trap                          { return trap{true, 13, 0} }

// The machine's own.

func (m xenMachine) xen() *xen { return m.hv.(*xen) }

// VCPU returns the number by which the hypervisor knows a CPU.
func (m xenMachine) VCPU(cpu int) uint64 { return m.xen().vcpus[cpu].number }

// Spare returns the number of a vCPU that is down.
func (m xenMachine) Spare() (uint64, bool) { return m.xen().vcpus[len(m.cpus)].number, true }

// Pending tells whether a port is pending.
func (m xenMachine) Pending(port uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.run()
	return m.xen().ports[port].pending
}

// SetPending sets or clears pending.
func (m xenMachine) SetPending(port uint64, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.xen().ports[port].pending = on
}

// Masked tells whether a port is masked.
func (m xenMachine) Masked(port uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.xen().ports[port].masked
}

// SetMasked sets or clears the mask of a port.
func (m xenMachine) SetMasked(port uint64, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.xen().ports[port].masked = on
}

// Real returns the physical address of an area.
func (m xenMachine) Real(a arch.Area) (uint64, error) { return a.Address() + realOffset, nil }

// KernelRunstate returns the kernel's area of a CPU, between two looks at its runstate.
func (m xenMachine) KernelRunstate(cpu int) (kernel, before, after []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.run()
	x := m.xen()
	// Whoever looks does so on a vCPU of its own, which has the CPU now.
	if w := m.crowds[0]; w.holder != nil {
		w.takeOff(w.holder)
		w.holder = nil
	}
	v := &x.vcpus[cpu]
	x.sync(v)
	r := x.get(v)
	l := x.abi.Layout("vcpu_runstate_info")
	look := make([]byte, l.Size)
	for field, value := range map[string]uint64{"state": r.state, "state_entry_time": r.entry} {
		for i := range l.Field(field).Size {
			look[l.Field(field).Offset+i] = byte(value >> (8 * i))
		}
	}
	return slices.Clone(v.kernel), look, look, nil
}

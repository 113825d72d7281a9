package conformance

import (
	"context"
	"fmt"
	"slices"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// XenMachine is what the checks of x86-xen ask of a machine besides. Package privcmd has one, whose
// CPUs are known by the ports of their kicks.
type XenMachine interface {
	microvm.Machine
	// VCPU returns the number by which the hypervisor knows a CPU, Spare that of a vCPU that was
	// never brought up, and whether there is one.
	VCPU(cpu int) uint64
	Spare() (vcpu uint64, ok bool)
	// Pending and Masked tell of a port whether it is so; SetPending and SetMasked set or clear
	// that, as a guest may.
	Pending(port uint64) bool
	SetPending(port uint64, on bool)
	Masked(port uint64) bool
	SetMasked(port uint64, on bool)
	// KernelRunstate returns what is in the area that the guest's kernel has registered for the
	// runstate of a CPU, and what get_runstate_info gives right before and after.
	KernelRunstate(cpu int) (area, before, after []byte, err error)
	// Real returns the physical address of an area.
	Real(a arch.Area) (uint64, error)
}

// xenISA is x86-64 with the call instruction of a paravirtualized guest.
var xenISA = func() *arch.ISA {
	isa := *amd64.ISA
	isa.Instructions = []string{"syscall"}
	return &isa
}()

// X86Xen is the suite for the hypervisor side of x86-xen: the Xen below the Linux that the suite
// runs on, asked by vCPUs of its own; what version it is, it says itself where version is empty. open
// makes machines of package privcmd.
func X86Xen(ctx context.Context, version string, open func(microvm.Config) (microvm.Machine, error)) (*Suite, error) {
	s := &Suite{
		ABI: abi.X86Xen(), ISA: xenISA, Native: xenISA.Instructions[0], Open: open,
		Implementer: Implementer{Name: "Xen", Version: version}, Deviations: Deviations,
		Kick: (*T).send, Checks: xenChecks(), Costs: xenCosts(), Looks: Looks, Direct: true,
	}
	s.Unused = s.ABI.Word("first-free-call")
	return s, s.xenDiscover(ctx)
}

// X86XenRules are the rules that X86Xen has a result for, in the order of its results. Left out are
// those that user space cannot look at: what is in a call's registers after it, the high half of its
// number; and the reset of a domain's ports, which would take the kernel's.
func X86XenRules() []abi.Rule {
	return (&Suite{ABI: abi.X86Xen(), Checks: xenChecks()}).Rules()
}

// xenChecks are the checks of x86-xen, in the order of the report.
func xenChecks() []Check {
	return []Check{
		xenDiscovery(),
		xenFeatures(),
		xenUser(),
		xenUserKick(),
		xenUndefined(),
		xenOperations(),
		xenUnreadable(),
		xenYield(),
		xenBlock(),

		kickWakes("kick/wakes-waiter", machine(), 0),
		kickEarly("kick/before-wait", "latched", 1),
		kickEarly("kick/two-kicks", "wakes", 2),
		kickSelf("kick/self"),
		kickEarly("kick/running-target", "returns", 1),
		xenKickAbsent(),
		xenKickResult(),
		xenKickMasked(),
		xenKickVIRQ(),
		xenSleeps(),
		xenInterrupt(),
		xenInterruptEatsKick(),

		xenPollKeeps(),
		xenPollSeveral(),
		xenPollOther(),
		xenPollLimit(),
		xenPollRefused(),
		xenPollPast(),
		xenPollNear(),

		xenUnbound(),
		xenPair(),
		xenIPI(),
		xenMove(),
		xenClose(),
		xenUnmask(),
		xenRefused(),

		xenUp(),
		xenAbsentVCPU(),
		xenInfo(),
		xenAssist(),

		xenStates(),
		xenTimes(),
		xenRegistered(),
		xenUpdated(),
		xenUpdateFlag(),
		xenMoved(),
		xenBadArea(),
		xenPhysical(),

		xenTime(),
		xenTimeAgrees(),
		xenTimePhysical(),

		xenRunning(),
		xenWaiting(),
		xenSteal(),
		xenKernelArea(),
	}
}

// xen is the machine that the checks run on.
func (t *T) xen() XenMachine { return t.xenAs(machine()) }

func (t *T) xenAs(c microvm.Config) XenMachine {
	m, ok := t.Open(c).(XenMachine)
	if !ok {
		t.Fatal(fmt.Errorf("a %T is no machine of a domain's own vCPUs", m))
	}
	return m
}

// operation is an operation of a hypercall, by its name, with poison in each register that carries
// nothing. The last of its arguments is as a rule an address.
func (t *T) operation(name string, args ...uint64) arch.Op {
	return t.operationOf(t.ABI.Call(name), args...)
}

// operationOf is an operation of a call that need not be in the table.
func (t *T) operationOf(c abi.Call, args ...uint64) arch.Op {
	conv := t.ABI.Convention(c.Convention)
	op := t.callNumber(t.ABI.Call(c.Convention).Number)
	op.Regs[t.ISA.Register(conv.Number)] = c.Number
	for i, a := range args {
		op.Regs[t.ISA.Register(conv.Args[i])] = a
	}
	return op
}

// fields are members of a structure.
type fields map[string]uint64

// argument is a structure in memory. What is not among the members given is fill.
type argument struct {
	arch.Area
	layout abi.Layout
}

func (t *T) argument(m microvm.Machine, layout string, members fields) argument {
	l := t.ABI.Layout(layout)
	a := argument{m.Alloc(l.Size, 64, fill), l}
	for name, value := range members {
		a.set(name, value)
	}
	return a
}

func (a argument) get(name string) uint64 {
	f := a.layout.Field(name)
	return a.Load(f.Offset, f.Size)
}

func (a argument) set(name string, value uint64) {
	f := a.layout.Field(name)
	a.Store(f.Offset, f.Size, value)
}

// overwrite puts fill into a, and changed counts the bytes that are not fill.
func (a argument) overwrite() {
	for i := range a.Size() {
		a.Store(i, 1, fill)
	}
}

func (a argument) changed() int64 { return notFill(a.Bytes()) }

// layoutOf is the name of the structure that an event channel's operation works on.
func layoutOf(operation string) string { return "evtchn_" + operation }

// event makes an operation of event channels on the caller and returns its result and what it left.
func (t *T) event(m microvm.Machine, name string, members fields) (int64, argument) {
	a := t.argument(m, layoutOf(name), members)
	return t.returned(t.run(m, caller, t.operation(name, a.Address()))[0]), a
}

// must is an operation that has to be done for a check to prove anything.
func (t *T) must(m microvm.Machine, name string, members fields) argument {
	r, a := t.event(m, name, members)
	t.Control("result of "+name, t.ABI.Result(name, "done"), r)
	return a
}

// send is a kick: a send to a port.
func (t *T) send(m microvm.Machine, port uint64) arch.Op {
	return t.operation("send", t.argument(m, layoutOf("send"), fields{"port": port}).Address())
}

// ipiPort opens a port of a CPU's for events from its own domain, masked.
func (t *T) ipiPort(m XenMachine, cpu int) uint64 {
	port := t.must(m, "bind_ipi", fields{"vcpu": m.VCPU(cpu)}).get("port")
	m.SetMasked(port, true)
	return port
}

// unbound opens a port that the own domain can bind to.
func (t *T) unbound(m XenMachine) uint64 {
	self := t.ABI.Word("self")
	port := t.must(m, "alloc_unbound", fields{"dom": self, "remote_dom": self}).get("port")
	m.SetMasked(port, true)
	return port
}

// pair opens two ports that are each other's ends. The second one is the new one of bind_interdomain.
func (t *T) pair(m XenMachine) (first, second uint64) {
	first = t.unbound(m)
	second = t.must(m, "bind_interdomain", fields{"remote_dom": t.ABI.Word("self"), "remote_port": first}).get("local_port")
	m.SetMasked(second, true)
	return first, second
}

// closed is a port that was open and is no more.
func (t *T) closed(m XenMachine) uint64 {
	port := t.ipiPort(m, caller)
	t.must(m, "close", fields{"port": port})
	return port
}

// absentPorts are ports that cannot be, one of them a bit away from one that is.
func (t *T) absentPorts(m microvm.Machine) []uint64 {
	n := t.ABI.Word("ports")
	return []uint64{n, n + m.ID(target), 1<<31 - 1, 1 << 31, 1<<32 - 1}
}

// poll is a poll of ports until a time, 0 for no end.
func (t *T) poll(m microvm.Machine, timeout uint64, ports ...uint64) arch.Op {
	const size = 4
	list := m.Alloc(size*uint64(max(len(ports), 1)), 64, 0)
	for i, p := range ports {
		list.Store(size*uint64(i), size, p)
	}
	a := t.argument(m, "sched_poll", fields{"ports": list.Address(), "nr_ports": uint64(len(ports)), "timeout": timeout})
	return t.operation("poll", a.Address())
}

// over is a time, in nanoseconds of system time, that is over.
const over = 1

// refusedPoll makes a poll that is to be refused until it is. An event that is to be delivered ends
// it before.
func (t *T) refusedPoll(m microvm.Machine, op arch.Op) (result int64) {
	const again = 50
	for range again {
		if result = t.returned(t.run(m, caller, op)[0]); result != 0 {
			break
		}
	}
	return result
}

// vcpuState is what get_runstate_info tells of a vCPU.
type vcpuState struct {
	state, entry                        uint64
	running, runnable, blocked, offline uint64
}

func (r vcpuState) sum() uint64   { return r.running + r.runnable + r.blocked + r.offline }
func (r vcpuState) steal() uint64 { return r.runnable + r.offline }

// runstateIn reads a runstate in memory.
func runstateIn(a argument) vcpuState {
	return vcpuState{
		a.get("state"), a.get("state_entry_time"),
		a.get("time_running"), a.get("time_runnable"), a.get("time_blocked"), a.get("time_offline"),
	}
}

// look has the caller ask for the runstates of vCPUs, one after the other.
func (t *T) look(m microvm.Machine, vcpus ...uint64) []vcpuState {
	var p arch.Program
	var areas []argument
	for _, v := range vcpus {
		areas = append(areas, t.argument(m, "vcpu_runstate_info", nil))
		p = append(p, t.operation("get_runstate_info", v, areas[len(areas)-1].Address()))
	}
	var out []vcpuState
	for i, r := range t.run(m, caller, p...) {
		t.Control("result of get_runstate_info", t.ABI.Result("get_runstate_info", "done"), t.returned(r))
		out = append(out, runstateIn(areas[i]))
	}
	return out
}

// looker asks for the runstates of vCPUs again and again, with the same memory.
type looker struct {
	t     *T
	m     microvm.Machine
	p     arch.Program
	areas []argument
}

func (t *T) looker(m microvm.Machine, vcpus ...uint64) *looker {
	l := &looker{t: t, m: m}
	for _, v := range vcpus {
		a := t.argument(m, "vcpu_runstate_info", nil)
		l.areas = append(l.areas, a)
		l.p = append(l.p, t.operation("get_runstate_info", v, a.Address()))
	}
	return l
}

func (l *looker) look() []vcpuState {
	var out []vcpuState
	for i, r := range l.t.run(l.m, caller, l.p...) {
		l.t.Control("result of get_runstate_info", l.t.ABI.Result("get_runstate_info", "done"), l.t.returned(r))
		out = append(out, runstateIn(l.areas[i]))
	}
	return out
}

// preempted is 1 for the state of a vCPU that is preempted.
func (t *T) preempted(state uint64) int64 { return bit(state == t.ABI.Word("runnable")) }

// kernelPort finds a port of the kernel's that is not masked and by which a CPU gets events of its
// own domain, other than those of the machine.
func (t *T) kernelPort(m XenMachine, cpu int) uint64 {
	return t.findPort(m, "ipi", func(port, vcpu uint64) bool { return vcpu == m.VCPU(cpu) && !m.Masked(port) })
}

// findPort looks through the ports that are open for one of a status.
func (t *T) findPort(m XenMachine, status string, suits func(port, vcpu uint64) bool) uint64 {
	const each = 32 // in one program
	for first := uint64(1); first < t.ABI.Word("ports"); first += each {
		var p arch.Program
		var areas []argument
		for i := range uint64(each) {
			areas = append(areas, t.argument(m, layoutOf("status"), fields{"dom": t.ABI.Word("self"), "port": first + i}))
			p = append(p, t.operation("status", areas[i].Address()))
		}
		for i, r := range t.run(m, caller, p...) {
			if t.returned(r) != 0 {
				t.Fatal(fmt.Errorf("no port of the kernel's with status %s", status))
			}
			port := first + uint64(i)
			if areas[i].get("status") == t.ABI.Word(status) && suits(port, areas[i].get("vcpu")) {
				return port
			}
		}
	}
	t.Fatal(fmt.Errorf("no port of the kernel's with status %s", status))
	return 0
}

// xenDiscover asks a machine for the words of discovery that features are in.
func (s *Suite) xenDiscover(ctx context.Context) error {
	m, err := s.machines().get(machine())
	if err != nil {
		return err
	}
	t := &T{ctx: ctx, Suite: s}
	leaf := s.ABI.Word("first-leaf")
	a := t.argument(m, "xen_feature_info", fields{"submap_idx": 0, "submap": 0})
	if err := m.Start(caller, arch.Program{discover(leaf, 0), t.operation("get_features", a.Address()), t.operation("version", 0)}); err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	if _, err := m.Wait(ctx, caller); err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	if !s.signature(m.Results(caller)[0]) {
		s.machines().close()
		return fmt.Errorf("no Xen: its signature is not in leaf %#x of CPUID", leaf)
	}
	if s.Implementer.Version == "" {
		v := t.returned(m.Results(caller)[2])
		s.Implementer.Version = fmt.Sprintf("%d.%d", v>>16, v&0xffff)
	}
	features := a.get("submap")
	s.Offers = func(f abi.Feature) (bool, error) {
		if f.Word != "features" {
			return false, fmt.Errorf("no word of discovery named %q", f.Word)
		}
		return features>>f.Bit&1 == 1, nil
	}
	return nil
}

// xenDiscovery: what CPUID and the operation version say.
func xenDiscovery() Check {
	const (
		signature = "discovery/signature"
		same      = "discovery/same-on-all-cpus"
		version   = "discovery/version"
		page      = "discovery/hypercall-page"
	)
	return Check{Rules: []string{signature, same, version, page}, Run: func(t *T) {
		m := t.xen()
		first := t.ABI.Word("first-leaf")
		leaves := arch.Program{
			discover(first, 0), discover(first+t.ABI.Word("version-leaf"), 0), discover(first+t.ABI.Word("hypercall-leaf"), 0),
			t.operation("version", 0),
		}
		r := t.run(m, caller, leaves...)
		last := t.out(r[0], "eax")
		t.Evidence(signature, "last leaf", Hex(last).String())
		t.Equal(signature, "leaves with the signature", t.Want(signature, "found"), bit(t.signature(r[0])))
		t.Truth(signature, "there are leaves enough", last >= first+t.ABI.Word("least-leaves") && last < first+1<<8)
		t.Equal(version, "version in the leaf", Hex(t.returned(r[3])), Hex(t.out(r[1], "eax")))
		t.Equal(version, "major number", t.ABI.Result("version", "major number"), t.returned(r[3])>>16)
		t.Equal(page, "pages with hypercalls", t.ABI.Word("hypercall-pages"), t.out(r[2], "eax"))
		t.Equal(page, "register that fills one", Hex(t.ABI.Word("hypercall-register")), Hex(t.out(r[2], "ebx")))
		var differ int64
		for _, cpu := range []int{target, third} {
			other := t.run(m, cpu, leaves...)
			for i := range 2 {
				differ += bit(other[i].Regs != r[i].Regs)
			}
		}
		t.Equal(same, "leaves that another CPU reads otherwise", t.Want(same, "differences"), differ)
	}}
}

// xenFeatures: the word of features, and one that is not there.
func xenFeatures() Check {
	const (
		offered = "discovery/features"
		absent  = "discovery/features-absent-word"
	)
	return Check{Rules: []string{offered, absent}, Run: func(t *T) {
		m := t.xen()
		for _, word := range []uint64{0, 1, 1 << 31} {
			a := t.argument(m, "xen_feature_info", fields{"submap_idx": word})
			r := t.run(m, caller, t.operation("get_features", a.Address()))[0]
			if word != 0 {
				t.Equal(absent, "result for word "+Hex(word).String(), t.ABI.Result("get_features", "absent word"), t.returned(r))
				t.Equal(absent, "word left alone", Hex(fill*0x01010101), Hex(a.get("submap")))
				continue
			}
			t.Evidence(offered, "features", Hex(a.get("submap")).String())
			t.Equal(offered, "result", t.ABI.Result("get_features", "done"), t.returned(r))
			always := t.ABI.Feature("mmu_pt_update_preserve_ad")
			t.Equal(offered, "bit of "+always.Name, t.Want(offered, "set"), a.get("submap")>>always.Bit&1)
		}
	}}
}

// user is a machine whose caller is without privilege, as far as an ordinary process goes.
func user() microvm.Config {
	c := machine()
	c.User = []int{caller}
	return c
}

// xenUser: the call instruction in user mode reaches the guest's kernel, and not Xen. The control is
// the same with privilege.
func xenUser() Check {
	const rule = "privilege/user-refused"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xenAs(user())
		for _, cpu := range []int{caller, third} {
			a := t.argument(m, "vcpu_runstate_info", nil)
			r := t.run(m, cpu, t.operation("version", a.Address()), t.operation("get_runstate_info", m.VCPU(cpu), a.Address()))
			made := bit(t.returned(r[0])>>16 == t.ABI.Result("version", "major number")) + bit(a.changed() != 0)
			if cpu == caller {
				t.Evidence(rule, "results", []int64{t.returned(r[0]), t.returned(r[1])})
				t.Equal(rule, "hypercalls made", t.Want(rule, "hypercalls"), made)
				continue
			}
			t.Control("hypercalls made by the same with privilege", 2, made)
		}
	}}
}

// xenUserKick: a kick in user mode wakes nobody. The control is the same kick with privilege.
func xenUserKick() Check {
	const rule = "privilege/user-has-no-effect"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xenAs(user())
		t.sleeper(m, target, 0)
		r := t.run(m, caller, t.kick(m.ID(target)))
		t.Evidence(rule, "result", t.returned(r[0]))
		t.Equal(rule, "waits ended", t.Want(rule, "wakes"), bit(!t.stays(m, target, 0)))
		t.Truth(rule, "the port is not pending", !m.Pending(m.ID(target)))
		t.run(m, third, t.kick(m.ID(target)))
		t.Control("waits ended by the same kick with privilege", 1, t.woken(m))
	}}
}

// xenUndefined: numbers without a hypercall.
func xenUndefined() Check {
	const (
		undefined = "number/undefined"
		extreme   = "number/extreme"
	)
	return Check{Rules: []string{undefined, extreme}, Run: func(t *T) {
		m := t.xen()
		first, last := t.ABI.Word("first-free-call"), t.ABI.Word("last-free-call")
		if last-first > 1<<10 {
			t.Fatal(fmt.Errorf("abi lists no numbers that can be gone through: %d to %d", first, last))
		}
		var numbers []uint64
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
		for i, r := range t.runAll(m, caller, t.callNumbers(numbers)) {
			t.Equal(undefined, fmt.Sprint("number ", numbers[i]), t.ABI.Errno("ENOSYS"), t.returned(r))
		}
		numbers = []uint64{1 << 31, 1<<32 - 1}
		for i, r := range t.runAll(m, caller, t.callNumbers(numbers)) {
			t.Equal(extreme, "number "+Hex(numbers[i]).String(), t.ABI.Errno("ENOSYS"), t.returned(r))
		}
	}}
}

// xenOperations: operations that no hypercall has, and one with its high half set.
func xenOperations() Check {
	const (
		undefined = "number/undefined-operation"
		high      = "number/operation-high-half"
	)
	return Check{Rules: []string{undefined, high}, Run: func(t *T) {
		m := t.xen()
		first, last := t.ABI.Word("first-free-operation"), t.ABI.Word("last-free-operation")
		if last-first > 1<<10 {
			t.Fatal(fmt.Errorf("abi lists no operations that can be gone through: %d to %d", first, last))
		}
		a := m.Alloc(64, 64, 0)
		for _, hypercall := range []string{"sched_op", "event_channel_op", "vcpu_op"} {
			var p arch.Program
			for n := first; n <= last; n++ {
				args := []uint64{a.Address()}
				if hypercall == "vcpu_op" {
					args = []uint64{m.VCPU(caller), a.Address()}
				}
				p = append(p, t.operationOf(abi.Call{Convention: hypercall, Number: n}, args...))
			}
			for i, r := range t.runAll(m, caller, p) {
				t.Equal(undefined, fmt.Sprintf("%s %d", hypercall, first+uint64(i)), t.ABI.Result(hypercall, "undefined operation"), t.returned(r))
			}
		}
		op := t.operation("yield", 0)
		op.Regs[t.ISA.Register(t.ABI.Convention("sched_op").Number)] |= 1 << 32
		t.Equal(high, "result", t.ABI.Result("yield", "done"), t.returned(t.run(m, caller, op)[0]))
	}}
}

// xenUnreadable: arguments that are the hypervisor's memory, or none. The control is that the
// operation is there: with an argument it gives another result.
func xenUnreadable() Check {
	const rule = "number/unreadable-argument"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		for _, c := range t.ABI.AllCalls() {
			if !slices.ContainsFunc(c.Outcomes, func(o abi.Outcome) bool { return o.When == "argument unreadable" }) {
				continue
			}
			if c.Feature != "" {
				offered, err := t.Offers(t.ABI.Feature(c.Feature))
				t.Check("discovery", err)
				if !offered {
					continue
				}
			}
			for _, address := range []uint64{t.ABI.Word("hypervisor-memory"), nowhere} {
				args := []uint64{address}
				if c.Convention == "vcpu_op" {
					args = []uint64{m.VCPU(caller), address}
				}
				r := t.run(m, caller, t.operation(c.Name, args...))[0]
				t.Equal(rule, c.Name+" at "+Hex(address).String(), t.ABI.Result(c.Name, "argument unreadable"), t.returned(r))
			}
		}
	}}
}

// nowhere is an address that no process of Linux has memory at (Documentation/admin-guide/sysctl/vm.rst,
// mmap_min_addr).
const nowhere = 0x1000

// xenYield: a yield comes back, with and without somebody to yield to.
func xenYield() Check {
	const rule = "sched/yield"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		t.Equal(rule, "result", t.ABI.Result("yield", "done"), t.returned(t.run(m, caller, t.operation("yield", 0))[0]))
		end := t.runner(m, third)
		t.Equal(rule, "result while another runs", t.ABI.Result("yield", "done"), t.returned(t.run(m, caller, t.operation("yield", 0))[0]))
		end()
	}}
}

// dozes starts an operation on the target that an event ends, and sees it sleep there. Events of
// the kernel's end it, too; it is then begun again.
func (t *T) dozes(m microvm.Machine, p ...arch.Op) {
	for range t.Looks {
		t.start(m, target, p...)
		if t.settle(m, target, len(p)) < len(p) && t.stays(m, target, len(p)-1) {
			return
		}
		t.finish(m, target)
	}
	t.Fatal(fmt.Errorf("CPU %d never sleeps: events come all the time", target))
}

// ended looks for the end of the target's program of n operations for the full budget.
func (t *T) ended(m microvm.Machine, n int) int64 {
	return bit(t.Until(func() bool { _, done := m.At(target); return done >= uint64(n) }))
}

// endsBy holds how many programs of n operations of the target's end against a rule. One that does end
// is finished, which the result tells; one that does not is left to the next reset.
func (t *T) endsBy(m microvm.Machine, rule, what string, want int64, n int) bool {
	ended := t.ended(m, n)
	t.Equal(rule, what, want, ended)
	if ended == 1 {
		t.finish(m, target)
	}
	return ended == 1
}

// xenBlock: a block sleeps until there is an event for the kernel.
func xenBlock() Check {
	const rule = "sched/block"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		port := t.kernelPort(m, target)
		t.dozes(m, t.operation("block", 0))
		t.run(m, caller, t.noKick())
		t.run(m, caller, t.send(m, port))
		if !t.endsBy(m, rule, "blocks ended by an event", 1, 1) {
			return
		}
		t.Equal(rule, "result", t.ABI.Result("block", "done"), t.returned(m.Results(target)[0]))
	}}
}

// xenKickAbsent: sends to ports that are closed or cannot be wake nobody. The control is that the
// sleepers can be woken.
func xenKickAbsent() Check {
	const rule = "kick/absent-target"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		closed := t.closed(m)
		for _, cpu := range []int{target, third} {
			t.sleeper(m, cpu, 0)
		}
		for _, port := range append(t.absentPorts(m), closed) {
			when := "absent target"
			if port == closed {
				when = "closed port"
			}
			r := t.run(m, caller, t.send(m, port))
			t.Equal(rule, "result for port "+Hex(port).String(), t.ABI.Result("send", when), t.returned(r[0]))
		}
		var woken int64
		for _, cpu := range []int{target, third} {
			woken += bit(!t.stays(m, cpu, 0))
		}
		t.Equal(rule, "CPUs woken", t.Want(rule, "wakes"), woken)
		t.run(m, caller, t.kick(m.ID(target)))
		t.Control("waits ended by a kick of the sleeper itself", 1, t.woken(m))
	}}
}

// xenKickResult: what a send gives, by what its target is doing.
func xenKickResult() Check {
	const rule = "kick/result"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		t.sleeper(m, target, 0)
		end := t.runner(m, third)
		for _, c := range []struct {
			when string
			port uint64
		}{{"waiting target", m.ID(target)}, {"running target", m.ID(third)}, {"self", m.ID(caller)}, {"absent target", t.ABI.Word("ports")}} {
			r := t.run(m, caller, t.send(m, c.port))
			t.Equal(rule, c.when, t.ABI.Result("send", c.when), t.returned(r[0]))
		}
		end()
	}}
}

// xenKickMasked: the mask does not keep a port from being pending.
func xenKickMasked() Check {
	const rule = "kick/masked-port"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		port := m.ID(target)
		t.Control("the port is masked and not pending", true, m.Masked(port) && !m.Pending(port))
		t.run(m, caller, t.noKick())
		t.Control("pending after a call that is no kick", false, m.Pending(port))
		t.run(m, caller, t.send(m, port))
		t.Equal(rule, "pending", t.Want(rule, "pending"), bit(m.Pending(port)))
		t.Truth(rule, "the mask is as it was", m.Masked(port))
	}}
}

// xenKickVIRQ: a port of the hypervisor's own events takes no send.
func xenKickVIRQ() Check {
	const rule = "kick/port-of-virq"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		port := t.findPort(m, "virq", func(uint64, uint64) bool { return true })
		t.Evidence(rule, "port", port)
		t.Equal(rule, "result", t.ABI.Result("send", "port of a virq"), t.returned(t.run(m, caller, t.send(m, port))[0]))
	}}
}

// xenSleeps: a wait that nobody ends does not end.
func xenSleeps() Check {
	const rule = "wait/sleeps-without-kick"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		t.start(m, target, waitOp(0))
		ended := t.settle(m, target, 1)
		t.run(m, caller, t.noKick(), t.operation("yield", 0), t.kick(m.ID(third)))
		if ended == 0 && !t.stays(m, target, 0) {
			ended = 1
		}
		t.Equal(rule, "waits ended", t.Want(rule, "returns"), ended)
		t.run(m, caller, t.kick(m.ID(target)))
		t.Control("waits ended by a kick", 1, t.woken(m))
	}}
}

// xenInterrupt: an event that the kernel takes ends a poll of another port.
func xenInterrupt() Check {
	const rule = "wait/ended-by-interrupt"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		port := t.kernelPort(m, target)
		t.dozes(m, waitOp(1))
		t.run(m, caller, t.noKick())
		t.run(m, caller, t.send(m, port))
		t.Equal(rule, "waits ended", t.Want(rule, "returns"), t.woken(m))
		t.Truth(rule, "the port that was polled is not pending", !m.Pending(m.ID(target)))
	}}
}

// xenInterruptEatsKick: a kick while the target polls another port, then an event that ends that
// poll. The wait that follows shows whether the kick is kept. The control is the same without the
// kick.
func xenInterruptEatsKick() Check {
	const rule = "wait/interrupt-eats-kick"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, kick := range []bool{false, true} {
			m := t.xen()
			port := t.kernelPort(m, target)
			other := t.ipiPort(m, target)
			t.dozes(m, t.poll(m, 0, other))
			if kick {
				t.run(m, caller, t.kick(m.ID(target)))
			}
			t.run(m, caller, t.send(m, port))
			t.Control("polls of another port ended by an event", 1, t.ended(m, 1))
			t.finish(m, target)
			t.start(m, target, waitOp(0))
			ended := t.settle(m, target, 1)
			if !kick {
				t.Control("waits ended without a kick", 0, ended)
				continue
			}
			t.Equal(rule, "waits ended by the kick", t.Want(rule, "latched"), ended)
		}
	}}
}

// atOnce has the target poll, and tells whether that came back at once: its vCPU was blocked for no
// time at all. That the thread of a program is blocked otherwise, now and then, is Go's doing. A
// poll that does not come back is left to the next reset.
func (t *T) atOnce(m XenMachine, poll arch.Op) bool {
	before, after := t.argument(m, "vcpu_runstate_info", nil), t.argument(m, "vcpu_runstate_info", nil)
	look := func(a argument) arch.Op { return t.operation("get_runstate_info", m.VCPU(target), a.Address()) }
	const again = 5
	for range again {
		t.start(m, target, look(before), poll, look(after))
		if t.ended(m, 3) == 0 {
			return false
		}
		t.finish(m, target)
		t.Control("result of the poll", t.ABI.Result("poll", "port pending"), t.returned(m.Results(target)[1]))
		if after.get("time_blocked") == before.get("time_blocked") {
			return true
		}
	}
	return false
}

// xenPollKeeps: pending is not the poll's to clear.
func xenPollKeeps() Check {
	const rule = "poll/keeps-pending"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		port := m.ID(target)
		t.start(m, target, t.poll(m, 0, port))
		t.Control("a poll before the kick sleeps, in operation", 0, t.settle(m, target, 1))
		t.run(m, caller, t.kick(port))
		t.Control("polls ended by a kick", 1, t.ended(m, 1))
		t.finish(m, target)
		for range 3 {
			t.Equal(rule, "pending after a poll", t.Want(rule, "pending"), bit(m.Pending(port)))
			once := t.atOnce(m, t.poll(m, 0, port))
			t.Equal(rule, "the next poll comes back at once", t.Want(rule, "pending"), bit(once))
			if !once {
				return
			}
		}
	}}
}

// xenPollSeveral: each of several ports ends a poll, pending before it or made so during it. The
// control is that the poll sleeps with none of them pending; as every event of the domain ends it,
// it need not do so for long.
func xenPollSeveral() Check {
	const rule = "poll/several-ports"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		ports := []uint64{t.ipiPort(m, target), t.ipiPort(m, target), t.ipiPort(m, target)}
		poll := t.poll(m, 0, ports...)
		for i, port := range ports {
			name := fmt.Sprintf("port %d of %d", i+1, len(ports))
			t.Control("a poll with none of the ports pending sleeps", true, t.Until(func() bool {
				t.start(m, target, poll)
				if t.settle(m, target, 1) == 0 {
					return true
				}
				t.finish(m, target)
				return false
			}))
			t.run(m, caller, t.send(m, port))
			if !t.endsBy(m, rule, "polls ended by "+name, t.Want(rule, "wakes"), 1) {
				return
			}
			once := t.atOnce(m, poll)
			t.Equal(rule, "polls that come back at once with "+name+" pending before", t.Want(rule, "wakes"), bit(once))
			if !once {
				return
			}
			m.SetPending(port, false)
		}
	}}
}

// xenPollOther: a port that is bound to another vCPU will do.
func xenPollOther() Check {
	const rule = "poll/other-vcpu-port"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		port := m.ID(third)
		t.dozes(m, t.poll(m, 0, port))
		t.run(m, caller, t.kick(m.ID(caller)))
		t.Control("the poll sleeps on after a send to a port that it is not of", true, t.stays(m, target, 0))
		t.run(m, caller, t.send(m, port))
		t.Equal(rule, "polls ended", t.Want(rule, "wakes"), t.ended(m, 1))
	}}
}

// xenPollLimit: how many ports a poll can name. More of them are refused, whatever they are.
func xenPollLimit() Check {
	const rule = "poll/limit"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		limit := t.ABI.Word("poll-limit")
		if limit > 1<<10 {
			t.Fatal(fmt.Errorf("abi lists no number of ports that there can be: %d", limit))
		}
		ports := slices.Repeat([]uint64{m.ID(caller)}, int(limit+1))
		result := func(op arch.Op) int64 { return t.returned(t.run(m, caller, op)[0]) }
		t.Equal(rule, fmt.Sprint(limit, " ports"), t.ABI.Result("poll", "timeout over"), result(t.poll(m, over, ports[:limit]...)))
		t.Equal(rule, fmt.Sprint(limit+1, " ports"), t.ABI.Result("poll", "too many ports"), result(t.poll(m, over, ports...)))
		for _, n := range []uint64{limit + 1, 1 << 31, 1<<32 - 1} {
			a := t.argument(m, "sched_poll", fields{"ports": t.ABI.Word("hypervisor-memory"), "nr_ports": n, "timeout": over})
			t.Equal(rule, fmt.Sprint(n, " ports that cannot be read"), t.ABI.Result("poll", "too many ports"), result(t.operation("poll", a.Address())))
		}
	}}
}

// xenPollRefused: ports that cannot be polled, and those that can though nothing can end the poll.
func xenPollRefused() Check {
	const (
		closed     = "poll/closed-port"
		absent     = "poll/absent-port"
		unbound    = "poll/unbound-port"
		unreadable = "poll/unreadable-ports"
	)
	return Check{Rules: []string{closed, absent, unbound, unreadable}, Run: func(t *T) {
		m := t.xen()
		port := t.closed(m)
		for _, list := range [][]uint64{{port}, {m.ID(caller), port}, {0}} {
			t.Equal(closed, fmt.Sprint("result for ports ", list), t.ABI.Result("poll", "closed port"), t.refusedPoll(m, t.poll(m, over, list...)))
		}
		for _, p := range t.absentPorts(m) {
			t.Equal(absent, "result for port "+Hex(p).String(), t.ABI.Result("poll", "absent port"), t.refusedPoll(m, t.poll(m, over, p)))
		}
		open := t.unbound(m)
		r := t.run(m, caller, t.poll(m, over, open))
		t.Equal(unbound, "result", t.ABI.Result("poll", "timeout over"), t.returned(r[0]))
		a := t.argument(m, "sched_poll", fields{"ports": t.ABI.Word("hypervisor-memory"), "nr_ports": 1, "timeout": over})
		t.Equal(unreadable, "result", t.ABI.Result("poll", "ports unreadable"), t.refusedPoll(m, t.operation("poll", a.Address())))
	}}
}

// xenPollPast: a timeout that is over. The control is the same poll without one.
func xenPollPast() Check {
	const rule = "poll/timeout-past"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		port := m.ID(target)
		t.dozes(m, t.poll(m, 0, port))
		t.run(m, caller, t.kick(port))
		t.finish(m, target)
		m.SetPending(port, false)
		now := t.look(m, m.VCPU(caller))[0].entry
		for _, timeout := range []uint64{over, now / 2, now} {
			t.start(m, target, t.poll(m, timeout, port))
			if !t.endsBy(m, rule, "polls ended", 1, 1) {
				return
			}
			t.Equal(rule, "result", t.ABI.Result("poll", "timeout over"), t.returned(m.Results(target)[0]))
		}
	}}
}

// xenPollNear: timeouts that are to come. System time is told by when a vCPU's state began: that of
// the vCPU that polls, once it is back, is when it came back. A poll that an event of the kernel's
// ended before is taken up again.
func xenPollNear() Check {
	const (
		near  = "poll/timeout-near"
		alone = "poll/timeout-alone"
		// again is how often something else may end a poll.
		again       = 100
		millisecond = 1_000_000
	)
	return Check{Rules: []string{near, alone}, Run: func(t *T) {
		for _, rule := range []string{near, alone} {
			m := t.xen()
			var ports []uint64
			if rule == near {
				ports = []uint64{m.ID(target)}
			}
			slept, came := false, false
			// The first timeouts may be over before the poll begins, or find the vCPU with events in a row.
			for ahead := uint64(10 * millisecond); !(slept && came) && ahead < 10_000*millisecond; ahead *= 2 {
				timeout := t.look(m, m.VCPU(caller))[0].entry + ahead
				poll := t.poll(m, timeout, ports...)
				after := t.argument(m, "vcpu_runstate_info", nil)
				state := t.operation("get_runstate_info", m.VCPU(target), after.Address())
				var entry uint64
				n := 0
				for ; entry < timeout && n < again; n++ {
					t.start(m, target, poll, state)
					slept = t.Until(func() bool { _, done := m.At(target); return done >= 1 || t.asleepAt(m, target, 0) }) && t.asleepAt(m, target, 0) || slept
					if !t.endsBy(m, rule, "polls ended", 1, 2) {
						slept, came, entry = true, true, timeout
						break
					}
					t.Equal(rule, "result", t.ABI.Result("poll", "timeout over"), t.returned(m.Results(target)[0]))
					entry = after.get("state_entry_time")
				}
				t.Evidence(rule, "polls", n)
				// As a delay it would be over no sooner than that.
				t.Truth(rule, "system time is absolute", entry < timeout+(timeout-ahead))
				came = came || n < again
			}
			if rule == near {
				t.Equal(rule, "polls that came back early all the time", t.Want(rule, "early"), bit(!came))
			} else {
				t.Truth(rule, "the poll came back at its timeout", came)
			}
			t.Truth(rule, "the poll slept before", slept)
		}
	}}
}

// xenUnbound: a port for somebody else, and what becomes of events for it.
func xenUnbound() Check {
	const (
		alloc = "event/alloc-unbound"
		lost  = "event/send-unbound"
	)
	return Check{Rules: []string{alloc, lost}, Run: func(t *T) {
		m := t.xen()
		self := t.ABI.Word("self")
		r, a := t.event(m, "alloc_unbound", fields{"dom": self, "remote_dom": self})
		t.Equal(alloc, "result", t.ABI.Result("alloc_unbound", "done"), r)
		port := a.get("port")
		m.SetMasked(port, true)
		s := t.status(m, port)
		t.Equal(alloc, "status", t.ABI.Word("unbound"), s.get("status"))
		t.Equal(alloc, "domain", 0, s.get("remote_dom"))
		t.Equal(alloc, "pending", false, m.Pending(port))
		t.Equal(lost, "result", t.ABI.Result("send", "unbound port"), t.returned(t.run(m, caller, t.send(m, port))[0]))
		t.Equal(lost, "pending", t.Want(lost, "pending"), bit(m.Pending(port)))
		own := t.ipiPort(m, caller)
		t.run(m, caller, t.send(m, own))
		t.Control("pending after a send to a port that is bound", true, m.Pending(own))
	}}
}

// status is what a port is bound to.
func (t *T) status(m microvm.Machine, port uint64) argument {
	return t.must(m, "status", fields{"dom": t.ABI.Word("self"), "port": port})
}

// xenPair: two ports that are each other's ends.
func xenPair() Check {
	const (
		bind = "event/bind-interdomain"
		born = "event/born-pending"
		end  = "event/other-end"
	)
	return Check{Rules: []string{bind, born, end}, Run: func(t *T) {
		m := t.xen()
		first := t.unbound(m)
		r, a := t.event(m, "bind_interdomain", fields{"remote_dom": t.ABI.Word("self"), "remote_port": first})
		t.Equal(bind, "result", t.ABI.Result("bind_interdomain", "done"), r)
		second := a.get("local_port")
		m.SetMasked(second, true)
		t.Equal(born, "the new port is pending", t.Want(born, "pending"), bit(m.Pending(second)))
		t.Equal(born, "the other one is pending", t.Want(born, "other"), bit(m.Pending(first)))
		for port, other := range map[uint64]uint64{first: second, second: first} {
			s := t.status(m, port)
			name := map[uint64]string{first: "first", second: "second"}[port]
			t.Equal(bind, "status of the "+name, t.ABI.Word("interdomain"), s.get("status"))
			t.Equal(bind, "domain of the other end of the "+name, 0, s.get("remote_dom"))
			t.Equal(bind, "other end of the "+name+" is the other one", true, s.get("remote_port") == other)
			m.SetPending(first, false)
			m.SetPending(second, false)
			t.run(m, caller, t.send(m, port))
			t.Equal(end, "the other end of the "+name+" is pending", t.Want(end, "pending"), bit(m.Pending(other)))
			t.Equal(end, "the "+name+" itself is pending", t.Want(end, "own"), bit(m.Pending(port)))
		}
	}}
}

// xenIPI: a port of a vCPU's for events from its own domain.
func xenIPI() Check {
	const rule = "event/bind-ipi"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		for cpu := range m.CPUs() {
			r, a := t.event(m, "bind_ipi", fields{"vcpu": m.VCPU(cpu)})
			t.Equal(rule, "result", t.ABI.Result("bind_ipi", "done"), r)
			port := a.get("port")
			m.SetMasked(port, true)
			s := t.status(m, port)
			t.Equal(rule, "status", t.ABI.Word("ipi"), s.get("status"))
			t.Equal(rule, fmt.Sprintf("vCPU of the port of CPU %d", cpu), m.VCPU(cpu), s.get("vcpu"))
			t.Equal(rule, "pending", false, m.Pending(port))
		}
	}}
}

// xenMove: whose events a port's are.
func xenMove() Check {
	const rule = "event/bind-vcpu"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		first, _ := t.pair(m)
		for _, cpu := range []int{target, third, caller} {
			r, _ := t.event(m, "bind_vcpu", fields{"port": first, "vcpu": m.VCPU(cpu)})
			t.Equal(rule, "result", t.ABI.Result("bind_vcpu", "done"), r)
			t.Equal(rule, fmt.Sprintf("vCPU after a move to CPU %d", cpu), m.VCPU(cpu), t.status(m, first).get("vcpu"))
		}
		port := t.ipiPort(m, target)
		r, _ := t.event(m, "bind_vcpu", fields{"port": port, "vcpu": m.VCPU(third)})
		t.Equal(rule, "result for the port of an IPI", t.ABI.Result("bind_vcpu", "port of an IPI"), r)
		t.Equal(rule, "vCPU of the port of an IPI after it", m.VCPU(target), t.status(m, port).get("vcpu"))
	}}
}

// xenClose: what is left of a port and of its other end.
func xenClose() Check {
	const (
		closes = "event/close"
		clears = "event/close-clears-pending"
	)
	return Check{Rules: []string{closes, clears}, Run: func(t *T) {
		m := t.xen()
		first, second := t.pair(m)
		r, _ := t.event(m, "close", fields{"port": second})
		t.Equal(closes, "result", t.ABI.Result("close", "done"), r)
		t.Equal(closes, "status", t.ABI.Word("closed"), t.status(m, second).get("status"))
		t.Equal(closes, "status of the other end", t.ABI.Word("unbound"), t.status(m, first).get("status"))

		port := t.ipiPort(m, caller)
		t.run(m, caller, t.send(m, port))
		t.Control("the port is pending when it is closed", true, m.Pending(port))
		t.must(m, "close", fields{"port": port})
		t.Equal(clears, "pending after the close", t.Want(clears, "pending"), bit(m.Pending(port)))
		for range 8 { // the lowest that are free come first
			if again := t.ipiPort(m, caller); again == port {
				t.Equal(clears, "pending in its next use", t.Want(clears, "pending"), bit(m.Pending(port)))
				break
			}
		}
	}}
}

// xenUnmask: the mask is cleared, pending is not.
func xenUnmask() Check {
	const rule = "event/unmask"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		port := t.ipiPort(m, caller)
		for _, pending := range []bool{false, true} {
			m.SetMasked(port, true)
			m.SetPending(port, pending)
			r, _ := t.event(m, "unmask", fields{"port": port})
			t.Equal(rule, "result", t.ABI.Result("unmask", "done"), r)
			t.Equal(rule, "masked", t.Want(rule, "masked"), bit(m.Masked(port)))
			if pending {
				t.Equal(rule, "pending", t.Want(rule, "pending"), bit(m.Pending(port)))
			}
			m.SetMasked(port, true)
		}
	}}
}

// xenRefused: ports, vCPUs and domains that are not there.
func xenRefused() Check {
	const (
		ports   = "event/refused-ports"
		vcpus   = "event/refused-vcpus"
		domains = "event/refused-domains"
	)
	return Check{Rules: []string{ports, vcpus, domains}, Run: func(t *T) {
		m := t.xen()
		self, nobody := t.ABI.Word("self"), t.ABI.Word("absent-domain")
		closed := t.closed(m)
		refused := func(rule, name, when string, members fields) {
			r, _ := t.event(m, name, members)
			t.Equal(rule, fmt.Sprintf("%s of %v", name, members), t.ABI.Result(name, when), r)
		}
		for _, port := range append(t.absentPorts(m), closed) {
			when := "absent port"
			if port == closed {
				when = "closed port"
			} else {
				refused(ports, "status", when, fields{"dom": self, "port": port})
			}
			refused(ports, "close", when, fields{"port": port})
			refused(ports, "bind_vcpu", when, fields{"port": port, "vcpu": m.VCPU(target)})
			refused(ports, "unmask", when, fields{"port": port})
			refused(ports, "bind_interdomain", "not unbound", fields{"remote_dom": self, "remote_port": port})
		}
		refused(ports, "bind_interdomain", "not unbound", fields{"remote_dom": self, "remote_port": m.ID(target)})

		open := t.unbound(m)
		for _, vcpu := range []uint64{t.ABI.Word("no-vcpu"), 1<<31 - 1, 1<<32 - 1} {
			refused(vcpus, "bind_ipi", "absent vCPU", fields{"vcpu": vcpu})
			refused(vcpus, "bind_vcpu", "absent vCPU", fields{"port": open, "vcpu": vcpu})
		}
		refused(domains, "alloc_unbound", "absent domain", fields{"dom": nobody, "remote_dom": self})
		refused(domains, "bind_interdomain", "absent domain", fields{"remote_dom": nobody, "remote_port": open})
		refused(domains, "status", "absent domain", fields{"dom": nobody, "port": open})
		refused(domains, "reset", "absent domain", fields{"dom": nobody})
	}}
}

// xenUp: which vCPUs are up.
func xenUp() Check {
	const rule = "vcpu/is-up"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		is := func(vcpu uint64) int64 { return t.returned(t.run(m, caller, t.operation("is_up", vcpu, 0))[0]) }
		for cpu := range m.CPUs() {
			t.Equal(rule, fmt.Sprintf("result for CPU %d", cpu), t.ABI.Result("is_up", "up"), is(m.VCPU(cpu)))
		}
		if spare, ok := m.Spare(); ok {
			t.Equal(rule, "result for a vCPU that is down", t.ABI.Result("is_up", "down"), is(spare))
		}
		t.Equal(rule, "result for a vCPU that is not there", t.ABI.Result("is_up", "absent vCPU"), is(t.ABI.Word("no-vcpu")))
	}}
}

// xenAbsentVCPU: a vCPU that is not there, whatever the operation. The control is that the same
// operations give something else for one that is there.
func xenAbsentVCPU() Check {
	const rule = "vcpu/absent"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		a := m.Alloc(64, 64, 0)
		type operation struct {
			abi.Call
			of string // the call whose result it has
		}
		ops := []operation{{abi.Call{Name: "undefined operation", Convention: "vcpu_op", Number: t.ABI.Word("first-free-operation")}, "vcpu_op"}}
		for _, c := range t.ABI.AllCalls() {
			if c.Convention == "vcpu_op" {
				ops = append(ops, operation{c, c.Name})
			}
		}
		for _, vcpu := range []uint64{t.ABI.Word("no-vcpu"), 1<<31 - 1, 1<<32 - 1} {
			for _, c := range ops {
				r := t.run(m, caller, t.operationOf(c.Call, vcpu, a.Address()))[0]
				t.Equal(rule, fmt.Sprintf("%s of vCPU %#x", c.Name, vcpu), t.ABI.Result(c.of, "absent vCPU"), t.returned(r))
			}
		}
	}}
}

// xenInfo: registrations of a vcpu_info that are refused.
func xenInfo() Check {
	const (
		again   = "vcpu/info-again"
		crosses = "vcpu/info-crosses-page"
		aligned = "vcpu/info-not-aligned"
		page    = 4096
	)
	return Check{Rules: []string{again, crosses, aligned}, Run: func(t *T) {
		m := t.xen()
		memory := m.Alloc(page, page, 0)
		real, err := m.Real(memory)
		t.Check("physical address of an area", err)
		register := func(vcpu, offset uint64) int64 {
			a := t.argument(m, "vcpu_register_vcpu_info", fields{"mfn": real / page, "offset": offset})
			return t.returned(t.run(m, caller, t.operation("register_vcpu_info", vcpu, a.Address()))[0])
		}
		const name = "register_vcpu_info"
		t.OneOf(again, "result", []int64{t.ABI.Result(name, "registered already"), t.ABI.Result(name, "registered already, before 4.18")}, register(m.VCPU(caller), 0))
		spare, ok := m.Spare()
		if !ok {
			for _, rule := range []string{crosses, aligned} {
				t.Unreached(rule, "all vCPUs have their vcpu_info registered; give the domain one more than its kernel uses")
			}
			return
		}
		size := t.ABI.Layout("vcpu_info").Size
		align := t.ABI.Layout("vcpu_info").Align
		for _, offset := range []uint64{page - size + align, page - align} {
			t.Equal(crosses, fmt.Sprint("result for offset ", offset), t.ABI.Result(name, "area crosses a page"), register(spare, offset))
		}
		for _, offset := range []uint64{1, align / 2, page - size - align/2} {
			t.Equal(aligned, fmt.Sprint("result for offset ", offset), t.ABI.Result(name, "area not aligned"), register(spare, offset))
		}
	}}
}

// xenAssist: what vm_assist takes. It is left as Linux has it, on.
func xenAssist() Check {
	const rule = "vcpu/assist"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.xen()
		assist := func(command, about uint64) int64 {
			return t.returned(t.run(m, caller, t.operationOf(abi.Call{Convention: "vm_assist", Number: command}, about))[0])
		}
		enable, known, unknown := t.ABI.Word("assist-enable"), t.ABI.Word("assist-update-flag"), t.ABI.Word("assist-unknown")
		for range 2 {
			t.Equal(rule, "result of turning the flag on", t.ABI.Result("vm_assist", "done"), assist(enable, known))
		}
		none := t.ABI.Word("first-free-operation")
		for _, about := range []uint64{unknown, 64, 1<<32 - 1} {
			t.Equal(rule, fmt.Sprint("result for ", about), t.ABI.Result("vm_assist", "nothing that it knows"), assist(enable, about))
			t.Equal(rule, fmt.Sprint("result for ", about, " with a command that is not there"), t.ABI.Result("vm_assist", "nothing that it knows"), assist(none, about))
		}
		t.Equal(rule, "result for a command that is not there", t.ABI.Result("vm_assist", "undefined operation"), assist(none, known))
	}}
}

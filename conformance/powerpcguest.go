package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/ppc64le"
	"pvabi/conformance/microvm"
)

// PAPRGuestMachine is what the checks of a guest's side ask of a machine besides: that its CPUs are
// those of the kernel that is looked at. Package pseries has one.
type PAPRGuestMachine interface {
	PAPRMachine
	KernelMachine
	// KernelArea returns the address of the area that the kernel has for a CPU, which goes by the
	// kernel's number: as programs know it and as the hypervisor does. An error that wraps ErrHidden
	// says that the kernel does not tell.
	KernelArea(number int) (address, real uint64, err error)
}

// PowerPCGuest is the suite for the guest's side of powerpc-papr: what the Linux of a release, k,
// does with the ABI. hypertas is as for PowerPCPAPR; the machines that open makes must be
// PAPRGuestMachines.
func PowerPCGuest(release string, k GuestKernel, hypertas []byte, open func(microvm.Config) (microvm.Machine, error)) *Suite {
	s := PowerPCPAPR(Implementer{Name: Linux, Version: release}, hypertas, open)
	s.Guest, s.Checks = k, paprGuestChecks()
	return s
}

// PowerPCGuestRules are the rules that PowerPCGuest has a result for, in the order of its results.
func PowerPCGuestRules() []abi.Rule {
	return (&Suite{ABI: abi.PowerPCPAPR(), Checks: paprGuestChecks()}).Rules()
}

// paprGuestChecks are the checks of the guest's side, in the order of the report.
func paprGuestChecks() []Check {
	return []Check{
		disturbing(takesOffline, paprGuestHotplug()),
		paprGuestAreas(),
		paprGuestShared(),
		paprGuestIdle(),
		disturbing(records, paprGuestPreempted()),
		disturbing(takesLock, paprGuestLock()),
		disturbing(takesLock, paprGuestProds()),
		disturbing("changes what the kernel counts as stolen", paprGuestSteal()),
	}
}

// What checks do to a kernel that runs.
const (
	records   = "has the kernel record what it does, by probes in its code"
	takesLock = "takes a lock of the kernel's, and has CPUs wait for it"
)

const onlineFile = "sys/devices/system/cpu/cpu%d/online"

// paprKernel is a machine of the kernel's own CPUs.
func (t *T) paprKernel(c microvm.Config) PAPRGuestMachine {
	m, ok := t.Open(c).(PAPRGuestMachine)
	if !ok {
		t.Fatal(errors.New("the machine is not one of the kernel's own CPUs"))
	}
	return m
}

// guestArea reads the area that the guest's kernel has for a CPU, by the number that the kernel
// has for that. If it shows none, the rules are unreached.
func (t *T) guestArea(cpu int, rules ...string) (v vpa, ok bool) {
	text, ok := t.file(fmt.Sprintf("sys/kernel/debug/powerpc/vpa/cpu-%d", cpu),
		"debugfs, CONFIG_PPC_SPLPAR and a hypervisor that has hcall-splpar", rules...)
	v = vpa{t.ABI.Layout("lppaca"), []byte(text)}
	if ok && uint64(len(v.bytes)) < v.layout.Size {
		t.Fatal(fmt.Errorf("the kernel shows %d bytes of the area of CPU %d, less than %d", len(v.bytes), cpu, v.layout.Size))
	}
	return v, ok
}

// processors are the numbers by which calls name the CPUs of the kernel's that are online.
func (t *T) processors() map[int]uint64 {
	out := map[int]uint64{}
	for _, cpu := range t.online() {
		name := fmt.Sprintf("sys/devices/system/cpu/cpu%d/physical_id", cpu)
		text, err := fs.ReadFile(t.Guest, name)
		t.Check("the number of a CPU", err)
		out[cpu], err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		t.Check("the number of a CPU, /"+name, err)
	}
	return out
}

// hypercall is a call as the guest's kernel was about to make it: registers r3 to r6.
type hypercall struct {
	cpu    int // the kernel's number
	number uint64
	args   [3]uint64
}

// hypercallProbe is a probe on the calls that functions of the kernel make of others that make a
// hypercall. Those themselves are assembler, which the kernel does not let be probed. Where a
// function cannot be looked at, the rules are unreached.
func (t *T) hypercallProbe(m KernelMachine, rules []string, functions ...string) (p Probe, ok bool) {
	const begins = 32 // bytes: a hypercall is among the first instructions
	p = Probe{Name: "hypercall", Args: "r3=%gpr3:x64 r4=%gpr4:x64 r5=%gpr5:x64 r6=%gpr6:x64"}
	for _, function := range functions {
		address, size, ok := t.symbol(m, function, rules...)
		if !ok {
			return p, false
		}
		for _, b := range ppc64le.Branches(t.code(m, address, size)) {
			to := address + uint64(b.At+b.Distance)
			if to-address >= size && ppc64le.Calls(t.code(m, to, begins)) {
				p.At += fmt.Sprintf(" %s+%d", function, b.At)
			}
		}
	}
	if p.At == "" {
		for _, r := range rules {
			t.Unreached(r, fmt.Sprintf("no hypercall is found in the kernel's %s", strings.Join(functions, " and ")))
		}
	}
	return p, p.At != ""
}

func (t *T) hypercalls(r Recorder) []hypercall { return hypercallsOf(t.hits(r)) }

func hypercallsOf(hits []Hit) (out []hypercall) {
	for _, h := range hits {
		out = append(out, hypercall{h.CPU, h.Args["r3"], [3]uint64{h.Args["r4"], h.Args["r5"], h.Args["r6"]}})
	}
	return out
}

// someHypercalls is as hypercalls where CPUs call as fast as they can, so that it does not matter if
// some is lost.
func (t *T) someHypercalls(r Recorder) []hypercall {
	hits, err := r.Hits()
	if !errors.Is(err, ErrLost) {
		t.Check("read what was recorded", err)
	}
	return hypercallsOf(hits)
}

// paprGuestHotplug: a CPU goes offline and comes back. What it registers and deregisters is
// recorded, and where its area is held against what the kernel and the hypervisor say of it.
func paprGuestHotplug() Check {
	const (
		offline = "guest/deregisters-before-offline"
		own     = "guest/registers-own-area"
		areas   = "guest/registers-area"
	)
	rules := []string{areas, own, offline}
	return Check{Rules: rules, Run: func(t *T) {
		online := t.online()
		last := online[len(online)-1]
		if len(online) < 3 {
			t.GiveUp(fmt.Sprintf("%d CPUs are online; one can be taken offline of three or more", len(online)))
		}
		name := fmt.Sprintf(onlineFile, last)
		if _, ok := t.file(name, "CONFIG_HOTPLUG_CPU", rules...); !ok {
			return
		}
		ids, reg := t.processors(), t.registration()
		id := ids[last]
		// No thread of a machine may be left on a CPU that goes.
		t.machines().close()
		m := t.paprKernel(microvm.Config{CPUs: 1})
		t.after = append(t.after, t.machines().close)
		probe, ok := t.hypercallProbe(m, rules, "vpa_init", "pseries_cpu_offline_self")
		if !ok {
			return
		}
		where, ok := t.areaPlaces(m, online, rules...)
		if !ok {
			return
		}
		r, ok := t.recording(rules, probe)
		if !ok {
			return
		}

		back := func() error { return t.Guest.Write(name, "1") }
		t.Check("take a CPU offline", t.Guest.Write(name, "0"))
		t.after = append(t.after, func() {
			// If all went well it is there already, which Linux takes for no mistake.
			if err := back(); err != nil && t.failure == nil {
				t.failure = fmt.Errorf("bring CPU %d back: %w", last, err)
			}
		})
		left := t.hypercalls(r)
		t.registeredWhileOffline(m, offline, id)
		t.Check("bring a CPU back", back())
		came := t.hypercalls(r)

		function := func(name string) uint64 { return uint64(reg.call.Arg("flags").Value(name)) }
		var order []string
		for _, h := range left {
			if h.number == reg.call.Number && h.cpu == last && h.args[1] == id {
				for _, f := range []string{"DEREGISTER_SLB", "DEREGISTER_VPA"} {
					if h.args[0] == function(f) {
						order = append(order, f)
					}
				}
			}
		}
		t.Truth(offline, "the area is deregistered, and last of all", len(order) > 0 && slices.Index(order, "DEREGISTER_VPA") == len(order)-1)
		t.Evidence(offline, "calls", order)

		var registered []uint64 // addresses
		others := int64(0)
		for _, h := range slices.Concat(left, came) {
			if h.number != reg.call.Number {
				continue
			}
			others += bit(h.args[1] != ids[h.cpu])
			if h.args[0] == function("REGISTER_VPA") && h.cpu == last {
				registered = append(registered, h.args[2])
			}
		}
		t.Control("areas that a CPU registers when it comes", 1, len(registered))
		t.Equal(own, "registrations of other CPUs' areas", t.Want(own, "others"), others)
		t.Equal(areas, "the address that is registered, and that of the kernel's area", Hex(where[last].real), Hex(registered[0]))
		t.inUse(areas, online, where)
	}}
}

// place is where an area is: as programs know it, and as the hypervisor does.
type place struct{ address, real uint64 }

// areaPlaces are where the kernel's areas of CPUs are. If they cannot be found, the rules are unreached.
func (t *T) areaPlaces(m PAPRGuestMachine, cpus []int, rules ...string) (where map[int]place, ok bool) {
	where = map[int]place{}
	for _, cpu := range cpus {
		address, real, err := m.KernelArea(cpu)
		if errors.Is(err, ErrHidden) {
			for _, r := range rules {
				t.Unreached(r, err.Error())
			}
			return nil, false
		}
		t.Check("the kernel's area", err)
		where[cpu] = place{address, real}
	}
	return where, true
}

// registeredWhileOffline asks the hypervisor whether a CPU that is offline has an area: only then
// would a log for it be taken. The control is a CPU that is online.
func (t *T) registeredWhileOffline(m PAPRGuestMachine, rule string, id uint64) {
	reg := t.registration()
	l := t.paprAlloc(m, 0)
	l.put(reg.limit("LENGTH_AT"), lengthSize("REGISTER_DTL"), reg.limit("BOUNDARY"))
	r := t.run(m, caller,
		reg.op("REGISTER_DTL", m.ID(caller), l.real), reg.op("DEREGISTER_DTL", m.ID(caller), 0),
		reg.op("REGISTER_DTL", id, l.real), reg.op("DEREGISTER_DTL", id, 0))
	t.Control("a log for a CPU that is online", t.ABI.Result("REGISTER_VPA", "DTL registered"), t.returned(r[0]))
	t.Equal(rule, "a log for a CPU that is offline", t.ABI.Result("REGISTER_VPA", "DTL without VPA"), t.returned(r[2]))
	t.Equal(rule, "areas registered then", t.Want(rule, "registered"), bit(t.returned(r[2]) == t.ABI.Result("REGISTER_VPA", "DTL registered")))
}

// inUse: the areas of all CPUs are where they may be, and the hypervisor counts dispatches there.
func (t *T) inUse(rule string, cpus []int, where map[int]place) {
	reg := t.registration()
	missing := int64(0)
	for _, cpu := range cpus {
		count := func() uint64 {
			v, _ := t.guestArea(cpu, rule)
			if len(v.bytes) == 0 {
				return 0
			}
			return v.field("yield_count")
		}
		v, ok := t.guestArea(cpu, rule)
		if !ok {
			return
		}
		at, size, before := where[cpu].real, v.field("size"), count()
		placed := at != 0 && at%reg.limit("ALIGNMENT") == 0 && at%reg.limit("BOUNDARY")+size <= reg.limit("BOUNDARY")
		counted := t.Until(func() bool {
			// Whoever comes to a CPU has it dispatched, if it was not.
			t.Check("run on a CPU", t.Guest.Pinned(cpu, func() error { return nil }))
			return count() != before
		})
		t.Evidence(rule, fmt.Sprintf("area of CPU %d", cpu), fmt.Sprintf("%#x, %d bytes", at, size))
		missing += bit(!placed || !counted || size < reg.limit("VPA_MINIMUM"))
	}
	t.Equal(rule, "CPUs without an area that is in use", t.Want(rule, "missing"), missing)
}

// paprGuestAreas: what the kernel has written into the areas of its CPUs.
func paprGuestAreas() Check {
	const (
		size    = "guest/size-field"
		catcher = "guest/eye-catcher"
		vectors = "guest/keeps-vectors"
	)
	rules := []string{size, catcher, vectors}
	return Check{Rules: rules, Run: func(t *T) {
		for _, cpu := range t.online() {
			v, ok := t.guestArea(cpu, rules...)
			if !ok {
				return
			}
			of := fmt.Sprintf("CPU %d", cpu)
			t.Equal(size, of, t.Want(size, "size"), v.field("size"))
			t.Truth(size, of+": at least what a hypervisor takes", v.field("size") >= t.registration().limit("VPA_MINIMUM"))
			t.Equal(catcher, of, Hex(t.Want(catcher, "desc")), Hex(v.field("desc")))
			t.Equal(vectors, of, t.Want(vectors, "set"), v.field("vmxregs_in_use"))
		}
	}}
}

// paprGuestShared: whether the kernel takes its CPUs for shared, in each place where it shows that.
func paprGuestShared() Check {
	const rule = "guest/shared-mode"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		v, ok := t.guestArea(t.online()[0], rule)
		if !ok {
			return
		}
		shared := bit(v.field("__old_status")&v.layout.Bit("__old_status", "SHARED_PROC") != 0)
		t.Evidence(rule, "SHARED_PROC", shared)
		differences := int64(0)
		shown := func(where string, says int64) {
			t.Evidence(rule, where, says)
			differences += bit(says != shared)
		}
		// Only paravirtual locks have something to tune.
		shown("locks", t.exists("sys/kernel/debug/powerpc/qspl_pv_yield_owner"))
		shown("statistics of dispatches", t.exists("proc/powerpc/vcpudispatch_stats"))
		if text, err := fs.ReadFile(t.Guest, "proc/powerpc/lparcfg"); err == nil {
			_, says, _ := bytes.Cut(text, []byte("shared_processor_mode="))
			shown("lparcfg", bit(bytes.HasPrefix(says, []byte("1"))))
		}
		t.Equal(rule, "places that show something else than the area", t.Want(rule, "differences"), differences)
	}}
}

// exists tells whether the guest's kernel has a file.
func (t *T) exists(name string) int64 {
	f, err := t.Guest.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	t.Check("is there /"+name, err)
	t.Check("close /"+name, f.Close())
	return 1
}

// paprGuestIdle: a CPU that has nothing to do, and one that has.
func paprGuestIdle() Check {
	const rule = "guest/marks-idle"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.paprKernel(machine())
		cpu := m.Number(target)
		if _, ok := t.guestArea(cpu, rule); !ok {
			return
		}
		_, count, mark := t.ABI.PreemptedField()
		idle := func() (idle uint64, yielded bool) {
			v, _ := t.guestArea(cpu, rule)
			return v.field("idle"), v.field(count.Name)&mark != 0
		}
		found := t.Until(func() bool {
			set, yielded := idle()
			return yielded && set == 1
		})
		if !found && t.shared {
			t.GiveUp("others keep the kernel's CPUs busy")
		}
		t.Equal(rule, "idle of a CPU that cedes for want of work", t.Want(rule, "idle"), bit(found))
		end := t.runner(m, target)
		defer end()
		marked := int64(0)
		for range staysLooks {
			set, _ := idle()
			marked += bit(set != 0)
		}
		t.Equal(rule, "looks at a CPU that runs a task, with idle set", 0, marked)
	}}
}

// paprGuestPreempted: whom the kernel takes for preempted. It asks that of the owner of a mutex
// before it spins for it (kernel/locking/mutex.c, mutex_can_spin_on_owner), so that whether it spins
// is the answer. The owner is a CPU that runs a program, or cedes in one.
func paprGuestPreempted() Check {
	const (
		yielded = "guest/preempted-yielded"
		idle    = "guest/preempted-idle"
	)
	rules := []string{yielded, idle}
	return Check{Rules: rules, Run: func(t *T) {
		m := t.paprKernel(machine())
		// The order in which the kernel comes by these tells what it decided.
		const spins, sleeps = "spins", "sleeps"
		const mutex = 0x20 // include/linux/lock: LCB_F_MUTEX, without LCB_F_SPIN
		r, ok := t.recording(rules, Probe{Name: spins, At: "mutex_spin_on_owner"},
			Probe{Name: sleeps, Event: "lock/contention_begin", Filter: fmt.Sprintf("flags == %d", mutex)})
		if !ok {
			return
		}
		waiter := m.Number(third)
		// decides has a thread wait for the owner and tells what the kernel did first.
		decides := func() (first string, done chan error) {
			t.hits(r)
			done = make(chan error, 1)
			go func() {
				done <- t.Guest.Pinned(waiter, func() error {
					_, err := fs.ReadFile(t.Guest, m.Busy(target)[1:])
					return err
				})
			}()
			t.Control("the kernel waits for the owner", true, t.Until(func() bool {
				for _, h := range t.hits(r) {
					if h.CPU == waiter {
						first = h.Probe
						return true
					}
				}
				return false
			}))
			return first, done
		}
		// looks has the kernel decide several times. A waiter that has to make way for another thread
		// does not spin either, so that having spun once tells.
		looks := func(rule, what string, ops func() (end func(), same func() bool)) {
			spun, kept := false, 0
			t.Until(func() bool {
				end, same := ops()
				first, done := decides()
				if same() {
					kept++
					spun = first == spins
				}
				end()
				t.Check("wait for a mutex", <-done)
				return spun || kept >= staysLooks
			})
			t.Control("looks in which the owner stayed as it was", true, kept > 0)
			t.Equal(rule, what, t.Want(rule, "preempted"), bit(!spun))
		}
		cedes := func(op int, p ...arch.Op) (func(), func() bool) {
			t.start(m, target, p...)
			t.Control("the owner cedes, in operation", op, t.settle(m, target, op+1))
			before := t.yieldCount(m, target)
			return func() {
				t.run(m, caller, t.kick(m.ID(target)))
				t.finish(m, target)
			}, func() bool { return t.yieldCount(m, target) == before && t.yielded(m, target) == 1 }
		}
		looks(yielded, "taken for preempted, YIELDED set and idle clear", func() (func(), func() bool) {
			return cedes(0, waitOp(0))
		})
		if !t.ownCore(m.Number(target)) {
			t.Unreached(idle, "the CPUs share cores, and the kernel does not run under "+t.ABI.Feature("LINUX_KVM").Name)
			return
		}
		address, _, err := m.AreaAddress(target)
		t.Check("the kernel's area", err)
		f := t.ABI.Layout("lppaca").Field("idle")
		mark := func(set uint64) arch.Op { return store(address+f.Offset, set, f.Size) }
		looks(idle, "taken for preempted, YIELDED and idle set", func() (func(), func() bool) {
			return cedes(1, mark(1), waitOp(0), mark(0))
		})
	}}
}

// ownCore tells whether it is for a CPU alone to say that it is idle: it has its core to itself, or the
// kernel runs under KVM.
func (t *T) ownCore(cpu int) bool {
	kvm, err := fs.ReadFile(t.Guest, "sys/firmware/devicetree/base/hypervisor/compatible")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Check("the hypervisor's name", err)
	}
	siblings, err := fs.ReadFile(t.Guest, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	t.Check("threads of a core", err)
	return bytes.Contains(kvm, []byte(t.ABI.Feature("LINUX_KVM").Word)) || strings.TrimSpace(string(siblings)) == strconv.Itoa(cpu)
}

// The lock that waiters are had to wait for: nobody needs it but readers of the file, and each of
// these takes it (drivers/char/random.c, proc_do_uuid).
const (
	bootID     = "proc/sys/kernel/random/boot_id"
	bootIDLock = "bootid_spinlock"
)

// paprGuestLock: whom the kernel confers to while CPUs wait for a lock. Its owner is made up: a lock
// word that names a CPU that is idle, and so has YIELDED set, by which waiters find out whom to
// confer to.
func paprGuestLock() Check {
	const (
		odd     = "guest/confers-odd-count"
		another = "guest/confers-to-another"
	)
	rules := []string{odd, another}
	return Check{Rules: rules, Run: func(t *T) {
		m := t.paprKernel(machine())
		r, lock, ok := t.lockCalls(m, rules, "")
		if !ok {
			return
		}
		confer := func(h hypercall) bool { return h.number == t.ABI.Call("CONFER").Number }
		var calls []hypercall
		t.waitForLock(m, lock, func() bool {
			calls = append(calls, t.someHypercalls(r)...)
			return slices.ContainsFunc(calls, confer)
		})
		if !slices.ContainsFunc(calls, confer) {
			for _, rule := range rules {
				t.Unreached(rule, "waiters for a lock whose owner has YIELDED set confer to nobody")
			}
			return
		}
		t.judgeConfers(odd, another, m.Number(target), calls)
	}}
}

// lockCalls records the hypercalls of waiters for locks, those that the filter keeps, and tells where
// the lock is that they are had to wait for.
func (t *T) lockCalls(m KernelMachine, rules []string, filter string) (r Recorder, lock uint64, ok bool) {
	probe, ok := t.hypercallProbe(m, rules, "queued_spin_lock_slowpath")
	if !ok {
		return nil, 0, false
	}
	if lock, _, ok = t.symbol(m, bootIDLock, rules...); !ok {
		return nil, 0, false
	}
	probe.Filter = filter
	r, ok = t.recording(rules, probe)
	return r, lock, ok
}

// paprGuestProds: that the kernel does not prod who is next in a lock's queue, though that one looks
// preempted, unless it is told to, which is the control.
func paprGuestProds() Check {
	const (
		rule = "guest/locks-do-not-prod"
		tell = "sys/kernel/debug/powerpc/qspl_pv_prod_head"
	)
	return Check{Rules: []string{rule}, Run: func(t *T) {
		if _, ok := t.file(tell, "debugfs, and locks for CPUs that are shared", rule); !ok {
			return
		}
		m := t.paprKernel(machine())
		where, ok := t.areaPlaces(m, t.online(), rule)
		if !ok {
			return
		}
		r, lock, ok := t.lockCalls(m, []string{rule}, fmt.Sprintf("r3 == %d", t.ABI.Call("PROD").Number))
		if !ok {
			return
		}
		_, count, mark := t.ABI.PreemptedField()
		unlocked := func() (made int64) {
			var preempted []arch.Op
			for _, waiter := range []int{caller, third} {
				at := where[m.Number(waiter)].address + count.Offset
				preempted = append(preempted, store(at, reversed(t.yieldCount(m, waiter)|mark, count.Size), count.Size))
			}
			t.waitForLock(m, lock, func() bool { return true }, preempted...)
			return int64(len(t.hits(r)))
		}
		t.after = append(t.after, func() {
			if err := t.Guest.Write(tell, "0"); err != nil && t.failure == nil {
				t.failure = fmt.Errorf("tell the kernel to prod no more: %w", err)
			}
		})
		t.Check("tell the kernel to prod", t.Guest.Write(tell, "1"))
		times := 0
		t.Control("prods are made when the kernel is told to", true, t.Until(func() bool {
			times++
			return unlocked() > 0
		}))
		t.Check("tell the kernel to prod no more", t.Guest.Write(tell, "0"))
		made := int64(0)
		for range times + staysLooks {
			made += unlocked()
		}
		t.Equal(rule, "prods", t.Want(rule, "prods"), made)
		t.Evidence(rule, "times that it took to see one when told to", times)
	}}
}

// waitForLock has two CPUs wait, one after the other, for a lock that names a third as its owner,
// which is idle. When both are in its queue, and enough is true, or stays false, that one does
// what is in before and unlocks.
func (t *T) waitForLock(m PAPRGuestMachine, lock uint64, enough func() bool, before ...arch.Op) {
	// In a lock word the lowest bit says that it is locked, the next ones by which CPU; the highest
	// have 1 more than the number of the CPU that is last in the queue. Unlocking clears the lower
	// half (arch/powerpc/include/asm/qspinlock_types.h).
	const owner, last, half = 1, 17, 2
	t.run(m, target, store(lock, 1|uint64(m.Number(target))<<owner, half))
	queued := func() int {
		var b [8]byte
		t.Check("read the kernel's memory", m.Peek(lock&^7, b[:]))
		return int(binary.LittleEndian.Uint32(b[lock&7:])>>last) - 1
	}
	done, n := make(chan error), 0
	for _, cpu := range []int{m.Number(caller), m.Number(third)} {
		n++
		go func() {
			done <- t.Guest.Pinned(cpu, func() error {
				_, err := fs.ReadFile(t.Guest, bootID)
				return err
			})
		}()
		if !t.Until(func() bool { return queued() == cpu }) {
			break // what is not seen then will tell
		}
	}
	t.Until(enough)
	t.run(m, target, append(before, store(lock, 0, half))...)
	for range n {
		t.Check("read /"+bootID, <-done)
	}
}

// judgeConfers holds the confers among calls against the rules.
func (t *T) judgeConfers(odd, another string, owner int, calls []hypercall) {
	call := t.ABI.Call("CONFER")
	all := uint64(call.Arg("processor").Value("ALL"))
	ids := t.processors()
	known := slices.Collect(maps.Values(ids))
	var even, others, toOwner int64
	for _, h := range calls {
		if h.number != call.Number {
			continue
		}
		to, count := h.args[0], h.args[1]
		if to == all {
			even += bit(count != 0)
			continue
		}
		even += bit(count%2 == 0)
		others += bit(!slices.Contains(known, to) || to == ids[h.cpu])
		toOwner += bit(to == ids[owner])
	}
	t.Control("confers to the owner are among the calls", true, toOwner > 0)
	t.Equal(odd, fmt.Sprintf("confers with an even count among %d calls", len(calls)), t.Want(odd, "even"), even)
	t.Equal(another, fmt.Sprintf("confers to the caller, or to nobody, among %d calls", len(calls)), t.Want(another, "others"), others)
	t.Evidence(odd, "confers to the owner", toOwner)
}

// paprGuestSteal: what the kernel makes of the counters of an area that tell steal time. Where the
// hypervisor leaves them at zero they are free to be set.
func paprGuestSteal() Check {
	const rule = "guest/steal-clock"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.paprKernel(machine())
		cpu := m.Number(target)
		v, ok := t.guestArea(cpu, rule)
		if !ok {
			return
		}
		// The numbers differ, so that each is seen to count.
		rates, err := fs.Glob(t.Guest, "sys/firmware/devicetree/base/cpus/*/timebase-frequency")
		t.Check("the time base", err)
		if len(rates) == 0 {
			t.Unreached(rule, "the device tree has no "+path.Join("cpus", "*", "timebase-frequency"))
			return
		}
		text, err := fs.ReadFile(t.Guest, rates[0])
		t.Check("the time base", err)
		if len(text) < 4 {
			t.Fatal(fmt.Errorf("/%s has %d bytes", rates[0], len(text)))
		}
		second := uint64(binary.BigEndian.Uint32(text))
		where, ok := t.areaPlaces(m, []int{cpu}, rule)
		if !ok {
			return
		}
		address := where[cpu].address
		counts := func() {
			t.Unreached(rule, "the hypervisor counts itself, so that the count cannot be known beforehand")
		}
		for i, name := range []string{"enqueue_dispatch_tb", "ready_enqueue_tb"} {
			old := v.field(name)
			if old != 0 {
				// Somebody counts, or did: a check before, on this very machine.
				t.start(m, target, waitOp(0))
				t.settle(m, target, 1)
				t.run(m, caller, t.kick(m.ID(target)))
				t.finish(m, target)
				if now, _ := t.guestArea(cpu, rule); now.field(name) != old {
					counts()
					return
				}
			}
			// 1.25 and 2.5 seconds.
			added := second * 5 / 4 * uint64(i+1)
			f := v.layout.Field(name)
			before := t.stolen(cpu)
			want := before + added*userHZ/second
			// The kernel's tick sees to it.
			end := t.runner(m, target, store(address+f.Offset, reversed(old+added, f.Size), f.Size))
			t.Until(func() bool { return t.stolen(cpu) >= want })
			end()
			if now, _ := t.guestArea(cpu, rule); now.field(name) != old+added {
				counts()
				return
			}
			t.Equal(rule, fmt.Sprintf("steal time after %d ticks of %s, in 1/%d s", added, name, userHZ), want, t.stolen(cpu))
		}
	}}
}

// reversed is a number as a store of the CPU's must have it to be big-endian in memory.
func reversed(n, size uint64) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n<<(64-8*size))
	return binary.LittleEndian.Uint64(b[:])
}

// userHZ is the unit of times in /proc/stat (include/asm-generic/param.h, USER_HZ).
const userHZ = 100

// stolen is the steal time that the kernel shows for a CPU, in 1/userHZ seconds: the eighth number
// (Documentation/filesystems/proc.rst).
func (t *T) stolen(cpu int) uint64 {
	text, err := fs.ReadFile(t.Guest, "proc/stat")
	t.Check("steal time", err)
	n, err := stealOf(string(text), cpu)
	t.Check("steal time", err)
	return n
}

func stealOf(stat string, cpu int) (uint64, error) {
	const column = 8
	for line := range strings.Lines(stat) {
		if f := strings.Fields(line); len(f) > column && f[0] == fmt.Sprintf("cpu%d", cpu) {
			return strconv.ParseUint(f[column], 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/stat has no steal time of CPU %d", cpu)
}

package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pvabi/abi"
	"pvabi/arch/s390x"
)

// S390GuestMachine is what the checks of a guest's side ask of a machine besides: that its CPUs are
// those of the kernel that is looked at. Package s390 has one.
type S390GuestMachine interface {
	S390Machine
	KernelMachine
}

// S390Guest is the suite for the guest's side of s390: what the Linux of a release, k, does with
// the ABI. host is the suite for the hypervisor below, with what it found out about that; its
// machines must be S390GuestMachines.
func S390Guest(release string, k GuestKernel, host *Suite) *Suite {
	s := *host
	s.pool = nil
	s.Implementer = Implementer{Name: Linux, Version: release}
	s.Guest, s.Checks = k, s390GuestChecks()
	return &s
}

// S390GuestRules are the rules that S390Guest has a result for, in the order of its results.
func S390GuestRules() []abi.Rule {
	return (&Suite{ABI: abi.S390(), Checks: s390GuestChecks()}).Rules()
}

// s390GuestChecks are the checks of the guest's side, in the order of the report.
func s390GuestChecks() []Check {
	return []Check{
		disturbing(records, s390GuestYields()),
		disturbing(takesOffline, s390GuestPreempted()),
		disturbing(takesOffline, s390GuestLock()),
		disturbing(records, s390GuestCall()),
		s390GuestTimeSliceEnd(),
		disturbing("has the kernel make a DIAGNOSE that its hypervisor refuses", s390GuestCounts()),
	}
}

func (t *T) s390Kernel() S390GuestMachine {
	m, ok := t.s390Machine().(S390GuestMachine)
	if !ok {
		t.Fatal(errors.New("the machine is not one of the kernel's own CPUs"))
	}
	return m
}

// invoke has the kernel call a function of its own on a CPU of the kernel's. The caller's program must
// be at its end.
func (t *T) invoke(m KernelMachine, cpu int, function uint64, args ...uint64) (result uint64) {
	t.Check("call a function of the kernel", t.Guest.Pinned(cpu, func() (err error) {
		result, err = m.Invoke(caller, function, args...)
		return err
	}))
	return result
}

// diagStat sums what the kernel has counted of a DIAGNOSE. If it shows no counts, the rules are
// unreached.
func (t *T) diagStat(code uint64, rules ...string) (n uint64, ok bool) {
	text, ok := t.file("sys/kernel/debug/diag_stat", "debugfs", rules...)
	if !ok {
		return 0, false
	}
	n, err := diagStat(text, code)
	t.Check("what the kernel counts", err)
	return n, true
}

// diagStat sums a row of diag_stat: "diag 09c:", a number for each CPU, and a name.
func diagStat(text string, code uint64) (sum uint64, err error) {
	for line := range strings.Lines(text) {
		numbers, ok := strings.CutPrefix(line, fmt.Sprintf("diag %03x:", code))
		if !ok {
			continue
		}
		for word := range strings.FieldsSeq(numbers) {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				break // the name
			}
			sum += n
		}
		return sum, nil
	}
	return 0, fmt.Errorf("diag_stat has no row for %#x", code)
}

// s390Instructions takes a function of the kernel apart. Of one whose size is 0, not known, it is the
// first part, or more than there is.
func (t *T) s390Instructions(m KernelMachine, address, size uint64) []s390x.Instruction {
	const part = 2048
	if size == 0 {
		size = part
	}
	return s390x.Instructions(t.code(m, address, size))
}

// s390GuestYields: without YIELD_TO the kernel's own function for it makes none. The control is that it
// is one that would.
func s390GuestYields() Check {
	const rule = "guest/yields-only-if-probed"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		if offered, err := t.Offers(t.ABI.Feature("DIAG9C")); err != nil || offered {
			t.Check("discovery", err)
			t.Unreached(rule, "the hypervisor has YIELD_TO")
			return
		}
		m := t.s390Kernel()
		code := t.ABI.Call("YIELD_TO").Number
		address, size, ok := t.symbol(m, "smp_yield_cpu", rule)
		if !ok {
			return
		}
		before, ok := t.diagStat(code, rule)
		if !ok {
			return
		}
		r, ok := t.recording([]string{rule}, Probe{Name: "diagnose", Event: "s390/s390_diagnose", Filter: fmt.Sprintf("nr == %d", code)})
		if !ok {
			return
		}
		t.Control("the function has the DIAGNOSE in it", true, slices.ContainsFunc(t.s390Instructions(m, address, size),
			func(i s390x.Instruction) bool { return i.Diagnoses(code) }))
		t.idle(m, target)
		t.invoke(m, m.Number(caller), address, uint64(m.Number(target)))
		end := t.runner(m, target)
		t.invoke(m, m.Number(caller), address, uint64(m.Number(target)))
		end()
		after, _ := t.diagStat(code, rule)
		// Kernels before 7.2 count the probe, and on each CPU, which begins with the boot CPU's counts.
		t.Evidence(rule, "yields that the kernel has counted since boot", after)
		t.Equal(rule, "yields that the kernel counts, for two to make", t.Want(rule, "yields"), after-before)
		t.Equal(rule, "yields that the kernel traces", t.Want(rule, "yields"), len(t.hits(r)))
	}}
}

// s390GuestPreempted: whom the kernel takes for preempted, by its own function.
func s390GuestPreempted() Check {
	const (
		running = "guest/preempted-running"
		idle    = "guest/preempted-idle"
		stopped = "guest/preempted-not-running"
	)
	rules := []string{idle, running, stopped}
	return Check{Rules: rules, Run: func(t *T) {
		m := t.s390Kernel()
		address, _, ok := t.symbol(m, "arch_vcpu_is_preempted", rules...)
		if !ok {
			return
		}
		preempted := func(cpu int) uint64 {
			// A C function's bool is the lowest byte.
			return t.invoke(m, m.Number(caller), address, uint64(m.Number(cpu))) & 0xff
		}
		asked := func(cpu int) Hex {
			return Hex(answer(t.signals(m, caller, t.order("SENSE_RUNNING", m.ID(cpu)))[0]))
		}
		t.idle(m, target) // so that it does not run is known
		for range staysLooks {
			t.Equal(idle, "taken for preempted", t.Want(idle, "preempted"), preempted(target))
		}

		end := t.runner(m, target)
		got, says := preempted(target), asked(target)
		end()
		t.Control("SENSE_RUNNING of the CPU that runs", Hex(t.ABI.Result("SENSE_RUNNING", "running target")), says)
		t.Equal(running, "taken for preempted", t.Want(running, "preempted"), got)

		t.Check("take the spare CPU offline", m.SetOnline(false))
		got, says = preempted(spare), asked(spare)
		t.Check("bring the spare CPU back", m.SetOnline(true))
		t.Control("SENSE_RUNNING of the CPU that is stopped", Hex(t.ABI.Result("SENSE_RUNNING", "stopped target")), says)
		t.Equal(stopped, "taken for preempted", t.Want(stopped, "preempted"), got)
	}}
}

// s390GuestLock: to whom the kernel yields while a CPU waits for a lock, which is one of the check's
// own. First its owner is a CPU that is stopped, and so taken for preempted, then one that is idle: what is
// done for the first only, depends on that. What it asks is not recorded, only where it yields: each
// probe has all CPUs stop, as it comes and as it goes, which takes long where there are more of them than the
// host has. That the function which yields does nothing where there is no YIELD_TO is another check's.
func s390GuestLock() Check {
	const (
		owner    = "guest/lock-yields-to-owner"
		existing = "guest/yields-to-existing"
	)
	rules := []string{owner, existing}
	return Check{Rules: rules, Run: func(t *T) {
		const wait, begins, yields = "arch_spin_lock_wait", "begins", "yields"
		m := t.s390Kernel()
		address, size, ok := t.symbol(m, wait, rules...)
		if !ok {
			return
		}
		yield, _, ok := t.symbol(m, "smp_yield_cpu", rules...)
		if !ok {
			return
		}
		// One probe for each place, by its offset, and one for the beginning, which tells the lock.
		// That is behind the first instruction, of 6 bytes: to probe a function where ftrace does, takes the
		// kernel longer.
		probes := []Probe{{Name: begins, At: wait + "+6", Args: "lock=%r2:x64"}}
		for _, i := range t.s390Instructions(m, address, size) {
			if distance, ok := i.Calls(); ok && address+uint64(i.At+distance) == yield {
				probes = append(probes, Probe{Name: fmt.Sprintf("%s_%d", yields, i.At), At: fmt.Sprintf("%#x", address+uint64(i.At)), Args: "cpu=%r2:s32"})
			}
		}
		t.Control("places where the kernel yields are found", true, len(probes) > 1)
		// It is stopped for all of the check, as fewer CPUs stop sooner.
		t.Check("take the spare CPU offline", m.SetOnline(false))
		r, ok := t.recording(rules, probes...)
		if !ok {
			return
		}
		// It yields each so many turns; fewer of them are enough, and easier to read.
		const turns = "proc/sys/kernel/spin_retry"
		if before, ok := t.file(turns, "CONFIG_SYSCTL", rules...); ok {
			t.after = append(t.after, func() {
				if err := t.Guest.Write(turns, before); err != nil && t.failure == nil {
					t.failure = fmt.Errorf("how often a lock is looked at: %w", err)
				}
			})
			t.Check("how often a lock is looked at", t.Guest.Write(turns, "100000"))
		}
		// waited is what a CPU that waits for an owner did, up to its second yield. What it does
		// while it waits for a lock of the kernel's, in an interruption too, is left out. That is not
		// seen to end, so that whoever was interrupted so before the second yield waits again.
		waited := func(of int) (places []string, to []uint64) {
			t.clear(func() (string, bool) {
				places, to = nil, nil
				lock := m.Alloc(8, 8, 0)
				// The owner is 1 more than its number; the lock is the first half of the word.
				lock.Store(0, 8, uint64(m.Number(of)+1)<<32)
				done := make(chan error, 1)
				go func() {
					done <- t.Guest.Pinned(m.Number(caller), func() error {
						_, err := m.Invoke(caller, address, lock.Address())
						return err
					})
				}()
				ours, interrupted := false, false
				t.Until(func() bool {
					for _, h := range t.hits(r) {
						switch {
						case h.CPU != m.Number(caller):
						case h.Probe == begins:
							interrupted = interrupted || ours && h.Args["lock"] != lock.Address()
							ours = h.Args["lock"] == lock.Address()
						case ours:
							places, to = append(places, h.Probe), append(to, h.Args["cpu"])
						}
					}
					return len(places) > 1 || interrupted
				})
				lock.Store(0, 8, 0)
				t.Check("wait for a lock", <-done)
				doubtful := interrupted && len(places) <= 1
				places, to = places[:min(len(places), 2)], to[:min(len(to), 2)]
				return fmt.Sprint(places, to), doubtful
			})
			return places, to
		}
		first, to := waited(spare)
		then, toIdle := waited(target)
		t.Evidence(owner, "owner preempted", first)
		t.Evidence(owner, "owner idle", then)
		t.Truth(owner, "yields to an owner that is preempted where it does not to another, and then elsewhere", len(first) > 1 &&
			!slices.Contains(then, first[0]) && first[0] != first[1])
		t.Truth(owner, "yields to an owner that is not preempted later, where it also does to one that is", len(first) > 1 && len(then) > 1 &&
			then[0] == then[1] && then[0] == first[1])
		wrong := func(to []uint64, owner int) (n int64) {
			for _, cpu := range to {
				n += bit(cpu != uint64(m.Number(owner)))
			}
			return n
		}
		t.Equal(owner, "CPUs that are not the owner", 0, wrong(to, spare)+wrong(toIdle, target))
		online := t.online()
		others := int64(0)
		for _, cpu := range toIdle {
			others += bit(int(cpu) == m.Number(caller) || !slices.Contains(online, int(cpu)))
		}
		t.Control("yields to an idle owner are seen", true, len(toIdle) > 1)
		t.Equal(existing, "yields to the caller, or to a CPU that is not online", t.Want(existing, "others"), others)
	}}
}

// s390GuestCall: a CPU that holds interruptions off is told the same twice, by the kernel's own
// function. The control is a CPU that takes the first before it is told again.
func s390GuestCall() Check {
	const rule = "guest/one-external-call"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		const function = "arch_smp_send_reschedule"
		m := t.s390Kernel()
		address, size, ok := t.symbol(m, function, rule)
		if !ok {
			return
		}
		p := Probe{Name: "signals"}
		for _, i := range t.s390Instructions(m, address, size) {
			if i.Signals() {
				p.At += fmt.Sprintf(" %s+%d", function, i.At)
			}
		}
		if p.At == "" {
			t.Unreached(rule, "the kernel gives the order in a function that has more to do than this")
			return
		}
		r, ok := t.recording([]string{rule}, p)
		if !ok {
			return
		}
		// The first CPU tells: what a thread does there is not in the way of the machine.
		teller := t.online()[0]
		tell := func() { t.invoke(m, teller, address, uint64(m.Number(target))) }
		told := func() (n int64) {
			for _, h := range t.hits(r) {
				n += bit(h.CPU == teller)
			}
			return n
		}
		// What this process does elsewhere is told to the CPU, too, and may come in between.
		var given int64
		t.Control("a CPU that has taken a call is called again", true, t.tried(func() bool {
			end := t.runner(m, target)
			defer end()
			told()
			for range 2 {
				before := t.interruptions(m, target, s390ExternalCall)
				tell()
				t.Until(func() bool { return t.interruptions(m, target, s390ExternalCall) > before })
			}
			given = told()
			return given >= 2
		}))
		looked := false
		t.tried(func() bool {
			flag := m.Alloc(8, 8, 0)
			const off, on = 1, 2
			// Lest this process is waited for, the CPU gives up some time.
			const reads = 1 << 24
			t.start(m, target, interruptions(0), store(flag.Address(), off, 8), spinUntil(flag.Address(), ^uint64(0), on, reads), interruptions(1))
			held := t.Until(func() bool { return flag.Load(0, 8) == off })
			told()
			tell()
			tell()
			at, _ := m.At(target)
			flag.Store(0, 8, on)
			t.finish(m, target)
			given = told()
			looked = looked || held && at == 2 && given > 0
			// The CPU that tells also calls others now and then.
			return held && at == 2 && given == 1
		})
		t.Control("a CPU that holds interruptions off is called", true, looked)
		t.Equal(rule, "calls besides the first", t.Want(rule, "busy"), given-1)
	}}
}

// s390GuestTimeSliceEnd: what the kernel has counted since it began. The control is that it counts.
func s390GuestTimeSliceEnd() Check {
	const rule = "guest/time-slice-end-unused"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		made, ok := t.diagStat(t.ABI.Call("TIME_SLICE_END").Number, rule)
		if !ok {
			return
		}
		const virtio = 0x500
		counted, _ := t.diagStat(virtio, rule)
		t.Control("calls of virtio are counted", true, counted > 0)
		t.Equal(rule, "calls since boot", t.Want(rule, "calls"), made)
	}}
}

// s390GuestCounts: the kernel's own function for a DIAGNOSE that only z/VM has, of which it survives
// that there is none (arch/s390/kernel/text_amode31.S, _diag14_amode31, Linux 7.2).
func s390GuestCounts() Check {
	const (
		rule    = "guest/counts-diagnoses"
		code    = 0x14
		calls   = 3
		refused = -5 // EIO
	)
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.s390Kernel()
		function, _, ok := t.symbol(m, "diag14", rule)
		if !ok {
			return
		}
		first, ok := t.diagStat(code, rule)
		if !ok {
			return
		}
		before, _ := t.diagStat(code, rule)
		t.Control("counted without a call", 0, before-first)
		for range calls {
			// The subcode is one that the function passes on as it is.
			t.Control("the DIAGNOSE was made, and refused", refused, int32(t.invoke(m, m.Number(caller), function, 0, 0, 1)))
		}
		after, _ := t.diagStat(code, rule)
		t.Equal(rule, fmt.Sprintf("counted of %d calls", calls), calls*t.Want(rule, "increment"), after-before)
	}}
}

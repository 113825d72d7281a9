package conformance

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"pvabi/abi"
	"pvabi/internal/cpulist"
)

// Contender is a kernel that can be made to contend for a lock of its own.
type Contender interface {
	GuestKernel
	// Contend has a thread on each of the CPUs take and let go of the same lock, again and again,
	// while it runs during, whose error it returns, from when each has taken it once.
	Contend(lock Lock, cpus []int, during func() error) error
	// Doze has a thread that may run on any of the CPUs sleep for a moment, and the kernel wake it.
	Doze(cpus []int) error
}

// Lock is a kind of lock of a kernel's.
type Lock string

// The kinds of locks: one that is waited for without sleeping, and one whose waiters spin as
// long as its owner runs, and then sleep.
const (
	SpinLock  Lock = "spinlock"
	SleepLock Lock = "sleeping lock"
)

// XenGuest is the suite for the guest's side of x86-xen: what the Linux of a release, k, does
// with the ABI.
func XenGuest(release string, k Contender) *Suite {
	return &Suite{
		ABI: abi.X86Xen(), Implementer: Implementer{Name: Linux, Version: release}, Deviations: Deviations,
		Guest: k, Checks: xenGuestChecks(k), Looks: Looks,
	}
}

// XenGuestRules are the rules that XenGuest has a result for, in the order of its results.
func XenGuestRules() []abi.Rule {
	return (&Suite{ABI: abi.X86Xen(), Checks: xenGuestChecks(nil)}).Rules()
}

// xenGuestChecks are the checks of the guest's side, in the order of the report.
func xenGuestChecks(k Contender) []Check {
	g := &xenGuest{Contender: k}
	return []Check{g.locks(), g.ports(), g.areas(), g.contention(), g.stolen(), g.steal()}
}

// xenGuest is what the checks share.
type xenGuest struct {
	Contender
	image *kernelImage // of the kernel, read when it is first needed
}

// Variables and functions of the kernel that checks look at.
const (
	lockOps        = "pv_ops_lock"
	kickerIRQ      = "lock_kicker_irq"
	runstateArea   = "xen_runstate"
	perCPUOffset   = "__per_cpu_offset"
	stealKey       = "paravirt_steal_enabled"
	stealQueuesKey = "paravirt_steal_rq_enabled"
)

// lockOperations are the kernel's lock operations in their order in pv_ops_lock
// (struct pv_lock_ops of arch/x86/include/asm/paravirt-spinlock.h, 7.2), each with the functions
// that it is on Xen (arch/x86/xen/spinlock.c, xen_init_spinlocks) and on bare hardware
// (arch/x86/kernel/paravirt-spinlocks.c).
var lockOperations = []struct{ name, xen, native string }{
	{"slow path", "__pv_queued_spin_lock_slowpath", "native_queued_spin_lock_slowpath"},
	{"unlock", "__raw_callee_save___pv_queued_spin_unlock", "__raw_callee_save___native_queued_spin_unlock"},
	{"wait", "xen_qlock_wait", "nop_func"},
	{"kick", "xen_qlock_kick", "nop_func"},
	{"preempted", "__raw_callee_save_xen_vcpu_stolen", "__raw_callee_save___native_vcpu_is_preempted"},
}

// possible counts the CPUs that the kernel can ever have.
func (t *T) possible() int {
	content, err := fs.ReadFile(t.Guest, "sys/devices/system/cpu/possible")
	t.Check("which CPUs are possible", err)
	cpus, err := cpulist.Parse(strings.TrimSpace(string(content)))
	t.Check("which CPUs are possible", err)
	return len(cpus)
}

// natively tells why a kernel's spinlocks are those of bare hardware; empty if they are Xen's.
func (t *T) natively() string {
	line, err := fs.ReadFile(t.Guest, "proc/cmdline")
	t.Check("the kernel's command line", err)
	switch {
	case slices.Contains(strings.Fields(string(line)), "nopvspin"):
		return "nopvspin is on its command line"
	case t.possible() == 1:
		return "it has one vCPU"
	}
	return ""
}

// paravirtualized tells whether the kernel's spinlocks are; the rules are unreached where not.
func (t *T) paravirtualized(rules ...string) bool {
	why := t.natively()
	for _, r := range rules {
		if why != "" {
			t.Unreached(r, "the guest's spinlocks are not paravirtualized: "+why)
		}
	}
	return why == ""
}

// locks: what the kernel says of its spinlocks, and what they do.
func (g *xenGuest) locks() Check {
	const enabled, disabled = "guest/locks-enabled", "guest/locks-disabled"
	return Check{Rules: []string{enabled, disabled}, Run: func(t *T) {
		rule, said, unsaid := enabled, "xen: PV spinlocks enabled", "xen: PV spinlocks disabled"
		why := t.natively()
		if why == "" {
			t.Unreached(disabled, "this guest has several vCPUs and no nopvspin; targets x86-xen-nopvspin and x86-xen-one-vcpu look at it")
		} else {
			t.Unreached(enabled, "this guest is one for the opposite: "+why)
			rule, said, unsaid = disabled, unsaid, said
		}
		log, err := t.Guest.Log()
		if errors.Is(err, ErrHidden) {
			t.Unreached(rule, err.Error())
			return
		}
		t.Check("the kernel's log", err)
		says := func(text string) bool {
			return slices.ContainsFunc(log, func(line string) bool { return strings.HasSuffix(line, text) })
		}
		t.Equal(rule, fmt.Sprintf("%q in the log, and not %q", said, unsaid), t.Want(rule, "said"), bit(says(said) && !says(unsaid)))

		image, ok := g.kernel(t, []string{rule}, lockOps)
		if !ok {
			return
		}
		for i, op := range lockOperations {
			want := op.xen
			if rule == disabled {
				want = op.native
			}
			address := image.word(t, image.symbols[lockOps]+8*uint64(i))
			is := image.symbols[want] != 0 && image.symbols[want] == address
			t.Equal(rule, op.name+" is "+want, t.Want(rule, "operations"), bit(is))
			if !is {
				t.Evidence(rule, op.name, image.name(t, address))
			}
		}
	}}
}

// kicker is the interrupt by which a CPU is kicked, as a line of /proc/interrupts has it.
type kicker struct {
	number int
	taken  int64
	isIPI  bool
}

// kickers are the kickers' interrupts by the CPU that is in their name.
func (t *T) kickers(cpus int, rules ...string) (out map[int][]kicker, others int64, ok bool) {
	text, ok := t.file("proc/interrupts", "CONFIG_PROC_FS", rules...)
	if !ok {
		return nil, 0, false
	}
	out, others = parseKickers(text, cpus)
	return out, others, true
}

// parseKickers reads /proc/interrupts, whose lines have a number, a count for each CPU, the
// interrupt's chip and kind, and a name; others counts the IPIs that are no kicks.
func parseKickers(text string, cpus int) (out map[int][]kicker, others int64) {
	out = map[int][]kicker{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < cpus+3 {
			continue
		}
		number, err := strconv.Atoi(strings.TrimSuffix(words[0], ":"))
		if err != nil {
			continue
		}
		k := kicker{number: number, isIPI: slices.Contains(words[cpus+1:], "-ipi")}
		for _, w := range words[1 : cpus+1] {
			n, err := strconv.ParseInt(w, 10, 64)
			if err != nil {
				continue
			}
			k.taken += n
		}
		name, isKicker := strings.CutPrefix(words[len(words)-1], "spinlock")
		cpu, err := strconv.Atoi(name)
		switch {
		case isKicker && err == nil:
			out[cpu] = append(out[cpu], k)
		case k.isIPI:
			others += k.taken
		}
	}
	return out, others
}

// ports: what each CPU is kicked by.
func (g *xenGuest) ports() Check {
	const rule = "guest/kicker-port"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		if !t.paravirtualized(rule) {
			return
		}
		image, ok := g.kernel(t, []string{rule}, kickerIRQ, perCPUOffset)
		if !ok {
			return
		}
		cpus := t.online()
		kickers, _, ok := t.kickers(len(cpus), rule)
		if !ok {
			return
		}
		users := map[int]int{}
		for _, cpu := range cpus {
			users[image.irq(t, cpu)]++
		}
		for _, cpu := range cpus {
			irq := image.irq(t, cpu)
			own := int64(0)
			for _, k := range kickers[cpu] {
				own += bit(k.number == irq && k.isIPI && users[irq] == 1)
			}
			t.Equal(rule, fmt.Sprintf("IPIs of its own for CPU %d", cpu), t.Want(rule, "ports"), own)
			t.Evidence(rule, fmt.Sprintf("interrupt of CPU %d", cpu), irq)
		}
	}}
}

// areas: the runstate areas, which live as long as their CPUs do.
func (g *xenGuest) areas() Check {
	const registered, flag = "guest/runstate-registered", "guest/update-flag"
	return Check{Rules: []string{registered, flag}, Run: func(t *T) {
		image, ok := g.kernel(t, []string{registered, flag}, runstateArea, perCPUOffset, stealKey, stealQueuesKey)
		if !ok {
			return
		}
		cpus := t.online()
		for _, cpu := range cpus {
			first := image.runstate(t, cpu)
			// A thread that comes and goes has its CPU change from one state to another.
			lives := t.Until(func() bool {
				t.Check("run on a CPU", g.Pinned(cpu, func() error { return nil }))
				now := image.runstate(t, cpu)
				return now.field("state_entry_time") > first.field("state_entry_time") && now.field("time_running") > first.field("time_running")
			})
			t.Equal(registered, fmt.Sprintf("areas of CPU %d that are written to", cpu), t.Want(registered, "areas"), bit(lives))
		}
		// The kernel counts steal; and the steal of run queues, which reads others' areas, only
		// where it was granted the flag (drivers/xen/time.c, xen_time_setup_guest).
		t.Control("the kernel counts steal", uint32(1), image.key(t, stealKey))
		t.Truth(flag, "the kernel reads other CPUs' areas as it was granted the flag", image.key(t, stealQueuesKey) == 1)
	}}
}

// contention: what CPUs do that wait for a spinlock, and the one that gives it up.
func (g *xenGuest) contention() Check {
	const waits, kicks, silent = "guest/waits-by-poll", "guest/kicks-poller", "guest/kicker-not-delivered"
	rules := []string{waits, kicks, silent}
	return Check{Rules: rules, Run: func(t *T) {
		if !t.paravirtualized(rules...) {
			return
		}
		image, ok := g.kernel(t, rules, kickerIRQ, perCPUOffset)
		if !ok {
			return
		}
		cpus := t.online()
		irq := map[int]int{}
		for _, cpu := range cpus {
			irq[cpu] = image.irq(t, cpu)
		}
		before, otherIPIs, ok := t.kickers(len(cpus), rules...)
		if !ok {
			return
		}
		r, ok := t.recording(rules, lockProbes...)
		if !ok {
			return
		}
		quiet := false
		err := g.Contend(SpinLock, cpus[:1], func() error {
			quiet = t.Until(func() bool { return len(t.hits(r)) == 0 })
			return nil
		})
		t.Check("one CPU with a lock", err)
		t.Control("a while without polls and kicks, when one CPU has the lock to itself", true, quiet)

		var seen lockTraffic
		err = g.Contend(SpinLock, cpus, func() error {
			t.Until(func() bool {
				seen.add(t.hits(r))
				return seen.ofPollers > 0 && seen.timed > 0
			})
			return nil
		})
		t.Check("CPUs that contend for a lock", err)
		seen.add(t.hits(r))
		after, otherIPIsNow, _ := t.kickers(len(cpus), rules...)

		t.Equal(waits, "polls", t.Want(waits, "polls"), bit(len(seen.polled) > 0))
		strangers := slices.DeleteFunc(slices.Clone(seen.polled), func(p polled) bool { return p.irq == irq[p.cpu] })
		t.Truth(waits, "no poll of another port than that of the CPU's own kick", len(strangers) == 0)
		t.Truth(waits, "polls have no timeout", seen.timed > 0 && seen.timeouts == 0)
		t.Evidence(waits, "polls", len(seen.polled))
		t.Equal(kicks, "kicks of CPUs that poll", t.Want(kicks, "kicks"), bit(seen.ofPollers > 0))
		// A kick may come before the poll that it is for, which then is not made.
		t.Truth(kicks, "no kick of the CPU that kicks", seen.ofSelf == 0)
		t.Evidence(kicks, "kicks", seen.kicks)
		t.Evidence(kicks, "kicks of CPUs that had come to a poll", seen.ofPollers)

		for _, cpu := range cpus {
			t.Equal(silent, fmt.Sprintf("interrupts of the kick that CPU %d took", cpu), t.Want(silent, "taken"), taken(after[cpu]))
			t.Control("and CPUs have such interrupts", true, len(before[cpu]) > 0)
		}
		t.Control("other IPIs were taken meanwhile", true, otherIPIsNow > otherIPIs)
	}}
}

// taken is how often interrupts were taken.
func taken(ks []kicker) (n int64) {
	for _, k := range ks {
		n += k.taken
	}
	return n
}

// spinUnlockVector is the number by which the kernel knows the IPI for a kick
// (XEN_SPIN_UNLOCK_VECTOR of arch/x86/include/asm/xen/events.h).
const spinUnlockVector = 3

// lockProbes are where the kernel polls for a kick and where it kicks. What the kernel's own
// operations do first cannot be probed, which they are marked for.
var lockProbes = []Probe{
	{Name: "poll", At: "xen_poll_irq", Args: "irq=%di:s32"},
	{Name: "timeout", At: "xen_poll_irq_timeout", Args: "timeout=%si:u64"},
	{Name: "kick", At: "xen_send_IPI_one", Args: "cpu=%di:u32 vector=%si:u32", Filter: fmt.Sprintf("vector == %d", spinUnlockVector)},
}

// lockTraffic adds up what was recorded of locks.
type lockTraffic struct {
	polled []polled
	// timed are polls whose timeout was seen, timeouts those that have one.
	timed, timeouts int
	kicks           int
	// ofPollers are kicks of a CPU that had come to a poll, one for each poll; ofSelf those of the
	// CPU that kicks.
	ofPollers, ofSelf int
	polling           map[int]bool
}

type polled struct{ cpu, irq int }

// add takes hits in, in their order.
func (l *lockTraffic) add(hits []Hit) {
	if l.polling == nil {
		l.polling = map[int]bool{}
	}
	for _, h := range hits {
		switch h.Probe {
		case "poll":
			l.polled = append(l.polled, polled{h.CPU, int(h.Args["irq"])})
			l.polling[h.CPU] = true
		case "timeout":
			l.timed++
			l.timeouts += int(bit(h.Args["timeout"] != 0))
		case "kick":
			target := int(h.Args["cpu"])
			l.kicks++
			l.ofSelf += int(bit(target == h.CPU))
			l.ofPollers += int(bit(l.polling[target]))
			l.polling[target] = false
		}
	}
}

// stolen: what the kernel takes for preempted.
func (g *xenGuest) stolen() Check {
	const rule = "guest/preempted-from-runstate"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		if !t.paravirtualized(rule) {
			return
		}
		image, ok := g.kernel(t, []string{rule}, runstateArea, perCPUOffset)
		if !ok {
			return
		}
		cpus := t.online()
		state, entry := t.ABI.Layout("vcpu_runstate_info").Field("state"), t.ABI.Layout("vcpu_runstate_info").Field("state_entry_time")
		var states []string
		for _, cpu := range cpus {
			area := image.perCPU(t, runstateArea, cpu)
			states = append(states, fmt.Sprintf("state%d=@%#x:u%d since%d=@%#x:u%d", cpu, area+state.Offset, 8*state.Size, cpu, area+entry.Offset, 8*entry.Size))
		}
		// The state at the function's beginning and at its end, and since when; what it returned
		// counts where both are the same.
		all := strings.Join(states, " ")
		r, ok := t.recording([]string{rule},
			Probe{Name: "asked", At: "xen_vcpu_stolen", Args: "cpu=%di:u32 " + all},
			Probe{Name: "answered", At: "xen_vcpu_stolen", Return: true, Args: "answer=$retval:u8 " + all})
		if !ok {
			return
		}
		var seen answers
		err := g.Contend(SleepLock, cpus, func() error {
			t.Until(func() bool {
				seen.add(t.hits(r))
				return seen.count[1] > 0
			})
			return nil
		})
		t.Check("CPUs that contend for a lock", err)
		// Where vCPUs share a CPU, one that asks while it runs hardly ever finds another that runs.
		// But it also asks about itself, when it is idle and wakes a thread that may run elsewhere.
		t.Until(func() bool {
			t.Check("wake a thread", g.Doze(cpus))
			seen.add(t.hits(r))
			return seen.count[0] > 0
		})
		for _, a := range seen.all {
			preempted := bit(a.state == t.ABI.Word("runnable"))
			t.Equal(rule, fmt.Sprintf("a CPU in state %d", a.state), preempted, int64(a.answer))
		}
		t.Control("CPUs that were preempted and CPUs that were not were asked about", [2]bool{true, true}, [2]bool{seen.count[0] > 0, seen.count[1] > 0})
		t.Evidence(rule, "answers", map[string]int{"preempted": seen.count[1], "not preempted": seen.count[0]})
	}}
}

// answers are what the kernel said of whether CPUs were preempted, with the state in their areas.
type answers struct {
	open  map[int]Hit // questions, by who asks
	all   []answered
	count [2]int
}

type answered struct{ state, answer uint64 }

func (a *answers) add(hits []Hit) {
	if a.open == nil {
		a.open = map[int]Hit{}
	}
	for _, h := range hits {
		if h.Probe == "asked" {
			a.open[h.CPU] = h
			continue
		}
		q, ok := a.open[h.CPU]
		delete(a.open, h.CPU)
		if !ok {
			continue
		}
		name := fmt.Sprintf("state%d", q.Args["cpu"])
		state, known := q.Args[name]
		since := fmt.Sprintf("since%d", q.Args["cpu"])
		if !known || h.Args[name] != state || h.Args[since] != q.Args[since] || h.Args["answer"] > 1 {
			continue // it changed in between
		}
		x := answered{state, h.Args["answer"]}
		a.count[x.answer]++
		if !slices.Contains(a.all, x) {
			a.all = append(a.all, x)
		}
	}
}

// steal: what CPUs that share one wait for it.
func (g *xenGuest) steal() Check {
	const rule = "guest/steal-accounted"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		image, ok := g.kernel(t, []string{rule}, runstateArea, perCPUOffset)
		if !ok {
			return
		}
		cpus := t.online()
		if len(cpus) == 1 {
			t.Unreached(rule, "a vCPU that has the CPU to itself waits for nobody; target x86-xen looks at it")
			return
		}
		before := t.stealTicks()
		var now map[int]uint64
		err := g.Contend(SpinLock, cpus, func() error {
			t.Until(func() bool {
				now = t.stealTicks()
				return !slices.ContainsFunc(cpus, func(cpu int) bool { return now[cpu] <= before[cpu] })
			})
			return nil
		})
		t.Check("CPUs that want to run", err)
		for _, cpu := range cpus {
			of := fmt.Sprintf("CPU %d", cpu)
			t.Equal(rule, "steal of "+of, t.Want(rule, "grows"), bit(now[cpu] > before[cpu]))
			// What Xen has counted by now is more than what had become whole ticks before.
			area := image.runstate(t, cpu)
			waited := area.field("time_runnable") + area.field("time_offline")
			t.Truth(rule, "no more than Xen counts for "+of, now[cpu]*nanosecondsPerTick <= waited)
			t.Evidence(rule, of, map[string]uint64{"ticks before": before[cpu], "ticks": now[cpu], "nanoseconds in the area": waited})
		}
	}}
}

// nanosecondsPerTick is what a tick of /proc/stat stands for: USER_HZ is 100 everywhere but on Alpha.
const nanosecondsPerTick = 10_000_000

// stealTicks reads the column steal of /proc/stat, the eighth, for each CPU
// (Documentation/filesystems/proc.rst, 1.7).
func (t *T) stealTicks() map[int]uint64 {
	content, err := fs.ReadFile(t.Guest, "proc/stat")
	t.Check("the kernel's statistics", err)
	return parseSteal(string(content))
}

func parseSteal(text string) map[int]uint64 {
	const column = 8
	out := map[int]uint64{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) <= column {
			continue
		}
		number, isCPU := strings.CutPrefix(words[0], "cpu")
		cpu, err := strconv.Atoi(number)
		ticks, errTicks := strconv.ParseUint(words[column], 10, 64)
		if isCPU && err == nil && errTicks == nil {
			out[cpu] = ticks
		}
	}
	return out
}

// kernelImage is the memory of the guest's kernel, by the names of what is in it.
type kernelImage struct {
	symbols map[string]uint64
	core    *elf.File
}

// kernel returns the guest's kernel. Where it does not show itself, or has not what is wanted, the
// rules are unreached, and ok is false.
func (g *xenGuest) kernel(t *T, rules []string, wanted ...string) (image *kernelImage, ok bool) {
	if g.image == nil {
		image, err := openImage(g)
		if errors.Is(err, fs.ErrNotExist) {
			for _, r := range rules {
				t.Unreached(r, fmt.Sprintf("%v; the kernel needs CONFIG_KALLSYMS_ALL and CONFIG_PROC_KCORE", err))
			}
			return nil, false
		}
		t.Check("look into the kernel", err)
		g.image = image
	}
	for _, name := range wanted {
		if g.image.symbols[name] != 0 {
			continue
		}
		for _, r := range rules {
			t.Unreached(r, "this kernel has no "+name+" that it shows; Linux 7.2 has, with CONFIG_KALLSYMS_ALL and CONFIG_PARAVIRT_SPINLOCKS")
		}
		return nil, false
	}
	return g.image, true
}

func openImage(k fs.FS) (*kernelImage, error) {
	wanted := map[string]bool{}
	for _, name := range []string{lockOps, kickerIRQ, runstateArea, perCPUOffset, stealKey, stealQueuesKey} {
		wanted[name] = true
	}
	for _, op := range lockOperations {
		wanted[op.xen], wanted[op.native] = true, true
	}
	symbols, err := symbolsOf(k, len(wanted), func(_ uint64, name []byte) bool { return wanted[string(name)] })
	if err != nil {
		return nil, err
	}
	f, err := k.Open("proc/kcore")
	if err != nil {
		return nil, err
	}
	r, ok := f.(io.ReaderAt)
	if !ok {
		return nil, errors.Join(errors.New("proc/kcore can be read only in order"), f.Close())
	}
	core, err := elf.NewFile(r)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("proc/kcore: %w", err), f.Close())
	}
	return &kernelImage{symbols, core}, nil
}

// symbolsOf reads those of a kernel's symbols that are kept, up to enough of them, which takes an
// emulated guest a while: lines of address, kind and name.
func symbolsOf(k fs.FS, enough int, keep func(address uint64, name []byte) bool) (map[string]uint64, error) {
	f, err := k.Open("proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]uint64{}
	lines := bufio.NewScanner(f)
	for len(out) < enough && lines.Scan() {
		hex, rest, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		_, name, _ := bytes.Cut(rest, []byte(" "))
		var address uint64
		for _, digit := range hex {
			n := strings.IndexByte("0123456789abcdef", digit)
			if n < 0 {
				return nil, fmt.Errorf("proc/kallsyms: %q has no address", lines.Text())
			}
			address = address<<4 | uint64(n)
		}
		if keep(address, name) {
			out[string(name)] = address
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("proc/kallsyms: %w", err)
	}
	return out, nil
}

// name tells what is at an address, for a reader.
func (m *kernelImage) name(t *T, address uint64) string {
	found, err := symbolsOf(t.Guest, 1, func(a uint64, _ []byte) bool { return a == address })
	t.Check("a name in the kernel", err)
	for name := range found {
		return name
	}
	return fmt.Sprintf("%#x", address)
}

// read reads the kernel's memory.
func (m *kernelImage) read(t *T, address, size uint64) []byte {
	out := make([]byte, size)
	for _, p := range m.core.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address-p.Vaddr < p.Filesz {
			_, err := p.ReadAt(out, int64(address-p.Vaddr))
			t.Check(fmt.Sprintf("read the kernel's memory at %#x", address), err)
			return out
		}
	}
	t.Fatal(fmt.Errorf("the kernel's memory at %#x is not in /proc/kcore", address))
	return nil
}

func (m *kernelImage) word(t *T, address uint64) uint64 {
	return binary.LittleEndian.Uint64(m.read(t, address, 8))
}

// perCPU is the address of a CPU's own copy of a variable.
func (m *kernelImage) perCPU(t *T, name string, cpu int) uint64 {
	return m.symbols[name] + m.word(t, m.symbols[perCPUOffset]+8*uint64(cpu))
}

// irq is the number that the kernel has for the interrupt of a CPU's kick.
func (m *kernelImage) irq(t *T, cpu int) int {
	return int(int32(binary.LittleEndian.Uint32(m.read(t, m.perCPU(t, kickerIRQ, cpu), 4))))
}

// key is how often a static key was turned on (struct static_key of include/linux/jump_label.h).
func (m *kernelImage) key(t *T, name string) uint32 {
	return binary.LittleEndian.Uint32(m.read(t, m.symbols[name], 4))
}

// runstate is the area that the kernel has for a CPU.
func (m *kernelImage) runstate(t *T, cpu int) runstate {
	layout := t.ABI.Layout("vcpu_runstate_info")
	return runstate{layout, m.read(t, m.perCPU(t, runstateArea, cpu), layout.Size)}
}

type runstate struct {
	layout abi.Layout
	bytes  []byte
}

// field reads a field; of the entry time, without the flag that it is being written.
func (r runstate) field(name string) uint64 {
	f := r.layout.Field(name)
	var word [8]byte
	copy(word[:], r.bytes[f.Offset:f.Offset+f.Size])
	n := binary.LittleEndian.Uint64(word[:])
	if name == "state_entry_time" {
		n &^= r.layout.Bit(name, "UPDATE")
	}
	return n
}

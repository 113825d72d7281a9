package conformance

import (
	"fmt"
	"slices"
	"strings"

	"pvabi/abi"
)

// KVMGuestBoot is one boot of a kernel as a guest of the KVM of another, and what was seen of it.
type KVMGuestBoot struct {
	Name string
	// Offered are the names of the features that are offered.
	Offered []string
	// Realtime is that hint; MWAIT, that CPUs have the instruction.
	Realtime, MWAIT bool
	// NoBit leaves out the bit that says that there is a hypervisor; NoSignature leaves out KVM's
	// leaves; Later has them at the second place, where another's are at the first.
	NoBit, NoSignature, Later bool
	// IDs are the CPUs' APIC ids.
	IDs []uint32
	// Words are added to the kernel's command line.
	Words []string
	// Scenario is what the guest does, KVMGuestLocks, KVMGuestAreas or nothing; End is how it ends,
	// in the words of package agent.
	Scenario, End string

	// Seen are what KVM saw and the guest marked, in order.
	Seen []KVMGuestEvent
	// Kernel has functions of the guest's kernel, by what they are for (KVMGuestPlaces), and Words
	// variables (KVMGuestWords); both as they were when the guest had come up. What the kernel has no
	// place for is missing; a function that is none of those that are known is empty.
	Kernel map[string]string
	Values map[string]uint64
	// Memory is how much the guest's kernel was told that there is, in bytes from address 0.
	Memory uint64
	// Shown is what the guest showed, by name.
	Shown map[string]string
	// Console is what its kernel wrote there.
	Console string
	// Other says why the guest did not end as it was told to; empty if it did.
	Other string
	// Err says why there was no such boot; empty if there was.
	Err string
}

// KVMGuestEvent is something that was seen of a guest of KVM's.
type KVMGuestEvent struct {
	Kind KVMGuestKind
	// CPU is the number of a CPU by its place in KVMGuestBoot.IDs, which is the guest's own.
	CPU int
	// Number is a register's, a call's, or a vector.
	Number uint64
	// Value is what was written, or what is in an area.
	Value uint64
	Args  [4]uint64 // of a call
	Text  string    // of a mark
}

// KVMGuestKind is what an event is about.
type KVMGuestKind string

// The kinds of events. A mark is the guest's word for what it is about to do, or has done.
const (
	GuestWrites  KVMGuestKind = "write" // to a register
	GuestCalls   KVMGuestKind = "call"
	GuestFlushes KVMGuestKind = "flush" // KVM found FLUSH_TLB set
	GuestEnds    KVMGuestKind = "end of interrupt"
	GuestStolen  KVMGuestKind = "steal" // in the CPU's area
	GuestMarks   KVMGuestKind = "mark"
)

// InterruptCommand is the register by which a CPU sends interrupts natively (Intel SDM volume 3, "x2APIC
// Register Address Space").
const InterruptCommand = 0x830

// Scenarios of a guest of KVM's.
const (
	// KVMGuestLocks has CPUs contend for a lock, and interrupt each other.
	KVMGuestLocks = "locks"
	// KVMGuestAreas has areas be taken back, and used.
	KVMGuestAreas = "areas"
)

// Marks of a guest; those with a CPU's number have it behind a blank.
const (
	KVMGuestOffline  = "offline" // is about to take a CPU offline
	KVMGuestOfflined = "offlined"
	KVMGuestOnlined  = "onlined"
	KVMGuestEnding   = "ending"
	KVMGuestCounting = "counting" // kicks and waits
	KVMGuestCounted  = "counted"
	// KVMGuestNext is made by the kernel that comes after the guest's own.
	KVMGuestNext = "next kernel"
)

// What a guest shows.
const (
	KVMGuestLog      = "log"
	KVMGuestStat     = "stat" // with when behind it
	KVMGuestKicks    = "kicks"
	KVMGuestWaits    = "waits"
	KVMGuestNoProbes = "no probes"
)

// kvmAlone are the features that a guest may use without another, kvmTogether those that it may not,
// or that change nothing by themselves.
var (
	kvmAlone    = []string{"CLOCKSOURCE", "CLOCKSOURCE2", "STEAL_TIME", "PV_EOI", "PV_UNHALT", "PV_SEND_IPI", "ASYNC_PF_INT"}
	kvmTogether = []string{
		"NOP_IO_DELAY", "ASYNC_PF", "PV_TLB_FLUSH", "ASYNC_PF_VMEXIT", "POLL_CONTROL", "PV_SCHED_YIELD", "CLOCKSOURCE_STABLE_BIT",
	}
	kvmAll = slices.Concat(kvmAlone, kvmTogether)
)

// kvmBut are all features but one.
func kvmBut(name string) []string {
	return slices.DeleteFunc(slices.Clone(kvmAll), func(f string) bool { return f == name })
}

// Names of boots that rules look at by name.
const (
	kvmNoBit       = "no hypervisor bit"
	kvmNoSignature = "no signature"
	kvmLater       = "later leaf"
	kvmDense       = "all"
	kvmSparse      = "all, ids out of order"
	kvmCrash       = "all, crash"
	kvmIntAlone    = "ASYNC_PF_INT"
)

// KVMGuestBoots are the boots that the rules about guests of KVM are judged by. They have nothing of a
// run yet.
func KVMGuestBoots() []KVMGuestBoot {
	const nopvspin = "nopvspin"
	dense, one := []uint32{0, 1, 2, 3}, []uint32{0}
	// The second and third CPU's ids are out of order and in reach of one call of each other, and
	// the first and the last are not.
	sparse := []uint32{0, 133, 7, 200}
	some := dense[:3]
	boots := []KVMGuestBoot{
		{Name: kvmNoBit, NoBit: true, Offered: kvmAll, IDs: some},
		{Name: kvmNoSignature, NoSignature: true, IDs: some},
		{Name: kvmLater, Later: true, Offered: kvmAll, IDs: some},
		{Name: "nothing", IDs: some},
		{Name: "what needs another", Offered: kvmTogether, IDs: some},
		{Name: "STEAL_TIME and PV_TLB_FLUSH", Offered: []string{"STEAL_TIME", "PV_TLB_FLUSH"}, IDs: some},
		{Name: "STEAL_TIME and PV_SCHED_YIELD", Offered: []string{"STEAL_TIME", "PV_SCHED_YIELD"}, IDs: some},
		{Name: "all but STEAL_TIME", Offered: kvmBut("STEAL_TIME"), IDs: some},
		{Name: "all, REALTIME", Offered: kvmAll, Realtime: true, IDs: some},
		{Name: "all, MWAIT", Offered: kvmAll, MWAIT: true, IDs: some},
		{Name: "all, one CPU", Offered: kvmAll, IDs: one},
		{Name: "all, nopvspin", Offered: kvmAll, Words: []string{nopvspin}, IDs: some},
		// What comes first of several reasons.
		{Name: "no PV_UNHALT, nopvspin", Offered: kvmBut("PV_UNHALT"), Words: []string{nopvspin}, IDs: some},
		{Name: "nothing, one CPU, nopvspin", Words: []string{nopvspin}, IDs: one},
		{Name: "nothing, REALTIME, one CPU, nopvspin", Realtime: true, Words: []string{nopvspin}, IDs: one},
		{Name: kvmDense, Offered: kvmAll, IDs: dense, Scenario: KVMGuestAreas, End: "reboot"},
		{Name: kvmSparse, Offered: kvmAll, IDs: sparse, Scenario: KVMGuestLocks, End: "kexec"},
		{Name: kvmCrash, Offered: kvmAll, IDs: some, End: "crash"},
	}
	for _, f := range kvmAlone {
		boots = append(boots, KVMGuestBoot{Name: f, Offered: []string{f}, IDs: some})
	}
	return boots
}

// KVMGuestPlace is where a kernel has one of several functions for a purpose.
type KVMGuestPlace struct {
	Name string
	// In are the variables, one of which the kernel has, that the function's address is in; Any are
	// the functions.
	In, Any []string
}

// The names of places.
const (
	kvmSlowPath  = "slow path"
	kvmUnlock    = "unlock"
	kvmWait      = "wait"
	kvmKick      = "kick"
	kvmPreempted = "preempted"
	kvmFlush     = "flush"
	kvmYield     = "call function"
	kvmIPI       = "IPI"
	kvmEOI       = "end of interrupt"
	kvmSteal     = "steal clock"
)

// KVMGuestPlaces are what is looked at in a kernel. Of the functions the first is KVM's. Operations of
// locks are in a structure of their own since 7.2 (arch/x86/include/asm/paravirt-spinlock.h) and were
// part of pv_ops; static calls have their function in a key (include/linux/static_call.h).
func KVMGuestPlaces() []KVMGuestPlace {
	locks := []string{"pv_ops_lock", "pv_ops"}
	return []KVMGuestPlace{
		{kvmSlowPath, locks, []string{"__pv_queued_spin_lock_slowpath", "native_queued_spin_lock_slowpath"}},
		{kvmUnlock, locks, []string{"__raw_callee_save___pv_queued_spin_unlock", "__raw_callee_save___native_queued_spin_unlock"}},
		{kvmWait, locks, []string{"kvm_wait"}},
		{kvmKick, locks, []string{"kvm_kick_cpu"}},
		{kvmPreempted, locks, []string{"__raw_callee_save___kvm_vcpu_is_preempted", "__raw_callee_save___native_vcpu_is_preempted"}},
		{kvmFlush, []string{"pv_ops"}, []string{"kvm_flush_tlb_multi", "native_flush_tlb_multi"}},
		{kvmYield, []string{"smp_ops"}, []string{"kvm_smp_send_call_func_ipi", "native_send_call_func_ipi"}},
		{kvmIPI, []string{"__SCK__apic_call_send_IPI_mask"}, []string{"kvm_send_ipi_mask"}},
		{kvmEOI, []string{"__SCK__apic_call_eoi"}, []string{"kvm_guest_apic_eoi_write"}},
		{kvmSteal, []string{"__SCK__pv_steal_clock"}, []string{"kvm_steal_clock", "native_steal_clock"}},
	}
}

// Variables that are looked at in a kernel: static keys (include/linux/jump_label.h), whose first word
// is how often they were turned on; and the flags of the clock that the kernel heeds
// (arch/x86/kernel/pvclock.c).
const (
	kvmVirtKey    = "virt_spin_lock_key"
	kvmFaultKey   = "kvm_async_pf_enabled"
	kvmStealKey   = "paravirt_steal_enabled"
	kvmClockFlags = "valid_flags"
)

// KVMGuestWords are variables whose first word is looked at, with how many bytes of it.
func KVMGuestWords() map[string]uint64 {
	return map[string]uint64{kvmVirtKey: 4, kvmFaultKey: 4, kvmStealKey: 4, kvmClockFlags: 1}
}

// LinuxKVM is the suite for the guest's side of x86-kvm: what the Linux of a release did in the boots
// that are given, which are those of KVMGuestBoots.
func LinuxKVM(release string, boots []KVMGuestBoot) *Suite {
	return &Suite{
		ABI: abi.X86KVM(), Implementer: Implementer{Name: Linux, Version: release}, Deviations: Deviations,
		Offers: func(abi.Feature) (bool, error) { return true, nil }, // in one of the boots
		Checks: kvmGuestChecks(boots), Looks: Looks,
	}
}

// LinuxKVMRules are the rules that LinuxKVM has a result for, in the order of its results.
func LinuxKVMRules() []abi.Rule {
	return (&Suite{ABI: abi.X86KVM(), Checks: kvmGuestChecks(nil)}).Rules()
}

// kvmGuestChecks are the checks of the guest's side, in the order of the report. That a kernel obeys
// what it reads of preempted is not looked at: it looks before it wakes a thread elsewhere than where
// that slept, and the CPUs of these machines share no cache, so that it never would.
func kvmGuestChecks(b kvmBoots) []Check {
	return []Check{
		b.finds(),
		b.locks(),
		b.uses(),
		b.registers(),
		b.areas(),
		b.faults(),
		b.offline(),
		b.ends(),
		b.contention(),
		b.ipis(),
		b.yields(),
		b.stolen(),
		b.calls(),
	}
}

// kvmBoots is what checks have to go by.
type kvmBoots []KVMGuestBoot

// get returns a boot, which must have been.
func (bs kvmBoots) get(t *T, name string) *KVMGuestBoot {
	i := slices.IndexFunc(bs, func(b KVMGuestBoot) bool { return b.Name == name })
	if i < 0 {
		t.Fatal(fmt.Errorf("no boot %q", name))
	}
	if why := bs[i].Err; why != "" {
		t.Fatal(fmt.Errorf("boot %s: %s", name, why))
	}
	return &bs[i]
}

// that returns the boots for which something holds.
func (bs kvmBoots) that(t *T, is func(*KVMGuestBoot) bool) (out []*KVMGuestBoot) {
	for i := range bs {
		if is(&bs[i]) {
			out = append(out, bs.get(t, bs[i].Name))
		}
	}
	t.Control("there are boots to go by", true, len(out) > 0)
	return out
}

// found tells whether a guest that keeps the ABI finds KVM.
func (b *KVMGuestBoot) found() bool { return !b.NoBit && !b.NoSignature }

// offers tells whether it then finds all of these features.
func (b *KVMGuestBoot) offers(features ...string) bool {
	return b.found() && !slices.ContainsFunc(features, func(f string) bool { return !slices.Contains(b.Offered, f) })
}

func (b *KVMGuestBoot) many() bool { return len(b.IDs) > 1 }

// count counts events.
func (b *KVMGuestBoot) count(is func(KVMGuestEvent) bool) (n int64) {
	for _, e := range b.Seen {
		n += bit(is(e))
	}
	return n
}

func (b *KVMGuestBoot) kinds(kind KVMGuestKind) int64 {
	return b.count(func(e KVMGuestEvent) bool { return e.Kind == kind })
}

// own counts writes to registers of KVM's.
func (b *KVMGuestBoot) own() int64 {
	return b.count(func(e KVMGuestEvent) bool { return e.Kind == GuestWrites && e.Number != InterruptCommand })
}

// called returns the calls of that name.
func (b *KVMGuestBoot) called(t *T, name string) (out []KVMGuestEvent) {
	for _, e := range b.Seen {
		if e.Kind == GuestCalls && e.Number == t.ABI.Call(name).Number {
			out = append(out, e)
		}
	}
	return out
}

// writes counts the writes to registers by their names.
func (b *KVMGuestBoot) writes(t *T, names ...string) int64 {
	return b.count(func(e KVMGuestEvent) bool {
		return e.Kind == GuestWrites && slices.ContainsFunc(names, func(n string) bool { return t.ABI.Register(n).Number == e.Number })
	})
}

// is tells whether the kernel's function of a place is KVM's; the rules are unreached where the kernel
// does not show it.
func (b *KVMGuestBoot) is(t *T, place string) bool {
	p := KVMGuestPlaces()[slices.IndexFunc(KVMGuestPlaces(), func(p KVMGuestPlace) bool { return p.Name == place })]
	f, ok := b.Kernel[place]
	if !ok {
		t.GiveUp(fmt.Sprintf("this kernel has none of %s that it shows; it needs CONFIG_KALLSYMS_ALL, and CONFIG_PARAVIRT_SPINLOCKS", strings.Join(p.In, ", ")))
	}
	return f == p.Any[0]
}

// value is that of a variable of the kernel's.
func (b *KVMGuestBoot) value(t *T, name string) uint64 {
	v, ok := b.Values[name]
	if !ok {
		t.GiveUp("this kernel has no " + name + " that it shows; it needs CONFIG_KALLSYMS_ALL")
	}
	return v
}

// finds: what a guest takes for KVM.
func (bs kvmBoots) finds() Check {
	const (
		noBit       = "guest/needs-hypervisor-bit"
		noSignature = "guest/needs-signature"
		later       = "guest/finds-later-leaf"
	)
	return Check{Rules: []string{noBit, noSignature, later}, Run: func(t *T) {
		uses := func(b *KVMGuestBoot) int64 { return b.own() + b.kinds(GuestCalls) }
		t.Control("writes and calls of a guest that finds all", true, uses(bs.get(t, kvmDense)) > 0)
		t.Equal(noBit, "writes and calls", t.Want(noBit, "uses"), uses(bs.get(t, kvmNoBit)))
		t.Equal(noSignature, "writes and calls", t.Want(noSignature, "uses"), uses(bs.get(t, kvmNoSignature)))
		b := bs.get(t, kvmLater)
		t.Equal(later, "all is used", t.Want(later, "found"), bit(b.is(t, kvmKick) && b.is(t, kvmIPI) && b.is(t, kvmEOI) && b.is(t, kvmFlush)))
		t.Evidence(later, "writes and calls", uses(b))
	}}
}

// kvmReasons are why spinlocks are native, in the order in which a kernel looks
// (arch/x86/kernel/kvm.c, kvm_spinlock_init), each with what it says.
var kvmReasons = []struct {
	says string
	is   func(*KVMGuestBoot) bool
}{
	{"PV spinlocks disabled with KVM_HINTS_REALTIME hints", func(b *KVMGuestBoot) bool { return b.Realtime }},
	{"PV spinlocks disabled, single CPU", func(b *KVMGuestBoot) bool { return !b.many() }},
	{`PV spinlocks disabled, forced by "nopvspin" parameter`, func(b *KVMGuestBoot) bool { return slices.Contains(b.Words, "nopvspin") }},
	{"PV spinlocks disabled, no host support", func(b *KVMGuestBoot) bool { return !b.offers("PV_UNHALT") }},
	{"PV spinlocks enabled", func(*KVMGuestBoot) bool { return true }},
}

// reason is the first of kvmReasons that is one; of the last of them spinlocks are not native.
func (b *KVMGuestBoot) reason() int {
	for i, r := range kvmReasons {
		if r.is(b) {
			return i
		}
	}
	return len(kvmReasons) - 1
}

// locks: what a guest's spinlocks are.
func (bs kvmBoots) locks() Check {
	const (
		offered   = "guest/locks-if-offered"
		otherwise = "guest/locks-native-otherwise"
		why       = "guest/locks-why-not"
		testSet   = "guest/locks-test-and-set"
		queued    = "guest/locks-queued"
	)
	return Check{Rules: []string{offered, otherwise, why, testSet, queued}, Run: func(t *T) {
		enabled, unsupported := len(kvmReasons)-1, len(kvmReasons)-2
		bare := bs.get(t, kvmNoBit)
		t.Equal(queued, bare.Name+": by test and set", t.Want(queued, "test-and-set"), int64(bare.value(t, kvmVirtKey)))
		for _, b := range bs.that(t, (*KVMGuestBoot).found) {
			reason := b.reason()
			rule := otherwise
			if reason == enabled {
				rule = offered
			}
			for _, place := range []string{kvmSlowPath, kvmUnlock, kvmWait, kvmKick} {
				t.Equal(rule, b.Name+": "+place+" is KVM's", t.Want(rule, "operations"), bit(b.is(t, place)))
			}
			if rule == otherwise {
				t.Equal(rule, b.Name+": kicks", t.Want(rule, "kicks"), int64(len(b.called(t, "KICK_CPU"))))
			}
			said, others := false, 0
			for line := range strings.Lines(b.Shown[KVMGuestLog]) {
				for i, r := range kvmReasons {
					if strings.HasSuffix(strings.TrimSpace(line), "kvm-guest: "+r.says) {
						said = said || i == reason
						others += int(bit(i != reason))
					}
				}
			}
			t.Equal(why, fmt.Sprintf("%s: says %q, and nothing else", b.Name, kvmReasons[reason].says), t.Want(why, "said"), bit(said && others == 0))
			rule = queued
			switch reason {
			case enabled:
				continue // where it makes no difference
			case unsupported:
				rule = testSet
			}
			t.Equal(rule, b.Name+": by test and set", t.Want(rule, "test-and-set"), int64(b.value(t, kvmVirtKey)))
		}
	}}
}

// kvmUse is something of KVM's that a guest uses under a condition.
type kvmUse struct {
	offered, otherwise string // rules
	place              string
	when               func(*KVMGuestBoot) bool
	// traffic is what must not be where it is not in use, by the name of the number that otherwise
	// demands.
	counted string
	traffic func(*T, *KVMGuestBoot) int64
}

var kvmUses = []kvmUse{
	{
		"guest/flush-if-offered", "guest/flush-native-otherwise", kvmFlush,
		func(b *KVMGuestBoot) bool {
			return b.offers("PV_TLB_FLUSH", "STEAL_TIME") && !b.Realtime && !b.MWAIT && b.many()
		},
		"flushes", func(_ *T, b *KVMGuestBoot) int64 { return b.kinds(GuestFlushes) },
	},
	{
		"guest/yield-if-offered", "guest/yield-never-otherwise", kvmYield,
		func(b *KVMGuestBoot) bool {
			return b.offers("PV_SCHED_YIELD", "STEAL_TIME") && !b.Realtime && !b.MWAIT && b.many()
		},
		"yields", func(t *T, b *KVMGuestBoot) int64 { return int64(len(b.called(t, "SCHED_YIELD"))) },
	},
	{
		"guest/ipi-if-offered", "guest/ipi-native-otherwise", kvmIPI,
		func(b *KVMGuestBoot) bool { return b.offers("PV_SEND_IPI") && b.many() },
		"calls", func(t *T, b *KVMGuestBoot) int64 { return int64(len(b.called(t, "SEND_IPI"))) },
	},
}

// uses: what else a guest uses, and when.
func (bs kvmBoots) uses() Check {
	const (
		eoi     = "guest/eoi-if-offered"
		cleared = "guest/eoi-cleared"
		steal   = "guest/steal-if-offered"
		faults  = "guest/async-faults-by-interrupt"
		both    = "guest/async-faults-needs-both"
		newer   = "guest/clock-newer"
		stable  = "guest/clock-stable"
	)
	var rules []string
	for _, u := range kvmUses {
		rules = append(rules, u.offered, u.otherwise)
	}
	return Check{Rules: append(rules, eoi, cleared, steal, faults, both, newer, stable), Run: func(t *T) {
		found := bs.that(t, (*KVMGuestBoot).found)
		for _, u := range kvmUses {
			for _, b := range found {
				rule := u.otherwise
				if u.when(b) {
					rule = u.offered
				} else {
					t.Equal(rule, b.Name+": "+u.counted, t.Want(rule, u.counted), u.traffic(t, b))
				}
				t.Equal(rule, b.Name+": "+u.place+" is KVM's", t.Want(rule, "in-use"), bit(b.is(t, u.place)))
			}
		}
		for _, b := range found {
			uses := func(rule string, offered bool, registers int64, kernel ...bool) {
				want := t.Want(rule, "registers")
				if !offered {
					want = 0
				}
				t.Equal(rule, b.Name+": the register is written", want, bit(registers > 0))
				for _, goes := range kernel {
					t.Equal(rule, b.Name+": the kernel goes by it", offered, goes)
				}
			}
			uses(eoi, b.offers("PV_EOI"), b.writes(t, "PV_EOI_EN"), b.is(t, kvmEOI))
			uses(steal, b.offers("STEAL_TIME"), b.writes(t, "STEAL_TIME"),
				b.is(t, kvmSteal), b.is(t, kvmPreempted), b.value(t, kvmStealKey) > 0)
			if b.Name == kvmIntAlone {
				t.Equal(both, "the register is written", t.Want(both, "registers"), bit(b.writes(t, "ASYNC_PF_EN") > 0))
			} else {
				uses(faults, b.offers("ASYNC_PF", "ASYNC_PF_INT"), b.writes(t, "ASYNC_PF_EN"), b.value(t, kvmFaultKey) > 0)
			}
			old, recent := b.writes(t, "SYSTEM_TIME"), b.writes(t, "SYSTEM_TIME_NEW")
			wantOld, wantRecent := int64(0), int64(0)
			switch {
			case b.offers("CLOCKSOURCE2"):
				wantRecent = t.Want(newer, "registers")
			case b.offers("CLOCKSOURCE"):
				wantOld = t.Want(newer, "registers")
			}
			t.Equal(newer, b.Name+": SYSTEM_TIME is written", wantOld, bit(old > 0))
			t.Equal(newer, b.Name+": SYSTEM_TIME_NEW is written", wantRecent, bit(recent > 0))
			t.Equal(newer, b.Name+": of the two wall clocks the other is not", int64(0),
				min(wantOld, b.writes(t, "WALL_CLOCK_NEW"))+min(wantRecent, b.writes(t, "WALL_CLOCK")))
			if wantOld+wantRecent > 0 {
				bitOf := t.ABI.Layout("pvclock_vcpu_time_info").Bit("flags", "TSC_STABLE")
				want := int64(0)
				if b.offers("CLOCKSOURCE_STABLE_BIT") {
					want = t.Want(stable, "heeds")
				}
				t.Equal(stable, b.Name+": the flag is heeded", want, bit(b.value(t, kvmClockFlags)&bitOf != 0))
			}
		}
		dense := bs.get(t, kvmDense)
		t.Equal(cleared, "interrupts that KVM saw as ended", t.Want(cleared, "ended"), bit(dense.kinds(GuestEnds) > 0))
		t.Control("and none where no word is registered", int64(0), bs.get(t, "nothing").kinds(GuestEnds))
		t.Evidence(cleared, "interrupts", dense.kinds(GuestEnds))
	}}
}

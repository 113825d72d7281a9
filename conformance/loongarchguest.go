package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pvabi/abi"
	"pvabi/internal/refhv"
)

// LoongArchBoot is one boot of a guest on the reference hypervisor, and what was seen of it.
type LoongArchBoot struct {
	Name string
	// Offered are the names of the features that are offered. Change, where it is set, is the
	// name of what is wrong about the hypervisor, one of refhv.LoongArchMutants.
	Offered []string
	Change  string
	// Scenario is what the guest does, LoongArchAreas or nothing but messages between its CPUs;
	// End is how it ends, in the words of package agent.
	Scenario, End string

	// Events are what the hypervisor saw and did, in order.
	Events []refhv.Event
	// IDs are the numbers by which the hypervisor knows its CPUs, in the order of theirs.
	IDs []uint64
	// Shown is what the guest showed, by name.
	Shown map[string]string
	// Other says why the guest did not end as it was told to; empty if it did.
	Other string
	// Err says why there was no such boot.
	Err error
}

// LoongArchAreas is the scenario in which areas are registered, written and taken back. Its guest
// takes CPUs offline and online, by which each registers its area again; for each time the
// LoongArchScript has something to do.
const LoongArchAreas = "areas"

// LoongArchBoots are the boots that the rules about guests are judged by. They have nothing of a run
// yet.
func LoongArchBoots() []LoongArchBoot {
	return []LoongArchBoot{
		{Name: "no hypervisor bit", Change: "hypervisor-bit-clear"},
		{Name: "another signature", Change: "signature-byte"},
		{Name: "nothing offered", Offered: []string{}},
		{Name: "IPI", Offered: []string{"IPI"}},
		{Name: "STEAL_TIME", Offered: []string{"STEAL_TIME"}, Scenario: LoongArchAreas, End: "panic"},
		{Name: "STEAL_TIME and PREEMPT", Offered: []string{"STEAL_TIME", "PREEMPT"}, Scenario: LoongArchAreas, End: "kexec"},
		{Name: "all", Offered: []string{"IPI", "STEAL_TIME", "PREEMPT"}, Scenario: LoongArchAreas, End: "reboot"},
	}
}

// What a LoongArchScript notes in the log, with numbers after it.
const (
	loongNoteFirst   = "first" // an area's bytes but those that the hypervisor wrote: how many are not 0
	loongNoteFlagged = "flagged"
	loongNoteOdd     = "odd"
	loongNoteEven    = "even" // whether the CPU was seen to wait
)

// loongForeign is what is added to steal while version is odd, an hour.
const loongForeign = uint64(time.Hour)

// loongStands is how many bytes of code a CPU stays in that waits for an even version.
const loongStands = 128

// LoongArchScript returns what a host of the scenario LoongArchAreas does at each event: the next of
// a list of acts whenever a CPU registers its area again. For that it must be the host's Watch.
//
//	1, 2, 6  The CPU is held for a while.
//	3        The CPU is said to be preempted, which it is not.
//	4        And no more.
//	5        Version is made odd and steal wrong, until the CPU is seen to wait.
func LoongArchScript(table *abi.Platform, h *refhv.Host) func(refhv.Event) {
	l := table.Layout("kvm_steal_time")
	preempted, version, steal := l.Field("preempted"), l.Field("version"), l.Field("steal")
	registered := map[int]bool{}
	again := 0
	return func(e refhv.Event) {
		if what, address := loongNotifies(table, e); what != loongRegistered || address == 0 {
			return
		}
		area, ok := h.Area(e.CPU)
		if !ok {
			return
		}
		poke := func(f abi.Field, value uint64) { h.Poke(area+f.Offset, f.Size, value) }
		peek := func(f abi.Field) uint64 { return h.Peek(area+f.Offset, f.Size) }
		if !registered[e.CPU] {
			registered[e.CPU] = true
			dirty := 0
			for at := range l.Size {
				if at >= version.Offset && at < version.Offset+version.Size {
					continue
				}
				if h.Peek(area+at, 1) != 0 {
					dirty++
				}
			}
			if peek(version) != 2 { // it was 0, and was written once
				dirty++
			}
			h.Note(fmt.Sprint(loongNoteFirst, " ", dirty))
			return
		}
		again++
		switch again {
		case 1:
			h.Hold(e.CPU, 130*time.Millisecond)
		case 2, 6:
			h.Hold(e.CPU, 70*time.Millisecond)
		case 3:
			poke(preempted, l.Bit("preempted", "PREEMPTED"))
			h.Note(loongNoteFlagged)
		case 4:
			poke(preempted, 0)
		case 5:
			was, right := peek(version), peek(steal)
			poke(version, was+1)
			poke(steal, right+loongForeign)
			h.Note(loongNoteOdd)
			loongUntilStands(h, e.CPU, func(stands bool) {
				poke(steal, right)
				poke(version, was+2)
				h.Note(fmt.Sprint(loongNoteEven, " ", stands))
			})
		}
	}
}

// loongUntilStands looks where a CPU is until it was near the same place several times in a row, as one
// that waits for a word to change is, or has been looked for often enough.
func loongUntilStands(h *refhv.Host, cpu int, then func(stands bool)) {
	const (
		pause = 20 * time.Millisecond
		row   = 4
		looks = 100
	)
	var seen []uint64
	var look func()
	look = func() {
		seen = append(seen, h.PC(cpu))
		last := seen[max(0, len(seen)-row):]
		stands := len(last) == row && slices.Max(last)-slices.Min(last) < loongStands
		if stands || len(seen) == looks {
			then(stands)
			return
		}
		h.After(pause, look)
	}
	h.After(pause, look)
}

// What a NOTIFY does, by its arguments and its result.
const (
	loongNoNotify = iota
	loongRegistered
	loongReleased
)

// loongNotifies tells what an event does about an area.
func loongNotifies(table *abi.Platform, e refhv.Event) (what int, address uint64) {
	notify := table.Call("NOTIFY")
	valid := uint64(notify.Arg("address").Value("VALID"))
	switch {
	case !loongCalls(table, e, "NOTIFY") || int64(e.Value) != 0:
		return loongNoNotify, 0
	case e.Args[2]&valid == 0:
		return loongReleased, 0
	}
	return loongRegistered, e.Args[2] &^ (table.Layout("kvm_steal_time").Align - 1)
}

// loongCalls tells whether an event is that call.
func loongCalls(table *abi.Platform, e refhv.Event, name string) bool {
	return e.Kind == refhv.EventKind(refhv.ExitCall) && e.Number == table.Word("code-service") && e.Args[0] == table.Call(name).Number
}

// LinuxLoongArch is the suite for the guest's side of loongarch-kvm: what the Linux of a release did in
// the boots that are given, which are those of LoongArchBoots.
func LinuxLoongArch(release string, boots []LoongArchBoot) *Suite {
	s := &Suite{
		ABI: abi.LoongArch(), Implementer: Implementer{Name: Linux, Version: release}, Deviations: Deviations,
		Offers: func(abi.Feature) (bool, error) { return true, nil }, // in one of the boots
	}
	s.Checks = loongGuestChecks(loongBoots(boots))
	return s
}

// LinuxLoongArchRules are the rules that LinuxLoongArch has a result for, in the order of its results.
func LinuxLoongArchRules() []abi.Rule {
	return (&Suite{ABI: abi.LoongArch(), Checks: loongGuestChecks(nil)}).Rules()
}

// loongGuestChecks are the checks of the guest's side, in the order of the report.
func loongGuestChecks(b loongBoots) []Check {
	return []Check{
		b.needs("guest/needs-hypervisor-bit", "no hypervisor bit", refhv.ExitFeatures),
		b.needs("guest/needs-signature", "another signature", refhv.ExitDiscover),
		b.messages(),
		b.ipis(),
		b.taken(),
		b.areas(),
		b.clear(),
		b.releases(),
		b.steal(),
		b.odd(),
		b.preempted(),
		b.once(),
		b.others(),
	}
}

// loongBoots is what checks have to go by.
type loongBoots []LoongArchBoot

// get returns a boot, which must have been.
func (bs loongBoots) get(t *T, name string) *LoongArchBoot {
	i := slices.IndexFunc(bs, func(b LoongArchBoot) bool { return b.Name == name })
	if i < 0 {
		t.Fatal(fmt.Errorf("no boot %q", name))
	}
	t.Check("boot "+name, bs[i].Err)
	return &bs[i]
}

// with returns the boots in which features are offered, of those without anything wrong.
func (bs loongBoots) with(t *T, features ...string) []*LoongArchBoot {
	return bs.that(t, func(b LoongArchBoot) bool {
		return !slices.ContainsFunc(features, func(f string) bool { return !slices.Contains(b.Offered, f) })
	})
}

// without returns the boots in which a feature is not offered, or nothing is found.
func (bs loongBoots) without(t *T, feature string) []*LoongArchBoot {
	return bs.that(t, func(b LoongArchBoot) bool { return !slices.Contains(b.Offered, feature) })
}

func (bs loongBoots) that(t *T, is func(LoongArchBoot) bool) []*LoongArchBoot {
	var out []*LoongArchBoot
	for _, b := range bs {
		if is(b) {
			out = append(out, bs.get(t, b.Name))
		}
	}
	t.Control("there are boots to go by", true, len(out) > 0)
	return out
}

// count counts events.
func (b *LoongArchBoot) count(is func(refhv.Event) bool) int64 {
	n := int64(0)
	for _, e := range b.Events {
		if is(e) {
			n++
		}
	}
	return n
}

// calls counts calls by name.
func (b *LoongArchBoot) calls(t *T, name string) int64 {
	return b.count(func(e refhv.Event) bool { return loongCalls(t.ABI, e, name) })
}

func isExit(kind refhv.ExitKind) func(refhv.Event) bool {
	return func(e refhv.Event) bool { return e.Kind == refhv.EventKind(kind) }
}

// cpu returns the hypervisor's number of the guest's CPU with a number of the guest's own, by what the
// guest says its number in CPUID is.
func (b *LoongArchBoot) cpu(t *T, number int) int {
	at := -1
	for line := range strings.Lines(b.Shown["cpuinfo begin"]) {
		key, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
		switch strings.TrimSpace(key) {
		case "processor":
			t.Check("read /proc/cpuinfo", err)
			at = int(n)
		case "global_id":
			t.Check("read /proc/cpuinfo", err)
			if i := slices.Index(b.IDs, n); at == number && i >= 0 {
				return i
			}
		}
	}
	t.Fatal(fmt.Errorf("boot %q: /proc/cpuinfo does not tell which CPU is number %d", b.Name, number))
	return 0
}

// interrupts returns how many interrupts of a kind, by the end of its line in /proc/interrupts, each of
// the guest's CPUs has taken; nil if there is no such line.
func (b *LoongArchBoot) interrupts(t *T, when, kind string) []int64 {
	for line := range strings.Lines(b.Shown["interrupts "+when]) {
		f := strings.Fields(line)
		if len(f) < len(b.IDs)+2 || f[len(f)-1] != kind {
			continue
		}
		var out []int64
		for _, word := range f[1 : len(b.IDs)+1] {
			n, err := strconv.ParseInt(word, 10, 64)
			t.Check("read /proc/interrupts", err)
			out = append(out, n)
		}
		return out
	}
	return nil
}

// stolen returns what each of the guest's CPUs shows as stolen, in ticks.
func (b *LoongArchBoot) stolen(t *T, when string) []int64 {
	text, ok := b.Shown["stat "+when]
	t.Control("the guest showed /proc/stat "+when, true, ok)
	const steal = 8 // field of a line (Documentation/filesystems/proc.rst, "Miscellaneous kernel statistics")
	var out []int64
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) <= steal || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		n, err := strconv.ParseInt(f[steal], 10, 64)
		t.Check("read /proc/stat", err)
		out = append(out, n)
	}
	t.Control("CPUs of /proc/stat", len(b.IDs), len(out))
	return out
}

// What /proc/interrupts calls the interrupts between CPUs.
const (
	nativeIPI = "IPI"
	swi0IPI   = "SWI0-IPI"
)

// again is how many times a CPU of the hypervisor's registered its area after the first time.
func (b *LoongArchBoot) again(t *T, cpu int) int64 {
	return max(0, b.count(func(e refhv.Event) bool {
		what, _ := loongNotifies(t.ABI, e)
		return what == loongRegistered && e.CPU == cpu
	})-1)
}

// needs: a guest that does not find what it needs makes no calls.
func (bs loongBoots) needs(rule, name string, looks refhv.ExitKind) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		b := bs.get(t, name)
		t.Control("the guest looked", true, b.count(isExit(looks)) > 0)
		t.Control("calls of a guest that finds all", true, bs.get(t, "all").count(isExit(refhv.ExitCall)) > 0)
		t.Equal(rule, "calls", t.Want(rule, "calls"), b.count(isExit(refhv.ExitCall)))
		t.Truth(rule, "no interrupts between CPUs by calls", b.interrupts(t, "end", swi0IPI) == nil)
	}}
}

// messages: by which interrupts CPUs send each other messages.
func (bs loongBoots) messages() Check {
	const (
		offered = "guest/ipi-if-offered"
		starts  = "guest/starts-cpus-natively"
	)
	return Check{Rules: []string{offered, starts}, Run: func(t *T) {
		for _, b := range bs.with(t, "IPI") {
			native, swi := b.interrupts(t, "end", nativeIPI), b.interrupts(t, "end", swi0IPI)
			t.Control("CPUs that took messages by calls: "+b.Name, len(b.IDs), len(swi)-countOf(swi, 0))
			t.Control("CPUs of "+nativeIPI+": "+b.Name, len(b.IDs), len(native))
			for n := range b.IDs {
				// Each start of a CPU but the first, which comes before it counts, is one.
				t.Equal(offered, fmt.Sprintf("%s: native interrupts of CPU %d but for starts", b.Name, n),
					t.Want(offered, "native"), native[n]-b.again(t, b.cpu(t, n)))
				t.Equal(starts, fmt.Sprintf("%s: starts of CPU %d by no native interrupt", b.Name, n),
					t.Want(starts, "calls"), max(0, b.again(t, b.cpu(t, n))-native[n]))
			}
			started := map[int]bool{}
			early := int64(0)
			for _, e := range b.Events {
				switch e.Kind {
				case refhv.EventKind(refhv.ExitFeatures):
					started[e.CPU] = true
				case refhv.EventInterrupt:
					if !started[e.CPU] {
						early++
					}
				}
			}
			t.Control("CPUs that started: "+b.Name, len(b.IDs), len(started))
			t.Equal(starts, b.Name+": interrupts for CPUs that have not started", t.Want(starts, "calls"), early)
		}
		for _, b := range bs.without(t, "IPI") {
			native := b.interrupts(t, "end", nativeIPI)
			if b.Change == "" { // or it is about another rule
				t.Control("CPUs that took native interrupts: "+b.Name, len(b.IDs), len(native)-countOf(native, 0))
				t.Equal(offered, b.Name+": IPI", t.Want(offered, "calls"), b.calls(t, "IPI"))
			}
		}
	}}
}

func countOf(ns []int64, value int64) int {
	return len(slices.DeleteFunc(slices.Clone(ns), func(n int64) bool { return n != value }))
}

// ipis: what the arguments of IPI are.
func (bs loongBoots) ipis() Check {
	const (
		lowest   = "guest/ipi-lowest"
		existing = "guest/ipi-to-existing"
	)
	return Check{Rules: []string{lowest, existing}, Run: func(t *T) {
		for _, b := range bs.with(t, "IPI") {
			clear, others, targets, high := int64(0), int64(0), map[uint64]int{}, 0
			for _, e := range b.Events {
				if !loongCalls(t.ABI, e, "IPI") {
					continue
				}
				if e.Args[1]&1 == 0 {
					clear++
				}
				if e.Args[2] != 0 {
					high++
				}
				for bit := range uint64(128) {
					if e.Args[1+bit/64]>>(bit%64)&1 == 0 {
						continue
					}
					id := e.Args[3] + bit
					targets[id]++
					if !slices.Contains(b.IDs, id) {
						others++
					}
				}
			}
			t.Control("CPUs that were sent messages: "+b.Name, true, len(targets) >= len(b.IDs))
			t.Equal(lowest, b.Name+": calls whose lowest is no target", t.Want(lowest, "clear"), clear)
			t.Equal(existing, b.Name+": targets that do not exist", t.Want(existing, "others"), others)
			t.Evidence(existing, b.Name+": messages by CPUID", targets)
			t.Evidence(existing, b.Name+": calls with bits in the high word", high)
		}
	}}
}

// taken: each interrupt that was sent is taken. Two times that a CPU registers its area again are
// marks between which the guest showed its counts; a CPU has at most one interrupt that is sent and
// not taken.
func (bs loongBoots) taken() Check {
	const rule = "guest/ipi-taken"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		b := bs.get(t, "all")
		var marks []map[int]int64
		sent, first := map[int]int64{}, map[int]bool{}
		for _, e := range b.Events {
			what, _ := loongNotifies(t.ABI, e)
			switch {
			case e.Kind == refhv.EventInterrupt:
				sent[e.CPU]++
			case what == loongRegistered && !first[e.CPU]:
				first[e.CPU] = true
			case what == loongRegistered:
				mark := map[int]int64{}
				for cpu := range b.IDs {
					mark[cpu] = sent[cpu]
				}
				marks = append(marks, mark)
			}
		}
		t.Control("marks", true, len(marks) >= 2)
		taken := b.interrupts(t, "between", swi0IPI)
		t.Control("CPUs of "+swi0IPI, len(b.IDs), len(taken))
		missed := int64(0)
		for n := range b.IDs {
			cpu := b.cpu(t, n)
			from, to := marks[len(marks)-2][cpu], marks[len(marks)-1][cpu]
			t.Control(fmt.Sprintf("CPU %d was sent interrupts", n), true, from > 0)
			if taken[n] < from-1 || taken[n] > to {
				missed++
			}
			t.Evidence(rule, fmt.Sprintf("CPU %d: sent before, taken, sent after", n), []int64{from, taken[n], to})
		}
		t.Equal(rule, "CPUs that have not taken what they were sent", t.Want(rule, "missed"), missed)
	}}
}

// areas: which areas are registered, and how.
func (bs loongBoots) areas() Check {
	const (
		offered   = "guest/notify-if-offered"
		arguments = "guest/notify-arguments"
		own       = "guest/notify-own-area"
	)
	return Check{Rules: []string{offered, arguments, own}, Run: func(t *T) {
		notify, size := t.ABI.Call("NOTIFY"), t.ABI.Layout("kvm_steal_time").Size
		const page = 4096 // the smallest that there is
		for _, b := range bs.with(t, "STEAL_TIME") {
			others, crossings := int64(0), int64(0)
			areas := map[int]map[uint64]bool{}
			for _, e := range b.Events {
				if !loongCalls(t.ABI, e, "NOTIFY") {
					continue
				}
				valid := e.Args[2]&uint64(notify.Arg("address").Value("VALID")) != 0
				if e.Args[1] != uint64(notify.Arg("what").Value("STEAL_TIME")) ||
					e.Args[2]&uint64(notify.Arg("address").Value("RESERVED")) != 0 || !valid && e.Args[2] != 0 {
					others++
				}
				if !valid {
					continue
				}
				address := e.Args[2] &^ (size - 1)
				if areas[e.CPU] == nil {
					areas[e.CPU] = map[uint64]bool{}
				}
				areas[e.CPU][address] = true
				if address/page != (address+size-1)/page {
					crossings++
				}
			}
			overlaps := int64(0)
			for cpu, mine := range areas {
				for other, theirs := range areas {
					for a := range mine {
						for c := range theirs {
							if cpu < other && a < c+size && c < a+size {
								overlaps++
							}
						}
					}
				}
			}
			for cpu := range b.IDs {
				t.Equal(offered, fmt.Sprintf("%s: areas of CPU %d", b.Name, b.IDs[cpu]), t.Want(offered, "areas"), len(areas[cpu]))
			}
			t.Equal(arguments, b.Name+": calls with other arguments", t.Want(arguments, "others"), others)
			t.Equal(own, b.Name+": areas that overlap", t.Want(own, "overlaps"), overlaps)
			t.Equal(own, b.Name+": areas across a page's end", t.Want(own, "crossings"), crossings)
		}
		for _, b := range bs.without(t, "STEAL_TIME") {
			if b.Change == "" {
				t.Equal(offered, b.Name+": NOTIFY", t.Want(offered, "calls"), b.calls(t, "NOTIFY"))
			}
		}
	}}
}

// noted returns what is noted after a word, in order.
func (b *LoongArchBoot) noted(word string) []string {
	var out []string
	for _, e := range b.Events {
		if first, rest, _ := strings.Cut(e.Text, " "); e.Kind == refhv.EventNote && first == word {
			out = append(out, rest)
		}
	}
	return out
}

// clear: what an area holds before anybody has written to it.
func (bs loongBoots) clear() Check {
	const rule = "guest/area-begins-clear"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, b := range bs.with(t, "STEAL_TIME") {
			dirty := b.noted(loongNoteFirst)
			t.Control("areas that were looked at: "+b.Name, len(b.IDs), len(dirty))
			for i, n := range dirty {
				t.Equal(rule, fmt.Sprintf("%s: bytes of area %d", b.Name, i), t.Want(rule, "changed"), n)
			}
		}
	}}
}

// registered returns how many areas are registered after the first n events, and how often one was
// registered while the CPU had one.
func (b *LoongArchBoot) registered(t *T) (left, twice int64) {
	has := map[int]bool{}
	for _, e := range b.Events {
		switch what, _ := loongNotifies(t.ABI, e); what {
		case loongRegistered:
			if has[e.CPU] {
				twice++
			}
			has[e.CPU] = true
		case loongReleased:
			delete(has, e.CPU)
		}
	}
	return int64(len(has)), twice
}

// releases: when areas are taken back.
func (bs loongBoots) releases() Check {
	const (
		offline = "guest/released-at-offline"
		reboot  = "guest/released-at-reboot"
		kexec   = "guest/released-at-kexec"
		panics  = "guest/released-at-panic"
	)
	return Check{Rules: []string{offline, reboot, kexec, panics}, Run: func(t *T) {
		for _, b := range bs.with(t, "STEAL_TIME") {
			left, twice := b.registered(t)
			again := int64(0)
			for cpu := range b.IDs {
				again += b.again(t, cpu)
			}
			t.Control("CPUs that came online again: "+b.Name, true, again > 0)
			t.Equal(offline, b.Name+": areas that a CPU went offline with", t.Want(offline, "areas"), twice)
			rule, what := "", "areas at the end by "+b.End
			switch b.End {
			case "reboot":
				rule = reboot
			case "kexec":
				rule = kexec
			case "panic":
				rule = panics
			default:
				continue
			}
			if b.Other != "" {
				t.Unreached(rule, b.Other)
				continue
			}
			t.Equal(rule, what, t.Want(rule, "areas"), left)
		}
	}}
}

// tick is the unit of /proc/stat (include/uapi/asm-generic/param.h, USER_HZ).
const tick = int64(10 * time.Millisecond)

// steal: what is shown as stolen is what was written.
func (bs loongBoots) steal() Check {
	const rule = "guest/steal-shown"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		l := t.ABI.Layout("kvm_steal_time")
		for _, b := range bs.with(t, "STEAL_TIME") {
			area, written := map[uint64]int{}, map[int]int64{}
			for _, e := range b.Events {
				if what, address := loongNotifies(t.ABI, e); what == loongRegistered {
					area[address+l.Field("steal").Offset] = e.CPU
				}
			}
			for _, e := range b.Events {
				if cpu, ok := area[e.Number]; ok && e.Kind == refhv.EventStore && e.Size == l.Field("steal").Size {
					written[cpu] = int64(e.Value)
				}
			}
			first, shown := b.stolen(t, "begin"), b.stolen(t, "end")
			held, others := 0, int64(0)
			for n := range b.IDs {
				want := written[b.cpu(t, n)] / tick
				if want > 0 {
					held++
				}
				if shown[n]-first[n] != want {
					others++
				}
				t.Evidence(rule, fmt.Sprintf("%s: CPU %d: ticks written, shown", b.Name, n), []int64{want, shown[n]})
			}
			t.Control("CPUs that were held, and not: "+b.Name, true, held >= 2 && held < len(b.IDs))
			t.Equal(rule, b.Name+": CPUs that show another time", t.Want(rule, "others"), others)
		}
	}}
}

// odd: a value is not taken while version is odd.
func (bs loongBoots) odd() Check {
	const rule = "guest/steal-waits-for-even-version"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, b := range bs.with(t, "STEAL_TIME") {
			t.Control("the CPU was seen to wait while version was odd: "+b.Name, []string{"true"}, b.noted(loongNoteEven))
			values := int64(0)
			for _, when := range []string{"odd 2", "even 2", "end"} {
				for _, n := range b.stolen(t, when) {
					if n >= int64(loongForeign)/tick {
						values++
					}
				}
			}
			t.Control("steal is taken once version is even: "+b.Name, true, b.stolen(t, "even 2")[2] > b.stolen(t, "odd 2")[2])
			t.Equal(rule, b.Name+": values of an odd version", t.Want(rule, "values"), values)
		}
	}}
}

// loongMoved is how many wakes of a hundred more have to find the sleeper on the other CPU for its
// own to be taken for preempted. A host that is busy moves some, a kernel that obeys most.
const loongMoved = 20

// preempted: a CPU that is said to be preempted is passed over when a thread is woken.
func (bs loongBoots) preempted() Check {
	const (
		obeyed  = "guest/preempted-obeyed"
		ignored = "guest/preempted-ignored"
	)
	return Check{Rules: []string{obeyed, ignored}, Run: func(t *T) {
		for _, b := range bs.with(t, "STEAL_TIME") {
			t.Control("a CPU was said to be preempted: "+b.Name, 1, len(b.noted(loongNoteFlagged)))
			plain, flagged, cleared := b.moved(t, "plain"), b.moved(t, "flagged"), b.moved(t, "cleared")
			taken := int64(0)
			if flagged-max(plain, cleared) >= loongMoved {
				taken = 1
			}
			rule, says := ignored, "preempt disabled"
			if slices.Contains(b.Offered, "PREEMPT") {
				rule, says = obeyed, "preempt enabled"
			}
			t.Equal(rule, b.Name+": taken for preempted", t.Want(rule, "preempted"), taken)
			t.Truth(rule, b.Name+": the kernel says "+says, strings.Contains(b.Shown["log"], says))
			t.Evidence(rule, b.Name+": of 100 wakes on another CPU, before, while and after it was said", []int64{plain, flagged, cleared})
		}
		for _, b := range bs.without(t, "STEAL_TIME") {
			t.Truth(ignored, b.Name+": the kernel says nothing of steal time", !strings.Contains(b.Shown["log"], "steal-time"))
		}
	}}
}

// moved is how many of 100 wakes found the sleeper on the other one of its two CPUs.
func (b *LoongArchBoot) moved(t *T, when string) int64 {
	var found []int64
	all := int64(0)
	for word := range strings.FieldsSeq(b.Shown["wakes "+when]) {
		n, err := strconv.ParseInt(word, 10, 64)
		t.Check("read how often a thread was woken where", err)
		found = append(found, n)
		all += n
	}
	t.Control(fmt.Sprintf("%s: threads were woken, %s", b.Name, when), true, len(found) == 4 && all > 0)
	return 100 * found[2] / all
}

// once: discovery is at boot only.
func (bs loongBoots) once() Check {
	const rule = "guest/asks-once"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		for _, b := range bs.with(t, "STEAL_TIME") {
			early, late := int64(0), int64(0)
			first := map[int]bool{}
			booted := false
			for _, e := range b.Events {
				what, _ := loongNotifies(t.ABI, e)
				switch {
				case what == loongRegistered && first[e.CPU]:
					booted = true
				case what == loongRegistered:
					first[e.CPU] = true
				case e.Kind == refhv.EventKind(refhv.ExitDiscover) && booted:
					late++
				case e.Kind == refhv.EventKind(refhv.ExitDiscover):
					early++
				}
			}
			t.Control("the guest asked when it booted: "+b.Name, true, early > 0 && booted)
			t.Equal(rule, b.Name+": CPUCFG after the boot", t.Want(rule, "exits"), late)
		}
	}}
}

// others: there are no other calls.
func (bs loongBoots) others() Check {
	const rule = "guest/no-other-calls"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		all := int64(0)
		for _, b := range bs.that(t, func(LoongArchBoot) bool { return true }) {
			calls := b.count(isExit(refhv.ExitCall))
			all += calls
			t.Equal(rule, b.Name, t.Want(rule, "others"), calls-b.calls(t, "IPI")-b.calls(t, "NOTIFY"))
		}
		t.Control("there were calls", true, all > 0)
	}}
}

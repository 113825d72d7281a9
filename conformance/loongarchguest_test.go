package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/internal/refhv"
)

// loongTape writes what is seen of a guest that keeps the ABI.
type loongTape struct {
	*conformance.LoongArchBoot
	sent, restarts [4]int
	steal          [4]uint64
}

// loongNumbers are the hypervisor's numbers of the guest's CPUs, as Linux finds them.
var loongNumbers = [4]int{0, 3, 2, 1}

func (b *loongTape) event(e refhv.Event) { b.Events = append(b.Events, e) }

func (b *loongTape) note(text string) {
	b.event(refhv.Event{Kind: refhv.EventNote, CPU: -1, Text: text})
}

func (b *loongTape) ipi(target int) {
	b.sent[target]++
	b.event(refhv.Event{Kind: refhv.EventInterrupt, CPU: target, Number: 1})
	b.event(refhv.Event{Kind: "call", CPU: 0, Number: 0x100, Args: [6]uint64{1, 1, 0, uint64(target)}})
}

func loongArea(cpu int) uint64 { return 0xa0000000 + uint64(cpu)<<20 }

func (b *loongTape) notify(cpu int, address uint64) {
	b.event(refhv.Event{Kind: "call", CPU: cpu, Number: 0x100, Args: [6]uint64{2, 4, address}})
}

func (b *loongTape) store(cpu int, steal uint64) {
	b.event(refhv.Event{Kind: refhv.EventStore, CPU: cpu, Number: loongArea(cpu), Size: 8, Value: steal})
}

func (b *loongTape) hold(cpu int, d time.Duration) {
	b.steal[cpu] += uint64(d)
	b.store(cpu, b.steal[cpu])
}

func (b *loongTape) show(when string) {
	var info, interrupts, stat strings.Builder
	swi, native := "21:", "20:"
	for n, cpu := range loongNumbers {
		fmt.Fprintf(&info, "processor\t: %d\nglobal_id\t: %d\n\n", n, cpu)
		swi += fmt.Sprintf(" %d", b.sent[cpu])
		if slices.Contains(b.Offered, "IPI") {
			native += fmt.Sprintf(" %d", b.restarts[cpu])
		} else {
			native += " 500"
		}
		fmt.Fprintf(&stat, "cpu%d 1 2 3 4 5 6 7 %d 0 0\n", n, b.steal[cpu]/1e7)
	}
	fmt.Fprintf(&interrupts, "  CPU0 CPU1 CPU2 CPU3\n%s CPUINTC 12 IPI\n", native)
	if slices.Contains(b.Offered, "IPI") {
		fmt.Fprintf(&interrupts, "%s CPUINTC 0 SWI0-IPI\n", swi)
	}
	b.Shown["cpuinfo "+when], b.Shown["interrupts "+when], b.Shown["stat "+when] = info.String(), interrupts.String(), "cpu 0\n"+stat.String()
}

// cycle takes a CPU, by the guest's number, offline and online again.
func (b *loongTape) cycle(number int) int {
	cpu := loongNumbers[number]
	b.notify(cpu, 0)
	b.event(refhv.Event{Kind: "features", CPU: cpu})
	b.notify(cpu, loongArea(cpu)|1)
	b.restarts[cpu]++
	return cpu
}

// loongSeen is what is seen of a guest that keeps the ABI.
func loongSeen() []conformance.LoongArchBoot {
	boots := conformance.LoongArchBoots()
	for i := range boots {
		b := &loongTape{LoongArchBoot: &boots[i]}
		b.IDs, b.Shown = []uint64{0, 1, 2, 3}, map[string]string{"log": ""}
		offers := func(f string) bool { return slices.Contains(b.Offered, f) }
		b.event(refhv.Event{Kind: "features"})
		if b.Change != "hypervisor-bit-clear" {
			b.event(refhv.Event{Kind: "cpucfg", Number: 0x40000000})
		}
		for _, cpu := range []int{0, 3, 2, 1} {
			b.event(refhv.Event{Kind: "features", CPU: cpu})
			if offers("STEAL_TIME") {
				b.notify(cpu, loongArea(cpu)|1)
				b.note("first 0")
			}
		}
		talk := func() {
			for cpu := range 4 {
				if offers("IPI") {
					b.ipi(cpu)
					b.ipi(cpu)
				}
			}
		}
		talk()
		b.show("begin")
		if b.Scenario != "" {
			preempt := "disabled"
			moved := "0 190 10 0"
			if offers("PREEMPT") {
				preempt, moved = "enabled", "0 60 140 0"
			}
			b.Shown["log"] = "Using paravirt steal-time with preempt " + preempt
			b.Shown["wakes plain"], b.Shown["wakes flagged"], b.Shown["wakes cleared"] = "0 190 10 0", moved, "0 195 5 0"
			b.hold(b.cycle(1), 134*time.Millisecond)
			b.show("held 1")
			b.hold(b.cycle(2), 71*time.Millisecond)
			b.show("held 2")
			b.cycle(1)
			b.note("flagged")
			b.cycle(1)
			cpu := b.cycle(2)
			b.store(cpu, b.steal[cpu]+uint64(time.Hour))
			b.note("odd")
			b.store(cpu, b.steal[cpu])
			b.note("even true")
			b.show("odd 2")
			b.hold(b.cycle(2), 75*time.Millisecond)
			b.show("even 2")
			talk()
			b.cycle(3)
			b.show("between")
			talk()
			b.cycle(3)
		}
		b.show("end")
		if b.Scenario != "" && b.End != "panic" {
			for cpu := range 4 {
				b.notify(cpu, 0)
			}
		}
	}
	// It is Linux that did so, so its deviations show.
	boots[5].Events = append(boots[5].Events, refhv.Event{Kind: "call", CPU: 1, Number: 0x100, Args: [6]uint64{2, 4, loongArea(1) | 1}})
	return boots
}

func TestLinuxLoongArch(t *testing.T) {
	deviates := []string{"guest/released-at-kexec", "guest/released-at-panic"}
	boot := func(bs []conformance.LoongArchBoot, name string) *conformance.LoongArchBoot {
		i := slices.IndexFunc(bs, func(b conformance.LoongArchBoot) bool { return b.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		return &bs[i]
	}
	all := func(bs []conformance.LoongArchBoot) *conformance.LoongArchBoot { return boot(bs, "all") }
	last := func(b *conformance.LoongArchBoot, is func(refhv.Event) bool) *refhv.Event {
		for i := range b.Events {
			if e := &b.Events[len(b.Events)-1-i]; is(*e) {
				return e
			}
		}
		require.Fail(t, "no such event")
		return nil
	}
	isIPI := func(e refhv.Event) bool { return e.Kind == "call" && e.Args[0] == 1 }
	isNotify := func(valid bool) func(refhv.Event) bool {
		return func(e refhv.Event) bool { return e.Kind == "call" && e.Args[0] == 2 && (e.Args[2] != 0) == valid }
	}
	call := func(b *conformance.LoongArchBoot, code uint64, args ...uint64) {
		e := refhv.Event{Kind: "call", Number: code}
		copy(e.Args[:], args)
		b.Events = append(b.Events, e)
	}
	for _, test := range []struct {
		name   string
		change func([]conformance.LoongArchBoot)
		fails  []string
		errs   []string
	}{
		{"keeps all", func([]conformance.LoongArchBoot) {}, nil, nil},
		{"calls without the hypervisor's bit", func(bs []conformance.LoongArchBoot) { call(boot(bs, "no hypervisor bit"), 0x100, 1, 1, 0, 0) }, []string{"guest/needs-hypervisor-bit"}, nil},
		{"calls without the signature", func(bs []conformance.LoongArchBoot) { call(boot(bs, "another signature"), 0x100, 1, 1, 0, 0) }, []string{"guest/needs-signature"}, nil},
		{"never looked", func(bs []conformance.LoongArchBoot) { boot(bs, "no hypervisor bit").Events = nil }, nil, []string{"guest/needs-hypervisor-bit"}},
		{"native messages although IPI is offered", func(bs []conformance.LoongArchBoot) {
			b := boot(bs, "IPI")
			b.Shown["interrupts end"] = strings.Replace(b.Shown["interrupts end"], "20: 0", "20: 7", 1)
		}, []string{"guest/ipi-if-offered"}, nil},
		{"IPI although it is not offered", func(bs []conformance.LoongArchBoot) { call(boot(bs, "STEAL_TIME"), 0x100, 1, 1, 0, 0) }, []string{"guest/ipi-if-offered"}, nil},
		{"starts a CPU by IPI", func(bs []conformance.LoongArchBoot) {
			b := all(bs)
			b.Events = slices.Insert(b.Events, 1, refhv.Event{Kind: refhv.EventInterrupt, CPU: 3, Number: 1})
		}, []string{"guest/starts-cpus-natively"}, nil},
		{"lowest is no target", func(bs []conformance.LoongArchBoot) {
			e := last(all(bs), isIPI)
			e.Args[1], e.Args[3] = 2, e.Args[3]-1
		}, []string{"guest/ipi-lowest"}, nil},
		{"a target that does not exist", func(bs []conformance.LoongArchBoot) { last(all(bs), isIPI).Args[2] = 1 }, []string{"guest/ipi-to-existing"}, nil},
		{"the guest's own number as a target", func(bs []conformance.LoongArchBoot) { last(all(bs), isIPI).Args[3] = 4 }, []string{"guest/ipi-to-existing"}, nil},
		{"an interrupt is not taken", func(bs []conformance.LoongArchBoot) {
			all(bs).Shown["interrupts between"] = strings.Replace(all(bs).Shown["interrupts between"], "21: 4 4", "21: 4 2", 1)
		}, []string{"guest/ipi-taken"}, nil},
		{"a CPU without an area", func(bs []conformance.LoongArchBoot) {
			b := boot(bs, "STEAL_TIME")
			b.Events = slices.DeleteFunc(b.Events, func(e refhv.Event) bool { return e.CPU == 0 && isNotify(true)(e) })
		}, []string{"guest/notify-if-offered"}, nil},
		{"an area although it is not offered", func(bs []conformance.LoongArchBoot) { call(boot(bs, "IPI"), 0x100, 2, 4, 0) }, []string{"guest/notify-if-offered"}, nil},
		{"the number of the bit instead of its value", func(bs []conformance.LoongArchBoot) { last(all(bs), isNotify(false)).Args[1] = 2 }, []string{"guest/notify-arguments"}, nil},
		{"an address when it takes an area back", func(bs []conformance.LoongArchBoot) { last(all(bs), isNotify(false)).Args[2] = 64 }, []string{"guest/notify-arguments"}, nil},
		{"the area of another CPU", func(bs []conformance.LoongArchBoot) {
			for i, e := range all(bs).Events {
				if e.CPU == 0 && isNotify(true)(e) {
					all(bs).Events[i].Args[2] = loongArea(1) | 1
				}
			}
		}, []string{"guest/notify-own-area"}, nil},
		{"an area that holds something", func(bs []conformance.LoongArchBoot) {
			last(all(bs), func(e refhv.Event) bool { return e.Text == "first 0" }).Text = "first 5"
		}, []string{"guest/area-begins-clear"}, nil},
		{"offline with its area", func(bs []conformance.LoongArchBoot) {
			b := boot(bs, "STEAL_TIME")
			i := slices.IndexFunc(b.Events, isNotify(false))
			b.Events = slices.Delete(b.Events, i, i+1)
		}, []string{"guest/released-at-offline"}, nil},
		{"reboot with an area", func(bs []conformance.LoongArchBoot) { b := all(bs); b.Events = b.Events[:len(b.Events)-1] }, []string{"guest/released-at-reboot"}, nil},
		{"another time", func(bs []conformance.LoongArchBoot) {
			for _, when := range []string{"end"} {
				all(bs).Shown["stat "+when] = strings.Replace(all(bs).Shown["stat "+when], "7 13 0", "7 12 0", 1)
			}
		}, []string{"guest/steal-shown"}, nil},
		{"of another CPU", func(bs []conformance.LoongArchBoot) {
			s := all(bs).Shown["stat end"]
			s = strings.Replace(s, "cpu1 ", "cpu9 ", 1)
			s = strings.Replace(s, "cpu3 ", "cpu1 ", 1)
			lines := strings.Split(strings.Replace(s, "cpu9 ", "cpu3 ", 1), "\n")
			lines[2], lines[4] = lines[4], lines[2]
			all(bs).Shown["stat end"] = strings.Join(lines, "\n")
		}, []string{"guest/steal-shown"}, nil},
		{"a value of an odd version", func(bs []conformance.LoongArchBoot) {
			b := boot(bs, "STEAL_TIME and PREEMPT")
			b.Shown["stat odd 2"] = strings.Replace(b.Shown["stat odd 2"], "cpu1 1 2 3 4 5 6 7 13", "cpu1 1 2 3 4 5 6 7 360013", 1)
		}, []string{"guest/steal-waits-for-even-version"}, nil},
		{"nobody looked while version was odd", func(bs []conformance.LoongArchBoot) {
			last(all(bs), func(e refhv.Event) bool { return e.Text == "even true" }).Text = "even false"
		}, nil, []string{"guest/steal-waits-for-even-version"}},
		{"preempted is not obeyed", func(bs []conformance.LoongArchBoot) { all(bs).Shown["wakes flagged"] = "0 190 10 0" }, []string{"guest/preempted-obeyed"}, nil},
		{"preempted is always obeyed", func(bs []conformance.LoongArchBoot) { boot(bs, "STEAL_TIME").Shown["wakes flagged"] = "0 10 190 0" }, []string{"guest/preempted-ignored"}, nil},
		{"always on another CPU", func(bs []conformance.LoongArchBoot) {
			for _, when := range []string{"plain", "flagged", "cleared"} {
				all(bs).Shown["wakes "+when] = "0 0 200 0"
			}
		}, []string{"guest/preempted-obeyed"}, nil},
		{"asks again", func(bs []conformance.LoongArchBoot) {
			all(bs).Events = append(all(bs).Events, refhv.Event{Kind: "cpucfg", Number: 0x40000004})
		}, []string{"guest/asks-once"}, nil},
		{"another code", func(bs []conformance.LoongArchBoot) { call(all(bs), 0, 1) }, []string{"guest/no-other-calls"}, nil},
		{"the kick of 2024", func(bs []conformance.LoongArchBoot) { call(all(bs), 0x100, 3, 1) }, []string{"guest/no-other-calls"}, nil},
		{"a boot that failed", func(bs []conformance.LoongArchBoot) { boot(bs, "no hypervisor bit").Err = assert.AnError }, nil,
			[]string{"guest/needs-hypervisor-bit", "guest/ipi-if-offered", "guest/starts-cpus-natively", "guest/notify-if-offered",
				"guest/notify-arguments", "guest/notify-own-area", "guest/preempted-ignored", "guest/preempted-obeyed", "guest/no-other-calls"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			boots := loongSeen()
			test.change(boots)
			rules := judgeGuest(t, conformance.LinuxLoongArch("7.2.12+deb14-loong64", boots), test.fails, test.errs, deviates)
			assert.Equal(t, conformance.LinuxLoongArchRules(), rules)
		})
	}
}

func TestLinuxLoongArchOtherEnd(t *testing.T) {
	boots := loongSeen()
	boots[5].Other = "the guest did not end by kexec: no such call"
	require.NoError(t, conformance.LinuxLoongArch("7.2.12", boots).Run(t.Context(), func(r conformance.Result) {
		if r.Rule == "loongarch-kvm/guest/released-at-kexec" {
			assert.Equal(t, conformance.Unreached, r.Verdict)
			assert.Contains(t, r.Reason, "no such call")
		}
	}))
}

// judgeGuest runs the suite of a guest's side and returns its rules. Those that are named have to fail, to
// be in error or to deviate, the first list that has one first, and all others to pass.
func judgeGuest(t *testing.T, s *conformance.Suite, fails, errs, deviates []string) (rules []abi.Rule) {
	t.Helper()
	require.NoError(t, s.Run(t.Context(), func(r conformance.Result) {
		name := strings.TrimPrefix(r.Rule, s.ABI.Name+"/")
		rules = append(rules, s.ABI.Rule(name))
		want := conformance.Pass
		switch {
		case slices.Contains(fails, name):
			want = conformance.Fail
		case slices.Contains(errs, name):
			want = conformance.Error
		case slices.Contains(deviates, name):
			want = conformance.Deviates
		}
		assert.Equal(t, want, r.Verdict, "%s: want %q, got %q; %s", name, r.Expected, r.Observed, r.Reason)
	}))
	return rules
}

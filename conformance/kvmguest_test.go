package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
)

// kvmTape writes what is seen of a guest that keeps the ABI.
type kvmTape struct{ *conformance.KVMGuestBoot }

func (b kvmTape) offers(features ...string) bool {
	return !b.NoBit && !b.NoSignature && !slices.ContainsFunc(features, func(f string) bool { return !slices.Contains(b.Offered, f) })
}

func (b kvmTape) event(e conformance.KVMGuestEvent) { b.Seen = append(b.Seen, e) }

func (b kvmTape) mark(text string) {
	b.event(conformance.KVMGuestEvent{Kind: conformance.GuestMarks, Text: text})
}

func (b kvmTape) write(cpu int, register, value uint64) {
	b.event(conformance.KVMGuestEvent{Kind: conformance.GuestWrites, CPU: cpu, Number: register, Value: value})
}

func (b kvmTape) call(cpu int, number uint64, args ...uint64) {
	e := conformance.KVMGuestEvent{Kind: conformance.GuestCalls, CPU: cpu, Number: number}
	copy(e.Args[:], args)
	b.event(e)
}

// clock is the register of the clock that a guest uses, and the one of its wall clock.
func (b kvmTape) clock() (system, wall uint64) {
	switch {
	case b.offers("CLOCKSOURCE2"):
		return 0x4b564d01, 0x4b564d00
	case b.offers("CLOCKSOURCE"):
		return 0x12, 0x11
	}
	return 0, 0
}

// areas has a CPU register its areas, or disable them.
func (b kvmTape) areas(cpu int, on bool) {
	at := func(offset, bits uint64) uint64 {
		if !on {
			return 0
		}
		return 0x1000000 + uint64(cpu)<<14 + offset | bits
	}
	if b.offers("STEAL_TIME") {
		b.write(cpu, 0x4b564d03, at(0, 1))
	}
	if b.offers("PV_EOI") {
		b.write(cpu, 0x4b564d04, at(64, 1))
	}
	if b.offers("ASYNC_PF_INT") {
		bits := uint64(9)
		if b.offers("ASYNC_PF_VMEXIT") {
			bits = 0xd
		}
		if on {
			b.write(cpu, 0x4b564d06, 0xf3)
		}
		b.write(cpu, 0x4b564d02, at(128, bits))
	}
	if system, _ := b.clock(); system != 0 {
		b.write(cpu, system, at(256, 1))
	}
}

// kvmSeen is what is seen of a guest that keeps the ABI.
func kvmSeen() []conformance.KVMGuestBoot {
	boots := conformance.KVMGuestBoots()
	for i := range boots {
		b := kvmTape{&boots[i]}
		b.Memory, b.Shown = 256<<20, map[string]string{}
		b.Kernel, b.Values = map[string]string{}, map[string]uint64{}
		many, nopvspin := len(b.IDs) > 1, slices.Contains(b.Words, "nopvspin")
		quick := many && !b.Realtime && !b.MWAIT
		locks := b.offers("PV_UNHALT") && many && !b.Realtime && !nopvspin
		is := map[string]bool{
			"slow path": locks, "unlock": locks, "wait": locks, "kick": locks,
			"preempted": b.offers("STEAL_TIME"), "steal clock": b.offers("STEAL_TIME"),
			"flush":         b.offers("STEAL_TIME", "PV_TLB_FLUSH") && quick,
			"call function": b.offers("STEAL_TIME", "PV_SCHED_YIELD") && quick,
			"IPI":           b.offers("PV_SEND_IPI") && many, "end of interrupt": b.offers("PV_EOI"),
		}
		for _, p := range conformance.KVMGuestPlaces() {
			b.Kernel[p.Name] = ""
			if is[p.Name] {
				b.Kernel[p.Name] = p.Any[0]
			}
		}
		said := "PV spinlocks enabled"
		switch {
		case b.Realtime:
			said = "PV spinlocks disabled with KVM_HINTS_REALTIME hints"
		case !many:
			said = "PV spinlocks disabled, single CPU"
		case nopvspin:
			said = `PV spinlocks disabled, forced by "nopvspin" parameter`
		case !locks:
			said = "PV spinlocks disabled, no host support"
		}
		b.Shown["log"] = "[    0.1] kvm-guest: " + said
		b.Values["virt_spin_lock_key"] = map[bool]uint64{true: 1}[!b.NoBit && strings.HasSuffix(said, "no host support")]
		b.Values["kvm_async_pf_enabled"] = map[bool]uint64{true: 1}[b.offers("ASYNC_PF_INT")]
		b.Values["paravirt_steal_enabled"] = map[bool]uint64{true: 1}[b.offers("STEAL_TIME")]
		system, wall := b.clock()
		b.Values["valid_flags"] = map[bool]uint64{true: 1}[system != 0 && b.offers("CLOCKSOURCE_STABLE_BIT")]
		if wall != 0 {
			b.write(0, wall, 0x2000000)
		}
		for cpu := range b.IDs {
			b.areas(cpu, true)
		}
		if b.offers("PV_EOI") {
			b.event(conformance.KVMGuestEvent{Kind: conformance.GuestEnds, Number: 0xfb})
		}
		switch b.Scenario {
		case conformance.KVMGuestAreas:
			b.Shown["stat before"] = "cpu 0\n"
			b.Shown["stat after"] = "cpu 0\n"
			for cpu := range b.IDs {
				b.Shown["stat before"] += fmt.Sprintf("cpu%d 1 2 3 4 5 6 7 10 0 0\n", cpu)
				b.Shown["stat after"] += fmt.Sprintf("cpu%d 1 2 3 4 5 6 7 14 0 0\n", cpu)
				b.event(conformance.KVMGuestEvent{Kind: conformance.GuestStolen, CPU: cpu, Value: 145e6})
			}
			b.event(conformance.KVMGuestEvent{Kind: conformance.GuestFlushes, CPU: 3})
			b.mark("offline 2")
			b.areas(2, false)
			b.mark("offlined 2")
			b.areas(2, true)
			b.mark("onlined 2")
		case conformance.KVMGuestLocks:
			b.mark("counting")
			for range 3 {
				b.call(0, 5, 0, 7)
			}
			b.mark("counted")
			b.Shown["waits"], b.Shown["kicks"] = "1 0 5 0", "0 0 3 0"
			b.call(0, 10, 0b1, 0, 133, 0xfc)
			b.call(0, 10, 0b1, 0, 7, 0xfc)
			b.call(1, 10, 0b1, 1<<62, 7, 0xfc) // 7 and 133
			b.call(2, 10, 0b1, 0, 0, 0xfc)
			b.call(2, 10, 0b1, 0, 200, 0x400)
			b.write(3, 0x830, 3<<18|0xfc)
			b.call(3, 11, 133)
		}
		b.mark("ending")
		switch b.End {
		case "reboot", "kexec":
			for cpu := range b.IDs {
				b.areas(cpu, false)
			}
		case "crash":
			b.areas(0, false)
		}
		if b.End == "kexec" || b.End == "crash" {
			b.mark("next kernel")
		}
	}
	return boots
}

func TestLinuxKVM(t *testing.T) {
	deviates := []string{"guest/async-faults-needs-both"}
	boot := func(bs []conformance.KVMGuestBoot, name string) kvmTape {
		i := slices.IndexFunc(bs, func(b conformance.KVMGuestBoot) bool { return b.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		return kvmTape{&bs[i]}
	}
	find := func(b kvmTape, is func(conformance.KVMGuestEvent) bool) *conformance.KVMGuestEvent {
		for i := range b.Seen {
			if is(b.Seen[i]) {
				return &b.Seen[i]
			}
		}
		require.Fail(t, "no such event")
		return nil
	}
	drop := func(b kvmTape, after string, is func(conformance.KVMGuestEvent) bool) {
		on := after == ""
		b.Seen = slices.DeleteFunc(b.Seen, func(e conformance.KVMGuestEvent) bool {
			on = on || e.Text == after
			return on && is(e)
		})
	}
	writes := func(register uint64) func(conformance.KVMGuestEvent) bool {
		return func(e conformance.KVMGuestEvent) bool {
			return e.Kind == conformance.GuestWrites && e.Number == register
		}
	}
	calls := func(number uint64) func(conformance.KVMGuestEvent) bool {
		return func(e conformance.KVMGuestEvent) bool {
			return e.Kind == conformance.GuestCalls && e.Number == number
		}
	}
	const (
		dense, sparse        = "all", "all, ids out of order"
		steal, eoi, fault    = 0x4b564d03, 0x4b564d04, 0x4b564d02
		kick, sendIPI, yield = 5, 10, 11
	)
	for _, test := range []struct {
		name   string
		change func([]conformance.KVMGuestBoot)
		fails  []string
		errs   []string
	}{
		{"keeps all", func([]conformance.KVMGuestBoot) {}, nil, nil},
		{"no bit", func(bs []conformance.KVMGuestBoot) { boot(bs, "no hypervisor bit").write(0, steal, 1) }, []string{"guest/needs-hypervisor-bit"}, nil},
		{"no signature", func(bs []conformance.KVMGuestBoot) { boot(bs, "no signature").call(0, kick, 0, 1) }, []string{"guest/needs-signature"}, nil},
		{"first leaf only", func(bs []conformance.KVMGuestBoot) {
			boot(bs, "later leaf").Kernel["end of interrupt"] = ""
		}, []string{"guest/finds-later-leaf", "guest/eoi-if-offered"}, nil},
		{"native locks although offered", func(bs []conformance.KVMGuestBoot) { boot(bs, dense).Kernel["kick"] = "" }, []string{"guest/locks-if-offered"}, nil},
		{"locks although REALTIME", func(bs []conformance.KVMGuestBoot) { boot(bs, "all, REALTIME").Kernel["wait"] = "kvm_wait" }, []string{"guest/locks-native-otherwise"}, nil},
		{"kicks although not offered", func(bs []conformance.KVMGuestBoot) { boot(bs, "STEAL_TIME").call(0, kick, 0, 1) }, []string{"guest/locks-native-otherwise"}, nil},
		{"single CPU before the hint", func(bs []conformance.KVMGuestBoot) {
			boot(bs, "nothing, REALTIME, one CPU, nopvspin").Shown["log"] = "kvm-guest: PV spinlocks disabled, single CPU"
		}, []string{"guest/locks-why-not"}, nil},
		{"a queue without PV_UNHALT", func(bs []conformance.KVMGuestBoot) { boot(bs, "nothing").Values["virt_spin_lock_key"] = 0 }, []string{"guest/locks-test-and-set"}, nil},
		{"test and set although nopvspin", func(bs []conformance.KVMGuestBoot) {
			boot(bs, "no PV_UNHALT, nopvspin").Values["virt_spin_lock_key"] = 1
		}, []string{"guest/locks-queued"}, nil},
		{"test and set on bare hardware", func(bs []conformance.KVMGuestBoot) { boot(bs, "no hypervisor bit").Values["virt_spin_lock_key"] = 1 }, []string{"guest/locks-queued"}, nil},
		{"no flush", func(bs []conformance.KVMGuestBoot) { boot(bs, "STEAL_TIME and PV_TLB_FLUSH").Kernel["flush"] = "" }, []string{"guest/flush-if-offered"}, nil},
		{"flush although MWAIT", func(bs []conformance.KVMGuestBoot) {
			boot(bs, "all, MWAIT").Kernel["flush"] = "kvm_flush_tlb_multi"
		}, []string{"guest/flush-native-otherwise"}, nil},
		{"flushes without the feature", func(bs []conformance.KVMGuestBoot) {
			boot(bs, "STEAL_TIME").event(conformance.KVMGuestEvent{Kind: conformance.GuestFlushes})
		}, []string{"guest/flush-native-otherwise"}, nil},
		{"no yield", func(bs []conformance.KVMGuestBoot) {
			boot(bs, "STEAL_TIME and PV_SCHED_YIELD").Kernel["call function"] = ""
		}, []string{"guest/yield-if-offered"}, nil},
		{"yields without STEAL_TIME", func(bs []conformance.KVMGuestBoot) { boot(bs, "all but STEAL_TIME").call(0, yield, 1) }, []string{"guest/yield-never-otherwise"}, nil},
		{"one hook without steal time", func(bs []conformance.KVMGuestBoot) {
			boot(bs, "nothing").Kernel["preempted"] = "__raw_callee_save___kvm_vcpu_is_preempted"
		}, []string{"guest/steal-if-offered"}, nil},
		{"no IPI where MWAIT is", func(bs []conformance.KVMGuestBoot) { boot(bs, "all, MWAIT").Kernel["IPI"] = "" }, []string{"guest/ipi-if-offered"}, nil},
		{"IPI with one CPU", func(bs []conformance.KVMGuestBoot) { boot(bs, "all, one CPU").Kernel["IPI"] = "kvm_send_ipi_mask" }, []string{"guest/ipi-native-otherwise"}, nil},
		{"no word of interrupts", func(bs []conformance.KVMGuestBoot) { drop(boot(bs, "PV_EOI"), "", writes(eoi)) }, []string{"guest/eoi-if-offered"}, nil},
		{"ends interrupts at the APIC", func(bs []conformance.KVMGuestBoot) {
			drop(boot(bs, dense), "", func(e conformance.KVMGuestEvent) bool { return e.Kind == conformance.GuestEnds })
		}, []string{"guest/eoi-cleared"}, nil},
		{"steal time although not offered", func(bs []conformance.KVMGuestBoot) { boot(bs, "PV_EOI").write(0, steal, 0) }, []string{"guest/steal-if-offered", "guest/registers-known"}, nil},
		{"faults without the interrupt", func(bs []conformance.KVMGuestBoot) {
			boot(bs, "what needs another").write(0, fault, 0)
		}, []string{"guest/async-faults-by-interrupt"}, nil},
		{"the old clock", func(bs []conformance.KVMGuestBoot) {
			drop(boot(bs, dense), "", writes(0x4b564d00))
			boot(bs, dense).write(0, 0x11, 0x2000000)
		}, []string{"guest/clock-newer"}, nil},
		{"heeds what is not offered", func(bs []conformance.KVMGuestBoot) { boot(bs, "CLOCKSOURCE2").Values["valid_flags"] = 1 }, []string{"guest/clock-stable"}, nil},
		{"a reserved bit", func(bs []conformance.KVMGuestBoot) { find(boot(bs, "STEAL_TIME"), writes(steal)).Value |= 2 }, []string{"guest/registers-known"}, nil},
		{"an unknown register", func(bs []conformance.KVMGuestBoot) { boot(bs, dense).write(0, 0x4b564d20, 0) }, []string{"guest/registers-known"}, nil},
		{"an area outside memory", func(bs []conformance.KVMGuestBoot) { find(boot(bs, "STEAL_TIME"), writes(steal)).Value = 1<<30 | 1 }, []string{"guest/areas-in-memory"}, nil},
		{"an area of two CPUs", func(bs []conformance.KVMGuestBoot) {
			find(boot(bs, "PV_EOI"), func(e conformance.KVMGuestEvent) bool { return writes(eoi)(e) && e.CPU == 1 }).Value = 0x1000041
		}, []string{"guest/areas-own"}, nil},
		{"a CPU without an area", func(bs []conformance.KVMGuestBoot) {
			drop(boot(bs, "STEAL_TIME"), "", func(e conformance.KVMGuestEvent) bool { return writes(steal)(e) && e.CPU == 2 })
		}, []string{"guest/areas-of-each-cpu"}, nil},
		{"no vector", func(bs []conformance.KVMGuestBoot) { find(boot(bs, "later leaf"), writes(0x4b564d06)).Value = 3 }, []string{"guest/async-faults-vector-first"}, nil},
		{"always faults", func(bs []conformance.KVMGuestBoot) { find(boot(bs, "later leaf"), writes(fault)).Value |= 2 }, []string{"guest/async-faults-bits"}, nil},
		{"offline with an area", func(bs []conformance.KVMGuestBoot) {
			drop(boot(bs, dense), "offline 2", func(e conformance.KVMGuestEvent) bool { return writes(steal)(e) && e.Value == 0 && e.CPU == 2 })
		}, []string{"guest/releases-offline", "guest/releases-reboot"}, nil},
		{"online without an area", func(bs []conformance.KVMGuestBoot) {
			drop(boot(bs, dense), "offlined 2", func(e conformance.KVMGuestEvent) bool { return writes(eoi)(e) && e.Value != 0 })
		}, []string{"guest/releases-offline"}, nil},
		{"reboots with areas", func(bs []conformance.KVMGuestBoot) { drop(boot(bs, dense), "ending", writes(steal)) }, []string{"guest/releases-reboot"}, nil},
		{"kexec with an area", func(bs []conformance.KVMGuestBoot) { drop(boot(bs, sparse), "ending", writes(0x4b564d01)) }, []string{"guest/releases-kexec"}, nil},
		{"crashes with an area", func(bs []conformance.KVMGuestBoot) { drop(boot(bs, "all, crash"), "ending", writes(fault)) }, []string{"guest/releases-crash"}, nil},
		{"never kicks", func(bs []conformance.KVMGuestBoot) {
			drop(boot(bs, sparse), "", calls(kick))
			boot(bs, sparse).Shown["kicks"] = "0 0 0 0"
		}, []string{"guest/kicks-waiter"}, nil},
		{"kicks who does not wait", func(bs []conformance.KVMGuestBoot) { boot(bs, sparse).Shown["waits"] = "1 1 1 0" }, []string{"guest/kicks-once-for-a-wait"}, nil},
		{"kicks by the CPU's number", func(bs []conformance.KVMGuestBoot) { find(boot(bs, sparse), calls(kick)).Args[1] = 2 }, []string{"guest/kick-target", "guest/kicks-counted"}, nil},
		{"kicks that are not made", func(bs []conformance.KVMGuestBoot) { boot(bs, sparse).Shown["kicks"] = "0 0 4 0" }, []string{"guest/kicks-counted"}, nil},
		{"kicks that are not counted", func(bs []conformance.KVMGuestBoot) { boot(bs, sparse).Shown["kicks"] = "0 0 2 0" }, []string{"guest/kicks-counted"}, nil},
		{"lowest is no target", func(bs []conformance.KVMGuestBoot) {
			e := find(boot(bs, sparse), calls(sendIPI))
			e.Args[0], e.Args[2] = 2, e.Args[2]-1
		}, []string{"guest/ipi-lowest"}, nil},
		{"an id that nobody has", func(bs []conformance.KVMGuestBoot) { find(boot(bs, sparse), calls(sendIPI)).Args[1] = 1 }, []string{"guest/ipi-to-existing", "guest/ipi-clusters"}, nil},
		{"a CPU is left out", func(bs []conformance.KVMGuestBoot) {
			drop(boot(bs, sparse), "", func(e conformance.KVMGuestEvent) bool { return calls(sendIPI)(e) && e.Args[2] == 200 })
		}, []string{"guest/ipi-clusters"}, nil},
		{"a logical destination", func(bs []conformance.KVMGuestBoot) { find(boot(bs, sparse), calls(sendIPI)).Args[3] |= 1 << 11 }, []string{"guest/ipi-command"}, nil},
		{"an interrupt fails", func(bs []conformance.KVMGuestBoot) {
			boot(bs, dense).Console = "kvm-guest: failed to send PV IPI: -95"
		}, []string{"guest/ipi-succeeds"}, nil},
		{"yields to itself", func(bs []conformance.KVMGuestBoot) { find(boot(bs, sparse), calls(yield)).Args[0] = 200 }, []string{"guest/yield-target"}, nil},
		{"yields to anyone", func(bs []conformance.KVMGuestBoot) { drop(boot(bs, sparse), "", writes(0x830)) }, []string{"guest/yield-target"}, nil},
		{"more stolen than there is", func(bs []conformance.KVMGuestBoot) {
			find(boot(bs, dense), func(e conformance.KVMGuestEvent) bool { return e.Kind == conformance.GuestStolen }).Value = 139e6
		}, []string{"guest/steal-accounted"}, nil},
		{"nothing stolen", func(bs []conformance.KVMGuestBoot) {
			boot(bs, dense).Shown["stat after"] = boot(bs, dense).Shown["stat before"]
		}, []string{"guest/steal-accounted"}, nil},
		{"another call", func(bs []conformance.KVMGuestBoot) { boot(bs, dense).call(0, 12, 0) }, []string{"guest/no-other-calls"}, nil},
		{"a boot that failed", func(bs []conformance.KVMGuestBoot) { boot(bs, "no hypervisor bit").Err = "the guest has not ended" }, nil,
			[]string{
				"guest/needs-hypervisor-bit", "guest/needs-signature", "guest/finds-later-leaf", "guest/locks-if-offered", "guest/locks-native-otherwise",
				"guest/locks-why-not", "guest/locks-test-and-set", "guest/locks-queued",
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			boots := kvmSeen()
			test.change(boots)
			rules := judgeGuest(t, conformance.LinuxKVM("7.2.12+deb14-cloud-amd64", boots), test.fails, test.errs, deviates)
			assert.Equal(t, conformance.LinuxKVMRules(), rules)
		})
	}
	var owed []string
	for _, r := range abi.X86KVM().Rules {
		if r.Side == abi.Guest {
			owed = append(owed, r.ID)
		}
	}
	var looked []string
	for _, r := range conformance.LinuxKVMRules() {
		looked = append(looked, r.ID)
	}
	assert.ElementsMatch(t, owed, looked, "rules of the guest's side, and those that a check is for")
}

func TestLinuxKVMOtherwise(t *testing.T) {
	boots := kvmSeen()
	for i := range boots {
		if boots[i].Name == "all, crash" {
			boots[i].Other = "the guest did not end by crash: no memory for it"
		}
		if boots[i].Scenario == conformance.KVMGuestLocks {
			boots[i].Shown[conformance.KVMGuestNoProbes] = "no kprobes"
		}
	}
	unreached := map[string]string{}
	require.NoError(t, conformance.LinuxKVM("7.2.12", boots).Run(t.Context(), func(r conformance.Result) {
		if r.Verdict == conformance.Unreached {
			unreached[strings.TrimPrefix(r.Rule, "x86-kvm/guest/")] = r.Reason
		}
	}))
	assert.Equal(t, map[string]string{
		"releases-crash": "the guest did not end by crash: no memory for it",
		"kicks-waiter":   "no kprobes", "kicks-once-for-a-wait": "no kprobes", "kick-target": "no kprobes", "kicks-counted": "no kprobes",
	}, unreached)
}

// TestLinuxKVMNumbers holds what is seen of a guest against tables with one number of its rules changed.
func TestLinuxKVMNumbers(t *testing.T) {
	for _, n := range abi.X86KVM().Numbers() {
		parts := strings.Split(n.Path, "/")
		if parts[0] != "rules" || parts[2] != "guest" {
			continue
		}
		noticed := false
		for _, by := range []int64{1, -1} {
			s := conformance.LinuxKVM("7.2.12", kvmSeen())
			s.Deviations = nil
			require.NoError(t, s.ABI.Set(n.Path, n.Value+by))
			s.Only = func(rule string) bool { return rule == "guest/"+parts[3] }
			require.NoError(t, s.Run(t.Context(), func(r conformance.Result) {
				noticed = noticed || r.Verdict == conformance.Fail
			}))
		}
		assert.True(t, noticed, "no rule notices that %s is not %d", n.Path, n.Value)
	}
}

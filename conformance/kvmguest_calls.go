package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// counts reads what a guest showed as a line of numbers, one for each CPU; none if it showed nothing.
func (b *KVMGuestBoot) counts(t *T, name string) (out []int64) {
	for word := range strings.FieldsSeq(b.Shown[name]) {
		n, err := strconv.ParseInt(word, 10, 64)
		t.Check(fmt.Sprintf("boot %q: what the guest showed as %q", b.Name, name), err)
		out = append(out, n)
	}
	return out
}

// contention: what CPUs do that wait for a spinlock, and the one that gives it up.
func (bs kvmBoots) contention() Check {
	const (
		waiter  = "guest/kicks-waiter"
		once    = "guest/kicks-once-for-a-wait"
		target  = "guest/kick-target"
		counted = "guest/kicks-counted"
	)
	rules := []string{waiter, once, target, counted}
	return Check{Rules: rules, Run: func(t *T) {
		b := bs.get(t, kvmSparse)
		if why, ok := b.Shown[KVMGuestNoProbes]; ok {
			t.GiveUp(why)
		}
		waits, kicks := b.counts(t, KVMGuestWaits), b.counts(t, KVMGuestKicks)
		t.Control("CPUs that the guest tells of", [2]int{len(b.IDs), len(b.IDs)}, [2]int{len(waits), len(kicks)})
		calls := b.called(t, "KICK_CPU")
		t.Equal(waiter, "waits", t.Want(waiter, "waits"), bit(sumOf(waits) > 0))
		t.Equal(waiter, "kicks", t.Want(waiter, "kicks"), bit(len(calls) > 0))
		t.Evidence(waiter, "waits and kicks by CPU", [][]int64{waits, kicks})

		others := int64(0)
		called, between := make([]int64, len(b.IDs)), make([]int64, len(b.IDs))
		counting := false
		for _, e := range b.Seen {
			switch {
			case e.Kind == GuestMarks:
				counting = e.Text == KVMGuestCounting || counting && e.Text != KVMGuestCounted
			case e.Kind == GuestCalls && e.Number == t.ABI.Call("KICK_CPU").Number:
				cpu := slices.IndexFunc(b.IDs, func(id uint32) bool { return uint64(id) == e.Args[1] })
				if cpu < 0 || cpu == e.CPU || e.Args[0] != 0 {
					others++
					t.Evidence(target, fmt.Sprintf("call of CPU %d", e.CPU), fmt.Sprintf("flags %#x, target %#x", e.Args[0], e.Args[1]))
					continue
				}
				called[cpu]++
				between[cpu] += bit(counting)
			}
		}
		t.Equal(target, "calls with another target", t.Want(target, "others"), others)
		excess, differences := int64(0), int64(0)
		for cpu := range b.IDs {
			// One may have waited before the guest began to count. It counted a little longer than
			// from mark to mark.
			excess += max(0, kicks[cpu]-waits[cpu]-1)
			differences += max(0, between[cpu]-kicks[cpu]) + max(0, kicks[cpu]-called[cpu])
		}
		t.Equal(once, "kicks without a wait", t.Want(once, "excess"), excess)
		t.Equal(counted, "kicks that KVM was not called for, and calls that were no kicks", t.Want(counted, "differences"), differences)
		t.Evidence(counted, "calls by target, in all and while the guest counted", [][]int64{called, between})
	}}
}

func sumOf(ns []int64) (sum int64) {
	for _, n := range ns {
		sum += n
	}
	return sum
}

// Of the interrupt command, the low half of the APIC's register (Intel SDM volume 3, "Interrupt
// Command Register").
const (
	icrVector    = 0xff
	icrMode      = 7 << 8
	icrFixed     = 0
	icrNMI       = 4 << 8
	icrLogical   = 1 << 11
	icrShorthand = 3 << 18
)

// ipiTargets are the ids that a SEND_IPI is for.
func ipiTargets(e KVMGuestEvent) (ids []uint64) {
	for n := range uint64(128) {
		if e.Args[n/64]>>(n%64)&1 != 0 {
			ids = append(ids, e.Args[2]+n)
		}
	}
	return ids
}

// ipis: what the arguments of SEND_IPI are.
func (bs kvmBoots) ipis() Check {
	const (
		lowest   = "guest/ipi-lowest"
		existing = "guest/ipi-to-existing"
		clusters = "guest/ipi-clusters"
		command  = "guest/ipi-command"
		succeeds = "guest/ipi-succeeds"
	)
	return Check{Rules: []string{lowest, existing, clusters, command, succeeds}, Run: func(t *T) {
		for _, b := range bs.that(t, func(b *KVMGuestBoot) bool { return b.offers("PV_SEND_IPI") && b.many() }) {
			clear, others, odd := int64(0), int64(0), int64(0)
			targets, several := map[uint64]int{}, 0
			for _, e := range b.called(t, "SEND_IPI") {
				clear += bit(e.Args[0]&1 == 0)
				ids := ipiTargets(e)
				several += int(bit(len(ids) > 1))
				for _, id := range ids {
					targets[id]++
					others += bit(!slices.ContainsFunc(b.IDs, func(x uint32) bool { return uint64(x) == id }))
				}
				icr := e.Args[3]
				mode, vector := icr&icrMode, icr&icrVector
				if icr>>32 != 0 || icr&(icrLogical|icrShorthand) != 0 || mode != icrNMI && (mode != icrFixed || vector < 32) {
					odd++
					t.Evidence(command, b.Name, fmt.Sprintf("%#x", icr))
				}
			}
			t.Equal(lowest, b.Name+": calls whose lowest is no target", t.Want(lowest, "clear"), clear)
			t.Equal(existing, b.Name+": targets that do not exist", t.Want(existing, "others"), others)
			t.Equal(command, b.Name+": other commands", t.Want(command, "others"), odd)
			t.Equal(succeeds, b.Name+": warnings", t.Want(succeeds, "failures"), int64(strings.Count(b.Shown[KVMGuestLog]+b.Console, "failed to send PV IPI")))
			t.Evidence(existing, b.Name+": interrupts by id", targets)
			if b.Scenario == KVMGuestLocks {
				t.Control(b.Name+": calls for several CPUs", true, several > 0)
				t.Equal(clusters, b.Name+": CPUs that were never a target", t.Want(clusters, "missed"), int64(len(b.IDs)-len(targets)))
			}
		}
	}}
}

// sentTo tells which ids an interrupt that a CPU sends, natively or by a call, is for; ok is false of
// what is none.
func (b *KVMGuestBoot) sentTo(t *T, e KVMGuestEvent) (ids []uint64, ok bool) {
	switch {
	case e.Kind == GuestCalls && e.Number == t.ABI.Call("SEND_IPI").Number:
		return ipiTargets(e), true
	case e.Kind != GuestWrites || e.Number != InterruptCommand:
		return nil, false
	case e.Value&icrShorthand == 0:
		return []uint64{e.Value >> 32}, true
	}
	for _, id := range b.IDs { // all, or all others
		ids = append(ids, uint64(id))
	}
	return ids, true
}

// yields: to whom a CPU yields.
func (bs kvmBoots) yields() Check {
	const rule = "guest/yield-target"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		all, others := int64(0), int64(0)
		for _, b := range bs.that(t, func(b *KVMGuestBoot) bool { return b.offers("PV_SCHED_YIELD", "STEAL_TIME") && b.many() }) {
			// Since the CPU last yielded: one interrupt for several CPUs may take several calls.
			sent := map[int]map[uint64]bool{}
			for _, e := range b.Seen {
				if ids, ok := b.sentTo(t, e); ok {
					if sent[e.CPU] == nil {
						sent[e.CPU] = map[uint64]bool{}
					}
					for _, id := range ids {
						sent[e.CPU][id] = true
					}
				}
				if e.Kind == GuestCalls && e.Number == t.ABI.Call("SCHED_YIELD").Number {
					all++
					if !sent[e.CPU][e.Args[0]] || e.Args[0] == uint64(b.IDs[e.CPU]) {
						others++
						t.Evidence(rule, fmt.Sprintf("%s: call of CPU %d", b.Name, e.CPU), e.Args[0])
					}
					delete(sent, e.CPU)
				}
			}
		}
		t.Control("CPUs yielded", true, all > 0)
		t.Equal(rule, "yields to others", t.Want(rule, "others"), others)
		t.Evidence(rule, "yields", all)
	}}
}

// stolen: what a guest shows as stolen.
func (bs kvmBoots) stolen() Check {
	const rule = "guest/steal-accounted"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		b := bs.get(t, kvmDense)
		before, now := parseSteal(b.Shown[KVMGuestStat+" before"]), parseSteal(b.Shown[KVMGuestStat+" after"])
		t.Control("CPUs that the guest shows steal time of", [2]int{len(b.IDs), len(b.IDs)}, [2]int{len(before), len(now)})
		area := map[int]uint64{}
		for _, e := range b.Seen {
			if e.Kind == GuestStolen {
				area[e.CPU] = e.Value
			}
		}
		more, grown := int64(0), 0
		for cpu := range b.IDs {
			// A tick is shown when it is whole, and the area was read after it.
			more += bit(now[cpu]*nanosecondsPerTick > area[cpu])
			grown += int(bit(now[cpu] > before[cpu]))
		}
		t.Equal(rule, "CPUs of which more is shown than their areas have", t.Want(rule, "more"), more)
		t.Equal(rule, "it grows", t.Want(rule, "grows"), bit(grown > 0))
		t.Evidence(rule, "ticks before and after, and nanoseconds in the areas", []any{before, now, area})
	}}
}

// calls: there are no other calls.
func (bs kvmBoots) calls() Check {
	const rule = "guest/no-other-calls"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		all := 0
		for _, b := range bs.that(t, (*KVMGuestBoot).found) {
			others := b.kinds(GuestCalls)
			for _, name := range []string{"KICK_CPU", "SEND_IPI", "SCHED_YIELD", "VAPIC_POLL_IRQ", "CLOCK_PAIRING"} {
				n := len(b.called(t, name))
				all += n
				others -= int64(n)
			}
			t.Equal(rule, b.Name+": calls", t.Want(rule, "others"), others)
		}
		t.Control("there were calls", true, all > 0)
	}}
}

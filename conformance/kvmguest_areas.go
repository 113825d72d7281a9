package conformance

import (
	"fmt"
	"slices"
	"strings"

	"pvabi/abi"
)

// kvmAreas are the registers that hold the address of an area, and the areas' layouts.
var kvmAreas = []struct{ register, layout string }{
	{"STEAL_TIME", "kvm_steal_time"},
	{"PV_EOI_EN", "pv_eoi"},
	{"ASYNC_PF_EN", "kvm_vcpu_pv_apf_data"},
	{"SYSTEM_TIME", "pvclock_vcpu_time_info"},
	{"SYSTEM_TIME_NEW", "pvclock_vcpu_time_info"},
}

// kvmArea is an area that a CPU has registered.
type kvmArea struct {
	cpu           int
	register      string
	address, size uint64
}

func (a kvmArea) String() string { return fmt.Sprintf("%s of CPU %d", a.register, a.cpu) }

// kvmRegistered follows what is registered.
type kvmRegistered struct {
	table *abi.Platform
	areas []kvmArea
}

// take takes an event in, and returns the area that it registers, if it does.
func (r *kvmRegistered) take(e KVMGuestEvent) (area kvmArea, ok bool) {
	if e.Kind != GuestWrites {
		return area, false
	}
	i := slices.IndexFunc(kvmAreas, func(a struct{ register, layout string }) bool { return r.table.Register(a.register).Number == e.Number })
	if i < 0 {
		return area, false
	}
	register, layout := r.table.Register(kvmAreas[i].register), r.table.Layout(kvmAreas[i].layout)
	r.areas = slices.DeleteFunc(r.areas, func(a kvmArea) bool { return a.cpu == e.CPU && a.register == register.Name })
	if e.Value&register.Enable == 0 {
		return area, false
	}
	area = kvmArea{e.CPU, register.Name, e.Value &^ (layout.Align - 1), layout.Size}
	r.areas = append(r.areas, area)
	return area, true
}

// of returns the areas of a CPU.
func (r *kvmRegistered) of(cpu int) []kvmArea {
	return slices.DeleteFunc(slices.Clone(r.areas), func(a kvmArea) bool { return a.cpu != cpu })
}

// registered follows a boot up to a mark, which must be there, and returns what is registered then.
func (b *KVMGuestBoot) registered(t *T, mark string) *kvmRegistered {
	r := &kvmRegistered{table: t.ABI}
	for _, e := range b.Seen {
		if e.Kind == GuestMarks && e.Text == mark {
			return r
		}
		r.take(e)
	}
	t.Control(fmt.Sprintf("%s: the guest came to %q", b.Name, mark), true, false)
	return r
}

// registers: what is written to which register.
func (bs kvmBoots) registers() Check {
	const rule = "guest/registers-known"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		first, last := t.ABI.Word("first-register"), t.ABI.Word("last-register")
		all := int64(0)
		// What ASYNC_PF_INT alone makes a guest do is another rule's.
		for _, b := range bs.that(t, func(b *KVMGuestBoot) bool { return b.found() && b.Name != kvmIntAlone }) {
			reserved, unoffered := int64(0), int64(0)
			for _, e := range b.Seen {
				if e.Kind != GuestWrites {
					continue
				}
				i := slices.IndexFunc(t.ABI.Registers, func(r abi.Register) bool { return r.Number == e.Number })
				if i < 0 {
					unoffered += bit(e.Number >= first && e.Number <= last)
					continue
				}
				all++
				r := t.ABI.Registers[i]
				if e.Value&r.Reserved != 0 {
					reserved++
					t.Evidence(rule, b.Name+": reserved bits in "+r.Name, fmt.Sprintf("%#x", e.Value))
				}
				if !b.offers(r.Feature) {
					unoffered++
					t.Evidence(rule, b.Name+": "+r.Name, fmt.Sprintf("%#x", e.Value))
				}
			}
			t.Equal(rule, b.Name+": writes with reserved bits", t.Want(rule, "reserved"), reserved)
			t.Equal(rule, b.Name+": writes to registers that are not offered", t.Want(rule, "unoffered"), unoffered)
		}
		t.Control("there were writes", true, all > 0)
	}}
}

// areas: where the areas are.
func (bs kvmBoots) areas() Check {
	const (
		memory = "guest/areas-in-memory"
		own    = "guest/areas-own"
		each   = "guest/areas-of-each-cpu"
	)
	const page = 4096
	return Check{Rules: []string{memory, own, each}, Run: func(t *T) {
		all := 0
		for _, b := range bs.that(t, (*KVMGuestBoot).found) {
			r := kvmRegistered{table: t.ABI}
			outside, shared := int64(0), int64(0)
			users := map[string]map[int]bool{}
			for _, e := range b.Seen {
				a, ok := r.take(e)
				if !ok {
					continue
				}
				all++
				if users[a.register] == nil {
					users[a.register] = map[int]bool{}
				}
				users[a.register][a.cpu] = true
				if a.address+a.size > b.Memory || a.address/page != (a.address+a.size-1)/page {
					outside++
					t.Evidence(memory, b.Name+": "+a.String(), fmt.Sprintf("%#x", a.address))
				}
				for _, o := range r.areas {
					if o != a && o.address < a.address+a.size && a.address < o.address+o.size {
						shared++
						t.Evidence(own, b.Name+": "+a.String(), fmt.Sprintf("%#x, where %s is", a.address, o))
					}
				}
			}
			t.Equal(memory, b.Name+": areas", t.Want(memory, "outside"), outside)
			t.Equal(own, b.Name+": areas", t.Want(own, "shared"), shared)
			missing := int64(0)
			for _, cpus := range users {
				missing += int64(len(b.IDs) - len(cpus))
			}
			t.Equal(each, b.Name+": areas that CPUs have not", t.Want(each, "missing"), missing)
		}
		t.Control("there were areas", true, all > 0)
	}}
}

// faults: how asynchronous page faults are enabled.
func (bs kvmBoots) faults() Check {
	const (
		vector = "guest/async-faults-vector-first"
		bits   = "guest/async-faults-bits"
	)
	return Check{Rules: []string{vector, bits}, Run: func(t *T) {
		enable, number := t.ABI.Register("ASYNC_PF_EN"), t.ABI.Register("ASYNC_PF_INT").Number
		byInt := enable.Bit("DELIVERY_AS_INT")
		const exceptions = 32 // vectors below are the processor's own
		enabled := 0
		for _, b := range bs.that(t, func(b *KVMGuestBoot) bool { return b.offers("ASYNC_PF", "ASYNC_PF_INT") }) {
			want := enable.Enable | byInt
			if b.offers("ASYNC_PF_VMEXIT") {
				want |= enable.Bit("DELIVERY_AS_PF_VMEXIT")
			}
			known := map[int]bool{}
			before, others := int64(0), int64(0)
			for _, e := range b.Seen {
				switch {
				case e.Kind != GuestWrites:
				case e.Number == number:
					known[e.CPU] = e.Value >= exceptions
				case e.Number == enable.Number && e.Value&enable.Enable != 0:
					enabled++
					before += bit(e.Value&byInt != 0 && !known[e.CPU])
					if e.Value&(t.ABI.Layout("kvm_vcpu_pv_apf_data").Align-1) != want {
						others++
						t.Evidence(bits, b.Name, fmt.Sprintf("%#x", e.Value))
					}
				}
			}
			t.Equal(vector, b.Name+": CPUs without a vector", t.Want(vector, "before"), before)
			t.Equal(bits, b.Name+": values with other bits", t.Want(bits, "others"), others)
		}
		t.Control("there were such writes", true, enabled > 0)
	}}
}

// offline: what becomes of the areas of a CPU that goes and comes.
func (bs kvmBoots) offline() Check {
	const rule = "guest/releases-offline"
	return Check{Rules: []string{rule}, Run: func(t *T) {
		b := bs.get(t, kvmDense)
		const cpu = 2
		at := func(mark string) []kvmArea { return b.registered(t, fmt.Sprint(mark, " ", cpu)).of(cpu) }
		before, without, after := at(KVMGuestOffline), at(KVMGuestOfflined), at(KVMGuestOnlined)
		t.Control("areas of the CPU before", kvmKinds, len(before))
		t.Equal(rule, "areas of the CPU that is offline", t.Want(rule, "left"), int64(len(without)))
		t.Equal(rule, "areas that it has not any more when it is online again", t.Want(rule, "missing"), int64(len(before)-len(after)))
		all := b.registered(t, fmt.Sprint(KVMGuestOfflined, " ", cpu)).areas
		t.Control("areas of the others meanwhile", kvmKinds*(len(b.IDs)-1), len(all)-len(without))
	}}
}

// kvmKinds is how many areas each CPU has of a guest to which all is offered: of the clock, of steal
// time, for ends of interrupts and for page faults.
const kvmKinds = 4

// ends: what is left registered when a guest ends.
func (bs kvmBoots) ends() Check {
	const (
		reboot = "guest/releases-reboot"
		kexec  = "guest/releases-kexec"
		crash  = "guest/releases-crash"
	)
	return Check{Rules: []string{reboot, kexec, crash}, Run: func(t *T) {
		left := func(rule string, b *KVMGuestBoot, areas []kvmArea) {
			var names []string
			for _, a := range areas {
				names = append(names, a.String())
			}
			t.Equal(rule, b.Name+": areas", t.Want(rule, "left"), int64(len(areas)))
			t.Evidence(rule, b.Name+": left", strings.Join(names, ", "))
		}
		ended := func(rule, name string) (b *KVMGuestBoot, ok bool) {
			b = bs.get(t, name)
			if b.Other != "" {
				t.Unreached(rule, b.Other)
				return b, false
			}
			t.Control(name+": areas before", true, len(b.registered(t, KVMGuestEnding).areas) > len(b.IDs))
			return b, true
		}
		if b, ok := ended(reboot, kvmDense); ok {
			r := kvmRegistered{table: t.ABI}
			for _, e := range b.Seen {
				r.take(e)
			}
			left(reboot, b, r.areas)
		}
		if b, ok := ended(kexec, kvmSparse); ok {
			left(kexec, b, b.registered(t, KVMGuestNext).areas)
		}
		if b, ok := ended(crash, kvmCrash); ok {
			r := b.registered(t, KVMGuestNext)
			last := b.Seen[slices.IndexFunc(b.Seen, func(e KVMGuestEvent) bool { return e.Text == KVMGuestNext })].CPU
			left(crash, b, r.of(last))
			t.Evidence(crash, "areas of the other CPUs, which are stopped", len(r.areas)-len(r.of(last)))
		}
	}}
}

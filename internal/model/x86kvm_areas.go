package model

import (
	"errors"
	"slices"

	"pvabi/abi"
	"pvabi/conformance/microvm"
)

// What KVM writes into a guest's memory besides steal time: clocks, the end-of-interrupt word,
// and what there is to know of asynchronous page faults. And INIT, which ends all of it.

// x86Clock is what KVM keeps for a CPU's clock: whether the area is due to be written, and
// whether it has to tell that the guest was stopped.
type x86Clock struct{ due, stopped bool }

// x86EOI is KVM_APIC_PV_EOI_PENDING, and apic->highest_isr_cache, 0 where that is -1.
type x86EOI struct {
	pending bool
	cache   int
}

// x86Faults is vcpu->arch.apf and vcpu->async_pf.
type x86Faults struct {
	next  uint32
	waits bool     // the CPU waits for a page
	page  uint64   // which
	out   []x86Out // faults that were told of and whose page is not there yet
	done  []uint32 // tokens of pages that are there, to be told of
	check bool     // KVM_REQ_APF_READY
}

type x86Out struct {
	page  uint64
	token uint32
}

// The host's time of day is epoch and three nanoseconds for each tick of the clock, by
// multiplier and shift.
const (
	second        = 1_000_000_000
	x86Epoch      = 1_700_000_000_123_456_789
	x86Multiplier = 3 << 30
	x86Shift      = 2
)

func (x *x86KVM) systemTime() uint64 { return x.m.clock * 3 }

func (x *x86KVM) timeOfDay() uint64 { return x86Epoch + x.systemTime() }

// area is the area at an address, false if that is not in memory. The host reaches for size bytes
// of it.
func (x *x86KVM) area(layout string, address, size uint64) (x86Area, bool) {
	return x86Area{x.m, x.layout(layout), address}, x.m.mapped(address, size)
}

// layout is a layout of the table, looked up once, as it is needed at every step.
func (x *x86KVM) layout(name string) abi.Layout {
	l, ok := x.layouts[name]
	if !ok {
		l = x.abi.Layout(name)
		x.layouts[name] = l
	}
	return l
}

// serve does what was requested of the CPU: vcpu_enter_guest of x86.c.
func (x *x86KVM) serve(c *cpu) {
	s := x.state(c)
	if s.clock.due {
		s.clock.due = false
		x.updateClock(c)
	}
	if s.faults.check {
		// kvm_check_async_pf_completion
		s.faults.check = false
		for len(s.faults.done) > 0 && x.canDequeue(c) {
			token := s.faults.done[0]
			s.faults.done = s.faults.done[1:]
			x.present(c, token)
		}
	}
}

// Clocks.

// guestTimeUpdate is kvm_guest_time_update of x86.c, and kvm_setup_guest_pvclock.
func (x *x86KVM) guestTimeUpdate(c *cpu) {
	s := x.state(c)
	a, ok := x.clockArea(c)
	if !ok {
		return
	}
	l := a.layout
	version := (a.get("version") + 1) | 1
	a.set("version", version)
	flags := a.get("flags") & l.Bit("flags", "GUEST_STOPPED")
	if !x.otherClock {
		flags |= l.Bit("flags", "TSC_STABLE")
	}
	if s.clock.stopped {
		s.clock.stopped = false
		flags |= l.Bit("flags", "GUEST_STOPPED")
	}
	tsc, time := x.m.clock, x.systemTime()
	c.pause()
	for _, f := range []struct {
		name  string
		value uint64
	}{
		{"pad0", 0}, {"tsc_timestamp", tsc}, {"system_time", time},
		{"tsc_to_system_mul", x86Multiplier}, {"tsc_shift", x86Shift}, {"flags", flags}, {"pad", 0},
	} {
		a.set(f.name, f.value)
	}
	c.pause()
	a.set("version", version+1)
}

// clockArea is the area of the CPU's clock, false if it has none.
func (x *x86KVM) clockArea(c *cpu) (x86Area, bool) {
	msr, enable := x.state(c).msr["SYSTEM_TIME_NEW"], x.abi.Register("SYSTEM_TIME_NEW").Enable
	if msr&enable == 0 {
		return x86Area{}, false
	}
	return x.area("pvclock_vcpu_time_info", msr&^enable, x.layout("pvclock_vcpu_time_info").Size)
}

// markStopped is kvm_set_guest_paused of x86.c.
func (x *x86KVM) markStopped(c *cpu) error {
	s := x.state(c)
	if s.msr["SYSTEM_TIME_NEW"]&x.abi.Register("SYSTEM_TIME_NEW").Enable == 0 {
		return errors.New("model: the CPU has no clock")
	}
	s.clock.due, s.clock.stopped = true, true
	return nil
}

// resetClock is kvm_vm_ioctl_set_clock of x86.c, without a change: the clocks of all CPUs are due.
func (x *x86KVM) resetClock() {
	for i := range x.cpus {
		x.cpus[i].clock.due = true
	}
}

// writeWallClock is kvm_write_wall_clock of x86.c.
func (x *x86KVM) writeWallClock(address uint64) {
	a, ok := x.area("pvclock_wall_clock", address, x.abi.Layout("pvclock_wall_clock").Size)
	if address == 0 || !ok {
		return
	}
	version := a.get("version")
	version += version&1 + 1
	a.set("version", version)
	a.set("sec", x86Epoch/second)
	a.set("nsec", x86Epoch%second)
	a.set("version", version+1)
}

// INIT.

// vcpuReset is kvm_vcpu_reset of x86.c for an INIT.
func (x *x86KVM) vcpuReset(c *cpu) {
	c.park()
	s := x.state(c)
	s.irr, s.isr, s.nmi, s.apicOff = [4]uint64{}, [4]uint64{}, false, false
	for _, r := range x.abi.Registers {
		if !r.Kept {
			s.msr[r.Name] = r.Reset
		}
	}
	s.eoi, s.faults = x86EOI{}, x86Faults{next: s.faults.next}
}

// The end-of-interrupt word.

// eoiArea is the CPU's word, false if it has none. The host reaches for its first byte.
func (x *x86KVM) eoiArea(c *cpu) (x86Area, bool) {
	msr, enable := x.state(c).msr["PV_EOI_EN"], x.abi.Register("PV_EOI_EN").Enable
	if msr&enable == 0 {
		return x86Area{}, false
	}
	return x.area("pv_eoi", msr&^enable, 1)
}

// syncEOIFromGuest is kvm_lapic_sync_from_vapic of lapic.c.
func (x *x86KVM) syncEOIFromGuest(c *cpu) {
	s := x.state(c)
	if !s.eoi.pending {
		return
	}
	s.eoi.pending = false
	a, ok := x.eoiArea(c)
	if !ok {
		return
	}
	word := a.get("word")
	if x.eoiEnded(c, word) {
		x.endOfIRQ(c)
		return
	}
	a.set("word", 0)
}

func eoiWordClear(_ *cpu, word uint64) bool { return word&1 == 0 }

// setEOI is apic_set_eoi of lapic.c.
func (x *x86KVM) setEOI(c *cpu) {
	s := x.state(c)
	if v := highest(s.isr); v >= 0 {
		s.isr[v/64] &^= 1 << (v % 64)
	}
	s.eoi.cache = 0
}

// exitEOI is what a write of the APIC's register EOI does.
func (x *x86KVM) exitEOI(c *cpu) {
	x.syncEOIFromGuest(c)
	x.setEOI(c)
}

// syncEOIToGuest is apic_sync_pv_eoi_to_guest of lapic.c.
func (x *x86KVM) syncEOIToGuest(c *cpu) {
	s := x.state(c)
	if s.eoi.cache == 0 || highest(s.irr) >= 0 {
		return
	}
	a, ok := x.eoiArea(c)
	if !ok {
		return
	}
	a.set("word", a.layout.Bit("word", "ENABLED"))
	s.eoi.pending = true
}

// Asynchronous page faults.

// faultArea is where the CPU is told of its faults, false if it is not.
func (x *x86KVM) faultArea(c *cpu) (x86Area, bool) {
	msr, r := x.state(c).msr["ASYNC_PF_EN"], x.abi.Register("ASYNC_PF_EN")
	on := r.Enable | r.Bit("DELIVERY_AS_INT")
	if msr&on != on {
		return x86Area{}, false
	}
	l := x.layout("kvm_vcpu_pv_apf_data")
	return x.area(l.Name, msr&^(l.Align-1), 8)
}

// missing is kvm_arch_setup_async_pf and what it comes to: kvm_arch_async_page_not_present of
// x86.c.
func (x *x86KVM) missing(c *cpu, page uint64) (trap, uint64) {
	s := x.state(c)
	*x.m.withheld[page] = true
	x.absent(c)
	if x.interruptible(c) && x.m.config.IRQChip != microvm.None && x.canDeliver(c) {
		s.faults.next++
		token := s.faults.next<<12 | uint32(c.id)
		s.faults.out = append(s.faults.out, x86Out{page, token})
		return x.notPresent(c, token), uint64(token)
	}
	s.faults.waits, s.faults.page = true, page
	c.block()
	s.faults.waits = false
	return trap{}, 0
}

// canDeliverFault is kvm_can_deliver_async_pf of x86.c.
func (x *x86KVM) canDeliverFault(c *cpu) bool {
	_, on := x.faultArea(c)
	return on && (c.user || x.state(c).msr["ASYNC_PF_EN"]&x.abi.Register("ASYNC_PF_EN").Bit("SEND_ALWAYS") != 0)
}

// pageNotPresent tells the guest that a page is not there.
func (x *x86KVM) pageNotPresent(c *cpu, _ uint32) trap {
	a, _ := x.faultArea(c)
	a.set("flags", a.layout.Bit("flags", "PAGE_NOT_PRESENT"))
	return x.access()
}

func (x *x86KVM) supplied(page uint64) {
	for i := range x.cpus {
		f := &x.cpus[i].faults
		f.out = slices.DeleteFunc(f.out, func(o x86Out) bool {
			if o.page == page {
				f.done, f.check = append(f.done, o.token), true
			}
			return o.page == page
		})
	}
}

// canDequeuePresent is kvm_arch_can_dequeue_async_page_present of x86.c.
func (x *x86KVM) canDequeuePresent(c *cpu) bool {
	a, on := x.faultArea(c)
	return !on || !x.state(c).apicOff && a.get("token") == 0
}

// pagePresent is kvm_arch_async_page_present of x86.c.
func (x *x86KVM) pagePresent(c *cpu, token uint32) {
	if a, on := x.faultArea(c); on {
		a.set("token", uint64(token))
		x.accept(c, dmFixed, x.state(c).msr["ASYNC_PF_INT"]&0xff)
	}
	x.runnable(c)
}

// wakeupAll is kvm_async_pf_wakeup_all of virt/kvm/async_pf.c.
func (x *x86KVM) wakeupAll(c *cpu) {
	s := x.state(c)
	if len(s.faults.done) == 0 {
		s.faults.done = append(s.faults.done, 1<<32-1)
	}
	s.faults.check = true
}

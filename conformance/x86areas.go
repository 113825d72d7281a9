package conformance

import (
	"fmt"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// The areas that a guest of KVM registers, each by a register: one engine shows of all of them
// when the hypervisor writes there, and that it writes nowhere else.

// plot is a page of memory, all fill, that has an area in it.
type plot struct {
	page   arch.Area
	at     uint64 // offset of the area
	layout abi.Layout
	was    []byte // the page as it was marked
}

// plot sets a page aside for an area, whose address is no more aligned than is asked for, but so
// that each field can be read by one access.
func (t *T) plot(m microvm.Machine, layout string) *plot {
	l := t.ABI.Layout(layout)
	at := l.Align
	for _, f := range l.Fields {
		if f.Size <= 8 && f.Size&(f.Size-1) == 0 {
			at = max(at, f.Size)
		}
	}
	p := &plot{page: m.Alloc(microvm.PageSize, microvm.PageSize, fill), at: microvm.PageSize/2 + at, layout: l}
	p.mark()
	return p
}

func (p *plot) address() uint64 { return p.page.Address() + p.at }

func (p *plot) get(field string) uint64 {
	f := p.layout.Field(field)
	return p.page.Load(p.at+f.Offset, f.Size)
}

func (p *plot) set(field string, value uint64) {
	f := p.layout.Field(field)
	p.page.Store(p.at+f.Offset, f.Size, value)
}

func (p *plot) addressOf(field string) uint64 { return p.address() + p.layout.Field(field).Offset }

// poison makes the whole page fill again.
func (p *plot) poison() {
	for i := uint64(0); i < p.page.Size(); i += 8 {
		p.page.Store(i, 8, fill*0x0101010101010101)
	}
	p.mark()
}

// mark has changes count from now on.
func (p *plot) mark() { p.was = p.page.Bytes() }

// changed counts the bytes that have changed since mark: of the fields that are the hypervisor's
// to write, and all others.
func (p *plot) changed() (own, other int64) {
	now := p.page.Bytes()
	for i := range now {
		if now[i] == p.was[i] {
			continue
		}
		other++
		for _, f := range p.layout.Fields {
			if at := p.at + f.Offset; f.Writer != "nobody" && at <= uint64(i) && uint64(i) < at+f.Size {
				own++
			}
		}
	}
	return own, other - own
}

// written lists the fields that are the hypervisor's to write, and those of them in which a byte
// has changed since mark.
func (p *plot) written() (all, changed []string) {
	now := p.page.Bytes()
	for _, f := range p.layout.Fields {
		if f.Writer == "nobody" {
			continue
		}
		all = append(all, f.Name)
		if at := p.at + f.Offset; string(now[at:][:f.Size]) != string(p.was[at:][:f.Size]) {
			changed = append(changed, f.Name)
		}
	}
	return all, changed
}

// areaKind is a kind of area.
type areaKind struct {
	topic     string
	registers []string
	layout    string
	with      func(t *T) uint64 // further bits of the register
	refused   bool              // outside of memory
	// first is what is done to an area before it is registered.
	first func(p *plot)
	// provoke has the hypervisor write the target's area, if it has one.
	provoke func(t *T, m microvm.Monitor)
}

func x86Areas() []areaKind {
	none := func(*T) uint64 { return 0 }
	return []areaKind{
		{"steal", []string{"STEAL_TIME"}, "kvm_steal_time", none, false, func(*plot) {}, (*T).provokeEntry},
		{"clock", []string{"SYSTEM_TIME_NEW", "SYSTEM_TIME"}, "pvclock_vcpu_time_info", none, false, func(*plot) {}, (*T).provokeClock},
		{"eoi", []string{"PV_EOI_EN"}, "pv_eoi", none, true, func(*plot) {}, (*T).provokeInterrupt},
		{"async-pf", []string{"ASYNC_PF_EN"}, "kvm_vcpu_pv_apf_data", (*T).faultBits, true, func(p *plot) { p.set("token", 0) }, (*T).provokeFault},
	}
}

// monitor is a machine with its monitor.
func (t *T) monitor(c microvm.Config) microvm.Monitor {
	machine := t.Open(c)
	if _, is := machine.(limited); is {
		t.GiveUp(errLimited.Error())
	}
	m, ok := machine.(microvm.Monitor)
	if !ok {
		t.Fatal(fmt.Errorf("the carrier is no monitor of its machines"))
	}
	return m
}

func interrupts(on uint64) arch.Op { return arch.Op{Kind: arch.Interrupts, Arg: [6]uint64{on}} }

// enters has a CPU come into the guest and leave it again.
func (t *T) enters(m microvm.Machine, cpu int) { t.run(m, cpu, arch.Op{Kind: arch.Clock}) }

// provokeEntry: the target comes in from its VMM.
func (t *T) provokeEntry(m microvm.Monitor) { t.enters(m, target) }

// provokeClock: the clocks of all CPUs are written. The control is that another CPU's is.
func (t *T) provokeClock(m microvm.Monitor) {
	p := t.plot(m, "pvclock_vcpu_time_info")
	r := t.ABI.Register("SYSTEM_TIME_NEW")
	t.run(m, third, writeRegister(r.Number, p.address()|r.Enable))
	p.poison()
	t.Check("set the clock", m.ResetClock())
	t.enters(m, third)
	own, _ := p.changed()
	t.Control("another CPU's clock is written", true, own > 0)
	t.enters(m, target)
}

// quietVector is a vector that the probe does not acknowledge.
const quietVector = amd64.FirstQuiet + 5

// eoi acknowledges an interrupt at the APIC.
func eoi() arch.Op { return writeRegister(amd64.EOI, 0) }

// provokeInterrupt: the target has interrupts in service, one after the other. More than one,
// as some emulations of SVM deliver one twice now and then, and KVM then sees an end of it that
// was none.
func (t *T) provokeInterrupt(m microvm.Monitor) {
	const times = 4
	for range times {
		before := m.Events(target, quietVector)
		t.run(m, caller, amd64.Interrupt(m.ID(target), quietVector))
		t.run(m, target, interrupts(1), arch.Op{Kind: arch.Clock}, interrupts(0), eoi(), eoi())
		t.Control("the target takes the interrupt", true, m.Events(target, quietVector) > before)
	}
}

// faultBits are what ASYNC_PF_EN takes for pages to be told of at CPL 0, too.
func (t *T) faultBits() uint64 {
	r := t.ABI.Register("ASYNC_PF_EN")
	return r.Bit("DELIVERY_AS_INT") | r.Bit("SEND_ALWAYS")
}

// provokeFault: the target loads from a page that is not there yet.
func (t *T) provokeFault(m microvm.Monitor) {
	page := m.Alloc(microvm.PageSize, microvm.PageSize, 0)
	t.Check("withhold a page", m.Withhold(page.Address()))
	t.start(m, target, interrupts(1), load(page.Address(), 8), interrupts(0))
	t.asked(m, page)
	t.Check("supply a page", m.Supply(page.Address()))
	t.finish(m, target)
	t.run(m, target, interrupts(1), arch.Op{Kind: arch.Clock}, interrupts(0))
}

// asked waits until somebody has reached for a page that is withheld.
func (t *T) asked(m microvm.Monitor, page arch.Area) {
	t.Control("the page is asked for", true, t.Until(func() bool {
		asked, err := m.Asked(page.Address())
		t.Check("is the page asked for", err)
		return asked
	}))
}

// outside is an address that no machine has memory at.
const outside = 1 << 38

// x86Area shows an area's life: registered, moved, disabled, outside of memory, after an INIT.
func x86Area(a areaKind) Check {
	rule := func(statement string) string { return a.topic + "/area-" + statement }
	written, moved, disabled, beyond, inited := rule("written"), rule("moved"), rule("disabled"), rule("outside-memory"), rule("after-init")
	c := Check{Rules: []string{written, moved, disabled, beyond, inited}}
	own := a.topic != "steal" // steal has rules of its own for these
	if !own {
		c.Rules = []string{moved, beyond, inited}
	}
	c.Run = func(t *T) {
		for _, name := range a.registers {
			reg := t.ABI.Register(name)
			m := t.monitor(machine())
			enabled := reg.Enable | a.with(t)
			on := func(p *plot) arch.Op { return writeRegister(reg.Number, p.address()|enabled) }
			register := func(p *plot) {
				a.first(p)
				p.mark()
				t.Control("exception of the write to "+name, 0, t.run(m, target, on(p))[0].Trap)
			}
			begin := func(p *plot) {
				register(p)
				a.provoke(t, m)
			}
			first, second := t.plot(m, a.layout), t.plot(m, a.layout)
			begin(first)
			inside, around := first.changed()
			if own {
				all, changed := first.written()
				t.Equal(written, "fields written by "+name, all, changed)
				t.Equal(written, "other bytes written by "+name, t.Want(written, "changed"), around)
			} else {
				t.Control("the area is written", true, inside > 0)
			}

			// The CPU has still come in with the old address.
			register(second)
			first.poison()
			a.provoke(t, m)
			inside, _ = second.changed()
			t.Equal(moved, "the new area is written", t.Want(moved, "written"), bit(inside > 0))
			inside, around = first.changed()
			t.Equal(moved, "bytes changed at the old address", t.Want(moved, "changed"), inside+around)

			refused := t.run(m, target, writeRegister(reg.Number, outside|enabled), readRegister(reg.Number))
			if a.refused {
				t.Equal(beyond, "exception of "+name, t.Want(beyond, "exception"), int64(refused[0].Trap)-1)
				t.Equal(beyond, "value after it", Hex(second.address()|enabled), Hex(refused[1].Value))
			} else {
				t.Equal(beyond, "exceptions of "+name, t.Want(beyond, "exceptions"), bit(refused[0].Trap != 0))
				a.provoke(t, m)
			}
			first.poison()
			begin(first)
			inside, _ = first.changed()
			if a.refused {
				t.Control("the area is written again", true, inside > 0)
			} else {
				t.Equal(beyond, "a good address after it is written", t.Want(beyond, "written"), bit(inside > 0))
			}

			if own {
				t.run(m, target, writeRegister(reg.Number, 0))
				first.poison()
				a.provoke(t, m)
				inside, around = first.changed()
				t.Equal(disabled, "bytes changed by "+name, t.Want(disabled, "changed"), inside+around)
			}

			first.poison()
			begin(first)
			inside, _ = first.changed()
			t.Control("the area is written before the INIT", true, inside > 0)
			t.init(m, target)
			first.poison()
			a.provoke(t, m)
			inside, around = first.changed()
			t.Equal(inited, "bytes changed by "+name, t.Want(inited, "changed"), inside+around)
		}
	}
	return c
}

// init has the caller send a running CPU an INIT, and makes it idle again.
func (t *T) init(m microvm.Monitor, cpu int) {
	flag := m.Alloc(8, 8, 0)
	t.start(m, cpu, store(flag.Address(), 1, 8), spinUntil(flag.Address(), ^uint64(0), 2, 0))
	t.Control("the CPU runs before the INIT", true, t.Until(func() bool { return flag.Load(0, 8) == 1 }))
	t.run(m, caller, amd64.Init(m.ID(cpu)))
	t.Control("the CPU runs no more after the INIT", true, t.Until(func() bool { return t.asleepAt(m, cpu, 1) }))
	t.Check("restart after an INIT", m.Restart(cpu))
}

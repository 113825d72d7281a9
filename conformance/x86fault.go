package conformance

import (
	"time"

	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// Asynchronous page faults: the carrier withholds pages of the machine's memory, and supplies
// them when the check says so.

// faultOn has the target register an area for its page faults, and deals with the token for all
// pages that comes first. What was seen of that it returns: the token, and how many interrupts.
func (t *T) faultOn(m microvm.Monitor, control uint64) (p *plot, token, interrupted uint64) {
	p = t.plot(m, "kvm_vcpu_pv_apf_data")
	p.set(flags, 0)
	p.set("token", 0)
	r, vector := t.ABI.Register("ASYNC_PF_EN"), t.ABI.Register("ASYNC_PF_INT")
	for _, w := range t.run(m, target, writeRegister(vector.Number, testVector), writeRegister(r.Number, p.address()|r.Enable|control)) {
		t.Control("exception of the writes that enable", 0, w.Trap)
	}
	t.takes(m)
	token, interrupted = p.get("token"), m.Events(target, testVector)
	t.acknowledge(m, p)
	return p, token, interrupted
}

// takes lets the target take interrupts.
func (t *T) takes(m microvm.Machine) { t.run(m, target, interrupts(1), tsc(), interrupts(0)) }

// acknowledge has the target be done with the token that it was told.
func (t *T) acknowledge(m microvm.Machine, p *plot) {
	ack := t.ABI.Register("ASYNC_PF_ACK")
	f := p.layout.Field("token")
	t.run(m, target, store(p.addressOf("token"), 0, f.Size), writeRegister(ack.Number, ack.Bit("ACK")))
}

// told waits until the area has a token, and returns it: 0 if none comes.
func (t *T) told(m microvm.Machine, p *plot) uint64 {
	t.Until(func() bool { t.takes(m); return p.get("token") != 0 })
	return p.get("token")
}

// untold looks a few times and returns whether the area's token has become another one.
func (t *T) untold(m microvm.Machine, p *plot, token uint64) bool {
	const looks = 20
	for range looks {
		t.takes(m)
		if p.get("token") != token {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// missing withholds a page that has a number in it, and has the target load that, with interrupts
// on.
func (t *T) missing(m microvm.Monitor, number uint64) (arch.Area, arch.Result) {
	page := m.Alloc(microvm.PageSize, microvm.PageSize, 0)
	page.Store(0, 8, number)
	t.Check("withhold a page", m.Withhold(page.Address()))
	t.start(m, target, interrupts(1), load(page.Address(), 8), interrupts(0))
	t.asked(m, page)
	t.Until(func() bool { at, _ := m.At(target); return at > 1 })
	return page, m.Results(target)[1]
}

func (t *T) supply(m microvm.Monitor, page arch.Area) {
	t.Check("supply a page", m.Supply(page.Address()))
}

// x86Fault: a page is not there, and then it is.
func x86Fault() Check {
	const (
		all        = "async-pf/wakes-all-when-enabled"
		notPresent = "async-pf/not-present"
		ready      = "async-pf/ready"
		number     = 0x0123456789abcdef
	)
	return Check{Rules: []string{all, notPresent, ready}, Run: func(t *T) {
		m := t.monitor(machine())
		p, token, interrupted := t.faultOn(m, t.faultBits())
		t.Equal(all, "token", Hex(t.Want(all, "token")), Hex(token))
		t.Equal(all, "interrupts", t.Want(all, "interrupts"), bit(interrupted > 0))

		page, fault := t.missing(m, number)
		t.Equal(notPresent, "exception", t.Want(notPresent, "exception"), int64(fault.Trap)-1)
		if fault.Trap == 0 {
			// The load goes on when the page is there, and nothing will be told.
			t.Unreached(ready, "the load raised no exception, so that there is nothing to tell")
			t.supply(m, page)
			t.finish(m, target)
			return
		}
		t.finish(m, target)
		t.Equal(notPresent, "error code", t.Want(notPresent, "code"), fault.Code)
		t.Truth(notPresent, "CR2 is not 0", fault.Aux != 0)
		t.Equal(notPresent, "flags", Hex(t.Want(notPresent, "flags")*int64(p.layout.Bit(flags, "PAGE_NOT_PRESENT"))), Hex(p.get(flags)))
		t.Control("token before the page is there", uint64(0), p.get("token"))
		before := m.Events(target, testVector)
		t.supply(m, page)
		t.Equal(ready, "token", Hex(fault.Aux), Hex(t.told(m, p)))
		t.Equal(ready, "interrupts", t.Want(ready, "interrupts"), bit(m.Events(target, testVector) > before))
		t.acknowledge(m, p)
		p.set(flags, 0)
		again := t.run(m, target, interrupts(1), load(page.Address(), 8), interrupts(0))[1]
		t.Equal(ready, "exception of the load afterwards", 0, again.Trap)
		t.Equal(ready, "what it loads", Hex(number), Hex(again.Value))
	}}
}

// x86FaultNext: two pages are not there, and then both are.
func x86FaultNext(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.monitor(machine())
		p, _, _ := t.faultOn(m, t.faultBits())
		var pages []arch.Area
		var tokens []uint64
		for range 2 {
			page, fault := t.missing(m, 1)
			t.Control("the page is told of as missing", true, fault.Trap != 0)
			t.finish(m, target)
			pages, tokens = append(pages, page), append(tokens, fault.Aux)
		}
		t.Control("the tokens of two pages differ", true, tokens[0] != tokens[1])
		t.supply(m, pages[0])
		t.Control("token of the first page", tokens[0], t.told(m, p))
		t.supply(m, pages[1])
		t.Equal(rule, "tokens before the first was cleared", t.Want(rule, "early"), bit(!t.untold(m, p, tokens[0])))
		t.acknowledge(m, p)
		t.Equal(rule, "tokens after the acknowledgement", t.Want(rule, "late"), bit(t.told(m, p) == tokens[1]))
		t.acknowledge(m, p)
	}}
}

// x86FaultHeld: a page is there while the CPU's APIC is off.
func x86FaultHeld(rule string) Check {
	const on, off = 1<<8 | 0xff, 0xff // spurious vector, and the bit that enables
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.monitor(machine())
		p, _, _ := t.faultOn(m, t.faultBits())
		page, fault := t.missing(m, 1)
		t.Control("the page is told of as missing", true, fault.Trap != 0)
		t.finish(m, target)
		t.Control("exception of the write that turns the APIC off", 0, t.run(m, target, writeRegister(amd64.SVR, off))[0].Trap)
		t.supply(m, page)
		t.Equal(rule, "tokens while the APIC is off", t.Want(rule, "early"), bit(!t.untold(m, p, 0)))
		before := m.Events(target, testVector)
		t.run(m, target, writeRegister(amd64.SVR, on))
		t.Equal(rule, "tokens once the APIC is on", t.Want(rule, "late"), bit(t.told(m, p) == fault.Aux))
		t.Truth(rule, "the interrupt is taken then", m.Events(target, testVector) > before)
		t.acknowledge(m, p)
	}}
}

// x86NoFault: a load that is not told of takes until the page is there. The control is that the
// page was asked for while the load had not come to its end.
func x86NoFault(rule string, interruptsOn uint64, control func(*T) uint64) Check {
	const number = 0x0123456789abcdef
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.monitor(machine())
		p, _, _ := t.faultOn(m, control(t))
		page := m.Alloc(microvm.PageSize, microvm.PageSize, 0)
		page.Store(0, 8, number)
		t.Check("withhold a page", m.Withhold(page.Address()))
		t.start(m, target, interrupts(interruptsOn), load(page.Address(), 8), interrupts(0))
		t.asked(m, page)
		at, _ := m.At(target)
		if at != 1 {
			t.Equal(rule, "exceptions of the load", t.Want(rule, "exceptions"), bit(m.Results(target)[1].Trap != 0))
		}
		t.supply(m, page)
		t.finish(m, target)
		r := m.Results(target)[1]
		t.Equal(rule, "exceptions of the load", t.Want(rule, "exceptions"), bit(r.Trap != 0))
		t.Equal(rule, "what it loads", Hex(number), Hex(r.Value))
		t.Equal(rule, "flags", Hex(0), Hex(p.get(flags)))
	}}
}

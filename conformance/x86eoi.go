package conformance

import (
	"fmt"

	"pvabi/arch"
	"pvabi/arch/amd64"
	"pvabi/conformance/microvm"
)

// The end of an interrupt by a word in memory. The probe does not end interrupts of quiet
// vectors, so that a program finds them in service.

// inService reads whether a vector is in service, in bit vector%32 of the value.
func inService(vector uint64) arch.Op { return readRegister(amd64.ISR + vector/32) }

// serviceBit is that bit of what inService has read.
func serviceBit(r arch.Result, vector uint64) uint64 { return r.Value >> (vector % 32) & 1 }

// eoiOn has the target register a word, which is clear.
func (t *T) eoiOn(m microvm.Machine) *plot {
	p := t.plot(m, "pv_eoi")
	p.set("word", 0)
	r := t.ABI.Register("PV_EOI_EN")
	t.Control("exception of the write to "+r.Name, 0, t.run(m, target, writeRegister(r.Number, p.address()|r.Enable))[0].Trap)
	return p
}

// x86EOI: an interrupt in service is ended, once by the word and once at the APIC. There are
// several interrupts, of which one has to be seen as it should be. Some emulations of SVM deliver one
// twice now and then, on which KVM takes it for ended when it is not and leaves the word clear. And a
// program cannot look at the word and clear it in one instruction, as a guest has to: whatever
// takes the CPU out of the guest in between has KVM clear the word and take that back, too, and
// reading what is in service does.
func x86EOI() Check {
	const (
		set      = "eoi/set-in-service"
		clearing = "eoi/clearing-ends"
		register = "eoi/register-ends"
		tries    = 10
	)
	return Check{Rules: []string{set, clearing, register}, Run: func(t *T) {
		m := t.Open(machine())
		p := t.eoiOn(m)
		word := func() arch.Op { return load(p.addressOf("word"), p.layout.Field("word").Size) }
		bit := p.layout.Bit("word", "ENABLED")
		for _, end := range []struct {
			rule string
			op   arch.Op
		}{{clearing, store(p.addressOf("word"), 0, p.layout.Field("word").Size)}, {register, eoi()}} {
			var tried []string
			var before, after, left uint64
			for range tries {
				taken := m.Events(target, quietVector)
				t.run(m, caller, amd64.Interrupt(m.ID(target), quietVector))
				r := t.run(m, target, interrupts(1), tsc(), interrupts(0), word(), end.op, word(), inService(quietVector), eoi(), tsc())
				t.Control("the target takes the interrupt", true, m.Events(target, quietVector) > taken)
				before, after, left = r[3].Value&bit/bit, r[5].Value&bit/bit, serviceBit(r[6], quietVector)
				tried = append(tried, fmt.Sprintf("word %#x, then %#x, in service %d", r[3].Value, r[5].Value, left))
				if before == uint64(t.Want(set, "set")) && left == uint64(t.Want(end.rule, "in-service")) {
					break
				}
			}
			t.Evidence(end.rule, "interrupts", tried)
			t.Equal(set, "ENABLED in service", t.Want(set, "set"), before)
			if before == 0 {
				t.Unreached(end.rule, fmt.Sprintf("ENABLED was not set in any of %d interrupts", tries))
			}
			t.Equal(end.rule, "interrupts in service afterwards", t.Want(end.rule, "in-service"), left)
			if end.rule == register {
				t.Equal(register, "ENABLED afterwards", t.Want(register, "set"), after)
			}
		}
		// The control: without a word nothing but the APIC ends an interrupt.
		r := t.ABI.Register("PV_EOI_EN")
		t.run(m, caller, amd64.Interrupt(m.ID(target), quietVector))
		got := t.run(m, target, writeRegister(r.Number, 0), interrupts(1), tsc(), interrupts(0),
			store(p.addressOf("word"), 0, p.layout.Field("word").Size), inService(quietVector), eoi())
		t.Control("interrupts in service where the word that is cleared is not registered", uint64(1), serviceBit(got[5], quietVector))
	}}
}

// x86EOIAnother: of two interrupts the second waits for the end of the first, which only the APIC
// can be told of. The control is that the second is taken then.
func x86EOIAnother(rule string) Check {
	const first, second = uint64(quietVector), uint64(quietVector - 1) // of one class of priority
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		p := t.eoiOn(m)
		f := p.layout.Field("word")
		bit := p.layout.Bit("word", "ENABLED")
		t.run(m, caller, amd64.Interrupt(m.ID(target), uint8(second)), amd64.Interrupt(m.ID(target), uint8(first)))
		r := t.run(m, target, interrupts(1), tsc(), interrupts(0),
			load(p.addressOf("word"), f.Size), store(p.addressOf("word"), 0, f.Size), inService(first))
		t.Control("interrupts of the higher vector", true, m.Events(target, uint8(first)) > 0)
		t.Equal(rule, "interrupts of the lower vector before the end of the higher", 0, m.Events(target, uint8(second)))
		t.Equal(rule, "ENABLED with another interrupt requested", t.Want(rule, "set"), r[3].Value&bit/bit)
		t.Equal(rule, "interrupts in service after the word was cleared", t.Want(rule, "in-service"), serviceBit(r[5], first))
		t.run(m, target, eoi(), interrupts(1), tsc(), interrupts(0), eoi())
		t.Control("the lower vector is taken after the end of the higher", true, m.Events(target, uint8(second)) > 0)
	}}
}

package conformance

import (
	"fmt"
	"slices"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// The model-specific registers of KVM, as registers: what they hold, what they refuse, what gates
// them. What they are for is the business of other checks.

// registers lists the registers that KVM offers itself.
func (t *T) registers() []abi.Register {
	return slices.DeleteFunc(slices.Clone(t.ABI.AllRegisters()), func(r abi.Register) bool {
		if !t.kernels(r) {
			return true
		}
		ok, err := t.Offers(t.ABI.Feature(r.Feature))
		t.Check("discovery of "+r.Feature, err)
		return !ok
	})
}

// readable lists those that a guest can read what it wrote from.
func (t *T) readable() []abi.Register {
	return slices.DeleteFunc(t.registers(), func(r abi.Register) bool { return !r.Readable })
}

// kernels tells whether a register is the kernel's, not its VMM's.
func (t *T) kernels(r abi.Register) bool { return t.ABI.Feature(r.Feature).Offered == "kernel" }

// wallClocks are registers that all CPUs share: there is one time of day.
var wallClocks = []string{"WALL_CLOCK", "WALL_CLOCK_NEW"}

// good is a value that a register takes, which n makes different from others, and which turns
// nothing on. Where the register has an address, there is memory.
func (t *T) good(m microvm.Machine, r abi.Register, n int) uint64 {
	switch {
	case r.Reserved == ^uint64(1):
		return uint64(n+1) & 1
	case r.Reserved == ^uint64(0xff):
		return uint64(0x60 + n)
	}
	return m.Alloc(256, 64, 0).Address()
}

// fresh is the machine of which no CPU has ever written a register.
var fresh = microvm.Config{CPUs: 2, IDs: []uint64{3, 11}}

// x86ResetValues looks at CPUs that were just made, of a machine that no other check uses.
func x86ResetValues(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(fresh)
		for cpu := range m.CPUs() {
			for _, r := range t.readable() {
				t.Equal(rule, fmt.Sprintf("%s on CPU %d", r.Name, cpu), Hex(r.Reset), Hex(t.run(m, cpu, readRegister(r.Number))[0].Value))
			}
		}
	}}
}

// x86AfterInit gives all registers values, twice, as POLL_CONTROL has only two, sends an INIT and
// looks.
func x86AfterInit(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.monitor(machine())
		registers := t.readable()
		var read arch.Program
		for _, r := range registers {
			read = append(read, readRegister(r.Number))
		}
		for _, n := range []int{1, 0} {
			for _, r := range registers {
				v := t.good(m, r, n)
				if r.Name == t.ABI.Scheduling.Area {
					v |= r.Enable
				}
				t.Control("exception of the write to "+r.Name, 0, t.run(m, target, writeRegister(r.Number, v))[0].Trap)
			}
			before := t.run(m, target, read...)
			t.init(m, target)
			for i, got := range t.run(m, target, read...) {
				want := registers[i].Reset
				if registers[i].Kept {
					want = before[i].Value
				}
				t.Equal(rule, fmt.Sprintf("%s, which was %#x", registers[i].Name, before[i].Value), Hex(want), Hex(got.Value))
			}
		}
	}}
}

// x86ReadsBack writes each register on two CPUs and then reads both. One that does not read back does not.
func x86ReadsBack(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		for _, r := range t.registers() {
			if !r.Readable {
				v := t.good(m, r, 0)
				got := t.run(m, caller, writeRegister(r.Number, v), readRegister(r.Number))[1]
				t.Equal(rule, r.Name+" reads back", false, got.Value == v)
				continue
			}
			var last uint64
			values := map[int]uint64{}
			for n, cpu := range []int{caller, third} {
				last = t.good(m, r, n)
				values[cpu] = last
				w := t.run(m, cpu, writeRegister(r.Number, last), readRegister(r.Number))
				t.Equal(rule, "exception of a write to "+r.Name, 0, w[0].Trap)
				t.Equal(rule, r.Name+" after the write", Hex(last), Hex(w[1].Value))
			}
			for cpu, want := range values {
				if slices.Contains(wallClocks, r.Name) {
					want = last
				}
				t.Equal(rule, fmt.Sprintf("%s on CPU %d after both have written", r.Name, cpu), Hex(want), Hex(t.run(m, cpu, readRegister(r.Number))[0].Value))
			}
		}
	}}
}

// accepted writes a register with each of its low bits changed that is neither reserved nor one that
// turns something on, and holds for a rule that this is no exception.
func (t *T) accepted(rule string, m microvm.Machine, r abi.Register, good uint64) {
	taken := r.Reserved | r.Enable
	for _, b := range r.Bits {
		taken |= 1 << b.Bit
	}
	for b := range 6 {
		if taken>>b&1 == 0 {
			w := t.run(m, caller, writeRegister(r.Number, good^1<<b), writeRegister(r.Number, good))
			t.Equal(rule, fmt.Sprintf("exception of %s for bit %d, which is not reserved", r.Name, b), 0, w[0].Trap)
		}
	}
}

// x86Reserved writes each reserved bit of each register but that of steal time, which has a
// check of its own.
func x86Reserved(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		for _, r := range t.registers() {
			if r.Reserved == 0 || r.Name == t.ABI.Scheduling.Area {
				continue
			}
			good := t.good(m, r, 1)
			t.Control("exception of a good write to "+r.Name, 0, t.run(m, caller, writeRegister(r.Number, good))[0].Trap)
			var p arch.Program
			var bits []int
			for b := range 64 {
				if r.Reserved>>b&1 == 1 {
					bits = append(bits, b)
					p = append(p, writeRegister(r.Number, good^1<<b), readRegister(r.Number))
				}
			}
			for i, got := range slices.Collect(slices.Chunk(t.runAll(m, caller, p), 2)) {
				t.Equal(rule, fmt.Sprintf("exception of %s for bit %d", r.Name, bits[i]), t.Want(rule, "exception"), int64(got[0].Trap)-1)
				t.Equal(rule, fmt.Sprintf("value of %s after it for bit %d", r.Name, bits[i]), Hex(good), Hex(got[1].Value))
			}
			t.accepted(rule, m, r, good)
		}
	}}
}

// x86UndefinedRegisters reads and writes the numbers that no register of the kernel has.
func x86UndefinedRegisters(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(machine())
		first, last := t.ABI.Word("first-register"), t.ABI.Word("last-register")
		if last < first || last-first > 1<<12 {
			t.Fatal(fmt.Errorf("abi lists no range of registers: %#x to %#x", first, last))
		}
		var p arch.Program
		for n := first; n <= last; n++ {
			if !slices.ContainsFunc(t.ABI.AllRegisters(), func(r abi.Register) bool { return r.Number == n && t.kernels(r) }) {
				p = append(p, readRegister(n), writeRegister(n, 0))
			}
		}
		want := t.Want(rule, "exception")
		for i, r := range t.runAll(m, caller, p) {
			what := fmt.Sprintf("exception of the %s of %#x", []string{"read", "write"}[i%2], p[i].Arg[0])
			t.Equal(rule, what, want, int64(r.Trap)-1)
		}
		// The control: registers of the range can be read on the same CPU.
		poll := t.ABI.Register("POLL_CONTROL")
		if ok, err := t.Offers(t.ABI.Feature(poll.Feature)); err == nil && ok {
			t.Control("exception of a read of "+poll.Name, 0, t.run(m, caller, readRegister(poll.Number))[0].Trap)
		}
	}}
}

// x86RegisterGates: what hiding a feature does to the registers that it gates. Offered are no
// features; that of registers alone, for each; and all that gate none.
func x86RegisterGates() Check {
	const (
		enforced = "register/gated-enforced"
		offered  = "register/gated-offered"
		free     = "register/gated-free"
	)
	return Check{Rules: []string{enforced, offered, free}, Run: func(t *T) {
		registers := t.registers()
		own := func(r abi.Register) uint32 { return 1 << t.ABI.Feature(r.Feature).Bit }
		var words []uint32
		others := ^uint32(0)
		for _, r := range registers {
			if !slices.Contains(words, own(r)) {
				words = append(words, own(r))
			}
			others &^= own(r)
		}
		look := func(features uint32, enforce bool) {
			m := t.Open(microvm.Config{Features: &features, Enforce: enforce})
			for i, r := range registers {
				got := t.run(m, caller, readRegister(r.Number), writeRegister(r.Number, t.good(m, r, i)))
				for k, what := range []string{"read", "write"} {
					name := fmt.Sprintf("exception of the %s of %s with features %#x", what, r.Name, features)
					switch {
					case !enforce:
						t.Equal(free, name, t.Want(free, "exceptions"), bit(got[k].Trap != 0))
					case features&own(r) == 0:
						t.Equal(enforced, name, t.Want(enforced, "exception"), int64(got[k].Trap)-1)
					default:
						t.Equal(offered, name, t.Want(offered, "exceptions"), bit(got[k].Trap != 0))
					}
				}
			}
		}
		look(0, false)
		look(0, true)
		look(others, true)
		for _, w := range words {
			look(w, true)
		}
	}}
}

// x86ControlBits: bits of ASYNC_PF_EN that have features of their own. The controls are that the
// register itself is offered, and that each bit is taken where its feature is.
func x86ControlBits(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		r := t.ABI.Register("ASYNC_PF_EN")
		own := uint32(1) << t.ABI.Feature(r.Feature).Bit
		for _, b := range []struct{ name, feature string }{
			{"DELIVERY_AS_PF_VMEXIT", "ASYNC_PF_VMEXIT"}, {"DELIVERY_AS_INT", "ASYNC_PF_INT"},
		} {
			for _, with := range []bool{false, true} {
				features := own
				if with {
					features |= 1 << t.ABI.Feature(b.feature).Bit
				}
				m := t.Open(microvm.Config{Features: &features, Enforce: true})
				at := m.Alloc(64, 64, 0).Address()
				got := t.run(m, caller, writeRegister(r.Number, at), writeRegister(r.Number, at|r.Bit(b.name)))
				t.Control("exception of a write without the bit", 0, got[0].Trap)
				if with {
					t.Control("exception of a write with "+b.name+", offered", 0, got[1].Trap)
					continue
				}
				t.Equal(rule, "exception of a write with "+b.name, t.Want(rule, "exception"), int64(got[1].Trap)-1)
			}
		}
	}}
}

// x86NeedsAPIC: what is told by interrupts cannot be had without an APIC. The control is that 0
// is taken.
func x86NeedsAPIC(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		m := t.Open(microvm.Config{IRQChip: microvm.None})
		enable, vector := t.ABI.Register("ASYNC_PF_EN"), t.ABI.Register("ASYNC_PF_INT")
		at := m.Alloc(64, 64, 0).Address()
		got := t.run(m, caller,
			writeRegister(enable.Number, 0), writeRegister(enable.Number, at), writeRegister(enable.Number, at|enable.Enable),
			writeRegister(vector.Number, 0), writeRegister(vector.Number, quietVector))
		t.Control("exception of a write of 0 to "+enable.Name, 0, got[0].Trap)
		for i, name := range []string{"address to ASYNC_PF_EN", "enabled address to ASYNC_PF_EN", "0 to ASYNC_PF_INT", "vector to ASYNC_PF_INT"} {
			t.Equal(rule, "exception of a write of "+name, t.Want(rule, "exception"), int64(got[i+1].Trap)-1)
		}
	}}
}

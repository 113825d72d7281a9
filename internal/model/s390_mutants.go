package model

import (
	"slices"

	"pvabi/arch/s390x"
)

type s390Add = func(name, text string, change func(s *s390), rules ...string) *Mutant

// s390Mutants are mistakes that an implementer of s390 could make, by topic.
func s390Mutants() []Mutant {
	var ms []Mutant
	add := func(name, text string, change func(s *s390), rules ...string) *Mutant {
		ms = append(ms, Mutant{Name: name, Text: text, Rules: rules, Open: openS390(change)})
		return &ms[len(ms)-1]
	}
	for _, topic := range []func(s390Add){
		s390DiscoveryMutants, s390DiagnoseMutants, s390YieldMutants, s390VirtioMutants, s390ReferenceMutants,
		s390OrderMutants, s390StatusMutants, s390SenseMutants, s390SignalMutants, s390CallMutants,
	} {
		topic(add)
	}
	return ms
}

// s390Code has a DIAGNOSE of some code be something else.
func s390Code(s *s390, number uint64, change func(c *cpu, f s390Form, regs *[16]uint64, was func() trap) trap) {
	diagnose := s.diagnose
	s.diagnose = func(c *cpu, code uint64, f s390Form, regs *[16]uint64) trap {
		was := func() trap { return diagnose(c, code, f, regs) }
		if code == number {
			return change(c, f, regs, was)
		}
		return was()
	}
}

func s390DiscoveryMutants(add s390Add) {
	information := func(name, text string, change func(s *s390, function, block uint64, r0 uint64) uint64, rules ...string) {
		add(name, text, func(s *s390) {
			was := s.information
			s.information = func(function, first, second, block uint64) (uint64, bool) {
				r0, ok := was(function, first, second, block)
				return change(s, function, block, r0), ok
			}
		}, rules...)
	}
	information("level-of-partition", "The level is that of a partition.", func(_ *s390, _, _, r0 uint64) uint64 { return min(r0, 2<<28) }, "discovery/level")
	information("name-of-vm", "The hypervisor has the name of z/VM.", func(s *s390, function, block, r0 uint64) uint64 {
		if function != 0 {
			s.m.store(block+s.abi.Word("stsi-program-at"), 4, s.abi.Word("program-vm"))
		}
		return r0
	}, "discovery/control-program")
	information("no-names", "The answer that names the hypervisor says that there is none.", func(s *s390, function, block, r0 uint64) uint64 {
		if function != 0 {
			s.m.store(block+s.abi.Word("stsi-count-at"), 1, 0)
		}
		return r0
	}, "discovery/control-program")
	add("probe-first-refused", "The first YIELD_TO of a CPU to itself ends in an exception, the others do not.", func(s *s390) {
		refused := map[int]bool{}
		yield := s.yield
		s.yield = func(c *cpu, f s390Form, regs *[16]uint64) trap {
			if regs[f.r1] == c.id && c.index == s390Target && !refused[c.index] {
				refused[c.index] = true
				return s390Trap(s390Specification)
			}
			return yield(c, f, regs)
		}
	}, "discovery/probe-ends")
}

// s390Target is the CPU of a machine that checks do something to, and that runs programs, too.
const s390Target = 1

func s390DiagnoseMutants(add s390Add) {
	add("user-specification", "DIAGNOSE from problem state ends in a specification exception.", func(s *s390) {
		problem := s.problem
		s.problem = func(c *cpu, f s390Form, regs *[16]uint64, flags *uint64) trap {
			if !f.signal {
				return s390Trap(s390Specification)
			}
			return problem(c, f, regs, flags)
		}
	}, "privilege/user-refused")
	add("user-order-undefined", "An order that is none is answered from problem state, too.", func(s *s390) {
		problem := s.problem
		s.problem = func(c *cpu, f s390Form, regs *[16]uint64, flags *uint64) trap {
			if f.signal && s.operands(f, regs).number >= s.abi.Word("first-free-order") {
				return s.carryOut(c, f, regs, flags)
			}
			return problem(c, f, regs, flags)
		}
	}, "privilege/user-refused")
	add("user-calls", "An external call from problem state ends in the exception, and is made.", func(s *s390) {
		problem := s.problem
		s.problem = func(c *cpu, f s390Form, regs *[16]uint64, flags *uint64) trap {
			if f.signal {
				s.carryOut(c, f, regs, flags)
			}
			return problem(c, f, regs, flags)
		}
	}, "external-call/user-has-no-effect").Controls = []string{"external-call/stopped-target"}
	add("undefined-accepted", "The last of the free codes does nothing.", func(s *s390) {
		s390Code(s, s.abi.Word("last-free-code"), func(*cpu, s390Form, *[16]uint64, func() trap) trap { return trap{} })
	}, "diag/undefined-code")
	add("undefined-privileged", "A code that is none ends in a privileged-operation exception.", func(s *s390) {
		s390Code(s, s.abi.Word("first-free-code"), func(*cpu, s390Form, *[16]uint64, func() trap) trap { return s390Trap(s390Privileged) })
	}, "diag/undefined-code")
	add("base-ignored", "The code is the displacement, whatever the base register is.", func(s *s390) {
		s.code = func(f s390Form, _ *[16]uint64) uint64 { return f.displacement }
	}, "diag/code-from-address", "diag/code-high-bits")
	add("base-alone", "Where there is a base register, the code is that.", func(s *s390) {
		code := s.code
		s.code = func(f s390Form, regs *[16]uint64) uint64 {
			f.displacement *= uint64(bit(f.base == 0))
			return code(f, regs)
		}
	}, "diag/code-from-address")
	add("code-32-bits", "The code is the low half of the address.", func(s *s390) {
		s.code = func(f s390Form, regs *[16]uint64) uint64 { return f.secondOperand(regs) & (1<<32 - 1) }
	}, "diag/code-high-bits")
	add("time-slice-refused", "TIME_SLICE_END is no code.", func(s *s390) {
		s390Code(s, s.abi.Call("TIME_SLICE_END").Number, func(*cpu, s390Form, *[16]uint64, func() trap) trap { return s390Trap(s390Specification) })
	}, "diag/time-slice-end").Controls = []string{"privilege/user-refused", "diag/undefined-code", "diag/code-from-address", "diag/code-high-bits"}
	add("diagnose-condition-code", "YIELD_TO leaves the condition code 0.", func(s *s390) {
		s.restore = func(f s390Form, _, _ *[16]uint64, flags *uint64) {
			if !f.signal && f.displacement == 0x9c {
				*flags = 0
			}
		}
	}, "diag/registers-preserved")
	add("time-slice-register", "TIME_SLICE_END changes a register.", func(s *s390) {
		s390Code(s, s.abi.Call("TIME_SLICE_END").Number, func(_ *cpu, _ s390Form, regs *[16]uint64, was func() trap) trap {
			regs[s390x.ISA.Register("r0")]++
			return was()
		})
	}, "diag/registers-preserved")
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func s390YieldMutants(add s390Add) {
	yield := func(name, text string, change func(s *s390, c *cpu, f s390Form, regs *[16]uint64, was func() trap) trap, rules ...string) *Mutant {
		return add(name, text, func(s *s390) {
			yield := s.yield
			s.yield = func(c *cpu, f s390Form, regs *[16]uint64) trap {
				return change(s, c, f, regs, func() trap { return yield(c, f, regs) })
			}
		}, rules...)
	}
	refused := func(name, text string, whom func(s *s390, to *cpu) bool, rules ...string) {
		yield(name, text, func(s *s390, _ *cpu, f s390Form, regs *[16]uint64, was func() trap) trap {
			if whom(s, s.addressed(regs[f.r1])) {
				return s390Trap(s390Specification)
			}
			return was()
		}, rules...)
	}
	refused("yield-absent-refused", "A yield to an address that no CPU has ends in an exception.", func(_ *s390, to *cpu) bool { return to == nil }, "yield/absent-target")
	refused("yield-stopped-refused", "A yield to a stopped CPU ends in an exception.", func(s *s390, to *cpu) bool { return to != nil && s.of(to).stopped }, "yield/stopped-target")
	refused("yield-running-refused", "A yield to another CPU that has a program ends in an exception.", func(_ *s390, to *cpu) bool {
		return to != nil && to.index == s390Target && to.state != idle
	}, "yield/running-target", "discovery/probe-ends")
	yield("yield-self-refused", "A yield to oneself ends in an exception where the address is in another register than r1.", func(_ *s390, c *cpu, f s390Form, regs *[16]uint64, was func() trap) trap {
		if regs[f.r1] == c.id && f.r1 != s390x.ISA.Register("r1") {
			return s390Trap(s390Specification)
		}
		return was()
	}, "yield/self")
	yield("yield-wakes", "A yield to a CPU that waits interrupts it.", func(s *s390, c *cpu, f s390Form, regs *[16]uint64, was func() trap) trap {
		if to := s.addressed(regs[f.r1]); to != nil && to.state == idle {
			s.call1(c, to)
		}
		return was()
	}, "yield/does-not-wake")
	yield("yield-by-r1", "The address is taken from r1, and one that no CPU has ends in an exception.", func(s *s390, _ *cpu, f s390Form, regs *[16]uint64, was func() trap) trap {
		if f.r1 != s390x.ISA.Register("r1") && s.addressed(regs[s390x.ISA.Register("r1")]) == nil {
			return s390Trap(s390Specification)
		}
		return was()
	}, "yield/self", "yield/running-target", "yield/waiting-target", "yield/absent-target", "yield/stopped-target", "yield/register-field")
}

func s390VirtioMutants(add s390Add) {
	virtio := func(name, text string, change func(s *s390, n uint64, regs *[16]uint64, was func(n uint64) trap) trap, rules ...string) {
		add(name, text, func(s *s390) {
			subcode := s.subcode
			s.subcode = func(n uint64, regs *[16]uint64) trap {
				return change(s, n, regs, func(n uint64) trap { return subcode(n, regs) })
			}
		}, rules...)
	}
	r2, r3 := s390x.ISA.Register("r2"), s390x.ISA.Register("r3")
	virtio("subcode-unknown-accepted", "A subcode that is none gives an error.", func(_ *s390, n uint64, regs *[16]uint64, was func(n uint64) trap) trap {
		if n == 99 {
			regs[r2] = ^uint64(0)
			return trap{}
		}
		return was(n)
	}, "virtio/unknown-subcode")
	virtio("subcode-32-bits", "The low half of r1 is the subcode.", func(_ *s390, n uint64, _ *[16]uint64, was func(n uint64) trap) trap { return was(n & (1<<32 - 1)) },
		"virtio/subcode-width")
	virtio("subchannel-accepted", "A notification of no device gives 0.", func(s *s390, n uint64, regs *[16]uint64, was func(n uint64) trap) trap {
		t := was(n)
		if n == s.abi.Call("VIRTIO_CCW_NOTIFY").Number {
			regs[r2] = 0
		}
		return t
	}, "virtio/absent-subchannel")
	virtio("virtio-register", "A notification changes r3.", func(_ *s390, n uint64, regs *[16]uint64, was func(n uint64) trap) trap {
		regs[r3]++
		return was(n)
	}, "virtio/registers-preserved")
	virtio("limit-half", "STORAGE_LIMIT gives the half of what there is.", func(s *s390, n uint64, regs *[16]uint64, was func(n uint64) trap) trap {
		t := was(n)
		if n == s.abi.Call("STORAGE_LIMIT").Number {
			regs[r2] = s.last() / 2
		}
		return t
	}, "virtio/storage-limit")
}

func s390ReferenceMutants(add s390Add) {
	add("block-unaligned", "A block need be aligned to 4 bytes only.", func(s *s390) {
		reference := s.reference
		s.reference = func(c *cpu, block uint64) (int64, trap) {
			if block%8 == 4 {
				block -= 4
			}
			return reference(c, block)
		}
	}, "pfault/unaligned")
	valid := func(name, text, field string) {
		add(name, text, func(s *s390) {
			valid := s.valid
			s.valid = func(block uint64) bool {
				f := s.abi.Layout("pfault_refbk").Field(field)
				had := s.field(block, field)
				good := map[string]uint64{"refversn": 2, "refdwlen": s.abi.Layout("pfault_refbk").Size / 8, "refdiagc": s.abi.Call("PAGE_REFERENCE").Number}[field]
				s.m.store(block+f.Offset, f.Size, good)
				defer s.m.store(block+f.Offset, f.Size, had)
				return valid(block)
			}
		}, "pfault/version")
	}
	valid("block-version", "A block of any version is taken.", "refversn")
	valid("block-length", "A block of any length is taken.", "refdwlen")
	valid("block-code", "A block with another code in it is taken.", "refdiagc")
	add("token-replaced", "A second token takes the place of the first.", func(s *s390) {
		reference := s.reference
		s.reference = func(c *cpu, block uint64) (int64, trap) {
			result, t := reference(c, block)
			if result == s.abi.Errno("ESTABLISHED") {
				result = 0
			}
			return result, t
		}
	}, "pfault/established")
}

func s390OrderMutants(add s390Add) {
	order := func(name, text string, change func(s *s390, to *cpu, o s390Order, was func() int64) int64, rules ...string) *Mutant {
		return add(name, text, func(s *s390) {
			order := s.order
			s.order = func(c, to *cpu, o s390Order) int64 {
				return change(s, to, o, func() int64 { return order(c, to, o) })
			}
		}, rules...)
	}
	operands := func(name, text string, change func(s *s390, f s390Form, regs *[16]uint64, was s390Order) s390Order, rules ...string) *Mutant {
		return add(name, text, func(s *s390) {
			operands := s.operands
			s.operands = func(f s390Form, regs *[16]uint64) s390Order { return change(s, f, regs, operands(f, regs)) }
		}, rules...)
	}
	order("absent-invalid", "An order that is none is told for a CPU that is none, too.", func(s *s390, to *cpu, o s390Order, was func() int64) int64 {
		if to == nil && o.number >= s.abi.Word("first-free-order") {
			return s.abi.Errno("INVALID_ORDER")
		}
		return was()
	}, "sigp/absent-cpu")
	order("absent-accepted", "An external call to nobody is accepted.", func(s *s390, to *cpu, o s390Order, was func() int64) int64 {
		if to == nil && o.number == s.abi.Call("EXTERNAL_CALL").Number {
			return 0
		}
		return was()
	}, "sigp/absent-cpu")
	order("invalid-accepted", "The last of the free orders is accepted.", func(s *s390, to *cpu, o s390Order, was func() int64) int64 {
		if to != nil && o.number == s.abi.Word("last-free-order") {
			return 0
		}
		return was()
	}, "sigp/invalid-order")
	operands("order-9-bits", "Of the address 9 bits are the order.", func(_ *s390, f s390Form, regs *[16]uint64, was s390Order) s390Order {
		was.number = f.secondOperand(regs) & 0x1ff
		return was
	}, "sigp/order-byte")
	operands("order-64-bits", "The order is the whole address, but for its highest bit.", func(_ *s390, f s390Form, regs *[16]uint64, was s390Order) s390Order {
		was.number = f.secondOperand(regs) &^ (1 << 63)
		return was
	}, "sigp/order-byte")
	operands("order-base-alone", "The order is what is in the base register.", func(_ *s390, f s390Form, _ *[16]uint64, was s390Order) s390Order {
		was.number *= uint64(bit(f.base != 0))
		return was
	}, "sigp/order-from-address")
	operands("address-17-bits", "The address of a CPU has 17 bits.", func(_ *s390, f s390Form, regs *[16]uint64, was s390Order) s390Order {
		was.address = regs[f.r3] & 0x1ffff
		return was
	}, "sigp/address-width")
	operands("address-8-bits", "The address of a CPU has 8 bits.", func(_ *s390, _ s390Form, _ *[16]uint64, was s390Order) s390Order {
		was.address &= 0xff
		return was
	}, "sigp/absent-cpu")
	operands("parameter-next", "The parameter is always in the register after operand R1.", func(_ *s390, f s390Form, regs *[16]uint64, was s390Order) s390Order {
		was.parameter = regs[f.r1+1]
		return was
	}, "sigp/parameter-register")
	operands("parameter-first", "The parameter is always in operand R1.", func(_ *s390, f s390Form, regs *[16]uint64, was s390Order) s390Order {
		was.parameter = regs[f.r1]
		return was
	}, "sigp/parameter-register")
}

func s390StatusMutants(add s390Add) {
	answer := func(name, text string, change func(f s390Form, answer int64, regs *[16]uint64, was func()), rules ...string) {
		add(name, text, func(s *s390) {
			leave := s.answer
			s.answer = func(f s390Form, answer int64, regs *[16]uint64, flags *uint64) {
				change(f, answer, regs, func() { leave(f, answer, regs, flags) })
			}
		}, rules...)
	}
	answer("status-always", "An order that is accepted clears the status.", func(f s390Form, answer int64, regs *[16]uint64, was func()) {
		was()
		if answer == 0 {
			regs[f.r1] &^= 1<<32 - 1
		}
	}, "sigp/status-only-with-code-1")
	answer("status-64-bits", "A status clears the high half of operand R1.", func(f s390Form, answer int64, regs *[16]uint64, was func()) {
		if answer>>32 == 1 {
			regs[f.r1] = 0
		}
		was()
	}, "sigp/status-high-half")
	answer("order-register", "An order changes the parameter.", func(f s390Form, _ int64, regs *[16]uint64, was func()) {
		if f.r1%2 == 0 {
			regs[f.r1+1]++
		}
		was()
	}, "sigp/registers-preserved")
}

func s390SenseMutants(add s390Add) {
	sense := func(name, text string, change func(s *s390, to *cpu, was int64) int64, rules ...string) *Mutant {
		return add(name, text, func(s *s390) {
			sense := s.sense
			s.sense = func(to *cpu) int64 { return change(s, to, sense(to)) }
		}, rules...)
	}
	sense("waiting-stopped", "SENSE takes a CPU that waits for a stopped one.", func(s *s390, to *cpu, was int64) int64 {
		if to.state == idle && to.index == s390Target {
			return s.abi.Errno("STOPPED")
		}
		return was
	}, "sigp/sense-of-waiting")
	sense("running-pending", "SENSE tells of a CPU that runs that a call is pending.", func(s *s390, to *cpu, was int64) int64 {
		if to.state != idle && to.index == s390Target {
			return s.abi.Errno("EXT_CALL_PENDING")
		}
		return was
	}, "sigp/sense-of-running").Controls = []string{"sigp/sense-external-call-pending"}
	sense("pending-unseen", "SENSE does not tell of a call that is pending.", func(_ *s390, _ *cpu, was int64) int64 {
		if was &^= 0x80; was&0xff == 0 {
			return 0
		}
		return was
	},
		"sigp/sense-external-call-pending", "external-call/stopped-target").Controls = []string{"external-call/user-has-no-effect"}
	sense("stopped-unseen", "SENSE does not tell that a CPU is stopped.", func(s *s390, _ *cpu, was int64) int64 {
		if was &^= 0x40; was&0xff == 0 {
			return 0
		}
		return was
	}, "sigp/sense-of-stopped", "external-call/stopped-target").Controls = []string{"external-call/user-has-no-effect"}
	runs := func(name, text string, change func(s *s390, c *cpu, was bool) bool, rules ...string) *Mutant {
		return add(name, text, func(s *s390) {
			runs := s.runs
			s.runs = func(c *cpu) bool { return change(s, c, runs(c)) }
		}, rules...)
	}
	runs("stopped-runs", "A stopped CPU is told to run.", func(s *s390, c *cpu, was bool) bool { return was || s.of(c).stopped },
		"preempted/offline", "sigp/sense-running-of-stopped")
	runs("descheduled-runs", "A CPU that the host has taken off is told to run.", func(s *s390, c *cpu, was bool) bool { return was || c.state != idle },
		"preempted/descheduled")
	runs("self-not-running", "The calling CPU is told not to run.", func(_ *s390, c *cpu, was bool) bool { return was && c.index == s390Target },
		"sigp/sense-running-of-self").Controls = []string{"sigp/order-byte", "sigp/order-from-address", "sigp/address-width"}
	runs("running-preempted", "A CPU that has a program is told not to run.", func(_ *s390, c *cpu, was bool) bool { return was && (c.state == idle || c.index != s390Target) },
		"preempted/running").Controls = []string{"sigp/sense-running-of-stopped", "preempted/offline"}
}

func s390SignalMutants(add s390Add) {
	add("signal-lost", "An emergency signal does not reach a CPU that waits.", func(s *s390) {
		emergency := s.emergency
		s.emergency = func(from, to *cpu) int64 {
			if to.state == idle {
				return 0
			}
			return emergency(from, to)
		}
	}, "sigp/emergency-signal", "wait/ended-by-interrupt")
	add("signal-twice", "An emergency signal of another CPU interrupts twice.", func(s *s390) {
		emergency := s.emergency
		s.emergency = func(from, to *cpu) int64 {
			if from != to {
				defer func() { s.of(to).signals = append(s.of(to).signals, from.id) }()
			}
			return emergency(from, to)
		}
	}, "sigp/emergency-signal").Controls = []string{"sigp/emergency-signal-from-each"}
	add("signals-queued", "Emergency signals of one CPU are kept one by one.", func(s *s390) {
		s.emergency = func(from, to *cpu) int64 {
			s.of(to).signals = append(s.of(to).signals, from.id)
			return 0
		}
	}, "sigp/emergency-signal").Controls = []string{"sigp/emergency-signal-from-each"}
	add("signals-merged", "Emergency signals of two CPUs are one.", func(s *s390) {
		s.emergency = func(from, to *cpu) int64 {
			s.of(to).signals = []uint64{from.id}
			return 0
		}
	}, "sigp/emergency-signal-from-each")
	add("signal-status", "An emergency signal while one is pending is not accepted.", func(s *s390) {
		emergency := s.emergency
		s.emergency = func(from, to *cpu) int64 {
			if slices.Contains(s.of(to).signals, from.id) {
				return s.abi.Errno("BUSY") | s.abi.Errno("EXT_CALL_PENDING")
			}
			return emergency(from, to)
		}
	}, "sigp/emergency-signal")
	add("signal-code", "An emergency signal has the code of an external call.", func(s *s390) {
		take := s.take
		s.take = func(c *cpu, class string, address, code uint64) {
			if class == s390Signal {
				code = s390CallCode
			}
			take(c, class, address, code)
		}
	}, "sigp/emergency-signal-from-each")
	add("conditional-refused", "A conditional emergency signal is refused by a CPU that is not stopped.", func(s *s390) {
		s.conditional = func(*cpu, *cpu) int64 { return s.abi.Errno("INCORRECT_STATE") }
	}, "sigp/conditional-emergency")
	add("conditional-lost", "A conditional emergency signal is accepted, and lost.", func(s *s390) {
		s.conditional = func(*cpu, *cpu) int64 { return 0 }
	}, "sigp/conditional-emergency")
}

func s390CallMutants(add s390Add) {
	call := func(name, text string, change func(s *s390, from, to *cpu, was func() int64) int64, rules ...string) *Mutant {
		return add(name, text, func(s *s390) {
			call := s.call1
			s.call1 = func(from, to *cpu) int64 {
				return change(s, from, to, func() int64 { return call(from, to) })
			}
		}, rules...)
	}
	call("call-lost", "An external call does not reach a CPU that waits.", func(s *s390, _, to *cpu, was func() int64) int64 {
		if to.state == idle && !s.of(to).stopped {
			return 0
		}
		return was()
	}, "external-call/wakes-waiter").Controls = []string{"yield/does-not-wake"}
	call("call-not-kept", "An external call does not reach a CPU that is not enabled for it.", func(_ *s390, from, to *cpu, was func() int64) int64 {
		if to.state != idle && !to.interrupts && from != to {
			return 0
		}
		return was()
	}, "external-call/kept", "external-call/second", "external-call/names-sender", "sigp/sense-external-call-pending")
	call("second-accepted", "An external call takes the place of one that is pending.", func(s *s390, from, to *cpu, _ func() int64) int64 {
		s.of(to).call = &from.id
		return 0
	}, "external-call/second", "external-call/stopped-target")
	call("call-to-self-lost", "An external call to oneself is lost.", func(_ *s390, from, to *cpu, was func() int64) int64 {
		if from == to {
			return 0
		}
		return was()
	}, "external-call/self", "external-call/names-sender")
	call("stopped-not-called", "A stopped CPU is not operational for an external call.", func(s *s390, _, to *cpu, was func() int64) int64 {
		if s.of(to).stopped {
			return s.abi.Errno("NOT_OPERATIONAL")
		}
		return was()
	}, "external-call/stopped-target").Controls = []string{"external-call/user-has-no-effect"}
	taken := func(name, text string, change func(c *cpu, address, code uint64, take func(address, code uint64)), rules ...string) {
		add(name, text, func(s *s390) {
			was := s.take
			s.take = func(c *cpu, class string, address, code uint64) {
				take := func(address, code uint64) { was(c, class, address, code) }
				if class == s390Call {
					change(c, address, code, take)
				} else {
					take(address, code)
				}
			}
		}, rules...)
	}
	taken("call-twice", "A CPU that has a program is interrupted twice by an external call.", func(c *cpu, address, code uint64, take func(address, code uint64)) {
		take(address, code)
		if c.state != idle {
			take(address, code)
		}
	}, "external-call/once", "external-call/kept", "external-call/second", "external-call/self")
	taken("sender-unnamed", "An external call has the address of its target.", func(c *cpu, _, code uint64, take func(address, code uint64)) { take(c.id, code) },
		"external-call/names-sender")
	taken("call-code", "An external call has the code of an emergency signal.", func(_ *cpu, address, _ uint64, take func(address, code uint64)) { take(address, s390SignalCode) },
		"external-call/names-sender")
}

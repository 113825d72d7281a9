package model

import (
	"pvabi/abi"
	"pvabi/arch/ppc64le"
)

type paprAdd = func(name, text string, change func(p *papr), rules ...string) *Mutant

// paprMutants are mistakes that an implementer of powerpc-papr could make, by topic.
func paprMutants() []Mutant {
	var ms []Mutant
	add := func(name, text string, change func(p *papr), rules ...string) *Mutant {
		ms = append(ms, Mutant{Name: name, Text: text, Rules: rules, Open: openPAPR(change)})
		return &ms[len(ms)-1]
	}
	for _, topic := range []func(paprAdd){paprCallMutants, paprKickMutants, paprConferMutants, paprAreaMutants, paprCountMutants, paprTraceMutants} {
		topic(add)
	}
	return ms
}

// paprResult has a call give another result, or be something else altogether.
func paprResult(p *papr, name string, change func(c *cpu, regs *[16]uint64, was func() int64) int64) {
	carry := p.call1
	p.call1 = func(c *cpu, k abi.Call, regs *[16]uint64) int64 {
		was := func() int64 { return carry(c, k, regs) }
		if k.Name == name {
			return change(c, regs, was)
		}
		return was()
	}
}

func paprCallMutants(add paprAdd) {
	add("set-incomplete", "A call of a function set that is offered is missing.", func(p *papr) { p.lacks = []string{"PURR"} },
		"discovery/function-set-complete")
	add("shared-differs", "One CPU does not share processors.", func(p *papr) {
		register := p.register
		p.register = func(c *cpu, function int64, address uint64) int64 {
			r := register(c, function, address)
			if function == paprVPA && r == 0 && c.index == 2 {
				p.put(address, "__old_status", 0)
			}
			return r
		}
	}, "discovery/shared-processor")
	add("register-lost", "A call changes a register that it has to keep.", func(p *papr) {
		p.restore = func(_ *cpu, _ [16]uint64, after *[16]uint64) { after[ppc64le.ISA.Register("r14")]++ }
	}, "convention/registers-preserved", "convention/reduced-kill-set")
	add("link-lost", "A call changes the link register.", func(p *papr) {
		p.restore = func(_ *cpu, _ [16]uint64, after *[16]uint64) { after[ppc64le.ISA.Register("lr")]++ }
	}, "convention/special-registers-preserved")
	add("prod-kills", "PROD and CONFER leave other values in volatile registers.", func(p *papr) {
		p.restore = func(_ *cpu, _ [16]uint64, after *[16]uint64) { after[ppc64le.ISA.Register("r7")] = 0 }
	}, "convention/reduced-kill-set")
	add("confer-no-status", "A confer leaves its number in r3.", func(p *papr) {
		paprResult(p, "CONFER", func(_ *cpu, regs *[16]uint64, _ func() int64) int64 { return int64(regs[paprR3]) })
	}, "convention/status-stored", "yield/running-target", "yield/waiting-target", "yield/absent-target",
		"confer/all-processors", "confer/matching-odd-count", "confer/count-high-half", "confer/even-count", "confer/stale-count",
		"confer/without-area", "confer/self-waits", "confer/self-prodded")
	add("user-parameter", "A call from problem state gives PARAMETER.", func(p *papr) {
		p.user = func(_ *cpu, regs *[16]uint64) { regs[paprR3] = uint64(p.abi.Errno("PARAMETER")) }
	}, "privilege/user-refused", "privilege/user-refused-undefined")
	add("user-prods", "A prod from problem state is refused, and carried out.", func(p *papr) {
		p.user = func(_ *cpu, regs *[16]uint64) {
			if regs[paprR3] == p.abi.Call("PROD").Number {
				if to := p.absent(regs[ppc64le.ISA.Register("r4")]); to != nil {
					p.prod(to)
				}
			}
			regs[paprR3] = uint64(p.abi.Errno("PRIVILEGE"))
		}
	}, "privilege/user-has-no-effect")
	number := func(name, text string, taken func(n uint64) bool, rules ...string) {
		add(name, text, func(p *papr) {
			p.unknown = func(n uint64) int64 {
				if taken(n) {
					return 0
				}
				return p.abi.Errno("FUNCTION")
			}
		}, rules...)
	}
	number("undefined-accepted", "The last of the free numbers gives 0.", func(n uint64) bool { return n == abi.PowerPCPAPR().Word("last-free") }, "number/undefined")
	number("odd-accepted", "Numbers are cut to multiples of four.", func(n uint64) bool { return n < 0x400 && n%4 == 3 }, "number/not-multiple-of-four")
	number("extreme-accepted", "The number 2^63 gives 0.", func(n uint64) bool { return n == 1<<63 }, "number/extreme")
	number("high-half-cut", "Of a number the low half counts.", func(n uint64) bool { return n>>32 == 1 && n&(1<<32-1) < 0x400 }, "number/high-half")
	add("cede-status", "A cede that a prod ended gives 1.", func(p *papr) {
		paprResult(p, "CEDE", func(c *cpu, _ *[16]uint64, was func() int64) int64 {
			p.of(c).why = paprByInterrupt
			was()
			return int64(p.of(c).why) / paprByProd % 2
		})
	}, "number/cede")
}

func paprKickMutants(add paprAdd) {
	add("prod-not-kept", "A prod reaches only who waits already.", func(p *papr) {
		p.prod = func(to *cpu) { p.of(to).prodded = p.of(to).wait != paprRuns }
	}, "kick/before-wait", "kick/two-kicks", "kick/self", "kick/running-target", "join/prod-before")
	add("prod-not-spent", "A prod that ended a wait is kept for the next.", func(p *papr) {
		cede := p.cede
		p.cede = func(c *cpu) int64 {
			r := cede(c)
			p.of(c).prodded = p.of(c).why == paprByProd && !p.of(c).again
			p.of(c).again = p.of(c).prodded
			return r
		}
	}, "kick/spent")
	add("prod-takes-low-half", "Of a CPU's number in a prod the low half counts.", func(p *papr) {
		find := p.absent
		p.absent = func(id uint64) *cpu { return find(uint64(uint32(id))) }
	}, "kick/target-high-half")
	add("prod-absent-accepted", "A prod of a CPU that does not exist gives 0.", func(p *papr) {
		paprResult(p, "PROD", func(_ *cpu, _ *[16]uint64, was func() int64) int64 { was(); return 0 })
	}, "kick/absent-target", "kick/target-high-half", "kick/result")
	add("prod-absent-wakes", "A prod of a CPU that does not exist prods them all.", func(p *papr) {
		paprResult(p, "PROD", func(_ *cpu, _ *[16]uint64, was func() int64) int64 {
			r := was()
			if r != 0 {
				for _, c := range p.m.cpus {
					p.prod(c)
				}
			}
			return r
		})
	}, "kick/absent-target", "kick/target-high-half")
	add("prod-self-refused", "A CPU cannot prod itself.", func(p *papr) {
		paprResult(p, "PROD", func(c *cpu, regs *[16]uint64, was func() int64) int64 {
			if p.absent(regs[ppc64le.ISA.Register("r4")]) == c {
				return p.abi.Errno("PARAMETER")
			}
			return was()
		})
	}, "kick/self", "kick/result")
	add("interrupt-lost", "An interrupt does not end a wait.", func(p *papr) {
		pending := p.pending
		p.pending = func(c *cpu) bool { return pending(c) && (p.of(c).prodded || !p.of(c).external) }
	}, "wait/ended-by-interrupt")
	add("interrupt-keeps-prod", "An interrupt that ends a wait leaves the prod.", func(p *papr) {
		cede := p.cede
		p.cede = func(c *cpu) int64 {
			kept := p.of(c).prodded && p.expired(c)
			r := cede(c)
			p.of(c).prodded = kept
			return r
		}
	}, "wait/interrupt-eats-kick")
	add("cede-keeps-interrupts", "A cede leaves interrupts as they were.", func(p *papr) {
		cede := p.cede
		p.cede = func(c *cpu) int64 {
			on := c.interrupts
			r := cede(c)
			c.interrupts = on
			return r
		}
	}, "wait/enables-interrupts").Controls = []string{ // of a join that is to be refused because of interrupts
		"discovery/function-set-complete", "convention/instruction", "convention/instruction-length", "convention/status-stored",
		"convention/registers-preserved", "convention/special-registers-preserved", "convention/reduced-kill-set",
		"privilege/user-refused", "privilege/user-refused-undefined",
	}
}

func paprConferMutants(add paprAdd) {
	confer := func(name, text string, change func(p *papr, c *cpu, id, count uint64, was func() int64) int64, rules ...string) *Mutant {
		return add(name, text, func(p *papr) {
			was := p.confer
			p.confer = func(c *cpu, id, count uint64) int64 {
				return change(p, c, id, count, func() int64 { return was(c, id, count) })
			}
		}, rules...)
	}
	confer("confer-wakes", "A confer to a CPU that waits prods it.", func(p *papr, c *cpu, id, _ uint64, was func() int64) int64 {
		if to := p.absent(uint64(uint32(id))); to != nil && to != c {
			p.prod(to)
		}
		return was()
	}, "yield/does-not-wake").Controls = []string{
		"confer/all-processors", "confer/matching-odd-count", "confer/count-high-half", "confer/even-count", "confer/stale-count", "confer/without-area",
	}
	confer("confer-absent-accepted", "A confer to a CPU that does not exist gives 0.", func(_ *papr, _ *cpu, _, _ uint64, was func() int64) int64 {
		was()
		return 0
	}, "yield/absent-target")
	confer("confer-even-refused", "A confer with an even count is refused.", func(p *papr, c *cpu, id, count uint64, was func() int64) int64 {
		if to := p.absent(uint64(uint32(id))); to != nil && to != c && count%2 == 0 && count != 0 {
			return p.abi.Errno("PARAMETER")
		}
		return was()
	}, "confer/even-count")
	confer("confer-count-64", "All 64 bits of the count are looked at, and others than those of a count refused.", func(p *papr, _ *cpu, _, count uint64, was func() int64) int64 {
		if count>>32 != 0 {
			return p.abi.Errno("PARAMETER")
		}
		return was()
	}, "confer/count-high-half", "confer/stale-count")
	confer("confer-self-returns", "A confer to oneself does not wait.", func(p *papr, c *cpu, id, _ uint64, was func() int64) int64 {
		if p.absent(uint64(uint32(id))) == c {
			return 0
		}
		return was()
	}, "confer/self-waits", "confer/self-prodded")
	confer("confer-enables", "A confer turns interrupts on.", func(_ *papr, c *cpu, _, _ uint64, was func() int64) int64 {
		c.interrupts = true
		return was()
	}, "confer/keeps-interrupts")
	add("join-interrupts-on", "A join with interrupts on is taken, and ends at once.", func(p *papr) {
		join := p.join
		p.join = func(c *cpu) int64 {
			if c.interrupts {
				return 0
			}
			return join(c)
		}
	}, "join/interrupts-on")
	add("join-decrementer", "The decrementer ends a join.", func(p *papr) {
		pending := p.pending
		p.pending = func(c *cpu) bool { return pending(c) || p.expired(c) }
	}, "join/not-ended-by-decrementer")
	add("join-enables", "Interrupts are on after a join.", func(p *papr) {
		join := p.join
		p.join = func(c *cpu) int64 {
			r := join(c)
			c.interrupts = true
			return r
		}
	}, "join/keeps-interrupts-off")
}

func paprAreaMutants(add paprAdd) {
	add("area-outside", "An area outside of memory is refused for another reason.", func(p *papr) {
		checks := p.checks
		p.checks = func(function int64, address uint64) int64 {
			if address == 1<<50 {
				return p.abi.Errno("RESOURCE")
			}
			return checks(function, address)
		}
	}, "vpa/outside-memory")
	add("area-zero", "An area at address zero is refused as a fault of the hardware.", func(p *papr) {
		checks := p.checks
		p.checks = func(function int64, address uint64) int64 {
			if address == 0 {
				return p.abi.Errno("HARDWARE")
			}
			return checks(function, address)
		}
	}, "vpa/zero-address")
	for _, f := range []struct {
		name     string
		function int64
		short    string
		crossing string
		crooked  string
	}{
		{"vpa", paprVPA, "vpa/too-short", "vpa/crosses-boundary", "vpa/unaligned"},
		{"trace", paprDTL, "vpa/trace-too-short", "", "vpa/trace-unaligned"},
		{"shadow", paprSLB, "vpa/shadow-too-short", "vpa/shadow-crosses-boundary", "vpa/shadow-unaligned"},
	} {
		m := add(f.name+"-short", "An area that is too short by one byte is taken.", func(p *papr) {
			long := p.length
			p.length = func(function int64, length uint64) bool {
				return long(function, length) || function == f.function && long(function, length+1)
			}
		}, f.short)
		if f.function == paprDTL {
			m.Rules = append(m.Rules, "vpa/trace-order")
		}
		if f.crossing != "" {
			add(f.name+"-crosses", "An area that crosses the boundary is taken.", func(p *papr) {
				across := p.across
				p.across = func(function int64, address, length uint64) bool {
					return function != f.function && across(function, address, length)
				}
			}, f.crossing)
		}
		add(f.name+"-unaligned", "An area that is not aligned is taken.", func(p *papr) {
			aligned := p.aligned
			p.aligned = func(function int64, address uint64) bool { return function == f.function || aligned(function, address) }
		}, f.crooked)
	}
	add("trace-without-area", "A dispatch trace log is taken without an area.", func(p *papr) {
		register := p.register
		p.register = func(c *cpu, function int64, address uint64) int64 {
			if r := register(c, function, address); function != paprDTL || r != p.abi.Errno("RESOURCE") {
				return r
			}
			return 0
		}
	}, "vpa/trace-without-area")
	add("deregister-with-trace", "An area goes while a trace log is there.", func(p *papr) {
		register := p.register
		p.register = func(c *cpu, function int64, address uint64) int64 {
			if s := p.of(c); function == paprOffVPA && s.dtl != 0 {
				return 0
			}
			return register(c, function, address)
		}
	}, "vpa/deregister-with-trace")
	add("deregister-absent-refused", "Taking back what is not registered is refused.", func(p *papr) {
		register := p.register
		p.register = func(c *cpu, function int64, address uint64) int64 {
			if function == paprOffDTL && p.of(c).dtl == 0 {
				return p.abi.Errno("RESOURCE")
			}
			return register(c, function, address)
		}
	}, "vpa/deregister-absent")
	add("register-first-wins", "The first registration of an area wins.", func(p *papr) {
		register := p.register
		p.register = func(c *cpu, function int64, address uint64) int64 {
			s := p.of(c)
			had := s.vpa
			r := register(c, function, address)
			if function == paprVPA && r == 0 && had != 0 && address != s.own {
				if had != s.own {
					s.vpa = had
				}
			}
			return r
		}
	}, "vpa/register-again")
	add("refused-takes-effect", "A registration that is refused for its alignment takes effect.", func(p *papr) {
		register := p.register
		p.register = func(c *cpu, function int64, address uint64) int64 {
			r := register(c, function, address)
			if function == paprVPA && r != 0 && address%128 == 64 {
				if up := address + 64; p.m.mapped(up, p.abi.Layout("lppaca").Size) {
					p.of(c).vpa = address - 64
				}
			}
			return r
		}
	}, "vpa/refused-has-no-effect")
	add("deregistered-written", "An area is written on when it was taken back.", func(p *papr) {
		register := p.register
		p.register = func(c *cpu, function int64, address uint64) int64 {
			had := p.of(c).vpa
			r := register(c, function, address)
			if function == paprOffVPA && r == 0 && had != p.of(c).own {
				p.of(c).vpa = had
			}
			return r
		}
	}, "vpa/deregistered-not-written")
	add("guest-fields-written", "A dispatch clears a field of the guest's.", func(p *papr) {
		dispatch := p.dispatch
		p.dispatch = func(c *cpu) {
			dispatch(c)
			if at := p.of(c).vpa; at != 0 {
				p.put(at, "fpregs_in_use", 0)
			}
		}
	}, "vpa/guest-fields-untouched")
}

func paprCountMutants(add paprAdd) {
	count := func(name, text string, change func(p *papr, c *cpu, dispatched bool, n uint64) uint64, rules ...string) *Mutant {
		return add(name, text, func(p *papr) {
			both := func(was func(c *cpu), dispatched bool) func(c *cpu) {
				return func(c *cpu) {
					at := p.of(c).vpa
					if at == 0 {
						return
					}
					n := p.get(at, "yield_count")
					was(c)
					p.put(at, "yield_count", change(p, c, dispatched, n))
				}
			}
			p.dispatch, p.undone = both(p.dispatch, true), both(p.undone, false)
		}, rules...)
	}
	count("count-not-corrected", "yield_count becomes one more at each dispatch, whatever it was.", func(_ *papr, _ *cpu, _ bool, n uint64) uint64 { return n + 1 },
		"count/corrects-parity")
	count("count-falls", "A wait takes two from yield_count.", func(_ *papr, _ *cpu, dispatched bool, n uint64) uint64 {
		if dispatched {
			return n&^1 - 2
		}
		return n | 1
	}, "count/rises-over-wait", "count/never-falls")
	add("steal-falls", "The time of waiting for a processor is set, not added to.", func(p *papr) {
		dispatch := p.dispatch
		p.dispatch = func(c *cpu) {
			dispatch(c)
			if at := p.of(c).vpa; at != 0 {
				p.put(at, "ready_enqueue_tb", 1<<20-p.get(at, "yield_count"))
			}
		}
	}, "steal/monotonic")
}

func paprTraceMutants(add paprAdd) {
	trace := func(name, text string, change func(p *papr, c *cpu, was func(c *cpu)), rules ...string) *Mutant {
		return add(name, text, func(p *papr) {
			was := p.trace
			p.trace = func(c *cpu) { change(p, c, was) }
		}, rules...)
	}
	trace("trace-empty", "Nothing is written to the trace log.", func(*papr, *cpu, func(*cpu)) {},
		"trace/entry", "trace/timebase", "trace/reason-prod", "trace/wraps").Controls = []string{"trace/mask-zero"}
	trace("trace-mask-ignored", "The trace log is written whatever the mask is.", func(p *papr, c *cpu, was func(*cpu)) {
		at := p.of(c).vpa
		mask := p.get(at, "dtl_enable_mask")
		p.put(at, "dtl_enable_mask", 1)
		was(c)
		p.put(at, "dtl_enable_mask", mask)
	}, "trace/mask-zero")
	trace("trace-reason", "Every dispatch has the reason of a time slice's end.", func(p *papr, c *cpu, was func(*cpu)) {
		p.of(c).why = paprByTimeSlice
		was(c)
	}, "trace/reason-prod")
	trace("trace-length", "The trace log has one entry more than there is room for.", func(p *papr, c *cpu, was func(*cpu)) {
		s := p.of(c)
		had := s.dtlLength
		s.dtlLength += p.abi.Layout("dtl_entry").Size
		was(c)
		s.dtlLength = had
	}, "trace/wraps")
	trace("trace-time", "An entry has half of the time base.", func(p *papr, c *cpu, was func(*cpu)) {
		clock := p.m.clock
		p.m.clock /= 4
		was(c)
		p.m.clock = clock
	}, "trace/timebase", "trace/reason-prod")
}

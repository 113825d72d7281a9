package model

import "pvabi/abi"

func x86RegisterMutants(add x86Add) {
	add("poll-off-at-first", "POLL_CONTROL is zero when a CPU is made.", func(x *x86KVM) {
		for i := range x.cpus {
			x.cpus[i].msr["POLL_CONTROL"] = 0
		}
	}, "register/reset-values")
	add("init-resets-poll", "An INIT sets POLL_CONTROL.", func(x *x86KVM) {
		x.alterInit(func(s *x86CPU, _ map[string]uint64) { s.msr["POLL_CONTROL"] = 1 })
	}, "register/after-init")
	add("init-resets-wall-clock", "An INIT clears WALL_CLOCK.", func(x *x86KVM) {
		x.alterInit(func(*x86CPU, map[string]uint64) { x.wallClock = 0 })
	}, "register/after-init")
	add("init-keeps-vector", "An INIT leaves ASYNC_PF_INT.", x86InitKeeps("ASYNC_PF_INT"), "register/after-init")
	add("poll-shared", "POLL_CONTROL is one register for all CPUs.", func(x *x86KVM) {
		setMSR := x.setMSR
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
			ok := setMSR(c, r, v)
			if ok && r.Name == "POLL_CONTROL" {
				for i := range x.cpus {
					x.cpus[i].msr[r.Name] = v
				}
			}
			return ok
		}
	}, "register/reads-back")
	add("wall-clock-per-cpu", "Each CPU reads the WALL_CLOCK_NEW that it wrote itself.", func(x *x86KVM) {
		setMSR, getMSR := x.setMSR, x.getMSR
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool { x.state(c).msr[r.Name+" own"] = v; return setMSR(c, r, v) }
		x.getMSR = func(c *cpu, r abi.Register) uint64 {
			if r.Name == "WALL_CLOCK_NEW" {
				return x.state(c).msr[r.Name+" own"]
			}
			return getMSR(c, r)
		}
	}, "register/reads-back")
	add("vector-reads-zero", "ASYNC_PF_INT cannot be read back.", func(x *x86KVM) {
		getMSR := x.getMSR
		x.getMSR = func(c *cpu, r abi.Register) uint64 {
			if r.Name == "ASYNC_PF_INT" {
				return 0
			}
			return getMSR(c, r)
		}
	}, "register/reads-back", "register/reserved-bits")
	for _, r := range []struct {
		name, register string
		taken          uint64
	}{
		{"poll-bit-1", "POLL_CONTROL", 1 << 1}, {"poll-bit-40", "POLL_CONTROL", 1 << 40}, {"vector-bit-8", "ASYNC_PF_INT", 1 << 8},
		{"async-pf-bit-4", "ASYNC_PF_EN", 1 << 4}, {"eoi-unaligned", "PV_EOI_EN", 1 << 1},
	} {
		add("reserved-"+r.name, "A reserved bit of "+r.register+" is taken.", func(x *x86KVM) {
			x.set("registers/"+r.register+"/reserved", int64(x.abi.Register(r.register).Reserved&^r.taken))
		}, "register/reserved-bits")
	}
	add("undefined-register", "A number that means nothing is another name of POLL_CONTROL.", func(x *x86KVM) {
		find := x.find
		x.find = func(c *cpu, n uint64) (abi.Register, bool) {
			if n == 0x4b564d80 {
				n = x.abi.Register("POLL_CONTROL").Number
			}
			return find(c, n)
		}
	}, "register/undefined")
	add("migration-accepted", "The kernel has MIGRATION_CONTROL.", func(x *x86KVM) {
		find := x.find
		x.find = func(c *cpu, n uint64) (abi.Register, bool) {
			if r := x.abi.Register("MIGRATION_CONTROL"); n == r.Number {
				return r, true
			}
			return find(c, n)
		}
	}, "register/undefined")
	add("register-gate-ignored", "Hidden features are enforced for calls only.", func(x *x86KVM) {
		x.find = func(c *cpu, n uint64) (abi.Register, bool) {
			offered := x.offered
			x.offered = func(*cpu, string) bool { return true }
			defer func() { x.offered = offered }()
			return x.register(c, n)
		}
	}, "register/gated-enforced")
	add("register-gate-wrong", "SYSTEM_TIME_NEW is gated by the feature of SYSTEM_TIME.", func(x *x86KVM) {
		for i := range x.abi.Registers {
			if r := &x.abi.Registers[i]; r.Name == "SYSTEM_TIME_NEW" {
				r.Feature = "CLOCKSOURCE"
			}
		}
	}, "register/gated-enforced", "register/gated-offered")
	add("control-bit-accepted", "DELIVERY_AS_INT is taken whatever is offered.", func(x *x86KVM) {
		setMSR := x.setMSR
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
			if r.Name == "ASYNC_PF_EN" && !x.offered(c, "ASYNC_PF_INT") {
				v &^= r.Bit("DELIVERY_AS_INT")
			}
			return setMSR(c, r, v)
		}
	}, "register/control-bits-gated")
	add("no-apic-needed", "ASYNC_PF_INT can be written without a local APIC.", func(x *x86KVM) {
		setMSR := x.setMSR
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
			return setMSR(c, r, v) || r.Name == "ASYNC_PF_INT" && v&r.Reserved == 0
		}
	}, "register/needs-apic")
}

func x86AreaMutants(add x86Add) {
	for _, a := range []struct {
		topic, register string
		// write has the hypervisor also write something else when it writes the area.
		write func(x *x86KVM, also func(c *cpu))
	}{
		{"steal", "STEAL_TIME", func(x *x86KVM, also func(*cpu)) {
			record := x.record
			x.record = func(c *cpu) { record(c); also(c) }
		}},
		{"clock", "SYSTEM_TIME_NEW", func(x *x86KVM, also func(*cpu)) {
			update := x.updateClock
			x.updateClock = func(c *cpu) { update(c); also(c) }
		}},
		{"eoi", "PV_EOI_EN", func(x *x86KVM, also func(*cpu)) {
			sync := x.eoiToGuest
			x.eoiToGuest = func(c *cpu) {
				if x.state(c).eoi.cache != 0 {
					also(c)
				}
				sync(c)
			}
		}},
		{"async-pf", "ASYNC_PF_EN", func(x *x86KVM, also func(*cpu)) {
			absent := x.absent
			x.absent = func(c *cpu) { absent(c); also(c) }
		}},
	} {
		// stale has the hypervisor go on to write an area after a change of the register.
		stale := func(changed func(r abi.Register, was, is uint64) bool) func(*x86KVM) {
			return func(x *x86KVM) {
				old := map[*cpu]uint64{}
				setMSR := x.setMSR
				x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
					was := x.state(c).msr[a.register]
					ok := setMSR(c, r, v)
					is := x.state(c).msr[a.register]
					switch {
					case !ok || r.Name != a.register:
					case changed(r, was, is) && x.m.mapped(was&^0x1f, 1):
						old[c] = was
					default:
						delete(old, c)
					}
					return ok
				}
				a.write(x, func(c *cpu) {
					if at := old[c] &^ 0x1f; at != 0 {
						x.m.store(at, 1, 0x5a)
					}
				})
			}
		}
		add(a.topic+"-writes-old", "The hypervisor goes on to write the area at the address before.", stale(func(r abi.Register, was, is uint64) bool {
			return was&r.Enable != 0 && is&r.Enable != 0 && was != is
		}), a.topic+"/area-moved")
		disabled := a.topic + "/area-disabled"
		if a.topic == "steal" {
			disabled = "steal/disabled"
		}
		add(a.topic+"-writes-disabled", "The hypervisor goes on to write an area that was disabled.", stale(func(r abi.Register, was, is uint64) bool {
			return was&r.Enable != 0 && is&r.Enable == 0
		}), disabled)
		add(a.topic+"-kept-by-init", "An INIT leaves "+a.register+".", x86InitKeeps(a.register), "register/after-init", a.topic+"/area-after-init")
		if a.topic != "steal" {
			add(a.topic+"-writes-around", "The hypervisor writes the byte before the area.", func(x *x86KVM) {
				a.write(x, func(c *cpu) {
					if msr := x.state(c).msr[a.register]; msr&1 != 0 && x.m.mapped(msr&^0x1f-1, 1) {
						x.m.store(msr&^0x1f-1, 1, 0x5a)
					}
				})
			}, a.topic+"/area-written")
		}
		if r := a.register; a.topic == "steal" || a.topic == "clock" {
			add(a.topic+"-outside-refused", r+" refuses an address outside of memory.", func(x *x86KVM) {
				setMSR := x.setMSR
				x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
					return (r.Name != a.register || v&r.Enable == 0 || x.m.mapped(v&^0x3f, 8)) && setMSR(c, r, v)
				}
			}, a.topic+"/area-outside-memory")
		} else {
			add(a.topic+"-outside-accepted", r+" takes an address outside of memory.", func(x *x86KVM) {
				setMSR := x.setMSR
				x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
					if r.Name == a.register && v&r.Enable != 0 && v&r.Reserved == 0 && !x.m.mapped(v&^0x3f, 8) {
						x.state(c).msr[r.Name] = v
						return true
					}
					return setMSR(c, r, v)
				}
			}, a.topic+"/area-outside-memory")
		}
	}
	add("eoi-word-of-4", "The end-of-interrupt word is written as one of 4 bytes.", func(x *x86KVM) {
		sync := x.eoiToGuest
		x.eoiToGuest = func(c *cpu) {
			sync(c)
			if a, ok := x.eoiArea(c); ok && x.state(c).eoi.pending {
				x.m.store(a.address, 4, a.get("word"))
			}
		}
	}, "eoi/area-written")
	add("async-pf-writes-padding", "The hypervisor clears the padding of the area for page faults.", func(x *x86KVM) {
		absent := x.absent
		x.absent = func(c *cpu) {
			absent(c)
			if a, ok := x.faultArea(c); ok {
				x.m.store(a.address+8, 8, 0)
			}
		}
	}, "async-pf/area-written")
}

func x86ClockMutants(add x86Add) {
	add("clock-version-odd", "Version of the clock stays odd after an update.", func(x *x86KVM) {
		x.alterClock(func(a x86Area, _ *cpu) { a.set("version", a.get("version")|1) })
	}, "clock/version-even").Controls = []string{"clock/version-protocol"}
	add("clock-version-unused", "Version of the clock is as it was after an update.", func(x *x86KVM) {
		update := x.updateClock
		x.updateClock = func(c *cpu) {
			a, ok := x.clockArea(c)
			if !ok {
				return
			}
			was := a.get("version")
			update(c)
			a.set("version", was)
		}
	}, "clock/area-written", "clock/version-even", "clock/version-protocol")
	add("clock-torn", "The clock's stamp is written in two parts, after version has become even.", func(x *x86KVM) {
		x.alterClock(func(a x86Area, c *cpu) {
			at, stamp := a.address+a.layout.Field("tsc_timestamp").Offset, a.get("tsc_timestamp")
			x.m.store(at, 4, stamp-0x1111)
			c.pause()
			x.m.store(at, 4, stamp)
		})
	}, "clock/version-protocol")
	add("clock-ahead", "The clock of one CPU is ahead of the others'.", func(x *x86KVM) {
		x.alterClock(func(a x86Area, c *cpu) {
			if c.index == 2 {
				a.set("system_time", a.get("system_time")+second)
			}
		})
	}, "clock/order-across-cpus")
	add("clock-slow", "The clock's multiplier is half of what it should be.", func(x *x86KVM) {
		x.alterClock(func(a x86Area, _ *cpu) {
			a.set("tsc_to_system_mul", x86Multiplier/2)
			a.set("system_time", a.get("system_time")-second)
		})
	}, "clock/wall-clock")
	add("wall-clock-late", "The wall clock is a second late.", func(x *x86KVM) {
		x.alterWallClock(func(a x86Area) { a.set("sec", a.get("sec")-1) })
	}, "clock/wall-clock")
	add("wall-clock-nanoseconds", "Nanoseconds of the wall clock are more than a second.", func(x *x86KVM) {
		x.alterWallClock(func(a x86Area) { a.set("sec", a.get("sec")-1); a.set("nsec", a.get("nsec")+second) })
	}, "clock/wall-clock")
	add("wall-clock-version-odd", "Version of the wall clock stays odd.", func(x *x86KVM) {
		x.alterWallClock(func(a x86Area) { a.set("version", a.get("version")|1) })
	}, "clock/wall-clock")
	add("wall-clock-wide", "The wall clock has seconds of 64 bits.", func(x *x86KVM) {
		x.alterWallClock(func(a x86Area) { x.m.store(a.address+a.layout.Size, 4, 0) })
	}, "clock/wall-clock-once")
	add("wall-clock-rewritten", "The wall clock is written at each update of a clock, too.", func(x *x86KVM) {
		x.alterClock(func(x86Area, *cpu) { x.wallTime(x.wallClock) })
	}, "clock/wall-clock-once")
	add("wall-clock-first-cpu", "The wall clock is written for the CPU that wrote the register first.", func(x *x86KVM) {
		var first *cpu
		setMSR, wallTime := x.setMSR, x.wallTime
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
			if first == nil && r.Name == "WALL_CLOCK_NEW" {
				first = c
			}
			x.wallTime = func(at uint64) {
				if first == nil || first == c {
					wallTime(at)
				}
			}
			return setMSR(c, r, v)
		}
	}, "clock/wall-clock-once")
	add("stopped-never", "GUEST_STOPPED is never set.", func(x *x86KVM) {
		update := x.updateClock
		x.updateClock = func(c *cpu) { x.state(c).clock.stopped = false; update(c) }
	}, "clock/guest-stopped")
	add("stopped-lost", "GUEST_STOPPED is not kept through an update.", func(x *x86KVM) {
		told := map[*cpu]bool{}
		x.alterClock(func(a x86Area, c *cpu) {
			if told[c] {
				a.set("flags", a.get("flags")&^a.layout.Bit("flags", "GUEST_STOPPED"))
			}
			told[c] = a.get("flags")&a.layout.Bit("flags", "GUEST_STOPPED") != 0
		})
	}, "clock/guest-stopped")
	add("stopped-for-good", "GUEST_STOPPED is set again at each update.", func(x *x86KVM) {
		told := map[*cpu]bool{}
		x.alterClock(func(a x86Area, c *cpu) {
			bit := a.layout.Bit("flags", "GUEST_STOPPED")
			told[c] = told[c] || a.get("flags")&bit != 0
			if told[c] {
				a.set("flags", a.get("flags")|bit)
			}
		})
	}, "clock/guest-stopped")
}

func x86EOIMutants(add x86Add) {
	areas := []string{"eoi/area-written", "eoi/area-moved", "eoi/area-disabled", "eoi/area-outside-memory", "eoi/area-after-init"}
	add("eoi-never", "ENABLED is never set.", func(x *x86KVM) {
		x.eoiToGuest = func(*cpu) {}
	}, "eoi/set-in-service").Controls = append([]string{"eoi/clearing-ends", "eoi/register-ends"}, areas...)
	add("eoi-other-bit", "The bit that is set is bit 1.", func(x *x86KVM) {
		x.set("layouts/pv_eoi/bits/word.ENABLED/bit", 1)
	}, "eoi/set-in-service").Controls = []string{"eoi/clearing-ends", "eoi/register-ends"}
	add("eoi-clearing-ignored", "Clearing the word ends nothing.", func(x *x86KVM) {
		x.eoiEnded = func(*cpu, uint64) bool { return false }
	}, "eoi/clearing-ends")
	add("eoi-with-another", "ENABLED is set whatever is requested.", func(x *x86KVM) {
		sync := x.eoiToGuest
		x.eoiToGuest = func(c *cpu) {
			irr := x.state(c).irr
			x.state(c).irr = [4]uint64{}
			sync(c)
			x.state(c).irr = irr
		}
	}, "eoi/clear-with-another")
	add("eoi-always-ends", "A word that is clear ends the interrupt also if it was not set.", func(x *x86KVM) {
		sync := x.eoiToGuest
		x.eoiToGuest = func(c *cpu) {
			sync(c)
			if _, ok := x.eoiArea(c); ok && x.state(c).eoi.cache != 0 {
				x.state(c).eoi.pending = true
			}
		}
	}, "eoi/clear-with-another")
	add("eoi-register-clears-only", "The end at the APIC clears ENABLED and ends nothing, where that was set.", func(x *x86KVM) {
		x.atAPIC = func(c *cpu) {
			s := x.state(c)
			if a, ok := x.eoiArea(c); ok && s.eoi.pending {
				a.set("word", 0)
				s.eoi = x86EOI{}
				return
			}
			x.exitEOI(c)
		}
	}, "eoi/register-ends")
	add("eoi-register-leaves-word", "The end at the APIC leaves ENABLED set.", func(x *x86KVM) {
		x.atAPIC = func(c *cpu) {
			pending := x.state(c).eoi.pending
			x.exitEOI(c)
			if a, ok := x.eoiArea(c); ok && pending {
				a.set("word", 1)
			}
		}
	}, "eoi/register-ends")
}

func x86FaultMutants(add x86Add) {
	rest := []string{"async-pf/next-after-ack", "async-pf/held-while-apic-off"}
	add("fault-no-wake-all", "Enabling tells nothing.", func(x *x86KVM) {
		x.wakeAll = func(*cpu) {}
	}, "async-pf/wakes-all-when-enabled")
	add("fault-wake-all-zero", "The token for all pages is 0xffff.", func(x *x86KVM) {
		present := x.present
		x.present = func(c *cpu, token uint32) {
			if token == 1<<32-1 {
				token = 1<<16 - 1
			}
			present(c, token)
		}
	}, "async-pf/wakes-all-when-enabled")
	add("fault-never-told", "A page that is not there is not told of.", func(x *x86KVM) {
		x.canDeliver = func(*cpu) bool { return false }
	}, "async-pf/not-present", "async-pf/area-written").Controls = append([]string{"async-pf/ready"}, rest...)
	add("fault-code", "The page fault says that the page is present.", func(x *x86KVM) {
		notPresent := x.notPresent
		x.notPresent = func(c *cpu, token uint32) trap {
			t := notPresent(c, token)
			t.code = 1
			return t
		}
	}, "async-pf/not-present")
	add("fault-flags", "PAGE_NOT_PRESENT is bit 1 of flags.", func(x *x86KVM) {
		x.set("layouts/kvm_vcpu_pv_apf_data/bits/flags.PAGE_NOT_PRESENT/bit", 1)
	}, "async-pf/not-present")
	add("fault-no-interrupt", "A page that is there is told of by no interrupt.", func(x *x86KVM) {
		accept := x.accept
		x.accept = func(c *cpu, mode, vector uint64) int64 {
			if mode == dmFixed && vector == x.state(c).msr["ASYNC_PF_INT"] {
				return 1
			}
			return accept(c, mode, vector)
		}
	}, "async-pf/wakes-all-when-enabled", "async-pf/ready", "async-pf/held-while-apic-off")
	add("fault-other-token", "The token of a page that is there is another than that of the fault.", func(x *x86KVM) {
		present := x.present
		x.present = func(c *cpu, token uint32) {
			if token != 1<<32-1 {
				token++
			}
			present(c, token)
		}
	}, "async-pf/ready", "async-pf/held-while-apic-off").Controls = []string{"async-pf/next-after-ack"}
	add("fault-overwrites", "A second page that is there is told of at once.", func(x *x86KVM) {
		x.canDequeue = func(c *cpu) bool { return !x.state(c).apicOff }
	}, "async-pf/next-after-ack")
	add("fault-ack-ignored", "ASYNC_PF_ACK does nothing.", func(x *x86KVM) {
		setMSR := x.setMSR
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
			if r.Name == "ASYNC_PF_ACK" {
				return true
			}
			return setMSR(c, r, v)
		}
	}, "async-pf/next-after-ack")
	add("fault-apic-off", "Whether the local APIC is on is not looked at.", func(x *x86KVM) {
		canDequeue := x.canDequeue
		x.canDequeue = func(c *cpu) bool {
			s := x.state(c)
			off := s.apicOff
			s.apicOff = false
			defer func() { s.apicOff = off }()
			return canDequeue(c)
		}
	}, "async-pf/held-while-apic-off")
	add("fault-always", "A page that is not there is told of at every privilege level, whatever SEND_ALWAYS says.", func(x *x86KVM) {
		x.canDeliver = func(c *cpu) bool { _, on := x.faultArea(c); return on }
	}, "async-pf/user-only")
	add("fault-interrupts-off", "A page that is not there is told of also with interrupts off.", func(x *x86KVM) {
		x.interruptible = func(*cpu) bool { return true }
	}, "async-pf/interrupts-off")
}

// alterInit has an INIT do something more, with the values that the registers had.
func (x *x86KVM) alterInit(do func(s *x86CPU, was map[string]uint64)) {
	initCPU := x.initCPU
	x.initCPU = func(c *cpu) {
		was := map[string]uint64{}
		for name, v := range x.state(c).msr {
			was[name] = v
		}
		initCPU(c)
		do(x.state(c), was)
	}
}

// x86InitKeeps has an INIT leave a register.
func x86InitKeeps(register string) func(*x86KVM) {
	return func(x *x86KVM) {
		x.alterInit(func(s *x86CPU, was map[string]uint64) {
			s.msr[register] = was[register]
		})
	}
}

// alterClock has the hypervisor do something more to a clock that it has updated.
func (x *x86KVM) alterClock(do func(a x86Area, c *cpu)) {
	update := x.updateClock
	x.updateClock = func(c *cpu) {
		update(c)
		if a, ok := x.clockArea(c); ok {
			do(a, c)
		}
	}
}

// alterWallClock has it do something more to a wall clock that it has written.
func (x *x86KVM) alterWallClock(do func(a x86Area)) {
	wallTime := x.wallTime
	x.wallTime = func(at uint64) {
		wallTime(at)
		if a, ok := x.area("pvclock_wall_clock", at, 16); ok && at != 0 {
			do(a)
		}
	}
}

package model

func x86IPIMutants(add x86Add) {
	add("ipi-counts-one", "SEND_IPI gives 1, whoever was reached.", func(x *x86KVM) {
		x.result("SEND_IPI", func(_ *cpu, r int64) int64 { return min(r, 1) })
	}, "ipi/counts-each", "ipi/high-word", "ipi/absent-ids")
	add("ipi-second-word-ignored", "SEND_IPI does not look at the second word of its bitmap.", x86Argument("SEND_IPI", 1, 0),
		"ipi/high-word", "ipi/absent-ids", "ipi/lowest-wraps", "ipi/protected-mode")
	add("ipi-cluster-32", "A word of the bitmap is for 32 ids in every mode.", func(x *x86KVM) {
		x.cluster = func(*cpu) uint32 { return 32 }
	}, "ipi/high-word", "ipi/absent-ids", "ipi/lowest-wraps")
	add("ipi-cluster-64", "A word of the bitmap is for 64 ids in every mode.", func(x *x86KVM) {
		x.cluster = func(*cpu) uint32 { return 64 }
	}, "ipi/protected-mode")
	add("ipi-counts-absent", "SEND_IPI counts ids that no CPU has.", func(x *x86KVM) {
		send := x.send
		x.send = func(c *cpu, a [4]uint64) int64 {
			r := send(c, a)
			if r < 0 {
				return r
			}
			for _, word := range a[:2] {
				for i := range 64 {
					r += int64(word >> i & 1)
				}
			}
			return r / 2
		}
	}, "ipi/absent-ids", "ipi/lowest-boundaries")
	add("ipi-lowest-64-bits", "All 64 bits of lowest count.", func(x *x86KVM) {
		send := x.send
		x.send = func(c *cpu, a [4]uint64) int64 {
			if a[2]>>32 != 0 {
				return 0
			}
			return send(c, a)
		}
	}, "ipi/lowest-high-half")
	add("ipi-lowest-does-not-wrap", "The second word stands for nothing where its first id is no number of 32 bits.", func(x *x86KVM) {
		send := x.send
		x.send = func(c *cpu, a [4]uint64) int64 {
			if uint64(uint32(a[2]))+64 > 1<<32-1 {
				a[1] = 0
			}
			return send(c, a)
		}
	}, "ipi/lowest-wraps")
	add("ipi-command-unchecked", "A logical destination or a shorthand is ignored.", x86Argument("SEND_IPI", 3, 0x7ff),
		"ipi/bad-command")
	add("ipi-nmi-refused", "SEND_IPI sends no NMI.", func(x *x86KVM) {
		send := x.send
		x.send = func(c *cpu, a [4]uint64) int64 {
			if a[3]>>8&7 == dmNMI {
				return 0
			}
			return send(c, a)
		}
	}, "ipi/nmi")
	add("ipi-apic-off-taken", "A local APIC that is off accepts interrupts.", func(x *x86KVM) {
		accept := x.accept
		x.accept = func(target *cpu, mode, vector uint64) int64 {
			s := x.state(target)
			off := s.apicOff
			s.apicOff = false
			defer func() { s.apicOff = off }()
			return accept(target, mode, vector)
		}
	}, "ipi/apic-off")
}

func x86MoreKickMutants(add x86Add) {
	add("kick-no-broadcast", "A kick of the broadcast id reaches nobody.", func(x *x86KVM) {
		match := x.match
		x.match = func(id uint32) []*cpu {
			if id == 0xff {
				return nil
			}
			return match(id)
		}
	}, "kick/broadcast")
	add("kick-broadcast-one", "A kick of the broadcast id reaches the second CPU only.", func(x *x86KVM) {
		match := x.match
		x.match = func(id uint32) []*cpu {
			if id == 0xff {
				return x.m.cpus[1:2]
			}
			return match(id)
		}
	}, "kick/broadcast")
	add("remote-read-command-ignored", "An interrupt command of delivery mode 3 does nothing.", func(x *x86KVM) {
		x.commanded = func(c *cpu, icr uint64) bool { return icr>>8&7 != dmRemoteRead }
	}, "kick/remote-read-command")
	add("remote-read-gated", "SEND_IPI of delivery mode 3 is gated by PV_UNHALT.", func(x *x86KVM) {
		send := x.send
		x.send = func(c *cpu, a [4]uint64) int64 {
			if a[3]>>8&7 == dmRemoteRead && !x.offered(c, "PV_UNHALT") {
				return 0
			}
			return send(c, a)
		}
	}, "kick/remote-read-send-ipi")
	add("unhalt-not-withdrawn", "PV_UNHALT is offered also where HLT does not leave the guest.", func(x *x86KVM) {
		x.withdraws = false
	}, "discovery/pv-unhalt-withdrawn")
}

func x86MoreConventionMutants(add x86Add) {
	add("foreign-not-fixed", "The instruction that is not native is never rewritten.", func(x *x86KVM) {
		foreign := x.foreign
		x.foreign = func(c *cpu) trap {
			if t := foreign(c); t.raised {
				return t
			}
			return x86Undefined()
		}
	}, "convention/foreign-instruction")
	add("foreign-always-fixed", "The instruction that is not native is rewritten though the VMM does not want it.", func(x *x86KVM) {
		foreign := x.foreign
		x.foreign = func(c *cpu) trap {
			if t := foreign(c); c.user {
				return t
			}
			return trap{}
		}
	}, "convention/foreign-instruction-not-fixed")
	add("foreign-fixed-for-user", "The instruction that is not native is rewritten at every privilege level.", func(x *x86KVM) {
		foreign := x.foreign
		x.foreign = func(c *cpu) trap {
			if c.user {
				return trap{}
			}
			return foreign(c)
		}
	}, "convention/foreign-instruction-user")
	add("narrow-result-wide", "Outside of 64-bit mode results have 64 bits.", func(x *x86KVM) {
		x.result32 = func(r uint64) uint64 { return r }
	}, "convention/protected-mode", "convention/real-mode")
}

func x86ContentMutants(add x86Add) {
	add("steal-twice", "Steal grows by twice the time that the CPU was kept waiting.", func(x *x86KVM) {
		publish := x.publish
		x.publish = func(c *cpu, s x86Area, delay uint64) { publish(c, s, 2*delay) }
	}, "steal/run-delay")
	add("steal-half", "Steal grows by half the time that the CPU was kept waiting.", func(x *x86KVM) {
		publish := x.publish
		x.publish = func(c *cpu, s x86Area, delay uint64) { publish(c, s, delay/2) }
	}, "steal/run-delay")
	add("preempted-kept-without-flush", "Preempted is not cleared where PV_TLB_FLUSH is hidden.", func(x *x86KVM) {
		clear := x.clear
		x.clear = func(c *cpu, s x86Area) {
			if x.offered(c, "PV_TLB_FLUSH") {
				clear(c, s)
			}
		}
	}, "preempted/cleared-without-tlb-flush")
	add("flush-lost", "FLUSH_TLB is cleared and nothing flushed.", func(x *x86KVM) {
		x.flush = func(*cpu) {}
	}, "preempted/flush-tlb")
	for _, m := range []struct {
		name, text string
		change     func(a x86Area)
	}{
		{"late", "CLOCK_PAIRING gives a time that is a second late.", func(a x86Area) { a.set("sec", a.get("sec")-1) }},
		{"nanoseconds", "CLOCK_PAIRING gives nanoseconds of more than a second.", func(a x86Area) {
			a.set("sec", a.get("sec")-1)
			a.set("nsec", a.get("nsec")+second)
		}},
		{"tsc", "CLOCK_PAIRING gives a TSC that is not the guest's.", func(a x86Area) { a.set("tsc", a.get("tsc")+1<<32) }},
		{"flags", "CLOCK_PAIRING leaves flags as they are.", func(a x86Area) { a.set("flags", 0xa5a5a5a5) }},
		{"padding", "CLOCK_PAIRING writes a byte of padding that is not zero.", func(a x86Area) { a.m.store(a.address+a.layout.Size-1, 1, 1) }},
		{"around", "CLOCK_PAIRING writes a byte too many.", func(a x86Area) { a.m.store(a.address-1, 1, 1) }},
	} {
		add("pairing-"+m.name, m.text, func(x *x86KVM) {
			pair := x.pair
			x.pair = func(a x86Area) {
				pair(a)
				if a.m.mapped(a.address-1, 1) {
					m.change(a)
				}
			}
		}, "pairing/content")
	}
	add("pairing-nowhere", "CLOCK_PAIRING of an address outside of memory gives -EINVAL.", func(x *x86KVM) {
		x.result("CLOCK_PAIRING", func(_ *cpu, r int64) int64 {
			if r == x.abi.Errno("EFAULT") {
				return x.abi.Errno("EINVAL")
			}
			return r
		})
	}, "pairing/address")
	add("map-unaligned", "MAP_GPA_RANGE takes any address.", func(x *x86KVM) {
		x.ranged = func(address, pages uint64) bool { return pages != 0 }
	}, "map-gpa-range/bad-range")
	add("map-answer-lost", "MAP_GPA_RANGE gives 0, whatever the VMM answers.", func(x *x86KVM) {
		tell := x.tell
		x.tell = func(c *cpu, number uint64, a [4]uint64) int64 { tell(c, number, a); return 0 }
	}, "map-gpa-range/exit")
	add("map-attributes-lost", "The VMM is not told of attributes.", func(x *x86KVM) {
		tell := x.tell
		x.tell = func(c *cpu, number uint64, a [4]uint64) int64 { a[2] = 0; return tell(c, number, a) }
	}, "map-gpa-range/exit")
	add("map-not-told", "The VMM is not told of MAP_GPA_RANGE.", func(x *x86KVM) {
		x.tell = func(c *cpu, _ uint64, _ [4]uint64) int64 { return int64(x.state(c).result) }
	}, "map-gpa-range/exit")
}

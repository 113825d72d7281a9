package model

import (
	"slices"

	"pvabi/abi"
)

// x86KVMMutants are mistakes that an implementer of x86-kvm could make, by topic.
func x86KVMMutants() []Mutant {
	var ms x86Mutants
	for _, topic := range []func(x86Add){
		x86DiscoveryMutants,
		x86PrivilegeMutants,
		x86NumberMutants,
		x86ConventionMutants,
		x86KickMutants,
		x86WaitMutants,
		x86YieldMutants,
		x86StealMutants,
		x86PreemptedMutants,
		x86RegisterMutants,
		x86AreaMutants,
		x86ClockMutants,
		x86EOIMutants,
		x86FaultMutants,
		x86IPIMutants,
		x86MoreKickMutants,
		x86MoreConventionMutants,
		x86ContentMutants,
	} {
		topic(ms.add)
	}
	for i, m := range ms {
		f := x86Further[m.Name]
		ms[i].Rules, ms[i].Controls = slices.Concat(m.Rules, f.rules), slices.Concat(m.Controls, f.controls)
	}
	return ms
}

type x86Mutants []Mutant

// add adds a mutant that breaks rules, and returns it for its controls to be named.
func (ms *x86Mutants) add(name, text string, change func(x *x86KVM), rules ...string) *Mutant {
	*ms = append(*ms, Mutant{Name: name, Text: text, Rules: rules, Open: openX86KVM(change)})
	return &(*ms)[len(*ms)-1]
}

// x86Add is x86Mutants.add.
type x86Add = func(name, text string, change func(x *x86KVM), rules ...string) *Mutant

// Rules that are broken together.
var (
	// x86Wakers are about a kick of a CPU that waits.
	x86Wakers = []string{
		"kick/wakes-waiter", "kick/wakes-waiter-interrupts-on", "kick/wakes-waiter-split-irqchip",
		"kick/wakes-waiter-split-interrupts-on", "kick/flags-ignored", "kick/target-high-half",
	}
	// x86Latches are about a kick that comes before the wait.
	x86Latches = []string{"kick/before-wait", "kick/two-kicks", "kick/self", "kick/running-target"}
	// x86WakeControls are those whose check ends a wait by a kick at its end.
	x86WakeControls = []string{
		"privilege/user-has-no-effect", "kick/absent-target", "wait/sleeps-without-kick", "yield/does-not-wake",
		"preempted/waiting", "preempted/in-vmm", "preempted/cleared-at-entry",
	}
	// x86RecordControls are those whose check looks at a record that is being written.
	x86RecordControls = []string{
		"steal/padding-untouched", "steal/flags-untouched", "steal/version-protocol", "steal/monotonic", "steal/disabled",
		"preempted/running", "preempted/waiting", "preempted/in-vmm",
	}
	// x86MovedRecord are about the life of the record as an area.
	x86MovedRecord = []string{"steal/area-moved", "steal/area-outside-memory", "steal/area-after-init"}
	// x86Yields are about what a yield gives.
	x86Yields = []string{"yield/self", "yield/running-target", "yield/waiting-target", "yield/absent-target", "yield/target-high-half"}
)

func x86DiscoveryMutants(add x86Add) {
	add("hypervisor-bit-clear", "Nothing says that there is a hypervisor.", func(x *x86KVM) {
		x.alterLeaf(uint32(x.abi.Word("hypervisor-leaf")), func(_ *cpu, r *[4]uint32) { r[2] &^= 1 << x.abi.Word("hypervisor-bit") })
	}, "discovery/hypervisor-bit")
	add("hypervisor-bit-differs", "Nothing says on the second CPU that there is a hypervisor.", func(x *x86KVM) {
		x.alterLeaf(uint32(x.abi.Word("hypervisor-leaf")), func(c *cpu, r *[4]uint32) {
			if c != nil && c.index == 1 {
				r[2] &^= 1 << x.abi.Word("hypervisor-bit")
			}
		})
	}, "discovery/hypervisor-bit")
	add("signature-twice", "The signature is also at the last leaf of the scan.", func(x *x86KVM) {
		x.alterLeaf(uint32(x.abi.Word("last-leaf")), func(c *cpu, r *[4]uint32) {
			*r = x.guestCPUID(c, x.leafBase(), 0)
		})
	}, "discovery/signature", "discovery/signature-after-other")
	add("signature-differs", "One CPU reads another signature.", func(x *x86KVM) {
		x.alterLeaf(x.leafBase(), func(c *cpu, r *[4]uint32) {
			if c != nil && c.index == 1 {
				r[3] ^= 1
			}
		})
	}, "discovery/same-on-all-cpus")
	add("signature-wrong-step", "What is enforced are the features of the first leaf, whosever it is.", func(x *x86KVM) {
		x.base = func() uint64 { return x.abi.Word("first-leaf") }
	}, "discovery/signature-after-other")
	add("signature-not-last", "What is enforced are the features of a leaf that is not the last; of the last it is none.", func(x *x86KVM) {
		base := x.base
		x.base = func() uint64 {
			if b := base(); b != x.abi.Word("last-leaf") {
				return b
			}
			return 0
		}
	}, "discovery/signature-after-other")
	add("max-leaf-zero", "The last leaf is 0, as on very old hosts.", func(x *x86KVM) {
		x.alterLeaf(x.leafBase(), func(_ *cpu, r *[4]uint32) { r[0] = 0 })
	}, "discovery/max-leaf")
	add("feature-bit-8", "The kernel offers a bit that means nothing.", func(x *x86KVM) {
		if x.m.config.Features == nil {
			x.alterFeatures(func(_ *cpu, r *[4]uint32) { r[0] |= 1 << 8 })
		}
	}, "discovery/features-known")
	add("ebx-nonzero", "EBX of the features leaf is not zero.", func(x *x86KVM) {
		x.alterFeatures(func(_ *cpu, r *[4]uint32) { r[1] = 1 })
	}, "discovery/reserved-registers")
	add("ecx-nonzero", "ECX of the features leaf is not zero.", func(x *x86KVM) {
		x.alterFeatures(func(_ *cpu, r *[4]uint32) { r[2] = 1 << 31 })
	}, "discovery/reserved-registers")
	add("hint-set", "The kernel gives the hint REALTIME on its own.", func(x *x86KVM) {
		x.alterFeatures(func(_ *cpu, r *[4]uint32) { r[3] |= 1 << x.abi.Feature("REALTIME").Bit })
	}, "discovery/hints")
	add("cpus-differ", "One CPU is offered a feature less.", func(x *x86KVM) {
		x.alterFeatures(func(c *cpu, r *[4]uint32) {
			if c != nil && c.index == 2 {
				r[0] &^= 1 << x.abi.Feature("PV_EOI").Bit
			}
		})
	}, "discovery/same-on-all-cpus")
}

func x86PrivilegeMutants(add x86Add) {
	add("user-call-accepted", "Privilege is not asked for.", func(x *x86KVM) {
		x.privileged = func(*cpu) bool { return true }
	}, "privilege/user-refused", "privilege/user-refused-undefined", "privilege/user-has-no-effect",
		"counter/directed-yield-attempted")
	add("user-refused-enosys", "Without privilege every call gives -ENOSYS.", func(x *x86KVM) {
		refuse(x, func(x *x86KVM, _ uint64) int64 { return x.abi.Errno("ENOSYS") })
	}, "privilege/user-refused", "privilege/user-refused-undefined")
	add("user-number-first", "The number is looked at before the privilege.", func(x *x86KVM) {
		refuse(x, func(x *x86KVM, number uint64) int64 {
			if slices.ContainsFunc(x.abi.Calls, func(k abi.Call) bool { return k.Number == number && !k.Undefined }) {
				return x.abi.Errno("EPERM")
			}
			return x.abi.Errno("ENOSYS")
		})
	}, "privilege/user-refused-undefined")
	add("user-kick-wakes", "A kick without privilege is refused, but not before it was done.", func(x *x86KVM) {
		hypercall := x.hypercall
		x.hypercall = func(c *cpu, number uint64, a [4]uint64) int64 {
			if c.user && number == x.abi.Call("KICK_CPU").Number {
				for _, target := range x.match(uint32(a[1])) {
					x.accept(target, dmRemoteRead, 0)
				}
			}
			return hypercall(c, number, a)
		}
	}, "privilege/user-has-no-effect")
}

func x86NumberMutants(add x86Add) {
	add("number-truncated", "Only the low half of the number counts.", func(x *x86KVM) {
		x.number = func(rax uint64) uint64 { return rax & (1<<32 - 1) }
	}, "number/high-half", "convention/number-not-truncated")
	add("number-top-bit-ignored", "The highest bit of the number does not count.", func(x *x86KVM) {
		x.number = func(rax uint64) uint64 { return rax &^ (1 << 63) }
	}, "convention/number-not-truncated")
	add("number-low-byte", "Only the lowest byte of the number counts.", func(x *x86KVM) {
		x.number = func(rax uint64) uint64 { return rax & 0xff }
	}, "number/high-half", "convention/number-not-truncated")
	add("undefined-accepted", "A number without a call gives 0.", func(x *x86KVM) {
		x.results(func(_ *cpu, number uint64, result int64) int64 {
			if result == x.abi.Errno("ENOSYS") && number != x.abi.Call("MAP_GPA_RANGE").Number {
				return 0
			}
			return result
		})
	}, "discovery/signature-after-other", "number/undefined", "number/extreme", "number/high-half",
		"number/gated-enforced", "convention/number-not-truncated")
	add("mmu-op-accepted", "MMU_OP is still there and gives 0.", func(x *x86KVM) {
		x.result("MMU_OP", func(*cpu, int64) int64 { return 0 })
	}, "number/undefined")
	add("extreme-accepted", "The number 2^32-1 is taken for a call.", func(x *x86KVM) {
		x.number = func(rax uint64) uint64 {
			if rax == 1<<32-1 {
				return x.abi.Call("VAPIC_POLL_IRQ").Number
			}
			return rax
		}
	}, "number/extreme")
	add("enosys-is-38", "Unknown calls give -38, as system calls of Linux do.", func(x *x86KVM) {
		x.set("errors/ENOSYS/result", -38)
	}, "discovery/signature-after-other", "number/undefined", "number/extreme", "number/high-half",
		"number/map-gpa-range-without-exit", "number/gated-enforced", "convention/number-not-truncated")
	add("result-32-bits", "A call gives its result in 32 bits.", x86After(func(x *x86KVM, regs *[16]uint64, _, _ *uint64) {
		regs[x.isa().Register("rax")] &= 1<<32 - 1
	}), "discovery/signature-after-other", "privilege/user-refused", "privilege/user-refused-undefined",
		"number/undefined", "number/extreme", "number/high-half", "number/map-gpa-range-without-exit",
		"number/clock-pairing-other-clock", "number/gated-enforced", "convention/number-not-truncated")
	add("vapic-poll-refused", "VAPIC_POLL_IRQ gives -ENOSYS.", func(x *x86KVM) {
		x.result("VAPIC_POLL_IRQ", func(*cpu, int64) int64 { return x.abi.Errno("ENOSYS") })
	}, "number/vapic-poll-irq")
	add("clock-pairing-fault", "CLOCK_PAIRING does not find the memory that it is given.", func(x *x86KVM) {
		x.result("CLOCK_PAIRING", func(_ *cpu, r int64) int64 {
			if r == 0 {
				return x.abi.Errno("EFAULT")
			}
			return r
		})
	}, "number/clock-pairing")
	add("clock-type-ignored", "CLOCK_PAIRING gives the same for all types of clock.", x86Argument("CLOCK_PAIRING", 1, 0),
		"number/clock-pairing-other-clock")
	add("clock-type-32-bits", "CLOCK_PAIRING looks at the low half of the clock type.", x86Argument("CLOCK_PAIRING", 1, 1<<32-1),
		"number/clock-pairing-other-clock")
	add("send-ipi-lost", "SEND_IPI counts its targets and reaches none.", func(x *x86KVM) {
		x.alterIPI(func(*cpu, *cpu) bool { return false })
	}, "number/send-ipi-one-target")
	add("send-ipi-not-self", "SEND_IPI passes the calling CPU over, and counts it all the same.", func(x *x86KVM) {
		x.alterIPI(func(c, target *cpu) bool { return target != c })
	}, "number/send-ipi-one-target")
	add("send-ipi-uncounted", "SEND_IPI gives 0, whoever was reached.", func(x *x86KVM) {
		x.result("SEND_IPI", func(_ *cpu, r int64) int64 { return min(r, 0) })
	}, "number/send-ipi-one-target")
	add("send-ipi-bitmap-from-zero", "SEND_IPI does not add the lowest id to its bitmap.", x86Argument("SEND_IPI", 2, 0),
		"number/send-ipi-one-target")
	add("send-ipi-empty-invalid", "SEND_IPI refuses an empty bitmap.", func(x *x86KVM) {
		x.result("SEND_IPI", func(_ *cpu, r int64) int64 {
			if r == 0 {
				return x.abi.Errno("EINVAL")
			}
			return r
		})
	}, "number/send-ipi-empty", "number/gated-free", "number/gated-offered")
	add("map-gpa-range-accepted", "MAP_GPA_RANGE gives 0 though nobody is told.", func(x *x86KVM) {
		x.result("MAP_GPA_RANGE", func(c *cpu, r int64) int64 {
			if c.user {
				return r
			}
			return 0
		})
	}, "number/map-gpa-range-without-exit")
	add("gate-ignored", "Hidden features are not enforced.", func(x *x86KVM) {
		x.offered = func(*cpu, string) bool { return true }
	}, "discovery/signature-after-other", "number/gated-enforced", "register/gated-enforced", "register/control-bits-gated")
	add("gate-always", "Hidden features are enforced though nobody asked for it.", func(x *x86KVM) {
		x.offered = func(c *cpu, feature string) bool {
			return x.features()>>x.abi.Feature(feature).Bit&1 == 1
		}
	}, "number/gated-free", "register/gated-free")
	add("gate-refuses-offered", "What is enforced is refused also where it is offered.", func(x *x86KVM) {
		offered := x.offered
		x.offered = func(c *cpu, feature string) bool { return !x.m.config.Enforce && offered(c, feature) }
	}, "discovery/signature-after-other", "number/gated-offered",
		"register/gated-offered").Controls = []string{"register/control-bits-gated"}
	add("gate-on-ungated", "Enforcement refuses VAPIC_POLL_IRQ, which no feature gates.", func(x *x86KVM) {
		x.result("VAPIC_POLL_IRQ", func(_ *cpu, r int64) int64 {
			if x.m.config.Enforce && x.features() == 0 {
				return x.abi.Errno("ENOSYS")
			}
			return r
		})
	}, "number/ungated-enforced")
	add("gate-wrong-feature", "KICK_CPU is gated by the feature of SEND_IPI.", func(x *x86KVM) {
		offered := x.offered
		x.offered = func(c *cpu, feature string) bool {
			if feature == "PV_UNHALT" {
				feature = "PV_SEND_IPI"
			}
			return offered(c, feature)
		}
	}, "number/gated-enforced", "number/gated-offered")
	add("gate-needs-another", "SEND_IPI is gated by the feature of STEAL_TIME, too.", func(x *x86KVM) {
		offered := x.offered
		x.offered = func(c *cpu, feature string) bool {
			return offered(c, feature) && (feature != "PV_SEND_IPI" || offered(c, "STEAL_TIME"))
		}
	}, "number/gated-offered")
	add("gate-lets-another", "SCHED_YIELD is offered with PV_TLB_FLUSH, too.", func(x *x86KVM) {
		offered := x.offered
		x.offered = func(c *cpu, feature string) bool {
			return offered(c, feature) || feature == "PV_SCHED_YIELD" && offered(c, "PV_TLB_FLUSH")
		}
	}, "number/gated-enforced")
}

func x86ConventionMutants(add x86Add) {
	add("clobbers-rcx", "A call leaves RCX at zero.", x86After(func(x *x86KVM, regs *[16]uint64, _, _ *uint64) {
		regs[x.isa().Register("rcx")] = 0
	}), "convention/registers-preserved")
	add("clobbers-r11-high", "A call clears the high half of R11.", x86After(func(x *x86KVM, regs *[16]uint64, _, _ *uint64) {
		regs[x.isa().Register("r11")] &= 1<<32 - 1
	}), "convention/registers-preserved")
	add("moves-stack", "A call leaves a word on the stack.", x86After(func(x *x86KVM, regs *[16]uint64, _, _ *uint64) {
		regs[x.isa().Register("rsp")] -= 8
	}), "convention/registers-preserved")
	add("clobbers-flags", "A call clears the arithmetic flags.", x86After(func(_ *x86KVM, _ *[16]uint64, flags, _ *uint64) {
		*flags &^= 0x8d5
	}), "convention/flags-preserved")
	add("clobbers-xmm", "A call clears a vector register.", func(x *x86KVM) {
		x.after = func(c *cpu, _ *[16]uint64, _, _ *uint64) { clear(c.vectors[5*32:][:16]) }
	}, "convention/vectors-preserved")
	add("clobbers-ymm", "A call clears the high half of a vector register of 256 bits.", func(x *x86KVM) {
		x.after = func(c *cpu, _ *[16]uint64, _, _ *uint64) { clear(c.vectors[5*32+16:][:16]) }
	}, "convention/vectors-preserved")
	add("clobbers-when-refused", "A call that is refused loses RSI.", func(x *x86KVM) {
		x.after = func(c *cpu, regs *[16]uint64, _, _ *uint64) {
			if int64(regs[x.isa().Register("rax")]) == x.abi.Errno("EPERM") {
				regs[x.isa().Register("rsi")] = 0
			}
		}
	}, "convention/registers-preserved")
	add("length-2", "A call goes on two bytes further.", x86After(func(_ *x86KVM, _ *[16]uint64, _, length *uint64) {
		*length = 2
	}), "convention/instruction-length")
}

func x86KickMutants(add x86Add) {
	add("lost-kick", "A kick reaches nobody.", func(x *x86KVM) {
		x.match = func(uint32) []*cpu { return nil }
	}, slices.Concat(x86Wakers, x86Latches)...).Controls = slices.Concat(x86WakeControls, []string{"wait/interrupt-eats-kick"})
	add("lost-kick-before-wait", "A kick is only for a CPU that waits already.", func(x *x86KVM) {
		x.alterKick(func(target *cpu) bool { return target.state == asleep })
	}, x86Latches...).Controls = []string{"wait/interrupt-eats-kick"}
	add("kicks-counted", "Each kick ends a wait.", func(x *x86KVM) {
		n := make([]int, len(x.cpus))
		x.alterKick(func(target *cpu) bool { n[target.index]++; return true })
		x.runnable = func(c *cpu) {
			n[c.index] = max(n[c.index]-1, 0)
			x.state(c).unhalted = n[c.index] > 0
		}
	}, "kick/two-kicks")
	add("kick-toggles", "A second kick takes the first back.", func(x *x86KVM) {
		accept := x.accept
		x.accept = func(target *cpu, mode, vector uint64) int64 {
			if s := x.state(target); mode == dmRemoteRead && s.unhalted {
				s.unhalted = false
				return 1
			}
			return accept(target, mode, vector)
		}
	}, "kick/two-kicks")
	add("kick-never-consumed", "A kick ends all waits that follow.", func(x *x86KVM) {
		x.runnable = func(*cpu) {}
	}, x86Latches...).Controls = []string{"wait/interrupt-eats-kick"}
	add("kick-wakes-all", "A kick wakes every CPU.", func(x *x86KVM) {
		x.match = func(uint32) []*cpu { return x.m.cpus }
	}, "kick/absent-target", "wait/sleeps-without-kick")
	add("kick-needs-interrupts", "A kick ends only a wait with interrupts on.", func(x *x86KVM) {
		x.alterKick(func(target *cpu) bool { return target.state != asleep || target.interrupts })
	}, "kick/wakes-waiter", "kick/wakes-waiter-split-irqchip", "kick/flags-ignored",
		"kick/target-high-half").Controls = x86WakeControls
	add("kick-needs-interrupts-off", "A kick ends only a wait with interrupts off.", func(x *x86KVM) {
		x.alterKick(func(target *cpu) bool { return target.state != asleep || !target.interrupts })
	}, "kick/wakes-waiter-interrupts-on", "kick/wakes-waiter-split-interrupts-on").Controls = []string{"wait/sleeps-without-kick"}
	add("kick-needs-full-irqchip", "A kick reaches nobody where the other interrupt controllers are not in the kernel.", func(x *x86KVM) {
		x.alterKick(func(*cpu) bool { return x.m.config.IRQChip == 0 })
	}, "kick/wakes-waiter-split-irqchip", "kick/wakes-waiter-split-interrupts-on")
	add("kick-not-self", "A CPU cannot kick itself.", func(x *x86KVM) {
		kick := x.kick
		x.kick = func(c *cpu, a [4]uint64) int64 {
			if uint64(uint32(a[1])) != c.id {
				return kick(c, a)
			}
			x.yield(c, a[1])
			return 0
		}
	}, "kick/self")
	add("kick-by-index", "A kick takes the APIC id for the position of the CPU.", func(x *x86KVM) {
		x.match = func(id uint32) []*cpu {
			if int(id) < len(x.m.cpus) {
				return x.m.cpus[id : id+1]
			}
			return nil
		}
	}, slices.Concat(x86Wakers, x86Latches)...).Controls = slices.Concat(x86WakeControls, []string{"wait/interrupt-eats-kick"})
	add("kick-id-8-bits", "A kick looks at the low 8 bits of the APIC id.", func(x *x86KVM) {
		match := x.match
		x.match = func(id uint32) []*cpu { return match(id & 0xff) }
	}, "kick/absent-target")
	add("kick-id-16-bits", "A kick looks at the low 16 bits of the APIC id.", func(x *x86KVM) {
		match := x.match
		x.match = func(id uint32) []*cpu { return match(id & 0xffff) }
	}, "kick/absent-target")
	add("kick-id-4-bits", "A kick looks at the low 4 bits of the APIC id.", func(x *x86KVM) {
		match := x.match
		x.match = func(id uint32) []*cpu { return match(id & 0xf) }
	}, "kick/absent-target")
	add("kick-id-31-bits", "A kick looks at the low 31 bits of the APIC id.", func(x *x86KVM) {
		match := x.match
		x.match = func(id uint32) []*cpu { return match(id &^ (1 << 31)) }
	}, "kick/absent-target")
	add("kick-id-64-bits", "A kick looks at all 64 bits of the APIC id.", func(x *x86KVM) {
		kick := x.kick
		x.kick = func(c *cpu, a [4]uint64) int64 {
			if a[1]>>32 != 0 {
				x.yield(c, a[1])
				return 0
			}
			return kick(c, a)
		}
	}, "kick/target-high-half")
	add("kick-absent-wakes", "A kick of a CPU that does not exist wakes the next one.", func(x *x86KVM) {
		match := x.match
		x.match = func(id uint32) []*cpu {
			if found := match(id); found != nil {
				return found
			}
			return x.m.cpus[len(x.m.cpus)-1:]
		}
	}, "kick/absent-target")
	add("kick-absent-error", "A kick of a CPU that does not exist is refused.", func(x *x86KVM) {
		x.alterKickResult(func(_, target *cpu) bool { return target == nil })
	}, "number/kick-cpu", "number/gated-free", "number/gated-offered", "kick/absent-target", "kick/result")
	add("kick-self-error", "A kick of oneself is refused, after it was done.", func(x *x86KVM) {
		x.alterKickResult(func(c, target *cpu) bool { return target == c })
	}, "kick/result")
	add("kick-running-error", "A kick of a CPU that runs is refused, after it was done.", func(x *x86KVM) {
		x.alterKickResult(func(c, target *cpu) bool {
			return target != nil && target != c && target.state == ready && !x.awake(target)
		})
	}, "kick/result")
	add("kick-flags-checked", "A kick with flags that mean nothing is refused.", func(x *x86KVM) {
		kick := x.kick
		x.kick = func(c *cpu, a [4]uint64) int64 {
			if a[0] != 0 {
				return x.abi.Errno("EINVAL")
			}
			return kick(c, a)
		}
	}, "kick/flags-ignored")
}

func x86WaitMutants(add x86Add) {
	add("wait-does-not-sleep", "A wait ends at once.", func(x *x86KVM) {
		x.halt = func(*cpu) waiting { return goesOn }
	}, "wait/sleeps-without-kick").Controls = slices.Concat(x86Wakers, x86Latches, x86Yields,
		[]string{"privilege/user-has-no-effect", "kick/absent-target", "kick/result", "wait/ended-by-interrupt",
			"wait/ended-by-nmi", "wait/interrupt-eats-kick", "yield/does-not-wake", "preempted/waiting",
			"preempted/in-vmm", "preempted/cleared-at-entry"})
	add("wait-ended-by-anything", "Any call of another CPU ends a wait.", func(x *x86KVM) {
		hypercall := x.hypercall
		x.hypercall = func(c *cpu, number uint64, a [4]uint64) int64 {
			for _, other := range x.m.cpus {
				if other.state == asleep {
					x.accept(other, dmRemoteRead, 0)
				}
			}
			return hypercall(c, number, a)
		}
	}, "privilege/user-has-no-effect", "kick/absent-target", "wait/sleeps-without-kick",
		"yield/does-not-wake").Controls = slices.Concat(x86Wakers, []string{"wait/ended-by-interrupt",
		"wait/ended-by-nmi"})
	add("interrupt-does-not-wake", "An interrupt does not end a wait.", func(x *x86KVM) {
		x.hasEvents = func(c *cpu) bool { return x.state(c).nmi }
	}, "wait/ended-by-interrupt")
	add("interrupt-lost", "An interrupt ends a wait and is not taken.", func(x *x86KVM) {
		runnable := x.runnable
		x.runnable = func(c *cpu) { x.state(c).irr = [4]uint64{}; runnable(c) }
	}, "wait/ended-by-interrupt").Controls = []string{"wait/interrupt-eats-kick"}
	add("interrupt-keeps-kick", "A kick that was pending when an interrupt ended a wait ends the next.", func(x *x86KVM) {
		runnable := x.runnable
		x.runnable = func(c *cpu) {
			if !x.hasEvents(c) {
				runnable(c)
			}
		}
	}, "wait/interrupt-eats-kick")
	add("nmi-lost", "An NMI reaches nobody.", func(x *x86KVM) {
		accept := x.accept
		x.accept = func(target *cpu, mode, vector uint64) int64 {
			if mode == dmNMI {
				return 0
			}
			return accept(target, mode, vector)
		}
	}, "wait/ended-by-nmi")
	add("nmi-needs-interrupts", "An NMI ends only a wait with interrupts on.", func(x *x86KVM) {
		hasEvents := x.hasEvents
		x.hasEvents = func(c *cpu) bool { return c.interrupts && hasEvents(c) }
	}, "wait/ended-by-nmi")
	add("nmi-not-taken", "An NMI ends a wait and is not taken.", func(x *x86KVM) {
		runnable := x.runnable
		x.runnable = func(c *cpu) { x.state(c).nmi = false; runnable(c) }
	}, "wait/ended-by-nmi")
}

func x86YieldMutants(add x86Add) {
	add("yield-wakes", "A yield ends the wait of its target.", func(x *x86KVM) {
		yield := x.yield
		x.yield = func(c *cpu, id uint64) {
			yield(c, id)
			for _, target := range x.byID(id) {
				x.accept(target, dmRemoteRead, 0)
			}
		}
	}, "yield/does-not-wake")
	add("yield-result", "SCHED_YIELD tells by 1 that it was done.", func(x *x86KVM) {
		x.result("SCHED_YIELD", func(*cpu, int64) int64 { return 1 })
	}, slices.Concat(x86Yields, []string{"discovery/signature-after-other", "number/sched-yield",
		"number/gated-free", "number/gated-enforced", "number/gated-offered"})...)
	add("yield-self-error", "A yield to oneself is refused.", func(x *x86KVM) {
		x.alterYieldResult(func(c *cpu, id uint64, target *cpu) bool { return target == c })
	}, "yield/self")
	add("yield-running-error", "A yield to a CPU that runs is refused.", func(x *x86KVM) {
		x.alterYieldResult(func(c *cpu, id uint64, target *cpu) bool {
			return target != nil && target != c && target.state == ready
		})
	}, "yield/running-target")
	add("yield-waiting-error", "A yield to a CPU that waits is refused.", func(x *x86KVM) {
		x.alterYieldResult(func(c *cpu, id uint64, target *cpu) bool { return target != nil && target.state == asleep })
	}, "yield/waiting-target")
	add("yield-absent-error", "A yield to a CPU that does not exist is refused.", func(x *x86KVM) {
		x.alterYieldResult(func(_ *cpu, _ uint64, target *cpu) bool { return target == nil })
	}, "discovery/signature-after-other", "number/sched-yield", "number/gated-free", "number/gated-offered",
		"yield/absent-target", "yield/target-high-half")
	add("yield-high-half-error", "A yield to an APIC id of more than 32 bits is refused.", func(x *x86KVM) {
		x.alterYieldResult(func(c *cpu, id uint64, target *cpu) bool { return id>>32 != 0 })
	}, "yield/target-high-half")
	add("counter-misses-refused", "The counter hypercalls is for calls that are not refused.", func(x *x86KVM) {
		hypercall := x.hypercall
		x.hypercall = func(c *cpu, number uint64, a [4]uint64) int64 {
			r := hypercall(c, number, a)
			if r == x.abi.Errno("ENOSYS") || r == x.abi.Errno("EPERM") {
				x.state(c).counters["hypercalls"]--
			}
			return r
		}
	}, "counter/hypercalls")
	add("counter-misses-user", "The counter hypercalls is for calls with privilege.", func(x *x86KVM) {
		hypercall := x.hypercall
		x.hypercall = func(c *cpu, number uint64, a [4]uint64) int64 {
			if c.user {
				x.state(c).counters["hypercalls"]--
			}
			return hypercall(c, number, a)
		}
	}, "counter/hypercalls")
	add("counter-twice", "The counter hypercalls counts a kick twice.", func(x *x86KVM) {
		kick := x.kick
		x.kick = func(c *cpu, a [4]uint64) int64 { x.count(c, "hypercalls"); return kick(c, a) }
	}, "counter/hypercalls")
	add("attempted-only-when-successful", "The counter directed_yield_attempted is for yields that were done.", func(x *x86KVM) {
		yield := x.yield
		x.yield = func(c *cpu, id uint64) {
			s := x.state(c)
			before := s.counters["directed_yield_successful"]
			yield(c, id)
			if s.counters["directed_yield_successful"] == before {
				s.counters["directed_yield_attempted"]--
			}
		}
	}, "counter/directed-yield-attempted")
	add("attempted-counts-target", "The counter directed_yield_attempted is that of the target.", func(x *x86KVM) {
		yield := x.yield
		x.yield = func(c *cpu, id uint64) {
			yield(c, id)
			x.state(c).counters["directed_yield_attempted"]--
			for _, o := range x.byID(id) {
				x.count(o, "directed_yield_attempted")
			}
		}
	}, "counter/directed-yield-attempted")
	add("kick-does-not-yield", "A kick does not yield to its target.", func(x *x86KVM) {
		kick, yield := x.kick, x.yield
		x.kick = func(c *cpu, a [4]uint64) int64 {
			x.yield = func(*cpu, uint64) {}
			defer func() { x.yield = yield }()
			return kick(c, a)
		}
	}, "counter/directed-yield-attempted")
}

func x86StealMutants(add x86Add) {
	add("reserved-bit-accepted", "A reserved bit of STEAL_TIME is taken.", func(x *x86KVM) {
		x.set("registers/STEAL_TIME/reserved", 0x3c)
	}, "steal/reserved-bits")
	add("reserved-bit-written", "A reserved bit of STEAL_TIME is refused, after it was taken.", func(x *x86KVM) {
		setMSR := x.setMSR
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
			if ok := setMSR(c, r, v); ok || r.Name != "STEAL_TIME" {
				return ok
			}
			x.state(c).msr[r.Name] = v
			return false
		}
	}, "steal/reserved-bits")
	add("msr-not-read-back", "STEAL_TIME reads without its enable bit.", func(x *x86KVM) {
		getMSR := x.getMSR
		x.getMSR = func(c *cpu, r abi.Register) uint64 {
			if r.Name == "STEAL_TIME" {
				return getMSR(c, r) &^ r.Enable
			}
			return getMSR(c, r)
		}
	}, "steal/enable-reads-back", "steal/reserved-bits")
	add("msr-refused", "STEAL_TIME cannot be written.", func(x *x86KVM) {
		setMSR := x.setMSR
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool { return r.Name != "STEAL_TIME" && setMSR(c, r, v) }
	}, "steal/layout-written", "preempted/descheduled",
		"preempted/cleared-at-entry", "register/reads-back", "register/gated-offered",
		"register/gated-free").Controls = slices.Concat(x86RecordControls, x86MovedRecord,
		[]string{"steal/enable-reads-back", "steal/reserved-bits", "register/after-init"})
	add("msr-reset-value", "STEAL_TIME is not zero after reset.", func(x *x86KVM) {
		for i := range x.cpus {
			x.cpus[i].msr["STEAL_TIME"] = memoryBase << 20
		}
	}, "steal/enable-reads-back", "register/reset-values")
	add("msr-shared", "STEAL_TIME is one register for all CPUs.", func(x *x86KVM) {
		setMSR := x.setMSR
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
			ok := setMSR(c, r, v)
			if ok && r.Name == "STEAL_TIME" {
				for i := range x.cpus {
					x.cpus[i].msr[r.Name] = v
				}
			}
			return ok
		}
	}, "steal/enable-reads-back", "register/reads-back")
	add("never-written", "The record is never written.", func(x *x86KVM) {
		x.record = func(*cpu) {}
	}, "steal/layout-written", "preempted/running",
		"preempted/cleared-at-entry").Controls = slices.Concat(x86MovedRecord, []string{"steal/padding-untouched",
		"steal/flags-untouched", "steal/version-protocol", "steal/monotonic", "steal/disabled", "preempted/waiting", "preempted/in-vmm"})
	add("steal-not-added", "Steal stays as it is.", func(x *x86KVM) {
		publish := x.publish
		x.publish = func(c *cpu, s x86Area, _ uint64) { publish(c, s, 0) }
	}, "steal/layout-written").Controls = []string{"steal/version-protocol", "steal/monotonic"}
	add("steal-overwritten", "Steal is the host's own sum, whatever the guest left there.", func(x *x86KVM) {
		publish := x.publish
		x.publish = func(c *cpu, s x86Area, delay uint64) {
			publish(c, s, c.delay-s.get("steal"))
		}
	}, "steal/layout-written")
	add("steal-decreases", "Steal goes down at times.", func(x *x86KVM) {
		publish, n := x.publish, 0
		x.publish = func(c *cpu, s x86Area, delay uint64) {
			if n++; n%4 == 0 {
				delay = -(s.get("steal") / 2)
			}
			publish(c, s, delay)
		}
	}, "steal/layout-written", "steal/monotonic")
	add("version-odd-left", "Version stays odd after an update.", func(x *x86KVM) {
		publish := x.publish
		x.publish = func(c *cpu, s x86Area, delay uint64) {
			publish(c, s, delay)
			s.set("version", s.get("version")|1)
		}
	}, "steal/layout-written").Controls = []string{"steal/version-protocol", "steal/monotonic"}
	add("version-odd-at-times", "Version stays odd after each third update, until the next.", func(x *x86KVM) {
		publish, n := x.publish, map[*cpu]int{}
		x.publish = func(c *cpu, s x86Area, delay uint64) {
			publish(c, s, delay)
			if n[c]++; n[c]%3 == 0 {
				s.set("version", s.get("version")|1)
			}
		}
	}, "steal/layout-written")
	add("version-not-each-time", "Nothing is written at each fourth entry.", func(x *x86KVM) {
		record, n := x.record, map[*cpu]int{}
		x.record = func(c *cpu) {
			if s, ok := x.stealTime(c); ok {
				if n[c]++; n[c]%4 == 0 {
					x.clear(c, s)
					return
				}
			}
			record(c)
		}
	}, "steal/layout-written")
	add("version-unused", "Version is never written.", func(x *x86KVM) {
		x.publish = func(_ *cpu, s x86Area, delay uint64) { s.set("steal", s.get("steal")+delay) }
	}, "steal/layout-written", "steal/version-protocol").Controls = []string{"steal/disabled"}
	add("version-not-odd", "Version goes up by two after an update and is even meanwhile.", func(x *x86KVM) {
		x.publish = func(c *cpu, s x86Area, delay uint64) {
			s.set("steal", s.get("steal")+delay)
			c.pause()
			s.set("version", s.get("version")+2)
		}
	}, "steal/version-protocol")
	add("torn-update", "Steal is written in parts, after version has become even.", func(x *x86KVM) {
		x.publish = func(c *cpu, s x86Area, delay uint64) {
			at, steal := s.address+s.layout.Field("steal").Offset, s.get("steal")+delay
			s.set("version", s.get("version")+2)
			c.pause()
			s.m.store(at, 2, steal)
			c.pause()
			s.m.store(at+2, 2, steal>>16)
			c.pause()
			s.m.store(at+4, 4, steal>>32)
		}
	}, "steal/version-protocol")
	add("writes-padding", "The hypervisor clears the padding.", func(x *x86KVM) {
		x.alterRecord(func(s x86Area) { s.m.store(s.address+s.layout.Size-1, 1, 0) })
	}, "steal/padding-untouched")
	add("writes-u8-pad", "The hypervisor writes preempted as a word of 4 bytes.", func(x *x86KVM) {
		x.alterRecord(func(s x86Area) { s.m.store(s.address+s.layout.Field("preempted").Offset, 4, 0) })
	}, "steal/padding-untouched")
	add("writes-flags", "The hypervisor clears flags.", func(x *x86KVM) {
		x.alterRecord(func(s x86Area) { s.set("flags", 0) })
	}, "steal/flags-untouched")
	add("writes-behind", "The hypervisor clears the byte behind the record.", func(x *x86KVM) {
		x.alterRecord(func(s x86Area) { s.m.store(s.address+s.layout.Size, 1, 0) })
	}, "steal/padding-untouched")
	add("address-more-aligned", "Bit 6 of the record's address is taken for a flag.", func(x *x86KVM) {
		x.set("layouts/kvm_steal_time/align", 128)
	}, "steal/layout-written", "preempted/descheduled",
		"preempted/cleared-at-entry").Controls = slices.Concat(x86RecordControls, x86MovedRecord)
	add("writes-after-disable", "The hypervisor goes on to write a record that was taken back.", func(x *x86KVM) {
		setMSR := x.setMSR
		off := map[*cpu]uint64{}
		x.setMSR = func(c *cpu, r abi.Register, v uint64) bool {
			if r.Name == "STEAL_TIME" && v&r.Enable == 0 && x.state(c).msr[r.Name] != 0 {
				off[c] = x.state(c).msr[r.Name]
			}
			return setMSR(c, r, v)
		}
		record := x.record
		x.record = func(c *cpu) {
			s := x.state(c)
			if now := s.msr["STEAL_TIME"]; now == 0 && off[c] != 0 {
				s.msr["STEAL_TIME"] = off[c]
				defer func() { s.msr["STEAL_TIME"] = now }()
			}
			record(c)
		}
	}, "steal/disabled")
}

func x86PreemptedMutants(add x86Add) {
	add("preempted-never", "Preempted is never set.", func(x *x86KVM) {
		x.put = func(*cpu, reason) {}
	}, "preempted/descheduled").Controls = []string{"preempted/running"}
	add("preempted-bit-1", "Preempted is set by the bit that is the guest's.", func(x *x86KVM) {
		x.set("layouts/kvm_steal_time/bits/preempted.PREEMPTED/bit", 1)
	}, "preempted/descheduled")
	add("preempted-vague", "Preempted is 255.", func(x *x86KVM) {
		put := x.put
		x.put = func(c *cpu, why reason) {
			put(c, why)
			if s, ok := x.stealTime(c); ok && x.state(c).preempted {
				s.set("preempted", 255)
			}
		}
	}, "preempted/descheduled")
	add("preempted-sticky", "Preempted, once set, is not cleared.", func(x *x86KVM) {
		x.clear = func(c *cpu, s x86Area) { x.state(c).preempted = false }
	}, "preempted/running", "preempted/cleared-at-entry")
	add("preempted-in-wait", "Preempted is set of a CPU that waits.", func(x *x86KVM) {
		x.alterPut(waits)
	}, "preempted/waiting")
	add("preempted-in-vmm", "Preempted is set of a CPU that is out in the VMM.", func(x *x86KVM) {
		x.alterPut(exits)
	}, "preempted/in-vmm")
	add("preempted-after-disable", "Preempted is set also in a record that was taken back.", func(x *x86KVM) {
		last := map[*cpu]x86Area{}
		record, put := x.record, x.put
		x.record = func(c *cpu) {
			if s, ok := x.stealTime(c); ok {
				last[c] = s
			}
			record(c)
		}
		x.put = func(c *cpu, why reason) {
			put(c, why)
			if s, ok := last[c]; ok && why == preempted {
				s.set("preempted", 1)
			}
		}
	}, "steal/disabled")
	add("cleared-not-at-entry", "Preempted is cleared only if the hypervisor set it.", func(x *x86KVM) {
		clear := x.clear
		x.clear = func(c *cpu, s x86Area) {
			if x.state(c).preempted {
				clear(c, s)
			}
		}
	}, "preempted/cleared-at-entry")
	add("cleared-bit-only", "Of preempted only the hypervisor's bit is cleared.", func(x *x86KVM) {
		x.clear = func(c *cpu, s x86Area) {
			s.set("preempted", s.get("preempted")&^s.layout.Bit("preempted", "PREEMPTED"))
			x.state(c).preempted = false
		}
	}, "preempted/cleared-at-entry")
	add("cleared-late", "Preempted is cleared some time after the CPU runs again.", func(x *x86KVM) {
		clear, n := x.clear, map[*cpu]int{}
		x.clear = func(c *cpu, s x86Area) {
			if n[c]++; n[c]%2 == 1 {
				clear(c, s)
			}
		}
	}, "preempted/running", "preempted/cleared-at-entry")
}

// first is the first of CPUs, nil if there is none.
func first(cs []*cpu) *cpu {
	if len(cs) == 0 {
		return nil
	}
	return cs[0]
}

// set changes a number in the hypervisor's own table.
func (x *x86KVM) set(path string, value int64) {
	if err := x.abi.Set(path, value); err != nil {
		panic(err)
	}
	clear(x.layouts)
}

// leafBase is the leaf with the signature.
func (x *x86KVM) leafBase() uint32 { return max(x.m.config.KVMBase, uint32(x.abi.Word("first-leaf"))) }

// alterLeaf changes what a leaf of discovery reads as.
func (x *x86KVM) alterLeaf(leaf uint32, change func(c *cpu, r *[4]uint32)) {
	cpuid := x.cpuid
	x.cpuid = func(c *cpu, l, sub uint32) [4]uint32 {
		r := cpuid(c, l, sub)
		if l == leaf {
			change(c, &r)
		}
		return r
	}
}

// alterFeatures changes what the leaf with the features reads as.
func (x *x86KVM) alterFeatures(change func(c *cpu, r *[4]uint32)) {
	x.alterLeaf(x.leafBase()+uint32(x.abi.Word("features-leaf")), change)
}

// results changes what calls give.
func (x *x86KVM) results(change func(c *cpu, number uint64, result int64) int64) {
	hypercall := x.hypercall
	x.hypercall = func(c *cpu, number uint64, a [4]uint64) int64 {
		return change(c, number, hypercall(c, number, a))
	}
}

// result changes what one call gives.
func (x *x86KVM) result(call string, change func(c *cpu, result int64) int64) {
	x.results(func(c *cpu, number uint64, r int64) int64 {
		if number == x.abi.Call(call).Number && !c.user {
			return change(c, r)
		}
		return r
	})
}

// x86Argument has one call look only at the bits in mask of an argument.
func x86Argument(call string, position int, mask uint64) func(*x86KVM) {
	return func(x *x86KVM) {
		hypercall := x.hypercall
		x.hypercall = func(c *cpu, number uint64, a [4]uint64) int64 {
			if number == x.abi.Call(call).Number {
				a[position] &= mask
			}
			return hypercall(c, number, a)
		}
	}
}

// refuse changes what a call without privilege gives.
func refuse(x *x86KVM, result func(x *x86KVM, number uint64) int64) {
	x.results(func(c *cpu, number uint64, r int64) int64 {
		if c.user {
			return result(x, number)
		}
		return r
	})
}

// alterIPI lets through the interrupts of SEND_IPI that pass; those that do not are counted
// as accepted.
func (x *x86KVM) alterIPI(pass func(c, target *cpu) bool) {
	hypercall, accept := x.hypercall, x.accept
	x.hypercall = func(c *cpu, number uint64, a [4]uint64) int64 {
		if number != x.abi.Call("SEND_IPI").Number {
			return hypercall(c, number, a)
		}
		x.accept = func(target *cpu, mode, vector uint64) int64 {
			if !pass(c, target) {
				return 1
			}
			return accept(target, mode, vector)
		}
		defer func() { x.accept = accept }()
		return hypercall(c, number, a)
	}
}

// alterKick lets through the kicks that pass.
func (x *x86KVM) alterKick(pass func(target *cpu) bool) {
	accept := x.accept
	x.accept = func(target *cpu, mode, vector uint64) int64 {
		if mode == dmRemoteRead && !pass(target) {
			return 1
		}
		return accept(target, mode, vector)
	}
}

// alterKickResult refuses the kicks of targets for which refused is true; a target that is
// not there is nil.
func (x *x86KVM) alterKickResult(refused func(c, target *cpu) bool) {
	kick := x.kick
	x.kick = func(c *cpu, a [4]uint64) int64 {
		no := refused(c, first(x.byID(uint64(uint32(a[1])))))
		r := kick(c, a)
		if no {
			return x.abi.Errno("EINVAL")
		}
		return r
	}
}

// alterRecord has the hypervisor do something more to a record that it updates.
func (x *x86KVM) alterRecord(do func(s x86Area)) {
	publish := x.publish
	x.publish = func(c *cpu, s x86Area, delay uint64) {
		publish(c, s, delay)
		do(s)
	}
}

// alterPut takes a CPU that leaves for that reason for one that was preempted.
func (x *x86KVM) alterPut(taken reason) {
	put := x.put
	x.put = func(c *cpu, why reason) {
		if why == taken {
			c.boundary = true
			defer func() { c.boundary = false }()
			why = preempted
		}
		put(c, why)
	}
}

// alterYieldResult refuses the yields for which refused is true; a target that is not there is
// nil.
func (x *x86KVM) alterYieldResult(refused func(c *cpu, id uint64, target *cpu) bool) {
	hypercall := x.hypercall
	x.hypercall = func(c *cpu, number uint64, a [4]uint64) int64 {
		r := hypercall(c, number, a)
		if number == x.abi.Call("SCHED_YIELD").Number && r == 0 && refused(c, a[0], first(x.byID(a[0]))) {
			return x.abi.Errno("EINVAL")
		}
		return r
	}
}

// x86After changes what the guest finds after a call.
func x86After(do func(x *x86KVM, regs *[16]uint64, flags, length *uint64)) func(*x86KVM) {
	return func(x *x86KVM) {
		x.after = func(_ *cpu, regs *[16]uint64, flags, length *uint64) { do(x, regs, flags, length) }
	}
}

package refhv

// LoongArchMutants are mistakes that an implementer of loongarch-kvm could make, by topic.
func LoongArchMutants() []Mutant[*LoongArch] {
	var ms loongMutants
	for _, topic := range []func(loongAdd){
		loongDiscoveryMutants,
		loongNumberMutants,
		loongCodeMutants,
		loongIPIMutants,
		loongNotifyMutants,
		loongStealMutants,
		loongPreemptedMutants,
	} {
		topic(ms.add)
	}
	for i := range ms {
		b := loongBroken[ms[i].Name]
		ms[i].Rules, ms[i].Controls = b.rules, b.controls
	}
	return ms
}

type loongMutants []Mutant[*LoongArch]

// add adds a mutant; what it breaks is in loongBroken.
func (ms *loongMutants) add(name, text string, change func(*LoongArch)) {
	*ms = append(*ms, Mutant[*LoongArch]{Name: name, Text: text, Change: change})
}

// loongAdd is loongMutants.add.
type loongAdd = func(name, text string, change func(*LoongArch))

// The CPUs that a mutant treats in another way than the first.
const (
	second = 1
	third  = 2
)

func loongDiscoveryMutants(add loongAdd) {
	word := func(index string, value func(h *LoongArch, cpu int, v uint64) uint64) func(*LoongArch) {
		return func(h *LoongArch) {
			cpucfg := h.cpucfg
			h.cpucfg = func(cpu int, at uint32) uint64 {
				v := cpucfg(cpu, at)
				if uint64(at) == h.abi.Word(index) {
					return value(h, cpu, v)
				}
				return v
			}
		}
	}
	add("hypervisor-bit-clear", "Nothing says that there is a hypervisor.", func(h *LoongArch) {
		h.hypervisor = func(_ int, native uint64) uint64 { return native }
	})
	add("hypervisor-bit-differs", "Nothing says on the second CPU that there is a hypervisor.", func(h *LoongArch) {
		set := h.hypervisor
		h.hypervisor = func(cpu int, native uint64) uint64 {
			if cpu == second {
				return native
			}
			return set(cpu, native)
		}
	})
	add("signature-byte", "The last byte of the signature is not zero.",
		word("signature-word", func(_ *LoongArch, _ int, v uint64) uint64 { return v | 1<<24 }))
	add("signature-differs", "One CPU reads another signature.",
		word("signature-word", func(_ *LoongArch, cpu int, v uint64) uint64 {
			if cpu == third {
				return v ^ 1
			}
			return v
		}))
	add("features-differ", "One CPU is offered a feature more.",
		word("features-word", func(h *LoongArch, cpu int, v uint64) uint64 {
			if cpu == second {
				return v | 1<<h.abi.Feature("USER_HCALL").Bit
			}
			return v
		}))
	add("feature-bit-0", "A bit of the features is set that means nothing.",
		word("features-word", func(_ *LoongArch, _ int, v uint64) uint64 { return v | 1 }))
	add("feature-bit-31", "The highest bit of the features is set, which means nothing.",
		word("features-word", func(_ *LoongArch, _ int, v uint64) uint64 { return v | 1<<31 }))
	for _, name := range []string{"IPI", "STEAL_TIME", "PREEMPT", "VIRT_EXTIOI", "USER_HCALL"} {
		add("lost-"+name, "A VMM that chooses features does not get "+name+".", word("features-word", func(h *LoongArch, _ int, v uint64) uint64 {
			if h.frozen {
				return v &^ (1 << h.abi.Feature(name).Bit)
			}
			return v
		}))
	}
	add("features-not-chosen", "A VMM that chooses features gets those that the kernel has, too.",
		word("features-word", func(h *LoongArch, _ int, v uint64) uint64 {
			return v | 1<<h.abi.Feature("IPI").Bit
		}))
	add("reserved-word", "A word that is reserved is not 0.",
		func(h *LoongArch) {
			cpucfg := h.cpucfg
			h.cpucfg = func(cpu int, at uint32) uint64 {
				if uint64(at) == h.abi.Word("features-word")+1 {
					return 1
				}
				return cpucfg(cpu, at)
			}
		})
	add("last-word", "The last word that is reserved is not 0.",
		word("last-word", func(*LoongArch, int, uint64) uint64 { return 1 }))
}

func loongNumberMutants(add loongAdd) {
	// answer has a function answered in another way.
	answer := func(of func(h *LoongArch, function uint64) bool, with func(h *LoongArch, cpu int, a *[6]uint64) int64) func(*LoongArch) {
		return func(h *LoongArch) {
			service := h.service
			h.service = func(cpu int, function uint64, a *[6]uint64) int64 {
				if of(h, function) {
					return with(h, cpu, a)
				}
				return service(cpu, function, a)
			}
		}
	}
	defined := func(h *LoongArch, function uint64) bool {
		return function == h.abi.Call("IPI").Number || function == h.abi.Call("NOTIFY").Number
	}
	result := func(n int64) func(*LoongArch, int, *[6]uint64) int64 {
		return func(*LoongArch, int, *[6]uint64) int64 { return n }
	}
	is := func(n uint64) func(*LoongArch, uint64) bool {
		return func(_ *LoongArch, function uint64) bool { return function == n }
	}
	add("function-0", "Function 0 succeeds, as it asks for features with vendors.", answer(is(0), result(0)))
	add("function-64", "A function far from those that there are succeeds.", answer(is(64), result(0)))
	add("undefined-parameter", "A function that there is none of gives INVALID_PARAMETER.",
		answer(func(h *LoongArch, function uint64) bool { return !defined(h, function) }, result(-2)))
	add("undefined-positive", "A function that there is none of gives a positive error.",
		answer(func(h *LoongArch, function uint64) bool { return !defined(h, function) }, result(38)))
	add("function-32-bits", "Only the low 32 bits of the function count.", func(h *LoongArch) {
		service := h.service
		h.service = func(cpu int, function uint64, a *[6]uint64) int64 { return service(cpu, uint64(uint32(function)), a) }
	})
	add("kick-of-2024", "Function 3 is the kick that was proposed in 2024.", answer(is(3), func(h *LoongArch, _ int, a *[6]uint64) int64 {
		if target, ok := h.target(uint32(a[1])); ok {
			h.queue(target)
			return 0
		}
		return h.abi.Errno("INVALID_PARAMETER")
	}))
	add("functions-of-vendors", "The functions are swapped, as with vendors.", func(h *LoongArch) {
		service := h.service
		h.service = func(cpu int, function uint64, a *[6]uint64) int64 {
			switch function {
			case h.abi.Call("IPI").Number:
				function = h.abi.Call("NOTIFY").Number
			case h.abi.Call("NOTIFY").Number:
				function = h.abi.Call("IPI").Number
			}
			return service(cpu, function, a)
		}
	})
	add("success-of-vendors", "Success is 1, as with vendors.", func(h *LoongArch) {
		service := h.service
		h.service = func(cpu int, function uint64, a *[6]uint64) int64 {
			if n := service(cpu, function, a); n != 0 {
				return n
			}
			return 1
		}
	})
	for _, name := range []string{"IPI", "NOTIFY"} {
		call := func(h *LoongArch, function uint64) bool { return function == h.abi.Call(name).Number }
		add("ungated-"+name, name+" is answered also where its feature is not offered.", answer(call, func(h *LoongArch, cpu int, a *[6]uint64) int64 {
			if name == "NOTIFY" {
				return h.notify(cpu, a[1], a[2])
			}
			h.ipi(cpu, a[1], a[2], a[3])
			return 0
		}))
		add("gate-of-"+name, name+" is answered where PREEMPT is offered.", func(h *LoongArch) {
			service := h.service
			h.service = func(cpu int, function uint64, a *[6]uint64) int64 {
				if call(h, function) && !h.offered("PREEMPT") {
					return h.abi.Errno("INVALID_CODE")
				}
				return service(cpu, function, a)
			}
		})
		add("hidden-parameter-"+name, name+" gives INVALID_PARAMETER where its feature is not offered.", func(h *LoongArch) {
			service := h.service
			h.service = func(cpu int, function uint64, a *[6]uint64) int64 {
				if call(h, function) && !h.offered(h.abi.Call(name).Feature) {
					return h.abi.Errno("INVALID_PARAMETER")
				}
				return service(cpu, function, a)
			}
		})
	}
}

func loongCodeMutants(add loongAdd) {
	// after changes what a call by a code gives.
	after := func(change func(h *LoongArch, code uint64, a *[6]uint64)) func(*LoongArch) {
		return func(h *LoongArch) {
			h.after = func(_ int, code uint64, a *[6]uint64) { change(h, code, a) }
		}
	}
	gives := func(word string, result uint64) func(*LoongArch) {
		return after(func(h *LoongArch, code uint64, a *[6]uint64) {
			if code == h.abi.Word(word) {
				a[0] = result
			}
		})
	}
	add("code-none", "A code of the vendor's own range that is none succeeds.", gives("code-none", 0))
	add("code-last", "The largest code succeeds.", gives("code-last", 0))
	add("code-parameter", "A code that is none gives INVALID_PARAMETER.", after(func(h *LoongArch, code uint64, a *[6]uint64) {
		if code != h.abi.Word("code-service") && code != h.abi.Word("code-user-service") && code != h.abi.Word("code-debug") && code != h.abi.Word("code-vendor") {
			a[0] = ^uint64(1)
		}
	}))
	add("code-of-vendors", "The code of vendors makes calls, too.", func(h *LoongArch) {
		code := h.code
		h.code = func(n uint64) uint64 {
			if n == h.abi.Word("code-vendor") {
				return h.abi.Word("code-service")
			}
			return code(n)
		}
	})
	add("code-8-bits", "Only the low 8 bits of the code count.", func(h *LoongArch) {
		h.code = func(n uint64) uint64 { return n&0xff | h.abi.Word("code-service")&^0xff }
	})
	add("code-debug", "A debugger's code succeeds.", gives("code-debug", 0))
	add("code-user-service", "A call for the VMM succeeds where the feature is not offered.", gives("code-user-service", 0))
	clobbers := func(argument int, refused bool) func(*LoongArch) {
		return after(func(_ *LoongArch, _ uint64, a *[6]uint64) {
			if !refused || int64(a[0]) < 0 {
				a[argument] = 0
			}
		})
	}
	add("clobbers-r5", "A call leaves R5 zero.", clobbers(1, false))
	add("clobbers-r9", "A call that is refused leaves R9 zero.", clobbers(5, true))
}

func loongIPIMutants(add loongAdd) {
	targets := func(change func(id uint32) uint32) func(*LoongArch) {
		return func(h *LoongArch) {
			target := h.target
			h.target = func(id uint32) (int, bool) { return target(change(id)) }
		}
	}
	queue := func(change func(h *LoongArch, queue func(int), cpu int)) func(*LoongArch) {
		return func(h *LoongArch) {
			queue := h.queue
			h.queue = func(cpu int) { change(h, queue, cpu) }
		}
	}
	arguments := func(change func(low, high, lowest uint64) (uint64, uint64, uint64)) func(*LoongArch) {
		return func(h *LoongArch) {
			ipi := h.ipi
			h.ipi = func(cpu int, low, high, lowest uint64) {
				low, high, lowest = change(low, high, lowest)
				ipi(cpu, low, high, lowest)
			}
		}
	}
	add("ipi-dropped", "No IPI is sent.", queue(func(*LoongArch, func(int), int) {}))
	add("ipi-other-cpu", "An IPI goes to the next CPU.", queue(func(h *LoongArch, queue func(int), cpu int) { queue((cpu + 1) % h.m.CPUs()) }))
	add("ipi-everybody", "An IPI goes to all CPUs.", queue(func(h *LoongArch, queue func(int), _ int) {
		for cpu := range h.m.CPUs() {
			queue(cpu)
		}
	}))
	add("ipi-index", "CPUs go by their index instead of their number.", func(h *LoongArch) {
		h.target = func(id uint32) (int, bool) { return int(id), int(id) < h.m.CPUs() }
	})
	add("ipi-other-line", "An IPI is software interrupt 1.", queue(func(h *LoongArch, _ func(int), cpu int) {
		h.m.Interrupt(cpu, h.abi.Register("ESTAT").Bit("SWI0")<<1)
	}))
	add("ipi-two-lines", "An IPI is software interrupt 1 as well.", queue(func(h *LoongArch, queue func(int), cpu int) {
		queue(cpu)
		h.m.Interrupt(cpu, h.abi.Register("ESTAT").Bit("SWI0")<<1)
	}))
	add("ipi-not-self", "An IPI to the caller itself is not sent.", func(h *LoongArch) {
		ipi, queue := h.ipi, h.queue
		h.ipi = func(cpu int, low, high, lowest uint64) {
			h.queue = func(target int) {
				if target != cpu {
					queue(target)
				}
			}
			ipi(cpu, low, high, lowest)
		}
	})
	add("ipi-low-lost", "The first word of targets is not looked at.", arguments(func(_, high, lowest uint64) (uint64, uint64, uint64) { return 0, high, lowest }))
	add("ipi-high-lost", "The second word of targets is not looked at.", arguments(func(low, _, lowest uint64) (uint64, uint64, uint64) { return low, 0, lowest }))
	add("ipi-words-swapped", "The words of targets are swapped.", arguments(func(low, high, lowest uint64) (uint64, uint64, uint64) { return high, low, lowest }))
	add("ipi-bit-63", "The last bit of the second word is not looked at.", arguments(func(low, high, lowest uint64) (uint64, uint64, uint64) {
		return low, high &^ (1 << 63), lowest
	}))
	add("ipi-bit-32", "Only the low half of the first word is looked at.", arguments(func(low, high, lowest uint64) (uint64, uint64, uint64) {
		return low & (1<<32 - 1), high, lowest
	}))
	add("ipi-one-target", "Only the first of several targets is sent an IPI.", arguments(func(low, high, lowest uint64) (uint64, uint64, uint64) {
		if low != 0 {
			return low & -low, 0, lowest
		}
		return 0, high & -high, lowest
	}))
	add("ipi-lowest-64-bits", "All 64 bits of lowest count.", arguments(func(low, high, lowest uint64) (uint64, uint64, uint64) {
		if lowest>>32 != 0 {
			return 0, 0, 0
		}
		return low, high, lowest
	}))
	add("ipi-no-wrap", "The number of a target is not cut to 32 bits.", func(h *LoongArch) {
		ipi := h.ipi
		h.ipi = func(cpu int, low, high, lowest uint64) {
			if uint64(uint32(lowest))+127 < 1<<32 {
				ipi(cpu, low, high, lowest)
			}
		}
	})
	add("ipi-8-bits", "The number of a target is cut to 8 bits.", targets(func(id uint32) uint32 { return id & 0xff }))
	add("ipi-16-bits", "The number of a target is cut to 16 bits.", targets(func(id uint32) uint32 { return id & 0xffff }))
	add("ipi-absent-first", "An IPI stops at the first number that no CPU has.", func(h *LoongArch) {
		ipi, target := h.ipi, h.target
		h.ipi = func(cpu int, low, high, lowest uint64) {
			stopped := false
			h.target = func(id uint32) (int, bool) {
				c, ok := target(id)
				stopped = stopped || !ok
				return c, !stopped
			}
			ipi(cpu, low, high, lowest)
		}
	})
	add("ipi-absent-refused", "An IPI with a number that no CPU has is refused.", func(h *LoongArch) {
		target, service := h.target, h.service
		absent := false
		h.target = func(id uint32) (int, bool) {
			c, ok := target(id)
			absent = absent || !ok
			return c, ok
		}
		h.service = func(cpu int, function uint64, a *[6]uint64) int64 {
			absent = false
			n := service(cpu, function, a)
			if absent {
				return h.abi.Errno("INVALID_PARAMETER")
			}
			return n
		}
	})
	add("ipi-empty-refused", "An IPI with empty bitmaps is refused.", func(h *LoongArch) {
		service := h.service
		h.service = func(cpu int, function uint64, a *[6]uint64) int64 {
			if function == h.abi.Call("IPI").Number && h.offered("IPI") && a[1]|a[2] == 0 {
				return h.abi.Errno("INVALID_PARAMETER")
			}
			return service(cpu, function, a)
		}
	})
	add("ipi-uses-r8", "R8 is a third word of targets that takes part.", func(h *LoongArch) {
		service := h.service
		h.service = func(cpu int, function uint64, a *[6]uint64) int64 {
			if function == h.abi.Call("IPI").Number && a[4] == ^uint64(0) {
				return h.abi.Errno("INVALID_PARAMETER")
			}
			return service(cpu, function, a)
		}
	})
}

func loongNotifyMutants(add loongAdd) {
	notify := func(change func(h *LoongArch, notify func(cpu int, id, data uint64) int64, cpu int, id, data uint64) int64) func(*LoongArch) {
		return func(h *LoongArch) {
			notify := h.notify
			h.notify = func(cpu int, id, data uint64) int64 { return change(h, notify, cpu, id, data) }
		}
	}
	type next = func(cpu int, id, data uint64) int64
	reserved := func(h *LoongArch) uint64 {
		return uint64(h.abi.Call("NOTIFY").Arg("address").Value("RESERVED"))
	}
	thing := func(h *LoongArch) uint64 { return uint64(h.abi.Call("NOTIFY").Arg("what").Value("STEAL_TIME")) }
	valid := func(h *LoongArch) uint64 { return uint64(h.abi.Call("NOTIFY").Arg("address").Value("VALID")) }

	add("notify-nothing", "NOTIFY succeeds and registers nothing.", notify(func(*LoongArch, next, int, uint64, uint64) int64 { return 0 }))
	add("notify-refused", "NOTIFY refuses to register.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		if data&valid(h) != 0 {
			return h.abi.Errno("INVALID_PARAMETER")
		}
		return n(cpu, id, data)
	}))
	add("notify-late", "What is registered is written later, not before the CPU goes on.", func(h *LoongArch) {
		notify := h.notify
		h.notify = func(cpu int, id, data uint64) int64 {
			n := notify(cpu, id, data)
			h.vcpus[cpu].request = false
			return n
		}
	})
	add("notify-reserved-accepted", "The reserved bits of the address are not looked at.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		return n(cpu, id, data&^reserved(h))
	}))
	add("notify-reserved-with-valid", "The reserved bits of the address are looked at only together with VALID.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		if data&valid(h) == 0 {
			data &^= reserved(h)
		}
		return n(cpu, id, data)
	}))
	add("notify-reserved-highest", "The highest reserved bit of the address is not looked at: areas of 32 bytes would do.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		return n(cpu, id, data&^(1<<5))
	}))
	add("notify-reserved-code", "A reserved bit gives INVALID_CODE.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		if r := n(cpu, id, data); r != h.abi.Errno("INVALID_PARAMETER") {
			return r
		}
		return h.abi.Errno("INVALID_CODE")
	}))
	add("notify-refused-takes-back", "What is refused takes back what was registered.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		r := n(cpu, id, data)
		if r != 0 {
			h.vcpus[cpu].area = 0
		}
		return r
	}))
	add("notify-everything", "What the memory is for is not looked at.", notify(func(h *LoongArch, n next, cpu int, _, data uint64) int64 { return n(cpu, thing(h), data) }))
	add("notify-32-bits", "Only the low 32 bits of what the memory is for count.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 { return n(cpu, uint64(uint32(id)), data) }))
	add("notify-any-bit", "Other bits of what the memory is for do not matter.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 { return n(cpu, id&thing(h), data) }))
	add("notify-other-parameter", "Another thing gives INVALID_PARAMETER.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		if id != thing(h) {
			return h.abi.Errno("INVALID_PARAMETER")
		}
		return n(cpu, id, data)
	}))
	add("notify-not-taken-back", "An area is never taken back.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		if id == thing(h) && data&(reserved(h)|valid(h)) == 0 {
			return 0
		}
		return n(cpu, id, data)
	}))
	add("notify-taken-back-by-zero", "An area is taken back by the address 0 only.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		if id == thing(h) && data&(reserved(h)|valid(h)) == 0 && data != 0 {
			return 0
		}
		return n(cpu, id, data)
	}))
	add("notify-valid-by-address", "Any address but 0 is registered, with VALID or without.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		if data != 0 {
			data |= valid(h)
		}
		return n(cpu, id, data)
	}))
	add("notify-written-once-more", "An area that is taken back is written once more.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		old := h.vcpus[cpu].area
		r := n(cpu, id, data)
		if h.vcpus[cpu].area == 0 && old != 0 {
			h.vcpus[cpu].area = old
			enter := h.steal
			h.steal = func(c int) {
				enter(c)
				if c == cpu {
					h.vcpus[cpu].area = 0
					h.steal = enter
				}
			}
		}
		return r
	}))
	add("notify-shared", "All CPUs have the area that was registered last.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		r := n(cpu, id, data)
		for i := range h.vcpus {
			h.vcpus[i].area, h.vcpus[i].request = h.vcpus[cpu].area, true
		}
		return r
	}))
	add("notify-writes-all", "To register an area has those of all CPUs written.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		r := n(cpu, id, data)
		for i := range h.vcpus {
			if o, ok := h.record(i); ok && i != cpu {
				v, _ := o.get("version")
				o.set("version", v+2)
			}
		}
		return r
	}))
	add("notify-keeps-old", "An area that was replaced goes on being written.", func(h *LoongArch) {
		notify, publish := h.notify, h.publish
		old := map[int]record{}
		h.notify = func(cpu int, id, data uint64) int64 {
			before, had := h.record(cpu)
			r := notify(cpu, id, data)
			if now, has := h.record(cpu); had && has && now.address != before.address {
				old[cpu] = before
			}
			return r
		}
		h.publish = func(cpu int, r record, delay uint64) {
			publish(cpu, r, delay)
			if o, ok := old[cpu]; ok {
				publish(cpu, o, delay)
			}
		}
	})
	add("notify-nowhere-refused", "An address that there is no memory at is refused.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 {
		if _, ok := h.m.Load(data&^(reserved(h)|valid(h)), 8); !ok && id == thing(h) && data&valid(h) != 0 && data&reserved(h) == 0 {
			return h.abi.Errno("INVALID_PARAMETER")
		}
		return n(cpu, id, data)
	}))
	add("notify-40-bits", "Only the low 40 bits of the address count.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 { return n(cpu, id, data&(1<<40-1)) }))
	add("notify-63-bits", "The highest bit of the address does not count.", notify(func(h *LoongArch, n next, cpu int, id, data uint64) int64 { return n(cpu, id, data&^(1<<63)) }))
}

func loongStealMutants(add loongAdd) {
	// around does something with the record besides writing it.
	around := func(do func(h *LoongArch, cpu int, r record, delay uint64, publish func(int, record, uint64))) func(*LoongArch) {
		return func(h *LoongArch) {
			publish := h.publish
			h.publish = func(cpu int, r record, delay uint64) { do(h, cpu, r, delay, publish) }
		}
	}
	type write = func(int, record, uint64)
	byteAt := func(h *LoongArch, r record, offset uint64) { h.m.Store(r.address+offset, 1, 0x11) }

	add("version-odd", "Version is odd after an update.", around(func(_ *LoongArch, cpu int, r record, delay uint64, publish write) {
		publish(cpu, r, delay)
		v, _ := r.get("version")
		r.set("version", v|1)
	}))
	add("version-stays", "An update leaves version as it was.", around(func(_ *LoongArch, cpu int, r record, delay uint64, publish write) {
		v, _ := r.get("version")
		publish(cpu, r, delay)
		r.set("version", v)
	}))
	add("version-not-made-even", "A version that was odd when the area was registered stays odd.", around(func(_ *LoongArch, cpu int, r record, delay uint64, publish write) {
		v, _ := r.get("version")
		publish(cpu, r, delay)
		if v%2 == 1 {
			r.set("version", v+2)
		}
	}))
	add("version-not-odd", "Version is not odd while steal changes.", around(func(h *LoongArch, cpu int, r record, delay uint64, publish write) {
		steal, _ := r.get("steal")
		r.set("steal", steal+delay)
		h.m.Pause(cpu)
		publish(cpu, r, 0)
	}))
	add("steal-begins-anew", "What steal held is not counted on from.", around(func(_ *LoongArch, cpu int, r record, delay uint64, publish write) {
		r.set("steal", 0)
		publish(cpu, r, delay)
	}))
	add("steal-stands-still", "Nothing is added to steal.", around(func(_ *LoongArch, cpu int, r record, _ uint64, publish write) { publish(cpu, r, 0) }))
	add("steal-backwards", "What is to be added to steal is taken off it.", around(func(_ *LoongArch, cpu int, r record, delay uint64, publish write) { publish(cpu, r, -delay) }))
	add("steal-of-another-cpu", "What is added to steal is the time that the CPU before was kept waiting.", func(h *LoongArch) {
		last := map[int]uint64{}
		h.publish = func(cpu int, r record, _ uint64) {
			now := h.m.Delay((cpu + h.m.CPUs() - 1) % h.m.CPUs())
			h.publishSteal(cpu, r, now-last[cpu])
			last[cpu] = now
		}
	})
	add("steal-too-much", "What is added to steal is far too much.", around(func(_ *LoongArch, cpu int, r record, delay uint64, publish write) {
		publish(cpu, r, delay<<40)
	}))
	add("flags-written", "Flags of the area are written.", around(func(h *LoongArch, cpu int, r record, delay uint64, publish write) {
		publish(cpu, r, delay)
		byteAt(h, r, r.layout.Field("flags").Offset)
	}))
	add("padding-written", "The first byte of the padding is written.", around(func(h *LoongArch, cpu int, r record, delay uint64, publish write) {
		publish(cpu, r, delay)
		byteAt(h, r, r.layout.Field("pad").Offset)
	}))
	add("last-byte-written", "The last byte of the area is written.", around(func(h *LoongArch, cpu int, r record, delay uint64, publish write) {
		publish(cpu, r, delay)
		byteAt(h, r, r.layout.Size-1)
	}))
	add("behind-written", "The byte behind the area is written.", around(func(h *LoongArch, cpu int, r record, delay uint64, publish write) {
		publish(cpu, r, delay)
		byteAt(h, r, r.layout.Size)
	}))
}

func loongPreemptedMutants(add loongAdd) {
	sets := func(value uint64) func(*LoongArch) {
		return func(h *LoongArch) {
			h.put = func(cpu int, involuntary bool) {
				if r, ok := h.record(cpu); ok && involuntary && h.offered("PREEMPT") {
					r.set("preempted", value)
				}
			}
		}
	}
	add("preempted-lost", "Preempted is never set.", func(h *LoongArch) { h.put = func(int, bool) {} })
	add("preempted-bit-1", "Preempted is set by another bit.", sets(2))
	add("preempted-two-bits", "Preempted is set with another bit as well.", sets(3))
	add("preempted-stuck", "Preempted is not cleared.", func(h *LoongArch) { h.clear = func(int, record) {} })
	add("preempted-first-only", "Preempted is set when the CPU is taken off for the first time only.", func(h *LoongArch) {
		h.clear = func(_ int, r record) { r.set("preempted", 0) } // and forgets to note so
	})
	add("preempted-when-waiting", "Preempted is set of a CPU that waits, too.", func(h *LoongArch) {
		put := h.put
		h.put = func(cpu int, _ bool) { put(cpu, true) }
	})
	add("preempted-ungated", "Preempted is written also where PREEMPT is not offered.", func(h *LoongArch) {
		h.steal = func(cpu int) {
			if r, ok := h.record(cpu); ok {
				r.set("preempted", 0)
			}
			h.updateStolenTime(cpu)
		}
	})
}

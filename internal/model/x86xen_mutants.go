package model

import (
	"slices"

	"pvabi/abi"
)

// xenMutants are mistakes that an implementer of x86-xen could make, by topic.
func xenMutants() []Mutant {
	var ms []Mutant
	add := func(name, text string, change func(x *xen), rules ...string) *Mutant {
		ms = append(ms, Mutant{Name: name, Text: text, Rules: rules, Open: openXen(change)})
		return &ms[len(ms)-1]
	}
	for _, topic := range []func(xenAdd){
		xenDiscoveryMutants, xenNumberMutants, xenKickMutants, xenPollMutants, xenEventMutants,
		xenVCPUMutants, xenRunstateMutants, xenPreemptedMutants,
	} {
		topic(add)
	}
	return ms
}

type xenAdd = func(name, text string, change func(x *xen), rules ...string) *Mutant

func xenDiscoveryMutants(add xenAdd) {
	leaf := func(x *xen, word string, change func(c *cpu, r *[4]uint64)) {
		cpuid, at := x.cpuid, x.abi.Word("first-leaf")
		if word != "" {
			at += x.abi.Word(word)
		}
		x.cpuid = func(c *cpu, n uint64) [4]uint64 {
			r := cpuid(c, n)
			if n == at {
				change(c, &r)
			}
			return r
		}
	}
	add("leaves-few", "There is one leaf after that with the signature.", func(x *xen) {
		leaf(x, "", func(_ *cpu, r *[4]uint64) { r[0] = x.abi.Word("first-leaf") + 1 })
	}, "discovery/signature")
	add("cpus-differ", "One CPU reads another version.", func(x *xen) {
		leaf(x, "version-leaf", func(c *cpu, r *[4]uint64) { r[0] += uint64(c.index / 2) })
	}, "discovery/same-on-all-cpus")
	add("version-differs", "The leaf has another version than the operation.", func(x *xen) {
		leaf(x, "version-leaf", func(_ *cpu, r *[4]uint64) { r[0]-- })
	}, "discovery/version")
	add("no-page", "There is no page with hypercalls.", func(x *xen) {
		leaf(x, "hypercall-leaf", func(_ *cpu, r *[4]uint64) { r[0] = 0 })
	}, "discovery/hypercall-page")
	add("features-none", "No feature is offered.", func(x *xen) {
		features := x.features
		x.features = func(word uint64) (uint64, int64) {
			_, r := features(word)
			return 0, r
		}
	}, append(xenPhysical(), "discovery/features", "runstate/physical-not-offered")...)
	add("features-any-word", "Every word of features is there.", func(x *xen) {
		features := x.features
		x.features = func(uint64) (uint64, int64) { return features(0) }
	}, "discovery/features-absent-word")
	add("user-calls", "Hypercalls are made in user mode, too.", func(x *xen) {
		x.user = x.dispatch
	}, "privilege/user-refused", "privilege/user-has-no-effect")
	add("user-kicks", "A send in user mode is done, and refused.", func(x *xen) {
		x.user = func(c *cpu, number uint64, a [5]uint64) int64 {
			if number == x.abi.Call("event_channel_op").Number {
				x.dispatch(c, number, a)
			}
			return x.abi.Errno("ENOSYS")
		}
	}, "privilege/user-has-no-effect")
}

func xenNumberMutants(add xenAdd) {
	add("undefined-accepted", "A number without a hypercall gives 0.", func(x *xen) {
		hypercall := x.hypercall
		x.hypercall = func(c *cpu, number uint64, a [5]uint64) int64 {
			if number == x.abi.Word("last-free-call") {
				return 0
			}
			return hypercall(c, number, a)
		}
	}, "number/undefined")
	add("extreme-accepted", "The number 2^32-1 gives 0.", func(x *xen) {
		hypercall := x.hypercall
		x.hypercall = func(c *cpu, number uint64, a [5]uint64) int64 {
			if number == 1<<32-1 {
				return 0
			}
			return hypercall(c, number, a)
		}
	}, "number/extreme")
	add("operation-invalid", "An operation that is not there gives -EINVAL.", func(x *xen) {
		x.undefined = func(string) int64 { return x.abi.Errno("EINVAL") }
	}, "number/undefined-operation")
	add("operation-64-bits", "All 64 bits of an operation count.", func(x *xen) {
		x.operation = func(a uint64) uint64 { return a }
	}, "number/operation-high-half")
	add("unreadable-invalid", "Send refuses an argument that cannot be read as invalid.", func(x *xen) {
		unreadable := x.unreadable
		x.unreadable = func(k abi.Call) int64 {
			if k.Name == "send" {
				return x.abi.Errno("EINVAL")
			}
			return unreadable(k)
		}
	}, "number/unreadable-argument")
}

// xenKicks are the rules whose check ends a wait or a poll by a kick.
var xenKicks = []string{
	"privilege/user-has-no-effect", "kick/absent-target", "wait/sleeps-without-kick", "poll/keeps-pending",
	"poll/timeout-past", "runstate/states", "runstate/entry-time", "runstate/sum", "runstate/own-state-grows",
	"runstate/registered", "runstate/updated", "runstate/around", "runstate/update-flag", "runstate/moved",
	"runstate/released", "runstate/bad-address", "runstate/physical", "time/released", "time/physical",
	"preempted/waiting", "preempted/offline", "time/registered", "runstate/physical-refused", "time/bad-address", "time/physical-refused",
}

// xenRounds are the rules whose check has the target wait and be woken again and again.
var xenRounds = []string{
	"runstate/entry-time", "runstate/sum", "runstate/own-state-grows", "runstate/updated", "runstate/around", "runstate/moved",
	"runstate/released", "runstate/bad-address", "time/bad-address", "runstate/physical", "runstate/physical-refused",
	"time/registered", "time/released", "time/physical", "time/physical-refused",
}

func xenKickMutants(add xenAdd) {
	add("send-lost", "A send makes its port pending and wakes nobody.", func(x *xen) {
		x.pollers = func(uint64) {}
	}, "kick/wakes-waiter", "poll/several-ports", "poll/other-vcpu-port").Controls = xenKicks
	add("send-not-kept", "A send reaches only who polls already.", func(x *xen) {
		set := x.setPending
		x.setPending = func(port uint64) {
			polled := slices.ContainsFunc(x.vcpus, func(v xenVCPU) bool { return v.blocked && v.polls })
			if set(port); !polled && x.ports[port].masked {
				x.ports[port].pending = false
			}
		}
	}, "kick/before-wait", "kick/two-kicks", "kick/self", "kick/running-target", "kick/masked-port", "event/other-end", "event/born-pending").
		Controls = []string{"event/alloc-unbound", "event/send-unbound", "event/close", "event/close-clears-pending"}
	add("send-counts", "Each send ends a wait.", func(x *xen) {
		sends := map[uint64]int{}
		set, poll := x.setPending, x.poll
		x.setPending = func(port uint64) {
			sends[port]++
			set(port)
		}
		x.poll = func(c *cpu, ports []uint64, timeout uint64) int64 {
			for _, p := range ports {
				if p < uint64(len(x.ports)) && sends[p] > 1 && !x.ports[p].pending {
					sends[p] = 0
					x.ports[p].pending = true
				}
			}
			return poll(c, ports, timeout)
		}
	}, "kick/two-kicks").Controls = xenRounds
	add("self-refused", "A vCPU cannot send to its own port.", func(x *xen) {
		send := x.send
		x.send = func(port uint64) int64 {
			if port == x.of(x.caller).port {
				return x.abi.Errno("EINVAL")
			}
			return send(port)
		}
	}, "kick/self", "kick/result")
	add("absent-accepted", "A send to a port that cannot be gives 0.", func(x *xen) {
		send := x.send
		x.send = func(port uint64) int64 {
			if port >= uint64(len(x.ports)) {
				return 0
			}
			return send(port)
		}
	}, "kick/absent-target", "kick/result")
	add("absent-wraps", "A port that cannot be is taken for one that can.", func(x *xen) {
		send := x.send
		x.send = func(port uint64) int64 {
			if port >= uint64(len(x.ports)) {
				send(port % uint64(len(x.ports)))
				return x.abi.Errno("EINVAL")
			}
			return send(port)
		}
	}, "kick/absent-target")
	add("send-unmasks", "A send clears the mask.", func(x *xen) {
		set := x.setPending
		x.setPending = func(port uint64) {
			set(port)
			x.ports[port].masked = false
		}
	}, "kick/masked-port")
	add("virq-sent", "A send to a timer's port is taken.", func(x *xen) {
		send := x.send
		x.send = func(port uint64) int64 {
			if port == xenTimerPort {
				return 0
			}
			return send(port)
		}
	}, "kick/port-of-virq")
	add("send-result", "A send gives the port.", func(x *xen) {
		send := x.send
		x.send = func(port uint64) int64 {
			if r := send(port); r != 0 {
				return r
			}
			return int64(port)
		}
	}, "kick/result", "event/send-unbound")
	add("event-eats-kick", "An event that ends a poll clears pending of the vCPU's port.", func(x *xen) {
		deliver := x.deliver
		x.deliver = func(v *xenVCPU) {
			x.ports[v.port].pending = false
			deliver(v)
		}
	}, "wait/interrupt-eats-kick")
	add("event-does-not-wake", "An event does not end a poll.", func(x *xen) {
		x.deliver = func(v *xenVCPU) {
			if v.event = true; !v.polls {
				v.blocked = false
			}
		}
	}, "wait/ended-by-interrupt").Controls = []string{"wait/interrupt-eats-kick"}
	add("block-sleeps-on", "An event does not end a block.", func(x *xen) {
		x.deliver = func(v *xenVCPU) {
			if v.event = true; v.polls {
				v.blocked = false
			}
		}
	}, "sched/block")
	add("yield-result", "A yield gives 1.", func(x *xen) {
		hypercall := x.hypercall
		x.hypercall = func(c *cpu, number uint64, a [5]uint64) int64 {
			r := hypercall(c, number, a)
			if number == x.abi.Call("sched_op").Number && uint32(a[0]) == uint32(x.abi.Call("yield").Number) {
				return 1
			}
			return r
		}
	}, "sched/yield", "number/operation-high-half")
}

// xenOver are the rules whose check makes a poll whose timeout is over.
var xenOver = []string{"poll/closed-port", "poll/absent-port", "poll/unbound-port", "poll/unreadable-ports", "poll/limit"}

func xenPollMutants(add xenAdd) {
	add("poll-clears", "A poll clears pending of the first of its ports.", func(x *xen) {
		hypercall, poll := x.hypercall, x.poll
		x.hypercall = func(c *cpu, number uint64, a [5]uint64) int64 {
			defer func() { x.poll = poll }()
			x.poll = func(c *cpu, ports []uint64, timeout uint64) int64 {
				r := poll(c, ports, timeout)
				if r == 0 && len(ports) > 0 {
					x.ports[ports[0]].pending = false
				}
				return r
			}
			return hypercall(c, number, a)
		}
	}, "poll/keeps-pending", "poll/several-ports")
	add("poll-first-only", "A poll of several ports looks at the first alone.", func(x *xen) {
		poll := x.poll
		x.poll = func(c *cpu, ports []uint64, timeout uint64) int64 {
			if len(ports) > 1 {
				ports = ports[:1]
			}
			return poll(c, ports, timeout)
		}
	}, "poll/several-ports", "poll/closed-port")
	add("poll-own-only", "A poll does not end by the port of another vCPU.", func(x *xen) {
		x.pollers = func(port uint64) {
			for i := range x.vcpus {
				if v := &x.vcpus[i]; v.polls && x.ports[port].vcpu == v.number && (v.pollPort == 0 || v.pollPort == port) {
					v.blocked = false
				}
			}
		}
	}, "poll/other-vcpu-port")
	add("poll-127", "A poll takes 127 ports.", func(x *xen) {
		poll := x.poll
		x.poll = func(c *cpu, ports []uint64, timeout uint64) int64 {
			if len(ports) > 127 {
				return x.abi.Errno("EINVAL")
			}
			return poll(c, ports, timeout)
		}
	}, "poll/limit")
	add("poll-closed", "A closed port can be polled.", func(x *xen) {
		pollable := x.pollable
		x.pollable = func(port uint64) int64 {
			if port < uint64(len(x.ports)) {
				return max(pollable(port), 0)
			}
			return pollable(port)
		}
	}, "poll/closed-port")
	add("poll-absent", "A port that cannot be can be polled.", func(x *xen) {
		pollable := x.pollable
		x.pollable = func(port uint64) int64 {
			if port >= uint64(len(x.ports)) {
				return 0
			}
			return pollable(port)
		}
	}, "poll/absent-port")
	add("poll-unbound-refused", "An unbound port cannot be polled.", func(x *xen) {
		pollable := x.pollable
		x.pollable = func(port uint64) int64 {
			if p := x.known(port); p != nil && p.status == x.abi.Word("unbound") {
				return x.abi.Errno("EINVAL")
			}
			return pollable(port)
		}
	}, "poll/unbound-port")
	add("timeout-relative", "A timeout is a delay.", func(x *xen) {
		poll := x.poll
		x.poll = func(c *cpu, ports []uint64, timeout uint64) int64 {
			if timeout != 0 {
				timeout += x.now()
			}
			return poll(c, ports, timeout)
		}
	}, "poll/timeout-past", "poll/timeout-near", "poll/timeout-alone")
	add("timeout-at-once", "A poll with a timeout does not sleep.", func(x *xen) {
		poll := x.poll
		x.poll = func(c *cpu, ports []uint64, timeout uint64) int64 {
			if timeout != 0 {
				timeout = 1
			}
			return poll(c, ports, timeout)
		}
	}, "poll/timeout-near", "poll/timeout-alone")
	add("timeout-never", "A timeout that is over does not end a poll.", func(x *xen) {
		poll := x.poll
		x.poll = func(c *cpu, ports []uint64, timeout uint64) int64 {
			if timeout < x.now() {
				timeout = 0
			}
			return poll(c, ports, timeout)
		}
	}, "poll/timeout-past").Controls = xenOver
}

func xenEventMutants(add xenAdd) {
	status := func(x *xen, change func(port uint64, s *[4]uint64)) {
		get := x.status
		x.status = func(port uint64) [4]uint64 {
			s := get(port)
			change(port, &s)
			return s
		}
	}
	add("unbound-kept", "A send to an unbound port makes it pending.", func(x *xen) {
		send := x.send
		x.send = func(port uint64) int64 {
			if p := x.known(port); p != nil && p.status == x.abi.Word("unbound") {
				p.pending = true
			}
			return send(port)
		}
	}, "event/send-unbound")
	add("alloc-closed", "A new port has status closed.", func(x *xen) {
		status(x, func(_ uint64, s *[4]uint64) {
			if s[0] == x.abi.Word("unbound") {
				s[0] = x.abi.Word("closed")
			}
		})
	}, "event/alloc-unbound", "event/close")
	add("born-quiet", "The new port of a pair is not pending.", func(x *xen) {
		interdomain := x.interdomain
		x.interdomain = func(remote uint64) (uint64, int64) {
			port, r := interdomain(remote)
			x.ports[port].pending = false
			return port, r
		}
	}, "event/born-pending")
	add("send-own-end", "A send to one end makes itself pending.", func(x *xen) {
		send := x.send
		x.send = func(port uint64) int64 {
			if p := x.known(port); p != nil && p.status == x.abi.Word("interdomain") {
				x.setPending(port)
				return 0
			}
			return send(port)
		}
	}, "event/other-end")
	add("other-end-wrong", "The status names another port for the other end.", func(x *xen) {
		status(x, func(_ uint64, s *[4]uint64) { s[3]++ })
	}, "event/bind-interdomain")
	add("ipi-first-vcpu", "All IPIs are the first vCPU's.", func(x *xen) {
		status(x, func(port uint64, s *[4]uint64) {
			if s[0] == x.abi.Word("ipi") && port > x.vcpus[len(x.m.cpus)-1].port {
				s[1] = x.vcpus[0].number
			}
		})
	}, "event/bind-ipi", "event/bind-vcpu")
	add("bind-ignored", "Bind_vcpu does nothing.", func(x *xen) {
		bind := x.bindVCPU
		x.bindVCPU = func(port, vcpu uint64) int64 {
			if p := x.known(port); p != nil {
				return bind(port, p.vcpu)
			}
			return bind(port, vcpu)
		}
	}, "event/bind-vcpu")
	add("ipi-moves", "The port of an IPI can be moved.", func(x *xen) {
		bind := x.bindVCPU
		x.bindVCPU = func(port, vcpu uint64) int64 {
			if p := x.known(port); p != nil && p.status == x.abi.Word("ipi") {
				p.vcpu = vcpu
				return 0
			}
			return bind(port, vcpu)
		}
	}, "event/bind-vcpu")
	add("close-one-end", "The other end of a port that was closed keeps its status.", func(x *xen) {
		closes := x.close
		x.close = func(port uint64) int64 {
			if p := x.known(port); p != nil && p.status == x.abi.Word("interdomain") {
				p.status = x.abi.Word("unbound")
			}
			return closes(port)
		}
	}, "event/close")
	add("close-keeps-pending", "A port that was pending is so when it is next in use.", func(x *xen) {
		free := x.free
		x.free = func(port uint64) {
			pending := x.ports[port].pending
			free(port)
			x.ports[port].pending = pending
		}
	}, "event/close-clears-pending")
	add("close-twice", "A port can be closed that is closed.", func(x *xen) {
		closes := x.close
		x.close = func(port uint64) int64 {
			if port < uint64(len(x.ports)) && x.known(port) == nil {
				return 0
			}
			return closes(port)
		}
	}, "event/refused-ports")
	add("unmask-clears", "Unmask clears pending.", func(x *xen) {
		unmask := x.unmask
		x.unmask = func(port uint64) int64 {
			r := unmask(port)
			if r == 0 {
				x.ports[port].pending = false
			}
			return r
		}
	}, "event/unmask")
	add("unmask-nothing", "Unmask does nothing.", func(x *xen) {
		unmask := x.unmask
		x.unmask = func(port uint64) int64 {
			masked := port < uint64(len(x.ports)) && x.ports[port].masked
			r := unmask(port)
			if r == 0 {
				x.ports[port].masked = masked
			}
			return r
		}
	}, "event/unmask")
	add("domains-all", "Every domain is there.", func(x *xen) {
		x.domain = func(uint64) int64 { return 0 }
	}, "event/refused-domains")
}

func xenVCPUMutants(add xenAdd) {
	add("vcpu-wraps", "The number of a vCPU counts in 8 bits.", func(x *xen) {
		x.vcpu = func(number uint64) (*xenVCPU, int64) {
			if number >= 1<<8 {
				return &x.vcpus[0], 0
			}
			return x.domainVCPU(number)
		}
	}, "vcpu/is-up", "vcpu/absent")
	add("vcpu-error", "A vCPU that is not there gives -EINVAL.", func(x *xen) {
		x.vcpu = func(number uint64) (*xenVCPU, int64) {
			v, r := x.domainVCPU(number)
			if v == nil {
				r = x.abi.Errno("EINVAL")
			}
			return v, r
		}
	}, "vcpu/is-up", "vcpu/absent")
	add("info-again", "A vcpu_info can be registered again.", func(x *xen) {
		info := x.info
		x.info = func(v *xenVCPU, offset uint64) int64 {
			if v.c != nil {
				return 0
			}
			return info(v, offset)
		}
	}, "vcpu/info-again")
	add("info-crosses", "A vcpu_info may cross a page.", func(x *xen) {
		info := x.info
		x.info = func(v *xenVCPU, offset uint64) int64 {
			if v.c == nil && offset%8 == 0 {
				return 0
			}
			return info(v, offset)
		}
	}, "vcpu/info-crosses-page")
	add("info-unaligned", "A vcpu_info need not be aligned.", func(x *xen) {
		info := x.info
		x.info = func(v *xenVCPU, offset uint64) int64 { return info(v, offset&^7) }
	}, "vcpu/info-not-aligned")
	add("assist-anything", "Vm_assist takes whatever it is asked for.", func(x *xen) {
		assist := x.assist
		x.assist = func(command, _ uint64) int64 { return assist(command, x.abi.Word("assist-update-flag")) }
	}, "vcpu/assist")
	add("assist-refused", "Vm_assist does not know the flag.", func(x *xen) {
		x.assist = func(uint64, uint64) int64 { return x.abi.Errno("EINVAL") }
	}, "vcpu/assist")
}

func xenRunstateMutants(add xenAdd) {
	add("entry-backwards", "A state is said to have begun a while before it did, now and then.", func(x *xen) {
		get, n := x.get, uint64(0)
		x.get = func(v *xenVCPU) xenRunstate {
			r := get(v)
			if n++; n%7 == 0 {
				r.entry -= min(r.entry, 1<<24)
			}
			return r
		}
	}, "runstate/entry-time")
	add("time-lost", "The time of the state that a vCPU is in is not counted.", func(x *xen) {
		x.get = func(v *xenVCPU) xenRunstate { return v.runstate }
	}, "runstate/sum", "runstate/own-state-grows")
	add("blocked-as-offline", "A vCPU that waits is offline.", func(x *xen) {
		change := x.change
		x.change = func(v *xenVCPU, state, at uint64) {
			if state == x.abi.Word("blocked") {
				state = x.abi.Word("offline")
			}
			change(v, state, at)
		}
	}, "runstate/states", "preempted/waiting").Controls = []string{"runstate/entry-time", "runstate/sum", "runstate/own-state-grows"}
	add("area-not-written", "An area is not written when it is registered.", func(x *xen) {
		register := x.registerVA
		x.registerVA = func(v *xenVCPU, k abi.Call, address uint64) int64 {
			if k.Name == "register_runstate_memory_area" && address < x.abi.Word("hypervisor-memory") {
				v.linear = address
				return 0
			}
			return register(v, k, address)
		}
	}, "runstate/registered")
	add("area-not-updated", "An area is written once.", func(x *xen) {
		update := x.update
		x.update = func(v *xenVCPU) {
			if v.linear == kernelArea || v.physical != 0 {
				update(v)
			}
		}
	}, "runstate/updated", "runstate/physical").Controls = []string{"runstate/moved", "runstate/released", "runstate/update-flag"}
	add("area-entry-late", "Three times of four the beginning of a state is not written.", func(x *xen) {
		update, n := x.update, 0
		x.update = func(v *xenVCPU) {
			l := x.abi.Layout("vcpu_runstate_info")
			if n++; n%4 == 0 || !x.m.mapped(v.linear, l.Size) {
				update(v)
				return
			}
			s := structure{x, l, v.linear}
			entry := s.get("state_entry_time")
			update(v)
			s.set("state_entry_time", entry)
		}
	}, "runstate/update-flag", "runstate/updated")
	add("area-kept", "An area is written on after another was registered.", func(x *xen) {
		old := map[uint64]uint64{}
		register, update := x.registerVA, x.update
		x.registerVA = func(v *xenVCPU, k abi.Call, address uint64) int64 {
			if k.Name == "register_runstate_memory_area" && v.linear != kernelArea && v.linear != 0 && address != 0 {
				old[v.number] = v.linear
			}
			return register(v, k, address)
		}
		x.update = func(v *xenVCPU) {
			update(v)
			if at := old[v.number]; at != 0 && x.m.mapped(at, 48) {
				x.store(structure{x, x.abi.Layout("vcpu_runstate_info"), at}, v.runstate, 0)
			}
		}
	}, "runstate/moved")
	add("area-not-released", "Address 0 leaves the area before.", func(x *xen) {
		register := x.registerVA
		x.registerVA = func(v *xenVCPU, k abi.Call, address uint64) int64 {
			if address == 0 && k.Name == "register_runstate_memory_area" {
				return 0
			}
			return register(v, k, address)
		}
	}, "runstate/released")
	add("area-too-long", "What is written is a word longer than an area.", func(x *xen) {
		update := x.update
		x.update = func(v *xenVCPU) {
			update(v)
			if x.m.mapped(v.linear+48, 8) {
				x.m.store(v.linear+48, 8, 0)
			}
		}
	}, "runstate/around")
	add("area-flag-stays", "UPDATE stays set.", func(x *xen) {
		update := x.update
		x.update = func(v *xenVCPU) {
			update(v)
			l := x.abi.Layout("vcpu_runstate_info")
			if x.m.mapped(v.linear, l.Size) {
				s := structure{x, l, v.linear}
				s.set("state_entry_time", s.get("state_entry_time")|l.Bit("state_entry_time", "UPDATE"))
			}
		}
	}, "runstate/updated").Controls = []string{"runstate/update-flag"}
	add("area-any-address", "An area may be the hypervisor's memory.", func(x *xen) {
		register := x.registerVA
		x.registerVA = func(v *xenVCPU, k abi.Call, address uint64) int64 {
			if address >= x.abi.Word("hypervisor-memory") {
				return 0
			}
			return register(v, k, address)
		}
	}, "runstate/bad-address", "time/bad-address")
	add("area-memory-only", "An area must be memory.", func(x *xen) {
		register := x.registerVA
		x.registerVA = func(v *xenVCPU, k abi.Call, address uint64) int64 {
			if address != 0 && !x.m.mapped(address, 32) {
				return x.abi.Errno("EFAULT")
			}
			return register(v, k, address)
		}
	}, "runstate/bad-address")
	add("physical-crosses", "An area by physical address may cross a page.", func(x *xen) {
		register := x.registerPA
		x.registerPA = func(v *xenVCPU, k abi.Call, address, size uint64, at *uint64) int64 {
			if address%8 == 0 && address/xenPage != (address+size-1)/xenPage && address != x.abi.Word("unregister") {
				return 0
			}
			return register(v, k, address, size, at)
		}
	}, "runstate/physical-refused", "time/physical-refused")
	add("physical-stays", "An area by physical address cannot be taken back.", func(x *xen) {
		register := x.registerPA
		x.registerPA = func(v *xenVCPU, k abi.Call, address, size uint64, at *uint64) int64 {
			if address == x.abi.Word("unregister") {
				return 0
			}
			return register(v, k, address, size, at)
		}
	}, "runstate/physical", "time/physical")
	add("physical-not-known", "Areas by physical address are offered, and refused.", func(x *xen) {
		x.registerPA = func(*xenVCPU, abi.Call, uint64, uint64, *uint64) int64 { return x.abi.Errno("ENOSYS") }
	}).Controls = xenPhysical()
	add("not-offered-invalid", "What is not offered gives -EINVAL.", func(x *xen) {
		x.noPhysical = true
		undefined := x.undefined
		x.undefined = func(hypercall string) int64 {
			if hypercall == "vcpu_op" {
				return x.abi.Errno("EINVAL")
			}
			return undefined(hypercall)
		}
	}, "runstate/physical-not-offered", "number/undefined-operation").Version = "4.17"
	add("clock-odd", "The version of a time stays odd.", func(x *xen) {
		write := x.writeTime
		x.writeTime = func(v *xenVCPU) {
			write(v)
			for _, at := range []uint64{v.time, v.timePhysical} {
				if at != 0 && x.m.mapped(at, 4) {
					x.m.store(at, 4, 3)
				}
			}
		}
	}, "time/registered", "time/physical")
	add("clock-fast", "A time's factor is twice what it should be.", func(x *xen) {
		write := x.writeTime
		x.writeTime = func(v *xenVCPU) {
			write(v)
			l := x.abi.Layout("pvclock_vcpu_time_info")
			if v.time != 0 && x.m.mapped(v.time, l.Size) {
				structure{x, l, v.time}.set("tsc_shift", xenStep+2)
			}
		}
	}, "time/agrees")
	add("clock-not-released", "Address 0 leaves the area of a time.", func(x *xen) {
		register := x.registerVA
		x.registerVA = func(v *xenVCPU, k abi.Call, address uint64) int64 {
			if address == 0 && k.Name != "register_runstate_memory_area" {
				x.writeTime(v)
				return 0
			}
			return register(v, k, address)
		}
	}, "time/released")
}

func xenPreemptedMutants(add xenAdd) {
	add("runnable-as-running", "A vCPU that wants a CPU is running.", func(x *xen) {
		change := x.change
		x.change = func(v *xenVCPU, state, at uint64) {
			if state == x.abi.Word("runnable") {
				state = x.abi.Word("running")
			}
			change(v, state, at)
		}
	}).Controls = []string{"runstate/update-flag", "preempted/running", "preempted/descheduled", "steal/monotonic", "steal/counts", "preempted/area-kernel-mode", "preempted/area-user-mode"}
	add("running-as-runnable", "A running vCPU is runnable.", func(x *xen) {
		get := x.get
		x.get = func(v *xenVCPU) xenRunstate {
			r := get(v)
			if r.state == x.abi.Word("running") {
				r.state = x.abi.Word("runnable")
			}
			return r
		}
	}, "runstate/states", "preempted/running")
	add("offline-as-blocked", "A vCPU that is down is blocked.", func(x *xen) {
		get := x.get
		x.get = func(v *xenVCPU) xenRunstate {
			r := get(v)
			if v.c == nil {
				r.state = x.abi.Word("blocked")
			}
			return r
		}
	}, "preempted/offline")
	add("steal-backwards", "The time of state runnable is given back.", func(x *xen) {
		get, n := x.get, uint64(0)
		x.get = func(v *xenVCPU) xenRunstate {
			r := get(v)
			n++
			if n%3 == 0 {
				r.time[1] /= 2
			}
			return r
		}
	}, "steal/monotonic")
	add("late-in-user-mode", "The area of a vCPU that was preempted in user mode is written when it is next in the kernel, as Xen does.", func(x *xen) {
		update := x.update
		x.update = func(v *xenVCPU) {
			if v.linear == kernelArea && v.physical == 0 && !v.inCall {
				v.late = true
				return
			}
			update(v)
		}
	}, "preempted/area-user-mode")
	add("late-always", "The area of a vCPU is written only when it runs.", func(x *xen) {
		update := x.update
		x.update = func(v *xenVCPU) {
			if v.runstate.state == x.abi.Word("running") {
				update(v)
			}
		}
	}, "preempted/area-kernel-mode", "preempted/area-user-mode", "runstate/updated")
}

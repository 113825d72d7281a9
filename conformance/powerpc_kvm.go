package conformance

import (
	"fmt"
	"maps"
	"math/bits"
	"strings"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/ppc64le"
	"pvabi/conformance/microvm"
)

// PowerPCKVM is the suite for Linux KVM-HV's part of the hypervisor side of powerpc-papr: of the
// kernel that the suite runs on, in that release, asked by the CPUs of a machine of our own.
// The machines that open makes must be PAPRMachines. answers tells whether KVM itself answers
// the call with a number, and pageSize is that of the kernel, in bytes.
func PowerPCKVM(release string, pageSize int, answers func(number uint64) (bool, error), open func(microvm.Config) (microvm.Machine, error)) *Suite {
	p := abi.PowerPCPAPR()
	return &Suite{
		ABI: p, ISA: ppc64le.ISA, Native: "sc 1", FlagsPoison: paprFlagsPoison,
		Checks: paprKVMChecks(answers), Costs: paprCosts(true), Left: paprLeftByKVM, Open: open,
		// Function sets are named by the monitor. KVM has a part in one if it has any
		// of the calls.
		Offers: func(f abi.Feature) (bool, error) {
			for _, c := range p.Calls {
				if c.Feature != f.Name {
					continue
				}
				if ok, err := answers(c.Number); ok || err != nil {
					return ok, err
				}
			}
			return false, nil
		},
		Implementer: Implementer{Name: "Linux KVM-HV", Version: release},
		Deviations:  kvmPAPRDeviations(pageSize), Looks: Looks,
	}
}

// PowerPCKVMNestedPAPR is the same for a KVM-HV that has the hypervisor below run its guests, by the
// calls of nested PAPR. QEMU 11.1 is that hypervisor.
func PowerPCKVMNestedPAPR(release string, pageSize int, answers func(number uint64) (bool, error), open func(microvm.Config) (microvm.Machine, error)) *Suite {
	s := PowerPCKVM(release, pageSize, answers, func(c microvm.Config) (microvm.Machine, error) {
		c.IDs = nil // QEMU ends by an assertion unless CPUs are numbered 0, 1, 2 (hw/ppc/spapr_nested.c, h_guest_create_vcpu)
		return open(c)
	})
	s.Left = maps.Clone(s.Left)
	s.Left["wait/ended-by-interrupt"] = "QEMU's nested PAPR delivers no external interrupt to a guest's guest"
	s.Left["wait/interrupt-eats-kick"] = "QEMU's nested PAPR tells KVM of a decrementer that has expired where it has not, which ends a wait as what is left of a kick would"
	s.Deviations = append(s.Deviations, kvmNestedPAPRDeviation)
	return s
}

// PowerPCKVMRules are the rules that PowerPCKVM has a result for, in the order of its results.
func PowerPCKVMRules() []abi.Rule {
	return (&Suite{ABI: abi.PowerPCPAPR(), Checks: paprKVMChecks(nil)}).Rules()
}

// paprKVMChecks are those of powerpc-papr, and those that have to have power over the host.
func paprKVMChecks(answers func(number uint64) (bool, error)) []Check {
	return append(paprChecks(nil),
		paprDescheduled("preempted/descheduled", "steal/grows"),
		paprMonitor(answers, "monitor/call-handed-over", "monitor/answer-handed-back"),
		paprDisabled("monitor/disabled-call"))
}

// paprLeftByKVM are the rules that are no matter of KVM's.
var paprLeftByKVM = func() map[string]string {
	const (
		tree   = "the monitor writes the device tree, and names function sets in it; of hcall-splpar KVM has CEDE, CONFER, PROD and REGISTER_VPA"
		number = "KVM leaves a call that it does not know to the monitor, which gives the status; here that is the project's own carrier"
		join   = "KVM leaves JOIN to the monitor; here that is the project's own carrier, which has none"
	)
	left := map[string]string{}
	for why, rules := range map[string][]string{
		tree:   {"discovery/hypertas", "discovery/function-set-complete"},
		number: {"number/undefined", "number/not-multiple-of-four", "number/extreme", "number/high-half"},
		join:   {"join/interrupts-on", "join/ended-by-prod", "join/keeps-interrupts-off", "join/prod-before", "join/not-ended-by-decrementer"},
	} {
		for _, r := range rules {
			left[r] = why
		}
	}
	return left
}()

// paprDescheduled: two CPUs pass a ball to and fro. Having but one processor of the host for both,
// one that has the ball back was taken off in between, and while the other looks, it is off.
// What each sees of the first one's YIELDED is the other's control.
func paprDescheduled(descheduled, grows string) Check {
	const (
		passes = 8
		reads  = 1000 // of one look
	)
	return Check{Rules: []string{descheduled, grows}, Run: func(t *T) {
		m := t.Open(machine())
		_, field, mask := t.ABI.PreemptedField()
		address, _, err := t.papr(m).AreaAddress(target)
		t.Check("the target's area", err)
		// The probe reads words of 8 bytes in its own order, the least byte first.
		little := bits.ReverseBytes64(mask) >> (64 - 8*field.Size)
		look := func(until uint64) arch.Op { return spinUntil(address+field.Offset, little, until, reads) }
		want, other := t.Want(descheduled, "preempted"), uint64(0)
		if want == 0 {
			other = little
		}
		one, two := turns(m.Alloc(8, 8, 0), passes)
		var own, rival arch.Program
		var owns, rivals []int
		for i := range passes {
			// Each looks while it has the ball.
			owns = append(owns, len(own))
			own = append(append(own, look(little)), one[2*i:2*i+2]...)
			rivals = append(rivals, len(rival)+1)
			rival = append(append(rival, two[2*i], look(other)), two[2*i+1])
		}
		_, name, _ := strings.Cut(t.ABI.Scheduling.Steal, ".")
		steal := func() uint64 { return t.vpa(m, target).field(name) }
		before := steal()
		release := t.crowd(m, target, third)
		t.start(m, third, rival...)
		t.start(m, target, own...)
		t.finish(m, target)
		t.finish(m, third)
		release()
		// What was counted is written when the CPU enters next.
		ran := m.Results(target)[:len(own)]
		t.run(m, target, t.noKick())
		grew := steal() - before
		seen := m.Results(third)
		for i := range passes {
			t.Control("reads by the CPU itself that see it not taken off", uint64(reads), ran[owns[i]].Aux)
			r := seen[rivals[i]]
			t.Equal(descheduled, "YIELDED as another CPU sees it, on the same processor", want, bit(r.Value&little != 0))
			t.Equal(descheduled, "reads by that CPU, none of them other", uint64(reads), r.Aux)
		}
		lasted := ran[len(ran)-1].End - ran[0].Begin
		t.Equal(grows, "grows while the CPU has to wait for the processor", t.Want(grows, "grows"), bit(grew > 0))
		t.Truth(grows, "by no more than the time that it took", grew <= lasted)
		t.Evidence(grows, "ticks", []uint64{grew, lasted})
	}}
}

// passedCalls is how many calls of a CPU's reached the monitor.
func (t *T) passedCalls(m microvm.Machine, cpu int) uint64 {
	n, err := m.Counter(cpu, microvm.PassedCalls)
	t.Check("calls that reach the monitor", err)
	return n
}

// paprMonitor: the numbers that KVM has no answer for, among them those that are nearly one that
// it has. Each register is poisoned with a value of its own.
func paprMonitor(answers func(number uint64) (bool, error), over, back string) Check {
	return Check{Rules: []string{over, back}, Run: func(t *T) {
		m := t.Open(machine())
		monitor, ok := m.(microvm.Passer)
		if !ok {
			t.Fatal(fmt.Errorf("a machine of type %T does not tell what reaches its monitor", m))
		}
		first, last := t.ABI.Word("first-free"), t.ABI.Word("last-free")
		numbers := []uint64{0, first, last, 1<<31 - 4, 1 << 31, 1<<32 - 4, 1 << 63, 1<<64 - 4}
		for _, c := range t.ABI.AllCalls() {
			answered, err := answers(c.Number)
			t.Check("what KVM answers", err)
			switch {
			case answered:
				numbers = append(numbers, c.Number+1, c.Number+2, c.Number+3, 1<<32|c.Number, 1<<63|c.Number)
			case c.Feature != "":
				numbers = append(numbers, c.Number)
			}
		}
		conv := t.ABI.MainConvention()
		for _, n := range numbers {
			op, before := t.callNumber(n), t.passedCalls(m, caller)
			r := t.run(m, caller, op)[0]
			reached := t.passedCalls(m, caller) - before
			number, args := monitor.Passed(caller)
			var changed, returned int64
			for i, name := range conv.Args {
				made := op.Regs[t.ISA.Register(name)]
				changed += bit(args[i] != made)
				returned += bit(r.Regs[t.ISA.Register(name)] != args[i])
			}
			what := "number " + Hex(n).String()
			t.Equal(over, what+": times that the monitor is asked", 1, reached)
			t.Equal(over, what+": registers that the monitor finds changed", t.Want(over, "changed"), changed+bit(number != n))
			// The carrier leaves all but the status as it is.
			t.Equal(back, what+": registers that the guest finds changed", t.Want(back, "changed"), returned+bit(t.returned(r) != t.ABI.Errno("FUNCTION")))
		}
		before := t.passedCalls(m, caller)
		t.run(m, caller, t.kick(absentID))
		t.Control("times that the monitor is asked for a call that KVM answers", uint64(0), t.passedCalls(m, caller)-before)
	}}
}

// paprDisabled: of the calls that KVM answers those that the monitor takes upon itself. But for
// REGISTER_VPA, without which there is no area.
func paprDisabled(rule string) Check {
	return Check{Rules: []string{rule}, Run: func(t *T) {
		c := machine()
		var calls []abi.Call
		for _, name := range []string{t.ABI.Scheduling.Wait, t.ABI.Scheduling.Kick, t.ABI.Scheduling.Yield} {
			calls = append(calls, t.ABI.Call(name))
			c.Leave = append(c.Leave, t.ABI.Call(name).Number)
		}
		for _, disabled := range []bool{false, true} {
			m := t.Open(machine())
			if disabled {
				m = t.Open(c)
			}
			for _, call := range calls {
				before := t.passedCalls(m, caller)
				_, r, _ := t.paprHarmlessly(m, caller, call)
				kept := bit(t.passedCalls(m, caller) == before)
				if !disabled {
					t.Control("KVM answers "+call.Name+" where it is enabled", int64(1), kept)
					continue
				}
				t.Equal(rule, call.Name, t.Want(rule, "kept"), kept)
				t.Evidence(rule, call.Name, t.returned(r))
			}
		}
	}}
}

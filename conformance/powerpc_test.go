package conformance

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/abi"
)

// paprUnchecked are the rules that no check is for, and why.
var paprUnchecked = map[string]string{
	"convention/float-registers-preserved":   "the probe has no access to them in a kernel, where they are some process's",
	"number/poll-pending":                    "no implementer at hand offers the call: QEMU does not, and KVM leaves it to the monitor",
	"wait/interrupt-before-next-instruction": "the probe does not see when the kernel takes an interrupt",
	"join/last-thread":                       "every CPU would have to join, the one with the agent too",
	"guest/preempted-running":                "a waiter that has to make way for another thread does not spin either, and no look tells the two apart each time",
	"guest/joins-with-interrupts-off":        "Linux joins only when its partition migrates",
}

// paprPower are the rules that only those can look at who have power over the host, as a guest cannot
// have its processor taken away, or who are the monitor.
var paprPower = []string{"preempted/descheduled", "steal/grows", "monitor/call-handed-over", "monitor/answer-handed-back", "monitor/disabled-call"}

// TestPAPRRules: each rule has one check, or a reason for having none.
func TestPAPRRules(t *testing.T) {
	inside := map[string]bool{}
	for _, r := range PowerPCPAPRRules() {
		inside[r.Name()] = true
	}
	checked := map[string]int{}
	for _, r := range PowerPCKVMRules() {
		checked[r.Name()]++
		assert.Equal(t, !slices.Contains(paprPower, r.Name()), inside[r.Name()], "%s is looked at inside of a guest", r.ID)
	}
	for _, r := range PowerPCGuestRules() {
		checked[r.Name()]++
	}
	for _, r := range abi.PowerPCPAPR().Rules {
		want := 1
		if paprUnchecked[r.Name()] != "" {
			want = 0
		}
		assert.Equal(t, want, checked[r.Name()], "checks for %s", r.ID)
	}
}

func TestPAPRDeviations(t *testing.T) {
	for name, of := range map[string]struct {
		rules      []abi.Rule
		deviations []Deviation
	}{
		"QEMU":                          {PowerPCPAPRRules(), qemuPAPRDeviations},
		"Linux KVM-HV, pages of 4 KiB":  {PowerPCKVMRules(), kvmPAPRDeviations(4 << 10)},
		"Linux KVM-HV, pages of 64 KiB": {PowerPCKVMRules(), kvmPAPRDeviations(64 << 10)},
		"Linux KVM-HV, nested PAPR":     {PowerPCKVMRules(), []Deviation{kvmNestedPAPRDeviation}},
	} {
		rules := map[string]bool{}
		for _, r := range of.rules {
			rules[r.ID] = paprLeftByKVM[r.Name()] == "" || name == "QEMU"
		}
		for _, d := range of.deviations {
			assert.True(t, rules[d.Rule], "%s: deviation %s is about %s, which no check looks at", name, d.ID, d.Rule)
		}
	}
}

// TestPAPRLeftByKVM: what is left to the monitor are rules that there are checks for.
func TestPAPRLeftByKVM(t *testing.T) {
	rules := map[string]bool{}
	for _, r := range PowerPCKVMRules() {
		rules[r.Name()] = true
	}
	for name := range paprLeftByKVM {
		assert.True(t, rules[name], "%s is left, and no check is for it", name)
	}
}

// TestPowerPCKVMOffers: function sets are offered of which KVM answers any call.
func TestPowerPCKVMOffers(t *testing.T) {
	p := abi.PowerPCPAPR()
	s := PowerPCKVM("7.2", 4096, func(number uint64) (bool, error) {
		if number == p.Call("PIC").Number {
			return false, assert.AnError
		}
		return number == p.Call("PROD").Number, nil
	}, nil)
	for name, want := range map[string]bool{"SPLPAR": true, "JOIN": false, "LINUX_KVM": false} {
		got, err := s.Offers(p.Feature(name))
		assert.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	_, err := s.Offers(p.Feature("PIC"))
	assert.ErrorIs(t, err, assert.AnError)
}

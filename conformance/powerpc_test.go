package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/abi"
)

// paprUnchecked are the rules of the hypervisor that no check is for, and why.
var paprUnchecked = map[string]string{
	"convention/float-registers-preserved":   "the probe has no access to them in a kernel, where they are some process's",
	"number/poll-pending":                    "no implementer at hand offers the call",
	"wait/interrupt-before-next-instruction": "the probe does not see when the kernel takes an interrupt",
	"join/last-thread":                       "every CPU would have to join, the one with the agent too",
	"preempted/descheduled":                  "a guest cannot have its host take a processor away",
	"steal/grows":                            "a guest cannot have its host take a processor away",
	"trace/wraps":                            "no implementer at hand writes the log",
}

// TestPAPRRules: each rule of the hypervisor has one check, or a reason for having none.
func TestPAPRRules(t *testing.T) {
	checked := map[string]int{}
	for _, r := range PowerPCPAPRRules() {
		checked[r.Name()]++
	}
	for _, r := range abi.PowerPCPAPR().Rules {
		if r.Side != abi.Hypervisor {
			continue
		}
		want := 1
		if paprUnchecked[r.Name()] != "" {
			want = 0
		}
		assert.Equal(t, want, checked[r.Name()], "checks for %s", r.ID)
	}
}

func TestPAPRDeviations(t *testing.T) {
	rules := map[string]bool{}
	for _, r := range PowerPCPAPRRules() {
		rules[r.ID] = true
	}
	for _, d := range qemuPAPRDeviations {
		assert.True(t, rules[d.Rule], "deviation %s is about %s, which no check is for", d.ID, d.Rule)
	}
}

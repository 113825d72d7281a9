package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/abi"
)

// TestEveryRuleHasOneCheck: a rule without a check would be passed over in silence, one
// with two would have two verdicts.
func TestEveryRuleHasOneCheck(t *testing.T) {
	checks := map[string]int{}
	for _, c := range x86Checks() {
		for _, name := range c.Rules {
			checks[name]++
		}
	}
	rules := map[string]int{}
	for _, r := range abi.X86KVM().Rules {
		if r.Side == abi.Hypervisor { // TestLinuxKVM has the guest's
			rules[r.Name()] = 1
		}
	}
	assert.Equal(t, rules, checks, "checks by rule")
	assert.Len(t, X86KVMBelowRules(), len(rules))
}

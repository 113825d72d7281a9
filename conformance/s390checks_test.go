package conformance

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/abi"
)

// unchecked are the rules of s390 without a check, and why.
var unchecked = map[string]string{
	"yield/counted":                       "the counter is the host's",
	"yield/ignored-counted":               "the counter is the host's",
	"pfault/nothing-to-cancel":            "the token is the kernel's, which needs it",
	"sigp/sense-running-without-facility": "takes a machine without the facility",
	"sigp/conditional-emergency-stopped":  "CPUs that Linux stops are not enabled for interruptions",
	"external-call/masked-waiter":         "Linux waits for all interruptions alike",
	"wait/sleeps-without-kick":            "the kernel interrupts its idle CPUs when it likes",
	"guest/probes-once":                   "the kernel's decompressor does it, before anything could be looked at",
}

// TestS390Rules: each rule has one check, or a reason to have none.
func TestS390Rules(t *testing.T) {
	checks := map[string]int{}
	for _, r := range slices.Concat(S390Rules(), S390GuestRules()) {
		checks[r.Name()]++
	}
	for _, r := range abi.S390().Rules {
		want := 1
		if _, ok := unchecked[r.Name()]; ok {
			want = 0
		}
		assert.Equal(t, want, checks[r.Name()], "checks of %s", r.ID)
	}
}

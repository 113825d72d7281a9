package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/abi"
)

// xenUnchecked are the rules of Xen without a check, and why.
var xenUnchecked = map[string]string{
	"number/high-half":               "the kernel's driver cuts the number",
	"convention/registers-preserved": "the kernel's driver makes the call",
	"event/reset":                    "it would take the kernel's ports, too",
}

// TestXenRules: each rule of the hypervisor has one check, or a reason to have none.
func TestXenRules(t *testing.T) {
	checks := map[string]int{}
	for _, r := range X86XenRules() {
		checks[r.Name()]++
	}
	for _, r := range abi.X86Xen().Rules {
		want := 1
		if _, ok := xenUnchecked[r.Name()]; ok || r.Side == abi.Guest {
			want = 0
		}
		assert.Equal(t, want, checks[r.Name()], "checks of %s", r.ID)
	}
}

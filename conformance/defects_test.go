package conformance

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/abi"
)

func TestDefects(t *testing.T) {
	rules := map[string]bool{}
	for _, p := range abi.Platforms() {
		for _, r := range p.Rules {
			rules[r.ID] = true
		}
	}
	seen := map[string]bool{}
	for _, d := range Defects() {
		assert.False(t, seen[d.ID], d.ID)
		seen[d.ID] = true
		assert.NotEmpty(t, d.Text, d.ID)
		assert.NotEmpty(t, d.Where, d.ID)
		assert.True(t, len(d.Rules) > 0 || d.Why != "", "%s: neither a rule nor a reason", d.ID)
		for _, r := range d.Rules {
			assert.True(t, rules[r], "%s: no rule %s", d.ID, r)
		}
	}
	var b strings.Builder
	assert.NoError(t, WriteDefects(&b))
	assert.Equal(t, len(Defects())+2, strings.Count(b.String(), "\n"))
	assert.Contains(t, b.String(), "| P01 | H_PROD looked at")
}

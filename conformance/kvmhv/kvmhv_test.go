package kvmhv

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/conformance/microvm"
)

// TestConfig: there is one CPU more, in problem state, by a number of its own, and the
// configuration that was given stays as it is.
func TestConfig(t *testing.T) {
	ids := make([]uint64, 3, 8)
	copy(ids, []uint64{2, 9, 5})
	for _, tt := range []struct {
		name      string
		got, want microvm.Config
	}{
		{"nothing", microvm.Config{}, microvm.Config{CPUs: 2, User: []int{1}}},
		{"ids", microvm.Config{CPUs: 3, IDs: ids}, microvm.Config{CPUs: 4, IDs: []uint64{2, 9, 5, 11}, User: []int{3}}},
	} {
		assert.Equal(t, tt.want, config(tt.got), tt.name)
	}
	assert.Zero(t, ids[:4][3], "what is behind the ids that were given")
}

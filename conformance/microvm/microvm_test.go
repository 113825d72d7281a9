package microvm

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKey(t *testing.T) {
	features := func(v uint32) *uint32 { return &v }
	same := [][2]Config{
		{{}, {CPUs: 1}},
		{{}, {KVMBase: 0x40000000}},
		{{CPUs: 2}, {CPUs: 2, IDs: []uint64{0, 1}}},
		{{Features: features(7)}, {Features: features(7)}},
	}
	for _, c := range same {
		assert.Equal(t, c[0].Key(), c[1].Key(), "%+v and %+v", c[0], c[1])
	}
	different := []Config{
		{}, {CPUs: 2}, {CPUs: 2, IDs: []uint64{1, 0}}, {IRQChip: Split}, {IRQChip: None},
		{Features: features(0)}, {Features: features(7)}, {Hints: 1}, {Enforce: true},
		{KVMBase: 0x40000100}, {User: []int{0}}, {DisableQuirks: 1}, {ExitHypercalls: 1}, {DisableExits: 1},
	}
	seen := map[string]Config{}
	for _, c := range different {
		other, ok := seen[c.Key()]
		assert.False(t, ok, "%+v and %+v have the same key", c, other)
		seen[c.Key()] = c
	}
}

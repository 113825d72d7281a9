package cpulist

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParse(t *testing.T) {
	for list, want := range map[string][]int{
		"0": {0}, "0-3": {0, 1, 2, 3}, "0,2-3,8": {0, 2, 3, 8}, "5-5": {5},
		"": nil, "a": nil, "3-1": nil, "1-": nil, "-1": nil, "1,,2": nil, "0-70000": nil,
	} {
		got, err := Parse(list)
		assert.Equal(t, want, got, "%q", list)
		assert.Equal(t, want == nil, err != nil, "%q: %v", list, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, list string) { _, _ = Parse(list) })
}

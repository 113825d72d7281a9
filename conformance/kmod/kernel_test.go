package kmod

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance/microvm"
)

const sampleInterrupts = `           CPU0       CPU1       CPU3       
 14:       1004        205         17  LoongArch CPUINTC   0  SWI0-IPI
 15:          3          4          5  LoongArch CPUINTC  12  IPI
EXT:       1004        205         17 
EXC:        101          4          5   [EXT] External Call
ERR:          5
NMI:       many       many       many
`

func TestInterrupts(t *testing.T) {
	named := func(name string) func([]string) bool { return func(row []string) bool { return row[0] == name+":" } }
	handled := func(by string) func([]string) bool { return func(row []string) bool { return row[len(row)-1] == by } }
	all := func([]string) bool { return true }
	for _, c := range []struct {
		cpu      int
		selected func([]string) bool
		want     uint64
	}{
		{1, named("EXC"), 4}, {3, named("EXC"), 5}, {0, named("EXT"), 1004},
		{1, handled("SWI0-IPI"), 205}, {3, handled("IPI"), 5},
		{1, all, 418}, {3, all, 44},
	} {
		got, err := interrupts(strings.NewReader(sampleInterrupts), c.cpu, c.selected)
		require.NoError(t, err, "%+v", c)
		assert.Equal(t, c.want, got, "%+v", c)
	}
	for text, cpu := range map[string]int{sampleInterrupts: 2, "": 0} {
		_, err := interrupts(strings.NewReader(text), cpu, all)
		assert.ErrorContains(t, err, "is it online?")
	}
	for _, name := range []string{"NMI", "ERR", "none"} {
		_, err := interrupts(strings.NewReader(sampleInterrupts), 1, named(name))
		assert.ErrorContains(t, err, "no such row", name)
	}
}

func FuzzInterrupts(f *testing.F) {
	f.Add(sampleInterrupts)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = interrupts(strings.NewReader(text), 1, func(row []string) bool { return row[0] != "" })
	})
}

func TestPlain(t *testing.T) {
	assert.NoError(t, Plain(microvm.Config{}, 3))
	assert.NoError(t, Plain(microvm.Config{CPUs: 3, IDs: []uint64{2, 9, 5}}, 3))
	assert.Error(t, Plain(microvm.Config{CPUs: 4}, 3))
	assert.Error(t, Plain(microvm.Config{CPUs: 3, Enforce: true}, 3))
}

func TestException(t *testing.T) {
	signals := []signal{{4, 1, 2}, {4, 0, 7}}
	for said, want := range map[[2]int32]uint64{{4, 1}: 2, {4, 12}: 7, {11, 1}: 0} {
		assert.Equal(t, want, exception(signals, said[0], said[1]), "signal %d, code %d", said[0], said[1])
	}
}

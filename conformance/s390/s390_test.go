package s390

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance/microvm"
)

const sample = `           CPU0       CPU1       CPU3       
EXT:       1004        205         17 
I/O:        300          0          0 
AIO:          0          0          0 
CLK:        900        200         11   [EXT] Clock Comparator
EXC:        101          4          5   [EXT] External Call
EMS:          0          1          2   [EXT] Emergency Signal
`

func TestInterruptions(t *testing.T) {
	for _, c := range []struct {
		class string
		cpu   int
		want  uint64
	}{{"EXC", 1, 4}, {"EXC", 3, 5}, {"EMS", 3, 2}, {"EXT", 0, 1004}, {"I/O", 0, 300}} {
		got, err := interruptions(strings.NewReader(sample), c.cpu, c.class)
		require.NoError(t, err, "%+v", c)
		assert.Equal(t, c.want, got, "%+v", c)
	}
	_, err := interruptions(strings.NewReader(sample), 2, "EXC")
	assert.ErrorContains(t, err, "is it offline?")
	_, err = interruptions(strings.NewReader(sample), 1, "NMI")
	assert.ErrorContains(t, err, "no line NMI")
	_, err = interruptions(strings.NewReader("CPU0\nEXC: many"), 0, "EXC")
	assert.Error(t, err)
}

func FuzzInterruptions(f *testing.F) {
	f.Add(sample)
	f.Fuzz(func(t *testing.T, text string) { _, _ = interruptions(strings.NewReader(text), 1, "EXC") })
}

func TestLastByte(t *testing.T) {
	got, err := lastByte(strings.NewReader("00000000-0fffffff : System RAM\n  00100000-01ffffff : Kernel code\n10000000-1fffffff : System RAM\n"))
	require.NoError(t, err)
	assert.Equal(t, uint64(0x1fffffff), got)
	for _, bad := range []string{"", "00000000-00000000 : System RAM\n", "0-x : System RAM\n"} {
		_, err := lastByte(strings.NewReader(bad))
		assert.Error(t, err, "%q", bad)
	}
}

func FuzzLastByte(f *testing.F) {
	f.Add("00000000-0fffffff : System RAM\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = lastByte(strings.NewReader(text)) })
}

func TestException(t *testing.T) {
	for said, want := range map[string]uint64{
		"SIGILL: illegal instruction\nPC=0x1 m=0 sigcode=5\n": 3,
		"SIGILL: illegal instruction\nPC=0x1 m=0 sigcode=2\n": 7,
		"SIGILL: illegal instruction\nPC=0x1 m=0 sigcode=1\n": 2,
		"SIGILL: illegal instruction\nPC=0x1 m=0 sigcode=9\n": 0,
		"SIGSEGV: segmentation violation\n sigcode=5\n":       0,
		"": 0,
	} {
		assert.Equal(t, want, exception(said), "%q", said)
	}
}

func TestCheck(t *testing.T) {
	assert.NoError(t, check(microvm.Config{}))
	assert.NoError(t, check(microvm.Config{CPUs: 3}))
	assert.Error(t, check(microvm.Config{CPUs: 4}))
	assert.Error(t, check(microvm.Config{CPUs: 2, IDs: []uint64{5, 4}}))
	assert.Error(t, check(microvm.Config{Enforce: true}))
}

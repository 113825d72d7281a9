package pseries

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
	"pvabi/conformance/microvm"
)

const sampleInterrupts = `           CPU0       CPU1       CPU2       CPU3
 16:         11         22         33         44  XIVE-IPI   0 Edge      IPI-0
LOC:        100        200        300        400   Local timer interrupts for timer event device
ERR:          5
`

func TestInterrupts(t *testing.T) {
	for cpu, want := range map[int]uint64{1: 222, 3: 444} {
		got, err := interrupts(strings.NewReader(sampleInterrupts), cpu)
		require.NoError(t, err)
		assert.Equal(t, want, got, "CPU %d", cpu)
	}
	for _, bad := range []string{"", sampleInterrupts} {
		_, err := interrupts(strings.NewReader(bad), 4)
		assert.Error(t, err)
	}
}

func FuzzInterrupts(f *testing.F) {
	f.Add(sampleInterrupts)
	f.Fuzz(func(t *testing.T, text string) { _, _ = interrupts(strings.NewReader(text), 1) })
}

func TestSymbol(t *testing.T) {
	const list = "c000000000001000 T not_paca_ptrs\nc000000002a3b4c8 D paca_ptrs\n0000000000000000 D hidden\n"
	got, err := symbol(strings.NewReader(list), "paca_ptrs")
	require.NoError(t, err)
	assert.Equal(t, uint64(0xc000000002a3b4c8), got)
	for _, name := range []string{"hidden", "missing"} {
		_, err := symbol(strings.NewReader(list), name)
		assert.ErrorContains(t, err, name)
	}
}

func TestSurround(t *testing.T) {
	p := arch.Program{{Kind: arch.Wait}, {Kind: arch.Loop, Arg: [6]uint64{0, 3}}}
	s := surround(p, 0x1000, 22, 99)
	require.Len(t, s, before+len(p)+after)
	assert.Equal(t, arch.Op{Kind: arch.Loop, Arg: [6]uint64{before, 3}}, s[before+1])
	assert.Equal(t, uint64(0), p[1].Arg[0], "the program as given must stay")
	for _, c := range []struct {
		op, wantOp               int
		completed, wantCompleted uint64
	}{{0, 0, 0, 0}, {2, 0, 2, 0}, {3, 0, 3, 0}, {4, 1, 4, 1}, {5, 2, 5, 2}, {6, 2, 6, 2}, {7, 2, 7, 2}} {
		op, completed := inside(c.op, c.completed, len(p))
		assert.Equal(t, []any{c.wantOp, c.wantCompleted}, []any{op, completed}, "at operation %d", c.op)
	}
}

func TestOpened(t *testing.T) {
	r := make([]arch.Result, before+2+after)
	assert.False(t, opened(r, 2), "gates that nobody opened")
	r[before-1].Value = 1
	assert.False(t, opened(r, 2))
	r[before+2].Value = 1
	assert.True(t, opened(r, 2))
}

func TestCheck(t *testing.T) {
	assert.NoError(t, check(microvm.Config{CPUs: 3, IDs: []uint64{2, 9, 5}}))
	assert.Error(t, check(microvm.Config{CPUs: 3, Enforce: true}))
}

func TestWaits(t *testing.T) {
	for _, c := range []struct {
		op   arch.Op
		want bool
	}{
		{arch.Op{Kind: arch.Wait}, true},
		{arch.Op{Kind: arch.Interrupts}, true},
		{arch.Op{Kind: arch.Interrupts, Arg: [6]uint64{1}}, false},
		{arch.Op{Kind: arch.Call}, false},
	} {
		assert.Equal(t, c.want, waits(arch.Program{{Kind: arch.Clock}, c.op}), "%+v", c.op)
	}
}

package pseries

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
)

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

//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pvabi/arch"
	module "pvabi/internal/kmod"
)

func TestUnprivileged(t *testing.T) {
	var m machine
	// Its own code can be read, and its stack be written.
	const address = module.ProgramAddress
	const scratch = address + arch.FrameSize + 16<<10
	r, err := m.Unprivileged(t.Context(), arch.Program{
		{Kind: arch.Store, Arg: [6]uint64{scratch, 0x1234, 8}}, {Kind: arch.Load, Arg: [6]uint64{scratch, 8}},
	})
	require.NoError(t, err)
	require.Len(t, r, 2)
	assert.Equal(t, uint64(0x1234), r[1].Value)
	for _, one := range r {
		assert.Equal(t, uint64(1), one.Count)
		assert.Zero(t, one.Trap)
	}

	// A load of no memory is a signal that stands for no exception.
	_, err = m.Unprivileged(t.Context(), arch.Program{{Kind: arch.Clock}, {Kind: arch.Load, Arg: [6]uint64{0x1000, 8}}})
	assert.ErrorContains(t, err, "operation 1 ended in signal 11")

	// One that stands for an exception ends its operation only.
	defer func(before []signal) { this.signals = before }(this.signals)
	this.signals = []signal{{int32(unix.SIGSEGV), 0, 99}}
	bad, clock := arch.Op{Kind: arch.Load, Arg: [6]uint64{0x1000, 8}}, arch.Op{Kind: arch.Clock}
	r, err = m.Unprivileged(t.Context(), arch.Program{clock, bad, bad, clock, bad})
	require.NoError(t, err)
	for i, want := range []uint64{0, 99, 99, 0, 99} {
		assert.Equal(t, want, r[i].Trap, "operation %d", i)
		assert.Equal(t, uint64(1), r[i].Count, "operation %d", i)
	}

	_, err = m.Unprivileged(t.Context(), arch.Program{{Kind: 0xffff}})
	assert.ErrorContains(t, err, "the probe left with status 2")
}

func TestUnprivilegedIsCutShort(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, err := (*machine)(nil).Unprivileged(ctx, arch.Program{{Kind: arch.SpinUntil, Arg: [6]uint64{module.ProgramAddress, 0, 1}}})
	assert.ErrorIs(t, err, reason)
}

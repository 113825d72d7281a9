//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/arch"
)

func TestStale(t *testing.T) {
	const loaded = "dummy 16384 0 - Live 0x0\npvabi_7_window 4096 0 - Live 0x0 (E)\npvabi_8_1 4096 0 - Live 0x0 (E)\npvabi_refused 1 0 - Live 0x0\nnot_pvabi_7_1 1 0 - Live 0x0\n"
	assert.Equal(t, []string{"pvabi_7_window"}, stale(loaded, func(pid int) bool { return pid == 8 }))
	assert.Empty(t, stale("", func(int) bool { return false }))
}

func TestBounded(t *testing.T) {
	p := arch.Program{op(arch.SpinUntil, 1, 2, 3), op(arch.SpinUntil, 1, 2, 3, 4), op(arch.Loop, 0, 1<<62), op(arch.Loop, 0, 5), op(arch.Load, 1, 1<<62)}
	got := bounded(p)
	want := arch.Program{op(arch.SpinUntil, 1, 2, 3, forever), p[1], op(arch.Loop, 0, forever), p[3], p[4]}
	assert.Equal(t, want, got)
	assert.Zero(t, p[0].Arg[3], "the caller's program")
}

func TestAllowed(t *testing.T) {
	const kernel = 0xffff800000000000
	for _, kind := range []arch.Kind{arch.Load, arch.Store, arch.SpinUntil, arch.Sample} {
		assert.NoError(t, allowed(op(kind, kernel, kernel)), "%v", kind)
		assert.Equal(t, this.kernelFrom > 0, allowed(op(kind, 0x1000, kernel)) != nil, "%v", kind)
	}
	assert.Equal(t, this.kernelFrom > 0, allowed(op(arch.Sample, kernel, 0x1000)) != nil, "second address")
	assert.NoError(t, allowed(op(arch.Store, kernel, 0x1000)), "a value that is stored")
	assert.NoError(t, allowed(op(arch.Call, 0x1000)))
	assert.NoError(t, allowed(op(arch.Wait, 1)))
	assert.Equal(t, this.endless, allowed(op(arch.Wait, 0)) != nil)
}

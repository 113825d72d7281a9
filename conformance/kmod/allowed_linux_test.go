//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/arch"
)

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

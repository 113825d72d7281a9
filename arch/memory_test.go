package arch

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMemory(t *testing.T) {
	m := NewMemory(make([]byte, 256), 0x10000)
	a := m.Alloc(9, 8, 0xa5)
	assert.Equal(t, uint64(0x10000), a.Address())
	assert.Equal(t, uint64(9), a.Size())
	b := m.Alloc(64, 64, 0)
	assert.Equal(t, uint64(0x10040), b.Address(), "areas must be aligned and apart")

	for _, size := range []uint64{1, 2, 4, 8} {
		b.Store(8, size, 0x1122334455667788)
		want := uint64(0x1122334455667788)
		if size < 8 {
			want &= 1<<(8*size) - 1
		}
		assert.Equal(t, want, b.Load(8, size), "%d bytes", size)
		assert.Zero(t, b.Load(16, 8), "a store of %d bytes must write no more", size)
		b.Store(8, 8, 0)
	}
	assert.Equal(t, []byte{0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5}, a.Bytes())

	assert.Panics(t, func() { b.Load(0, 3) }, "a size that no access has")
	assert.Panics(t, func() { b.Load(2, 4) }, "an access that is not aligned")
	assert.Panics(t, func() { b.Load(64, 1) }, "an access outside the area")
	assert.Panics(t, func() { m.Alloc(256, 1, 0) }, "more than there is")

	m.Reset()
	assert.Equal(t, uint64(0x10000), m.Alloc(8, 8, 0).Address())
}

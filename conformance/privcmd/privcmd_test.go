package privcmd

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance/microvm"
)

const kallsyms = `0000000000026000 A xen_runstate_other
ffffffff81001000 T startup
ffffffff82a1c0a8 D xen_start_info
0000000000025f00 A xen_runstate
ffffffffc0201000 t xen_start_info	[module]
`

func TestSymbols(t *testing.T) {
	got, err := symbols(strings.NewReader(kallsyms), "xen_start_info", "xen_runstate")
	require.NoError(t, err)
	assert.Equal(t, []uint64{0xffffffff82a1c0a8, 0x25f00}, got)
	for want, text := range map[string]string{
		"no address of xen_runstate":       strings.ReplaceAll(kallsyms, " A xen_runstate\n", " A other\n"),
		"kptr_restrict":                    "0000000000000000 D xen_start_info\n0000000000000000 A xen_runstate\n",
		"address of xen_start_info":        "no-number D xen_start_info\n",
		"no address of xen_start_info":     "",
		"read /proc/kallsyms: bufio.Scann": strings.Repeat("x", 1<<20),
	} {
		_, err := symbols(strings.NewReader(text), "xen_start_info", "xen_runstate")
		assert.ErrorContains(t, err, want)
	}
}

func FuzzSymbols(f *testing.F) {
	f.Add(kallsyms)
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := symbols(strings.NewReader(text), "a", "b"); err == nil {
			require.Len(t, got, 2)
			assert.NotZero(t, got[0])
			assert.NotZero(t, got[1])
		}
	})
}

// image is a core file with 16 bytes of memory at an address.
func image(address uint64, memory [16]byte) []byte {
	order := binary.LittleEndian
	b := make([]byte, 64+56+16)
	copy(b, "\x7fELF\x02\x01\x01")
	order.PutUint16(b[16:], 4)  // ET_CORE
	order.PutUint16(b[18:], 62) // x86-64
	order.PutUint32(b[20:], 1)
	order.PutUint64(b[32:], 64) // program headers
	order.PutUint16(b[52:], 64)
	order.PutUint16(b[54:], 56)
	order.PutUint16(b[56:], 1)
	order.PutUint32(b[64:], 1) // PT_LOAD
	order.PutUint64(b[64+8:], 64+56)
	order.PutUint64(b[64+16:], address)
	order.PutUint64(b[64+32:], 16)
	order.PutUint64(b[64+40:], 16)
	copy(b[64+56:], memory[:])
	return b
}

func TestCore(t *testing.T) {
	c, err := newCore(bytes.NewReader(image(0xffff888000000000, [16]byte{8: 0x11, 15: 0x22})))
	require.NoError(t, err)
	got, err := c.word(0xffff888000000008)
	require.NoError(t, err)
	assert.Equal(t, uint64(0x2200000000000011), got)
	for _, address := range []uint64{0, 0xffff887ffffffff8, 0xffff888000000009, 0xffff888000000010, 1<<64 - 8} {
		_, err := c.word(address)
		assert.ErrorContains(t, err, "says nothing of address", "%#x", address)
	}
	_, err = newCore(strings.NewReader("no image"))
	assert.ErrorContains(t, err, "/proc/kcore")
}

func TestCheck(t *testing.T) {
	assert.NoError(t, check(microvm.Config{CPUs: 3, IDs: []uint64{2, 9, 5}, User: []int{0}}))
	assert.ErrorContains(t, check(microvm.Config{Enforce: true}), "cannot choose")
	assert.ErrorContains(t, check(microvm.Config{IRQChip: microvm.Split}), "cannot choose")
}

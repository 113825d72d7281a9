package s390

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

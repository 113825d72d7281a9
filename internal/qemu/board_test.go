package qemu

import (
	"testing"

	vmtest "github.com/hugelgupf/vmtest/qemu"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBoards(t *testing.T) {
	for _, b := range Boards {
		got, err := BoardOf(b.GOARCH)
		require.NoError(t, err)
		assert.Equal(t, b, got)
		assert.True(t, vmtest.Arch(b.GOARCH).Valid(), "vmtest boots %s", b.GOARCH)
		for what, value := range map[string]string{"System": b.System, "Machine": b.Machine, "CPU": b.CPU, "Console": b.Console, "Uname": b.Uname} {
			assert.NotEmpty(t, value, "%s: %s", b.GOARCH, what)
		}
		assert.Positive(t, b.Memory, b.GOARCH)
	}
	_, err := BoardOf("mips64")
	assert.ErrorContains(t, err, "amd64, ppc64le, s390x, loong64")
}

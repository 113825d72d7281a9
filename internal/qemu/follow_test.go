package qemu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFollow(t *testing.T) {
	name := filepath.Join(t.TempDir(), "console")
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	lines := make(chan string, 10)
	stop, err := follow(name, func(line string) { lines <- line })
	require.NoError(t, err)
	write := func(text string) {
		_, err := f.WriteString(text)
		require.NoError(t, err)
	}
	write("[0.1] one\r\n[0.2]\x1b[2J tw")
	assert.Equal(t, "[0.1] one", <-lines)
	write("o\nthe rest")
	assert.Equal(t, "[0.2][2J two", <-lines)
	stop()
	assert.Equal(t, "the rest", <-lines)
	close(lines)
	assert.Empty(t, lines)

	_, err = follow(filepath.Join(t.TempDir(), "none"), func(string) {})
	assert.Error(t, err)
	stop, err = follow("not looked at", nil)
	require.NoError(t, err)
	stop()
}

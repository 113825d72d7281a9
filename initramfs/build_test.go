package initramfs

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBuildAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the agent")
	}
	dir := filepath.Join(t.TempDir(), "a folder", "to be made")
	agent, err := BuildAgent(t.Context(), dir, "amd64")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "agent-amd64"), agent)
	first, err := readAgent(agent, "amd64") // static, and of the architecture
	require.NoError(t, err)
	assert.Less(t, len(first), 8<<20, "an image has at most 12 MB, with modules")

	again, err := BuildAgent(t.Context(), t.TempDir(), "amd64")
	require.NoError(t, err)
	second, err := os.ReadFile(again)
	require.NoError(t, err)
	assert.Equal(t, first, second, "same inputs give the same bytes")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing else is left behind")
}

func TestBuildAgentErrors(t *testing.T) {
	_, err := BuildAgent(t.Context(), t.TempDir(), "no-such-arch")
	assert.ErrorContains(t, err, "build the agent for no-such-arch")

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = BuildAgent(canceled, t.TempDir(), "amd64")
	assert.ErrorIs(t, err, context.Canceled)

	t.Setenv("PATH", t.TempDir())
	_, err = BuildAgent(t.Context(), t.TempDir(), "amd64")
	assert.ErrorContains(t, err, "install Go")
}

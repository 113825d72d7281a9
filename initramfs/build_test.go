package initramfs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// running tells whether there is a process that has not ended. One that has, and
// whose parent has yet to notice, is a zombie.
func running(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(string(state), "Z")
}

func TestBuildAgentErrors(t *testing.T) {
	_, err := BuildAgent(t.Context(), t.TempDir(), "no-such-arch")
	assert.ErrorContains(t, err, "build the agent for no-such-arch")

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = BuildAgent(canceled, t.TempDir(), "amd64")
	assert.ErrorIs(t, err, context.Canceled)

	// A go command that has started a compiler.
	bin, dir, compiler := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "compiler")
	script := "#!/bin/sh\nsleep 1000 & echo $! >" + compiler + ".new; touch \"$GOTMPDIR/go-build\"; mv " + compiler + ".new " + compiler + "; wait\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	building, cancel := context.WithCancel(t.Context())
	pid := make(chan int)
	go func() {
		for {
			var n int
			if content, err := os.ReadFile(compiler); err == nil {
				_, err := fmt.Sscan(string(content), &n)
				assert.NoError(t, err)
				cancel()
				pid <- n
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err = BuildAgent(building, dir, "amd64")
	assert.ErrorIs(t, err, context.Canceled)
	assert.False(t, running(<-pid), "what it started has ended, too")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries, "nothing is left behind")

	t.Setenv("PATH", t.TempDir())
	_, err = BuildAgent(t.Context(), t.TempDir(), "amd64")
	assert.ErrorContains(t, err, "install Go")
}

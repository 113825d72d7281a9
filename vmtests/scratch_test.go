package vmtests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScratch(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	// What others may have there: only the first was left behind by a guest.
	for _, dir := range []string{"pvabi-guest-123", "pvabi-guest-results", "pvabi-guest-", "other"} {
		require.NoError(t, os.MkdirAll(filepath.Join(temp, dir, "sub"), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(temp, "pvabi-guest-9"), nil, 0o644))
	first, removeFirst, err := scratch()
	require.NoError(t, err)
	second, removeSecond, err := scratch()
	require.NoError(t, err)
	assert.DirExists(t, first, "one in use stays")
	assert.DirExists(t, second)
	assert.NoDirExists(t, filepath.Join(temp, "pvabi-guest-123"))
	removeFirst()
	removeSecond()
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	assert.Equal(t, []string{"other", "pvabi-guest-", "pvabi-guest-9", "pvabi-guest-results"}, names)

	t.Setenv("TMPDIR", filepath.Join(temp, "none"))
	_, _, err = scratch()
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "set TMPDIR")
}

func TestRoomy(t *testing.T) {
	for _, err := range []error{fmt.Errorf("write: %w", syscall.ENOSPC), errors.New("link: mapping output file failed: no space left on device")} {
		assert.ErrorContains(t, roomy(err), "; make room in "+os.TempDir()+", or set TMPDIR")
	}
	other := errors.New("other")
	assert.Equal(t, other, roomy(other))
	assert.NoError(t, roomy(nil))
}

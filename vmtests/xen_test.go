package vmtests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
	"pvabi/internal/store"
)

// TestXen has targets choose their Xen. That a guest runs on the very one is looked at in each
// run (qemu.Xen).
func TestXen(t *testing.T) {
	targets, err := Find("x86-xen", "x86-xen-4.17")
	require.NoError(t, err)
	newest, old := targets[0], targets[1]
	reachable(t, newest)
	assert.True(t, newest.TakesXen())
	assert.False(t, old.TakesXen())
	temp := t.TempDir()
	r := &Runner{Store: artefacts}
	for _, target := range targets {
		o := &outcome{run: new(conformance.Run)}
		x, err := r.xen(t.Context(), target.Guest, temp, o)
		require.NoError(t, err)
		assert.Len(t, x.BuildID, 40, "Debian's has the id of its build")
		require.Len(t, o.run.Guest.Other, 1, "what the report has")
		file := o.run.Guest.Other[0]
		sum, err := store.SHA256(file.Path)
		require.NoError(t, err)
		assert.Equal(t, sum, file.SHA256)
		assert.Contains(t, file.Version, "Xen "+x.Release+".")
		if target.Name == old.Name {
			assert.Equal(t, "4.17", x.Release)
		}

		// The user's own takes its place in one of them.
		own := &Runner{Store: artefacts, Xen: filepath.Join(temp, "own")}
		require.NoError(t, os.WriteFile(own.Xen, []byte("no hypervisor"), 0o644))
		_, err = own.xen(t.Context(), target.Guest, temp, o)
		if target.TakesXen() {
			assert.ErrorContains(t, err, "not a usable Xen: "+own.Xen+": not an ELF file; give the file that a boot loader takes for multiboot")
			own.Xen = file.Path
			x, err = own.xen(t.Context(), target.Guest, temp, o)
			require.NoError(t, err)
			assert.Empty(t, x.Release, "not known beforehand")
			continue
		}
		assert.NoError(t, err)
	}
}

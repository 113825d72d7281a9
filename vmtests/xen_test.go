package vmtests

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
	"pvabi/initramfs"
)

// bootOnXen is a target that looks at nothing, on a Xen.
func bootOnXen(x Xen) Target {
	return Target{Name: "boot", Platform: "x86-xen", Implementer: "Xen", Guest: &Guest{
		GOARCH: "amd64", CPUs: 4, Xen: &x, Flavour: dom0Flavour,
		Modules: []string{"xen_privcmd", "xen_evtchn"}, Needs: []string{"/dev/xen/privcmd", "/dev/xen/evtchn"},
	}}
}

// TestXen boots Debian's Xen, and then what is none.
func TestXen(t *testing.T) {
	target := bootOnXen(Xen{})
	reachable(t, target)
	r := &Runner{Store: artefacts, Output: t.TempDir()}
	run := r.Run(t.Context(), target)
	require.Empty(t, run.Error, "console:\n%s", strings.Join(run.Console, "\n"))
	require.Empty(t, run.Unreached)
	t.Logf("%s, seconds %+v, %d MiB, notes %q", run.Implementer.Version, run.Seconds, run.PeakRSS>>20, run.Notes)
	x := run.Guest.Xen
	require.NotNil(t, x)
	assert.Equal(t, x.Version, run.Implementer.Version)
	assert.Equal(t, conformance.XenIdentity{Version: x.Version, BuildID: x.BuildID, GuestType: "PV", Dom0: true}, *x)
	require.Len(t, run.Guest.Other, 1)
	assert.Len(t, run.Guest.Other[0].SHA256, 64)
	id, err := initramfs.UnpackXen(io.Discard, run.Guest.Other[0].Path)
	require.NoError(t, err)
	assert.Equal(t, id, x.BuildID, "the guest runs on that build")

	assert.True(t, target.TakesXen())
	assert.False(t, bootOnXen(Xen{Version: "4.17"}).TakesXen())
	r.Xen = filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(r.Xen, []byte("no hypervisor"), 0o644))
	run = r.Run(t.Context(), target)
	assert.Contains(t, run.Error, "not a usable Xen: "+r.Xen+": not an ELF file; give the file that a boot loader takes for multiboot")
	assert.Zero(t, run.Seconds.Total, "nothing was booted")
}

package store

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// xenDeb is a package with a hypervisor in the two forms that Debian has.
func xenDeb(release, version string) fakeDeb {
	stem := "boot/xen-" + release + "-amd64"
	return fakeDeb{name: "xen-hypervisor-" + release + "-amd64", version: version, arch: "amd64", section: "kernel", files: map[string]string{
		stem + ".gz":     "Xen " + release,
		stem + ".efi":    "not kept",
		stem + ".config": "not kept",
	}}
}

func TestXen(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64",
		xenDeb("4.17", "4.17.5+72-g01140da4e8-1"), xenDeb("4.20", "4.20.4+39-gf1e1321c87-1"), xenDeb("4.9", "4.9.1-1"),
		fakeDeb{name: "xen-hypervisor-4.20-amd64-dbg", version: "9-1", arch: "amd64"},
		fakeDeb{name: "xen-hypervisor-common", version: "9-1", arch: "amd64"})
	a.publish("empty", "amd64", fakeDeb{name: "xen-hypervisor-4.99-amd64", version: "4.99-1", arch: "amd64"})
	s, _ := openFake(t, t.TempDir())
	for _, tt := range []struct{ wish, release, version string }{
		{"", "4.20", "4.20.4+39-gf1e1321c87-1"},
		{"4.17", "4.17", "4.17.5+72-g01140da4e8-1"},
		{"4.9", "4.9", "4.9.1-1"},
		{"4.17.5+72-g01140da4e8-1", "4.17", "4.17.5+72-g01140da4e8-1"},
	} {
		x, err := s.Xen(t.Context(), XenSpec{GOARCH: "amd64", Version: tt.wish})
		require.NoError(t, err)
		assert.Equal(t, tt.release, x.Release)
		assert.Equal(t, tt.version, x.Version)
		assert.Equal(t, "xen-hypervisor-"+tt.release+"-amd64", x.Package.Name)
		content, err := os.ReadFile(x.Path)
		require.NoError(t, err)
		assert.Equal(t, "Xen "+tt.release, string(content))
		sum, err := SHA256(x.Path)
		require.NoError(t, err)
		assert.Equal(t, sum, x.SHA256)
	}
	for _, tt := range []struct {
		spec XenSpec
		want string
	}{
		{XenSpec{GOARCH: "amd64", Version: "4.1"}, "store: Xen of Debian forky for amd64: the archive has none of version 4.1"},
		{XenSpec{GOARCH: "amd64", Suite: "empty"}, "has no file that matches"},
		{XenSpec{GOARCH: "vax"}, `no guest architecture "vax"`},
		{XenSpec{GOARCH: "amd64", Version: "a b"}, `version "a b"`},
	} {
		_, err := s.Xen(t.Context(), tt.spec)
		assert.ErrorContains(t, err, tt.want)
	}
}

package agent

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

// hypervisorFS is /sys/hypervisor of a domain 0, with some files changed; an empty one is not there.
func hypervisorFS(changes map[string]string) fstest.MapFS {
	files := map[string]string{
		"version/major": "4\n", "version/minor": "20\n", "version/extra": ".5-pre\n", "guest_type": "PV\n",
		"properties/features": "0000000000008f0b\n", "properties/buildid": "\x25\x70\x0a",
	}
	for name, text := range changes {
		files[name] = text
	}
	out := fstest.MapFS{}
	for name, text := range files {
		if text != "" {
			out[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return out
}

func TestXenIdentity(t *testing.T) {
	got, err := xenIdentity(hypervisorFS(nil))
	require.NoError(t, err)
	want := conformance.XenIdentity{Version: "4.20.5-pre", BuildID: "25700a", GuestType: "PV", Dom0: true}
	assert.Equal(t, want, *got)

	for _, tt := range []struct {
		file, text string
		change     func(*conformance.XenIdentity)
	}{
		{"properties/features", "0000000000008705\n", func(x *conformance.XenIdentity) { x.Dom0 = false }},
		{"properties/features", "8f0b", func(*conformance.XenIdentity) {}},
		{"properties/buildid", "<denied>", func(x *conformance.XenIdentity) { x.BuildID = "" }},
		{"properties/buildid", "", func(x *conformance.XenIdentity) { x.BuildID = "" }},
		{"guest_type", "PVH\n", func(x *conformance.XenIdentity) { x.GuestType = "PVH" }},
	} {
		changed := want
		tt.change(&changed)
		got, err := xenIdentity(hypervisorFS(map[string]string{tt.file: tt.text}))
		require.NoError(t, err)
		assert.Equal(t, changed, *got, "%s: %q", tt.file, tt.text)
	}
	for _, name := range []string{"version/major", "version/minor", "version/extra", "guest_type", "properties/features"} {
		_, err := xenIdentity(hypervisorFS(map[string]string{name: ""}))
		assert.ErrorContains(t, err, "which Xen this is: open "+name)
	}
	_, err = xenIdentity(hypervisorFS(map[string]string{"properties/features": "many\n"}))
	assert.ErrorContains(t, err, "its features")
}

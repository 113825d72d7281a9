package vmtests

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/conformance"
	"pvabi/internal/qemu"
	"pvabi/internal/store"
)

// TestLacking: of what QEMU ends for, only a property that it does not know and that the target
// asked for makes the target unreached.
func TestLacking(t *testing.T) {
	says := func(text string) error {
		return fmt.Errorf("run: %w", &qemu.Error{Err: qemu.ErrExited, Stderr: text})
	}
	const unknown = "qemu-system-ppc64: Property 'pseries-7.2-machine.cap-nested-papr' not found"
	for _, tt := range []struct {
		name       string
		err        error
		properties string
		want       string
	}{
		{"no error", nil, "cap-nested-papr=on", ""},
		{"the property", says(unknown), "cap-nested-papr=on", "cap-nested-papr"},
		{"the second of two", says(unknown), "cap-nested-hv=on,cap-nested-papr=on", "cap-nested-papr"},
		{"another property", says(unknown), "cap-nested-hv=on", ""},
		{"the end of its name", says(unknown), "papr=on", ""},
		{"no properties asked for", says(unknown), "", ""},
		{"another reason", says("qemu-system-ppc64: cap-nested-hv: not enough memory"), "cap-nested-hv=on", ""},
		{"not QEMU's error", errors.New(unknown), "cap-nested-papr=on", ""},
	} {
		assert.Equal(t, tt.want, lacking(tt.err, tt.properties), tt.name)
	}
}

// TestUnless: what Debian does not have makes a target unreached, and nothing else does.
func TestUnless(t *testing.T) {
	o := &outcome{run: new(conformance.Run)}
	assert.NoError(t, o.unless(fmt.Errorf("a kernel: %w", store.ErrNone)))
	assert.Equal(t, "a kernel: the archive has none", o.run.Unreached)
	o.run.Unreached = ""
	assert.ErrorIs(t, o.unless(assert.AnError), assert.AnError)
	assert.Empty(t, o.run.Unreached)
}

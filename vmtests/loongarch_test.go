package vmtests

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/conformance"
	"pvabi/internal/refhv"
)

func TestNotEnded(t *testing.T) {
	for _, test := range []struct{ how, console, want string }{
		{"", "reboot: Power down\n", ""},
		{"reboot", "reboot: Restarting system\n", ""},
		{"panic", "Kernel panic - not syncing: sysrq triggered crash\n", ""},
		{"panic", "pvabi: agent: panic: no such file\nreboot: Power down\n", "did not end by panic: no such file"},
		{"panic", "reboot: Power down\n", "did not end by panic"},
		{"kexec", "", ""},
		{"kexec", "pvabi: agent: kexec: kexec_load: operation not permitted\n", "did not end by kexec: kexec_load: operation not permitted"},
		{"kexec", "reboot: Power down\n", "did not end by kexec"},
	} {
		got := notEnded(test.how, test.console)
		if test.want == "" {
			assert.Empty(t, got, test.console)
			continue
		}
		assert.Contains(t, got, test.want)
	}
}

func TestTooOld(t *testing.T) {
	assert.Empty(t, tooOld("11.1.2"))
	assert.Empty(t, tooOld("12.0"))
	for _, version := range []string{"7.2.22", "10.0.13", "10.2.2"} {
		assert.Contains(t, tooOld(version), "QEMU "+version+" is too old")
		assert.Contains(t, tooOld(version), "pvabi fetch")
	}
}

// TestLoongArchBoots: each boot can be made.
func TestLoongArchBoots(t *testing.T) {
	for _, b := range conformance.LoongArchBoots() {
		_, err := loongArchChanges(b.Offered, b.Change)
		assert.NoError(t, err, b.Name)
		if b.Change != "" {
			_, ok := refhv.Find(refhv.LoongArchMutants(), b.Change)
			assert.True(t, ok, b.Change)
		}
	}
	_, err := loongArchChanges(nil, "none")
	assert.ErrorContains(t, err, `no mutant "none"`)
}

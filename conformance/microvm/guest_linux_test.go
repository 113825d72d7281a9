//go:build amd64 || ppc64le

package microvm_test

import (
	"testing"

	"pvabi/conformance/microvm"
	"pvabi/internal/guesttest"
	"pvabi/internal/qemu"
)

func TestMain(m *testing.M) {
	guesttest.Main(func() int { return microvm.RunTests(m) }, "-test.skip=^TestGuests$")
}

// TestGuests runs the other tests in guests that have a KVM.
func TestGuests(t *testing.T) {
	if testing.Short() {
		t.Skip("boots guests; not done under -short")
	}
	for name, tc := range map[string]struct {
		goarch, module string
		threads        qemu.Threads
		machine, cpu   string
		enabled        string
	}{
		"amd64":                {"amd64", "kvm_amd", qemu.OneThread, "", "", "yes"},
		"ppc64le, nested HV":   {"ppc64le", "kvm_hv", qemu.ThreadPerCPU, ",cap-nested-hv=on", "POWER9", "yes"},
		"ppc64le, nested PAPR": {"ppc64le", "kvm_hv", qemu.ThreadPerCPU, ",cap-nested-papr=on", "POWER10", "nested-papr"},
	} {
		t.Run(name, func(t *testing.T) {
			guesttest.Guest{
				GOARCH: tc.goarch, CPUs: 2, Threads: tc.threads, Machine: tc.machine, CPU: tc.cpu,
				Load: []string{tc.module}, Needs: []string{"/dev/kvm"}, Append: []string{microvm.Enabled + "=" + tc.enabled},
			}.Run(t, "TestKickWakes")
		})
	}
}

//go:build amd64 || ppc64le

package microvm_test

import (
	"os"
	"testing"

	"pvabi/conformance/microvm"
	"pvabi/internal/guesttest"
	"pvabi/internal/qemu"
)

func TestMain(m *testing.M) {
	guesttest.Main(func() int { return microvm.RunTests(m) }, "-test.skip=^TestGuests$")
}

// nestedPAPRVariable, if it is not empty, has the tests run under cap-nested-papr, too: on QEMU 11.1
// such a guest locks up in some of the boots, with a thread per CPU and with one.
const nestedPAPRVariable = "PVABI_NESTED_PAPR"

// nestedPAPR is what tells the tests in the guest which KVM theirs is.
const nestedPAPR = "nested-papr"

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
		"ppc64le, nested PAPR": {"ppc64le", "kvm_hv", qemu.ThreadPerCPU, ",cap-nested-papr=on", "POWER10", nestedPAPR},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.enabled == nestedPAPR && os.Getenv(nestedPAPRVariable) == "" {
				t.Skip("such a guest locks up at times; set " + nestedPAPRVariable + "=1")
			}
			guesttest.Guest{
				GOARCH: tc.goarch, CPUs: 2, Threads: tc.threads, Machine: tc.machine, CPU: tc.cpu,
				Load: []string{tc.module}, Needs: []string{"/dev/kvm"}, Append: []string{microvm.Enabled + "=" + tc.enabled},
			}.Run(t, "TestKickWakes")
		})
	}
}

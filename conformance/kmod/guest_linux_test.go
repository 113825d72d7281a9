package kmod

import (
	"testing"

	"pvabi/internal/guesttest"
	"pvabi/internal/qemu"
)

// The tests of the carrier run in guests, of each architecture that has a probe.
func TestMain(m *testing.M) { guesttest.Main(m.Run, "-test.run=^TestInGuest$") }

// TestGuests boots Debian's kernels.
func TestGuests(t *testing.T) {
	if testing.Short() || guesttest.Inside() {
		t.Skip("boots guests; not done under -short")
	}
	for _, tc := range []struct {
		goarch, suite string
		threads       qemu.Threads
	}{
		{"amd64", "", qemu.ThreadPerCPU},
		{"ppc64le", "", qemu.ThreadPerCPU},
		{"s390x", "", qemu.ThreadPerCPU},
		{"loong64", "", qemu.ThreadPerCPU},
		// Linux 6.12, which has checksums of its interfaces where 7.2 has none.
		{"amd64", "trixie", qemu.OneThread},
	} {
		t.Run(tc.goarch+tc.suite, func(t *testing.T) {
			guesttest.Guest{GOARCH: tc.goarch, Suite: tc.suite, CPUs: 3, Threads: tc.threads, Load: []string{"dummy"}}.Run(t, "TestInGuest")
		})
	}
}

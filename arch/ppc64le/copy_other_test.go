//go:build !ppc64le

package ppc64le

import (
	"testing"

	"pvabi/arch/internal/probetest"
)

func copyOf(t *testing.T) *Code {
	t.Helper()
	found := probetest.Foreign(t, "ppc64le")
	c := &Code{Bytes: found.Bytes, Run: found.Run, Guest: found.Entries["guest"], Gate: found.Entries["gate"]}
	for _, f := range found.Fixups {
		c.Fixups = append(c.Fixups, Fixup(f))
	}
	return c
}

//go:build !s390x

package s390x

import (
	"testing"

	"pvabi/arch/internal/probetest"
)

func copyOf(t *testing.T) *Code {
	t.Helper()
	found := probetest.Foreign(t, "s390x")
	c := &Code{Bytes: found.Bytes, Run: found.Run}
	for _, f := range found.Fixups {
		c.Fixups = append(c.Fixups, Fixup(f))
	}
	c.addAfter()
	return c
}

//go:build !loong64

package loong64

import (
	"testing"

	"pvabi/arch/internal/probetest"
)

func copyOf(t *testing.T) *Code {
	t.Helper()
	found := probetest.Foreign(t, "loong64")
	c := &Code{Bytes: found.Bytes, Run: found.Run}
	for _, f := range found.Fixups {
		c.Fixups = append(c.Fixups, Fixup(f))
	}
	for _, f := range found.Illegal {
		c.Illegal = append(c.Illegal, Fixup(f))
	}
	return c
}

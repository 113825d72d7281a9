package loong64

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func copyOf(t *testing.T) *Code {
	t.Helper()
	c, err := Copy()
	require.NoError(t, err)
	return c
}

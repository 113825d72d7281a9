//go:build !linux

package probetest

import (
	"os"
	"testing"
)

// Guest tells whether this process is a guest's first one.
func Guest() bool { return false }

// Main is the TestMain of a probe's package.
func Main(m *testing.M) { os.Exit(m.Run()) }

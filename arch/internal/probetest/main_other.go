//go:build !linux

package probetest

import (
	"os"
	"testing"
)

// Guest tells whether this process is one of a guest that was booted for Main.
func Guest() bool { return false }

// Main is the TestMain of a probe's package.
func Main(m *testing.M) { os.Exit(m.Run()) }

//go:build !linux || !ppc64le

package pseries

import (
	"errors"

	"pvabi/conformance/microvm"
)

// Open makes a machine. Here it cannot.
func Open(microvm.Config) (microvm.Machine, error) {
	return nil, errors.New("pseries: only for Linux on PowerPC, little-endian")
}

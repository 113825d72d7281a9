//go:build !linux || !s390x

package s390

import (
	"errors"

	"pvabi/conformance/microvm"
)

// Open makes a machine. Here it cannot.
func Open(microvm.Config) (microvm.Machine, error) {
	return nil, errors.New("s390: only for Linux on s390x")
}

//go:build !linux || !loong64

package loongarch

import (
	"errors"

	"pvabi/conformance/microvm"
)

// Open makes a machine. Here it cannot.
func Open(microvm.Config) (microvm.Machine, error) {
	return nil, errors.New("loongarch: only for Linux on LoongArch")
}

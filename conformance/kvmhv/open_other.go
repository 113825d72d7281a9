//go:build !linux || !ppc64le

package kvmhv

import (
	"errors"

	"pvabi/conformance/microvm"
)

var errOther = errors.New("kvmhv: only for Linux on PowerPC, little-endian")

// Open makes a machine. Here it cannot.
func Open(microvm.Config) (microvm.Machine, error) { return nil, errOther }

// Answers tells whether KVM answers a call itself. Here it cannot.
func Answers(uint64) (bool, error) { return false, errOther }

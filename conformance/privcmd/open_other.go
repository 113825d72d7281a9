//go:build !linux || !amd64

package privcmd

import (
	"fmt"
	"runtime"

	"pvabi/conformance/microvm"
)

// Open makes a machine. Xen's paravirtualized domains are on x86-64 only.
func Open(microvm.Config) (microvm.Machine, error) {
	return nil, fmt.Errorf("privcmd: not on %s/%s", runtime.GOOS, runtime.GOARCH)
}

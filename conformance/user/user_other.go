//go:build !(linux && amd64)

package user

import (
	"fmt"
	"runtime"

	"pvabi/conformance/microvm"
)

// Open makes a machine. It fails: there is no probe for machines of this kind.
func Open(microvm.Config) (microvm.Machine, error) {
	return nil, fmt.Errorf("user: no probe for %s/%s; run on linux/amd64", runtime.GOOS, runtime.GOARCH)
}

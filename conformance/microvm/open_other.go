//go:build !(linux && (amd64 || ppc64le))

package microvm

import (
	"fmt"
	"runtime"
)

// Open makes a machine. It fails: there is no probe for machines of this kind, or no
// KVM.
func Open(c Config) (Machine, error) {
	return nil, fmt.Errorf("microvm: no machines on %s/%s; run on linux/amd64 or linux/ppc64le", runtime.GOOS, runtime.GOARCH)
}

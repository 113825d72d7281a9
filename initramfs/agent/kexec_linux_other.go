//go:build linux && !loong64

package agent

import (
	"fmt"
	"runtime"
)

// loadKernel loads a kernel for kexec.
func loadKernel() error { return fmt.Errorf("there is no kernel to enter for %s", runtime.GOARCH) }

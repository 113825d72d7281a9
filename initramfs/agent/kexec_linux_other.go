//go:build linux && !amd64 && !loong64

package agent

import "errors"

func loadKernel(bool) error {
	return errors.New("kexec: no code for this architecture")
}

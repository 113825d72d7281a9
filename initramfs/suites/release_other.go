//go:build !linux

package suites

import "errors"

// release is that of the kernel that runs. Here it is not known.
func release() (string, error) {
	return "", errors.New("the release of the kernel is known on Linux only")
}

//go:build linux && !amd64

package pcvm

import "errors"

// ring fails: other platforms have no ports, and no machine of this package.
func ring(byte) error {
	return errors.New("the mailbox's bell: only x86 has one")
}

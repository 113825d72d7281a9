//go:build !linux

package store

import (
	"context"
	"fmt"
	"runtime"
)

// lock is the first step of all fetching, and refuses it.
func (s *Store) lock(context.Context) (unlock func(), err error) {
	return nil, fmt.Errorf("fetching needs apt on Linux, and this is %s; name files with -kernel, -modules and -qemu", runtime.GOOS)
}

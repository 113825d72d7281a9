//go:build !linux || !(amd64 || loong64 || ppc64le || s390x)

package kmod

import (
	"context"
	"fmt"
	"runtime"
)

// Open makes a machine. It fails: there is no probe for machines of this kind.
func Open(Config) (Machine, error) { return nil, errOther() }

// SelfCheck looks whether this carrier works. It fails: there is no probe for machines of
// this kind.
func SelfCheck(context.Context, Config) error { return errOther() }

func errOther() error {
	return fmt.Errorf("kmod: no probe for %s/%s; run on Linux for amd64, ppc64le or s390x", runtime.GOOS, runtime.GOARCH)
}

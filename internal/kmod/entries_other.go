//go:build !(amd64 || loong64 || ppc64le || s390x)

package kmod

import "unsafe"

// entries is empty: there is no glue for this machine.
var entries struct{ set, get, put, keep, end unsafe.Pointer }

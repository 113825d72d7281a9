//go:build amd64 || loong64 || ppc64le || s390x

//lint:file-ignore U1000 the assembler takes the numbers from go_asm.h

package kmod

import "unsafe"

// entries is where the assembler put the glue.
var entries struct{ set, get, put, keep, end unsafe.Pointer }

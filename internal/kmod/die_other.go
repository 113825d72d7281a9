//go:build !loong64

package kmod

import "unsafe"

// die is nothing: kernels of other machines have their table.
var die unsafe.Pointer

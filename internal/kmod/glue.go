package kmod

import (
	"errors"
	"unsafe"
)

// Glue is the code between the kernel and a probe. Offsets are in bytes.
type Glue struct {
	Bytes []byte
	// Set and Get are functions of the parameter call, Keep of the parameter memory; Put
	// is one to be called. The package comment says what they do.
	Set, Get, Put, Keep int
	// Die is the function for Probe.Illegal, where there is one.
	Die int
}

// CopyGlue returns the glue for the machine that runs, taken from the program that runs.
// It fails in a program whose linker did not keep the order of functions, and for a
// machine without any.
func CopyGlue() (Glue, error) {
	var g Glue
	begin, end := uintptr(entries.set), uintptr(entries.end)
	if begin == 0 {
		return g, errors.New("kmod: no glue for the machine that this program was built for")
	}
	all := []struct {
		at     unsafe.Pointer
		offset *int
	}{{entries.set, &g.Set}, {entries.get, &g.Get}, {entries.put, &g.Put}, {entries.keep, &g.Keep}, {die, &g.Die}}
	if die == nil {
		all = all[:len(all)-1]
	}
	for _, e := range all {
		if at := uintptr(e.at); at < begin || at >= end {
			return g, errors.New("kmod: the glue is not in one piece in this program; build it with Go's own linker and without -randlayout")
		}
		*e.offset = int(uintptr(e.at) - begin)
	}
	g.Bytes = append(g.Bytes, unsafe.Slice((*byte)(entries.set), end-begin)...)
	return g, nil
}

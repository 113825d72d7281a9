package kmod

import (
	"debug/elf"
	"fmt"
	"os"
)

// FromBTF learns from the kernel that runs, of a release, what its modules look like, without any.
// The error is a NoSibling where that is not enough.
func FromBTF(release string) (*Kernel, error) {
	none := func(what string, err error) error { return fmt.Errorf("%w: %s: %w", NoSibling, what, err) }
	names, err := os.Open(symbolsFile)
	if err != nil {
		return nil, none("the kernel's symbols", err)
	}
	defer names.Close()
	at, checked, err := symbols(names, "vermagic")
	if checked {
		return nil, Checked
	}
	if err != nil {
		return nil, none(symbolsFile, err)
	}
	memory, err := elf.Open(memoryFile)
	if err != nil {
		return nil, none("the kernel's memory", err)
	}
	defer memory.Close()
	vermagic, err := memoryText(memory, at)
	if err != nil {
		return nil, none(memoryFile, err)
	}
	types, err := os.Open(btfFile)
	if err != nil {
		return nil, none("the kernel's types (CONFIG_DEBUG_INFO_BTF)", err)
	}
	defer types.Close()
	size, err := structModule(types)
	if err != nil {
		return nil, none(btfFile, err)
	}
	k, err := known(release, vermagic, size)
	if err != nil {
		return nil, none("the kernel", err)
	}
	return k, nil
}

//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"pvabi/arch"
)

// area implements arch.Area. What the window moves are words; a load finds its part in one,
// and a store of less than a word is a program that the window's own probe runs.
type area struct {
	machine *machine
	address uint64
	size    uint64
}

// Address implements arch.Area.
func (a *area) Address() uint64 { return a.address }

// Size implements arch.Area.
func (a *area) Size() uint64 { return a.size }

// Load implements arch.Area.
func (a *area) Load(offset, size uint64) uint64 {
	at := a.at(offset, size)
	var word [8]byte
	a.machine.read(at&^7, word[:])
	part := word[at%8:][:size]
	switch size {
	case 1:
		return uint64(part[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(part))
	case 4:
		return uint64(binary.NativeEndian.Uint32(part))
	}
	return binary.NativeEndian.Uint64(part)
}

// Store implements arch.Area.
func (a *area) Store(offset, size, value uint64) {
	at := a.at(offset, size)
	if size == 8 {
		a.machine.write(at, words(value))
		return
	}
	w := a.machine.window
	// The frame begins as it was, at operation 0; after a Store comes an End.
	op := words(uint64(arch.Store), at, value, size)
	a.machine.write(w.Frame+arch.FrameOps, op)
	a.machine.write(w.Frame+arch.FrameAt, words(0))
	if status, err := w.Call(w.Probe, w.Frame, this.begin); err != nil || status != statusEnded {
		panic(fmt.Sprintf("kmod: store %d bytes at %#x: status %d, %v", size, at, status, err))
	}
}

// Bytes implements arch.Area.
func (a *area) Bytes() []byte {
	first := a.address &^ 7
	content := make([]byte, (a.address+a.size+7)&^7-first)
	a.machine.read(first, content)
	return bytes.Clone(content[a.address-first:][:a.size])
}

// at returns the address of size bytes of the area, which must be a size that one access can
// have, aligned to it.
func (a *area) at(offset, size uint64) uint64 {
	switch size {
	case 1, 2, 4, 8:
	default:
		panic(fmt.Sprintf("kmod: no access has %d bytes", size))
	}
	if offset > a.size || size > a.size-offset {
		panic(fmt.Sprintf("kmod: an access to %d bytes at %d of an area of %d", size, offset, a.size))
	}
	at := a.address + offset
	if at%size != 0 {
		panic(fmt.Sprintf("kmod: an access of %d bytes at %#x is not aligned", size, at))
	}
	return at
}

// words are 64-bit words in the machine's byte order.
func words(values ...uint64) []byte {
	var out []byte
	for _, v := range values {
		out = binary.NativeEndian.AppendUint64(out, v)
	}
	return out
}

func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
}

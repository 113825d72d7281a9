package arch

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Memory is memory that a carrier shares with its CPUs, in the byte order of the
// machine that the carrier runs on. Areas are given away from its beginning.
type Memory struct {
	bytes   []byte
	address uint64
	used    uint64
}

// NewMemory makes a Memory of bytes, which must be aligned to a page. Programs know its
// first byte by address.
func NewMemory(bytes []byte, address uint64) *Memory {
	return &Memory{bytes: bytes, address: address}
}

// Alloc gives away an area of size bytes, aligned to align bytes, a power of two, and
// filled with fill. Memory that is used up is a mistake in the program, and panics.
func (m *Memory) Alloc(size, align uint64, fill byte) Area {
	at := (m.used + align - 1) &^ (align - 1)
	if at+size > uint64(len(m.bytes)) {
		panic(fmt.Sprintf("arch: no room for an area of %d bytes in %d, of which %d are used", size, len(m.bytes), m.used))
	}
	m.used = at + size
	a := area{m.bytes[at:][:size:size], m.address + at}
	for i := range a.bytes {
		a.bytes[i] = fill
	}
	return a
}

// Reset takes all areas back.
func (m *Memory) Reset() {
	clear(m.bytes[:m.used])
	m.used = 0
}

// area is a piece of a Memory.
type area struct {
	bytes   []byte
	address uint64
}

func (a area) Address() uint64 { return a.address }
func (a area) Size() uint64    { return uint64(len(a.bytes)) }
func (a area) Bytes() []byte   { return bytes.Clone(a.bytes) }

func (a area) Load(offset, size uint64) uint64 {
	p := a.at(offset, size)
	switch size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(atomic.LoadUint32((*uint32)(p)))
	}
	return atomic.LoadUint64((*uint64)(p))
}

func (a area) Store(offset, size, value uint64) {
	p := a.at(offset, size)
	switch size {
	case 1:
		*(*uint8)(p) = uint8(value)
	case 2:
		*(*uint16)(p) = uint16(value)
	case 4:
		atomic.StoreUint32((*uint32)(p), uint32(value))
	default:
		atomic.StoreUint64((*uint64)(p), value)
	}
}

// at points to size bytes of the area, which must be a size that one access can have,
// aligned to it.
func (a area) at(offset, size uint64) unsafe.Pointer {
	switch size {
	case 1, 2, 4, 8:
	default:
		panic(fmt.Sprintf("arch: no access has %d bytes", size))
	}
	if (a.address+offset)%size != 0 {
		panic(fmt.Sprintf("arch: an access of %d bytes at %#x is not aligned", size, a.address+offset))
	}
	return unsafe.Pointer(&a.bytes[offset:][:size][0])
}

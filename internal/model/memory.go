package model

import (
	"fmt"
	"slices"

	"pvabi/arch"
)

// area is an arch.Area.
type area struct {
	m             *machine
	address, size uint64
}

// Alloc implements arch.Machine.
func (m *machine) Alloc(size, align uint64, fill byte) arch.Area {
	m.mu.Lock()
	defer m.mu.Unlock()
	align = max(align, 1)
	address := (memoryBase + uint64(len(m.memory)) + align - 1) / align * align
	m.memory = append(m.memory, make([]byte, address+size-memoryBase-uint64(len(m.memory)))...)
	for i := range size {
		m.memory[address-memoryBase+i] = fill
	}
	return area{m, address, size}
}

// Address implements arch.Area.
func (a area) Address() uint64 { return a.address }

// Size implements arch.Area.
func (a area) Size() uint64 { return a.size }

// Load implements arch.Area.
func (a area) Load(offset, size uint64) uint64 {
	a.check(offset, size)
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.run()
	return a.m.load(a.address+offset, size)
}

// Store implements arch.Area.
func (a area) Store(offset, size, value uint64) {
	a.check(offset, size)
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.store(a.address+offset, size, value)
}

// Bytes implements arch.Area.
func (a area) Bytes() []byte {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.run()
	return slices.Clone(a.m.memory[a.address-memoryBase:][:a.size])
}

func (a area) check(offset, size uint64) {
	if offset+size > a.size || !whole(size) {
		panic(fmt.Sprintf("model: an access of %d bytes at %d of an area of %d", size, offset, a.size))
	}
}

// whole tells whether an access of size bytes can be a single one.
func whole(size uint64) bool { return size == 1 || size == 2 || size == 4 || size == 8 }

// mapped tells whether there is memory at all of the addresses.
func (m *machine) mapped(address, size uint64) bool {
	end := memoryBase + uint64(len(m.memory))
	return address >= memoryBase && address <= end && size <= end-address
}

// load and store are single accesses to mapped memory.
func (m *machine) load(address, size uint64) uint64 {
	b := m.memory[address-memoryBase:]
	order := m.hv.isa().Order
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(order.Uint16(b))
	case 4:
		return uint64(order.Uint32(b))
	default:
		return order.Uint64(b)
	}
}

func (m *machine) store(address, size, value uint64) {
	b := m.memory[address-memoryBase:]
	order := m.hv.isa().Order
	switch size {
	case 1:
		b[0] = byte(value)
	case 2:
		order.PutUint16(b, uint16(value))
	case 4:
		order.PutUint32(b, uint32(value))
	default:
		order.PutUint64(b, value)
	}
}

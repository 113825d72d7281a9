package kvm

import "encoding/binary"

// Where a machine's tables are, in its own addresses, below FreeMemory. Both privilege
// levels may use all memory, and the first GiB is mapped to itself.
const (
	pageMap     = 0x1000
	pagePointer = 0x2000
	pageTable   = 0x3000
	descriptors = 0x4000
	gateTable   = 0x5000
	taskStates  = 0x6000 // one for each CPU
	taskSize    = 0x80
	maxTasks    = (OneShot - taskStates) / taskSize

	// OneShot is a page for code that runs in modes that need addresses below 64 KiB.
	OneShot = 0xa000
	// FreeMemory is where the machine's own tables end.
	FreeMemory = 0x10000
)

// Selectors in the descriptor table.
const (
	kernelCode = 0x08
	kernelData = 0x10
	userCode   = 0x18 | 3
	userData   = 0x20 | 3
	taskState  = 0x28
)

// Intel SDM volume 3, "Paging" and "Segment descriptors"; the last are the bits of a flat
// segment of each kind.
const (
	present, writable, user, large = 1 << 0, 1 << 1, 1 << 2, 1 << 7
	largePage                      = 2 << 20
	descriptorKernelCode           = 0x00af9b000000ffff
	descriptorKernelData           = 0x00cf93000000ffff
	descriptorUserCode             = 0x00affb000000ffff
	descriptorUserData             = 0x00cff3000000ffff
)

// Long describes the 64-bit mode that Tables is for.
type Long struct {
	// Gates is the address of the first of 256 interrupt gates, Stride bytes apart.
	Gates, Stride uint64
	// Stacks are, for each CPU, the top of the stack for interrupts that come at
	// privilege level 3.
	Stacks []uint64
}

// MaxCPUs is the number of CPUs that the tables have room for.
const MaxCPUs = maxTasks

// Tables writes the tables of 64-bit mode into a machine's memory.
func (l Long) Tables(memory []byte) {
	put := func(at, v uint64) { binary.LittleEndian.PutUint64(memory[at:], v) }
	put(pageMap, pagePointer|present|writable|user)
	put(pagePointer, pageTable|present|writable|user)
	for i := uint64(0); i < 512; i++ {
		put(pageTable+8*i, i*largePage|present|writable|user|large)
	}
	put(descriptors+kernelCode, descriptorKernelCode)
	put(descriptors+kernelData, descriptorKernelData)
	put(descriptors+userCode&^7, descriptorUserCode)
	put(descriptors+userData&^7, descriptorUserData)
	for v := uint64(0); v < 256; v++ {
		// An interrupt gate that privilege level 3 may use, too.
		const gate = 0xee00 << 32
		handler := l.Gates + v*l.Stride
		put(gateTable+16*v, handler&0xffff|kernelCode<<16|gate|handler>>16&0xffff<<48)
		put(gateTable+16*v+8, handler>>32)
	}
	for cpu, stack := range l.Stacks {
		const stack0 = 4 // the stack pointer for privilege level 0
		put(taskStates+uint64(cpu)*taskSize+stack0, stack)
	}
}

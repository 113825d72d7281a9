package kvm

import "encoding/binary"

// Radix are the tables by which a bare CPU of PowerPC translates addresses: the first GiB is
// mapped to itself, for supervisor and problem state, and there is nothing else. All of it
// is big endian (Power ISA 3.1B, book III, "Radix Tree Translation").
type Radix struct {
	// Process is the address of the process table, Root that of the tree's root and Next that
	// of the table below it; they have ProcessSize, RootSize and NextSize bytes and are aligned to
	// as many.
	Process, Root, Next uint64
}

// Sizes of the tables, in bytes.
const (
	ProcessSize = 1 << 12
	RootSize    = 8 << rootBits
	NextSize    = 8 << nextBits
)

const (
	// Trees of other forms than that of Linux are not for all processors: 52 bits of address,
	// of which the root takes 13, the next table 9, and what is left to an entry of that
	// are 30: 1 GiB (arch/powerpc/include/asm/book3s/64/radix.h, Linux 7.2).
	rootBits = 13
	nextBits = 9
	treeSize = 2<<61 | 5<<5 // in an entry of the process table: 52 bits

	entryValid = 1 << 63
	entryLeaf  = 1 << 62
	// Referenced and changed, so that no processor has to set them; to be read, written and
	// executed, not by supervisor state alone.
	entryUse = 1<<8 | 1<<7 | 1<<2 | 1<<1 | 1<<0
)

// Tables writes the tables into a machine's memory.
func (r Radix) Tables(memory []byte) {
	put := func(at, v uint64) { binary.BigEndian.PutUint64(memory[at:], v) }
	put(r.Process, treeSize|r.Root|rootBits)
	put(r.Root, entryValid|r.Next|nextBits)
	put(r.Next, entryValid|entryLeaf|entryUse)
}

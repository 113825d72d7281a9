package arch

import "context"

// Machine is a set of CPUs that run programs, and the memory that they share.
// A carrier makes one.
type Machine interface {
	// CPUs is the number of CPUs. They are numbered from 0; ID gives the number
	// by which the platform's calls name one.
	CPUs() int
	ID(cpu int) uint64
	// Alloc sets aside size bytes of the shared memory, aligned to align, both
	// in bytes, and filled with fill. It is given back by Reset.
	Alloc(size, align uint64, fill byte) Area
	// Start has a CPU begin a program and returns at once. The CPU must be
	// idle: fresh, or waited for until its program ended.
	Start(cpu int, p Program) error
	// Wait waits until the CPU's program ended, or left by an Exit.
	Wait(ctx context.Context, cpu int) (Stop, error)
	// Resume continues a CPU that is out by an Exit; it returns at once.
	Resume(cpu int) error
	// At tells which operation the CPU is at and how many it completed, without
	// disturbing it.
	At(cpu int) (op int, completed uint64)
	// Asleep tells whether the hypervisor has put the CPU to sleep in a Wait.
	Asleep(cpu int) (bool, error)
	// Results returns what the operations of the CPU's last program left, in
	// their order, at any time.
	Results(cpu int) []Result
	// Vectors returns the block of 16 vector registers of 32 bytes each that a
	// CPU's LoadVectors reads and its StoreVectors writes; SetVectors fills it.
	Vectors(cpu int) []byte
	SetVectors(cpu int, registers []byte) error
	// Events returns how many interrupts of a vector the CPU took since Reset.
	Events(cpu int, vector uint8) uint64
	// Counter returns one of the implementer's own counters for a CPU.
	Counter(cpu int, name string) (uint64, error)
	// Crowd makes two or more CPUs compete for one CPU of the host, until
	// release is called.
	Crowd(cpus ...int) (release func(), err error)
	// Reset stops all CPUs and brings them and the memory back to the state
	// after creation.
	Reset() error
}

// Area is a piece of a machine's memory. Loads and stores are single accesses
// of their size in the machine's byte order; offsets are in bytes.
type Area interface {
	// Address is what a program or the hypervisor knows the area by.
	Address() uint64
	Size() uint64
	Load(offset, size uint64) uint64
	Store(offset, size, value uint64)
	// Bytes returns a copy.
	Bytes() []byte
}

// Stop says why a CPU is no longer running its program.
type Stop struct {
	// Ended is true at the program's end, false at an Exit, whose Arg[0] is
	// then in Exit.
	Ended bool
	Exit  uint64
	// Reason tells of anything else, such as a triple fault, in words. It is
	// empty otherwise.
	Reason string
}

// Package arch is how a machine says the ABI: programs as plain data, what comes
// back from them, and per instruction set (in a folder of its own) the probe that
// runs them with whatever privilege its carrier has reached.
//
// # How a program runs
//
// A carrier gives each CPU a [Frame]: one block of memory that both the carrier
// and the probe can reach. The carrier writes the program's operations into it and
// starts the probe with the frame's address. The probe is an interpreter: it walks
// the operations, does each, and leaves a [Result] beside it. It also keeps two
// words that others may watch while it runs: the index of the operation that it is
// at, and how many operations it has completed. Nothing is decided inside: what a
// result means is the check's business.
//
// All words of a frame are 64 bits in the byte order of the CPU.
package arch

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Kind says what an operation does.
type Kind uint64

// The operations. A probe that does not know one stops there with [TrapUnknown].
const (
	// End ends the program.
	End Kind = iota
	// Call makes a hypercall: Arg[0] selects the form of the instruction (an
	// index into ISA.Instructions), Regs and Flags are loaded before it and
	// stored after it. The stack pointer is the probe's own: Regs at its place
	// is ignored and reads back as the bytes by which it moved, always 0.
	Call
	// CallLength is Call followed by one-byte instructions whose number tells
	// how far the call instruction moved the instruction pointer: Result.Value is
	// the length of the call instruction in bytes.
	CallLength
	// Wait waits for an event as the platform's guests do. Arg[0] is 1 for
	// interrupts on while waiting and off again after, 0 for interrupts off.
	Wait
	// Load reads Arg[1] bytes (1, 2, 4 or 8) at address Arg[0] into Result.Value.
	Load
	// Store writes the low Arg[2] bytes of Arg[1] at address Arg[0].
	Store
	// SpinUntil reads 8 bytes at Arg[0] until, masked by Arg[1], they equal
	// Arg[2], or until it has read Arg[3] times (0: no limit). Result.Value is
	// the last word read, unmasked; Result.Aux the number of reads.
	SpinUntil
	// Clock reads the CPU's clock into Result.Value.
	Clock
	// Interrupts turns interrupts on (Arg[0] = 1) or off (0).
	Interrupts
	// ReadRegister reads the model-specific or control register Arg[0] into
	// Result.Value.
	ReadRegister
	// WriteRegister writes Arg[1] to register Arg[0].
	WriteRegister
	// Discover asks the CPU what it is, leaf Arg[0], subleaf Arg[1]: the answer
	// is in Result.Regs (CPUID on x86: EAX, EBX, ECX, EDX in their places).
	Discover
	// Exit leaves for the carrier, which sees Arg[0]; the program goes on after
	// it when the carrier resumes the CPU.
	Exit
	// Loop goes back to operation Arg[0] unless it was reached Arg[1] times.
	Loop
	// LoadVectors fills the vector registers from the frame, StoreVectors writes
	// them back to it. Arg[0] is 0 for 128-bit, 1 for 256-bit registers.
	LoadVectors
	StoreVectors
	// Sample reads Arg[2] times a version word (4 bytes at Arg[0]) around a
	// data word (8 bytes at Arg[1]), as a reader that races with the writer.
	// Result.Regs counts: [0] samples with an odd version, [1] samples during
	// which the version changed, [2] samples with an even, unchanged version
	// whose two reads of the data differ, [3] samples in which the data was
	// less than in an earlier consistent one, [4] changes of the data, [5]
	// changes of the data without a change of the version; Result.Value is the
	// last consistent data, Result.Aux the number of consistent samples.
	// Arg[3] is 1 for words in the byte order that is not the CPU's, 0 otherwise;
	// only a probe whose platform has such words knows 1.
	Sample
)

// What Result.Regs of a Sample counts, by position.
const (
	SampleOdd     = 0
	SampleMoved   = 1
	SampleTorn    = 2
	SampleLess    = 3
	SampleChanges = 4
	SampleSilent  = 5
)

// Op is one operation. What Arg, Regs and Flags mean depends on Kind.
type Op struct {
	Kind  Kind
	Arg   [6]uint64
	Flags uint64
	Regs  [16]uint64
}

// Program is the operations for one CPU. A program of fewer than MaxOps
// operations is ended by its carrier with an End.
type Program []Op

// MaxOps is the number of operations that a frame holds, the End included.
const MaxOps = 64

// Result is what an operation left behind.
type Result struct {
	// Count is how often the operation was completed; 0 if never.
	Count uint64
	// Trap is 0, or 1 + the number of the exception that the operation ended
	// in; Code is the error code of the exception.
	Trap, Code uint64
	// Begin and End are the CPU's clock before and after.
	Begin, End uint64
	Value, Aux uint64
	// Flags and Regs are the registers after a Call or Discover, in the order
	// of ISA.Registers.
	Flags uint64
	Regs  [16]uint64
}

// TrapUnknown is Result.Trap of an operation that the probe does not know.
const TrapUnknown = ^uint64(0)

// Offsets in a frame, in bytes. The probes' assembler includes them by name.
const (
	FrameAt        = 0x000 // index of the operation that the probe is at
	FrameCompleted = 0x008 // number of operations completed
	FrameStack     = 0x010 // the probe's own: stack pointer to go back to
	FrameResume    = 0x018 // the probe's own: where to go on after an exception
	FrameExit      = 0x020 // Arg[0] of the Exit that the CPU is out for
	FrameSelf      = 0x028 // the frame's own address
	FrameScratch   = 0x040 // for the probe, up to FrameEvents
	FrameEvents    = 0x800 // interrupts taken, one word for each of 256 vectors
	FrameOps       = 0x1000
	FrameResults   = FrameOps + MaxOps*SlotSize
	FrameVectors   = FrameResults + MaxOps*SlotSize // 16 registers of 32 bytes
	FrameSize      = FrameVectors + 0x1000

	// SlotSize is the size of an operation, and of a result, in a frame.
	SlotSize = 0x100

	// In an operation: Kind, Arg, Flags, Regs.
	OpKind  = 0x00
	OpArg   = 0x08
	OpFlags = 0x38
	OpRegs  = 0x40

	// In a result.
	ResultCount = 0x00
	ResultTrap  = 0x08
	ResultCode  = 0x10
	ResultBegin = 0x18
	ResultEnd   = 0x20
	ResultValue = 0x28
	ResultAux   = 0x30
	ResultFlags = 0x38
	ResultRegs  = 0x40
)

// ISA describes an instruction set to checks and carriers.
type ISA struct {
	// GOARCH is Go's name of it.
	GOARCH string
	Order  binary.ByteOrder
	// Registers names the general registers in the order of Op.Regs.
	Registers []string
	// Instructions names the forms of the call instruction in the order of a
	// Call's Arg[0].
	Instructions []string
}

// Register returns the position of a register in Op.Regs, whatever the case of its
// name; an unknown name panics.
func (a *ISA) Register(name string) int { return position(a.Registers, name, "register") }

// Instruction returns the Arg[0] of a Call by the named form; an unknown name
// panics.
func (a *ISA) Instruction(name string) uint64 {
	return uint64(position(a.Instructions, name, "call instruction"))
}

func position(names []string, name, what string) int {
	for i, n := range names {
		if strings.EqualFold(n, name) {
			return i
		}
	}
	panic(fmt.Sprintf("arch: no %s named %q", what, name))
}

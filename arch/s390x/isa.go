// Package s390x is the probe for z/Architecture: how programs of package arch are run on it.
//
// # The probe
//
// probe_s390x.s is position independent machine code in Go's assembler. It keeps no data
// of its own and refers to nothing outside itself, neither by a GOT nor by an address, so
// that a carrier may copy it anywhere, aligned to 2 bytes: [Copy] returns it with the
// offset of its entry and its table of fixups.
//
// Run is a function of the ELF ABI: R2 is the frame's address, R3 the sum of [Resumed]
// and [Process] as they apply. It returns in R2 a [Status]. It keeps the registers that a
// callee has to keep and needs [Stack] bytes of stack. [Run] calls it in the process itself.
//
// Frames, and all else, are in the byte order of the CPU, big endian.
//
// # Privilege
//
// In a kernel, the probe must be entered in supervisor state with 64-bit addressing, and
// with lowcore at the address 0 or nowhere, as Linux has it. Interrupts, those for input
// and output and external ones, are each time that Run returns as they were when it was
// called, and as the program left them when it goes on. Machine checks stay as they are.
//
// With Process, in problem state, the probe leaves the system mask alone, which only
// privileged operations then touch, the vector registers are the program's to use, and R13,
// which Go's signal handlers need, is not loaded for a Call; it reads back as if it had been.
// In a kernel the vector registers are some process's, and LoadVectors and StoreVectors are
// unknown operations.
//
// # Exceptions
//
// An exception ends the operation that it happens in, and the program goes on with the
// next, where the kernel's table of exceptions has the Fixups: pairs of an address where
// an exception can find the CPU, and of the place to go on at, with all registers as they
// were. Some exceptions, page translation for one, leave the CPU at the instruction, and
// others, such as specification and privileged operation, after it, so Fixups lists both
// addresses. They are of the type EX_TYPE_FIXUP (arch/s390/include/asm/asm-extable.h, Linux 7.2).
//
// Linux does not hand over the number of the exception. The probe reads it where the CPU left
// it, in lowcore, so that Result.Trap is 1 more than the program interruption code: 3 for a
// privileged operation, 7 for a specification exception. Another exception may have come in
// between if the program has interrupts on, by way of another process; with interrupts off the
// number is certain. It is 0, and Result.Trap 1, on a kernel that has lowcore elsewhere (option
// relocate_lowcore).
//
// # Operations
//
// A Call loads R0 to R14 and, from the two lowest bits of the operation's Flags, the condition
// code as they are in the operation, and stores them all, after an exception too. Its forms are whole instructions, as
// the number of a DIAGNOSE is part of it, and named as in assembler. Result.Value is the
// length of the call in bytes, 4, told by the instructions after it that were left out; so
// CallLength is the same.
//
// Wait is unknown: a CPU waits by a PSW with the wait bit, and Linux returns to that PSW
// after an interrupt, bit and all, unless its own flag for an idle CPU is set
// (arch/s390/kernel/irq.c, do_io_irq, Linux 7.2). The kernel's own idle CPUs are the ones
// that wait. ReadRegister and WriteRegister are unknown.
//
// Clock is STORE CLOCK FAST: units of 2 to the power of -12 microseconds. The leaves of Discover
// are constants here. LoadVectors and StoreVectors move V0 to V15, 128 bits each. A Store is
// complete before the next operation begins.
package s390x

import (
	"encoding/binary"

	"pvabi/arch"
)

// ISA describes z/Architecture. What a form of the call instruction has in registers is told by
// the order of operands in assembler: R1, R3, and D2(B2), which adds up to the code of a
// DIAGNOSE and to the order of a SIGNAL PROCESSOR.
var ISA = &arch.ISA{
	GOARCH: "s390x",
	Order:  binary.BigEndian,
	Registers: []string{
		"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	},
	Instructions: []string{
		"diag r0,r0,0x44",
		"diag r0,r0,0x9c",
		"diag r1,r0,0x9c",
		"diag r5,r0,0x9c",
		"diag r14,r0,0x9c",
		"diag r1,r0,0x9c(r3)",
		"diag r1,r0,0x0(r3)",
		"diag r1,r0,0xfff",
		"diag r2,r4,0x258",
		"diag r1,r0,0x49c",
		"diag r2,r4,0x500",
		"sigp r2,r4,0x0(r5)",
		"sigp r1,r3,0x0(r5)",
		"sigp r11,r12,0x0(r10)",
		"sigp r2,r4,0x15",
	},
}

// Code is a copy of the probe. Offsets are in bytes from its beginning.
type Code struct {
	Bytes []byte
	// Run is the entry that the package comment describes.
	Run int
	// Fixups list where an instruction that faults may leave the CPU.
	Fixups []Fixup
}

// Fixup says where to go on after an exception at an address.
type Fixup struct{ At, Resume int }

// addAfter adds, to fixups for instructions, those for the addresses after them.
func (c *Code) addAfter() {
	for _, f := range c.Fixups {
		f.At += instructionLength(c.Bytes[f.At])
		c.Fixups = append(c.Fixups, f)
	}
}

// What Run's second argument is the sum of.
const (
	Resumed = 1 // go on after an Exit
	Process = 2 // problem state
)

// Status is what the probe leaves with.
type Status uint64

// The ways to leave.
const (
	Ended   Status = 0 // the program is at its end
	Exited  Status = 1 // an Exit; its Arg[0] is at arch.FrameExit
	Unknown Status = 2 // an operation that the probe does not know
)

// Stack is how many bytes of stack Run needs, besides the 160 of its caller's frame.
const Stack = 256

// The leaves of Discover: what Arg[0] asks for.
const (
	// Facilities is STORE FACILITY LIST EXTENDED: 1024 bits in Result.Regs, the first being
	// the highest of Regs[0]. Result.Aux is how many doublewords the CPU has, Flags the
	// condition code, 3 if it has more.
	Facilities = 0
	// CPUAddress is STORE CPU ADDRESS: the answer is Result.Regs[0]. It is privileged.
	CPUAddress = 1
	// CPUID is STORE CPU ID: the answer is Result.Regs[0]. It is privileged.
	CPUID = 2
	// SystemInformation is STORE SYSTEM INFORMATION: Arg[1] and Arg[2] are R0 (function code
	// and first selector) and R1 (second selector), Arg[3] the address of 4096 bytes for the answer,
	// aligned to that. Result.Flags is the condition code, 3 if there is no such
	// information, Result.Regs[0] is R0. It is privileged.
	SystemInformation = 3
)

// Form returns the operation that executes a form of the call instruction, by its name among
// ISA.Instructions, with registers, by their names. The others are 0.
func Form(name string, registers map[string]uint64) arch.Op {
	o := arch.Op{Kind: arch.Call, Arg: [6]uint64{ISA.Instruction(name)}}
	for r, v := range registers {
		o.Regs[ISA.Register(r)] = v
	}
	return o
}

// Signal returns the operation that gives a CPU, by its address, an order of SIGNAL PROCESSOR.
// Result.Flags is the condition code; with 1, the low half of Result.Regs at the place of R2 is
// the status.
func Signal(order, cpu, parameter uint64) arch.Op {
	return Form("sigp r2,r4,0x0(r5)", map[string]uint64{"r3": parameter, "r4": cpu, "r5": order})
}

// instructionLength is the length, in bytes, of an instruction that begins with a byte.
func instructionLength(first byte) int {
	return [4]int{2, 4, 4, 6}[first>>6]
}

// Instruction is one in code: where it stands, in bytes from the beginning, and its own bytes.
type Instruction struct {
	At   int
	Code []byte
}

// Instructions takes code apart. Bytes at its end that are no whole instruction are left out.
func Instructions(code []byte) (out []Instruction) {
	for at := 0; at < len(code); {
		n := instructionLength(code[at])
		if at+n > len(code) {
			break
		}
		out = append(out, Instruction{at, code[at : at+n]})
		at += n
	}
	return out
}

// Calls tells whether the instruction calls a function, BRANCH RELATIVE AND SAVE LONG, and how far from
// it that is, in bytes.
func (i Instruction) Calls() (distance int, ok bool) {
	if len(i.Code) != 6 || i.Code[0] != 0xc0 || i.Code[1]&0xf != 5 {
		return 0, false
	}
	return 2 * int(int32(binary.BigEndian.Uint32(i.Code[2:]))), true
}

// Diagnoses tells whether the instruction is DIAGNOSE with a code that is all in its displacement.
func (i Instruction) Diagnoses(code uint64) bool {
	return len(i.Code) == 4 && i.Code[0] == 0x83 && uint64(binary.BigEndian.Uint16(i.Code[2:])) == code
}

// Signals tells whether the instruction is SIGNAL PROCESSOR.
func (i Instruction) Signals() bool { return len(i.Code) == 4 && i.Code[0] == 0xae }

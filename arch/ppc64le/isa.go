// Package ppc64le is the probe for PowerPC as a little endian guest of PAPR: how programs
// of package arch are run on it.
//
// # The probe
//
// probe_ppc64le.s is position independent machine code in Go's assembler. It keeps no
// data of its own and refers to nothing outside itself, neither by a TOC nor by an
// address, so that a carrier may copy it anywhere, aligned to 4 bytes: [Copy] returns it
// with the offset of its entry and its table of fixups.
//
// Run is a function of the ELFv2 ABI, for which local and global entry are the same: R3 is
// the frame's address, R4 the sum of [Resumed] and [Process] as they apply. It returns in
// R3 a [Status]. It keeps the registers that a callee has to keep, needs [Stack] bytes of
// stack, and uses neither R2 nor R13. [Run] calls it in the process itself.
//
// Frames are in the byte order of the CPU, little endian. What PAPR shares between
// hypervisor and guest, such as the VPA, is big endian whatever the guest is: values that a
// Load, a Store or a SpinUntil has of such an area, and those by the Area's own methods, are
// for the check to turn around. A Sample turns both words around if its Arg[3] is 1.
//
// # Privilege
//
// In a kernel, which must be the guest of a hypervisor, the probe must be entered with
// interrupts on and bound to one CPU, as R13 is the kernel's for that. Interrupts are, each time
// that Run returns, as they were when it was called, and as the program left them when it goes
// on. They are those of MSR[EE]; the kernel's own software mask stays as it is, so that an
// exception while they are off draws a warning from Linux (interrupt_exit_kernel_prepare).
//
// With Process, in problem state, the probe leaves MSR, SRR0 and SRR1 alone, which only
// privileged operations then touch, the vector registers are the program's to use, and R30,
// which Go's signal handlers need, is not loaded for a Call. In a kernel the vector registers
// are some process's, and LoadVectors and StoreVectors are unknown operations.
//
// On a bare CPU, one that a carrier made, Guest is where it starts: in supervisor or problem
// state, little endian, with R3 and R4 as for Run, R1 at [StackHeader] bytes below the top of a
// stack of 4 KiB, and SPRG0 the frame's address. R4 has [Bare] in supervisor state and Process
// in problem state. Guest calls Run and leaves each time by a store of the Status, one byte, to
// address [Door]; when it is let in again, it goes on after the Exit. [Vectors] are what has to
// be at real address 0, with LPCR[ILE] and LPCR[LD] set, LPCR[AIL] not. Memory must have the
// same addresses in real mode and outside it.
//
// # Exceptions
//
// An exception ends the operation that it happens in, and the program goes on with the
// next, where the kernel's table of exceptions has the Fixups: pairs of an instruction
// that may fault, and of the place to go on at, with all registers as they were. Linux does not
// tell which exception it was, so Result.Trap is always 1, standing for exception 0.
// Only loads and stores have fixups: the kernel looks no others up, and dies of a program
// check of its own (arch/powerpc/kernel/traps.c, do_program_check, Linux 7.2). For that reason
// the probe reads and writes no register but those listed here, which every machine since
// POWER8 has, and "sc 1" is only for guests of a hypervisor: on bare metal it is a system call.
//
// On a bare CPU the Vectors see to all exceptions. Result.Trap is 1 more than the vector, 0x701
// for a program interrupt; Result.Code is DSISR if that is data storage or alignment (0x300,
// 0x600), and SRR1 otherwise. An interrupt is counted in the frame under its vector divided by 256,
// [Decrementer], [External] or [Doorbell]. After that of the decrementer, this is set to
// the largest number that it can be. One that is external is accepted at PAPR's interrupt
// controller, the CPU's own request by H_IPI is withdrawn, for which the CPU's number must be at
// [FrameServer] in the frame, and the interrupt is ended; a program has such an interrupt made by
// the call H_IPI. In problem state interrupts are always on, and Guest needs an MMU, which
// problem state turns on.
//
// # Operations
//
// A Call loads R0, R3 to R12, LR, CTR, XER and, from the operation's Flags, CR as they are in
// the operation; R14 as it is there, and R15 to R31 with the numbers that follow it. After it
// all of these are in the result, MSR too if in a kernel, and Result.Aux has a bit for each of
// R2 and R13 to R31 that changed, 1<<n for Rn. Result.Value is the length of the call in
// bytes, 4, told by the instructions after it that were left out; so CallLength is the same.
// SRR0 and SRR1 are kept, as a kernel may have its way back in them, and a hypervisor is
// free to change them (hvCall.S of Linux, PACASRR_VALID).
//
// A Wait is the call H_CEDE, with registers as in the operation but for R3, made with
// interrupts as Arg[0] says. The hypervisor turns them on in either case; they are off after
// it, and MSR among the result's registers tells what they were in between.
//
// ReadRegister reads DEC, CTRL, VRSAVE, TB, PVR, SPURR, PURR, VTB and MSR, WriteRegister writes
// DEC and VRSAVE; all others are unknown. Clock is the time base. Discover has leaf 0, which is PVR
// at the place of R3: all else is in the device tree. LoadVectors and StoreVectors move V0 to
// V15, 128 bits each. A Store is complete before the next operation begins.
package ppc64le

import (
	"encoding/binary"

	"pvabi/arch"
)

// ISA describes PowerPC. Op.Regs at the place of msr is ignored; see the package comment on r14.
var ISA = &arch.ISA{
	GOARCH: "ppc64le",
	Order:  binary.LittleEndian,
	Registers: []string{
		"r0", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12",
		"lr", "ctr", "xer", "r14", "msr",
	},
	Instructions: []string{"sc 1"},
}

// Code is a copy of the probe. Offsets are in bytes from its beginning.
type Code struct {
	Bytes []byte
	// Run, Guest and Gate, which Vectors call, are entries that the package comment
	// describes.
	Run, Guest, Gate int
	// Fixups list the instructions that may fault.
	Fixups []Fixup
}

// Fixup says where to go on after an instruction that faulted.
type Fixup struct{ At, Resume int }

// What Run's second argument is the sum of.
const (
	Resumed = 1 // go on after an Exit
	Process = 2 // problem state
	Bare    = 4 // supervisor state of a bare CPU
)

// Status is what the probe leaves with.
type Status uint64

// The ways to leave.
const (
	Ended   Status = 0 // the program is at its end
	Exited  Status = 1 // an Exit; its Arg[0] is at arch.FrameExit
	Unknown Status = 2 // an operation that the probe does not know
)

// Stack is how many bytes of stack Run needs.
const Stack = 512

// What a bare CPU runs with.
const (
	// Door is the address at which Guest leaves: mapped, but with no memory behind. A call
	// will not do for problem state.
	Door = 0x3ff00000
	// StackHeader is what a caller of Run leaves above its own stack, in bytes.
	StackHeader = 32
	// FrameServer is the offset in a frame of the CPU's number as the interrupt controller's
	// calls have it.
	FrameServer = arch.FrameScratch + 0x10

	// The interrupts, as a frame counts them.
	External    = 5
	Decrementer = 9
	Doorbell    = 10

	// Vectors of exceptions that checks meet (Power ISA 3.1B, book III, "Interrupt Vector
	// Offsets").
	DataStorage = 0x300
	Program     = 0x700
)

// ProgramPrivileged is the bit of SRR1, Result.Code, that tells of a program interrupt that it
// is for an instruction which problem state may not use.
const ProgramPrivileged = 1 << 18

const (
	vectorsSize   = 0x2000 // the last vector of POWER10 is below
	vectorsStride = 0x20   // the smallest distance between two of them
)

// Vectors returns what must be at real address 0 for a gate that is at an address below 32 MiB:
// at each vector four instructions that keep R3 and LR and call it.
func Vectors(gate uint64) []byte {
	const (
		mtsprg1R3 = 0x7c7143a6 // mtsprg 1, r3
		mflrR3    = 0x7c6802a6 // mflr r3
		mtsprg2R3 = 0x7c7243a6 // mtsprg 2, r3
		bl        = 0x48000001 // bl, from here
	)
	var b []byte
	for at := uint64(0); at < vectorsSize; at += vectorsStride {
		branch := at + gateCall - 4
		for _, word := range []uint32{mtsprg1R3, mflrR3, mtsprg2R3, bl | uint32(gate-branch)&0x03fffffc, 0, 0, 0, 0} {
			b = binary.LittleEndian.AppendUint32(b, word)
		}
	}
	return b
}

// The registers that ReadRegister knows, by their numbers as special purpose registers
// (Power ISA 3.1B, book III, "Special Purpose Registers"); MSR, which has none, by a number
// that no other can have.
const (
	DEC    = 22   // decrementer
	CTRL   = 136  // run latch
	VRSAVE = 256  // free for software
	TB     = 268  // time base
	PVR    = 287  // processor version
	SPURR  = 308  // scaled PURR
	PURR   = 309  // processor utilization of resources
	VTB    = 849  // virtual time base
	MSR    = 1024 // machine state
)

// Hcall returns the operation that makes a call of PAPR: its number, and what R4 and the
// registers after it have to be.
func Hcall(number uint64, args ...uint64) arch.Op {
	o := arch.Op{Kind: arch.Call, Arg: [6]uint64{ISA.Instruction("sc 1")}}
	r3 := ISA.Register("r3")
	o.Regs[r3] = number
	copy(o.Regs[r3+1:ISA.Register("lr")], args)
	return o
}

// Branch is an instruction that calls a function: where it stands, in bytes from the
// beginning of its code, and how far from there what it calls is.
type Branch struct{ At, Distance int }

// Branches lists the calls in code: "bl", whose distance is in the instruction (Power ISA 3.1B,
// book I, "Branch Instructions").
func Branches(code []byte) []Branch {
	const (
		mask, bl     = 0xfc000003, 0x48000001
		distanceMask = 0x03fffffc
	)
	var out []Branch
	for at := 0; at+4 <= len(code); at += 4 {
		if word := binary.LittleEndian.Uint32(code[at:]); word&mask == bl {
			out = append(out, Branch{at, int(int32(word&distanceMask)<<6) >> 6})
		}
	}
	return out
}

// Calls tells whether the first instructions of a function have a hypercall among them.
func Calls(code []byte) bool {
	const hypercall = 0x44000022 // sc 1
	for at := 0; at+4 <= len(code); at += 4 {
		if binary.LittleEndian.Uint32(code[at:]) == hypercall {
			return true
		}
	}
	return false
}

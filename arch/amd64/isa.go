// Package amd64 is the probe for x86-64: how programs of package arch are run on it.
//
// # The probe
//
// probe_amd64.s is position independent machine code in Go's assembler. It keeps
// no data of its own and refers to nothing outside itself, so that a carrier may
// copy it anywhere: [Copy] returns it with the offsets of its entries.
//
//   - Run is a function of the System V calling convention: RDI the frame's
//     address, ESI 0 to begin the frame's program and 1 to go on after an Exit. It
//     returns in EAX a Status. It keeps the registers that a callee has to keep,
//     RFLAGS included, and needs 512 bytes of stack. [Run] calls it in the process
//     itself.
//   - Guest is where a bare CPU starts, with RDI and RSI as for Run, RSP at the top
//     of a stack of 4 KiB and GS based at the frame, whose own address is at
//     arch.FrameSelf. It calls Run and leaves each time by a write of the Status,
//     one byte, to address [Door]; when it is let in again, it goes on after the
//     Exit.
//   - Vectors are the 256 interrupt gates of such a CPU, VectorStride bytes apart,
//     for both privilege levels. All go through gates that turn interrupts off.
//
// # Exceptions and interrupts
//
// An exception ends the operation that it happens in: vector and error code are in
// its result, and the program goes on with the next. On a bare CPU the Vectors see to
// that, and put CR2 of a page fault into Result.Aux. In a kernel its own table of exceptions does: Fixups lists each instruction
// that may fault together with the place to go on at, with the number of the exception
// in RAX, as EX_TYPE_FAULT of Linux has it (arch/x86/mm/extable.c, ex_handler_fault).
//
// An interrupt, on a bare CPU, is counted in the frame and acknowledged at the x2APIC
// ([EOI]), but for an NMI, which is counted under [NMI], and for the vectors from
// [FirstQuiet] up, which the program has to acknowledge: it can then look at what the
// hypervisor keeps while an interrupt is in service.
//
// # Registers
//
// A Call loads all general registers but RSP, and RFLAGS as they are in the operation,
// and stores them all. Interrupts are as Flags say during the call, and as they were
// after it. ReadRegister and WriteRegister are RDMSR and WRMSR; on a bare CPU ReadRegister also
// reads CR8, and 4 bytes of an I/O port ([Port]). Clock is RDTSC, Discover is CPUID, whose EAX, EBX, ECX and EDX are in the places of RAX, RBX, RCX and RDX.
package amd64

import (
	"encoding/binary"

	"pvabi/arch"
)

// ISA describes x86-64.
var ISA = &arch.ISA{
	GOARCH: "amd64",
	Order:  binary.LittleEndian,
	// The order is the one in which instructions encode registers, but for
	// RBX before RCX: that of CPUID's answer.
	Registers: []string{
		"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	},
	Instructions: []string{"vmcall", "vmmcall"},
}

// Encodings are the bytes of ISA.Instructions, the same in all modes of the processor
// (Linux, arch/x86/kvm/vmx/vmx.c, vmx_patch_hypercall, and svm/svm.c, svm_patch_hypercall).
var Encodings = [][]byte{{0x0f, 0x01, 0xc1}, {0x0f, 0x01, 0xd9}}

// Status is what the probe leaves with.
type Status uint8

// The ways to leave.
const (
	Ended   Status = 0 // the program is at its end
	Exited  Status = 1 // an Exit; its Arg[0] is at arch.FrameExit
	Unknown Status = 2 // an operation that the probe does not know
)

// What a bare CPU runs with.
const (
	// Door is the address at which Guest leaves: mapped, but with no memory behind. An
	// I/O port will not do for both privilege levels: QEMU 11.1 ignores the map of
	// ports in a task state that is marked busy, as that of a running CPU must be
	// (target/i386/tcg/system/seg_helper.c, helper_check_io).
	Door = 0x3ff00000
	// VectorStride is the distance between two interrupt gates, in bytes.
	VectorStride = 16
	// NMI is the vector that non-maskable interrupts are counted under.
	NMI = 2
	// FirstQuiet is the first vector that the probe does not acknowledge.
	FirstQuiet = 0xe0
)

// Registers of the x2APIC by which programs make and acknowledge interrupts (Intel SDM
// volume 3, "x2APIC register address space").
const (
	ICR = 0x830 // interrupt command
	EOI = 0x80b // end of interrupt; only 0 may be written
	ISR = 0x810 // first of 8 registers: vectors in service, 32 each
	IRR = 0x820 // first of 8 registers: vectors requested, 32 each
	SVR = 0x80f // spurious vector, and bit 8 that enables the APIC
)

// Interrupt returns the operation that sends an interrupt of a vector to the CPU with
// that APIC id.
func Interrupt(id uint64, vector uint8) arch.Op { return command(id, uint64(vector)) }

// NonMaskable returns the operation that sends an NMI to the CPU with that APIC id.
func NonMaskable(id uint64) arch.Op { return command(id, 4<<8) }

// Kick returns the operation that sends a message of the delivery mode remote read, which KVM
// takes for a kick, to the CPU with that APIC id.
func Kick(id uint64) arch.Op { return command(id, 3<<8) }

// Init returns the operation that sends an INIT to the CPU with that APIC id.
func Init(id uint64) arch.Op { return command(id, 5<<8) }

// What ReadRegister knows besides model-specific registers, whose numbers have 32 bits.
const (
	// Port is added to the number of an I/O port.
	Port = 1 << 32
	// CR8 is the control register of that name, the priority of interrupts.
	CR8 = 1 << 33
)

func command(id, low uint64) arch.Op {
	const assert = 1 << 14
	return arch.Op{Kind: arch.WriteRegister, Arg: [6]uint64{ICR, id<<32 | assert | low}}
}

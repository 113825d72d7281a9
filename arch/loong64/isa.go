// Package loong64 is the probe for LoongArch: how programs of package arch are run on it.
//
// # The probe
//
// probe_loong64.s is position independent machine code in Go's assembler. It keeps no data
// of its own and refers to nothing outside itself, so that a carrier may copy it anywhere,
// aligned to 4 bytes: [Copy] returns it with the offset of its entry and its table of fixups.
//
// Run is a function of the LP64 ABI: R4 is the frame's address, R5 the sum of [Resumed] and
// [Process] as they apply. It returns in R4 a [Status]. It keeps the registers that a callee
// has to keep, needs [Stack] bytes of stack, and uses neither R2 nor R21. [Run] calls it in
// the process itself.
//
// # Privilege
//
// In a kernel, the probe must be entered at privilege level 0 and bound to one CPU, as R21
// is the kernel's for that. Interrupts, those of CRMD.IE, are each time that Run returns as
// they were when it was called, and as the program left them when it goes on.
//
// With Process, at privilege level 3, the probe leaves CRMD alone, which only privileged
// operations then touch, the vector registers are the program's to use, and R22, which Go's
// signal handlers need, is not loaded for a Call. In a kernel the vector registers are
// some process's, and LoadVectors and StoreVectors are unknown operations.
//
// # Exceptions
//
// An exception ends the operation that it happens in, and the program goes on with the
// next, where the kernel's table of exceptions has the Fixups: pairs of an instruction that
// may fault, and of the place to go on at, with all registers as they were. They are of the
// type EX_TYPE_FIXUP. Linux does not tell which exception it was, so Result.Trap is always 1,
// standing for exception 0.
//
// For an instruction that the machine does not have, as HVCL is one without a hypervisor, the
// kernel looks nothing up, but asks whoever has registered for that (arch/loongarch/kernel/traps.c,
// do_ri, Linux 7.2). Illegal has the pairs for those. It is that exception and no other, so
// Result.Trap is [Illegal] then. The kernel takes interrupts on the way, also if they are off.
//
// # Operations
//
// A Call loads R1 and R4 to R18 as they are in the operation, and R19 to R31, but for R21, with
// the numbers that follow R18's: Rn with n-18 more. All that it loads by name it stores.
// Result.Aux has a bit for each of R2 and R18 to R31 that changed, 1<<n for Rn. Result.Flags is
// CRMD after the call if in a kernel; the operation's Flags are ignored. Result.Value is the
// length of the call in bytes, 4, told by the instructions after it that were left out; so
// CallLength is the same.
//
// A Wait is IDLE with interrupts off, which a pending interrupt ends all the same, so that
// none can be lost; with Arg[0] 1 they are on after it, until those that are pending were
// taken. They are off at its end.
//
// ReadRegister reads the control and status registers that are constants here, and with
// [IOCSR] added to an address, 4 bytes of input and output space; WriteRegister writes
// that space, and ECFG, ESTAT, of which only software interrupts change, and TCFG. Clock is the stable counter. Discover is CPUCFG of the word Arg[0], with the answer
// at the place of R4. LoadVectors and StoreVectors move V0 to V15 or X0 to X15. A Store is
// complete before the next operation begins.
package loong64

import (
	"encoding/binary"

	"pvabi/arch"
)

// ISA describes LoongArch. See the package comment on r18.
var ISA = &arch.ISA{
	GOARCH: "loong64",
	Order:  binary.LittleEndian,
	Registers: []string{
		"r1", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11",
		"r12", "r13", "r14", "r15", "r16", "r17", "r18",
	},
	Instructions: []string{"hvcl 0x100", "hvcl 0x101", "hvcl 0x102", "hvcl 0x103", "hvcl 0x0", "hvcl 0x7fff"},
}

// Code is a copy of the probe. Offsets are in bytes from its beginning.
type Code struct {
	Bytes []byte
	// Run is the entry that the package comment describes.
	Run int
	// Fixups list the instructions that may fault, Illegal those that the machine may not have.
	Fixups, Illegal []Fixup
}

// Fixup says where to go on after an instruction that faulted.
type Fixup struct{ At, Resume int }

// What Run's second argument is the sum of.
const (
	Resumed = 1 // go on after an Exit
	Process = 2 // privilege level 3
)

// Status is what the probe leaves with.
type Status uint64

// The ways to leave.
const (
	Ended   Status = 0 // the program is at its end
	Exited  Status = 1 // an Exit; its Arg[0] is at arch.FrameExit
	Unknown Status = 2 // an operation that the probe does not know
)

// Illegal is Result.Trap of an instruction that the machine does not have, at any privilege: 1 more
// than the code of the exception (LoongArch Reference Manual volume 1, "Exception Priority").
const Illegal = 1 + 0xd

// Stack is how many bytes of stack Run needs.
const Stack = 384

// The registers that ReadRegister knows (LoongArch Reference Manual volume 1, "Overview of
// control and status registers").
const (
	CRMD  = 0x00 // current mode
	PRMD  = 0x01 // mode before the last exception
	ECFG  = 0x04 // interrupts that are enabled
	ESTAT = 0x05 // interrupts that are pending
	CPUID = 0x20 // number of the CPU
	TCFG  = 0x41 // timer's configuration
	TVAL  = 0x42 // timer's value

	// IOCSR is added to an address of input and output space.
	IOCSR = 1 << 32
)

// Hypercall returns the operation that makes a call by a form of HVCL, by its name among
// ISA.Instructions: the function's number is in R4, arguments in the registers after it.
func Hypercall(form string, function uint64, args ...uint64) arch.Op {
	o := arch.Op{Kind: arch.Call, Arg: [6]uint64{ISA.Instruction(form)}}
	r4 := ISA.Register("r4")
	o.Regs[r4] = function
	copy(o.Regs[r4+1:ISA.Register("r18")], args)
	return o
}

//lint:file-ignore U1000 the assembler takes these from go_asm.h

package ppc64le

import "pvabi/arch"

// What probe_ppc64le.s knows by name: package arch's numbers, as go_asm.h only has a
// package's own.
const (
	kindEnd           = arch.End
	kindCall          = arch.Call
	kindCallLength    = arch.CallLength
	kindWait          = arch.Wait
	kindLoad          = arch.Load
	kindStore         = arch.Store
	kindSpinUntil     = arch.SpinUntil
	kindClock         = arch.Clock
	kindInterrupts    = arch.Interrupts
	kindReadRegister  = arch.ReadRegister
	kindWriteRegister = arch.WriteRegister
	kindDiscover      = arch.Discover
	kindExit          = arch.Exit
	kindLoop          = arch.Loop
	kindLoadVectors   = arch.LoadVectors
	kindStoreVectors  = arch.StoreVectors
	kindSample        = arch.Sample

	frameAt        = arch.FrameAt
	frameCompleted = arch.FrameCompleted
	frameStack     = arch.FrameStack
	frameResume    = arch.FrameResume
	frameExit      = arch.FrameExit
	frameFlags     = arch.FrameScratch     // Run's second argument
	frameMSR       = arch.FrameScratch + 8 // in a kernel, the program's MSR outside calls
	frameServer    = FrameServer
	frameEvents    = arch.FrameEvents
	frameOps       = arch.FrameOps
	frameResults   = arch.FrameResults
	frameVectors   = arch.FrameVectors
	frameSaved     = arch.FrameScratch + 0x40 // of a bare CPU, registers as an interrupt found them
	maxOps         = arch.MaxOps
	slotShift      = 8 // 1<<slotShift is arch.SlotSize

	opKind      = arch.OpKind
	opArg       = arch.OpArg
	opFlags     = arch.OpFlags
	opRegs      = arch.OpRegs
	resultCount = arch.ResultCount
	resultTrap  = arch.ResultTrap
	resultCode  = arch.ResultCode
	resultBegin = arch.ResultBegin
	resultEnd   = arch.ResultEnd
	resultValue = arch.ResultValue
	resultAux   = arch.ResultAux
	resultFlags = arch.ResultFlags
	resultRegs  = arch.ResultRegs

	statusEnded   = Ended
	statusExited  = Exited
	statusUnknown = Unknown

	// The probe's stack frame, above the 32 bytes that the ABI has for itself.
	stackKept  = 32               // R14 to R31 of the caller
	stackFrame = stackKept + 18*8 // address of the frame
	stackR2    = stackFrame + 8   // R2 and R13 of the caller
	stackR13   = stackR2 + 8      //
	stackMSR   = stackR13 + 8     // in a kernel, the caller's MSR
	stackSRR0  = stackMSR + 8     // in a kernel, SRR0 and SRR1 before a call
	stackSRR1  = stackSRR0 + 8    //
	stackR30   = stackSRR1 + 8    // R30 as loaded for a call
	stackCall  = stackR30 + 8     // R0 and R3 to R12 after a call
	stackHigh  = stackCall + 11*8 // R14 to R31 after a call
	stackSize  = (stackHigh + 18*8 + 15) &^ 15

	// callSteps is the number of instructions after a call by which its length is
	// measured.
	callSteps = 8

	hCede = 0xe0 // PAPR, H_CEDE: arch/powerpc/include/asm/hvcall.h, Linux 7.2

	ownVectors = Process | Bare // where the program has the vector registers to itself

	msrEE    = 1 << 15 // Power ISA 3.1B, book III, "Machine State Register"
	sprDSISR = 18
	sprSRR0  = 26
	sprSRR1  = 27
	sprSPRG0 = 272
	sprSPRG1 = 273
	sprSPRG2 = 274
	sprSPRG3 = 275

	// Vectors that gate knows, from "Interrupt Vector Offsets" there.
	vectorDSI       = DataStorage
	vectorAlignment = 0x600
	vectorExternal  = External << 8
	vectorDEC       = Decrementer << 8
	vectorDoorbell  = Doorbell << 8

	srr1Exception   = 0x783f0000 // bits 33 to 36 and 42 to 47 of SRR1
	decrementerBits = 56         // of the large decrementer of POWER9 and POWER10
	gateCall        = 16         // from a vector to what follows its call of gate

	// The interrupt controller's calls and the priority that stands for no request: PAPR,
	// "Interrupt Support"; arch/powerpc/include/asm/hvcall.h and xics.h, Linux 7.2.
	hEOI      = 0x64
	hIPI      = 0x6c
	hXIRR     = 0x74
	noRequest = 0xff
)

// The shift fits the size, and Stack is enough, or this does not compile.
var (
	_ = [1]struct{}{}[arch.SlotSize-1<<slotShift]
	_ = [Stack + 1]struct{}{}[stackSize]
)

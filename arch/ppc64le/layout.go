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
	frameResume    = arch.FrameResume
	frameExit      = arch.FrameExit
	frameFlags     = arch.FrameScratch     // Run's second argument
	frameMSR       = arch.FrameScratch + 8 // in a kernel, the program's MSR outside calls
	frameOps       = arch.FrameOps
	frameResults   = arch.FrameResults
	frameVectors   = arch.FrameVectors
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

	msrEE   = 1 << 15 // Power ISA 3.1B, book III, "Machine State Register"
	sprSRR0 = 26
	sprSRR1 = 27
)

// The shift fits the size, and Stack is enough, or this does not compile.
var (
	_ = [1]struct{}{}[arch.SlotSize-1<<slotShift]
	_ = [Stack + 1]struct{}{}[stackSize]
)

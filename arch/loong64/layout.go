//lint:file-ignore U1000 the assembler takes these from go_asm.h

package loong64

import "pvabi/arch"

// What probe_loong64.s knows by name: package arch's numbers, as go_asm.h only has a
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
	frameCRMD      = arch.FrameScratch + 8 // in a kernel, the program's CRMD
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

	// The probe's stack frame.
	stackKept  = 0                // R1 and R22 to R31 of the caller
	stackFrame = stackKept + 11*8 // address of the frame
	stackR2    = stackFrame + 8   // R2 and R21 of the caller
	stackR21   = stackR2 + 8      //
	stackCRMD  = stackR21 + 8     // in a kernel, the caller's CRMD
	stackR22   = stackCRMD + 8    // R22 as loaded for a call
	stackCall  = stackR22 + 8     // R1 and R4 to R31 after a call
	stackSize  = (stackCall + 29*8 + 15) &^ 15

	// forms is the number of ISA.Instructions.
	forms = 6

	// callSteps is the number of instructions after a call by which its length is
	// measured.
	callSteps = 8

	// trapIllegal is Result.Trap of an instruction that the machine does not have: 1 + EXCCODE_INE
	// (arch/loongarch/include/asm/loongarch.h, Linux 7.2).
	trapIllegal = Illegal

	crmdIE = 1 << 2 // LoongArch Reference Manual volume 1, "Current mode information"
)

// The shift fits the size, and Stack is enough, or this does not compile.
var (
	_ = [1]struct{}{}[arch.SlotSize-1<<slotShift]
	_ = [Stack + 1]struct{}{}[stackSize]
)

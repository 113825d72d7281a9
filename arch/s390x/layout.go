//lint:file-ignore U1000 the assembler takes these from go_asm.h

package s390x

import "pvabi/arch"

// What probe_s390x.s knows by name: package arch's numbers, as go_asm.h only has a
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
	frameMask      = arch.FrameScratch + 8 // in a kernel, the program's system mask: 1 byte
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

	// The probe's stack frame: the address of the one before is its first word.
	stackFrame = 8              // address of the frame
	stackMask  = stackFrame + 8 // in a kernel, the caller's system mask: 1 byte
	stackSteps = stackMask + 8  // a byte for each of callSteps
	stackR13   = stackSteps + 8 // R13 as loaded for a call
	stackCall  = stackR13 + 8   // R0 to R14 for a call, and after it
	stackSize  = stackCall + 15*8

	// callSteps is the number of instructions after a call by which its length is
	// measured.
	callSteps = 8

	// maskInterrupts are the bits of the system mask for input and output and for external
	// interrupts (z/Architecture Principles of Operation, "Program-status word").
	maskInterrupts = 0x03

	// lowcoreCode is where a program interruption leaves its code, 2 bytes ("Assigned
	// storage locations" there; arch/s390/include/asm/lowcore.h of Linux).
	lowcoreCode = 0x8e
)

// The shift fits the size, and Stack is enough, or this does not compile.
var (
	_ = [1]struct{}{}[arch.SlotSize-1<<slotShift]
	_ = [Stack + 1]struct{}{}[stackSize]
)

//lint:file-ignore U1000 the assembler takes these from go_asm.h

package amd64

import "pvabi/arch"

// What probe_amd64.s knows by name: package arch's numbers, as go_asm.h only has a
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
	frameSelf      = arch.FrameSelf
	frameFlags     = arch.FrameScratch     // RFLAGS of the program outside calls
	frameCallStack = arch.FrameScratch + 8 // RSP at the last call
	frameEvents    = arch.FrameEvents
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

	// callBand is the number of words above the stack pointer that hold the
	// frame's address during a call. callPushes is the number of one-byte
	// instructions after a call whose length is measured: with the 3 bytes of
	// the call, more than the longest instruction.
	callBand   = callPushes + 4
	callLength = 3
	callPushes = 16

	// exceptions is the number of vectors of exceptions, withCode a bit for each that
	// pushes an error code (Intel SDM volume 3, "Exception and interrupt reference";
	// 29 and 30 are AMD's: APM volume 2, "Vectors").
	exceptions  = 32
	pageFault   = 14
	withCode    = 1<<8 | 1<<10 | 1<<11 | 1<<12 | 1<<13 | 1<<14 | 1<<17 | 1<<21 | 1<<29 | 1<<30
	vectorShift = 4 // 1<<vectorShift is VectorStride

	// The bits that tell a port and CR8 from a model-specific register.
	portBit = 32
	cr8Bit  = 33
)

// The shifts fit the sizes, or this does not compile.
var _ = [1]struct{}{}[arch.SlotSize-1<<slotShift+VectorStride-1<<vectorShift+Port-1<<portBit+CR8-1<<cr8Bit]

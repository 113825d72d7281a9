#include "go_asm.h"
#include "textflag.h"

// The probe. Package comment and package arch say what it has to do.
//
// Registers of the interpreter: R15 the frame, R14 the operation, R13 its result, R12
// the index of the operation to go on with. An operation may use all the others.
//
// No function here refers to a symbol outside, and none calls or jumps in a circle:
// the linker, which sums up the stack that NOSPLIT functions need, would refuse it.
// Each instruction that may fault on its own account is the first of a function, so
// that it has a name in the table of fixups.

// run(frame RDI, resumed ESI) EAX
TEXT ·run(SB), NOSPLIT|NOFRAME, $0-0
	ENDBR64
	PUSHQ BX
	PUSHQ BP
	PUSHQ R12
	PUSHQ R13
	PUSHQ R14
	PUSHQ R15
	PUSHFQ
	MOVQ  DI, R15
	CALL  ·interpret(SB)
	POPFQ
	POPQ  R15
	POPQ  R14
	POPQ  R13
	POPQ  R12
	POPQ  BP
	POPQ  BX
	RET

// guest(frame RDI, resumed ESI) does not return. RSP is a stack of its own.
TEXT ·guest(SB), NOSPLIT|NOFRAME, $0-0
again:
	CALL ·run(SB)
	MOVL $const_Door, DX
	MOVB AX, (DX)
	MOVQ const_frameSelf(GS), DI
	MOVL $1, SI
	JMP  again

// interpret(frame R15, resumed ESI) EAX. All that goes on after an operation ended by
// other means than reaching its end below comes here with ESI 1: after an Exit, a call,
// an exception. Only R15 and RSP need be as they were then.
TEXT ·interpret(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ  SP, const_frameStack(R15)
	LEAQ  ·interpret(SB), AX
	MOVQ  AX, const_frameResume(R15)
	TESTL SI, SI
	JNE   done
	PUSHFQ
	POPQ  const_frameFlags(R15)
	JMP   begin

done:
	PUSHQ const_frameFlags(R15)
	POPFQ
	MOVQ  const_frameAt(R15), R12
	MOVQ  R12, R13
	SHLQ  $const_slotShift, R13
	LEAQ  const_frameResults(R15)(R13*1), R13
	INCQ  R12

next:
	CALL ·clock(SB)
	MOVQ AX, const_resultEnd(R13)
	INCQ const_resultCount(R13)
	INCQ const_frameCompleted(R15)
	MOVQ R12, const_frameAt(R15)

begin:
	MOVQ const_frameAt(R15), AX
	CMPQ AX, $const_maxOps
	JCC  outside
	SHLQ $const_slotShift, AX
	LEAQ const_frameOps(R15)(AX*1), R14
	LEAQ const_frameResults(R15)(AX*1), R13
	MOVQ $0, const_resultTrap(R13)
	MOVQ $0, const_resultCode(R13)
	CALL ·clock(SB)
	MOVQ AX, const_resultBegin(R13)
	MOVQ const_opKind(R14), AX
	CMPQ AX, $const_kindEnd
	JEQ  end
	CMPQ AX, $const_kindCall
	JEQ  call
	CMPQ AX, $const_kindCallLength
	JEQ  callLength
	CMPQ AX, $const_kindWait
	JEQ  wait
	CMPQ AX, $const_kindLoad
	JEQ  load
	CMPQ AX, $const_kindStore
	JEQ  store
	CMPQ AX, $const_kindSpinUntil
	JEQ  spinUntil
	CMPQ AX, $const_kindClock
	JEQ  readClock
	CMPQ AX, $const_kindInterrupts
	JEQ  interrupts
	CMPQ AX, $const_kindReadRegister
	JEQ  readRegister
	CMPQ AX, $const_kindWriteRegister
	JEQ  writeRegister
	CMPQ AX, $const_kindDiscover
	JEQ  discover
	CMPQ AX, $const_kindExit
	JEQ  exit
	CMPQ AX, $const_kindLoop
	JEQ  loop
	CMPQ AX, $const_kindLoadVectors
	JEQ  loadVectors
	CMPQ AX, $const_kindStoreVectors
	JEQ  storeVectors
	CMPQ AX, $const_kindSample
	JEQ  sample

// An operation, or a form or size of one, that is not known ends the program.
unknown:
	MOVQ $-1, const_resultTrap(R13)

outside:
	MOVL $const_statusUnknown, AX
	RET

end:
	CALL ·clock(SB)
	MOVQ AX, const_resultEnd(R13)
	INCQ const_resultCount(R13)
	INCQ const_frameCompleted(R15)
	MOVL $const_statusEnded, AX
	RET

exit:
	MOVQ const_opArg(R14), AX
	MOVQ AX, const_frameExit(R15)
	MOVL $const_statusExited, AX
	RET

call:
	LEAQ ·vmcall(SB), AX
	LEAQ ·vmmcall(SB), BX
	JMP  launch

callLength:
	LEAQ ·vmcallLength(SB), AX
	LEAQ ·vmmcallLength(SB), BX

// The call owns all registers. The way back to the frame is on the stack: the words
// from RSP on upwards hold its address, more of them than the stack pointer moves in
// ·vmcallLength. To load the registers and go to AX without one of them takes a RET.
// LEAQ in place of PUSHQ is for the assembler, which counts the latter.
launch:
	MOVQ    const_opArg(R14), CX
	CMPQ    CX, $1
	JHI     unknown
	CMOVQEQ BX, AX
	MOVL    $const_callBand, CX

band:
	LEAQ  -8(SP), SP
	MOVQ  R15, 0(SP)
	DECL  CX
	JNE   band
	MOVQ  SP, const_frameCallStack(R15)
	LEAQ  -8(SP), SP
	MOVQ  AX, 0(SP)
	PUSHQ const_opFlags(R14)
	MOVQ  (const_opRegs+0*8)(R14), AX
	MOVQ  (const_opRegs+1*8)(R14), BX
	MOVQ  (const_opRegs+2*8)(R14), CX
	MOVQ  (const_opRegs+3*8)(R14), DX
	MOVQ  (const_opRegs+4*8)(R14), SI
	MOVQ  (const_opRegs+5*8)(R14), DI
	MOVQ  (const_opRegs+6*8)(R14), BP
	MOVQ  (const_opRegs+8*8)(R14), R8
	MOVQ  (const_opRegs+9*8)(R14), R9
	MOVQ  (const_opRegs+10*8)(R14), R10
	MOVQ  (const_opRegs+11*8)(R14), R11
	MOVQ  (const_opRegs+12*8)(R14), R12
	MOVQ  (const_opRegs+13*8)(R14), R13
	MOVQ  (const_opRegs+15*8)(R14), R15
	MOVQ  (const_opRegs+14*8)(R14), R14
	POPFQ
	RET

wait:
	CMPQ const_opArg(R14), $1
	JHI  unknown
	JEQ  waitOn
	CALL ·waitOff(SB)
	JMP  switched

waitOn:
	CALL ·waitOn(SB)
	JMP  switched

interrupts:
	CMPQ const_opArg(R14), $1
	JHI  unknown
	JEQ  on
	CALL ·turnOff(SB)
	JMP  switched

on:
	CALL ·turnOn(SB)

// The operation changed what RFLAGS have to be from now on.
switched:
	PUSHFQ
	POPQ const_frameFlags(R15)
	JMP  done

load:
	MOVQ const_opArg(R14), DI
	MOVQ (const_opArg+8)(R14), CX
	CMPQ CX, $8
	JEQ  loadQuad
	CMPQ CX, $4
	JEQ  loadLong
	CMPQ CX, $2
	JEQ  loadWord
	CMPQ CX, $1
	JNE  unknown
	CALL ·load1(SB)
	JMP  value

loadWord:
	CALL ·load2(SB)
	JMP  value

loadLong:
	CALL ·load4(SB)
	JMP  value

loadQuad:
	CALL ·load8(SB)

value:
	MOVQ AX, const_resultValue(R13)
	JMP  done

store:
	MOVQ const_opArg(R14), DI
	MOVQ (const_opArg+8)(R14), AX
	MOVQ (const_opArg+16)(R14), CX
	CMPQ CX, $8
	JEQ  storeQuad
	CMPQ CX, $4
	JEQ  storeLong
	CMPQ CX, $2
	JEQ  storeWord
	CMPQ CX, $1
	JNE  unknown
	CALL ·store1(SB)
	JMP  done

storeWord:
	CALL ·store2(SB)
	JMP  done

storeLong:
	CALL ·store4(SB)
	JMP  done

storeQuad:
	CALL ·store8(SB)
	JMP  done

spinUntil:
	MOVQ const_opArg(R14), DI
	MOVQ (const_opArg+8)(R14), BX
	MOVQ (const_opArg+16)(R14), CX
	MOVQ (const_opArg+24)(R14), R8
	XORL R9, R9

spin:
	CALL ·load8(SB)
	INCQ R9
	MOVQ AX, DX
	ANDQ BX, DX
	CMPQ DX, CX
	JEQ  spun
	CMPQ R9, R8
	JEQ  spun
	PAUSE
	JMP  spin

spun:
	MOVQ R9, const_resultAux(R13)
	JMP  value

readClock:
	CALL ·clock(SB)
	JMP  value

readRegister:
	MOVQ const_opArg(R14), CX
	BTQ  $const_portBit, CX
	JCS  readPort
	BTQ  $const_cr8Bit, CX
	JCS  readCR8
	CALL ·rdmsr(SB)
	SHLQ $32, DX
	ORQ  DX, AX
	JMP  value

readPort:
	MOVL CX, DX
	INL
	MOVL AX, AX
	JMP  value

readCR8:
	MOVQ CR8, AX
	JMP  value

writeRegister:
	MOVQ const_opArg(R14), CX
	MOVQ (const_opArg+8)(R14), AX
	MOVQ AX, DX
	SHRQ $32, DX
	CALL ·wrmsr(SB)
	JMP  done

discover:
	MOVL const_opArg(R14), AX
	MOVL (const_opArg+8)(R14), CX
	CPUID
	MOVQ AX, (const_resultRegs+0*8)(R13)
	MOVQ BX, (const_resultRegs+1*8)(R13)
	MOVQ CX, (const_resultRegs+2*8)(R13)
	MOVQ DX, (const_resultRegs+3*8)(R13)
	JMP  done

// The count of completions becomes one more at next.
loop:
	MOVQ const_resultCount(R13), AX
	INCQ AX
	CMPQ AX, (const_opArg+8)(R14)
	JCC  done
	MOVQ const_opArg(R14), R12
	JMP  next

loadVectors:
	LEAQ const_frameVectors(R15), DI
	CMPQ const_opArg(R14), $1
	JHI  unknown
	JEQ  loadWide
	CALL ·loadVectors128(SB)
	JMP  done

loadWide:
	CALL ·loadVectors256(SB)
	JMP  done

storeVectors:
	LEAQ const_frameVectors(R15), DI
	CMPQ const_opArg(R14), $1
	JHI  unknown
	JEQ  storeWide
	CALL ·storeVectors128(SB)
	JMP  done

storeWide:
	CALL ·storeVectors256(SB)
	JMP  done

// BX and CX are the addresses of version and data, R8 the samples left, R10 and R9
// data and version of the last consistent sample, which there is if R11 is not 0.
sample:
	MOVQ const_opArg(R14), BX
	MOVQ (const_opArg+8)(R14), CX
	MOVQ (const_opArg+16)(R14), R8
	XORL R11, R11
	MOVQ R11, const_resultAux(R13)
	MOVQ R11, (const_resultRegs+0*8)(R13)
	MOVQ R11, (const_resultRegs+1*8)(R13)
	MOVQ R11, (const_resultRegs+2*8)(R13)
	MOVQ R11, (const_resultRegs+3*8)(R13)
	MOVQ R11, (const_resultRegs+4*8)(R13)
	MOVQ R11, (const_resultRegs+5*8)(R13)

nextSample:
	TESTQ R8, R8
	JEQ   done
	DECQ  R8
	MOVQ  BX, DI
	CALL  ·load4(SB)
	MOVQ  AX, DX
	MOVQ  CX, DI
	CALL  ·load8(SB)
	MOVQ  AX, SI
	CALL  ·load8(SB)
	MOVQ  AX, R12
	MOVQ  BX, DI
	CALL  ·load4(SB)
	CMPQ  AX, DX
	JEQ   sameVersion
	INCQ  (const_resultRegs+1*8)(R13)

sameVersion:
	TESTL $1, DX
	JEQ   even
	INCQ  (const_resultRegs+0*8)(R13)
	JMP   nextSample

even:
	CMPQ AX, DX
	JNE  nextSample
	CMPQ SI, R12
	JEQ  consistent
	INCQ (const_resultRegs+2*8)(R13)
	JMP  nextSample

consistent:
	INCQ  const_resultAux(R13)
	TESTL R11, R11
	JEQ   keep
	CMPQ  SI, R10
	JEQ   keep
	JHI   increased
	INCQ  (const_resultRegs+3*8)(R13)

increased:
	INCQ (const_resultRegs+4*8)(R13)
	CMPQ DX, R9
	JNE  keep
	INCQ (const_resultRegs+5*8)(R13)

keep:
	MOVL $1, R11
	MOVQ SI, R10
	MOVQ DX, R9
	MOVQ SI, const_resultValue(R13)
	JMP  nextSample

// clock() RAX. LFENCE keeps the read behind what comes before.
TEXT ·clock(SB), NOSPLIT|NOFRAME, $0-0
	LFENCE
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	RET

// The call instructions. Go's assembler knows neither.
#define VMCALL BYTE $0x0f; BYTE $0x01; BYTE $0xc1
#define VMMCALL BYTE $0x0f; BYTE $0x01; BYTE $0xd9

TEXT ·vmcall(SB), NOSPLIT|NOFRAME, $0-0
	VMCALL
	JMP ·returned(SB)

TEXT ·vmmcall(SB), NOSPLIT|NOFRAME, $0-0
	VMMCALL
	JMP ·returned(SB)

// PUSHQ AX is one byte. There are callPushes of them; each that is jumped over leaves
// the stack pointer 8 bytes higher.
#define PUSHES4 PUSHQ AX; PUSHQ AX; PUSHQ AX; PUSHQ AX
#define PUSHES PUSHES4; PUSHES4; PUSHES4; PUSHES4

TEXT ·vmcallLength(SB), NOSPLIT|NOFRAME, $0-0
	VMCALL
	PUSHES
	JMP ·measured(SB)

TEXT ·vmmcallLength(SB), NOSPLIT|NOFRAME, $0-0
	VMMCALL
	PUSHES
	JMP ·measured(SB)

// STORE finds the frame's address above bytes bytes of stack and stores flags and
// registers, but for RSP, in the result.
#define STORE(bytes) \
	PUSHFQ; \
	PUSHQ R15; \
	PUSHQ R14; \
	PUSHQ R13; \
	MOVQ (4*8+bytes)(SP), R15; \
	MOVQ const_frameAt(R15), R13; \
	SHLQ $const_slotShift, R13; \
	LEAQ const_frameResults(R15)(R13*1), R13; \
	MOVQ AX, (const_resultRegs+0*8)(R13); \
	MOVQ BX, (const_resultRegs+1*8)(R13); \
	MOVQ CX, (const_resultRegs+2*8)(R13); \
	MOVQ DX, (const_resultRegs+3*8)(R13); \
	MOVQ SI, (const_resultRegs+4*8)(R13); \
	MOVQ DI, (const_resultRegs+5*8)(R13); \
	MOVQ BP, (const_resultRegs+6*8)(R13); \
	MOVQ R8, (const_resultRegs+8*8)(R13); \
	MOVQ R9, (const_resultRegs+9*8)(R13); \
	MOVQ R10, (const_resultRegs+10*8)(R13); \
	MOVQ R11, (const_resultRegs+11*8)(R13); \
	MOVQ R12, (const_resultRegs+12*8)(R13); \
	POPQ (const_resultRegs+13*8)(R13); \
	POPQ (const_resultRegs+14*8)(R13); \
	POPQ (const_resultRegs+15*8)(R13); \
	POPQ const_resultFlags(R13)

TEXT ·returned(SB), NOSPLIT|NOFRAME, $0-0
	STORE(0)
	MOVQ SP, AX
	SUBQ const_frameCallStack(R15), AX
	MOVQ AX, (const_resultRegs+7*8)(R13)
	MOVQ const_frameStack(R15), SP
	MOVL $1, SI
	JMP  ·interpret(SB)

TEXT ·measured(SB), NOSPLIT|NOFRAME, $0-0
	STORE(8*const_callPushes)
	MOVQ $0, (const_resultRegs+7*8)(R13)
	MOVQ SP, AX
	SUBQ const_frameCallStack(R15), AX
	SARQ $3, AX
	ADDQ $(const_callLength+const_callPushes), AX
	MOVQ AX, const_resultValue(R13)
	MOVQ const_frameStack(R15), SP
	MOVL $1, SI
	JMP  ·interpret(SB)

// HLT after STI: interrupts are taken only once the CPU waits.
TEXT ·waitOn(SB), NOSPLIT|NOFRAME, $0-0
	STI
	HLT
	CLI
	RET

TEXT ·waitOff(SB), NOSPLIT|NOFRAME, $0-0
	CLI
	HLT
	RET

TEXT ·turnOn(SB), NOSPLIT|NOFRAME, $0-0
	STI
	RET

TEXT ·turnOff(SB), NOSPLIT|NOFRAME, $0-0
	CLI
	RET

TEXT ·rdmsr(SB), NOSPLIT|NOFRAME, $0-0
	RDMSR
	RET

TEXT ·wrmsr(SB), NOSPLIT|NOFRAME, $0-0
	WRMSR
	RET

TEXT ·load1(SB), NOSPLIT|NOFRAME, $0-0
	MOVBLZX (DI), AX
	RET

TEXT ·load2(SB), NOSPLIT|NOFRAME, $0-0
	MOVWLZX (DI), AX
	RET

TEXT ·load4(SB), NOSPLIT|NOFRAME, $0-0
	MOVL (DI), AX
	RET

TEXT ·load8(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ (DI), AX
	RET

TEXT ·store1(SB), NOSPLIT|NOFRAME, $0-0
	MOVB AX, (DI)
	RET

TEXT ·store2(SB), NOSPLIT|NOFRAME, $0-0
	MOVW AX, (DI)
	RET

TEXT ·store4(SB), NOSPLIT|NOFRAME, $0-0
	MOVL AX, (DI)
	RET

TEXT ·store8(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ AX, (DI)
	RET

TEXT ·loadVectors128(SB), NOSPLIT|NOFRAME, $0-0
	MOVOU (0*32)(DI), X0
	MOVOU (1*32)(DI), X1
	MOVOU (2*32)(DI), X2
	MOVOU (3*32)(DI), X3
	MOVOU (4*32)(DI), X4
	MOVOU (5*32)(DI), X5
	MOVOU (6*32)(DI), X6
	MOVOU (7*32)(DI), X7
	MOVOU (8*32)(DI), X8
	MOVOU (9*32)(DI), X9
	MOVOU (10*32)(DI), X10
	MOVOU (11*32)(DI), X11
	MOVOU (12*32)(DI), X12
	MOVOU (13*32)(DI), X13
	MOVOU (14*32)(DI), X14
	MOVOU (15*32)(DI), X15
	RET

TEXT ·storeVectors128(SB), NOSPLIT|NOFRAME, $0-0
	MOVOU X0, (0*32)(DI)
	MOVOU X1, (1*32)(DI)
	MOVOU X2, (2*32)(DI)
	MOVOU X3, (3*32)(DI)
	MOVOU X4, (4*32)(DI)
	MOVOU X5, (5*32)(DI)
	MOVOU X6, (6*32)(DI)
	MOVOU X7, (7*32)(DI)
	MOVOU X8, (8*32)(DI)
	MOVOU X9, (9*32)(DI)
	MOVOU X10, (10*32)(DI)
	MOVOU X11, (11*32)(DI)
	MOVOU X12, (12*32)(DI)
	MOVOU X13, (13*32)(DI)
	MOVOU X14, (14*32)(DI)
	MOVOU X15, (15*32)(DI)
	RET

TEXT ·loadVectors256(SB), NOSPLIT|NOFRAME, $0-0
	VMOVDQU (0*32)(DI), Y0
	VMOVDQU (1*32)(DI), Y1
	VMOVDQU (2*32)(DI), Y2
	VMOVDQU (3*32)(DI), Y3
	VMOVDQU (4*32)(DI), Y4
	VMOVDQU (5*32)(DI), Y5
	VMOVDQU (6*32)(DI), Y6
	VMOVDQU (7*32)(DI), Y7
	VMOVDQU (8*32)(DI), Y8
	VMOVDQU (9*32)(DI), Y9
	VMOVDQU (10*32)(DI), Y10
	VMOVDQU (11*32)(DI), Y11
	VMOVDQU (12*32)(DI), Y12
	VMOVDQU (13*32)(DI), Y13
	VMOVDQU (14*32)(DI), Y14
	VMOVDQU (15*32)(DI), Y15
	RET

TEXT ·storeVectors256(SB), NOSPLIT|NOFRAME, $0-0
	VMOVDQU Y0, (0*32)(DI)
	VMOVDQU Y1, (1*32)(DI)
	VMOVDQU Y2, (2*32)(DI)
	VMOVDQU Y3, (3*32)(DI)
	VMOVDQU Y4, (4*32)(DI)
	VMOVDQU Y5, (5*32)(DI)
	VMOVDQU Y6, (6*32)(DI)
	VMOVDQU Y7, (7*32)(DI)
	VMOVDQU Y8, (8*32)(DI)
	VMOVDQU Y9, (9*32)(DI)
	VMOVDQU Y10, (10*32)(DI)
	VMOVDQU Y11, (11*32)(DI)
	VMOVDQU Y12, (12*32)(DI)
	VMOVDQU Y13, (13*32)(DI)
	VMOVDQU Y14, (14*32)(DI)
	VMOVDQU Y15, (15*32)(DI)
	RET

// fault(exception RAX) goes on after an instruction that faulted in a kernel, where the
// kernel's handler left all registers but RAX alone. In a call the frame is on the stack.
TEXT ·faultCall(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(SP), R15
	JMP  ·fault(SB)

TEXT ·fault(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ const_frameAt(R15), R13
	SHLQ $const_slotShift, R13
	LEAQ const_frameResults(R15)(R13*1), R13
	INCQ AX
	MOVQ AX, const_resultTrap(R13)
	MOVQ const_frameStack(R15), SP
	MOVL $1, SI
	JMP  ·interpret(SB)

// gate takes the exceptions and interrupts of a bare CPU. What it was called from tells the
// vector; below that on the stack are the error code, of those exceptions that have one,
// and RIP, CS, RFLAGS, RSP and SS.
TEXT ·gate(SB), NOSPLIT|NOFRAME, $0-0
	XCHGQ AX, 0(SP)
	PUSHQ CX
	PUSHQ DX
	LEAQ  ·vectors(SB), CX
	SUBQ  CX, AX
	SHRQ  $const_vectorShift, AX
	MOVQ  const_frameSelf(GS), DX
	CMPQ  AX, $const_NMI
	JEQ   interrupt
	CMPQ  AX, $const_exceptions
	JCC   interrupt

	// An exception. The operation is given up, and with it all registers; IRETQ also goes
	// back to privilege level 3.
	MOVQ DX, R15
	MOVQ const_frameAt(R15), R13
	SHLQ $const_slotShift, R13
	LEAQ const_frameResults(R15)(R13*1), R13
	MOVL $const_withCode, CX
	BTL  AX, CX
	LEAQ 24(SP), SP
	JCC  recorded
	MOVQ 0(SP), CX
	MOVQ CX, const_resultCode(R13)
	LEAQ 8(SP), SP

recorded:
	CMPQ AX, $const_pageFault
	JNE  noted
	MOVQ CR2, CX
	MOVQ CX, const_resultAux(R13)

noted:
	INCQ AX
	MOVQ AX, const_resultTrap(R13)
	MOVQ const_frameResume(R15), AX
	MOVQ AX, 0(SP)
	MOVQ const_frameFlags(R15), AX
	MOVQ AX, 16(SP)
	MOVQ const_frameStack(R15), AX
	MOVQ AX, 24(SP)
	MOVL $1, SI
	IRETQ

interrupt:
	INCQ const_frameEvents(DX)(AX*8)
	CMPQ AX, $const_NMI
	JEQ  counted
	CMPQ AX, $const_FirstQuiet
	JCC  counted
	MOVL $const_EOI, CX
	XORL AX, AX
	XORL DX, DX
	WRMSR

counted:
	POPQ DX
	POPQ CX
	POPQ AX
	IRETQ

// A CALL rather than a PUSHQ of the vector, for the assembler would count 256 of those as
// the depth of one stack.
#define GATE CALL ·gate(SB); PCALIGN $const_VectorStride
#define GATES8 GATE; GATE; GATE; GATE; GATE; GATE; GATE; GATE
#define GATES64 GATES8; GATES8; GATES8; GATES8; GATES8; GATES8; GATES8; GATES8

TEXT ·vectors(SB), NOSPLIT|NOFRAME, $0-0
	GATES64
	GATES64
	GATES64
	GATES64

// The end of what is copied.
TEXT ·end(SB), NOSPLIT|NOFRAME, $0-0
	INT $3

DATA ·entries+0(SB)/8, $·run(SB)
DATA ·entries+8(SB)/8, $·guest(SB)
DATA ·entries+16(SB)/8, $·vectors(SB)
DATA ·entries+24(SB)/8, $·end(SB)
GLOBL ·entries(SB), RODATA|NOPTR, $32

// Pairs of an instruction that may fault and the place to go on at.
#define FIXUP(n, at, resume) \
	DATA ·fixups+((n)*16)(SB)/8, $at(SB); \
	DATA ·fixups+((n)*16+8)(SB)/8, $resume(SB)

FIXUP(0, ·vmcall, ·faultCall)
FIXUP(1, ·vmmcall, ·faultCall)
FIXUP(2, ·vmcallLength, ·faultCall)
FIXUP(3, ·vmmcallLength, ·faultCall)
FIXUP(4, ·waitOn, ·fault)
FIXUP(5, ·waitOff, ·fault)
FIXUP(6, ·turnOn, ·fault)
FIXUP(7, ·turnOff, ·fault)
FIXUP(8, ·rdmsr, ·fault)
FIXUP(9, ·wrmsr, ·fault)
FIXUP(10, ·load1, ·fault)
FIXUP(11, ·load2, ·fault)
FIXUP(12, ·load4, ·fault)
FIXUP(13, ·load8, ·fault)
FIXUP(14, ·store1, ·fault)
FIXUP(15, ·store2, ·fault)
FIXUP(16, ·store4, ·fault)
FIXUP(17, ·store8, ·fault)
FIXUP(18, ·loadVectors256, ·fault)
FIXUP(19, ·storeVectors256, ·fault)
GLOBL ·fixups(SB), RODATA|NOPTR, $(20*16)

// Run(frame *byte, resumed bool) uint8. A frame of its own keeps the probe, which the
// linker must not count as deep, off the edge of the goroutine's stack.
TEXT ·call(SB), 0, $1024-17
	MOVQ    frame+0(FP), DI
	MOVBLZX resumed+8(FP), SI
	CALL    ·run(SB)
	MOVB    AX, ret+16(FP)
	RET

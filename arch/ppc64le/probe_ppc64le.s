#include "go_asm.h"
#include "textflag.h"

// The probe. Package comment and package arch say what it has to do.
//
// Registers of the interpreter: R26 the frame, R27 the operation, R28 its result, R29
// the index of the operation to go on with. An operation may use all the others. R0 is 0,
// as Go's assembler takes it to be. R2 and R13 are the caller's all the time.
//
// No function here refers to a symbol outside, and none needs to know its own address.
// Each instruction that may fault on its own account is the first of a function, so
// that it has a name in the table of fixups.

// What Go's assembler does not know.
#define SC1 WORD $0x44000022            // sc 1
#define MFMSR_R3 WORD $0x7c6000a6       // mfmsr r3
#define MTMSRD_R3 WORD $0x7c610164      // mtmsrd r3, 1: only EE and RI
#define RFID WORD $0x4c000024           // rfid
#define PRIORITY_LOW WORD $0x7c210b78   // or r1, r1, r1
#define PRIORITY_MEDIUM WORD $0x7c421378 // or r2, r2, r2

// run(frame R3, flags R4) R3
TEXT ·run(SB), NOSPLIT|NOFRAME, $0-0
	MOVD  LR, R0
	MOVD  R0, 16(R1)
	MOVW  CR, R0
	MOVW  R0, 8(R1)
	MOVDU R1, -const_stackSize(R1)
	MOVD  R14, (const_stackKept+0*8)(R1)
	MOVD  R15, (const_stackKept+1*8)(R1)
	MOVD  R16, (const_stackKept+2*8)(R1)
	MOVD  R17, (const_stackKept+3*8)(R1)
	MOVD  R18, (const_stackKept+4*8)(R1)
	MOVD  R19, (const_stackKept+5*8)(R1)
	MOVD  R20, (const_stackKept+6*8)(R1)
	MOVD  R21, (const_stackKept+7*8)(R1)
	MOVD  R22, (const_stackKept+8*8)(R1)
	MOVD  R23, (const_stackKept+9*8)(R1)
	MOVD  R24, (const_stackKept+10*8)(R1)
	MOVD  R25, (const_stackKept+11*8)(R1)
	MOVD  R26, (const_stackKept+12*8)(R1)
	MOVD  R27, (const_stackKept+13*8)(R1)
	MOVD  R28, (const_stackKept+14*8)(R1)
	MOVD  R29, (const_stackKept+15*8)(R1)
	MOVD  g, (const_stackKept+16*8)(R1)
	MOVD  R31, (const_stackKept+17*8)(R1)
	MOVD  R2, const_stackR2(R1)
	MOVD  R13, const_stackR13(R1)
	MOVD  R3, const_stackFrame(R1)
	MOVD  R3, R26
	MOVD  R4, const_frameFlags(R26)
	BR    ·interpret(SB)

// leave(status R3) returns from run. In a kernel, interrupts become again what they were.
TEXT ·leave(SB), NOSPLIT|NOFRAME, $0-0
	MOVD  R3, R4
	MOVD  const_frameFlags(R26), R5
	ANDCC $const_Process, R5, R5
	BNE   restore
	MOVD  const_stackMSR(R1), R3
	MTMSRD_R3

restore:
	MOVD  (const_stackKept+0*8)(R1), R14
	MOVD  (const_stackKept+1*8)(R1), R15
	MOVD  (const_stackKept+2*8)(R1), R16
	MOVD  (const_stackKept+3*8)(R1), R17
	MOVD  (const_stackKept+4*8)(R1), R18
	MOVD  (const_stackKept+5*8)(R1), R19
	MOVD  (const_stackKept+6*8)(R1), R20
	MOVD  (const_stackKept+7*8)(R1), R21
	MOVD  (const_stackKept+8*8)(R1), R22
	MOVD  (const_stackKept+9*8)(R1), R23
	MOVD  (const_stackKept+10*8)(R1), R24
	MOVD  (const_stackKept+11*8)(R1), R25
	MOVD  (const_stackKept+12*8)(R1), R26
	MOVD  (const_stackKept+13*8)(R1), R27
	MOVD  (const_stackKept+14*8)(R1), R28
	MOVD  (const_stackKept+15*8)(R1), R29
	MOVD  (const_stackKept+16*8)(R1), g
	MOVD  (const_stackKept+17*8)(R1), R31
	ADD   $const_stackSize, R1
	MOVD  16(R1), R0
	MOVD  R0, LR
	MOVWZ 8(R1), R0
	MOVFL R0, CR
	MOVD  R4, R3
	RET

TEXT ·interpret(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $0, R0
	MOVD R0, R3
	MOVD const_frameFlags(R26), R4
	ANDCC $const_Process, R4, R5
	BNE  entered
	MFMSR_R3
	MOVD R3, const_stackMSR(R1)

entered:
	// An operation that faulted comes back from here, too, with R3 1.
	MOVD R1, const_frameStack(R26)
	MOVD R3, R5
	BL   ·here(SB)
	CMP  R3, $0
	BNE  done
	MOVD const_frameFlags(R26), R4
	ANDCC $const_Resumed, R4, R6
	BNE  resumed
	MOVD R5, const_frameMSR(R26)
	BR   begin

resumed:
	MOVD $const_frameResults, R28
	ADD  R26, R28
	MOVD const_frameAt(R26), R29
	SLD  $const_slotShift, R29, R3
	ADD  R3, R28

// done goes on with the operation after this one, interrupts being as the program has them.
done:
	MOVD  const_frameAt(R26), R29
	ADD   $1, R29
	MOVD  const_frameFlags(R26), R4
	ANDCC $const_Process, R4, R4
	BNE   next
	MOVD  const_frameMSR(R26), R3
	MTMSRD_R3

next:
	ISYNC
	MOVD SPR(const_TB), R3
	MOVD R3, const_resultEnd(R28)
	MOVD const_resultCount(R28), R3
	ADD  $1, R3
	MOVD R3, const_resultCount(R28)
	MOVD const_frameCompleted(R26), R3
	ADD  $1, R3
	MOVD R3, const_frameCompleted(R26)
	MOVD R29, const_frameAt(R26)

begin:
	MOVD const_frameAt(R26), R3
	CMPU R3, $const_maxOps
	BGE  outside
	SLD  $const_slotShift, R3, R3
	MOVD $const_frameOps, R27
	ADD  R26, R27
	ADD  R3, R27
	MOVD $const_frameResults, R28
	ADD  R26, R28
	ADD  R3, R28
	MOVD R0, const_resultTrap(R28)
	MOVD R0, const_resultCode(R28)
	ISYNC
	MOVD SPR(const_TB), R3
	MOVD R3, const_resultBegin(R28)
	MOVD const_opKind(R27), R3
	CMP  R3, $const_kindEnd
	BEQ  end
	CMP  R3, $const_kindCall
	BEQ  call
	CMP  R3, $const_kindCallLength
	BEQ  call
	CMP  R3, $const_kindWait
	BEQ  wait
	CMP  R3, $const_kindLoad
	BEQ  load
	CMP  R3, $const_kindStore
	BEQ  store
	CMP  R3, $const_kindSpinUntil
	BEQ  spinUntil
	CMP  R3, $const_kindClock
	BEQ  readClock
	CMP  R3, $const_kindInterrupts
	BEQ  interrupts
	CMP  R3, $const_kindReadRegister
	BEQ  readRegister
	CMP  R3, $const_kindWriteRegister
	BEQ  writeRegister
	CMP  R3, $const_kindDiscover
	BEQ  discover
	CMP  R3, $const_kindExit
	BEQ  exit
	CMP  R3, $const_kindLoop
	BEQ  loop
	CMP  R3, $const_kindLoadVectors
	BEQ  loadVectors
	CMP  R3, $const_kindStoreVectors
	BEQ  storeVectors
	CMP  R3, $const_kindSample
	BEQ  sample

// An operation, or a form or size of one, that is not known ends the program.
unknown:
	MOVD $-1, R3
	MOVD R3, const_resultTrap(R28)

outside:
	MOVD $const_statusUnknown, R3
	BR   ·leave(SB)

end:
	ISYNC
	MOVD SPR(const_TB), R3
	MOVD R3, const_resultEnd(R28)
	MOVD const_resultCount(R28), R3
	ADD  $1, R3
	MOVD R3, const_resultCount(R28)
	MOVD const_frameCompleted(R26), R3
	ADD  $1, R3
	MOVD R3, const_frameCompleted(R26)
	MOVD $const_statusEnded, R3
	BR   ·leave(SB)

exit:
	MOVD const_opArg(R27), R3
	MOVD R3, const_frameExit(R26)
	MOVD $const_statusExited, R3
	BR   ·leave(SB)

// A wait is the call H_CEDE. Interrupts are off after it, whatever they were.
wait:
	MOVD const_opArg(R27), R5
	CMPU R5, $1
	BGT  unknown
	MOVD $const_hCede, R4
	MOVD $const_msrEE, R6
	MOVD const_frameMSR(R26), R3
	ANDN R6, R3, R3
	MOVD R3, const_frameMSR(R26)
	CMP  R5, $0
	BEQ  masked
	OR   R6, R3

masked:
	MTMSRD_R3
	BR   launch

call:
	MOVD const_opArg(R27), R3
	CMP  R3, $0
	BNE  unknown
	MOVD (const_opRegs+1*8)(R27), R4

// launch makes a call with R4 for R3. The stack alone tells the way back. In a process, R30
// stays what it is, where Go's signal handlers need it.
launch:
	MOVD  R4, R3
	MOVD  g, const_stackR30(R1)
	MOVD  const_frameFlags(R26), R5
	ANDCC $const_Process, R5, R5
	BNE   saved
	MOVD  (const_opRegs+14*8)(R27), R5
	ADD   $16, R5
	MOVD  R5, const_stackR30(R1)
	MOVD  SPR(const_sprSRR0), R5
	MOVD  R5, const_stackSRR0(R1)
	MOVD  SPR(const_sprSRR1), R5
	MOVD  R5, const_stackSRR1(R1)

saved:
	MOVD  (const_opRegs+11*8)(R27), R5
	MOVD  R5, LR
	MOVD  (const_opRegs+12*8)(R27), R5
	MOVD  R5, CTR
	MOVD  (const_opRegs+13*8)(R27), R5
	MOVD  R5, XER
	MOVWZ (const_opFlags)(R27), R5
	MOVFL R5, CR
	MOVD  (const_opRegs+2*8)(R27), R4
	MOVD  (const_opRegs+3*8)(R27), R5
	MOVD  (const_opRegs+4*8)(R27), R6
	MOVD  (const_opRegs+5*8)(R27), R7
	MOVD  (const_opRegs+6*8)(R27), R8
	MOVD  (const_opRegs+7*8)(R27), R9
	MOVD  (const_opRegs+8*8)(R27), R10
	MOVD  (const_opRegs+9*8)(R27), R11
	MOVD  (const_opRegs+10*8)(R27), R12
	MOVD  (const_opRegs+14*8)(R27), R14
	MOVD  (const_opRegs+0*8)(R27), R0
	ADD   $1, R14, R15
	ADD   $2, R14, R16
	ADD   $3, R14, R17
	ADD   $4, R14, R18
	ADD   $5, R14, R19
	ADD   $6, R14, R20
	ADD   $7, R14, R21
	ADD   $8, R14, R22
	ADD   $9, R14, R23
	ADD   $10, R14, R24
	ADD   $11, R14, R25
	ADD   $12, R14, R26
	ADD   $13, R14, R27
	ADD   $14, R14, R28
	ADD   $15, R14, R29
	MOVD  const_stackR30(R1), g
	ADD   $17, R14, R31
	SC1

	// Each of these callSteps that is left out leaves R31 less by 1.
	ADD $1, R31
	ADD $1, R31
	ADD $1, R31
	ADD $1, R31
	ADD $1, R31
	ADD $1, R31
	ADD $1, R31
	ADD $1, R31

	MOVD R0, (const_stackCall+0*8)(R1)
	MOVD R3, (const_stackCall+1*8)(R1)
	MOVD R4, (const_stackCall+2*8)(R1)
	MOVD R5, (const_stackCall+3*8)(R1)
	MOVD R6, (const_stackCall+4*8)(R1)
	MOVD R7, (const_stackCall+5*8)(R1)
	MOVD R8, (const_stackCall+6*8)(R1)
	MOVD R9, (const_stackCall+7*8)(R1)
	MOVD R10, (const_stackCall+8*8)(R1)
	MOVD R11, (const_stackCall+9*8)(R1)
	MOVD R12, (const_stackCall+10*8)(R1)
	MOVD R14, (const_stackHigh+0*8)(R1)
	MOVD R15, (const_stackHigh+1*8)(R1)
	MOVD R16, (const_stackHigh+2*8)(R1)
	MOVD R17, (const_stackHigh+3*8)(R1)
	MOVD R18, (const_stackHigh+4*8)(R1)
	MOVD R19, (const_stackHigh+5*8)(R1)
	MOVD R20, (const_stackHigh+6*8)(R1)
	MOVD R21, (const_stackHigh+7*8)(R1)
	MOVD R22, (const_stackHigh+8*8)(R1)
	MOVD R23, (const_stackHigh+9*8)(R1)
	MOVD R24, (const_stackHigh+10*8)(R1)
	MOVD R25, (const_stackHigh+11*8)(R1)
	MOVD R26, (const_stackHigh+12*8)(R1)
	MOVD R27, (const_stackHigh+13*8)(R1)
	MOVD R28, (const_stackHigh+14*8)(R1)
	MOVD R29, (const_stackHigh+15*8)(R1)
	MOVD g, (const_stackHigh+16*8)(R1)
	MOVD R31, (const_stackHigh+17*8)(R1)

	MOVD $0, R0
	MOVD const_stackFrame(R1), R26
	MOVD const_frameAt(R26), R3
	SLD  $const_slotShift, R3, R3
	MOVD $const_frameOps, R27
	ADD  R26, R27
	ADD  R3, R27
	MOVD $const_frameResults, R28
	ADD  R26, R28
	ADD  R3, R28
	MOVW CR, R3
	MOVWZ R3, R3
	MOVD R3, const_resultFlags(R28)
	MOVD LR, R3
	MOVD R3, (const_resultRegs+11*8)(R28)
	MOVD CTR, R3
	MOVD R3, (const_resultRegs+12*8)(R28)
	MOVD XER, R3
	MOVD R3, (const_resultRegs+13*8)(R28)
	MOVD R14, (const_resultRegs+14*8)(R28)
	MOVD R0, (const_resultRegs+15*8)(R28)
	MOVD const_frameFlags(R26), R4
	ANDCC $const_Process, R4, R4
	BNE  sameState
	MFMSR_R3
	MOVD R3, (const_resultRegs+15*8)(R28)
	MOVD const_stackSRR0(R1), R3
	MOVD R3, SPR(const_sprSRR0)
	MOVD const_stackSRR1(R1), R3
	MOVD R3, SPR(const_sprSRR1)

sameState:
	// R0 and R3 to R12 are copied.
	ADD  $const_stackCall, R1, R4
	ADD  $const_resultRegs, R28, R5
	MOVD $11, R6
	MOVD R6, CTR

copy:
	MOVD (R4), R3
	MOVD R3, (R5)
	ADD  $8, R4
	ADD  $8, R5
	BDNZ copy

	// What became of R30, other than what was loaded, became of what should have been.
	MOVD (const_opRegs+14*8)(R27), R5
	ADD  $16, R5, R3
	MOVD const_stackR30(R1), R4
	XOR  R4, R3
	MOVD (const_stackHigh+16*8)(R1), R4
	XOR  R4, R3
	MOVD R3, (const_stackHigh+16*8)(R1)

	// R14 to R30 are held against what was loaded. R8 collects the numbers of those that
	// differ, as bits.
	ADD  $const_stackHigh, R1, R4
	MOVD $0, R8
	MOVD $(1<<14), R7
	MOVD $17, R6
	MOVD R6, CTR

compare:
	MOVD (R4), R3
	CMP  R3, R5
	BEQ  kept
	OR   R7, R8

kept:
	ADD  $8, R4
	ADD  $1, R5
	SLD  $1, R7
	BDNZ compare

	// R5 and R7 have come to R31, whose difference tells the steps that were taken.
	MOVD (R4), R3
	SUB  R5, R3, R3
	MOVD $const_callSteps, R4
	CMPU R3, R4
	BGT  r31Changed
	SUB  R3, R4, R3
	ADD  $1, R3
	SLD  $2, R3
	BR   measured

r31Changed:
	OR   R7, R8
	MOVD $0, R3

measured:
	MOVD R3, const_resultValue(R28)
	MOVD const_stackR2(R1), R3
	CMP  R3, R2
	BEQ  keptR2
	OR   $(1<<2), R8
	MOVD R3, R2

keptR2:
	MOVD const_stackR13(R1), R3
	CMP  R3, R13
	BEQ  keptR13
	OR   $(1<<13), R8
	MOVD R3, R13

keptR13:
	MOVD R8, const_resultAux(R28)
	BR   done

interrupts:
	MOVD const_opArg(R27), R4
	CMPU R4, $1
	BGT  unknown
	MFMSR_R3
	MOVD $const_msrEE, R6
	ANDN R6, R3, R3
	CMP  R4, $0
	BEQ  off
	OR   R6, R3

off:
	MOVD R3, const_frameMSR(R26)
	BR   done

load:
	MOVD const_opArg(R27), R3
	MOVD (const_opArg+8)(R27), R4
	CMP  R4, $8
	BEQ  loadDouble
	CMP  R4, $4
	BEQ  loadWord
	CMP  R4, $2
	BEQ  loadHalf
	CMP  R4, $1
	BNE  unknown
	BL   ·load1(SB)
	BR   value

loadHalf:
	BL ·load2(SB)
	BR value

loadWord:
	BL ·load4(SB)
	BR value

loadDouble:
	BL ·load8(SB)

value:
	MOVD R3, const_resultValue(R28)
	BR   done

store:
	MOVD const_opArg(R27), R3
	MOVD (const_opArg+8)(R27), R4
	MOVD (const_opArg+16)(R27), R5
	CMP  R5, $8
	BEQ  storeDouble
	CMP  R5, $4
	BEQ  storeWord
	CMP  R5, $2
	BEQ  storeHalf
	CMP  R5, $1
	BNE  unknown
	BL   ·store1(SB)
	BR   stored

storeHalf:
	BL ·store2(SB)
	BR stored

storeWord:
	BL ·store4(SB)
	BR stored

storeDouble:
	BL ·store8(SB)

// What was stored is seen before what comes next, as on machines of a stronger order.
stored:
	SYNC
	BR done

// R7 counts the reads.
spinUntil:
	MOVD (const_opArg+8)(R27), R4
	MOVD (const_opArg+16)(R27), R5
	MOVD (const_opArg+24)(R27), R6
	MOVD $0, R7

spin:
	MOVD const_opArg(R27), R3
	BL   ·load8(SB)
	ADD  $1, R7
	AND  R3, R4, R8
	CMP  R8, R5
	BEQ  spun
	CMP  R7, R6
	BEQ  spun
	PRIORITY_LOW
	PRIORITY_MEDIUM
	BR   spin

// What is loaded later was not read earlier.
spun:
	LWSYNC
	MOVD R7, const_resultAux(R28)
	BR   value

readClock:
	ISYNC
	MOVD SPR(const_TB), R3
	BR   value

readRegister:
	MOVD const_opArg(R27), R3
	CMP  R3, $const_DEC
	BEQ  readDEC
	CMP  R3, $const_CTRL
	BEQ  readCTRL
	CMP  R3, $const_VRSAVE
	BEQ  readVRSAVE
	CMP  R3, $const_TB
	BEQ  readTB
	CMP  R3, $const_PVR
	BEQ  readPVR
	CMP  R3, $const_SPURR
	BEQ  readSPURR
	CMP  R3, $const_PURR
	BEQ  readPURR
	CMP  R3, $const_VTB
	BEQ  readVTB
	CMP  R3, $const_MSR
	BNE  unknown
	MFMSR_R3
	BR   value

readDEC:
	MOVD SPR(const_DEC), R3
	BR   value

readCTRL:
	MOVD SPR(const_CTRL), R3
	BR   value

readVRSAVE:
	MOVD SPR(const_VRSAVE), R3
	BR   value

readTB:
	MOVD SPR(const_TB), R3
	BR   value

readPVR:
	MOVD SPR(const_PVR), R3
	BR   value

readSPURR:
	MOVD SPR(const_SPURR), R3
	BR   value

readPURR:
	MOVD SPR(const_PURR), R3
	BR   value

readVTB:
	MOVD SPR(const_VTB), R3
	BR   value

writeRegister:
	MOVD const_opArg(R27), R3
	MOVD (const_opArg+8)(R27), R4
	CMP  R3, $const_VRSAVE
	BEQ  writeVRSAVE
	CMP  R3, $const_DEC
	BNE  unknown
	MOVD R4, SPR(const_DEC)
	BR   done

writeVRSAVE:
	MOVD R4, SPR(const_VRSAVE)
	BR   done

discover:
	MOVD const_opArg(R27), R3
	CMP  R3, $0
	BNE  unknown
	MOVD SPR(const_PVR), R3
	MOVD R3, (const_resultRegs+1*8)(R28)
	BR   done

// The count of completions becomes one more at next.
loop:
	MOVD const_resultCount(R28), R3
	ADD  $1, R3
	MOVD (const_opArg+8)(R27), R4
	CMPU R3, R4
	BGE  done
	MOVD const_opArg(R27), R29
	BR   next

loadVectors:
	MOVD const_frameFlags(R26), R4
	ANDCC $const_ownVectors, R4, R4
	BEQ  unknown
	MOVD const_opArg(R27), R4
	CMP  R4, $0
	BNE  unknown
	MOVD $const_frameVectors, R3
	ADD  R26, R3
	BL   ·loadVectors(SB)
	BR   done

storeVectors:
	MOVD const_frameFlags(R26), R4
	ANDCC $const_ownVectors, R4, R4
	BEQ  unknown
	MOVD const_opArg(R27), R4
	CMP  R4, $0
	BNE  unknown
	MOVD $const_frameVectors, R3
	ADD  R26, R3
	BL   ·storeVectors(SB)
	BR   done

// R5 and R6 are the addresses of version and data, R7 the samples left, R8 1 for words in
// the other byte order. R9 and R10 are data and version of the last consistent sample,
// which there is if R11 is not 0. R12 and R14 are version and data as first read, R15 the
// data as read again.
sample:
	MOVD const_opArg(R27), R5
	MOVD (const_opArg+8)(R27), R6
	MOVD (const_opArg+16)(R27), R7
	MOVD (const_opArg+24)(R27), R8
	CMPU R8, $1
	BGT  unknown
	ADD  $const_stackCall, R1, R16
	MOVD $0, R11
	MOVD R0, const_resultAux(R28)
	MOVD R0, (const_resultRegs+0*8)(R28)
	MOVD R0, (const_resultRegs+1*8)(R28)
	MOVD R0, (const_resultRegs+2*8)(R28)
	MOVD R0, (const_resultRegs+3*8)(R28)
	MOVD R0, (const_resultRegs+4*8)(R28)
	MOVD R0, (const_resultRegs+5*8)(R28)

nextSample:
	CMP  R7, $0
	BEQ  done
	ADD  $-1, R7
	MOVD R5, R3
	BL   ·load4(SB)
	MOVD R3, R12
	LWSYNC
	MOVD R6, R3
	BL   ·load8(SB)
	MOVD R3, R14
	LWSYNC
	MOVD R6, R3
	BL   ·load8(SB)
	MOVD R3, R15
	LWSYNC
	MOVD R5, R3
	BL   ·load4(SB)
	CMP  R8, $0
	BEQ  ordered
	MOVW R3, (R16)
	MOVWBR (R16), R3
	MOVW R12, (R16)
	MOVWBR (R16), R12
	MOVD R14, (R16)
	MOVDBR (R16), R14
	MOVD R15, (R16)
	MOVDBR (R16), R15

ordered:
	CMP  R3, R12
	BEQ  sameVersion
	MOVD (const_resultRegs+1*8)(R28), R17
	ADD  $1, R17
	MOVD R17, (const_resultRegs+1*8)(R28)

sameVersion:
	ANDCC $1, R12, R17
	BEQ  even
	MOVD (const_resultRegs+0*8)(R28), R17
	ADD  $1, R17
	MOVD R17, (const_resultRegs+0*8)(R28)
	BR   nextSample

even:
	CMP  R3, R12
	BNE  nextSample
	CMP  R14, R15
	BEQ  consistent
	MOVD (const_resultRegs+2*8)(R28), R17
	ADD  $1, R17
	MOVD R17, (const_resultRegs+2*8)(R28)
	BR   nextSample

consistent:
	MOVD const_resultAux(R28), R17
	ADD  $1, R17
	MOVD R17, const_resultAux(R28)
	CMP  R11, $0
	BEQ  keep
	CMPU R14, R9
	BEQ  keep
	BGT  increased
	MOVD (const_resultRegs+3*8)(R28), R17
	ADD  $1, R17
	MOVD R17, (const_resultRegs+3*8)(R28)

increased:
	MOVD (const_resultRegs+4*8)(R28), R17
	ADD  $1, R17
	MOVD R17, (const_resultRegs+4*8)(R28)
	CMP  R12, R10
	BNE  keep
	MOVD (const_resultRegs+5*8)(R28), R17
	ADD  $1, R17
	MOVD R17, (const_resultRegs+5*8)(R28)

keep:
	MOVD $1, R11
	MOVD R14, R9
	MOVD R12, R10
	MOVD R14, const_resultValue(R28)
	BR   nextSample

// here() 0 keeps where it was called from, for fault.
TEXT ·here(SB), NOSPLIT|NOFRAME, $0-0
	MOVD LR, R3
	MOVD R3, const_frameResume(R26)
	MOVD $0, R3
	RET

// fault() 1 returns from ·here once more, after an instruction that faulted in a kernel. The
// registers are as they were then. Which exception it was is not told.
TEXT ·fault(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $1, R3
	MOVD R3, const_resultTrap(R28)
	MOVD const_frameResume(R26), R4
	MOVD R4, LR
	RET

TEXT ·load1(SB), NOSPLIT|NOFRAME, $0-0
	MOVBZ (R3), R3
	RET

TEXT ·load2(SB), NOSPLIT|NOFRAME, $0-0
	MOVHZ (R3), R3
	RET

TEXT ·load4(SB), NOSPLIT|NOFRAME, $0-0
	MOVWZ (R3), R3
	RET

TEXT ·load8(SB), NOSPLIT|NOFRAME, $0-0
	MOVD (R3), R3
	RET

TEXT ·store1(SB), NOSPLIT|NOFRAME, $0-0
	MOVB R4, (R3)
	RET

TEXT ·store2(SB), NOSPLIT|NOFRAME, $0-0
	MOVH R4, (R3)
	RET

TEXT ·store4(SB), NOSPLIT|NOFRAME, $0-0
	MOVW R4, (R3)
	RET

TEXT ·store8(SB), NOSPLIT|NOFRAME, $0-0
	MOVD R4, (R3)
	RET

#define VECTORS(MOVE) \
	MOVE(VS32); \
	MOVE(VS33); \
	MOVE(VS34); \
	MOVE(VS35); \
	MOVE(VS36); \
	MOVE(VS37); \
	MOVE(VS38); \
	MOVE(VS39); \
	MOVE(VS40); \
	MOVE(VS41); \
	MOVE(VS42); \
	MOVE(VS43); \
	MOVE(VS44); \
	MOVE(VS45); \
	MOVE(VS46); \
	MOVE(VS47)
#define LOAD(v) LXVD2X (R0)(R3), v; ADD $32, R3
#define STORE(v) STXVD2X v, (R0)(R3); ADD $32, R3

TEXT ·loadVectors(SB), NOSPLIT|NOFRAME, $0-0
	VECTORS(LOAD)
	RET

TEXT ·storeVectors(SB), NOSPLIT|NOFRAME, $0-0
	VECTORS(STORE)
	RET

// guest(frame R3, flags R4) does not return. R1 is a stack of its own.
TEXT ·guest(SB), NOSPLIT|NOFRAME, $0-0
	MOVD R3, R14
	MOVD R4, R15
	MOVD $const_Door, R16

again:
	BL   ·run(SB)
	MOVB R3, (R16)
	MOVD R14, R3
	OR   $const_Resumed, R15, R4
	BR   again

// gate takes the exceptions and interrupts of a bare CPU, in real mode and with interrupts
// off. LR tells the vector that it was called from; R3 and LR as they were are in SPRG1 and
// SPRG2, the frame's address is in SPRG0.
TEXT ·gate(SB), NOSPLIT|NOFRAME, $0-0
	MOVD R4, SPR(const_sprSPRG3)
	MOVD SPR(const_sprSPRG0), R4
	MOVD R0, (const_frameSaved+0*8)(R4)
	MOVD R5, (const_frameSaved+1*8)(R4)
	MOVD R6, (const_frameSaved+2*8)(R4)
	MOVD R7, (const_frameSaved+3*8)(R4)
	MOVD R8, (const_frameSaved+4*8)(R4)
	MOVD R9, (const_frameSaved+5*8)(R4)
	MOVD R10, (const_frameSaved+6*8)(R4)
	MOVD R11, (const_frameSaved+7*8)(R4)
	MOVD R12, (const_frameSaved+8*8)(R4)
	MOVW CR, R5
	MOVD R5, (const_frameSaved+9*8)(R4)
	MOVD CTR, R5
	MOVD R5, (const_frameSaved+10*8)(R4)
	MOVD XER, R5
	MOVD R5, (const_frameSaved+11*8)(R4)
	MOVD SPR(const_sprSRR0), R5
	MOVD R5, (const_frameSaved+12*8)(R4)
	MOVD SPR(const_sprSRR1), R6
	MOVD R6, (const_frameSaved+13*8)(R4)
	MOVD $0, R0
	MOVD LR, R3
	ADD  $-const_gateCall, R3
	CMP  R3, $const_vectorDEC
	BEQ  decrementer
	CMP  R3, $const_vectorExternal
	BEQ  external
	CMP  R3, $const_vectorDoorbell
	BEQ  count

	// An exception. The operation is given up, and with it all registers. SRR1 is MSR as it
	// was but for the bits that tell of the exception.
	MOVD R4, R26
	MOVD const_frameAt(R26), R28
	SLD  $const_slotShift, R28, R28
	ADD  R26, R28
	MOVD $const_frameResults, R5
	ADD  R5, R28
	ADD  $1, R3, R5
	MOVD R5, const_resultTrap(R28)
	MOVD R6, R5
	CMP  R3, $const_vectorDSI
	BEQ  storage
	CMP  R3, $const_vectorAlignment
	BNE  coded

storage:
	MOVD SPR(const_sprDSISR), R5

coded:
	MOVD R5, const_resultCode(R28)
	MOVD $const_srr1Exception, R5
	ANDN R5, R6, R6
	MOVD R6, SPR(const_sprSRR1)
	MOVD const_frameResume(R26), R5
	MOVD R5, SPR(const_sprSRR0)
	MOVD const_frameStack(R26), R1
	MOVD $1, R3
	RFID

	// The exception lasts for as long as the decrementer is negative. It becomes the largest
	// number that it can be.
decrementer:
	MOVD $-1, R5
	SRD  $(65-const_decrementerBits), R5, R5
	MOVD R5, SPR(const_DEC)
	BR   count

	// Accept the interrupt, withdraw the request that another CPU made by H_IPI, end it.
external:
	MOVD $const_hXIRR, R3
	SC1
	MOVD SPR(const_sprSPRG0), R5
	MOVD R4, (const_frameSaved+14*8)(R5)
	MOVD $const_hIPI, R3
	MOVD const_frameServer(R5), R4
	MOVD $const_noRequest, R5
	SC1
	MOVD SPR(const_sprSPRG0), R5
	MOVD $const_hEOI, R3
	MOVD (const_frameSaved+14*8)(R5), R4
	SC1
	MOVD SPR(const_sprSPRG0), R4
	MOVD $const_vectorExternal, R3

	// 8 bytes for each 256 of vectors.
count:
	SRD  $5, R3, R3
	ADD  R4, R3
	MOVD const_frameEvents(R3), R5
	ADD  $1, R5
	MOVD R5, const_frameEvents(R3)
	MOVD (const_frameSaved+13*8)(R4), R5
	MOVD R5, SPR(const_sprSRR1)
	MOVD (const_frameSaved+12*8)(R4), R5
	MOVD R5, SPR(const_sprSRR0)
	MOVD (const_frameSaved+11*8)(R4), R5
	MOVD R5, XER
	MOVD (const_frameSaved+10*8)(R4), R5
	MOVD R5, CTR
	MOVWZ (const_frameSaved+9*8)(R4), R5
	MOVFL R5, CR
	MOVD (const_frameSaved+8*8)(R4), R12
	MOVD (const_frameSaved+7*8)(R4), R11
	MOVD (const_frameSaved+6*8)(R4), R10
	MOVD (const_frameSaved+5*8)(R4), R9
	MOVD (const_frameSaved+4*8)(R4), R8
	MOVD (const_frameSaved+3*8)(R4), R7
	MOVD (const_frameSaved+2*8)(R4), R6
	MOVD (const_frameSaved+1*8)(R4), R5
	MOVD (const_frameSaved+0*8)(R4), R0
	MOVD SPR(const_sprSPRG2), R3
	MOVD R3, LR
	MOVD SPR(const_sprSPRG1), R3
	MOVD SPR(const_sprSPRG3), R4
	RFID

// The end of what is copied.
TEXT ·end(SB), NOSPLIT|NOFRAME, $0-0
	TW $31, R0, R0

DATA ·entries+0(SB)/8, $·run(SB)
DATA ·entries+8(SB)/8, $·guest(SB)
DATA ·entries+16(SB)/8, $·gate(SB)
DATA ·entries+24(SB)/8, $·end(SB)
GLOBL ·entries(SB), RODATA|NOPTR, $32

// Pairs of an instruction that may fault and the place to go on at.
#define FIXUP(n, at) \
	DATA ·fixups+((n)*16)(SB)/8, $at(SB); \
	DATA ·fixups+((n)*16+8)(SB)/8, $·fault(SB)

FIXUP(0, ·load1)
FIXUP(1, ·load2)
FIXUP(2, ·load4)
FIXUP(3, ·load8)
FIXUP(4, ·store1)
FIXUP(5, ·store2)
FIXUP(6, ·store4)
FIXUP(7, ·store8)
GLOBL ·fixups(SB), RODATA|NOPTR, $(8*16)

// Run(frame *byte, flags uint64) uint64
TEXT ·call(SB), 0, $32-24
	MOVD frame+0(FP), R3
	MOVD flags+8(FP), R4
	BL   ·run(SB)
	MOVD $0, R0
	MOVD R3, ret+16(FP)
	RET

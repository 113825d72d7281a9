#include "go_asm.h"
#include "textflag.h"

// The probe. Package comment and package arch say what it has to do.
//
// Registers of the interpreter: R23 the frame, R24 the operation, R25 its result, R26 the
// index of the operation to go on with. An operation may use all the others but R2, R3, R21
// and R22, which is what Go's assembler calls g; R30 is that assembler's own.
//
// No function here refers to a symbol outside, and none needs to know its own address.
// Each instruction that may fault on its own account is the first of a function, so
// that it has a name in the table of fixups.

// What Go's assembler does not know.
#define CSRRD_R4(number) WORD $(0x04000004+(number<<10)) // csrrd r4, number
#define CSRWR_R5(number) WORD $(0x04000025+(number<<10)) // csrwr r5, number
#define CRMD_IE WORD $0x040000a4                         // csrxchg r4, r5, crmd
#define IOCSRRD WORD $0x06480884                         // iocsrrd.w r4, r4
#define IOCSRWR WORD $0x06481885                         // iocsrwr.w r5, r4
#define CPUCFG WORD $0x00006c84                          // cpucfg r4, r4
#define IDLE WORD $0x06488000                            // idle 0
#define HVCL(code) WORD $(0x002b8000+code)               // hvcl code

// run(frame R4, flags R5) R4
TEXT ·run(SB), NOSPLIT|NOFRAME, $0-0
	ADDV $-const_stackSize, R3
	MOVV R1, (const_stackKept+0*8)(R3)
	MOVV g, (const_stackKept+1*8)(R3)
	MOVV R23, (const_stackKept+2*8)(R3)
	MOVV R24, (const_stackKept+3*8)(R3)
	MOVV R25, (const_stackKept+4*8)(R3)
	MOVV R26, (const_stackKept+5*8)(R3)
	MOVV R27, (const_stackKept+6*8)(R3)
	MOVV R28, (const_stackKept+7*8)(R3)
	MOVV R29, (const_stackKept+8*8)(R3)
	MOVV R30, (const_stackKept+9*8)(R3)
	MOVV R31, (const_stackKept+10*8)(R3)
	MOVV R2, const_stackR2(R3)
	MOVV R21, const_stackR21(R3)
	MOVV R4, const_stackFrame(R3)
	MOVV R4, R23
	MOVV R5, const_frameFlags(R23)
	JMP  ·interpret(SB)

// leave(status R4) returns from run. In a kernel, interrupts become again what they were.
TEXT ·leave(SB), NOSPLIT|NOFRAME, $0-0
	MOVV R4, R12
	MOVV const_frameFlags(R23), R5
	AND  $const_Process, R5
	BNE  R5, R0, restore
	MOVV const_stackCRMD(R3), R4
	MOVV $const_crmdIE, R5
	CRMD_IE

restore:
	MOVV R12, R4
	MOVV (const_stackKept+0*8)(R3), R1
	MOVV (const_stackKept+1*8)(R3), g
	MOVV (const_stackKept+2*8)(R3), R23
	MOVV (const_stackKept+3*8)(R3), R24
	MOVV (const_stackKept+4*8)(R3), R25
	MOVV (const_stackKept+5*8)(R3), R26
	MOVV (const_stackKept+6*8)(R3), R27
	MOVV (const_stackKept+7*8)(R3), R28
	MOVV (const_stackKept+8*8)(R3), R29
	MOVV (const_stackKept+9*8)(R3), R30
	MOVV (const_stackKept+10*8)(R3), R31
	ADDV $const_stackSize, R3
	RET

TEXT ·interpret(SB), NOSPLIT|NOFRAME, $0-0
	MOVV R0, const_stackCRMD(R3)
	MOVV const_frameFlags(R23), R5
	AND  $const_Process, R5
	BNE  R5, R0, entered
	CSRRD_R4(const_CRMD)
	MOVV R4, const_stackCRMD(R3)

entered:
	// An operation that faulted comes back from here, too, with R4 1.
	JAL  ·here(SB)
	BNE  R4, R0, done
	MOVV const_frameFlags(R23), R5
	AND  $const_Resumed, R5
	BNE  R5, R0, resumed
	MOVV const_stackCRMD(R3), R4
	MOVV R4, const_frameCRMD(R23)
	JMP  begin

resumed:
	MOVV const_frameAt(R23), R4
	SLLV $const_slotShift, R4
	MOVV $const_frameResults, R25
	ADDV R23, R25
	ADDV R4, R25

// done goes on with the operation after this one, interrupts being as the program has them.
done:
	MOVV const_frameAt(R23), R26
	ADDV $1, R26
	MOVV const_frameFlags(R23), R5
	AND  $const_Process, R5
	BNE  R5, R0, next
	MOVV const_frameCRMD(R23), R4
	MOVV $const_crmdIE, R5
	CRMD_IE

next:
	RDTIMED R0, R4
	MOVV R4, const_resultEnd(R25)
	MOVV const_resultCount(R25), R4
	ADDV $1, R4
	MOVV R4, const_resultCount(R25)
	MOVV const_frameCompleted(R23), R4
	ADDV $1, R4
	MOVV R4, const_frameCompleted(R23)
	MOVV R26, const_frameAt(R23)

begin:
	MOVV const_frameAt(R23), R4
	MOVV $const_maxOps, R5
	BGEU R4, R5, outside
	SLLV $const_slotShift, R4
	MOVV $const_frameOps, R24
	ADDV R23, R24
	ADDV R4, R24
	MOVV $const_frameResults, R25
	ADDV R23, R25
	ADDV R4, R25
	MOVV R0, const_resultTrap(R25)
	MOVV R0, const_resultCode(R25)
	RDTIMED R0, R4
	MOVV R4, const_resultBegin(R25)
	MOVV const_opKind(R24), R4
	MOVV $const_kindEnd, R5
	BEQ  R4, R5, end
	MOVV $const_kindCall, R5
	BEQ  R4, R5, call
	MOVV $const_kindCallLength, R5
	BEQ  R4, R5, call
	MOVV $const_kindWait, R5
	BEQ  R4, R5, wait
	MOVV $const_kindLoad, R5
	BEQ  R4, R5, load
	MOVV $const_kindStore, R5
	BEQ  R4, R5, store
	MOVV $const_kindSpinUntil, R5
	BEQ  R4, R5, spinUntil
	MOVV $const_kindClock, R5
	BEQ  R4, R5, readClock
	MOVV $const_kindInterrupts, R5
	BEQ  R4, R5, interrupts
	MOVV $const_kindReadRegister, R5
	BEQ  R4, R5, readRegister
	MOVV $const_kindWriteRegister, R5
	BEQ  R4, R5, writeRegister
	MOVV $const_kindDiscover, R5
	BEQ  R4, R5, discover
	MOVV $const_kindExit, R5
	BEQ  R4, R5, exit
	MOVV $const_kindLoop, R5
	BEQ  R4, R5, loop
	MOVV $const_kindLoadVectors, R5
	BEQ  R4, R5, loadVectors
	MOVV $const_kindStoreVectors, R5
	BEQ  R4, R5, storeVectors
	MOVV $const_kindSample, R5
	BEQ  R4, R5, sample

// An operation, or a form or size of one, that is not known ends the program.
unknown:
	MOVV $-1, R4
	MOVV R4, const_resultTrap(R25)

outside:
	MOVV $const_statusUnknown, R4
	JMP  ·leave(SB)

end:
	RDTIMED R0, R4
	MOVV R4, const_resultEnd(R25)
	MOVV const_resultCount(R25), R4
	ADDV $1, R4
	MOVV R4, const_resultCount(R25)
	MOVV const_frameCompleted(R23), R4
	ADDV $1, R4
	MOVV R4, const_frameCompleted(R23)
	MOVV $const_statusEnded, R4
	JMP  ·leave(SB)

exit:
	MOVV const_opArg(R24), R4
	MOVV R4, const_frameExit(R23)
	MOVV $const_statusExited, R4
	JMP  ·leave(SB)

// The call owns all registers but R2, R3 and R21, and R22 in a process, where Go's signal
// handlers need it. The stack alone tells the way back. Each of the callSteps instructions
// after it that is left out leaves R31 less by 1.
#define LOAD(form) \
	MOVV const_opRegs(R24), R1; \
	MOVV (const_opRegs+1*8)(R24), R4; \
	MOVV (const_opRegs+2*8)(R24), R5; \
	MOVV (const_opRegs+3*8)(R24), R6; \
	MOVV (const_opRegs+4*8)(R24), R7; \
	MOVV (const_opRegs+5*8)(R24), R8; \
	MOVV (const_opRegs+6*8)(R24), R9; \
	MOVV (const_opRegs+7*8)(R24), R10; \
	MOVV (const_opRegs+8*8)(R24), R11; \
	MOVV (const_opRegs+9*8)(R24), R12; \
	MOVV (const_opRegs+10*8)(R24), R13; \
	MOVV (const_opRegs+11*8)(R24), R14; \
	MOVV (const_opRegs+12*8)(R24), R15; \
	MOVV (const_opRegs+13*8)(R24), R16; \
	MOVV (const_opRegs+14*8)(R24), R17; \
	MOVV (const_opRegs+15*8)(R24), R18; \
	ADDV $1, R18, R19; \
	ADDV $2, R18, R20; \
	ADDV $5, R18, R23; \
	ADDV $6, R18, R24; \
	ADDV $7, R18, R25; \
	ADDV $8, R18, R26; \
	ADDV $9, R18, R27; \
	ADDV $10, R18, R28; \
	ADDV $11, R18, R29; \
	ADDV $12, R18, R30; \
	ADDV $13, R18, R31; \
	JMP  form(SB)

call:
	MOVV const_opArg(R24), R4
	MOVV $const_forms, R5
	BGEU R4, R5, unknown
	MOVV const_frameFlags(R23), R5
	AND  $const_Process, R5
	BNE  R5, R0, chosen
	MOVV (const_opRegs+15*8)(R24), g
	ADDV $4, g

chosen:
	MOVV g, const_stackR22(R3)
	BEQ  R4, R0, form0
	MOVV $1, R5
	BEQ  R4, R5, form1
	MOVV $2, R5
	BEQ  R4, R5, form2
	MOVV $3, R5
	BEQ  R4, R5, form3
	MOVV $4, R5
	BEQ  R4, R5, form4

	LOAD(·form5)

form0:
	LOAD(·form0)

form1:
	LOAD(·form1)

form2:
	LOAD(·form2)

form3:
	LOAD(·form3)

form4:
	LOAD(·form4)

// An interrupt ends a wait whether interrupts are on or not. Off while waiting, none can come
// before it; on after it, those that ended it are taken.
wait:
	MOVV const_opArg(R24), R12
	MOVV $1, R5
	BLTU R5, R12, unknown
	MOVV const_frameCRMD(R23), R4
	MOVV $const_crmdIE, R5
	OR   R5, R4
	XOR  R5, R4
	MOVV R4, const_frameCRMD(R23)
	CRMD_IE
	IDLE
	BEQ  R12, R0, done
	MOVV $const_crmdIE, R4
	MOVV $const_crmdIE, R5
	CRMD_IE
	JMP  done

// The program's state is set at done.
interrupts:
	MOVV const_opArg(R24), R12
	MOVV $1, R5
	BLTU R5, R12, unknown
	CSRRD_R4(const_CRMD)
	MOVV $const_crmdIE, R5
	OR   R5, R4
	BNE  R12, R0, switched
	XOR  R5, R4

switched:
	MOVV R4, const_frameCRMD(R23)
	JMP  done

load:
	MOVV const_opArg(R24), R4
	MOVV (const_opArg+8)(R24), R5
	MOVV $8, R6
	BEQ  R5, R6, loadDouble
	MOVV $4, R6
	BEQ  R5, R6, loadWord
	MOVV $2, R6
	BEQ  R5, R6, loadHalf
	MOVV $1, R6
	BNE  R5, R6, unknown
	JAL  ·load1(SB)
	JMP  value

loadHalf:
	JAL ·load2(SB)
	JMP value

loadWord:
	JAL ·load4(SB)
	JMP value

loadDouble:
	JAL ·load8(SB)

value:
	MOVV R4, const_resultValue(R25)
	JMP  done

store:
	MOVV const_opArg(R24), R4
	MOVV (const_opArg+8)(R24), R5
	MOVV (const_opArg+16)(R24), R7
	MOVV $8, R6
	BEQ  R7, R6, storeDouble
	MOVV $4, R6
	BEQ  R7, R6, storeWord
	MOVV $2, R6
	BEQ  R7, R6, storeHalf
	MOVV $1, R6
	BNE  R7, R6, unknown
	JAL  ·store1(SB)
	JMP  stored

storeHalf:
	JAL ·store2(SB)
	JMP stored

storeWord:
	JAL ·store4(SB)
	JMP stored

storeDouble:
	JAL ·store8(SB)

// What was stored is seen before what comes next, as on machines of a stronger order.
stored:
	DBAR
	JMP done

// R8 counts the reads.
spinUntil:
	MOVV (const_opArg+8)(R24), R5
	MOVV (const_opArg+16)(R24), R6
	MOVV (const_opArg+24)(R24), R7
	MOVV R0, R8

spin:
	MOVV const_opArg(R24), R4
	JAL  ·load8(SB)
	ADDV $1, R8
	AND  R5, R4, R9
	BEQ  R9, R6, spun
	BNE  R8, R7, spin

// What is loaded later was not read earlier.
spun:
	DBAR
	MOVV R8, const_resultAux(R25)
	JMP  value

readClock:
	RDTIMED R0, R4
	JMP     value

readRegister:
	MOVV const_opArg(R24), R4
	SRLV $32, R4, R5
	MOVV $1, R6
	BEQ  R5, R6, readIOCSR
	MOVV $const_CRMD, R5
	BEQ  R4, R5, readCRMD
	MOVV $const_PRMD, R5
	BEQ  R4, R5, readPRMD
	MOVV $const_ECFG, R5
	BEQ  R4, R5, readECFG
	MOVV $const_ESTAT, R5
	BEQ  R4, R5, readESTAT
	MOVV $const_CPUID, R5
	BEQ  R4, R5, readCPUID
	MOVV $const_TCFG, R5
	BEQ  R4, R5, readTCFG
	MOVV $const_TVAL, R5
	BNE  R4, R5, unknown
	CSRRD_R4(const_TVAL)
	JMP  value

readCRMD:
	CSRRD_R4(const_CRMD)
	JMP value

readPRMD:
	CSRRD_R4(const_PRMD)
	JMP value

readECFG:
	CSRRD_R4(const_ECFG)
	JMP value

readESTAT:
	CSRRD_R4(const_ESTAT)
	JMP value

readCPUID:
	CSRRD_R4(const_CPUID)
	JMP value

readTCFG:
	CSRRD_R4(const_TCFG)
	JMP value

readIOCSR:
	MOVWU R4, R4
	IOCSRRD
	MOVWU R4, R4
	JMP   value

writeRegister:
	MOVV const_opArg(R24), R4
	MOVV (const_opArg+8)(R24), R5
	SRLV $32, R4, R6
	MOVV $1, R7
	BEQ  R6, R7, writeIOCSR
	MOVV $const_ECFG, R6
	BEQ  R4, R6, writeECFG
	MOVV $const_ESTAT, R6
	BEQ  R4, R6, writeESTAT
	MOVV $const_TCFG, R6
	BNE  R4, R6, unknown
	CSRWR_R5(const_TCFG)
	JMP  done

writeECFG:
	CSRWR_R5(const_ECFG)
	JMP done

writeESTAT:
	CSRWR_R5(const_ESTAT)
	JMP done

writeIOCSR:
	MOVWU R4, R4
	IOCSRWR
	JMP   done

discover:
	MOVV  const_opArg(R24), R4
	CPUCFG
	MOVWU R4, R4
	MOVV  R4, (const_resultRegs+1*8)(R25)
	JMP   done

// The count of completions becomes one more at next.
loop:
	MOVV const_resultCount(R25), R4
	ADDV $1, R4
	MOVV (const_opArg+8)(R24), R5
	BGEU R4, R5, done
	MOVV const_opArg(R24), R26
	JMP  next

loadVectors:
	MOVV const_frameFlags(R23), R5
	AND  $const_Process, R5
	BEQ  R5, R0, unknown
	MOVV $const_frameVectors, R4
	ADDV R23, R4
	MOVV const_opArg(R24), R12
	MOVV $1, R5
	BLTU R5, R12, unknown
	BEQ  R12, R5, loadWide
	JAL  ·loadVectors128(SB)
	JMP  done

loadWide:
	JAL ·loadVectors256(SB)
	JMP done

storeVectors:
	MOVV const_frameFlags(R23), R5
	AND  $const_Process, R5
	BEQ  R5, R0, unknown
	MOVV $const_frameVectors, R4
	ADDV R23, R4
	MOVV const_opArg(R24), R12
	MOVV $1, R5
	BLTU R5, R12, unknown
	BEQ  R12, R5, storeWide
	JAL  ·storeVectors128(SB)
	JMP  done

storeWide:
	JAL ·storeVectors256(SB)
	JMP done

#define COUNT(n) \
	MOVV (const_resultRegs+n*8)(R25), R4; \
	ADDV $1, R4; \
	MOVV R4, (const_resultRegs+n*8)(R25)

// R5 and R6 are the addresses of version and data, R7 the samples left. R8 and R9 are
// version and data as first read, R10 the data as read again. R12 and R13 are data and version of
// the last consistent sample, which there is if R14 is not 0.
sample:
	MOVV const_opArg(R24), R5
	MOVV (const_opArg+8)(R24), R6
	MOVV (const_opArg+16)(R24), R7
	MOVV (const_opArg+24)(R24), R4
	BNE  R4, R0, unknown
	MOVV R0, R14
	MOVV R0, const_resultAux(R25)
	MOVV R0, (const_resultRegs+0*8)(R25)
	MOVV R0, (const_resultRegs+1*8)(R25)
	MOVV R0, (const_resultRegs+2*8)(R25)
	MOVV R0, (const_resultRegs+3*8)(R25)
	MOVV R0, (const_resultRegs+4*8)(R25)
	MOVV R0, (const_resultRegs+5*8)(R25)

nextSample:
	BEQ  R7, R0, done
	ADDV $-1, R7
	MOVV R5, R4
	JAL  ·load4(SB)
	MOVV R4, R8
	DBAR
	MOVV R6, R4
	JAL  ·load8(SB)
	MOVV R4, R9
	DBAR
	MOVV R6, R4
	JAL  ·load8(SB)
	MOVV R4, R10
	DBAR
	MOVV R5, R4
	JAL  ·load4(SB)
	MOVV R4, R11
	BEQ  R8, R11, sameVersion
	COUNT(1)

sameVersion:
	AND  $1, R8, R4
	BEQ  R4, R0, even
	COUNT(0)
	JMP  nextSample

even:
	BNE  R8, R11, nextSample
	BEQ  R9, R10, consistent
	COUNT(2)
	JMP  nextSample

consistent:
	MOVV const_resultAux(R25), R4
	ADDV $1, R4
	MOVV R4, const_resultAux(R25)
	BEQ  R14, R0, keep
	BEQ  R9, R12, keep
	BLTU R12, R9, increased
	COUNT(3)

increased:
	COUNT(4)
	BNE  R8, R13, keep
	COUNT(5)

keep:
	MOVV $1, R14
	MOVV R9, R12
	MOVV R8, R13
	MOVV R9, const_resultValue(R25)
	JMP  nextSample

// The forms of the call, in the order of ISA.Instructions.
#define FORM(code) \
	HVCL(code); \
	ADDV $1, R31; \
	ADDV $1, R31; \
	ADDV $1, R31; \
	ADDV $1, R31; \
	ADDV $1, R31; \
	ADDV $1, R31; \
	ADDV $1, R31; \
	ADDV $1, R31; \
	JMP  ·called(SB)

TEXT ·form0(SB), NOSPLIT|NOFRAME, $0-0
	FORM(0x100)

TEXT ·form1(SB), NOSPLIT|NOFRAME, $0-0
	FORM(0x101)

TEXT ·form2(SB), NOSPLIT|NOFRAME, $0-0
	FORM(0x102)

TEXT ·form3(SB), NOSPLIT|NOFRAME, $0-0
	FORM(0x103)

TEXT ·form4(SB), NOSPLIT|NOFRAME, $0-0
	FORM(0)

TEXT ·form5(SB), NOSPLIT|NOFRAME, $0-0
	FORM(0x7fff)

// called() stores what a call left, and returns from ·here once more.
TEXT ·called(SB), NOSPLIT|NOFRAME, $0-0
	MOVV R1, (const_stackCall+0*8)(R3)
	MOVV R4, (const_stackCall+1*8)(R3)
	MOVV R5, (const_stackCall+2*8)(R3)
	MOVV R6, (const_stackCall+3*8)(R3)
	MOVV R7, (const_stackCall+4*8)(R3)
	MOVV R8, (const_stackCall+5*8)(R3)
	MOVV R9, (const_stackCall+6*8)(R3)
	MOVV R10, (const_stackCall+7*8)(R3)
	MOVV R11, (const_stackCall+8*8)(R3)
	MOVV R12, (const_stackCall+9*8)(R3)
	MOVV R13, (const_stackCall+10*8)(R3)
	MOVV R14, (const_stackCall+11*8)(R3)
	MOVV R15, (const_stackCall+12*8)(R3)
	MOVV R16, (const_stackCall+13*8)(R3)
	MOVV R17, (const_stackCall+14*8)(R3)
	MOVV R18, (const_stackCall+15*8)(R3)
	MOVV R19, (const_stackCall+16*8)(R3)
	MOVV R20, (const_stackCall+17*8)(R3)
	MOVV R21, (const_stackCall+18*8)(R3)
	MOVV g, (const_stackCall+19*8)(R3)
	MOVV R23, (const_stackCall+20*8)(R3)
	MOVV R24, (const_stackCall+21*8)(R3)
	MOVV R25, (const_stackCall+22*8)(R3)
	MOVV R26, (const_stackCall+23*8)(R3)
	MOVV R27, (const_stackCall+24*8)(R3)
	MOVV R28, (const_stackCall+25*8)(R3)
	MOVV R29, (const_stackCall+26*8)(R3)
	MOVV R30, (const_stackCall+27*8)(R3)
	MOVV R31, (const_stackCall+28*8)(R3)

	MOVV const_stackFrame(R3), R23
	MOVV const_frameAt(R23), R4
	SLLV $const_slotShift, R4
	MOVV $const_frameOps, R24
	ADDV R23, R24
	ADDV R4, R24
	MOVV $const_frameResults, R25
	ADDV R23, R25
	ADDV R4, R25
	MOVV R0, const_resultFlags(R25)
	MOVV const_frameFlags(R23), R5
	AND  $const_Process, R5
	BNE  R5, R0, copied
	CSRRD_R4(const_CRMD)
	MOVV R4, const_resultFlags(R25)

copied:
	ADDV $const_stackCall, R3, R5
	ADDV $const_resultRegs, R25, R6
	MOVV $16, R7

copy:
	MOVV (R5), R4
	MOVV R4, (R6)
	ADDV $8, R5
	ADDV $8, R6
	ADDV $-1, R7
	BNE  R7, R0, copy

	// What became of R21 and R22, other than what they were, became of what the pattern has
	// in their places.
	MOVV (const_opRegs+15*8)(R24), R6
	ADDV $3, R6, R4
	MOVV const_stackR21(R3), R5
	XOR  R5, R4
	MOVV (const_stackCall+18*8)(R3), R5
	XOR  R5, R4
	MOVV R4, (const_stackCall+18*8)(R3)
	MOVV const_stackR21(R3), R21
	ADDV $4, R6, R4
	MOVV const_stackR22(R3), R5
	XOR  R5, R4
	MOVV (const_stackCall+19*8)(R3), R5
	XOR  R5, R4
	MOVV R4, (const_stackCall+19*8)(R3)

	// R18 to R30 are held against the pattern. R8 collects the numbers of those that
	// differ, as bits.
	ADDV $(const_stackCall+15*8), R3, R5
	MOVV R0, R8
	MOVV $(1<<18), R7
	MOVV $13, R9

compare:
	MOVV (R5), R4
	BEQ  R4, R6, kept
	OR   R7, R8

kept:
	ADDV $8, R5
	ADDV $1, R6
	SLLV $1, R7
	ADDV $-1, R9
	BNE  R9, R0, compare

	// R6 and R7 have come to R31, whose difference tells the steps that were taken.
	MOVV (R5), R4
	SUBV R6, R4
	MOVV $(const_callSteps+1), R5
	BGEU R4, R5, r31Changed
	SUBV R4, R5
	SLLV $2, R5
	JMP  measured

r31Changed:
	OR   R7, R8
	MOVV R0, R5

measured:
	MOVV R5, const_resultValue(R25)
	MOVV const_stackR2(R3), R4
	BEQ  R4, R2, keptR2
	OR   $(1<<2), R8
	MOVV R4, R2

keptR2:
	MOVV R8, const_resultAux(R25)
	MOVV $1, R4
	MOVV const_frameResume(R23), R1
	RET

// here() 0 keeps where it was called from, for fault.
TEXT ·here(SB), NOSPLIT|NOFRAME, $0-0
	MOVV R1, const_frameResume(R23)
	MOVV R0, R4
	RET

// fault() 1 returns from ·here once more, after an instruction that faulted in a kernel. The
// registers are as they were then. Which exception it was is not told.
TEXT ·fault(SB), NOSPLIT|NOFRAME, $0-0
	MOVV $1, R4
	MOVV R4, const_resultTrap(R25)
	MOVV const_frameResume(R23), R1
	RET

// illegal() 1 returns from ·here once more, after a call that is no instruction of this machine,
// in a kernel. The stack alone tells the way back.
TEXT ·illegal(SB), NOSPLIT|NOFRAME, $0-0
	MOVV const_stackFrame(R3), R23
	MOVV const_frameAt(R23), R4
	SLLV $const_slotShift, R4
	MOVV $const_frameResults, R25
	ADDV R23, R25
	ADDV R4, R25
	MOVV $const_trapIllegal, R4
	MOVV R4, const_resultTrap(R25)
	MOVV $1, R4
	MOVV const_frameResume(R23), R1
	RET

TEXT ·load1(SB), NOSPLIT|NOFRAME, $0-0
	MOVBU (R4), R4
	RET

TEXT ·load2(SB), NOSPLIT|NOFRAME, $0-0
	MOVHU (R4), R4
	RET

TEXT ·load4(SB), NOSPLIT|NOFRAME, $0-0
	MOVWU (R4), R4
	RET

TEXT ·load8(SB), NOSPLIT|NOFRAME, $0-0
	MOVV (R4), R4
	RET

TEXT ·store1(SB), NOSPLIT|NOFRAME, $0-0
	MOVB R5, (R4)
	RET

TEXT ·store2(SB), NOSPLIT|NOFRAME, $0-0
	MOVH R5, (R4)
	RET

TEXT ·store4(SB), NOSPLIT|NOFRAME, $0-0
	MOVW R5, (R4)
	RET

TEXT ·store8(SB), NOSPLIT|NOFRAME, $0-0
	MOVV R5, (R4)
	RET

TEXT ·loadVectors128(SB), NOSPLIT|NOFRAME, $0-0
	VMOVQ (0*32)(R4), V0
	VMOVQ (1*32)(R4), V1
	VMOVQ (2*32)(R4), V2
	VMOVQ (3*32)(R4), V3
	VMOVQ (4*32)(R4), V4
	VMOVQ (5*32)(R4), V5
	VMOVQ (6*32)(R4), V6
	VMOVQ (7*32)(R4), V7
	VMOVQ (8*32)(R4), V8
	VMOVQ (9*32)(R4), V9
	VMOVQ (10*32)(R4), V10
	VMOVQ (11*32)(R4), V11
	VMOVQ (12*32)(R4), V12
	VMOVQ (13*32)(R4), V13
	VMOVQ (14*32)(R4), V14
	VMOVQ (15*32)(R4), V15
	RET

TEXT ·storeVectors128(SB), NOSPLIT|NOFRAME, $0-0
	VMOVQ V0, (0*32)(R4)
	VMOVQ V1, (1*32)(R4)
	VMOVQ V2, (2*32)(R4)
	VMOVQ V3, (3*32)(R4)
	VMOVQ V4, (4*32)(R4)
	VMOVQ V5, (5*32)(R4)
	VMOVQ V6, (6*32)(R4)
	VMOVQ V7, (7*32)(R4)
	VMOVQ V8, (8*32)(R4)
	VMOVQ V9, (9*32)(R4)
	VMOVQ V10, (10*32)(R4)
	VMOVQ V11, (11*32)(R4)
	VMOVQ V12, (12*32)(R4)
	VMOVQ V13, (13*32)(R4)
	VMOVQ V14, (14*32)(R4)
	VMOVQ V15, (15*32)(R4)
	RET

TEXT ·loadVectors256(SB), NOSPLIT|NOFRAME, $0-0
	XVMOVQ (0*32)(R4), X0
	XVMOVQ (1*32)(R4), X1
	XVMOVQ (2*32)(R4), X2
	XVMOVQ (3*32)(R4), X3
	XVMOVQ (4*32)(R4), X4
	XVMOVQ (5*32)(R4), X5
	XVMOVQ (6*32)(R4), X6
	XVMOVQ (7*32)(R4), X7
	XVMOVQ (8*32)(R4), X8
	XVMOVQ (9*32)(R4), X9
	XVMOVQ (10*32)(R4), X10
	XVMOVQ (11*32)(R4), X11
	XVMOVQ (12*32)(R4), X12
	XVMOVQ (13*32)(R4), X13
	XVMOVQ (14*32)(R4), X14
	XVMOVQ (15*32)(R4), X15
	RET

TEXT ·storeVectors256(SB), NOSPLIT|NOFRAME, $0-0
	XVMOVQ X0, (0*32)(R4)
	XVMOVQ X1, (1*32)(R4)
	XVMOVQ X2, (2*32)(R4)
	XVMOVQ X3, (3*32)(R4)
	XVMOVQ X4, (4*32)(R4)
	XVMOVQ X5, (5*32)(R4)
	XVMOVQ X6, (6*32)(R4)
	XVMOVQ X7, (7*32)(R4)
	XVMOVQ X8, (8*32)(R4)
	XVMOVQ X9, (9*32)(R4)
	XVMOVQ X10, (10*32)(R4)
	XVMOVQ X11, (11*32)(R4)
	XVMOVQ X12, (12*32)(R4)
	XVMOVQ X13, (13*32)(R4)
	XVMOVQ X14, (14*32)(R4)
	XVMOVQ X15, (15*32)(R4)
	RET

// The end of what is copied.
TEXT ·end(SB), NOSPLIT|NOFRAME, $0-0
	BREAK

DATA ·entries+0(SB)/8, $·run(SB)
DATA ·entries+8(SB)/8, $·end(SB)
GLOBL ·entries(SB), RODATA|NOPTR, $16

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

// The same for instructions that the machine may not have.
#define ILLEGAL(n, at) \
	DATA ·illegals+((n)*16)(SB)/8, $at(SB); \
	DATA ·illegals+((n)*16+8)(SB)/8, $·illegal(SB)

ILLEGAL(0, ·form0)
ILLEGAL(1, ·form1)
ILLEGAL(2, ·form2)
ILLEGAL(3, ·form3)
ILLEGAL(4, ·form4)
ILLEGAL(5, ·form5)
GLOBL ·illegals(SB), RODATA|NOPTR, $(6*16)

// Run(frame *byte, flags uint64) uint64
TEXT ·call(SB), 0, $32-24
	MOVV frame+0(FP), R4
	MOVV flags+8(FP), R5
	JAL  ·run(SB)
	MOVV R4, ret+16(FP)
	RET

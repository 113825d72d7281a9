#include "go_asm.h"
#include "textflag.h"

// The probe. Package comment and package arch say what it has to do.
//
// Registers of the interpreter: R8 the frame, R9 the operation, R7 its result, R6 the index
// of the operation to go on with. An operation may use all the others but R15; R10 and
// R11 are also Go's assembler's own, R13 is what it calls g.
//
// No function here refers to a symbol outside, and none calls or jumps in a circle: the
// linker, which sums up the stack that NOSPLIT functions need, would refuse it. Each
// instruction that may fault on its own account is the first of a function, so that it
// has a name in the table of fixups.

// What Go's assembler does not know.
#define IPM_R1 WORD $0xb2220010                             // ipm %r1
#define IPM_R2 WORD $0xb2220020                             // ipm %r2
#define SPM_R2 BYTE $0x04; BYTE $0x20                       // spm %r2
#define EPSW_R1 WORD $0xb98d0010                            // epsw %r1, %r0
#define SSM(base, disp) WORD $(0x80000000+(base<<12)+disp)   // ssm disp(base)
#define STFLE(base, disp) WORD $(0xb2b00000+(base<<12)+disp) // stfle disp(base)
#define STAP(base, disp) WORD $(0xb2120000+(base<<12)+disp)  // stap disp(base)
#define STIDP(base, disp) WORD $(0xb2020000+(base<<12)+disp) // stidp disp(base)
#define STSI_R2 WORD $0xb27d2000                            // stsi 0(%r2)

// run(frame R2, flags R3) R2
TEXT ·run(SB), NOSPLIT|NOFRAME, $0-0
	STMG R6, R15, 48(R15)
	MOVD R15, R1
	ADD  $-const_stackSize, R15
	MOVD R1, 0(R15)
	MOVD R2, const_stackFrame(R15)
	MOVD R2, R8
	MOVD R3, const_frameFlags(R8)
	BR   ·interpret(SB)

// leave(status R2) returns from run. In a kernel, interrupts become again what they were.
TEXT ·leave(SB), NOSPLIT|NOFRAME, $0-0
	MOVD const_frameFlags(R8), R1
	AND  $const_Process, R1
	CMPBNE R1, $0, restore
	SSM(15, const_stackMask)

restore:
	LMG (48+const_stackSize)(R15), R6, R15
	RET

TEXT ·interpret(SB), NOSPLIT|NOFRAME, $0-0
	MOVD const_frameFlags(R8), R1
	AND  $const_Process, R1
	CMPBNE R1, $0, entered
	EPSW_R1
	SRD  $24, R1
	MOVB R1, const_stackMask(R15)

entered:
	// An operation that ended by other means than reaching its end below comes back from
	// here, too, with R2 1: after a call, or an exception.
	CALL ·here(SB)
	CMPBNE R2, $0, resumed
	MOVD const_frameFlags(R8), R1
	AND  $const_Resumed, R1
	CMPBNE R1, $0, resumed
	MOVBZ const_stackMask(R15), R1
	MOVB R1, const_frameMask(R8)
	BR   begin

resumed:
	MOVD const_frameAt(R8), R1
	SLD  $const_slotShift, R1
	MOVD $const_frameResults(R8)(R1*1), R7

// done goes on with the operation after this one, interrupts being as the program has them.
done:
	MOVD const_frameAt(R8), R6
	ADD  $1, R6
	MOVD const_frameFlags(R8), R1
	AND  $const_Process, R1
	CMPBNE R1, $0, next
	SSM(8, const_frameMask)

next:
	STCKF const_resultEnd(R7)
	MOVD const_resultCount(R7), R1
	ADD  $1, R1
	MOVD R1, const_resultCount(R7)
	MOVD const_frameCompleted(R8), R1
	ADD  $1, R1
	MOVD R1, const_frameCompleted(R8)
	MOVD R6, const_frameAt(R8)

begin:
	MOVD const_frameAt(R8), R1
	CMPUBGE R1, $const_maxOps, outside
	SLD  $const_slotShift, R1
	MOVD $const_frameOps(R8)(R1*1), R9
	MOVD $const_frameResults(R8)(R1*1), R7
	MOVD $0, R1
	MOVD R1, const_resultTrap(R7)
	MOVD R1, const_resultCode(R7)
	STCKF const_resultBegin(R7)
	MOVD const_opKind(R9), R1
	CMPBEQ R1, $const_kindEnd, end
	CMPBEQ R1, $const_kindCall, call
	CMPBEQ R1, $const_kindCallLength, call
	CMPBEQ R1, $const_kindLoad, load
	CMPBEQ R1, $const_kindStore, store
	CMPBEQ R1, $const_kindSpinUntil, spinUntil
	CMPBEQ R1, $const_kindClock, readClock
	CMPBEQ R1, $const_kindInterrupts, interrupts
	CMPBEQ R1, $const_kindDiscover, discover
	CMPBEQ R1, $const_kindExit, exit
	CMPBEQ R1, $const_kindLoop, loop
	CMPBEQ R1, $const_kindLoadVectors, loadVectors
	CMPBEQ R1, $const_kindStoreVectors, storeVectors
	CMPBEQ R1, $const_kindSample, sample

// An operation, or a form or size of one, that is not known ends the program.
unknown:
	MOVD $-1, R1
	MOVD R1, const_resultTrap(R7)

outside:
	MOVD $const_statusUnknown, R2
	BR   ·leave(SB)

end:
	STCKF const_resultEnd(R7)
	MOVD const_resultCount(R7), R1
	ADD  $1, R1
	MOVD R1, const_resultCount(R7)
	MOVD const_frameCompleted(R8), R1
	ADD  $1, R1
	MOVD R1, const_frameCompleted(R8)
	MOVD $const_statusEnded, R2
	BR   ·leave(SB)

exit:
	MOVD const_opArg(R9), R1
	MOVD R1, const_frameExit(R8)
	MOVD $const_statusExited, R2
	BR   ·leave(SB)

// The call owns all registers but R15, which leads back to the frame, and R13 in a
// process, where Go's signal handlers need it. They are loaded from the stack.
#define LAUNCH(form) \
	LMG const_stackCall(R15), R0, R14; \
	BR  form(SB)

call:
	MOVD $0, R1
	MOVD R1, const_stackSteps(R15)
	MVC  $120, const_opRegs(R9), const_stackCall(R15)
	MOVD const_frameFlags(R8), R1
	AND  $const_Process, R1
	CMPBEQ R1, $0, copied
	MOVD g, (const_stackCall+13*8)(R15)

copied:
	MOVD (const_stackCall+13*8)(R15), R1
	MOVD R1, const_stackR13(R15)
	MOVD const_opFlags(R9), R2
	AND  $3, R2
	SLD  $28, R2
	IPM_R1
	AND  $0x0f000000, R1 // the program mask stays
	OR   R1, R2
	SPM_R2
	MOVD const_opArg(R9), R1
	CMPBEQ R1, $0, form0
	CMPBEQ R1, $1, form1
	CMPBEQ R1, $2, form2
	CMPBEQ R1, $3, form3
	CMPBEQ R1, $4, form4
	CMPBEQ R1, $5, form5
	CMPBEQ R1, $6, form6
	CMPBEQ R1, $7, form7
	CMPBEQ R1, $8, form8
	CMPBEQ R1, $9, form9
	CMPBEQ R1, $10, form10
	CMPBEQ R1, $11, form11
	CMPBEQ R1, $12, form12
	CMPBEQ R1, $13, form13
	CMPBEQ R1, $14, form14
	BR   unknown

form0:
	LAUNCH(·form0)

form1:
	LAUNCH(·form1)

form2:
	LAUNCH(·form2)

form3:
	LAUNCH(·form3)

form4:
	LAUNCH(·form4)

form5:
	LAUNCH(·form5)

form6:
	LAUNCH(·form6)

form7:
	LAUNCH(·form7)

form8:
	LAUNCH(·form8)

form9:
	LAUNCH(·form9)

form10:
	LAUNCH(·form10)

form11:
	LAUNCH(·form11)

form12:
	LAUNCH(·form12)

form13:
	LAUNCH(·form13)

form14:
	LAUNCH(·form14)

// The program's mask is set at done.
interrupts:
	MOVD const_opArg(R9), R2
	CMPUBGT R2, $1, unknown
	MOVBZ const_frameMask(R8), R1
	OR   $const_maskInterrupts, R1
	CMPBEQ R2, $1, switched
	XOR  $const_maskInterrupts, R1

switched:
	MOVB R1, const_frameMask(R8)
	SSM(8, const_frameMask)
	BR   done

load:
	MOVD const_opArg(R9), R2
	MOVD (const_opArg+8)(R9), R1
	CMPBEQ R1, $8, loadDouble
	CMPBEQ R1, $4, loadWord
	CMPBEQ R1, $2, loadHalf
	CMPBNE R1, $1, unknown
	CALL ·load1(SB)
	BR   value

loadHalf:
	CALL ·load2(SB)
	BR   value

loadWord:
	CALL ·load4(SB)
	BR   value

loadDouble:
	CALL ·load8(SB)

value:
	MOVD R2, const_resultValue(R7)
	BR   done

store:
	MOVD const_opArg(R9), R2
	MOVD (const_opArg+8)(R9), R3
	MOVD (const_opArg+16)(R9), R1
	CMPBEQ R1, $8, storeDouble
	CMPBEQ R1, $4, storeWord
	CMPBEQ R1, $2, storeHalf
	CMPBNE R1, $1, unknown
	CALL ·store1(SB)
	BR   stored

storeHalf:
	CALL ·store2(SB)
	BR   stored

storeWord:
	CALL ·store4(SB)
	BR   stored

storeDouble:
	CALL ·store8(SB)

// What was stored is seen before what comes next.
stored:
	SYNC
	BR done

// R12 counts the reads.
spinUntil:
	MOVD (const_opArg+8)(R9), R3
	MOVD (const_opArg+16)(R9), R4
	MOVD (const_opArg+24)(R9), R5
	MOVD $0, R12

spin:
	MOVD const_opArg(R9), R2
	CALL ·load8(SB)
	ADD  $1, R12
	MOVD R2, R1
	AND  R3, R1
	CMPBEQ R1, R4, spun
	CMPBNE R12, R5, spin

spun:
	MOVD R12, const_resultAux(R7)
	BR   value

readClock:
	STCKF const_resultValue(R7)
	BR    done

discover:
	MOVD const_opArg(R9), R1
	CMPBEQ R1, $const_Facilities, facilities
	CMPBEQ R1, $const_CPUAddress, cpuAddress
	CMPBEQ R1, $const_CPUID, cpuID
	CMPBNE R1, $const_SystemInformation, unknown
	MOVD (const_opArg+8)(R9), R0
	MOVD (const_opArg+16)(R9), R1
	MOVD (const_opArg+24)(R9), R2
	CALL ·stsi(SB)
	IPM_R2
	SRD  $28, R2
	AND  $3, R2
	MOVD R2, const_resultFlags(R7)
	MOVD R0, const_resultRegs(R7)
	BR   done

facilities:
	XC   $128, const_resultRegs(R7), const_resultRegs(R7)
	MOVD $15, R0 // as many doublewords, and one
	STFLE(7, const_resultRegs)
	IPM_R2
	SRD  $28, R2
	AND  $3, R2
	MOVD R2, const_resultFlags(R7)
	AND  $0xff, R0
	ADD  $1, R0
	MOVD R0, const_resultAux(R7)
	BR   done

cpuAddress:
	MOVD $0, R1
	MOVD R1, const_resultRegs(R7)
	STAP(7, const_resultRegs+6)
	BR   done

cpuID:
	STIDP(7, const_resultRegs)
	BR   done

// The count of completions becomes one more at next.
loop:
	MOVD const_resultCount(R7), R1
	ADD  $1, R1
	MOVD (const_opArg+8)(R9), R2
	CMPUBGE R1, R2, done
	MOVD const_opArg(R9), R6
	BR   next

loadVectors:
	MOVD const_opArg(R9), R2
	CMPBNE R2, $0, unknown
	MOVD const_frameFlags(R8), R1
	AND  $const_Process, R1
	CMPBEQ R1, $0, unknown
	MOVD $const_frameVectors(R8), R1
	VL   (0*32)(R1), V0
	VL   (1*32)(R1), V1
	VL   (2*32)(R1), V2
	VL   (3*32)(R1), V3
	VL   (4*32)(R1), V4
	VL   (5*32)(R1), V5
	VL   (6*32)(R1), V6
	VL   (7*32)(R1), V7
	VL   (8*32)(R1), V8
	VL   (9*32)(R1), V9
	VL   (10*32)(R1), V10
	VL   (11*32)(R1), V11
	VL   (12*32)(R1), V12
	VL   (13*32)(R1), V13
	VL   (14*32)(R1), V14
	VL   (15*32)(R1), V15
	BR   done

storeVectors:
	MOVD const_opArg(R9), R2
	CMPBNE R2, $0, unknown
	MOVD const_frameFlags(R8), R1
	AND  $const_Process, R1
	CMPBEQ R1, $0, unknown
	MOVD $const_frameVectors(R8), R1
	VST  V0, (0*32)(R1)
	VST  V1, (1*32)(R1)
	VST  V2, (2*32)(R1)
	VST  V3, (3*32)(R1)
	VST  V4, (4*32)(R1)
	VST  V5, (5*32)(R1)
	VST  V6, (6*32)(R1)
	VST  V7, (7*32)(R1)
	VST  V8, (8*32)(R1)
	VST  V9, (9*32)(R1)
	VST  V10, (10*32)(R1)
	VST  V11, (11*32)(R1)
	VST  V12, (12*32)(R1)
	VST  V13, (13*32)(R1)
	VST  V14, (14*32)(R1)
	VST  V15, (15*32)(R1)
	BR   done

#define COUNT(n) \
	MOVD (const_resultRegs+n*8)(R7), R1; \
	ADD  $1, R1; \
	MOVD R1, (const_resultRegs+n*8)(R7)

// The first word of stackCall counts the samples left. R3 and R4 are version and data as first read, R5 the data
// as read again. R0 and R12 are data and version of the last consistent sample, which there is
// if Aux is not 0.
sample:
	MOVD (const_opArg+24)(R9), R1
	CMPBNE R1, $0, unknown
	MOVD (const_opArg+16)(R9), R1
	MOVD R1, const_stackCall(R15)
	XC   $48, const_resultRegs(R7), const_resultRegs(R7)
	MOVD $0, R1
	MOVD R1, const_resultAux(R7)

nextSample:
	MOVD const_stackCall(R15), R1
	CMPBEQ R1, $0, done
	ADD $-1, R1
	MOVD R1, const_stackCall(R15)
	MOVD const_opArg(R9), R2
	CALL ·load4(SB)
	MOVD R2, R3
	MOVD (const_opArg+8)(R9), R2
	CALL ·load8(SB)
	MOVD R2, R4
	MOVD (const_opArg+8)(R9), R2
	CALL ·load8(SB)
	MOVD R2, R5
	MOVD const_opArg(R9), R2
	CALL ·load4(SB)
	CMPBEQ R2, R3, sameVersion
	COUNT(1)

sameVersion:
	MOVD R3, R1
	AND  $1, R1
	CMPBEQ R1, $0, even
	COUNT(0)
	BR   nextSample

even:
	CMPBNE R2, R3, nextSample
	CMPBEQ R4, R5, consistent
	COUNT(2)
	BR   nextSample

consistent:
	MOVD const_resultAux(R7), R1
	ADD  $1, R1
	MOVD R1, const_resultAux(R7)
	CMPBEQ R1, $1, keep
	CMPBEQ R4, R0, keep
	CMPUBGT R4, R0, increased
	COUNT(3)

increased:
	COUNT(4)
	CMPBNE R3, R12, keep
	COUNT(5)

keep:
	MOVD R4, R0
	MOVD R3, R12
	MOVD R4, const_resultValue(R7)
	BR   nextSample

// here() 0 keeps where it was called from, for back.
TEXT ·here(SB), NOSPLIT|NOFRAME, $0-0
	MOVD R14, const_frameResume(R8)
	MOVD $0, R2
	RET

// back() 1 returns from ·here once more.
TEXT ·back(SB), NOSPLIT|NOFRAME, $0-0
	MOVD const_stackFrame(R15), R8
	MOVD const_frameResume(R8), R14
	MOVD $1, R2
	RET

// Each of these that is left out after a call leaves its byte 0.
#define STEP(n) MOVB $1, (const_stackSteps+n)(R15)
#define STEPS STEP(0); STEP(1); STEP(2); STEP(3); STEP(4); STEP(5); STEP(6); STEP(7)

// The call instructions, in the order of ISA.Instructions.
#define FORM(name, instruction) \
TEXT name(SB), NOSPLIT|NOFRAME, $0-0; \
	WORD $instruction; \
	STEPS; \
	BR ·returned(SB)

FORM(·form0, 0x83000044)  // diag r0,r0,0x44
FORM(·form1, 0x8300009c)  // diag r0,r0,0x9c
FORM(·form2, 0x8310009c)  // diag r1,r0,0x9c
FORM(·form3, 0x8350009c)  // diag r5,r0,0x9c
FORM(·form4, 0x83e0009c)  // diag r14,r0,0x9c
FORM(·form5, 0x8310309c)  // diag r1,r0,0x9c(r3)
FORM(·form6, 0x83103000)  // diag r1,r0,0x0(r3)
FORM(·form7, 0x83100fff)  // diag r1,r0,0xfff
FORM(·form8, 0x83240258)  // diag r2,r4,0x258
FORM(·form9, 0x8310049c)  // diag r1,r0,0x49c
FORM(·form10, 0x83240500) // diag r2,r4,0x500
FORM(·form11, 0xae245000) // sigp r2,r4,0x0(r5)
FORM(·form12, 0xae135000) // sigp r1,r3,0x0(r5)
FORM(·form13, 0xaebca000) // sigp r11,r12,0x0(r10)
FORM(·form14, 0xae240015) // sigp r2,r4,0x15

// returned and faultCall are where a call goes on after it, or after its exception in a kernel:
// registers are as the call, or the CPU, left them. In both the result has them all.
TEXT ·returned(SB), NOSPLIT|NOFRAME, $0-0
	STMG R0, R14, const_stackCall(R15)
	MOVD $0, R0
	BR   ·record(SB)

TEXT ·faultCall(SB), NOSPLIT|NOFRAME, $0-0
	STMG R0, R14, const_stackCall(R15)
	MOVD $1, R0
	BR   ·record(SB)

// record(faulted R0)
TEXT ·record(SB), NOSPLIT|NOFRAME, $0-0
	IPM_R2
	SRD  $28, R2
	AND  $3, R2
	MOVD const_stackFrame(R15), R8
	MOVD const_frameAt(R8), R1
	SLD  $const_slotShift, R1
	MOVD $const_frameOps(R8)(R1*1), R9
	MOVD $const_frameResults(R8)(R1*1), R7
	MOVD R2, const_resultFlags(R7)
	MVC  $120, const_stackCall(R15), const_resultRegs(R7)

	// What became of R13, other than what was loaded, became of what should have been.
	MOVD const_stackR13(R15), R1
	MOVD (const_stackCall+13*8)(R15), R2
	XOR  R2, R1
	MOVD (const_opRegs+13*8)(R9), R2
	XOR  R2, R1
	MOVD R1, (const_resultRegs+13*8)(R7)
	MOVD $0, R1
	MOVD R1, (const_resultRegs+15*8)(R7)
	CMPBNE R0, $0, faulted

	// Each step has left a byte 1: their number is the sum of the bytes, which a
	// multiplication has in its highest. (Go's assembler would have so long a constant
	// elsewhere in memory.)
	MOVD const_stackSteps(R15), R1
	MOVD $0x01010101, R2
	SLD  $32, R2, R3
	OR   R3, R2
	MULLD R2, R1
	SRD  $56, R1
	MOVD $(const_callSteps+1), R2
	SUB  R1, R2
	SLD  $2, R2
	MOVD R2, const_resultValue(R7)
	BR   ·back(SB)

faulted:
	BR ·code(SB)

// fault goes on after any other instruction that faulted in a kernel.
TEXT ·fault(SB), NOSPLIT|NOFRAME, $0-0
	MOVD const_stackFrame(R15), R8
	MOVD const_frameAt(R8), R1
	SLD  $const_slotShift, R1
	MOVD $const_frameResults(R8)(R1*1), R7
	BR   ·code(SB)

// code has the number of the exception, which is where the CPU left it. A kernel that has this
// elsewhere has nothing there: the access faults in turn.
TEXT ·code(SB), NOSPLIT|NOFRAME, $0-0
	MOVHZ const_lowcoreCode(R0), R1
	AND   $0x7f, R1
	ADD   $1, R1
	MOVD  R1, const_resultTrap(R7)
	BR    ·back(SB)

TEXT ·noCode(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $1, R1
	MOVD R1, const_resultTrap(R7)
	BR   ·back(SB)

TEXT ·stsi(SB), NOSPLIT|NOFRAME, $0-0
	STSI_R2
	RET

TEXT ·load1(SB), NOSPLIT|NOFRAME, $0-0
	MOVBZ (R2), R2
	RET

TEXT ·load2(SB), NOSPLIT|NOFRAME, $0-0
	MOVHZ (R2), R2
	RET

TEXT ·load4(SB), NOSPLIT|NOFRAME, $0-0
	MOVWZ (R2), R2
	RET

TEXT ·load8(SB), NOSPLIT|NOFRAME, $0-0
	MOVD (R2), R2
	RET

TEXT ·store1(SB), NOSPLIT|NOFRAME, $0-0
	MOVB R3, (R2)
	RET

TEXT ·store2(SB), NOSPLIT|NOFRAME, $0-0
	MOVH R3, (R2)
	RET

TEXT ·store4(SB), NOSPLIT|NOFRAME, $0-0
	MOVW R3, (R2)
	RET

TEXT ·store8(SB), NOSPLIT|NOFRAME, $0-0
	MOVD R3, (R2)
	RET

// The end of what is copied.
TEXT ·end(SB), NOSPLIT|NOFRAME, $0-0
	WORD $0

DATA ·entries+0(SB)/8, $·run(SB)
DATA ·entries+8(SB)/8, $·end(SB)
GLOBL ·entries(SB), RODATA|NOPTR, $16

// Pairs of an instruction that may fault and the place to go on at.
#define FIXUP(n, at, resume) \
	DATA ·fixups+((n)*16)(SB)/8, $at(SB); \
	DATA ·fixups+((n)*16+8)(SB)/8, $resume(SB)

FIXUP(0, ·form0, ·faultCall)
FIXUP(1, ·form1, ·faultCall)
FIXUP(2, ·form2, ·faultCall)
FIXUP(3, ·form3, ·faultCall)
FIXUP(4, ·form4, ·faultCall)
FIXUP(5, ·form5, ·faultCall)
FIXUP(6, ·form6, ·faultCall)
FIXUP(7, ·form7, ·faultCall)
FIXUP(8, ·form8, ·faultCall)
FIXUP(9, ·form9, ·faultCall)
FIXUP(10, ·form10, ·faultCall)
FIXUP(11, ·form11, ·faultCall)
FIXUP(12, ·form12, ·faultCall)
FIXUP(13, ·form13, ·faultCall)
FIXUP(14, ·form14, ·faultCall)
FIXUP(15, ·stsi, ·fault)
FIXUP(16, ·load1, ·fault)
FIXUP(17, ·load2, ·fault)
FIXUP(18, ·load4, ·fault)
FIXUP(19, ·load8, ·fault)
FIXUP(20, ·store1, ·fault)
FIXUP(21, ·store2, ·fault)
FIXUP(22, ·store4, ·fault)
FIXUP(23, ·store8, ·fault)
FIXUP(24, ·code, ·noCode)
GLOBL ·fixups(SB), RODATA|NOPTR, $(25*16)

// Run(frame *byte, flags uint64) uint64. A caller has 160 bytes of stack for the probe to
// keep registers in.
TEXT ·call(SB), 0, $160-24
	MOVD frame+0(FP), R2
	MOVD flags+8(FP), R3
	CALL ·run(SB)
	MOVD $0, R0
	MOVD R2, ret+16(FP)
	RET

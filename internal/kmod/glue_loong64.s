#include "go_asm.h"
#include "textflag.h"

// The functions that the kernel calls, in the calling convention of the LP64 ABI: arguments
// from R4 on, R1 the way back, R3 the stack pointer, R23 to R31 to be kept.

// set(val R4, param R5) makes the call that val describes.
TEXT ·set(SB), NOSPLIT|NOFRAME, $0-0
	ADDV $-16, R3
	MOVV R1, 8(R3)
	MOVV R23, 0(R3)
	MOVV const_paramArg(R5), R23
	MOVV const_callFunction(R4), R12
	MOVV const_callSecond(R4), R5
	MOVV const_callThird(R4), R6
	ADDV $const_callWords, R4, R7
	MOVV const_callFirst(R4), R4
	JAL  (R12)
	MOVV R4, const_controlResult(R23)
	MOVV 0(R3), R23
	MOVV 8(R3), R1
	ADDV $16, R3
	MOVV R0, R4
	RET

// get(buffer R4, param R5) copies what the control block says, and returns its length.
TEXT ·get(SB), NOSPLIT|NOFRAME, $0-0
	MOVV const_paramArg(R5), R5
	MOVV const_controlCount(R5), R6
	MOVV const_controlFrom(R5), R5
	SLLV $3, R6, R7

next:
	MOVV (R5), R8
	MOVV R8, (R4)
	ADDV $8, R5
	ADDV $8, R4
	ADDV $-1, R6
	BNE  R6, R0, next
	MOVV R7, R4
	RET

// put(to R4, count R5, 0, words R7) copies words to an address.
TEXT ·put(SB), NOSPLIT|NOFRAME, $0-0
next:
	MOVV (R7), R8
	MOVV R8, (R4)
	ADDV $8, R7
	ADDV $8, R4
	ADDV $-1, R5
	BNE  R5, R0, next
	MOVV R0, R4
	RET

// keep(val R4, param R5) notes where val is.
TEXT ·keep(SB), NOSPLIT|NOFRAME, $0-0
	MOVV const_paramArg(R5), R5
	MOVV R4, const_controlMemory(R5)
	MOVV R0, R4
	RET

// dying(block R4, what R5, args R6) has the kernel go on elsewhere after an instruction that the
// machine does not have, if it is one of those in the block.
TEXT ·dying(SB), NOSPLIT|NOFRAME, $0-0
	MOVV R4, R7
	MOVV $const_dieNone, R4
	MOVV $const_dieIllegal, R8
	BNE  R5, R8, notOurs
	MOVV const_dieRegisters(R6), R6
	MOVV const_dieAddress(R6), R5
	MOVV const_dieGuardCount(R7), R8
	ADDV $const_dieGuardPairs, R7

nextPair:
	BEQ  R8, R0, notOurs
	MOVV (R7), R9
	BEQ  R9, R5, ours
	ADDV $const_dieGuardPair, R7
	ADDV $-1, R8
	JMP  nextPair

ours:
	MOVV 8(R7), R9
	MOVV R9, const_dieAddress(R6)
	MOVV $const_dieTakenCare, R4

notOurs:
	RET

// The end of what is copied.
TEXT ·end(SB), NOSPLIT|NOFRAME, $0-0
	BREAK

DATA ·entries+0(SB)/8, $·set(SB)
DATA ·entries+8(SB)/8, $·get(SB)
DATA ·entries+16(SB)/8, $·put(SB)
DATA ·entries+24(SB)/8, $·keep(SB)
DATA ·entries+32(SB)/8, $·end(SB)
GLOBL ·entries(SB), RODATA|NOPTR, $40

DATA ·die+0(SB)/8, $·dying(SB)
GLOBL ·die(SB), RODATA|NOPTR, $8

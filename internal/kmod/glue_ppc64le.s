#include "go_asm.h"
#include "textflag.h"

// The functions that the kernel calls, in the calling convention of the 64-bit ELF V2 ABI:
// arguments from R3 on, R12 the address of what is called, R14 to R31 to be kept, 32 bytes
// at the stack pointer for what is called. Nothing here uses R2, the table of contents.

// set(val R3, param R4) makes the call that val describes.
TEXT ·set(SB), NOSPLIT|NOFRAME, $0-0
	MOVD  LR, R0
	MOVD  R0, 16(R1)
	MOVDU R1, -48(R1)
	MOVD  R14, 32(R1)
	MOVD  const_paramArg(R4), R14
	MOVD  const_callFunction(R3), R12
	MOVD  const_callSecond(R3), R4
	MOVD  const_callThird(R3), R5
	ADD   $const_callWords, R3, R6
	MOVD  const_callFirst(R3), R3
	MOVD  R12, CTR
	BL    (CTR)
	MOVD  R3, const_controlResult(R14)
	MOVD  32(R1), R14
	ADD   $48, R1
	MOVD  16(R1), R0
	MOVD  R0, LR
	MOVD  $0, R3
	RET

// get(buffer R3, param R4) copies what the control block says, and returns its length.
TEXT ·get(SB), NOSPLIT|NOFRAME, $0-0
	MOVD const_paramArg(R4), R4
	MOVD const_controlCount(R4), R5
	MOVD const_controlFrom(R4), R4
	MOVD R5, CTR
	SLD  $3, R5, R6

next:
	MOVD (R4), R7
	MOVD R7, (R3)
	ADD  $8, R4
	ADD  $8, R3
	BDNZ next
	MOVD R6, R3
	RET

// put(to R3, count R4, 0, words R6) copies words to an address.
TEXT ·put(SB), NOSPLIT|NOFRAME, $0-0
	MOVD R4, CTR

next:
	MOVD (R6), R7
	MOVD R7, (R3)
	ADD  $8, R6
	ADD  $8, R3
	BDNZ next
	MOVD $0, R3
	RET

// keep(val R3, param R4) notes where val is.
TEXT ·keep(SB), NOSPLIT|NOFRAME, $0-0
	MOVD const_paramArg(R4), R4
	MOVD R3, const_controlMemory(R4)
	MOVD $0, R3
	RET

// The end of what is copied.
TEXT ·end(SB), NOSPLIT|NOFRAME, $0-0
	WORD $0

DATA ·entries+0(SB)/8, $·set(SB)
DATA ·entries+8(SB)/8, $·get(SB)
DATA ·entries+16(SB)/8, $·put(SB)
DATA ·entries+24(SB)/8, $·keep(SB)
DATA ·entries+32(SB)/8, $·end(SB)
GLOBL ·entries(SB), RODATA|NOPTR, $40

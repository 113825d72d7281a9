#include "go_asm.h"
#include "textflag.h"

// The functions that the kernel calls, in the calling convention of the s390x ELF ABI:
// arguments from R2 on, R6 to R15 to be kept, 160 bytes above the stack pointer for those.

// set(val R2, param R3) makes the call that val describes.
TEXT ·set(SB), NOSPLIT|NOFRAME, $0-0
	STMG R6, R15, 48(R15)
	MOVD R15, R1
	ADD  $-160, R15
	MOVD R1, 0(R15)
	MOVD const_paramArg(R3), R6
	MOVD const_callFunction(R2), R1
	MOVD const_callSecond(R2), R3
	MOVD const_callThird(R2), R4
	MOVD R2, R5
	ADD  $const_callWords, R5
	MOVD const_callFirst(R2), R2
	CALL R1
	MOVD R2, const_controlResult(R6)
	LMG  (160+48)(R15), R6, R15
	MOVD $0, R2
	RET

// get(buffer R2, param R3) copies what the control block says, and returns its length.
TEXT ·get(SB), NOSPLIT|NOFRAME, $0-0
	MOVD const_paramArg(R3), R3
	MOVD const_controlCount(R3), R4
	MOVD const_controlFrom(R3), R3
	SLD  $3, R4, R5

next:
	MOVD   (R3), R1
	MOVD   R1, (R2)
	ADD    $8, R3
	ADD    $8, R2
	ADD    $-1, R4
	CMPBNE R4, $0, next
	MOVD   R5, R2
	RET

// put(to R2, count R3, 0, words R5) copies words to an address.
TEXT ·put(SB), NOSPLIT|NOFRAME, $0-0
next:
	MOVD   (R5), R1
	MOVD   R1, (R2)
	ADD    $8, R5
	ADD    $8, R2
	ADD    $-1, R3
	CMPBNE R3, $0, next
	MOVD   $0, R2
	RET

// keep(val R2, param R3) notes where val is.
TEXT ·keep(SB), NOSPLIT|NOFRAME, $0-0
	MOVD const_paramArg(R3), R1
	MOVD R2, const_controlMemory(R1)
	MOVD $0, R2
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

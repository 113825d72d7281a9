#include "go_asm.h"
#include "textflag.h"

// The functions that the kernel calls, in the System V calling convention. ENDBR64 is for
// kernels that track where indirect calls go (IBT).

// set(val DI, param SI) makes the call that val describes.
TEXT ·set(SB), NOSPLIT|NOFRAME, $0-0
	ENDBR64
	PUSHQ BX
	MOVQ  const_paramArg(SI), BX
	MOVQ  DI, CX
	MOVQ  const_callFunction(CX), AX
	MOVQ  const_callFirst(CX), DI
	MOVQ  const_callSecond(CX), SI
	MOVQ  const_callThird(CX), DX
	ADDQ  $const_callWords, CX
	CALL  AX
	MOVQ  AX, const_controlResult(BX)
	XORL  AX, AX
	POPQ  BX
	RET

// get(buffer DI, param SI) copies what the control block says, and returns its length.
TEXT ·get(SB), NOSPLIT|NOFRAME, $0-0
	ENDBR64
	MOVQ const_paramArg(SI), SI
	MOVQ const_controlCount(SI), CX
	MOVQ const_controlFrom(SI), SI
	MOVQ CX, AX
	SHLQ $3, AX

next:
	MOVQ (SI), DX
	MOVQ DX, (DI)
	ADDQ $8, SI
	ADDQ $8, DI
	DECQ CX
	JNE  next
	RET

// put(to DI, count SI, 0, words CX) copies words to an address.
TEXT ·put(SB), NOSPLIT|NOFRAME, $0-0
	ENDBR64

next:
	MOVQ (CX), DX
	MOVQ DX, (DI)
	ADDQ $8, CX
	ADDQ $8, DI
	DECQ SI
	JNE  next
	XORL AX, AX
	RET

// keep(val DI, param SI) notes where val is.
TEXT ·keep(SB), NOSPLIT|NOFRAME, $0-0
	ENDBR64
	MOVQ const_paramArg(SI), AX
	MOVQ DI, const_controlMemory(AX)
	XORL AX, AX
	RET

// The end of what is copied.
TEXT ·end(SB), NOSPLIT|NOFRAME, $0-0
	INT $3

DATA ·entries+0(SB)/8, $·set(SB)
DATA ·entries+8(SB)/8, $·get(SB)
DATA ·entries+16(SB)/8, $·put(SB)
DATA ·entries+24(SB)/8, $·keep(SB)
DATA ·entries+32(SB)/8, $·end(SB)
GLOBL ·entries(SB), RODATA|NOPTR, $40

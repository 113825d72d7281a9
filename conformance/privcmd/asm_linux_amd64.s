#include "textflag.h"

// func cpuid(leaf, subleaf uint32) (a, b, c, d uint32)
//
// CPUID behind the prefix that has Xen answer (arch/x86/include/asm/emulate_prefix.h).
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL subleaf+4(FP), CX
	BYTE $0x0f; BYTE $0x0b; BYTE $0x78; BYTE $0x65; BYTE $0x6e
	CPUID
	MOVL AX, a+8(FP)
	MOVL BX, b+12(FP)
	MOVL CX, c+16(FP)
	MOVL DX, d+20(FP)
	RET

// func clock() uint64
TEXT ·clock(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

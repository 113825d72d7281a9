#include "textflag.h"

// func out(port uint16, value byte)
TEXT ·out(SB), NOSPLIT, $0-3
	MOVW	port+0(FP), DX
	MOVB	value+2(FP), AX
	OUTB
	RET

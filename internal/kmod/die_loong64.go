//lint:file-ignore U1000 the assembler takes the numbers from go_asm.h

package kmod

import "unsafe"

// die is where the assembler put the function for Probe.Illegal.
var die unsafe.Pointer

// What that is given and may give (arch/loongarch/include/asm/kdebug.h, include/linux/kdebug.h,
// include/linux/notifier.h, arch/loongarch/include/asm/ptrace.h; Linux 7.2).
const (
	dieIllegal    = 2      // DIE_RI
	dieRegisters  = 0      // offset of regs in struct die_args
	dieAddress    = 33 * 8 // offset of csr_era in struct pt_regs
	dieNone       = 0      // NOTIFY_DONE
	dieTakenCare  = 0x8001 // NOTIFY_STOP
	dieGuardCount = guardCount
	dieGuardPairs = guardPairs
	dieGuardPair  = guardPair
)

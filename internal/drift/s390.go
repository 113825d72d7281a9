package drift

import (
	"fmt"

	"pvabi/abi"
)

// s390 binds s390. SIGNAL PROCESSOR's orders are macros. DIAGNOSE codes are numbers in
// assembler, but each that the kernel makes has a counter whose name has the code.
func s390() table {
	return table{
		abi:    abi.S390,
		goarch: "s390x",
		headers: []header{
			{file: "arch/s390/include/asm/sigp.h", assembler: true},
			{file: "arch/s390/include/uapi/asm/virtio-ccw.h"},
			{file: "include/uapi/linux/if_ether.h", assembler: true}, // for diag.h
			{file: "arch/s390/include/asm/diag.h"},
		},
		prelude: `
#define asm_inline asm
#define EX_TABLE(fault, target)
#define __packed __attribute__((__packed__))
#define __aligned(n) __attribute__((__aligned__(n)))
`,
		bindings: s390Bindings,
		families: []family{
			{prefix: "SIGP_", known: names("SIGP_CC_ORDER_CODE_ACCEPTED")},
			// Codes that have nothing to do with scheduling, and 0x500, which is a calling
			// convention in abi.
			{prefix: "DIAG_STAT_", known: names(`DIAG_STAT_X500
				DIAG_STAT_X008 DIAG_STAT_X00C DIAG_STAT_X014 DIAG_STAT_X064 DIAG_STAT_X08C DIAG_STAT_X0DC
				DIAG_STAT_X204 DIAG_STAT_X210 DIAG_STAT_X224 DIAG_STAT_X250 DIAG_STAT_X26C DIAG_STAT_X2C4
				DIAG_STAT_X2FC DIAG_STAT_X304 DIAG_STAT_X310 DIAG_STAT_X320 DIAG_STAT_X324`)},
		},
		documents: []document{
			{file: "Documentation/virt/kvm/s390/s390-diag.rst", looks: []look{diagnoseCodes}},
		},
	}
}

func s390Bindings(p *abi.Platform) []binding {
	var out []binding
	for _, c := range p.Calls {
		at := "calls/" + c.Name + "/number"
		switch p.ConventionOf(c.Name).Name {
		case "SIGNAL PROCESSOR":
			out = append(out, binding{number: at, c: "SIGP_" + c.Name})
		case "DIAGNOSE":
			// BREAKPOINT is made by debuggers, not by the kernel.
			if c.Name == "BREAKPOINT" {
				continue
			}
			out = append(out, binding{number: at, c: fmt.Sprintf("DIAG_STAT_X%03X", c.Number), what: exists, since: since(p, c.Feature)})
		}
	}
	// A result is the condition code times 2^32 plus the status.
	const stored = "((unsigned long)SIGP_CC_STATUS_STORED << 32 | SIGP_STATUS_%s)"
	for _, name := range []string{"INVALID_ORDER", "CHECK_STOP", "STOPPED", "EXT_CALL_PENDING", "INVALID_PARAMETER", "INCORRECT_STATE", "NOT_RUNNING"} {
		out = append(out, binding{number: "errors/" + name + "/result", c: fmt.Sprintf(stored, name)})
	}
	for _, name := range []string{"BUSY", "NOT_OPERATIONAL"} {
		out = append(out, binding{number: "errors/" + name + "/result", c: fmt.Sprintf("((unsigned long)SIGP_CC_%s << 32)", name)})
	}
	return append(out, binding{number: "calls/VIRTIO_CCW_NOTIFY/number", c: "KVM_S390_VIRTIO_CCW_NOTIFY"})
}

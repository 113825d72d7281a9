package drift

import (
	_ "embed"

	"pvabi/abi"
)

// hvcallOther are the names of hvcall.h, as of 7.2, that have nothing to do with
// scheduling.
//
//go:embed hvcall.txt
var hvcallOther string

// powerpcPAPR binds powerpc-papr. Calls are H_NAME, and so are the error codes.
func powerpcPAPR() table {
	return table{
		abi:    abi.PowerPCPAPR,
		goarch: "ppc64le",
		headers: []header{
			{file: "arch/powerpc/include/asm/hvcall.h", assembler: true},
			{file: "arch/powerpc/include/asm/lppaca.h"},
			{file: "arch/powerpc/include/asm/dtl.h"},
		},
		// SLB_NUM_BOLTED is of book3s/64/mmu-hash.h, a constant since 2.6.
		prelude: `
#define SLB_NUM_BOLTED 2
#define __KERNEL__ 1
#define CONFIG_PPC_BOOK3S 1
#define CONFIG_PPC_PSERIES 1
#define ____cacheline_aligned __attribute__((__aligned__(128)))
`,
		bindings: powerpcBindings,
		families: []family{
			{prefix: "H_", known: names(hvcallOther)},
			{prefix: "DTL_LOG_", known: names("DTL_LOG_ALL")},
			{prefix: "LPPACA_"},
		},
		documents: []document{
			{file: "Documentation/arch/powerpc/papr_hcalls.rst", looks: []look{unknownNames}},
		},
	}
}

func powerpcBindings(p *abi.Platform) []binding {
	// The kernel keeps the pairs of slb_shadow in an array, and rounds its size up.
	out := members(p, "slb_shadow")
	for _, c := range p.Calls {
		out = append(out, binding{number: "calls/" + c.Name + "/number", c: "H_" + c.Name})
	}
	for _, e := range p.Errors {
		out = append(out, binding{number: "errors/" + e.Name + "/result", c: "H_" + e.Name})
	}
	for _, name := range []string{"CEDE", "PREEMPT", "FAULT"} {
		out = append(out, binding{number: "layouts/lppaca/bits/dtl_enable_mask." + name + "/bit", c: "DTL_LOG_" + name, what: bit})
	}
	return append(out,
		binding{number: "layouts/lppaca/bits/__old_status.SHARED_PROC/bit", c: "LPPACA_OLD_SHARED_PROC", what: bit},
		binding{number: "discovery/last-call/number", c: "MAX_HCALL_OPCODE"},
		binding{number: "layouts/slb_shadow/fields/persistent/offset", c: "slb_shadow.persistent", what: offset},
		binding{number: "layouts/slb_shadow/fields/buffer_length/offset", c: "slb_shadow.buffer_length", what: offset},
	)
}

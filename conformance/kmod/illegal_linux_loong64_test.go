package kmod

import (
	"pvabi/arch"
	"pvabi/arch/loong64"
)

// illegal are operations that the machine does not have, and illegalTrap what they leave: the
// guests of these tests have no hypervisor that takes calls.
var illegal = func() (out []arch.Op) {
	for _, form := range loong64.ISA.Instructions {
		o := loong64.Hypercall(form, 1, 2, 3)
		o.Regs[loong64.ISA.Register("r18")] = 0x0123456789abcdef
		out = append(out, o)
	}
	return out
}()

const illegalTrap = loong64.Illegal

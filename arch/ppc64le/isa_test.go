package ppc64le

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/arch"
)

func TestRegisters(t *testing.T) {
	assert.Len(t, ISA.Registers, len(arch.Op{}.Regs))
	for i, name := range ISA.Registers {
		assert.Equal(t, i, ISA.Register(name))
	}
	assert.Zero(t, ISA.Instruction("sc 1"))
}

func TestHcall(t *testing.T) {
	o := Hcall(0xe4, 7, 8)
	assert.Equal(t, arch.Call, o.Kind)
	for name, want := range map[string]uint64{"r3": 0xe4, "r4": 7, "r5": 8, "r6": 0} {
		assert.Equal(t, want, o.Regs[ISA.Register(name)], name)
	}
	many := Hcall(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	assert.Equal(t, uint64(9), many.Regs[ISA.Register("r12")])
	assert.Zero(t, many.Regs[ISA.Register("lr")], "what comes after R12")
}

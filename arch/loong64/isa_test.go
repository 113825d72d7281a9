package loong64

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
	assert.Len(t, ISA.Instructions, forms)
}

func TestHypercall(t *testing.T) {
	o := Hypercall("hvcl 0x102", 1, 2, 3)
	assert.Equal(t, arch.Op{Kind: arch.Call, Arg: [6]uint64{2}, Regs: [16]uint64{1: 1, 2: 2, 3: 3}}, o)
	assert.Panics(t, func() { Hypercall("hvcl 0x104", 0) })
}

package s390x

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
	for i, name := range ISA.Instructions {
		assert.Equal(t, uint64(i), ISA.Instruction(name), "names are different")
	}
}

func TestForm(t *testing.T) {
	o := Form("diag r5,r0,0x9c", map[string]uint64{"r5": 7})
	assert.Equal(t, arch.Op{Kind: arch.Call, Arg: [6]uint64{3}, Regs: [16]uint64{5: 7}}, o)
	assert.Panics(t, func() { Form("diag r5,r0,0x9d", nil) })
}

func TestSignal(t *testing.T) {
	o := Signal(0x15, 2, 9)
	assert.Equal(t, "sigp r2,r4,0x0(r5)", ISA.Instructions[o.Arg[0]])
	assert.Equal(t, [16]uint64{3: 9, 4: 2, 5: 0x15}, o.Regs)
}

func TestInstructionLength(t *testing.T) {
	// The two highest bits of an instruction tell its length (z/Architecture Principles of
	// Operation, "Instruction formats").
	for first, want := range map[byte]int{0x07: 2, 0x83: 4, 0xb2: 4, 0xe3: 6} {
		assert.Equal(t, want, instructionLength(first), "%#x", first)
	}
}

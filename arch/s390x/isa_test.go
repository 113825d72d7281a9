package s390x

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestInstructions(t *testing.T) {
	code := []byte{
		0x07, 0x07, // nopr %r7
		0xae, 0x12, 0x00, 0x15, // sigp %r1,%r2,21
		0x83, 0x20, 0x00, 0x9c, // diag %r2,%r0,156
		0xc0, 0xe5, 0xff, 0xff, 0xff, 0xfe, // brasl %r14,.-4
		0xc0, 0x10, 0x00, 0x00, 0x00, 0x08, // larl %r1,.+16
		0xc0, 0xf4, 0x00, 0x00, 0x00, 0x03, // jg .+6
		0xc0, 0xe5, // half of one
	}
	all := Instructions(code)
	require.Len(t, all, 6)
	at := []int{0, 2, 6, 10, 16, 22}
	for i, in := range all {
		assert.Equal(t, at[i], in.At)
		assert.Equal(t, i == 1, in.Signals(), "instruction %d is SIGNAL PROCESSOR", i)
		assert.Equal(t, i == 2, in.Diagnoses(0x9c), "instruction %d is DIAGNOSE", i)
		distance, calls := in.Calls()
		assert.Equal(t, i == 3, calls, "instruction %d calls", i)
		assert.Equal(t, map[int]int{3: -4}[i], distance)
	}
	assert.False(t, all[2].Diagnoses(0x44))
}

package amd64

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
	assert.Equal(t, uint64(0), ISA.Instruction("vmcall"))
	assert.Equal(t, uint64(1), ISA.Instruction("vmmcall"))
	assert.PanicsWithValue(t, `arch: no register named "eax"`, func() { ISA.Register("eax") })
}

func TestInterruptCommands(t *testing.T) {
	// Intel SDM volume 3, "Interrupt command register (ICR)": destination in the upper
	// half, level assert in bit 14, delivery mode in bits 8 to 10 (0 fixed, 4 NMI).
	for name, tc := range map[string]struct {
		op   arch.Op
		want uint64
	}{
		"fixed":              {Interrupt(9, 0x41), 9<<32 | 0x4041},
		"largest of xAPIC":   {Interrupt(254, 0xff), 254<<32 | 0x40ff},
		"only an x2APIC has": {Interrupt(0x12345, 0x20), 0x12345<<32 | 0x4020},
		"NMI":                {NonMaskable(3), 3<<32 | 0x4400},
	} {
		assert.Equal(t, arch.WriteRegister, tc.op.Kind, name)
		assert.Equal(t, [6]uint64{0x830, tc.want}, tc.op.Arg, name)
	}
}

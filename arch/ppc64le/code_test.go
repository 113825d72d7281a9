package ppc64le

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/arch/ppc64/ppc64asm"
)

// step is a decoded instruction.
type step struct {
	ppc64asm.Inst
	// to is where the instruction may go on in the probe, but for what comes next.
	to []int
	// last says that it does not go on at what comes next.
	last bool
}

func decode(code []byte, at int) (step, error) {
	i, err := ppc64asm.Decode(code[at:], binary.LittleEndian)
	if err != nil {
		return step{}, fmt.Errorf("offset %#x: % x: %w", at, code[at:at+4], err)
	}
	s := step{Inst: i}
	for _, arg := range i.Args {
		if a, ok := arg.(ppc64asm.PCRel); ok {
			s.to = append(s.to, at+int(a))
		}
	}
	switch i.Op {
	case ppc64asm.B, ppc64asm.BCLR, ppc64asm.RFID:
		s.last = true
	}
	return s, nil
}

// walk decodes all that can be reached from Run and from fixups.
func walk(t *testing.T, c *Code) map[int]step {
	t.Helper()
	todo := []int{c.Run}
	for _, f := range c.Fixups {
		todo = append(todo, f.At, f.Resume)
	}
	return walkFrom(t, c, todo...)
}

func walkFrom(t *testing.T, c *Code, todo ...int) map[int]step {
	t.Helper()
	seen := map[int]step{}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, ok := seen[at]; ok {
			continue
		}
		require.True(t, at >= 0 && at+4 <= len(c.Bytes) && at%4 == 0, "offset %#x is not in the probe of %#x bytes", at, len(c.Bytes))
		s, err := decode(c.Bytes, at)
		require.NoError(t, err)
		seen[at] = s
		todo = append(todo, s.to...)
		if !s.last {
			todo = append(todo, at+4)
		}
	}
	return seen
}

func TestReachableCodeStaysInside(t *testing.T) {
	seen := walk(t, copyOf(t)) // which requires it of all targets
	for _, at := range slices.Sorted(maps.Keys(seen)) {
		s := seen[at]
		switch s.Op {
		case ppc64asm.BCCTR, ppc64asm.BCCTRL, ppc64asm.BA, ppc64asm.BLA:
			assert.Fail(t, "a jump to who knows where", "%#x: %v", at, s)
		case ppc64asm.BCLR:
			assert.Equal(t, ppc64asm.Imm(20), s.Args[0], "%#x: %v is conditional", at, s)
		}
		// Memory relative to a TOC or to what a CPU or thread has of its own.
		for i, arg := range s.Args {
			if _, ok := arg.(ppc64asm.Offset); ok {
				assert.NotContains(t, []ppc64asm.Arg{ppc64asm.R2, ppc64asm.R13}, s.Args[i+1], "%#x: %v", at, s)
			}
		}
	}
}

func TestInstructionsOccurAsOftenAsAskedFor(t *testing.T) {
	got := map[ppc64asm.Op]int{}
	for at, s := range walk(t, copyOf(t)) {
		got[s.Op]++
		if s.Op == ppc64asm.SC {
			assert.Equal(t, ppc64asm.Imm(1), s.Args[0], "%#x: %v", at, s)
		}
		if s.Op == ppc64asm.MTMSRD {
			assert.Equal(t, ppc64asm.Imm(1), s.Args[1], "%#x: %v changes more than EE and RI", at, s)
		}
	}
	for op, want := range map[ppc64asm.Op]int{
		ppc64asm.SC: 1, ppc64asm.MTMSRD: 3, ppc64asm.MTMSR: 0, ppc64asm.RFID: 0, ppc64asm.HRFID: 0, ppc64asm.TLBIE: 0,
	} {
		assert.Equal(t, want, got[op], "number of %v", op)
	}
}

// A special purpose register that a machine does not have is an exception that a kernel dies of.
func TestSpecialPurposeRegisters(t *testing.T) {
	const xer, lr, ctr = 1, 8, 9
	read := map[uint32]bool{xer: true, lr: true, ctr: true, DEC: true, sprSRR0: true, sprSRR1: true, CTRL: true, VRSAVE: true, TB: true, PVR: true, SPURR: true, PURR: true, VTB: true}
	written := map[uint32]bool{xer: true, lr: true, ctr: true, DEC: true, sprSRR0: true, sprSRR1: true, VRSAVE: true}
	gotRead, gotWritten := map[uint32]bool{}, map[uint32]bool{}
	for _, s := range walk(t, copyOf(t)) {
		// Primary opcode 31; mfspr is 339, mtspr 467, with the halves of the number swapped.
		w := s.Enc
		number := w>>16&0x1f | w>>11&0x1f<<5
		switch {
		case w>>26 == 31 && w>>1&0x3ff == 339:
			gotRead[number] = true
		case w>>26 == 31 && w>>1&0x3ff == 467:
			gotWritten[number] = true
		}
	}
	assert.Equal(t, read, gotRead, "registers that are read")
	assert.Equal(t, written, gotWritten, "registers that are written")
}

func TestFixups(t *testing.T) {
	c := copyOf(t)
	var got []string
	for _, f := range c.Fixups {
		s, err := decode(c.Bytes, f.At)
		require.NoError(t, err)
		got = append(got, s.Op.String())
		assert.Equal(t, c.Fixups[0].Resume, f.Resume)
	}
	assert.Equal(t, []string{"lbz", "lhz", "lwz", "ld", "stb", "sth", "stw", "std"}, got, "instructions that may fault")
}

func TestNoPrologueOfGo(t *testing.T) {
	// A prologue would compare the stack pointer with a bound in g.
	c := copyOf(t)
	for at, s := range walk(t, c) {
		switch s.Op {
		case ppc64asm.CMPLD, ppc64asm.CMPD:
			assert.NotContains(t, s.Args, ppc64asm.R1, "%#x: %v", at, s)
		}
	}
	first, err := decode(c.Bytes, c.Run)
	require.NoError(t, err)
	assert.Equal(t, "mflr r0", ppc64asm.GNUSyntax(first.Inst, 0), "first instruction of Run")
}

func TestLengthIsMeasuredByInstructionsOfItsLength(t *testing.T) {
	c := copyOf(t)
	for at, s := range walk(t, c) {
		if s.Op != ppc64asm.SC {
			continue
		}
		for n := range callSteps {
			s, err := decode(c.Bytes, at+4+4*n)
			require.NoError(t, err)
			assert.Equal(t, "addi r31,r31,1", ppc64asm.GNUSyntax(s.Inst, 0), "step %d", n)
		}
	}
}

func TestGateKeepsRegisters(t *testing.T) {
	c := copyOf(t)
	got := map[ppc64asm.Op]int{}
	stored, loaded := map[ppc64asm.Arg]bool{}, map[ppc64asm.Arg]bool{}
	for at, s := range walkFrom(t, c, c.Gate) {
		got[s.Op]++
		switch s.Op {
		case ppc64asm.BCLR, ppc64asm.BCCTR, ppc64asm.BL:
			assert.Fail(t, "a jump to who knows where", "%#x: %v", at, s)
		case ppc64asm.STD:
			stored[s.Args[0]] = true
		case ppc64asm.LD, ppc64asm.LWZ:
			loaded[s.Args[0]] = true
		}
	}
	for op, want := range map[ppc64asm.Op]int{ppc64asm.RFID: 2, ppc64asm.SC: 3, ppc64asm.MTMSRD: 0, ppc64asm.MFCR: 1, ppc64asm.MTCRF: 1} {
		assert.Equal(t, want, got[op], "number of %v", op)
	}
	// Of those that the calls of an external interrupt may change; R3, R4 and LR are in SPRGs.
	for _, r := range []ppc64asm.Reg{ppc64asm.R0, ppc64asm.R5, ppc64asm.R6, ppc64asm.R7, ppc64asm.R8, ppc64asm.R9, ppc64asm.R10, ppc64asm.R11, ppc64asm.R12} {
		assert.True(t, stored[r] && loaded[r], "%v is kept", r)
	}
}

func TestGuestCallsRunAndLeaves(t *testing.T) {
	c := copyOf(t)
	var to []int
	var stores []string
	for at, s := range walkFrom(t, c, c.Guest) {
		if at >= c.Guest && at < c.Gate {
			to = append(to, s.to...)
			if s.Op == ppc64asm.STB {
				stores = append(stores, ppc64asm.GNUSyntax(s.Inst, 0))
			}
		}
	}
	assert.Contains(t, to, c.Run)
	assert.Equal(t, []string{"stb r3,0(r16)"}, stores)
}

func TestVectorsCallTheGate(t *testing.T) {
	const gate = 0x21234
	b := Vectors(gate)
	require.Len(t, b, vectorsSize)
	for at := 0; at < len(b); at += vectorsStride {
		var got []string
		for i := range 3 {
			s, err := decode(b, at+4*i)
			require.NoError(t, err)
			got = append(got, ppc64asm.GNUSyntax(s.Inst, 0))
		}
		require.Equal(t, []string{"mtspr 273,r3", "mflr r3", "mtspr 274,r3"}, got, "vector %#x", at)
		s, err := decode(b, at+gateCall-4)
		require.NoError(t, err)
		require.Equal(t, ppc64asm.BL, s.Op)
		require.Equal(t, []int{gate}, s.to, "vector %#x", at)
	}
}

func TestBranches(t *testing.T) {
	var code []byte
	for _, word := range []uint32{0x60000000, 0x48000011, 0x4bfffff5, 0x48000010, 0x48000013, 0x44000022} {
		code = binary.LittleEndian.AppendUint32(code, word)
	}
	// A nop, bl .+16, bl .-12, b, bla, sc 1.
	assert.Equal(t, []Branch{{4, 16}, {8, -12}}, Branches(code))
	assert.Empty(t, Branches(code[:6]), "half an instruction")
	assert.True(t, Calls(code))
	assert.False(t, Calls(code[:20]))
}

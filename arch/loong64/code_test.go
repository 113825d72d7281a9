package loong64

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/arch/loong64/loong64asm"
)

// step is a decoded instruction.
type step struct {
	loong64asm.Inst
	// call is the code of an HVCL, or -1. loong64asm does not know that.
	call int
	// to is where the instruction may go on in the probe, but for what comes next.
	to []int
	// last says that it does not go on at what comes next.
	last bool
}

func decode(code []byte, at int) (step, error) {
	word := binary.LittleEndian.Uint32(code[at:])
	if word>>15 == 0x2b8000>>15 {
		return step{call: int(word & 0x7fff)}, nil
	}
	i, err := loong64asm.Decode(code[at:])
	if err != nil {
		return step{}, fmt.Errorf("offset %#x: %#08x: %w", at, word, err)
	}
	s := step{Inst: i, call: -1}
	for _, arg := range i.Args {
		if a, ok := arg.(loong64asm.OffsetSimm); ok {
			s.to = append(s.to, at+int(a.Imm))
		}
	}
	switch i.Op {
	case loong64asm.B:
		s.last = true
	case loong64asm.JIRL:
		s.last, s.to = true, nil
	}
	return s, nil
}

// walk decodes all that can be reached from Run and from fixups.
func walk(t *testing.T, c *Code) map[int]step {
	t.Helper()
	todo := []int{c.Run}
	for _, f := range slices.Concat(c.Fixups, c.Illegal) {
		todo = append(todo, f.At, f.Resume)
	}
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
	const ret = 0x4c000020                  // jirl r0, r1, 0
	for at, s := range walk(t, copyOf(t)) { // which requires it of all targets
		switch s.Op {
		case loong64asm.JIRL:
			assert.Equal(t, uint32(ret), s.Enc, "%#x: %v is no return", at, s)
		case loong64asm.PCADDI, loong64asm.PCADDU12I, loong64asm.PCADDU18I, loong64asm.PCALAU12I:
			assert.Fail(t, "an address of its own", "%#x: %v", at, s)
		}
	}
}

func TestInstructionsOccurAsOftenAsAskedFor(t *testing.T) {
	got := map[loong64asm.Op]int{}
	for _, s := range walk(t, copyOf(t)) {
		if s.call < 0 {
			got[s.Op]++
		}
	}
	for op, want := range map[loong64asm.Op]int{
		loong64asm.CSRXCHG: 4, loong64asm.CSRRD: 10, loong64asm.CSRWR: 3, loong64asm.IDLE: 1, loong64asm.IOCSRRD_W: 1,
		loong64asm.IOCSRWR_W: 1, loong64asm.CPUCFG: 1, loong64asm.ERTN: 0, loong64asm.SYSCALL: 0, loong64asm.BREAK: 0,
	} {
		assert.Equal(t, want, got[op], "number of %v", op)
	}
}

func TestForms(t *testing.T) {
	c := copyOf(t)
	got := map[int]bool{}
	for at, s := range walk(t, c) {
		if s.call < 0 {
			continue
		}
		assert.False(t, got[s.call], "hvcl %#x occurs twice", s.call)
		got[s.call] = true
		for n := range callSteps {
			step, err := decode(c.Bytes, at+4+4*n)
			require.NoError(t, err)
			assert.Equal(t, uint32(0x02c007ff), step.Enc, "hvcl %#x: step %d is addi.d r31, r31, 1", s.call, n)
		}
	}
	want := map[int]bool{}
	for _, name := range ISA.Instructions {
		code, err := strconv.ParseUint(strings.TrimPrefix(name, "hvcl "), 0, 15)
		require.NoError(t, err, name)
		want[int(code)] = true
	}
	assert.Equal(t, want, got)
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
	assert.Equal(t, []string{"LD.BU", "LD.HU", "LD.WU", "LD.D", "ST.B", "ST.H", "ST.W", "ST.D"}, got, "instructions that may fault")
}

func TestIllegal(t *testing.T) {
	c := copyOf(t)
	var got []string
	for _, f := range c.Illegal {
		s, err := decode(c.Bytes, f.At)
		require.NoError(t, err)
		got = append(got, fmt.Sprintf("hvcl %#x", s.call))
		assert.Equal(t, c.Illegal[0].Resume, f.Resume)
	}
	assert.Equal(t, ISA.Instructions, got, "instructions that a machine may not have")
}

func TestNoPrologueOfGo(t *testing.T) {
	// A prologue would compare the stack pointer with a bound in g.
	c := copyOf(t)
	for at, s := range walk(t, c) {
		switch s.Op {
		case loong64asm.BLT, loong64asm.BLTU, loong64asm.BGE, loong64asm.BGEU, loong64asm.SLT, loong64asm.SLTU:
			assert.NotContains(t, s.Args, loong64asm.R3, "%#x: %v", at, s)
		}
	}
	first, err := decode(c.Bytes, c.Run)
	require.NoError(t, err)
	assert.Equal(t, loong64asm.ADDI_D, first.Op, "first instruction of Run")
}

package amd64

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/arch/x86/x86asm"
)

// The call instructions and ENDBR64, which x86asm does not know.
var unknown = map[string][]byte{
	"VMCALL":  Encodings[ISA.Instruction("vmcall")],
	"VMMCALL": Encodings[ISA.Instruction("vmmcall")],
	"ENDBR64": {0xf3, 0x0f, 0x1e, 0xfa},
}

// step is a decoded instruction.
type step struct {
	name string
	inst x86asm.Inst
	len  int
	// to is where the instruction may go on in the probe, but for what comes next.
	to []int
	// last says that it does not go on at what comes next.
	last bool
}

func decode(code []byte, at int) (step, error) {
	for name, b := range unknown {
		if bytes.HasPrefix(code[at:], b) {
			return step{name: name, len: len(b)}, nil
		}
	}
	i, err := x86asm.Decode(code[at:], 64)
	if err != nil {
		return step{}, fmt.Errorf("offset %#x: % x: %w", at, code[at:min(at+15, len(code))], err)
	}
	s := step{name: i.Op.String(), inst: i, len: i.Len}
	for _, arg := range i.Args {
		switch a := arg.(type) {
		case x86asm.Rel:
			s.to = append(s.to, at+i.Len+int(a))
		case x86asm.Mem:
			if a.Base == x86asm.RIP {
				s.to = append(s.to, at+i.Len+int(a.Disp))
			}
		}
	}
	switch i.Op {
	case x86asm.JMP, x86asm.RET, x86asm.IRETQ:
		s.last = true
	}
	return s, nil
}

// gates are the entries of a bare CPU.
func gates(c *Code) []int {
	out := []int{c.Guest}
	for v := range 256 {
		out = append(out, c.Vectors+v*VectorStride)
	}
	return out
}

// walk decodes all that can be reached from Run, from the places to go on at after a
// fault, and from more entries.
func walk(t *testing.T, c *Code, more ...int) map[int]step {
	t.Helper()
	todo := append([]int{c.Run}, more...)
	for _, f := range c.Fixups {
		todo = append(todo, f.At, f.Resume)
	}
	seen := map[int]step{}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, ok := seen[at]; ok {
			continue
		}
		require.True(t, at >= 0 && at < len(c.Bytes), "offset %#x is outside the probe of %#x bytes", at, len(c.Bytes))
		s, err := decode(c.Bytes, at)
		require.NoError(t, err)
		if at >= c.Vectors && at < c.Vectors+256*VectorStride {
			s.last = true // a gate's call is for the address alone
		}
		seen[at] = s
		todo = append(todo, s.to...)
		if !s.last {
			todo = append(todo, at+s.len)
		}
	}
	return seen
}

func copyOf(t *testing.T) *Code {
	t.Helper()
	c, err := Copy()
	require.NoError(t, err)
	return c
}

func TestReachableCodeStaysInside(t *testing.T) {
	c := copyOf(t)
	seen := walk(t, c, gates(c)...) // which requires it of all targets
	for at, s := range seen {
		for _, arg := range s.inst.Args {
			m, ok := arg.(x86asm.Mem)
			if !ok {
				continue
			}
			assert.True(t, m.Base != 0 || m.Segment == x86asm.GS, "%#x: %v refers to an absolute address", at, s.inst)
			if m.Base == x86asm.RIP {
				assert.Equal(t, "LEA", s.name, "%#x: %v uses memory of its own", at, s.inst)
			}
		}
	}
	overlaps := 0
	next := 0
	for _, at := range slices.Sorted(maps.Keys(seen)) {
		if at < next {
			overlaps++
		}
		next = at + seen[at].len
	}
	assert.Zero(t, overlaps, "instructions that begin inside others")
}

// Only a bare CPU has the frame at GS, which is somebody else's in a kernel or a process.
func TestRunUsesNoSegment(t *testing.T) {
	for at, s := range walk(t, copyOf(t)) {
		for _, arg := range s.inst.Args {
			if m, ok := arg.(x86asm.Mem); ok {
				assert.Zero(t, m.Segment, "%#x: %v", at, s.inst)
			}
		}
	}
}

func TestInstructionsOccurAsOftenAsAskedFor(t *testing.T) {
	got := map[string]int{}
	c := copyOf(t)
	for _, s := range walk(t, c, gates(c)...) {
		got[s.name]++
	}
	for name, want := range map[string]int{
		"VMCALL": 2, "VMMCALL": 2, // a call and the measuring of its length
		"RDMSR": 1, "WRMSR": 2, // the operation and the end of an interrupt
		"STI": 2, "CLI": 3, "HLT": 2,
		"CPUID": 1, "RDTSC": 1, "LFENCE": 1,
		"OUT": 0, "IN": 1,
		"IRETQ": 2, "ENDBR64": 1,
		"SYSCALL": 0, "SYSENTER": 0, "SWAPGS": 0, "INVLPG": 0, "WBINVD": 0, "LGDT": 0, "LIDT": 0, "LTR": 0, "INT": 0, "UD2": 0,
	} {
		assert.Equal(t, want, got[name], "number of %s", name)
	}
}

// privileged instructions of the probe trap at privilege level 3, so they must be where a
// trap can be told to belong to an operation.
func TestPrivilegedInstructionsHaveFixups(t *testing.T) {
	c := copyOf(t)
	fixed := map[int]bool{}
	for _, f := range c.Fixups {
		fixed[f.At] = true
	}
	run := walk(t, c)
	for at, s := range run {
		switch s.name {
		case "VMCALL", "VMMCALL", "RDMSR", "WRMSR", "STI":
			assert.True(t, fixed[at], "%#x: %s has no fixup", at, s.name)
		case "CLI":
			// After HLT, which STI came before.
			assert.True(t, fixed[at] || run[at-1].name == "HLT", "%#x: CLI has no fixup", at)
		case "HLT":
			before := run[at-1].name
			assert.Contains(t, []string{"STI", "CLI"}, before, "%#x: instruction before HLT", at)
		}
	}
}

func TestNoPrologueOfGo(t *testing.T) {
	// A prologue would compare the stack pointer with a bound in g, at R14.
	for at, s := range walk(t, copyOf(t)) {
		if s.inst.Op == x86asm.CMP {
			assert.NotEqual(t, x86asm.RSP, s.inst.Args[0], "%#x: %v", at, s.inst)
		}
	}
	c := copyOf(t)
	assert.True(t, bytes.HasPrefix(c.Bytes[c.Run:], unknown["ENDBR64"]), "Run begins with ENDBR64")
	first, err := decode(c.Bytes, c.Run+4)
	require.NoError(t, err)
	assert.Equal(t, "PUSH", first.name, "first instruction of Run after ENDBR64")
}

func TestGates(t *testing.T) {
	c := copyOf(t)
	first, err := decode(c.Bytes, c.Vectors)
	require.NoError(t, err)
	for v := range 256 {
		s, err := decode(c.Bytes, c.Vectors+v*VectorStride)
		require.NoError(t, err)
		assert.Equal(t, "CALL", s.name, "vector %d", v)
		assert.Equal(t, first.to, s.to, "vector %d: handler", v)
		assert.Less(t, s.len, VectorStride, "vector %d: the return address is in the gate", v)
	}
}

func TestLengthIsMeasuredByOneByteInstructions(t *testing.T) {
	c := copyOf(t)
	measured := 0
	for at, s := range walk(t, c) {
		if s.name != "VMCALL" && s.name != "VMMCALL" {
			continue
		}
		assert.Equal(t, callLength, s.len)
		if c.Bytes[at+s.len] != 0x50 { // PUSHQ AX
			continue
		}
		measured++
		assert.Equal(t, bytes.Repeat([]byte{0x50}, callPushes), c.Bytes[at+s.len:][:callPushes], "%#x", at)
		assert.NotEqual(t, byte(0x50), c.Bytes[at+s.len+callPushes])
	}
	assert.Equal(t, 2, measured)
}

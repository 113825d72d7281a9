package s390x

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/arch/s390x/s390xasm"
)

// step is a decoded instruction.
type step struct {
	s390xasm.Inst
	name string
	// to is where the instruction may go on in the probe, but for what comes next.
	to []int
	// last says that it does not go on at what comes next.
	last bool
}

// diagnose is the code of DIAGNOSE, which s390xasm does not know.
const diagnose = 0x83

func decode(code []byte, at int) (step, error) {
	if code[at] == diagnose {
		return step{Inst: s390xasm.Inst{Len: 4}, name: "diag"}, nil
	}
	i, err := s390xasm.Decode(code[at:])
	if err != nil {
		return step{}, fmt.Errorf("offset %#x: % x: %w", at, code[at:min(at+6, len(code))], err)
	}
	s := step{Inst: i, name: i.Op.String()}
	for _, arg := range i.Args {
		switch a := arg.(type) {
		case s390xasm.RegIm16:
			s.to = append(s.to, at+2*int(int16(a)))
		case s390xasm.RegIm32:
			s.to = append(s.to, at+2*int(int32(a)))
		}
	}
	const always = s390xasm.Mask(15)
	switch i.Op {
	case s390xasm.BRC, s390xasm.BRCL, s390xasm.BCR:
		s.last = i.Args[0] == always
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
	seen := map[int]step{}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, ok := seen[at]; ok {
			continue
		}
		require.True(t, at >= 0 && at+2 <= len(c.Bytes) && at%2 == 0, "offset %#x is not in the probe of %#x bytes", at, len(c.Bytes))
		s, err := decode(c.Bytes, at)
		require.NoError(t, err)
		require.Equal(t, instructionLength(c.Bytes[at]), s.Len, "length of %s", s.name)
		seen[at] = s
		todo = append(todo, s.to...)
		if !s.last {
			todo = append(todo, at+s.Len)
		}
	}
	return seen
}

func TestReachableCodeStaysInside(t *testing.T) {
	c := copyOf(t)
	seen := walk(t, c) // which requires it of all targets
	for at, s := range seen {
		if len(s.to) > 0 {
			// Others with an address relative to their own have data or code there.
			assert.Contains(t, []string{"brc", "brcl", "brasl", "cgij", "clgij", "cgrj", "clgrj"}, s.name, "%#x", at)
		}
		if s.name == "bcr" && s.last {
			assert.Equal(t, []byte{0x07, 0xfe}, c.Bytes[at:at+2], "%#x: only a return to R14", at)
		}
		for n := at + 2; n < at+s.Len; n += 2 {
			assert.NotContains(t, seen, n, "%#x: %s has another instruction inside", at, s.name)
		}
	}
}

func TestInstructionsOccurAsOftenAsAskedFor(t *testing.T) {
	got := map[string]int{}
	for _, s := range walk(t, copyOf(t)) {
		got[s.name]++
	}
	for name, want := range map[string]int{
		"diag": 11, "sigp": 4, "ssm": 3, "stap": 1, "stidp": 1, "stsi": 1, "stfle": 1, "epsw": 1, "spm": 1,
		"stosm": 0, "stnsm": 0, "lpsw": 0, "lpswe": 0, "lctlg": 0, "svc": 0, "servc": 0, "ptlb": 0, "sck": 0, "sckc": 0, "spt": 0,
	} {
		assert.Equal(t, want, got[name], "number of %s", name)
	}
}

// encode assembles a form of the call instruction from its name.
func encode(t *testing.T, name string) uint32 {
	t.Helper()
	m := regexp.MustCompile(`^(diag|sigp) r(\d+),r(\d+),0x([0-9a-f]+)(?:\(r(\d+)\))?$`).FindStringSubmatch(name)
	require.NotNil(t, m, name)
	field := func(text string, base, bits int) uint32 {
		if text == "" {
			return 0
		}
		v, err := strconv.ParseUint(text, base, bits)
		require.NoError(t, err, name)
		return uint32(v)
	}
	code := map[string]uint32{"diag": diagnose, "sigp": 0xae}[m[1]]
	return code<<24 | field(m[2], 10, 4)<<20 | field(m[3], 10, 4)<<16 | field(m[5], 10, 4)<<12 | field(m[4], 16, 12)
}

func TestFormsAreWhatTheirNamesSay(t *testing.T) {
	c := copyOf(t)
	for i, name := range ISA.Instructions {
		at := c.Fixups[i].At
		assert.Equal(t, encode(t, name), binary.BigEndian.Uint32(c.Bytes[at:]), name)
		// The instructions by which the length is measured are as long, and leave
		// registers and condition code alone.
		for n := range callSteps {
			s, err := decode(c.Bytes, at+4+4*n)
			require.NoError(t, err)
			assert.Equal(t, "mvi", s.name, "%s: step %d", name, n)
		}
	}
}

func TestFixups(t *testing.T) {
	c := copyOf(t)
	var got []string
	half := len(c.Fixups) / 2
	for i, f := range c.Fixups[:half] {
		s, err := decode(c.Bytes, f.At)
		require.NoError(t, err)
		got = append(got, s.name)
		assert.Equal(t, Fixup{f.At + s.Len, f.Resume}, c.Fixups[half+i], "fixup after %s", s.name)
	}
	var want []string
	for _, name := range ISA.Instructions {
		want = append(want, name[:4])
	}
	want = append(want, "stsi", "llgc", "llgh", "llgf", "lg", "stc", "sth", "st", "stg", "llgh")
	assert.Equal(t, want, got, "instructions that may fault")
	at := map[int]bool{}
	for _, f := range c.Fixups {
		assert.False(t, at[f.At], "two fixups for %#x", f.At)
		at[f.At] = true
	}
}

func TestNoPrologueOfGo(t *testing.T) {
	c := copyOf(t)
	for at, s := range walk(t, c) {
		switch s.name {
		case "clgrj", "cgrj", "clgr", "cgr":
			assert.NotContains(t, s.Args, s390xasm.R15, "%#x: a prologue compares the stack pointer", at)
		}
	}
	first, err := decode(c.Bytes, c.Run)
	require.NoError(t, err)
	assert.Equal(t, "stmg", first.name, "first instruction of Run")
}

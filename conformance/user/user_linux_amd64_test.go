package user_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/conformance/user"
)

// TestMachine runs what needs no hypervisor.
func TestMachine(t *testing.T) {
	m, err := user.Open(microvm.Config{CPUs: 2, User: []int{0, 1}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, m.Close()) }()
	a := m.Alloc(64, 64, 0xa5)
	run := func(cpu int, p ...arch.Op) []arch.Result {
		require.NoError(t, m.Start(cpu, p))
		s, err := m.Wait(t.Context(), cpu)
		require.NoError(t, err)
		assert.Equal(t, arch.Stop{Ended: true}, s)
		return m.Results(cpu)
	}
	store := arch.Op{Kind: arch.Store, Arg: [6]uint64{a.Address() + 8, 0x1122, 2}}
	load := arch.Op{Kind: arch.Load, Arg: [6]uint64{a.Address() + 8, 8}}
	r := run(1, store, load)
	assert.Equal(t, uint64(0xa5a5a5a5a5a51122), r[1].Value)
	assert.Equal(t, uint64(0x1122), a.Load(8, 2), "what a program stores must be in the area")

	// Without privilege a register cannot be read, and the program ends there.
	r = run(0, load, arch.Op{Kind: arch.ReadRegister, Arg: [6]uint64{0x10}}, load)
	assert.Equal(t, []uint64{1, 0, 0}, []uint64{r[0].Count, r[1].Count, r[2].Count})
	assert.Equal(t, uint64(1+13), r[1].Trap, "a privileged instruction is a general protection fault")

	// The next program of the same CPU is not disturbed by that.
	assert.Equal(t, uint64(1), run(0, load)[0].Count)
}

func TestOpenRefuses(t *testing.T) {
	_, err := user.Open(microvm.Config{Enforce: true})
	assert.ErrorContains(t, err, "cannot choose")
}

// TestBelow looks at the KVM below this machine, if there is one.
func TestBelow(t *testing.T) {
	s, err := conformance.X86KVMBelow(t.Context(), user.Open)
	if errors.Is(err, conformance.ErrNoKVM) {
		t.Skip("this machine is no guest of KVM")
	}
	require.NoError(t, err)
	looked := 0
	require.NoError(t, s.Run(t.Context(), func(r conformance.Result) {
		switch r.Verdict {
		case conformance.Pass, conformance.Deviates:
			looked++
		case conformance.Unreached:
		default:
			t.Errorf("%s: %s: expected %s, observed %s %s", r.Rule, r.Verdict, r.Expected, r.Observed, r.Reason)
		}
	}))
	assert.NotZero(t, looked, "rules looked at")
}

package conformance_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/internal/model"
)

type opener func(microvm.Config) (microvm.Machine, error)

// judge runs the suite of x86-kvm against a model of it.
func judge(t *testing.T, open opener) (out []conformance.Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := conformance.X86KVM(t.Context(), "7.2.12", open)
		require.NoError(t, err)
		s.Looks = 2000
		require.NoError(t, s.Run(context.Background(), func(r conformance.Result) { out = append(out, r) }))
	})
	return out
}

func TestModelConforms(t *testing.T) {
	clean, err := model.Clean("x86-kvm")
	require.NoError(t, err)
	for seed := range uint64(200) {
		open := func(c microvm.Config) (microvm.Machine, error) { return clean(seed, c) }
		rules := map[string]bool{}
		for _, r := range judge(t, open) {
			rules[r.Rule] = true
			assert.Equal(t, conformance.Pass, r.Verdict, "%d %s: want %s, got %s (%s)", seed, r.Rule, r.Expected, r.Observed, r.Reason)
		}
		for _, r := range abi.X86KVM().Rules {
			assert.True(t, rules[r.ID], "rule %s is not looked at", r.ID)
		}
	}
}

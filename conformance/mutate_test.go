package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/internal/model"
)

// modelled are suites that run against a model; that of x86-kvm has TestModelNumbers.
var modelled = map[string]suiteOf{
	"loongarch-kvm": loongSuite,
}

// TestMutate changes each value of a platform's table and wants a rule to fail with each model of the
// platform, or a reason why none can.
func TestMutate(t *testing.T) {
	for _, p := range abi.Platforms() {
		suite := modelled[p.Name]
		if suite == nil {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			best := map[int]conformance.Mutated{}
			for _, host := range model.Hosts(p.Name) {
				mutate(t, suite, host.Open, func(m conformance.Mutated) {
					if had, ok := best[m.Number]; !ok || m.Fate == conformance.Killed || had.Fate == conformance.Unread {
						if had.Fate != conformance.Killed {
							best[m.Number] = m
						}
					}
				})
			}
			count, used := map[conformance.Fate]int{}, map[string]bool{}
			for i, change := range p.Mutations() {
				m, ok := best[i+1]
				require.True(t, ok, "%s has no fate", change.Path)
				count[m.Fate]++
				for _, s := range conformance.SparedOf(p.Name, "") {
					used[s.Pattern] = used[s.Pattern] || s.Matches(change)
				}
				why := conformance.WhySpared(p.Name, "", change)
				assert.Equal(t, why != "", m.Fate == conformance.Equivalent, "%s; spared: %q", tell(m), why)
				assert.NotContains(t, []conformance.Fate{conformance.Survived, conformance.Lost}, m.Fate, tell(m))
			}
			for _, s := range conformance.SparedOf(p.Name, "") {
				assert.True(t, used[s.Pattern], "nothing is like %q", s.Pattern)
			}
			t.Log(count)
		})
	}
}

func tell(m conformance.Mutated) string {
	return fmt.Sprintf("%s %s: %d -> %d, tried %d: %s %s %s want %s, got %s", m.Fate, m.Path, m.Was, m.Is, m.Tried, m.Rule, m.Verdict, m.Reason, m.Expected, m.Observed)
}

// mutate mutates a platform's table for a suite on a model.
func mutate(t *testing.T, suite suiteOf, open model.Opener, fate func(conformance.Mutated)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := suite(ctx, func(c microvm.Config) (microvm.Machine, error) { return open(1, c) })
		require.NoError(t, err)
		s.Looks, s.Deviations = looks, nil
		why := func(m abi.Mutation) string { return conformance.WhySpared(s.ABI.Name, "", m) }
		require.NoError(t, conformance.Mutate(ctx, []*conformance.Suite{s}, 1, why, func(conformance.Result) {}, func(m conformance.Mutated) {
			if m.Fate != conformance.Begun {
				fate(m)
			}
		}))
	})
}

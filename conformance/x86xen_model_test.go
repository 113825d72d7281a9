package conformance_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/internal/model"
)

// The suite of x86-xen against the project's own model of Xen.

func xenSuite(ctx context.Context, open func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error) {
	s, err := conformance.X86Xen(ctx, "4.20", open)
	if err == nil {
		s.Deviations = nil
	}
	return s, err
}

func xenName(r conformance.Result) string { return strings.TrimPrefix(r.Rule, "x86-xen/") }

func TestXenModelConforms(t *testing.T) {
	for _, host := range model.Hosts("x86-xen") {
		t.Run(host.Name, func(t *testing.T) {
			for seed := range uint64(10) {
				judgeBy(t, suiteOf(xenSuite).version(host.Version), host.Open, seed, nil, func(r conformance.Result) bool {
					want := conformance.Pass
					switch {
					case slices.Contains(host.Absent, xenName(r)):
						want = conformance.Absent
					case xenName(r) == "runstate/physical-not-offered" && len(host.Absent) == 0:
						want = conformance.Unreached
					}
					assert.Equal(t, want, r.Verdict, "seed %d: %s", seed, describe(r))
					return true
				})
			}
		})
	}
}

func TestXenModelMutants(t *testing.T) {
	mutants := model.Mutants("x86-xen")
	assert.GreaterOrEqual(t, len(mutants), 60)
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			for _, rule := range slices.Concat(m.Rules, m.Controls) {
				require.True(t, abi.X86Xen().HasRule(rule), "no rule %s", rule)
			}
			judgeBy(t, suiteOf(xenSuite).version(m.Version), m.Open, 1, nil, func(r conformance.Result) bool {
				want := []conformance.Verdict{conformance.Pass, conformance.Absent, conformance.Unreached}
				switch {
				case slices.Contains(m.Rules, xenName(r)):
					want = []conformance.Verdict{conformance.Fail}
				case slices.Contains(m.Controls, xenName(r)):
					want = []conformance.Verdict{conformance.Error, conformance.Unreached}
				}
				assert.Contains(t, want, r.Verdict, "%s %s", m.Text, describe(r))
				return true
			})
		})
	}
}

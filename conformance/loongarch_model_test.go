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

func loongSuite(ctx context.Context, open func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error) {
	return conformance.LoongArch(ctx, conformance.Implementer{Name: "reference hypervisor"}, open)
}

func loongName(r conformance.Result) string { return strings.TrimPrefix(r.Rule, "loongarch-kvm/") }

// loongAbsent are the rules that do not apply to a host that offers anything.
var loongAbsent = []string{"discovery/nothing-without-signature"}

func TestLoongArchModelConforms(t *testing.T) {
	for _, host := range model.Hosts("loongarch-kvm") {
		t.Run(host.Name, func(t *testing.T) {
			absent := loongAbsent
			if host.Absent != nil {
				absent = host.Absent
			}
			for seed := range uint64(10) {
				var looked []string
				judgeBy(t, loongSuite, host.Open, seed, nil, func(r conformance.Result) bool {
					want := conformance.Pass
					if slices.Contains(absent, loongName(r)) {
						want = conformance.Absent
					}
					assert.Equal(t, want, r.Verdict, "seed %d: %s: want %q, got %q; %s", seed, loongName(r), r.Expected, r.Observed, r.Reason)
					looked = append(looked, loongName(r))
					return true
				})
				var want []string
				for _, r := range abi.LoongArch().Rules {
					// Vector registers are no business of the model's.
					if r.Side == abi.Hypervisor && r.Name() != "convention/vectors-preserved" {
						want = append(want, r.Name())
					}
				}
				assert.ElementsMatch(t, want, looked, "rules that have a result")
			}
		})
	}
}

func loongBelow(ctx context.Context, open func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error) {
	return conformance.LoongArchReference(ctx, conformance.Implementer{Name: "reference hypervisor"}, open)
}

// What the rest of a guest does breaks no rule, however often it comes: what it came into is looked at
// again, or is told to be in doubt, if only by a control that does not hold. If it comes seldom, next to
// nothing is.
func TestLoongArchModelDisturbed(t *testing.T) {
	for _, c := range []struct {
		turns    uint64
		doubtful int
	}{{100, 70}, {300, 200}, {20000, 10}, {1 << 40, 1}} {
		doubtful := 0
		for seed := range uint64(15) {
			judgeBy(t, loongBelow, model.LoongArchDisturbed(c.turns), seed, nil, func(r conformance.Result) bool {
				if r.Verdict == conformance.Error && (strings.Contains(r.Reason, "something came in between") || strings.Contains(r.Reason, "control failed")) {
					doubtful++
					return true
				}
				want := []conformance.Verdict{conformance.Pass}
				if slices.Contains(loongAbsent, loongName(r)) {
					want = append(want, conformance.Absent)
				}
				assert.Contains(t, want, r.Verdict, "each %d turns, seed %d: %s", c.turns, seed, describe(r))
				return true
			})
		}
		assert.Less(t, doubtful, c.doubtful, "findings in doubt, in all runs, each %d turns", c.turns)
		t.Logf("each %d turns: %d findings in doubt", c.turns, doubtful)
	}
}

// TestLoongArchModelMutants has the suite notice each mutant by the rules that it breaks, and by no
// others.
func TestLoongArchModelMutants(t *testing.T) {
	noticesMutants(t, abi.LoongArch(), loongSuite, 25, loongAbsent)
}

// What vendors' kernels, and the patch set of 2024, have in place of the ABI is told from it, by rules
// that are about them.
func TestLoongArchTellsOtherNumberings(t *testing.T) {
	for name, rule := range map[string]string{
		"functions-of-vendors": "number/not-the-numbers-of-vendors",
		"success-of-vendors":   "number/success-is-zero",
		"code-of-vendors":      "code/vendor",
		"kick-of-2024":         "number/not-the-kick-of-2024",
	} {
		i := slices.IndexFunc(model.Mutants("loongarch-kvm"), func(m model.Mutant) bool { return m.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		assert.Contains(t, model.Mutants("loongarch-kvm")[i].Rules, rule, name)
	}
}

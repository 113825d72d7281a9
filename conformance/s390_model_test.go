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

// The suite of s390 against the project's own model of what the Principles of Operation say.

func s390Suite(ctx context.Context, open func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error) {
	return conformance.S390(ctx, conformance.Implementer{Name: "model"}, open)
}

func s390Name(r conformance.Result) string { return strings.TrimPrefix(r.Rule, "s390/") }

func TestS390ModelConforms(t *testing.T) {
	for _, host := range model.Hosts("s390") {
		t.Run(host.Name, func(t *testing.T) {
			for seed := range uint64(10) {
				var looked []string
				judgeBy(t, s390Suite, host.Open, seed, nil, func(r conformance.Result) bool {
					want := conformance.Pass
					if slices.Contains(host.Absent, s390Name(r)) {
						want = conformance.Absent
					}
					assert.Equal(t, want, r.Verdict, "seed %d: %s", seed, describe(r))
					looked = append(looked, s390Name(r))
					return true
				})
				var want []string
				for _, r := range conformance.S390Rules() {
					want = append(want, r.Name())
				}
				assert.Equal(t, want, looked, "rules that have a result")
			}
		})
	}
}

// The model with what QEMU does otherwise breaks the rules that QEMU is known to break, and no others:
// the list of deviations and the model are held against each other.
func TestS390ModelIsQEMU(t *testing.T) {
	qemu := conformance.Implementer{Name: "QEMU", Version: "11.1.2"}
	var want []string
	for _, d := range conformance.Deviations {
		if name, ours := strings.CutPrefix(d.Rule, "s390/"); ours && d.Applies(qemu) && !strings.HasPrefix(name, "guest/") {
			want = append(want, name)
		}
	}
	require.NotEmpty(t, want)
	for seed := range uint64(5) {
		var got []string
		judgeBy(t, s390Suite, model.S390AsQEMU(), seed, nil, func(r conformance.Result) bool {
			if r.Verdict == conformance.Fail {
				got = append(got, s390Name(r))
			} else {
				assert.Contains(t, []conformance.Verdict{conformance.Pass, conformance.Absent}, r.Verdict, describe(r))
			}
			return true
		})
		assert.ElementsMatch(t, want, got, "seed %d", seed)
	}
}

// What the rest of the guest does breaks no rule, however often it comes: what it came into is looked at
// again, or is told to be in doubt. If it comes seldom, next to nothing is.
func TestS390ModelDisturbed(t *testing.T) {
	for _, c := range []struct {
		turns    uint64
		doubtful int
	}{{300, 200}, {4000, 10}} {
		doubtful := 0
		for seed := range uint64(15) {
			judgeBy(t, s390Suite, model.S390Disturbed(c.turns), seed, nil, func(r conformance.Result) bool {
				if r.Verdict == conformance.Error && strings.Contains(r.Reason, "something came in between") {
					doubtful++
					return true
				}
				assert.Equal(t, conformance.Pass, r.Verdict, "each %d turns, seed %d: %s", c.turns, seed, describe(r))
				return true
			})
		}
		assert.Less(t, doubtful, c.doubtful, "findings in doubt, in all runs, each %d turns", c.turns)
		t.Logf("each %d turns: %d findings in doubt", c.turns, doubtful)
	}
}

func TestS390ModelMutants(t *testing.T) {
	noticesMutants(t, abi.S390(), s390Suite, 50, nil)
}

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

// TestLoongArchModelMutants has the suite notice each mutant by the rules that it breaks, and by no
// others. The output has the table of both.
func TestLoongArchModelMutants(t *testing.T) {
	mutants := model.Mutants("loongarch-kvm")
	assert.GreaterOrEqual(t, len(mutants), 25)
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			require.NotEmpty(t, m.Rules)
			for _, rule := range slices.Concat(m.Rules, m.Controls) {
				require.True(t, abi.LoongArch().HasRule(rule), "no rule %s", rule)
			}
			var noticed, unjudged []string
			judgeBy(t, loongSuite, m.Open, 1, nil, func(r conformance.Result) bool {
				switch {
				case r.Verdict == conformance.Fail:
					noticed = append(noticed, loongName(r))
				case r.Verdict != conformance.Pass && !slices.Contains(loongAbsent, loongName(r)):
					unjudged = append(unjudged, loongName(r))
				}
				return true
			})
			assert.ElementsMatch(t, m.Rules, noticed, "%s: rules found broken", m.Text)
			assert.ElementsMatch(t, m.Controls, unjudged, "%s: rules that cannot be judged", m.Text)
			t.Logf("%s Noticed by %s.", m.Text, strings.Join(noticed, ", "))
		})
	}
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

// loongFree are the numbers that no check of the hypervisor's side depends on, and why.
var loongFree = []struct{ pattern, why string }{
	{"scheduling/yield_target", "there is no yield"},
	{"discovery/last-word/number", "the words around are 0 as well"},
	{"discovery/code-service/number", "the checks go by the mnemonic of the first convention"},
	{"discovery/code-user-service/number", "the codes around it give the same"},
	{"discovery/cpus/number", "numbers that no CPU has are many"},
	{"rules/loongarch-kvm/convention/vectors-preserved/want/*/number", "no check is for it"},
	{"conventions/*/width", "the checks try each width by itself"},
	{"conventions/user service/instructions/*/length", "the length is that of the first convention"},
	{"conventions/debug/instructions/*/length", "the length is that of the first convention"},
	{"calls/*/outcomes/hidden/result", "the outcome has an error instead"},
	{"calls/NOTIFY/outcomes/reserved bits/result", "the outcome has an error instead"},
	{"calls/NOTIFY/outcomes/other/result", "the outcome has an error instead"},
	{"registers/ECFG/*", "for guests"},
	{"registers/ECFG/bits/*/bit", "for guests"},
	{"registers/*/reserved", "no register of the ABI's own"},
	{"registers/*/enable", "no register of the ABI's own"},
	{"registers/*/reset", "no register of the ABI's own"},
	{"rules/loongarch-kvm*guest*/want/*/number", "for guests"},
}

// TestLoongArchNumbers holds the model against tables with one number changed: that is noticed.
func TestLoongArchNumbers(t *testing.T) {
	used := map[string]bool{}
	for _, n := range abi.LoongArch().Numbers() {
		free := false
		for _, f := range loongFree {
			if match(f.pattern, n.Path) {
				free, used[f.pattern] = true, true
			}
		}
		if free {
			continue
		}
		t.Run(n.Path, func(t *testing.T) {
			noticed := false
			for _, host := range model.Hosts("loongarch-kvm") {
				absent := loongAbsent
				if host.Absent != nil {
					absent = host.Absent
				}
				for _, by := range []int64{1, -1} {
					if noticed {
						return
					}
					judgeBy(t, loongSuite, host.Open, 1, func(p *abi.Platform) {
						require.NoError(t, p.Set(n.Path, n.Value+by))
					}, func(r conformance.Result) bool {
						noticed = noticed || r.Verdict != conformance.Pass && !slices.Contains(absent, loongName(r))
						return !noticed
					})
				}
			}
			assert.True(t, noticed, "no rule notices that %s is not %d", n.Path, n.Value)
		})
	}
	for _, f := range loongFree {
		assert.True(t, used[f.pattern], "no number matches %q", f.pattern)
	}
}

// match tells whether a path is of a pattern whose stars stand for anything.
func match(pattern, path string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return path == pattern
	}
	if !strings.HasPrefix(path, first) {
		return false
	}
	for path = path[len(first):]; ; path = path[1:] {
		if match(rest, path) {
			return true
		}
		if path == "" {
			return false
		}
	}
}

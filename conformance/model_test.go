package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/internal/model"
)

// The suite of x86-kvm against the project's own model of a host: it must pass on hosts that
// keep the ABI, whatever the order of events, and must notice each host that breaks it.

// looks is the suites' budget of looks. A pause between two looks costs nothing here, as
// time in a bubble of synctest is not real.
const looks = 100

// judge runs the suite against machines that open makes and hands its results to emit,
// until emit returns false. change, where it is not nil, changes the table of the suite.
func judge(t *testing.T, open model.Opener, seed uint64, change func(*abi.Platform), emit func(conformance.Result) bool) {
	t.Helper()
	judgeBy(t, x86Suite, open, seed, change, emit)
}

// suiteOf makes a platform's suite for machines of a model.
type suiteOf func(context.Context, func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error)

func x86Suite(ctx context.Context, open func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error) {
	return conformance.X86KVM(ctx, "7.2.12", open)
}

// judgeBy is judge with the suite of a platform.
func judgeBy(t *testing.T, suite suiteOf, open model.Opener, seed uint64, change func(*abi.Platform), emit func(conformance.Result) bool) {
	t.Helper()
	enough := errors.New("enough")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		s, err := suite(ctx, func(c microvm.Config) (microvm.Machine, error) { return open(seed, c) })
		require.NoError(t, err)
		s.Looks = looks
		if change != nil {
			s.ABI = s.ABI.Clone()
			change(s.ABI)
		}
		err = s.Run(ctx, func(r conformance.Result) {
			if !emit(r) {
				cancel(enough)
			}
		})
		if !errors.Is(err, enough) {
			require.NoError(t, err)
		}
	})
}

// noticesMutants has a platform's suite notice each mutant of its model by the rules that it breaks, and by
// no others. absent are the rules that the model offers nothing for, where that is told; the output has the
// table.
func noticesMutants(t *testing.T, p *abi.Platform, suite suiteOf, least int, absent []string) {
	mutants := model.Mutants(p.Name)
	assert.GreaterOrEqual(t, len(mutants), least)
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			require.NotEmpty(t, m.Rules)
			for _, rule := range slices.Concat(m.Rules, m.Controls) {
				require.True(t, p.HasRule(rule), "no rule %s", rule)
			}
			var noticed, unjudged []string
			judgeBy(t, suite, m.Open, 1, nil, func(r conformance.Result) bool {
				name := strings.TrimPrefix(r.Rule, p.Name+"/")
				switch r.Verdict {
				case conformance.Pass:
				case conformance.Fail:
					noticed = append(noticed, name)
				case conformance.Absent:
					if absent != nil && !slices.Contains(absent, name) {
						unjudged = append(unjudged, name)
					}
				default:
					unjudged = append(unjudged, name)
				}
				return true
			})
			assert.ElementsMatch(t, m.Rules, noticed, "%s: rules found broken", m.Text)
			assert.ElementsMatch(t, m.Controls, unjudged, "%s: rules that cannot be judged", m.Text)
			t.Logf("%s Noticed by %s.", m.Text, strings.Join(noticed, ", "))
		})
	}
}

// version makes suites of one for an implementer of another version than theirs, of which no deviation
// is listed; empty leaves them as they are.
func (s suiteOf) version(v string) suiteOf {
	if v == "" {
		return s
	}
	return func(ctx context.Context, open func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error) {
		suite, err := s(ctx, open)
		if err == nil {
			suite.Implementer.Version, suite.Deviations = v, nil
		}
		return suite, err
	}
}

// TestModelOwes: what a host does not offer that is of an older version is a fault of a newer one.
func TestModelOwes(t *testing.T) {
	for platform, suite := range map[string]suiteOf{"x86-kvm": x86Suite, "x86-xen": xenSuite} {
		hosts := slices.DeleteFunc(model.Hosts(platform), func(h model.Host) bool { return h.Version == "" })
		require.NotEmpty(t, hosts, platform)
		for _, host := range hosts {
			t.Run(platform+"/"+host.Name, func(t *testing.T) {
				failed := 0
				judgeBy(t, suite, host.Open, 0, nil, func(r conformance.Result) bool {
					_, name, _ := strings.Cut(r.Rule, "/")
					if r.Verdict == conformance.Fail {
						failed++
						assert.Contains(t, r.Observed, "not offered by ", r.Rule)
					}
					assert.Equal(t, slices.Contains(host.Absent, name), r.Verdict == conformance.Fail, describe(r))
					return true
				})
				assert.Equal(t, len(host.Absent), failed)
			})
		}
	}
}

func name(r conformance.Result) string { return strings.TrimPrefix(r.Rule, "x86-kvm/") }

func describe(r conformance.Result) string {
	return fmt.Sprintf("%s: want %q, got %q; %s", name(r), r.Expected, r.Observed, r.Reason)
}

func TestModelConforms(t *testing.T) {
	for _, host := range model.Hosts("x86-kvm") {
		t.Run(host.Name, func(t *testing.T) {
			for seed := range uint64(10) {
				looked := map[string]bool{}
				judgeBy(t, suiteOf(x86Suite).version(host.Version), host.Open, seed, nil, func(r conformance.Result) bool {
					want := conformance.Pass
					switch {
					case slices.Contains(host.Absent, name(r)):
						want = conformance.Absent
					case slices.Contains(host.Unreached, name(r)):
						want = conformance.Unreached
					}
					assert.Equal(t, want, r.Verdict, "seed %d: %s", seed, describe(r))
					looked[name(r)] = true
					return true
				})
				for _, r := range abi.X86KVM().Rules {
					assert.True(t, looked[r.Name()] || r.Side == abi.Guest, "no check for %s", r.ID) // those have TestLinuxKVM
				}
			}
		})
	}
}

// unnoticed are the mutants whose breaking of their rules no check sees, with what the check
// would have to do.
var unnoticed = map[string]string{}

func TestModelMutants(t *testing.T) {
	mutants := model.Mutants("x86-kvm")
	assert.GreaterOrEqual(t, len(mutants), 30)
	missing := map[string]bool{}
	for n := range unnoticed {
		missing[n] = true
	}
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			require.NotEmpty(t, m.Rules)
			for _, rule := range slices.Concat(m.Rules, m.Controls) {
				require.True(t, abi.X86KVM().HasRule(rule), "no rule %s", rule)
			}
			why := unnoticed[m.Name]
			delete(missing, m.Name)
			judge(t, m.Open, 1, nil, func(r conformance.Result) bool {
				want := []conformance.Verdict{conformance.Pass}
				switch {
				case why != "":
				case slices.Contains(m.Rules, name(r)):
					want = []conformance.Verdict{conformance.Fail}
				case slices.Contains(m.Controls, name(r)):
					want = []conformance.Verdict{conformance.Error, conformance.Unreached}
				}
				assert.Contains(t, want, r.Verdict, "%s %s; listed as unnoticed: %q", m.Text, describe(r), why)
				return true
			})
		})
	}
	assert.Empty(t, missing, "mutants that are listed as unnoticed and do not exist")
}

// free are numbers besides those that are spared that no rule depends on: what stands beside an error, and
// what the guest's side demands.
var free = []string{
	"calls/MAP_GPA_RANGE/outcomes/[^l]*/result",
	"calls/*/outcomes/hidden and enforced/result",
	"calls/CLOCK_PAIRING/outcomes/* *clock/result",
	"calls/CLOCK_PAIRING/outcomes/address not writable/result",
	"calls/CLOCK_PAIRING/outcomes/32-bit host/result",
	"calls/SEND_IPI/outcomes/[^eo]*/result",
	"rules/x86-kvm/guest/*/want/*/number", // the guest's, which TestLinuxKVMNumbers has
}

// TestModelNumbers holds the model against tables with one number changed.
func TestModelNumbers(t *testing.T) {
	set := func(t *testing.T, p *abi.Platform, n abi.Number, by int64) {
		require.NoError(t, p.Set(n.Path, n.Value+by))
	}
	var unused []abi.Number
	for _, n := range abi.X86KVM().Numbers() {
		// What is spared of one change only is noticed by another.
		isFree := conformance.WhySpared("x86-kvm", "", abi.Mutation{Path: n.Path, Is: math.MinInt64}) != ""
		for _, pattern := range free {
			ok, err := path.Match(pattern, n.Path)
			require.NoError(t, err)
			isFree = isFree || ok
		}
		if isFree {
			unused = append(unused, n)
			continue
		}
		t.Run(n.Path, func(t *testing.T) {
			noticed := false
			for _, host := range model.Hosts("x86-kvm") {
				for _, by := range []int64{1, -1} {
					if noticed {
						return
					}
					apart := slices.Concat(host.Absent, host.Unreached)
					judge(t, host.Open, 1, func(p *abi.Platform) { set(t, p, n, by) }, func(r conformance.Result) bool {
						noticed = noticed || r.Verdict != conformance.Pass && !slices.Contains(apart, name(r))
						return !noticed
					})
				}
			}
			assert.True(t, noticed, "no rule notices that %s is not %d", n.Path, n.Value)
		})
	}
	judge(t, model.Hosts("x86-kvm")[0].Open, 1, func(p *abi.Platform) {
		for _, n := range unused {
			set(t, p, n, 1)
		}
	}, func(r conformance.Result) bool {
		// A flag that is looked for where another is may be clear.
		assert.Contains(t, []conformance.Verdict{conformance.Pass, conformance.Unreached}, r.Verdict, "depends on a number that is listed as free: %s", describe(r))
		return true
	})
}

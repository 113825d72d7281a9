package conformance_test

import (
	"context"
	"errors"
	"fmt"
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

func name(r conformance.Result) string { return strings.TrimPrefix(r.Rule, "x86-kvm/") }

func describe(r conformance.Result) string {
	return fmt.Sprintf("%s: want %q, got %q; %s", name(r), r.Expected, r.Observed, r.Reason)
}

func TestModelConforms(t *testing.T) {
	for _, host := range model.Hosts("x86-kvm") {
		t.Run(host.Name, func(t *testing.T) {
			for seed := range uint64(10) {
				looked := map[string]bool{}
				judge(t, host.Open, seed, nil, func(r conformance.Result) bool {
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
					assert.True(t, looked[r.Name()], "no check for %s", r.ID)
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

// free are the numbers that no rule depends on, as patterns of package path, and why.
var free = []struct{ pattern, why string }{
	{"conventions/protected mode/instructions/*/length", "measured in 64-bit mode only"},
	{"conventions/user/*", "the checks go by the convention for long mode, at each privilege level"},
	{"conventions/user/instructions/*/length", "the checks go by the convention for long mode, at each privilege level"},
	{"calls/MMU_OP/number", "a number without a call is like any other"},
	{"calls/FEATURES/number", "a number without a call is like any other"},
	{"calls/PPC_MAP_MAGIC_PAGE/number", "a number without a call is like any other"},
	{"calls/MIPS_*/number", "a number without a call is like any other"},
	{"calls/MAP_GPA_RANGE/outcomes/[^l]*/result", "the outcomes have an error instead"},
	{"calls/*/outcomes/hidden and enforced/result", "the outcome has an error instead"},
	{"calls/CLOCK_PAIRING/outcomes/* *clock/result", "the outcomes have an error instead"},
	{"calls/CLOCK_PAIRING/outcomes/address not writable/result", "the outcome has an error instead"},
	{"calls/CLOCK_PAIRING/outcomes/32-bit host/result", "the outcome has an error instead"},
	{"calls/SEND_IPI/outcomes/[^eo]*/result", "the outcomes have an error instead"},
	{"errors/E2BIG/result", "no call of x86 gives it"},
	{"features/MMU_OP/bit", "no rule about the feature"},
	{"features/MSI_EXT_DEST_ID/bit", "no rule about the feature"},
	{"features/HC_MAP_GPA_RANGE/bit", "no rule about the feature"},
	{"features/MIGRATION_CONTROL/bit", "no rule about the feature"},
	{"features/REALTIME/bit", "no rule about the hint but that the kernel gives none"},
	{"rules/x86-kvm/clock/wall-clock/want/slewed/number", "a tolerance"},
	{"rules/x86-kvm/clock/wall-clock/want/rounded/number", "a tolerance"},
	{"discovery/*-register/number", "what is next to the range is refused, too"},
	{"registers/WALL_CLOCK*/enable", "there is nothing to enable"},
	{"registers/ASYNC_PF_INT/enable", "there is nothing to enable"},
	{"registers/ASYNC_PF_ACK/enable", "there is nothing to enable"},
	{"registers/ASYNC_PF_ACK/reset", "it cannot be read"},
	{"registers/POLL_CONTROL/enable", "no rule about polling"},
	{"registers/MIGRATION_CONTROL/*", "the kernel does not have it"},
	{"registers/MIGRATION_CONTROL/bits/READY/bit", "the kernel does not have it"},
	{"layouts/pvclock_vcpu_time_info/bits/flags.COUNTS_FROM_ZERO/bit", "nobody may use it"},
	{"layouts/[pv]*/size", "what there is of an area are its fields"},
	{"layouts/kvm_vcpu_pv_apf_data/size", "what there is of an area are its fields"},
	{"layouts/pvclock*/align", "the hypervisor does not ask for it"},
	{"layouts/pv*/fields/pad/size", "what is behind an area may not be written either"},
	{"layouts/kvm_vcpu_pv_apf_data/fields/pad/size", "what is behind an area may not be written either"},
	{"layouts/kvm_vcpu_pv_apf_data/fields/pad/offset", "what is around padding may not be written either"},
	{"layouts/pv_eoi/fields/pad/offset", "what is around padding may not be written either"},
	{"layouts/kvm_clock_pairing/size", "what there is of an area are its fields"},
	{"layouts/kvm_clock_pairing/align", "none is asked for"},
	{"layouts/kvm_clock_pairing/fields/flags/offset", "what is next to it is zero, too"},
	{"layouts/kvm_steal_time/fields/u8_pad/size", "what follows is padding, too"},
}

// TestModelNumbers holds the model against tables with one number changed.
func TestModelNumbers(t *testing.T) {
	set := func(t *testing.T, p *abi.Platform, n abi.Number, by int64) {
		require.NoError(t, p.Set(n.Path, n.Value+by))
	}
	var unused []abi.Number
	used := map[string]bool{}
	for _, n := range abi.X86KVM().Numbers() {
		isFree := false
		for _, f := range free {
			ok, err := path.Match(f.pattern, n.Path)
			require.NoError(t, err)
			if ok {
				isFree, used[f.pattern] = true, true
			}
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
	for _, f := range free {
		assert.True(t, used[f.pattern], "no number matches %q", f.pattern)
	}
	judge(t, model.Hosts("x86-kvm")[0].Open, 1, func(p *abi.Platform) {
		for _, n := range unused {
			set(t, p, n, 1)
		}
	}, func(r conformance.Result) bool {
		assert.Equal(t, conformance.Pass, r.Verdict, "depends on a number that is listed as free: %s", describe(r))
		return true
	})
}

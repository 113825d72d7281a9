package conformance_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/arch"
	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/internal/model"
)

// pageTables is a machine of a KVM that has no virtualization by the processor: a call at privilege level
// 0 never comes back.
type pageTables struct {
	microvm.Machine
	user []int
}

func (m pageTables) Start(cpu int, p arch.Program) error {
	stuck := arch.Op{Kind: arch.SpinUntil, Arg: [6]uint64{m.Alloc(8, 8, 0).Address(), 1, 1, 0}}
	i := slices.IndexFunc(p, func(o arch.Op) bool { return o.Kind == arch.Call || o.Kind == arch.CallLength })
	if i >= 0 && !slices.Contains(m.user, cpu) {
		p = append(slices.Clone(p[:i]), stuck)
	}
	return m.Machine.Start(cpu, p)
}

func TestX86KVMHost(t *testing.T) {
	host := model.Hosts("x86-kvm")[0]
	verdicts := func(fits bool) map[string]conformance.Verdict {
		out := map[string]conformance.Verdict{}
		suite := func(ctx context.Context, open func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error) {
			s, fit, err := conformance.X86KVMHost(ctx, "7.2.12", func(c microvm.Config) (microvm.Machine, error) {
				m, err := open(c)
				if err == nil && !fits {
					m = pageTables{m, c.User}
				}
				return m, err
			})
			assert.Contains(t, fit, map[bool]string{true: "fit for all checks", false: "privilege level 3 only"}[fits])
			return s, err
		}
		judgeBy(t, suite, host.Open, 1, nil, func(r conformance.Result) bool {
			out[name(r)] = r.Verdict
			if r.Verdict == conformance.Unreached && !fits {
				assert.Contains(t, r.Reason, "does not run a guest's kernel mode", name(r))
			}
			return true
		})
		return out
	}
	all, some := verdicts(true), verdicts(false)
	assert.Len(t, some, len(all))
	passed := 0
	for rule, v := range some {
		if v != conformance.Unreached {
			assert.Equal(t, all[rule], v, rule)
			passed++
		}
	}
	assert.Greater(t, passed, 20)
	for _, rule := range []string{
		"discovery/signature", "discovery/features-known", "privilege/user-refused", "steal/reserved-bits", "steal/enable-reads-back", "register/undefined",
	} {
		assert.Equal(t, conformance.Pass, some[rule], rule)
	}
	for _, rule := range []string{"number/undefined", "kick/wakes-waiter", "preempted/descheduled", "eoi/area-moved"} {
		assert.Equal(t, conformance.Unreached, some[rule], rule)
	}
}

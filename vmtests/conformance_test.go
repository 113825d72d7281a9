package vmtests

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
	"pvabi/initramfs/agent"
	"pvabi/internal/store"
)

// artefacts is the store that the tests of this package share.
var artefacts = sync.OnceValues(func() (*store.Store, error) {
	dir, err := store.DefaultDir()
	if err != nil {
		return nil, err
	}
	return store.Open(dir, store.NewProgress(os.Stderr))
})

// reachable skips the test where the target cannot run, or must not.
func reachable(t testing.TB, target Target) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a guest or asks this machine's hypervisor; not done under -short")
	}
	if err := target.Reachable(t.Context()); err != nil {
		t.Skip("cannot run here: " + err.Error())
	}
}

// TestConformance runs every target that can run here. Each rule is a subtest:
// go test ./vmtests -run TestConformance/x86-kvm/kick
func TestConformance(t *testing.T) {
	for _, target := range Targets() {
		t.Run(target.Name, func(t *testing.T) {
			reachable(t, target)
			run := (&Runner{Store: artefacts, Output: t.TempDir()}).Run(t.Context(), target)
			require.Empty(t, run.Error, "console:\n%s", strings.Join(run.Console, "\n"))
			if run.Unreached != "" {
				t.Skip("unreached: " + run.Unreached)
			}
			t.Logf("%s %s, QEMU %s, seconds %+v, notes %q", run.Implementer.Name, run.Implementer.Version, run.QEMU.Version, run.Seconds, run.Notes)
			assert.Len(t, run.Results, len(target.Rules), "every rule must have one result")
			for _, r := range run.Results {
				_, name, _ := strings.Cut(r.Rule, "/")
				t.Run(name, func(t *testing.T) { report(t, r) })
			}
		})
	}
}

func report(t *testing.T, r conformance.Result) {
	switch r.Verdict {
	case conformance.Pass:
	case conformance.Deviates:
		t.Logf("deviates: %s: %s", r.Deviation, r.Observed)
	case conformance.Absent, conformance.Unreached:
		t.Skipf("%s: %s", r.Verdict, r.Reason)
	case conformance.Mended:
		t.Errorf("mended: the deviation %s no longer shows; take it off the list", r.Deviation)
	case conformance.Fail:
		t.Errorf("got %s, want %s; %s", r.Observed, r.Expected, r.Reason)
	default:
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}

// TestMutants changes numbers of the table, one at a time, in one guest, and wants the
// rule that each belongs to to fail. It shows on the real thing that the checks notice.
func TestMutants(t *testing.T) {
	tests := []struct {
		agent.Mutant
		rule string
	}{
		{agent.Mutant{Path: "calls/KICK_CPU/number", Value: 6}, "kick/wakes-waiter"},
		{agent.Mutant{Path: "errors/ENOSYS/result", Value: -38}, "number/undefined"},
		{agent.Mutant{Path: "rules/x86-kvm/kick/two-kicks/want/wakes/number", Value: 2}, "kick/two-kicks"},
		{agent.Mutant{Path: "layouts/kvm_steal_time/fields/preempted/offset", Value: 24}, "preempted/descheduled"},
		{agent.Mutant{Path: "registers/STEAL_TIME/reserved", Value: 0x7e}, "steal/reserved-bits"},
		{agent.Mutant{Path: "errors/EPERM/result", Value: -13}, "privilege/user-refused"},
		{agent.Mutant{Path: "discovery/signature-ecx/number", Value: 0x4b4d564b}, "discovery/signature"},
	}
	target, err := Find("x86-kvm")
	require.NoError(t, err)
	reachable(t, target[0])
	r := &Runner{Store: artefacts, Output: t.TempDir(), Only: []string{"number/vapic-poll-irq"}}
	for _, tt := range tests {
		tt.Only = []string{tt.rule}
		r.Mutants = append(r.Mutants, tt.Mutant)
	}
	run := r.Run(t.Context(), target[0])
	require.Empty(t, run.Error, "console:\n%s", strings.Join(run.Console, "\n"))
	got := map[string]conformance.Verdict{}
	for _, m := range run.Mutants {
		got[fmt.Sprintf("%s: %s", m.Mutant, m.Rule)] = m.Verdict
		t.Logf("%s: %s: %s: want %s, got %s %s", m.Mutant, m.Rule, m.Verdict, m.Expected, m.Observed, m.Reason)
	}
	for _, tt := range tests {
		assert.Equal(t, conformance.Fail, got[fmt.Sprintf("%s: x86-kvm/%s", tt.Mutant, tt.rule)], "%s must break %s", tt.Mutant, tt.rule)
	}
}

// BenchmarkTarget tells where the time of a run goes: make bench.
func BenchmarkTarget(b *testing.B) {
	for _, target := range Targets() {
		b.Run(target.Name, func(b *testing.B) {
			reachable(b, target)
			for b.Loop() {
				run := (&Runner{Store: artefacts, Output: b.TempDir()}).Run(b.Context(), target)
				require.Empty(b, run.Error)
				s := run.Seconds
				b.ReportMetric(s.Boot, "boot-s")
				b.ReportMetric(s.Modules, "modules-s")
				b.ReportMetric(s.Checks, "checks-s")
				b.ReportMetric(s.Total, "total-s")
				if s.Boot > 0 {
					b.ReportMetric((s.Boot+s.Modules+s.Checks)/(s.Boot+s.Modules), "last-verdict/loaded")
				}
				b.ReportMetric(float64(len(run.Results))/(s.Boot+s.Modules+s.Checks), "rules/s")
				b.ReportMetric(float64(run.PeakRSS)/(1<<20), "qemu-MiB")
				b.ReportMetric(float64(run.Guest.Image.Size)/(1<<20), "image-MiB")
			}
		})
	}
}

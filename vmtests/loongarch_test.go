package vmtests

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
	"pvabi/internal/refhv"
)

func TestNotEnded(t *testing.T) {
	for _, test := range []struct{ how, console, want string }{
		{"", "reboot: Power down\n", ""},
		{"reboot", "reboot: Restarting system\n", ""},
		{"panic", "Kernel panic - not syncing: sysrq triggered crash\n", ""},
		{"panic", "pvabi: agent: panic: no such file\nreboot: Power down\n", "did not end by panic: no such file"},
		{"panic", "reboot: Power down\n", "did not end by panic"},
		{"kexec", "", ""},
		{"kexec", "pvabi: agent: kexec: kexec_load: operation not permitted\n", "did not end by kexec: kexec_load: operation not permitted"},
		{"kexec", "reboot: Power down\n", "did not end by kexec"},
	} {
		got := notEnded(test.how, test.console)
		if test.want == "" {
			assert.Empty(t, got, test.console)
			continue
		}
		assert.Contains(t, got, test.want)
	}
}

func TestTooOld(t *testing.T) {
	assert.Empty(t, tooOld("11.1.2"))
	assert.Empty(t, tooOld("12.0"))
	for _, version := range []string{"7.2.22", "10.0.13", "10.2.2"} {
		assert.Contains(t, tooOld(version), "QEMU "+version+" is too old")
		assert.Contains(t, tooOld(version), "pvabi fetch")
	}
}

// TestLoongArchBoots: each boot can be made.
func TestLoongArchBoots(t *testing.T) {
	for _, b := range conformance.LoongArchBoots() {
		_, err := loongArchChanges(b.Offered, b.Change)
		assert.NoError(t, err, b.Name)
		if b.Change != "" {
			_, ok := refhv.Find(refhv.LoongArchMutants(), b.Change)
			assert.True(t, ok, b.Change)
		}
	}
	_, err := loongArchChanges(nil, "none")
	assert.ErrorContains(t, err, `no mutant "none"`)
}

// mutantsVariable, set to refhv.MutantsOwn, has TestLoongArchMutants hold each mutant against the rules that
// it breaks, and to refhv.MutantsAll against all rules, which takes an hour; names of mutants may follow after a
// colon, with commas between them.
const mutantsVariable = "PVABI_LOONGARCH_MUTANTS"

// loongDeaf are mutants that a guest of QEMU cannot tell from the hypervisor as it is, and why.
var loongDeaf = map[string]string{}

// TestLoongArchMutants breaks the reference hypervisor below a real kernel, which keeps one that is not broken
// for itself, in each way that it can be broken in: the rules that it breaks notice, and no others do. The
// output has the table.
func TestLoongArchMutants(t *testing.T) {
	target, err := Find("loongarch-probe")
	require.NoError(t, err)
	reachable(t, target[0])
	scenario := os.Getenv(mutantsVariable)
	if scenario == "" {
		t.Skipf("takes some minutes: set %s to %s, or to %s", mutantsVariable, refhv.MutantsOwn, refhv.MutantsAll)
	}
	what, list, _ := strings.Cut(scenario, ":")
	names := strings.Split(list, ",")
	if list == "" {
		names = nil
		for _, m := range refhv.LoongArchMutants() {
			names = append(names, m.Name)
		}
	}
	some := 12 // what there is time for in a boot
	if what == refhv.MutantsAll {
		some = 5
	}
	got := map[string][]conformance.Result{}
	for part := range slices.Chunk(names, some) {
		guest := *target[0].Guest
		guest.Scenario = what
		if len(part) < len(refhv.LoongArchMutants()) {
			guest.Scenario += ":" + strings.Join(part, ",")
		}
		changed := target[0]
		changed.Guest = &guest
		run := (&Runner{Store: artefacts, Output: t.TempDir()}).Run(t.Context(), changed)
		if run.Unreached != "" {
			t.Skip("unreached: " + run.Unreached)
		}
		assert.Empty(t, run.Error, "console:\n%s", strings.Join(run.Console, "\n"))
		t.Logf("%d mutants in %.1f s", len(part), run.Seconds.Total)
		for _, r := range run.Mutants {
			got[r.Mutant] = append(got[r.Mutant], r)
		}
	}
	for _, name := range names {
		m, ok := refhv.Find(refhv.LoongArchMutants(), name)
		require.True(t, ok, name)
		var noticed, unjudged []string
		for _, r := range got[name] {
			_, rule, _ := strings.Cut(r.Rule, "/")
			switch r.Verdict {
			case conformance.Fail:
				noticed = append(noticed, rule)
				assert.Contains(t, m.Rules, rule, "%s: want %s, got %s", name, r.Expected, r.Observed)
			case conformance.Error:
				unjudged = append(unjudged, rule)
				assert.Contains(t, slices.Concat(m.Rules, m.Controls), rule, "%s: %s", name, r.Reason)
			case conformance.Unreached:
				unjudged = append(unjudged, rule)
			default:
				assert.False(t, what == refhv.MutantsAll && slices.Contains(m.Rules, rule) && loongDeaf[name] == "", "%s: %s does not notice", name, rule)
			}
		}
		if why := loongDeaf[name]; why != "" {
			assert.Empty(t, noticed, name)
		} else {
			assert.NotEmpty(t, noticed, "%s is not noticed; could not be judged: %s", name, strings.Join(unjudged, ", "))
		}
		t.Logf("%-28s %s Noticed by %d of %d: %s; not to be judged: %s", name, m.Text, len(noticed), len(m.Rules), strings.Join(noticed, " "), strings.Join(unjudged, " "))
	}
}

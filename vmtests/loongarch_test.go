package vmtests

import (
	"cmp"
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

// TestReferenceIsNoKVM: what is said of the model is said to be of a model.
func TestReferenceIsNoKVM(t *testing.T) {
	found := 0
	for _, target := range Targets() {
		if target.Guest == nil || !target.Guest.Reference && target.boot == nil || target.Platform != "loongarch-kvm" {
			continue
		}
		found++
		assert.NotContains(t, target.Implementer, "KVM", target.Name)
		assert.Contains(t, target.Text, "the project's own model of KVM", target.Name)
	}
	assert.Equal(t, 2, found)
}

// mutantsVariable, set to refhv.MutantsOwn, has TestLoongArchMutants look at all mutants, and set to
// refhv.MutantsAll, at all with all checks; names of mutants may follow after a colon, with commas between them.
const mutantsVariable = "PVABI_LOONGARCH_MUTANTS"

// mutantsPerBoot is how many mutants are looked at in a guest.
const mutantsPerBoot = 30

// loongSome are the names of mutants that break all rules that a mutant breaks: for each rule the one that
// breaks the fewest, in their order.
func loongSome() (names []string) {
	all := refhv.LoongArchMutants()
	fewest := slices.SortedStableFunc(slices.Values(all), func(a, b refhv.Mutant[*refhv.LoongArch]) int {
		return cmp.Compare(len(a.Rules), len(b.Rules))
	})
	broken, some := map[string]bool{}, map[string]bool{}
	for _, m := range fewest {
		for _, rule := range m.Rules {
			some[m.Name] = some[m.Name] || !broken[rule]
			broken[rule] = true
		}
	}
	for _, m := range all {
		if some[m.Name] {
			names = append(names, m.Name)
		}
	}
	return names
}

// TestLoongArchMutants breaks the reference hypervisor below a real kernel, which keeps one that is not broken
// for itself: the rules that are broken notice, and of the others that are looked at, none do. The output has the
// table.
func TestLoongArchMutants(t *testing.T) {
	target, err := Find("loongarch-probe")
	require.NoError(t, err)
	reachable(t, target[0])
	what, list, _ := strings.Cut(cmp.Or(os.Getenv(mutantsVariable), refhv.MutantsOwn+":"+strings.Join(loongSome(), ",")), ":")
	var names []string
	for _, m := range refhv.LoongArchMutants() {
		if list == "" || slices.Contains(strings.Split(list, ","), m.Name) {
			names = append(names, m.Name)
		}
	}
	got := map[string][]conformance.Result{}
	for part := range slices.Chunk(names, mutantsPerBoot) {
		guest := *target[0].Guest
		guest.Scenario = what + ":" + strings.Join(part, ",")
		changed := target[0]
		changed.Guest = &guest
		run := (&Runner{Store: artefacts, Output: t.TempDir()}).Run(t.Context(), changed)
		if run.Unreached != "" {
			t.Skip("unreached: " + run.Unreached)
		}
		t.Logf("%d mutants in %.1f s, of which the boot took %.1f", len(part), run.Seconds.Total, run.Seconds.Boot)
		for _, r := range run.Mutants {
			got[r.Mutant] = append(got[r.Mutant], r)
		}
		if !assert.Empty(t, run.Error, "console:\n%s", strings.Join(run.Console, "\n")) {
			break
		}
	}
	t.Logf("%-26s  %s", "mutant", "rules that noticed; that could not judge; number of those that saw nothing, as they should")
	for _, name := range names {
		m, _ := refhv.Find(refhv.LoongArchMutants(), name)
		var noticed, unjudged []string
		quiet := 0
		for _, r := range got[name] {
			_, rule, _ := strings.Cut(r.Rule, "/")
			switch r.Verdict {
			case conformance.Fail:
				noticed = append(noticed, rule)
				assert.Contains(t, m.Rules, rule, "%s: want %s, got %s", name, r.Expected, r.Observed)
			case conformance.Error, conformance.Unreached:
				unjudged = append(unjudged, rule)
				assert.Contains(t, m.Controls, rule, "%s: %s", name, r.Reason)
			default:
				quiet++
			}
		}
		assert.Subset(t, noticed, m.Rules, "%s: rules that it breaks have to notice", name)
		t.Logf("%-26s  %s; %s; %d", name, strings.Join(noticed, " "), strings.Join(unjudged, " "), quiet)
	}
}

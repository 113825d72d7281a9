package vmtests

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/internal/model"
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
	for _, test := range []struct{ trap, version, want string }{
		{TrapGDBStub, "11.1.2", ""},
		{TrapGDBStub, "12.0", ""},
		{TrapGDBStub, "11.0.1", ""},
		{TrapGDBStub, "7.2.22", "QEMU 7.2.22 is too old for the reference hypervisor"},
		{TrapGDBStub, "10.0.13", "QEMU 10.0.13 is too old for the reference hypervisor"},
		{TrapPlugin, "10.2.2", "QEMU 10.2.2 is too old for the reference hypervisor"},
		{TrapPlugin, "11.0.1", "QEMU 11.0.1 is too old for -trap plugin, which takes 11.1"},
		{TrapPlugin, "11.1.2", ""},
	} {
		got := tooOld(test.version, test.trap)
		if test.want == "" {
			assert.Empty(t, got, "%s by %s", test.version, test.trap)
			continue
		}
		assert.Contains(t, got, test.want)
		assert.Contains(t, got, "pvabi fetch")
	}
}

// TestTrap: what a plugin takes that is not there leaves a run unreached, with what to do about it.
func TestTrap(t *testing.T) {
	t.Setenv("CC", "")
	t.Setenv("PATH", t.TempDir())
	for _, test := range []struct{ trap, version, want string }{
		{TrapGDBStub, "11.1.2", ""},
		{"", "11.1.2", ""},
		{TrapPlugin, "11.0.1", "too old"},
		{TrapPlugin, "11.1.2", "no C compiler: none of cc, gcc and clang is there; install one, or name one by $CC, or run without -trap plugin"},
	} {
		o := &outcome{run: &conformance.Run{}}
		plugin, err := (&Runner{Trap: test.trap}).trap(t.Context(), test.version, t.TempDir(), o)
		require.NoError(t, err)
		assert.Empty(t, plugin)
		assert.Contains(t, o.run.Unreached, test.want)
		assert.Equal(t, test.want == "", o.run.Unreached == "")
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

// onReference tells whether a target's guests run on the reference hypervisor.
func (t Target) onReference() bool {
	return t.Platform == "loongarch-kvm" && t.Guest != nil && (t.Guest.Reference || t.boot != nil)
}

// sameByPlugin wants the verdicts of a run by gdbstub, by the plugin, too.
func sameByPlugin(t *testing.T, target Target, run *conformance.Run) {
	other := (&Runner{Store: artefacts, Output: t.TempDir(), Trap: TrapPlugin}).Run(t.Context(), target)
	require.Empty(t, other.Error, "console:\n%s", strings.Join(other.Console, "\n"))
	if other.Unreached != "" {
		t.Skip("unreached: " + other.Unreached)
	}
	t.Logf("%.1f s, by gdbstub %.1f s", other.Seconds.Total, run.Seconds.Total)
	verdicts := func(run *conformance.Run) map[string]conformance.Verdict {
		out := map[string]conformance.Verdict{}
		for _, r := range run.Results {
			out[r.Rule] = r.Verdict
		}
		return out
	}
	assert.Equal(t, verdicts(run), verdicts(other))
}

// TestReferenceIsNoKVM: what is said of the model is said to be of a model.
func TestReferenceIsNoKVM(t *testing.T) {
	found := 0
	for _, target := range Targets() {
		if !target.onReference() {
			continue
		}
		found++
		assert.NotContains(t, target.Implementer, "KVM", target.Name)
		assert.Contains(t, target.Text, "the project's own model of KVM", target.Name)
	}
	assert.Equal(t, 2, found)
}

// mutantsVariable, set to refhv.MutantsOwn, has TestLoongArchMutants look at all mutants, and set to refhv.MutantsAll, at
// all with all checks; names of mutants may follow after a colon, with commas between them. Set to mutantsSome it has
// those looked at that loongSome lists.
const (
	mutantsVariable = "PVABI_LOONGARCH_MUTANTS"
	mutantsSome     = "some"
)

// loongDeaf are mutants that a guest cannot notice, and why.
var loongDeaf = map[string]string{"ipi-absent-first": "the numbers of a guest's CPUs have no gaps"}

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

// loongCPUs are the numbers of a guest's CPUs, as Linux finds them: of those that checks have, and of the first.
var loongCPUs = []uint64{3, 2, 1, 0}

// modelGuest is a machine of the model's as a guest's: it has fewer CPUs than there are, and a process.
type modelGuest struct {
	microvm.Machine
	open model.Opener
}

// CPUs implements arch.Machine.
func (m modelGuest) CPUs() int { return len(loongCPUs) - 1 }

// Real implements conformance.LoongArchGuest.
func (m modelGuest) Real(a arch.Area) (uint64, error) { return a.Address(), nil }

// Taken implements conformance.LoongArchGuest.
func (m modelGuest) Taken(cpu int) (uint64, error) { return m.Events(cpu, 0), nil }

// Unprivileged implements conformance.LoongArchGuest.
func (m modelGuest) Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error) {
	user, err := m.open(1, microvm.Config{CPUs: 1, User: []int{0}})
	if err != nil {
		return nil, err
	}
	if err := user.Start(0, p); err != nil {
		return nil, errors.Join(err, user.Close())
	}
	_, err = user.Wait(ctx, 0)
	return user.Results(0), errors.Join(err, user.Close())
}

// loongVerdicts are what the checks that look at a mutant in a guest say of it on the model, by the rules' names.
func loongVerdicts(t *testing.T, name, what string) map[string]conformance.Verdict {
	out := map[string]conformance.Verdict{}
	all := model.Mutants("loongarch-kvm")
	turn := slices.IndexFunc(all, func(m model.Mutant) bool { return m.Name == name })
	m := all[turn]
	synctest.Test(t, func(t *testing.T) {
		s, err := conformance.LoongArchReference(t.Context(), conformance.Implementer{Name: referenceHypervisor}, func(c microvm.Config) (microvm.Machine, error) {
			c.CPUs, c.IDs = len(loongCPUs), loongCPUs
			machine, err := m.Open(1, c)
			return modelGuest{machine, m.Open}, err
		})
		require.NoError(t, err)
		others := refhv.MutantsOthers
		if what == refhv.MutantsAll {
			others = len(s.Checks)
		}
		s = s.Near(m.Rules, others, turn)
		s.Looks = 50
		require.NoError(t, s.Run(t.Context(), func(r conformance.Result) { out[strings.TrimPrefix(r.Rule, "loongarch-kvm/")] = r.Verdict }))
	})
	return out
}

// TestLoongArchMutants breaks the reference hypervisor below a real kernel, which keeps one that is not broken
// for itself: the rules notice that notice it on the model, where others than those that are broken notice nothing,
// and of the others that are looked at, none do. The output has the table.
func TestLoongArchMutants(t *testing.T) {
	target, err := Find("loongarch-probe")
	require.NoError(t, err)
	reachable(t, target[0])
	scenario := os.Getenv(mutantsVariable)
	switch scenario {
	case "":
		t.Skipf("takes some minutes: set %s to %s, %s or %s", mutantsVariable, mutantsSome, refhv.MutantsOwn, refhv.MutantsAll)
	case mutantsSome:
		scenario = refhv.MutantsOwn + ":" + strings.Join(loongSome(), ",")
	}
	what, list, _ := strings.Cut(scenario, ":")
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
		want := loongVerdicts(t, name, what)
		by := map[conformance.Verdict][]string{}
		for _, r := range got[name] {
			rule := strings.TrimPrefix(r.Rule, "loongarch-kvm/")
			by[r.Verdict] = append(by[r.Verdict], rule)
			assert.Equal(t, want[rule], r.Verdict, "%s: %s: want %s, got %s; %s", name, rule, r.Expected, r.Observed, r.Reason)
			delete(want, rule)
		}
		assert.Empty(t, want, "%s: not looked at", name)
		assert.Equal(t, loongDeaf[name] == "", len(by[conformance.Fail]) > 0, "%s: noticed; %s", name, loongDeaf[name])
		t.Logf("%-26s  %s; %s; %d", name, strings.Join(by[conformance.Fail], " "), strings.Join(by[conformance.Error], " "), len(by[conformance.Pass]))
	}
}

// TestLoongArchMutantsOfGuests: each is noticed by the checks as they are in a guest, which cannot choose its CPUs, and
// by rules that it breaks, but for those that loongDeaf gives reasons for.
func TestLoongArchMutantsOfGuests(t *testing.T) {
	for _, m := range refhv.LoongArchMutants() {
		t.Run(m.Name, func(t *testing.T) {
			var noticed []string
			for rule, verdict := range loongVerdicts(t, m.Name, refhv.MutantsOwn) {
				if verdict == conformance.Fail {
					noticed = append(noticed, rule)
				}
			}
			is := slices.ContainsFunc(noticed, func(r string) bool { return slices.Contains(m.Rules, r) })
			assert.Equal(t, loongDeaf[m.Name] == "", is, "%s Noticed by %v, want %v", m.Text, noticed, m.Rules)
		})
	}
}

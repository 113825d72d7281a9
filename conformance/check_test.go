package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance/microvm"
)

// table is a platform of rules a/1, a/2 and so on, of which a/needs needs a feature.
func table(names ...string) *abi.Platform {
	p := &abi.Platform{Name: "p", Features: []abi.Feature{{Name: "F", Word: "features", Bit: 3}}}
	for _, n := range names {
		r := abi.Rule{ID: "p/" + n, Side: abi.Hypervisor, Text: "It holds."}
		if n == "a/needs" {
			r.Needs = []string{"F"}
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

// TestVerdicts holds the engine against what a check may do, and shows above all that
// a failure, a failed control and a rule not looked at are reported.
func TestVerdicts(t *testing.T) {
	tests := []struct {
		name string
		run  func(*T)
		want Verdict
		said string // part of the reason, or of what was observed
	}{
		{"equal", func(t *T) { t.Equal("a/1", "n", 1, int64(1)) }, Pass, "n: 1"},
		{"not equal", func(t *T) { t.Equal("a/1", "n", 1, 2) }, Fail, "n: 2"},
		{"one of two not equal", func(t *T) { t.Equal("a/1", "n", 1, 1); t.Equal("a/1", "m", 3, 4) }, Fail, "m: 4"},
		{"one of", func(t *T) { t.OneOf("a/1", "n", []int64{0, -95}, -95) }, Pass, "n: -95"},
		{"none of", func(t *T) { t.OneOf("a/1", "n", []int64{0, -95}, 7) }, Fail, "n: 7"},
		{"truth", func(t *T) { t.Truth("a/1", "s", false) }, Fail, "does not hold"},
		{"nothing looked at", func(t *T) {}, Error, "did not look"},
		{"control fails after a pass", func(t *T) { t.Equal("a/1", "n", 1, 1); t.Control("c", 0, 1) }, Error, "control failed"},
		{"control holds", func(t *T) { t.Control("c", 0, 0); t.Equal("a/1", "n", 1, 1) }, Pass, ""},
		{"control of the rule fails after a fail", func(t *T) { t.Equal("a/1", "n", 1, 2); t.ControlOf("a/1", "c", 0, 1) }, Error, "control failed"},
		{"control of the rule holds", func(t *T) { t.ControlOf("a/1", "c", 0, 0); t.Equal("a/1", "n", 1, 2) }, Fail, "n: 2"},
		{"panic", func(t *T) { panic("mistake") }, Error, "panic in the check"},
		{"unknown rule", func(t *T) { t.Equal("a/other", "n", 1, 1) }, Error, "does not list rule"},
		{"unknown number of abi", func(t *T) { t.Want("a/1", "nothing") }, Error, `no value of rule a/1 named "nothing"`},
		{"machine does not open", func(t *T) { t.Open(microvm.Config{}) }, Error, "no machine"},
		{"unreached", func(t *T) { t.Unreached("a/1", "no such CPU") }, Unreached, "no such CPU"},
		{"never seen", func(t *T) { t.Truth("a/1", "seen", t.Until(func() bool { return false })) }, Fail, "does not hold"},
		{"given up", func(t *T) { t.Equal("a/1", "n", 1, 1); t.GiveUp("no more CPUs") }, Unreached, "no more CPUs"},
		{"given up when broken", func(t *T) { t.Equal("a/1", "n", 1, 2); t.GiveUp("no more CPUs") }, Fail, "n: 2"},
		{"hidden", func(t *T) { t.Check("look", fmt.Errorf("%w: no tracing", ErrHidden)) }, Unreached, "look: the kernel does not show it: no tracing"},
		{"fatal", func(t *T) { t.Equal("a/1", "n", 1, 1); t.Fatal(errors.New("broken")) }, Error, "broken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &Suite{
				ABI:    table("a/1"),
				Looks:  2,
				Open:   func(microvm.Config) (microvm.Machine, error) { return nil, errors.New("no machine") },
				Checks: []Check{{Rules: []string{"a/1"}, Run: tt.run}},
			}
			var got []Result
			require.NoError(t, s.Run(t.Context(), func(r Result) { got = append(got, r) }))
			require.Len(t, got, 1)
			assert.Equal(t, tt.want, got[0].Verdict, "reason %s", got[0].Reason)
			assert.Equal(t, "p/a/1", got[0].Rule)
			assert.Contains(t, got[0].Reason+got[0].Observed, tt.said)
		})
	}
}

// A check that takes long is told to get on, but not each time that it says so.
func TestAlive(t *testing.T) {
	told := 0
	s := &Suite{
		ABI:   table("a/1"),
		Alive: func() { told++ },
		Checks: []Check{{Rules: []string{"a/1"}, Run: func(t *T) {
			for range 1000 {
				t.getsOn()
			}
			t.Equal("a/1", "n", 1, 1)
		}}},
	}
	require.NoError(t, s.Run(t.Context(), func(Result) {}))
	assert.Equal(t, 1, told)
}

func TestAbsent(t *testing.T) {
	for _, offered := range []bool{false, true} {
		ran := false
		s := &Suite{
			ABI:    table("a/needs"),
			Offers: func(abi.Feature) (bool, error) { return offered, nil },
			Checks: []Check{{Rules: []string{"a/needs"}, Run: func(t *T) { ran = true; t.Equal("a/needs", "n", 1, 1) }}},
		}
		var got Result
		require.NoError(t, s.Run(t.Context(), func(r Result) { got = r }))
		assert.Equal(t, map[bool]Verdict{false: Absent, true: Pass}[offered], got.Verdict)
		assert.Equal(t, offered, ran, "a check of which nothing is offered must not run")
	}
}

// TestSince: what is not offered is a fault of an implementer that is new enough to have it, unless the
// host may have a reason, or something may stand in between; and who is older than what a rule is about
// may break it.
func TestSince(t *testing.T) {
	since := abi.Feature{Name: "F", Word: "features", Bit: 3, Offered: "kernel", Since: "5.3"}
	given, always, vmm, unknown := since, since, since, since
	given.Given = "the host keeps statistics"
	always.Given, always.Always = "the host kept statistics", "5.14"
	vmm.Offered = "vmm"
	unknown.Since = ""
	const holds, broken = 1, 2
	for _, tt := range []struct {
		name    string
		feature abi.Feature
		rule    string // the rule's Since
		version string
		offered bool
		between bool
		value   int
		want    Verdict
		said    string
	}{
		{"missing, new enough", since, "", "5.3", false, false, holds, Fail, "F (bit 3 of features): not offered by Linux KVM 5.3"},
		{"missing, newer", since, "5.3", "7.2.12+deb14-cloud-amd64", false, false, holds, Fail, "not offered by Linux KVM 7.2.12"},
		{"missing, older", since, "", "5.2.99", false, false, holds, Absent, "nor need it be before 5.3"},
		{"missing, and the rule is newer", since, "5.9", "5.8", false, false, holds, Absent, "nor need it be before 5.9"},
		{"missing, and the rule tells since when", unknown, "5.9", "5.9", false, false, holds, Fail, "F (bit 3 of features)"},
		{"missing, of no known version", since, "5.3", "", false, false, holds, Absent, "is not offered"},
		{"missing, since nobody knows when", unknown, "", "7.2", false, false, holds, Absent, "is not offered"},
		{"withheld in between", since, "5.3", "7.2", false, true, holds, Absent, "is not offered"},
		{"the monitor's to offer", vmm, "5.3", "7.2", false, false, holds, Absent, "is not offered"},
		{"missing for a reason", given, "5.3", "7.2", false, false, holds, Absent, "is not offered"},
		{"missing for what was a reason", always, "5.3", "5.13", false, false, holds, Absent, "nor need it be before 5.14"},
		{"missing for what is no reason any more", always, "5.3", "5.14", false, false, holds, Fail, "F (bit 3 of features)"},
		{"offered", since, "5.3", "7.2", true, false, holds, Pass, ""},
		{"offered, broken", since, "5.3", "7.2", true, false, broken, Fail, ""},
		{"offered before its version", since, "5.3", "4.18", true, false, holds, Pass, ""},
		{"offered before its version, broken", since, "5.3", "4.18", true, false, broken, Fail, ""},
		{"offered, and the rule is newer", since, "5.9", "5.8", true, false, holds, Pass, ""},
		{"offered, and the rule is newer, broken", since, "5.9", "5.8", true, false, broken, Absent, "from before what the rule is about, which came with 5.9"},
		{"offered by an unknown version, broken", since, "5.9", "", true, false, broken, Fail, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := table("a/needs")
			p.Features[0], p.Rules[0].Since = tt.feature, tt.rule
			s := &Suite{
				ABI: p, Direct: !tt.between, Implementer: Implementer{"Linux KVM", tt.version},
				Offers: func(abi.Feature) (bool, error) { return tt.offered, nil },
				Checks: []Check{{Rules: []string{"a/needs"}, Run: func(t *T) { t.Equal("a/needs", "n", holds, tt.value) }}},
			}
			var got Result
			require.NoError(t, s.Run(t.Context(), func(r Result) { got = r }))
			assert.Equal(t, tt.want, got.Verdict, "%+v", got)
			assert.Contains(t, got.Reason+got.Observed, tt.said)
			if got.Verdict == Fail {
				assert.NotEmpty(t, got.Expected)
				assert.NotEmpty(t, got.Observed)
			}
		})
	}
}

func TestDiscoveryFailure(t *testing.T) {
	s := &Suite{
		ABI:    table("a/needs"),
		Offers: func(abi.Feature) (bool, error) { return false, errors.New("no leaf") },
		Checks: []Check{{Rules: []string{"a/needs"}, Run: func(t *T) {}}},
	}
	var got Result
	require.NoError(t, s.Run(t.Context(), func(r Result) { got = r }))
	assert.Equal(t, Error, got.Verdict)
	assert.Contains(t, got.Reason, "no leaf")
}

func TestDeviations(t *testing.T) {
	d := Deviation{ID: "d1", Rule: "p/a/1", Implementer: "X", From: "6.1", Before: "7.2.3", Text: "it does so"}
	tests := []struct {
		name, version string
		got           int
		want          Verdict
	}{
		{"fails in the range", "6.12.4+deb13", 2, Deviates},
		{"holds in the range", "7.2.2-rc1", 1, Mended},
		{"fails after the range", "7.2.3", 2, Fail},
		{"fails before the range", "6.0.99", 2, Fail},
		{"holds after the range", "8", 1, Pass},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &Suite{
				ABI: table("a/1"), Deviations: []Deviation{d}, Implementer: Implementer{"X", tt.version},
				Checks: []Check{{Rules: []string{"a/1"}, Run: func(t *T) { t.Equal("a/1", "n", 1, tt.got) }}},
			}
			var got Result
			require.NoError(t, s.Run(t.Context(), func(r Result) { got = r }))
			assert.Equal(t, tt.want, got.Verdict)
			s.Implementer.Name = "Y"
			require.NoError(t, s.Run(t.Context(), func(r Result) { got = r }))
			assert.Equal(t, map[bool]Verdict{true: Pass, false: Fail}[tt.got == 1], got.Verdict, "another implementer's deviation must not apply")
		})
	}
}

func TestOnly(t *testing.T) {
	s := &Suite{
		ABI:  table("a/1", "a/2"),
		Only: func(name string) bool { return name == "a/2" },
		Checks: []Check{
			{Rules: []string{"a/1"}, Run: func(t *T) { panic("must not run") }},
			{Rules: []string{"a/2"}, Run: func(t *T) { t.Equal("a/2", "n", 1, 1) }},
		},
	}
	var got []Result
	require.NoError(t, s.Run(t.Context(), func(r Result) { got = append(got, r) }))
	require.Len(t, got, 1)
	assert.Equal(t, "p/a/2", got[0].Rule)
	assert.Len(t, s.Rules(), 1)
}

// TestNear chooses checks by rules, and others in turn.
func TestNear(t *testing.T) {
	s := &Suite{ABI: table("a/1", "a/2", "a/3", "a/4", "a/5")}
	for _, names := range [][]string{{"a/1"}, {"a/2", "a/3"}, {"a/4"}, {"a/5"}} {
		s.Checks = append(s.Checks, Check{Rules: names})
	}
	for _, tt := range []struct {
		rules        []string
		others, turn int
		want         []string
	}{
		{[]string{"a/3"}, 0, 0, []string{"a/2", "a/3"}},
		{[]string{"a/3"}, 2, 0, []string{"a/1", "a/4", "a/2", "a/3"}},
		{[]string{"a/3"}, 2, 1, []string{"a/5", "a/1", "a/2", "a/3"}},
		{[]string{"a/3"}, 9, 1, []string{"a/1", "a/4", "a/5", "a/2", "a/3"}},
		{[]string{"a/5", "a/1"}, 1, 4, []string{"a/2", "a/3", "a/1", "a/5"}},
		{[]string{"a/1", "a/2", "a/4", "a/5"}, 2, 1, []string{"a/1", "a/2", "a/3", "a/4", "a/5"}},
	} {
		var got []string
		for _, r := range s.Near(tt.rules, tt.others, tt.turn).Rules() {
			got = append(got, r.Name())
		}
		assert.Equal(t, tt.want, got, "%v", tt)
	}
	assert.Len(t, s.Checks, 4)
}

func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	s := &Suite{ABI: table("a/1"), Checks: []Check{{Rules: []string{"a/1"}, Run: func(t *T) {}}}}
	cancel(cause)
	assert.ErrorIs(t, s.Run(ctx, func(Result) { t.Error("a result after the end") }), cause)
}

func TestSummary(t *testing.T) {
	var cs []comparison
	for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
		cs = append(cs, comparison{n, "-1000", "0", false})
	}
	cs = append(cs, comparison{"g", "7", "8", false})
	assert.Equal(t, "a, b, c, 3 more: -1000; g: 7", summary(cs, func(c comparison) string { return c.want }))
}

func TestCompareVersions(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"7.2.12+deb14-amd64", "7.2.12", 0},
		{"7.2", "7.2.0", 0},
		{"6.12.1", "6.2", 1},
		{"11.1.2 (Debian)", "11.1.10", -1},
		{"", "1", -1},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, CompareVersions(tt.a, tt.b), "%s and %s", tt.a, tt.b)
		assert.Equal(t, -tt.want, CompareVersions(tt.b, tt.a), "%s and %s", tt.b, tt.a)
	}
}

// TestLeft: a rule that is left is not looked at, whether or not what it needs is offered, and
// the others of its check are.
func TestLeft(t *testing.T) {
	for _, left := range []map[string]string{{"a/needs": "elsewhere"}, {"a/needs": "elsewhere", "a/1": "nowhere"}} {
		ran := false
		s := &Suite{
			ABI:    table("a/needs", "a/1"),
			Left:   left,
			Offers: func(abi.Feature) (bool, error) { return false, nil },
			Checks: []Check{{Rules: []string{"a/needs", "a/1"}, Run: func(t *T) { ran = true; t.Equal("a/1", "n", 1, 1); t.Equal("a/needs", "n", 1, 1) }}},
		}
		got := map[string]Result{}
		require.NoError(t, s.Run(t.Context(), func(r Result) { got[r.Rule] = r }))
		assert.Equal(t, Unreached, got["p/a/needs"].Verdict)
		assert.Equal(t, "elsewhere", got["p/a/needs"].Reason)
		assert.Equal(t, left["a/1"] == "", ran)
		assert.Equal(t, map[bool]Verdict{true: Pass, false: Unreached}[ran], got["p/a/1"].Verdict)
	}
}

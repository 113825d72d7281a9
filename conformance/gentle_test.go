package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
)

// resultsOf runs a suite and returns its results by the rules' names.
func resultsOf(t *testing.T, s *Suite) map[string]Result {
	t.Helper()
	out := map[string]Result{}
	require.NoError(t, s.Run(t.Context(), func(r Result) { out[r.Rule[len(s.ABI.Name)+1:]] = r }))
	return out
}

// TestGentle has suites leave rules: those that disturb, and those that take privilege.
func TestGentle(t *testing.T) {
	const calm, rough, shared = "kick/wakes-waiter", "kick/before-wait", "kick/two-kicks"
	looked := map[string]bool{}
	look := func(names ...string) Check {
		return Check{Rules: names, Run: func(t *T) {
			for _, n := range names {
				looked[n] = true
				t.Truth(n, "looked", true)
			}
		}}
	}
	suite := func() *Suite {
		clear(looked)
		free := look(calm)
		free.Unprivileged = true
		return &Suite{
			ABI:    abi.X86KVM(),
			Offers: func(abi.Feature) (bool, error) { return true, nil },
			Checks: []Check{free, disturbing("shakes it", look(rough)), {Rules: []string{shared}, Run: func(t *T) { t.Truth(shared, "looked", true); t.GiveUp("others shake it") }}},
		}
	}
	got := resultsOf(t, suite())
	assert.Equal(t, map[string]bool{calm: true, rough: true}, looked)
	assert.Equal(t, []Verdict{Pass, Pass, Unreached}, []Verdict{got[calm].Verdict, got[rough].Verdict, got[shared].Verdict})
	assert.Equal(t, "others shake it", got[shared].Reason)

	got = resultsOf(t, suite().Gentle())
	assert.Equal(t, map[string]bool{calm: true}, looked, "a check that disturbs does not run")
	assert.Equal(t, Unreached, got[rough].Verdict)
	assert.Equal(t, "looking could disturb the machine: the check shakes it", got[rough].Reason)

	got = resultsOf(t, suite().Unprivileged())
	assert.Equal(t, map[string]bool{calm: true}, looked)
	assert.Equal(t, "looking takes root", got[shared].Reason)
}

// TestUnknownVersion holds results against deviations of an implementer that does not tell its
// version.
func TestUnknownVersion(t *testing.T) {
	ranged, always := Deviation{ID: "r", Rule: "a", Implementer: "X", From: "2", Before: "3"}, Deviation{ID: "s", Rule: "b", Implementer: "X"}
	for _, tt := range []struct {
		rule    string
		version string
		was     Verdict
		want    Verdict
	}{
		{"a", "", Fail, Deviates}, {"a", "", Pass, Pass}, {"b", "", Fail, Deviates}, {"b", "", Pass, Mended},
		{"a", "2.5", Fail, Deviates}, {"a", "2.5", Pass, Mended}, {"a", "3", Fail, Fail}, {"a", "1.9", Fail, Fail}, {"a", "3", Pass, Pass},
	} {
		s := &Suite{Implementer: Implementer{Name: "X", Version: tt.version}, Deviations: []Deviation{ranged, always}}
		assert.Equal(t, tt.want, s.weigh(Result{Rule: tt.rule, Verdict: tt.was}).Verdict, "%+v", tt)
	}
}

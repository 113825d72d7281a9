package conformance

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
)

// twoImplementers is a report of a platform's two implementers, and of a target that looks at a guest.
func twoImplementers() *Report {
	result := func(name string, v Verdict, observed string) Result {
		return Result{Rule: "powerpc-papr/" + name, Side: abi.Hypervisor, Verdict: v, Observed: observed}
	}
	lost := result("kick/before-wait", Deviates, "ended: 0")
	lost.Deviation = "qemu-prod-not-kept"
	guest := result("guest/size-field", Fail, "other")
	guest.Side = abi.Guest
	return &Report{Schema: Schema, Runs: []*Run{
		{Target: "one", Platform: "powerpc-papr", Implementer: Implementer{"QEMU", "11"}, Results: []Result{
			result("kick/wakes-waiter", Pass, "wakes: 1"), lost, result("kick/two-kicks", Unreached, ""), result("yield/self", Pass, "result: 0"), guest,
		}},
		{Target: "two", Platform: "powerpc-papr", Implementer: Implementer{"Linux KVM-HV", "7"}, Results: []Result{
			result("kick/wakes-waiter", Pass, "wakes: 1"), result("kick/before-wait", Pass, "ended: 1"), result("kick/two-kicks", Pass, ""),
			result("yield/self", Pass, "result: 2"), guest,
		}},
		{Target: "three", Platform: "x86-xen", Implementer: Implementer{"Linux", "7"}, Results: []Result{{Rule: "x86-xen/guest/kicker-port", Side: abi.Guest, Verdict: Pass}}},
	}}
}

func TestImplementers(t *testing.T) {
	all := twoImplementers().Implementers()
	require.Len(t, all, 1)
	assert.Equal(t, 3, all[0].Both)
	assert.Equal(t, []Difference{
		{Rule: "powerpc-papr/kick/before-wait", Verdicts: [2]Verdict{Deviates, Pass}, Observed: [2]string{"ended: 0", "ended: 1"}, Deviations: [2]string{"qemu-prod-not-kept", ""}},
		{Rule: "powerpc-papr/yield/self", Verdicts: [2]Verdict{Pass, Pass}, Observed: [2]string{"result: 0", "result: 2"}},
	}, all[0].Differ)
	var b bytes.Buffer
	require.NoError(t, WriteComparisons(&b, all))
	assert.Contains(t, b.String(), "powerpc-papr: QEMU 11 (one) and Linux KVM-HV 7 (two) differ in 2 of 3 rules that both were asked about\n"+
		"  powerpc-papr/kick/before-wait\n    deviates  one: qemu-prod-not-kept: ended: 0\n    pass      two: ended: 1\n")
}

func TestWritePortable(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, twoImplementers().WritePortable(&b))
	lines := bytes.Split(bytes.TrimSpace(b.Bytes()), []byte("\n"))
	require.Len(t, lines, 1+len(abi.Questions()))
	assert.Equal(t, "question                      one        two", string(lines[0]))
	assert.Equal(t, "kick/wakes-waiter             pass       pass", string(lines[1]))
	assert.Equal(t, "kick/before-wait              deviates   pass", string(lines[2]))
	assert.Contains(t, b.String(), "preempted/running             -          -", "it has a rule that nobody was asked about")

	b.Reset()
	require.NoError(t, (&Report{Runs: twoImplementers().Runs[2:]}).WritePortable(&b))
	assert.Empty(t, b.String())
}

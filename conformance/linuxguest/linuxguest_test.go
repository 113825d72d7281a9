package linuxguest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

func TestParseLog(t *testing.T) {
	const log = "<5>[ 0.1] Linux\n<3>[ 1.2] kvm_amd: SVM not supported\n  by CPU 0\n<7>[ 1.3] for > debugging\n<30>[ 1.4] init: a > b\n"
	assert.Equal(t, []Line{
		{5, "[ 0.1] Linux"}, {3, "[ 1.2] kvm_amd: SVM not supported"}, {3, "  by CPU 0"},
		{Debug, "[ 1.3] for > debugging"}, {6, "[ 1.4] init: a > b"},
	}, parseLog(log))
	assert.Empty(t, parseLog(""))
	assert.Equal(t, []Line{{0, "a > b"}}, parseLog("a > b"))
}

func FuzzParseLog(f *testing.F) {
	f.Add("<5>[ 0.1] Linux\n  goes on\n<")
	f.Fuzz(func(t *testing.T, log string) { parseLog(log) })
}

const trace = `# tracer: nop
            init-71      [003] d..2.    12.345678: confer: (queued_spin_lock_slowpath+0x1a4/0x8a0) target=0x2 count=0x1f r=-1
      a b [9] c-72      [001] .....   112.000001: s390_diagnose: nr=0x9c text="x y" odd
     kworker-5       [000] .....   112.000002: sched_switch: prev=1
`

var names = map[string]string{"confer": "confer", "s390_diagnose": "diagnose"}

func TestParseHits(t *testing.T) {
	got, err := parseHits(trace, names)
	require.NoError(t, err)
	assert.Equal(t, []conformance.Hit{
		{Probe: "confer", CPU: 3, Args: map[string]uint64{"target": 2, "count": 0x1f, "r": ^uint64(0)}},
		{Probe: "diagnose", CPU: 1, Args: map[string]uint64{"nr": 0x9c}},
	}, got)
	for _, line := range []string{"CPU:2 [LOST 17 EVENTS]\n", "CPU:2 [LOST EVENTS]\n"} {
		_, err = parseHits(trace+line, names)
		assert.ErrorContains(t, err, "lost events")
	}
	got, err = parseHits("", names)
	assert.NoError(t, err)
	assert.Empty(t, got)
}

func FuzzParseHits(f *testing.F) {
	f.Add(trace)
	f.Fuzz(func(t *testing.T, text string) { _, _ = parseHits(text, names) })
}

func TestProbes(t *testing.T) {
	event := conformance.Probe{Name: "diagnose", Event: "s390/s390_diagnose"}
	assert.Equal(t, "s390/s390_diagnose", folder(event))
	assert.Equal(t, "s390_diagnose", name(event))
	probe := conformance.Probe{Name: "confer", At: "f+16", Args: "target=%gpr4"}
	assert.Equal(t, "pvabi/confer", folder(probe))
	assert.Equal(t, "confer", name(probe))
	assert.Equal(t, "p:pvabi/confer f+16 target=%gpr4", definition(probe))
	assert.Equal(t, "r:pvabi/x f answer=$retval", definition(conformance.Probe{Name: "x", At: "f", Return: true, Args: "answer=$retval"}))
	assert.Equal(t, "p:pvabi/x f", definition(conformance.Probe{Name: "x", At: "f"}))
}

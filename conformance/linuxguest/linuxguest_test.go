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

const list = `c000000000057ec0 T first
c000000000057ec0 t alias
c000000000057f00 T fi
c000000000058000 b local.0
c000000000058008 t last	[module]
`

func TestSymbols(t *testing.T) {
	for name, want := range map[string][2]uint64{
		"first": {0xc000000000057ec0, 0x40}, "alias": {0xc000000000057ec0, 0x40}, "fi": {0xc000000000057f00, 0x100},
		"local": {0xc000000000058000, 8}, "local.0": {0xc000000000058000, 8},
	} {
		address, size, err := symbols([]byte(list), name)
		assert.NoError(t, err, name)
		assert.Equal(t, want, [2]uint64{address, size}, name)
	}
	_, _, err := symbols([]byte(list), "irst")
	assert.ErrorIs(t, err, conformance.ErrHidden)
	_, _, err = symbols([]byte("0000000000000000 T first\n"), "first")
	assert.ErrorIs(t, err, conformance.ErrHidden)
	_, _, err = symbols([]byte("x T first\n"), "first")
	assert.Error(t, err)
}

func FuzzSymbols(f *testing.F) {
	f.Add([]byte(list))
	f.Fuzz(func(t *testing.T, text []byte) { _, _, _ = symbols(text, "first") })
}

func TestProbed(t *testing.T) {
	const list = "c00000000006dba0  k  trampoline+0x0    [OPTIMIZED]\nc00000000031c128  k  spin+0x8    [DISABLED][FTRACE]\n0000000000000000  k  hidden+0x0\n"
	got, err := probed(list, "spin")
	assert.NoError(t, err)
	assert.Equal(t, uint64(0xc00000000031c120), got)
	for _, name := range []string{"pin", "hidden", "none"} {
		_, err := probed(list, name)
		assert.Error(t, err, name)
	}
}

func FuzzProbed(f *testing.F) {
	f.Add("c00000000031c128  k  spin+0x8    [DISABLED][FTRACE]\n")
	f.Fuzz(func(t *testing.T, list string) { _, _ = probed(list, "spin") })
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
		{Probe: "confer", CPU: 3, Thread: 71, Args: map[string]uint64{"target": 2, "count": 0x1f, "r": ^uint64(0)}},
		{Probe: "diagnose", CPU: 1, Thread: 72, Args: map[string]uint64{"nr": 0x9c}},
	}, got)
	for _, line := range []string{"CPU:2 [LOST 17 EVENTS]\n", "CPU:2 [LOST EVENTS]\n"} {
		got, err = parseHits(trace+line, names)
		assert.ErrorIs(t, err, conformance.ErrLost)
		assert.Len(t, got, 2, "hits of what is left")
	}
	_, err = parseHits("init-1 [x] d..2. 1.0: confer: (f+0x4/0x8) a=1\n", names)
	assert.ErrorContains(t, err, "no CPU")
	_, err = parseHits("init [1] d..2. 1.0: confer: (f+0x4/0x8) a=1\n", names)
	assert.ErrorContains(t, err, "no thread")
	got, err = parseHits("", names)
	assert.NoError(t, err)
	assert.Empty(t, got)
}

func FuzzParseHits(f *testing.F) {
	f.Add(trace)
	f.Fuzz(func(t *testing.T, text string) { _, _ = parseHits(text, names) })
}

func lines(p conformance.Probe) []string {
	_, all := definitions(p)
	return all
}

func TestProbes(t *testing.T) {
	event := conformance.Probe{Name: "diagnose", Event: "s390/s390_diagnose"}
	assert.Equal(t, "s390/s390_diagnose", folder(event))
	assert.Equal(t, "s390_diagnose", name(event))
	assert.Empty(t, lines(event))
	fields := conformance.Probe{Name: "call", Event: "kvm/kvm_hypercall", Args: "nr=$nr:x64"}
	assert.Equal(t, "pvabi/call", folder(fields))
	file, made := definitions(fields)
	assert.Equal(t, "dynamic_events", file)
	assert.Equal(t, []string{"e:pvabi/call kvm/kvm_hypercall nr=$nr:x64"}, made)
	probe := conformance.Probe{Name: "confer", At: "f+16 g", Args: "target=%gpr4"}
	assert.Equal(t, "pvabi/confer", folder(probe))
	assert.Equal(t, "confer", name(probe))
	assert.Equal(t, []string{"p:pvabi/confer f+16 target=%gpr4", "p:pvabi/confer g target=%gpr4"}, lines(probe))
	assert.Equal(t, []string{"r:pvabi/x f answer=$retval"}, lines(conformance.Probe{Name: "x", At: "f", Return: true, Args: "answer=$retval"}))
	assert.Equal(t, []string{"p:pvabi/x f"}, lines(conformance.Probe{Name: "x", At: "f"}))
}

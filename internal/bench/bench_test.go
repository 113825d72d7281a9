package bench

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"pvabi/conformance"
)

var update = flag.Bool("update", false, "write the golden files anew")

// runs are a run that has measured, one that failed and one of a target that could not run.
func runs() []*conformance.Run {
	up := func(base, step float64) (out []float64) {
		for i := range 10 {
			out = append(out, base+step*float64(i))
		}
		return out
	}
	return []*conformance.Run{
		{
			Target: "x86-kvm", Platform: "x86-kvm", Implementer: conformance.Implementer{Name: "Linux KVM", Version: "7.2.12"},
			Guest: conformance.Guest{Identity: conformance.Identity{GOARCH: "amd64", Release: "7.2.12-cloud", CPUs: 2}},
			QEMU:  conformance.QEMU{Artefact: conformance.Artefact{Version: "11.1.2"}}, Notes: []string{"one to read"},
			Measured: []conformance.Measured{
				{Cost: "probe", Sharing: "none", Turns: 1 << 20, Nanoseconds: up(1.25, 0.01)},
				{Cost: "cpuid", Sharing: "none", Turns: 1000, Nanoseconds: up(20000, 10)},
				{Cost: "cpuid", Sharing: "steal", Turns: 1000, Nanoseconds: up(22000, 11)},
				{Cost: "cpuid", Sharing: "all", Turns: 1000, Nanoseconds: up(20005, 10)},
				{Cost: "ipi", Sharing: "none", Retaken: 10, Failed: "a CPU waited in vain"},
				{Cost: "two-values", Sharing: "none", Turns: 1, Nanoseconds: []float64{1, 2}},
			},
		},
		{Target: "powerpc-qemu", Implementer: conformance.Implementer{Name: "QEMU"}, Error: "the guest died"},
		{Target: "s390-qemu", Implementer: conformance.Implementer{Name: "QEMU"}, Unreached: "no go command on PATH"},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "%s: run with -update if the change is meant", path)
}

func TestWriteTables(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteTables(&b, runs()))
	golden(t, "tables.md", b.Bytes())
}

// TestWriteGo has what is written read back by the package that benchstat reads with.
func TestWriteGo(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteGo(&b, runs()))
	golden(t, "bench.txt", b.Bytes())

	r := benchfmt.NewReader(&b, "bench.txt")
	n := 0
	for r.Scan() {
		res, ok := r.Result().(*benchfmt.Result)
		require.True(t, ok, "%v", r.Result())
		if n == 10 {
			assert.Equal(t, "Exit/target=x86-kvm/op=cpuid/areas=none-2", string(res.Name))
			assert.Equal(t, 1000, res.Iters)
			assert.Equal(t, "Linux KVM 7.2.12", res.GetConfig("implementer"))
			v, ok := res.Value("sec/op")
			assert.True(t, ok)
			assert.InDelta(t, 20000e-9, v, 1e-12)
		}
		n++
	}
	require.NoError(t, r.Err())
	assert.Equal(t, 42, n, "one for each value")
}

func TestRows(t *testing.T) {
	rows := Rows(runs()[0])
	steal, all := rows[2], rows[3]
	assert.True(t, steal.Against.Significant())
	assert.InDelta(t, 1.1, steal.Against.Ratio.Center, 1e-9)
	assert.InDelta(t, 1.147, steal.Seed, 1e-3)
	assert.False(t, all.Against.Significant(), "half a step of ten is chance")
	assert.Nil(t, rows[1].Against)
}

package page

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

func TestVersions(t *testing.T) {
	run := func(kernel, qemu, unreached string) *conformance.Run {
		r := &conformance.Run{Target: "t", Unreached: unreached, Results: []conformance.Result{
			{Verdict: conformance.Pass}, {Verdict: conformance.Pass}, {Verdict: conformance.Fail},
		}}
		r.Guest.Kernel.Version, r.QEMU.Version = kernel, qemu
		return r
	}
	var b bytes.Buffer
	require.NoError(t, Versions(&b, []*conformance.Run{
		run("7.2.12+deb14-amd64 (7.2.12-1)", "11.1.2", ""), run("6.1.0-50-amd64 (6.1.176-1)", "11.1.2", "a | b\nc"), run("6.1.0-50-amd64 (6.1.176-1)", "7.2.22", ""),
	}))
	assert.Equal(t, `| target | kernel | QEMU | pass | fail | deviates | mended | absent | unreached | error | remark |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|
| t | 6.1.0-50-amd64 | 7.2.22 | 2 | 1 | 0 | 0 | 0 | 0 | 0 |  |
| t | 6.1.0-50-amd64 | 11.1.2 | 2 | 1 | 0 | 0 | 0 | 0 | 0 | a \| b |
| t | 7.2.12+deb14-amd64 | 11.1.2 | 2 | 1 | 0 | 0 | 0 | 0 | 0 |  |
`, b.String())
}

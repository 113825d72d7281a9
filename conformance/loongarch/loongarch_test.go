package loongarch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance/microvm"
)

const sample = `           CPU0       CPU1       CPU3       
 14:       1004        205         17  LoongArch CPUINTC   0  SWI0-IPI
 15:          3          4          5  LoongArch CPUINTC  12  IPI
 16:        900        200         11  LoongArch CPUINTC  11  Constant
ERR:          0
`

func TestTaken(t *testing.T) {
	for _, c := range []struct {
		handler string
		cpu     int
		want    uint64
	}{{"SWI0-IPI", 0, 1004}, {"SWI0-IPI", 1, 205}, {"SWI0-IPI", 3, 17}, {"IPI", 3, 5}} {
		got, err := taken(strings.NewReader(sample), c.cpu, c.handler)
		require.NoError(t, err, "%+v", c)
		assert.Equal(t, c.want, got, "%+v", c)
	}
	_, err := taken(strings.NewReader(sample), 2, "IPI")
	assert.ErrorContains(t, err, "is it offline?")
	_, err = taken(strings.NewReader(sample), 1, "SWI1")
	assert.ErrorContains(t, err, "no line SWI1")
	_, err = taken(strings.NewReader("CPU0\n1: many IPI"), 0, "IPI")
	assert.Error(t, err)
}

func FuzzTaken(f *testing.F) {
	f.Add(sample)
	f.Fuzz(func(t *testing.T, text string) { _, _ = taken(strings.NewReader(text), 1, "IPI") })
}

func TestException(t *testing.T) {
	assert.Equal(t, uint64(14), exception("SIGILL: illegal instruction\nPC=0x1 m=0 sigcode=128\n"))
	assert.Zero(t, exception("SIGSEGV: segmentation violation\n"))
	assert.Zero(t, exception(""))
}

func TestCheck(t *testing.T) {
	assert.NoError(t, check(microvm.Config{}))
	assert.NoError(t, check(microvm.Config{CPUs: 3}))
	assert.Error(t, check(microvm.Config{CPUs: 4}))
	assert.Error(t, check(microvm.Config{CPUs: 3, IDs: []uint64{5, 4, 3}}))
}

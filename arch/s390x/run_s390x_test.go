package s390x

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
	"pvabi/arch/internal/probetest"
)

func TestMain(m *testing.M) { probetest.Main(m) }

var probe = probetest.Probe{
	ISA: ISA,
	Run: func(f arch.Frame, resumed bool) uint64 { return uint64(Run(f, resumed)) },
	Unknown: map[string]arch.Op{
		"wait, enabled":         probetest.Op(arch.Wait, 1),
		"wait, disabled":        probetest.Op(arch.Wait, 0),
		"discover leaf":         probetest.Op(arch.Discover, SystemInformation+1),
		"register to read":      probetest.Op(arch.ReadRegister, 0),
		"register to write":     probetest.Op(arch.WriteRegister, 0, 0),
		"vectors of 256 bits":   probetest.Op(arch.LoadVectors, 1),
		"sample of other order": probetest.Op(arch.Sample, 0, 0, 1, 1),
	},
}

func TestProbe(t *testing.T) { probe.Test(t) }

func TestFacilities(t *testing.T) {
	_, r := probe.Execute(t, probetest.Op(arch.Discover, Facilities))
	has := func(bit int) bool { return r[0].Regs[bit/64]>>(63-bit%64)&1 == 1 }
	assert.True(t, has(0), "N3 instructions")
	assert.True(t, has(2), "z/Architecture is active")
	assert.True(t, has(7), "STFLE itself")
	assert.Zero(t, r[0].Flags, "all facilities fit")
	assert.NotZero(t, r[0].Aux)
	for i := int(r[0].Aux); i < len(r[0].Regs); i++ {
		assert.Zero(t, r[0].Regs[i], "doubleword %d, of %d that there are", i, r[0].Aux)
	}
}

func TestVectors(t *testing.T) {
	f := probetest.NewFrame(t)
	vectors := f[arch.FrameVectors:][:16*32]
	for i := range vectors {
		vectors[i] = byte(i)*3 + 1
	}
	want := append([]byte(nil), vectors...)
	p := arch.Program{probetest.Op(arch.LoadVectors, 0)}
	for i := range 16 {
		for half := range 2 {
			p = append(p, probetest.Op(arch.Store, uint64(uintptr(unsafe.Pointer(&vectors[i*32+half*8]))), 0, 8))
		}
	}
	require.NoError(t, f.Load(append(p, probetest.Op(arch.StoreVectors, 0))))
	require.Equal(t, Ended, Run(f, false))
	assert.Equal(t, want, []byte(vectors))
}

func TestPrivileged(t *testing.T) {
	ops := map[string]arch.Op{
		"interrupts on":      probetest.Op(arch.Interrupts, 1),
		"interrupts off":     probetest.Op(arch.Interrupts, 0),
		"CPU address":        probetest.Op(arch.Discover, CPUAddress),
		"CPU identification": probetest.Op(arch.Discover, CPUID),
		"system information": probetest.Op(arch.Discover, SystemInformation),
	}
	for i, name := range ISA.Instructions {
		o := probetest.Op(arch.Call, uint64(i))
		for r := range o.Regs {
			o.Regs[r] = 0x0123456789abcdef * uint64(r+1)
		}
		ops[name] = o
	}
	probe.Illegal(t, ops)
}

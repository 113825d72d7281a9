package loong64

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
		"register to read":      probetest.Op(arch.ReadRegister, 0x3ff),
		"register to write":     probetest.Op(arch.WriteRegister, CRMD, 0),
		"space to read":         probetest.Op(arch.ReadRegister, 2*IOCSR),
		"space to write":        probetest.Op(arch.WriteRegister, 2*IOCSR, 0),
		"sample of other order": probetest.Op(arch.Sample, 0, 0, 1, 1),
	},
}

func TestProbe(t *testing.T) { probe.Test(t) }

// CPUCFG's words (LoongArch Reference Manual volume 1, "CPUCFG").
const (
	wordISA      = 1
	wordFeatures = 2
	lsx, lasx    = 1 << 6, 1 << 7
)

func cpucfg(t *testing.T, word uint64) uint64 {
	_, r := probe.Execute(t, probetest.Op(arch.Discover, word))
	return r[0].Regs[ISA.Register("r4")]
}

func TestDiscover(t *testing.T) {
	assert.Equal(t, uint64(2), cpucfg(t, wordISA)&3, "LA64")
	assert.Zero(t, cpucfg(t, 0xffff), "a word that is not used")
}

func TestVectors(t *testing.T) {
	features := cpucfg(t, wordFeatures)
	for name, tc := range map[string]struct{ wide, feature uint64 }{"128 bits": {0, lsx}, "256 bits": {1, lasx}} {
		if features&tc.feature == 0 {
			t.Logf("%s: not looked at, this CPU has none such", name)
			continue
		}
		f := probetest.NewFrame(t)
		vectors := f[arch.FrameVectors:][:16*32]
		for i := range vectors {
			vectors[i] = byte(i)*3 + 1
		}
		want := append([]byte(nil), vectors...)
		// Between loading and storing, the program wipes both halves of each.
		p := arch.Program{probetest.Op(arch.LoadVectors, tc.wide)}
		for i := range 16 {
			p = append(p, probetest.Op(arch.Store, uint64(uintptr(unsafe.Pointer(&vectors[i*32]))), 0, 8))
			p = append(p, probetest.Op(arch.Store, uint64(uintptr(unsafe.Pointer(&vectors[i*32+16]))), 0, 8))
			if tc.wide == 0 {
				clear(want[i*32+16:][:8])
			}
		}
		require.NoError(t, f.Load(append(p, probetest.Op(arch.StoreVectors, tc.wide))))
		require.Equal(t, Ended, Run(f, false))
		assert.Equal(t, want, []byte(vectors), name)
	}
}

func TestPrivileged(t *testing.T) {
	ops := map[string]arch.Op{
		"interrupts off":    probetest.Op(arch.Interrupts, 0),
		"wait":              probetest.Op(arch.Wait, 1),
		"read CRMD":         probetest.Op(arch.ReadRegister, CRMD),
		"read timer":        probetest.Op(arch.ReadRegister, TVAL),
		"read IO features":  probetest.Op(arch.ReadRegister, IOCSR+8),
		"write ECFG":        probetest.Op(arch.WriteRegister, ECFG, 0),
		"write ESTAT":       probetest.Op(arch.WriteRegister, ESTAT, 0),
		"write TCFG":        probetest.Op(arch.WriteRegister, TCFG, 0),
		"write IO features": probetest.Op(arch.WriteRegister, IOCSR+8, 0),
	}
	if probetest.Guest() {
		// Which has no hypervisor that answers: QEMU emulates no virtualization.
		for _, form := range ISA.Instructions {
			o := Hypercall(form, 1, 2, 3)
			o.Regs[ISA.Register("r18")] = 0x0123456789abcdef
			ops[form] = o
		}
	}
	probe.Illegal(t, ops)
}

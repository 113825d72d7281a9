package ppc64le

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
		"discover leaf":           probetest.Op(arch.Discover, 1),
		"register to read":        probetest.Op(arch.ReadRegister, 1),
		"register to write":       probetest.Op(arch.WriteRegister, PVR, 0),
		"vectors of 256 bits":     probetest.Op(arch.LoadVectors, 1),
		"sample of unknown order": probetest.Op(arch.Sample, 0, 0, 1, 2),
	},
}

func TestProbe(t *testing.T) { probe.Test(t) }

func TestDiscover(t *testing.T) {
	// A process may ask for the version: Linux answers in the CPU's place.
	_, r := probe.Execute(t, probetest.Op(arch.Discover, 0), probetest.Op(arch.ReadRegister, PVR))
	assert.NotZero(t, r[0].Regs[ISA.Register("r3")])
	assert.Equal(t, r[0].Regs[ISA.Register("r3")], r[1].Value)
}

func TestReadRegister(t *testing.T) {
	_, r := probe.Execute(t, probetest.Op(arch.Clock), probetest.Op(arch.ReadRegister, TB), probetest.Op(arch.Clock),
		probetest.Op(arch.WriteRegister, VRSAVE, 0xcafe), probetest.Op(arch.ReadRegister, VRSAVE))
	assert.LessOrEqual(t, r[0].Value, r[1].Value)
	assert.LessOrEqual(t, r[1].Value, r[2].Value)
	assert.Equal(t, uint64(0xcafe), r[4].Value)
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

func TestSampleOfTheOtherOrder(t *testing.T) {
	words := [2]uint64{0x02000000, 0x2a00000000000000}
	version, data := probetest.Cell(t, words[0]), probetest.Cell(t, words[1])
	_, r := probe.Execute(t, probetest.Op(arch.Sample, probetest.Address(version), probetest.Address(data), 10, 1))
	assert.Equal(t, []uint64{0, 10, 42}, []uint64{r[0].Regs[arch.SampleOdd], r[0].Aux, r[0].Value})
	*version = 0x03000000
	_, r = probe.Execute(t, probetest.Op(arch.Sample, probetest.Address(version), probetest.Address(data), 10, 1))
	assert.Equal(t, []uint64{10, 0}, []uint64{r[0].Regs[arch.SampleOdd], r[0].Aux})
}

func TestCall(t *testing.T) {
	if !probetest.Guest() {
		t.Skip("a process that makes a hypercall is killed, but for under QEMU's own hypervisor")
	}
	// QEMU answers problem state with H_PRIVILEGE (hw/ppc/spapr.c, emulate_spapr_hypercall).
	o := Hcall(0xe0)
	for i := range o.Regs {
		if i != ISA.Register("r3") {
			o.Regs[i] = 0x0123456789abcdef * uint64(i+1)
		}
	}
	o.Regs[ISA.Register("xer")] = 0xa0000000 // SO and CA
	o.Flags = 0x13579bdf
	want := o.Regs
	want[ISA.Register("r3")] = ^uint64(2)
	want[ISA.Register("msr")] = 0
	length := o
	length.Kind = arch.CallLength
	_, r := probe.Execute(t, o, length, probetest.Op(arch.Clock))
	for i, x := range r[:2] {
		assert.Equal(t, want, x.Regs, "registers after call %d", i)
		assert.Equal(t, []uint64{1, 0, 0x13579bdf, 4, 0}, []uint64{x.Count, x.Trap, x.Flags, x.Value, x.Aux}, "count, trap, CR, length, changed registers")
	}
	assert.Equal(t, uint64(1), r[2].Count)
}

func TestPrivileged(t *testing.T) {
	probe.Illegal(t, map[string]arch.Op{
		"interrupts off":     probetest.Op(arch.Interrupts, 0),
		"wait":               probetest.Op(arch.Wait, 1),
		"read MSR":           probetest.Op(arch.ReadRegister, MSR),
		"read decrementer":   probetest.Op(arch.ReadRegister, DEC),
		"write decrementer":  probetest.Op(arch.WriteRegister, DEC, 0),
		"read virtual clock": probetest.Op(arch.ReadRegister, VTB),
	})
}

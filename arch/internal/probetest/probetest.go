// Package probetest tests probes: what each must do alike, whatever its instruction set.
//
// Programs without privileged operations run in a process, so the tests of a probe are
// those of an ordinary package on a machine of its architecture. On another one they are
// built for it and booted under QEMU, being the guest's only program: see [Main].
package probetest

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
)

// The statuses that all probes leave with.
const (
	Ended   = 0
	Exited  = 1
	Unknown = 2
)

// Probe is what is tested.
type Probe struct {
	ISA *arch.ISA
	// Run runs a frame's program in the process.
	Run func(f arch.Frame, resumed bool) uint64
	// Unknown are operations that the probe must refuse, besides those that all have to.
	Unknown map[string]arch.Op
}

// Test runs all tests.
func (p Probe) Test(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"EmptyProgram":         p.emptyProgram,
		"LoadAndStore":         p.loadAndStore,
		"Loop":                 p.loop,
		"LoopOutOfTheFrame":    p.loopOutOfTheFrame,
		"SpinUntil":            p.spinUntil,
		"SpinUntilSeesAnother": p.spinUntilSeesAnother,
		"Clock":                p.clock,
		"Exit":                 p.exit,
		"Unknown":              p.unknown,
		"SampleOfStill":        p.sampleOfStill,
		"SampleOfAWriter":      p.sampleOfAWriter,
		"KeepsRegisters":       p.keepsRegisters,
	} {
		t.Run(name, test)
	}
}

// NewFrame returns a frame.
func NewFrame(t *testing.T) arch.Frame {
	t.Helper()
	memory := make([]uint64, arch.FrameSize/8)
	f, err := arch.NewFrame(unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), arch.FrameSize))
	require.NoError(t, err)
	return f
}

// Execute runs a program to its end, and returns the frame and the results, that of the End
// included.
func (p Probe) Execute(t *testing.T, program ...arch.Op) (arch.Frame, []arch.Result) {
	t.Helper()
	f := NewFrame(t)
	require.NoError(t, f.Load(program))
	require.Equal(t, uint64(Ended), p.Run(f, false))
	op, _ := f.At()
	assert.Equal(t, len(program), op, "operation that the program ended at")
	return f, f.Results(len(program) + 1)
}

// Op returns an operation.
func Op(kind arch.Kind, args ...uint64) arch.Op {
	o := arch.Op{Kind: kind}
	copy(o.Arg[:], args)
	return o
}

// Cell returns a word that stays where it is until the test ends: one on the stack moves
// with it.
func Cell(t *testing.T, value uint64) *uint64 {
	p := new(uint64)
	*p = value
	t.Cleanup(func() { runtime.KeepAlive(p) })
	return p
}

// Address is what a program knows a word by.
func Address(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

func (p Probe) emptyProgram(t *testing.T) {
	f, r := p.Execute(t)
	assert.Equal(t, uint64(1), r[0].Count)
	assert.NotZero(t, r[0].Begin)
	assert.LessOrEqual(t, r[0].Begin, r[0].End)
	_, completed := f.At()
	assert.Equal(t, uint64(1), completed)
}

func (p Probe) loadAndStore(t *testing.T) {
	const old, value = 0x1122334455667788, 0xa1a2a3a4a5a6a7a8
	for _, size := range []uint64{1, 2, 4, 8} {
		word := Cell(t, old)
		bytes := unsafe.Slice((*byte)(unsafe.Pointer(word)), 8)
		want := [8]byte(bytes)
		mask := ^uint64(0) >> (64 - 8*size)
		whole := make([]byte, 8)
		p.ISA.Order.PutUint64(whole, value)
		if p.ISA.Order == binary.ByteOrder(binary.BigEndian) {
			whole = whole[8-size:]
		}
		copy(want[:], whole[:size])
		_, r := p.Execute(t, Op(arch.Store, Address(word), value, size), Op(arch.Load, Address(word), size))
		assert.Equal(t, want[:], bytes, "word after a store of %d bytes", size)
		assert.Equal(t, value&mask, r[1].Value, "load of %d bytes", size)
		assert.Equal(t, []uint64{1, 1}, []uint64{r[0].Count, r[1].Count})
		assert.Zero(t, r[0].Trap|r[1].Trap)
	}
}

func (p Probe) loop(t *testing.T) {
	for _, times := range []uint64{0, 1, 2, 1000} {
		f, r := p.Execute(t, Op(arch.Clock), Op(arch.Clock), Op(arch.Loop, 1, times), Op(arch.Clock))
		want := max(times, 1)
		var got []uint64
		for _, x := range r {
			got = append(got, x.Count)
		}
		assert.Equal(t, []uint64{1, want, want, 1, 1}, got, "completions with a loop of %d", times)
		_, completed := f.At()
		assert.Equal(t, 2*want+3, completed)
	}
}

func (p Probe) loopOutOfTheFrame(t *testing.T) {
	for _, to := range []uint64{arch.MaxOps, 1 << 63} {
		f := NewFrame(t)
		require.NoError(t, f.Load(arch.Program{Op(arch.Loop, to, 2)}))
		assert.Equal(t, uint64(Unknown), p.Run(f, false), "loop to %#x", to)
	}
}

func (p Probe) spinUntil(t *testing.T) {
	word := Cell(t, 0xff01)
	for name, tc := range map[string]struct{ mask, want, limit, reads uint64 }{
		"met at once":       {0xff, 1, 0, 1},
		"met at the limit":  {0xff, 1, 1, 1},
		"masked out":        {0, 0, 0, 1},
		"not met":           {0xff, 2, 5, 5},
		"only met unmasked": {0xff, 0xff01, 3, 3},
	} {
		_, r := p.Execute(t, Op(arch.SpinUntil, Address(word), tc.mask, tc.want, tc.limit))
		assert.Equal(t, []uint64{0xff01, tc.reads}, []uint64{r[0].Value, r[0].Aux}, name)
	}
}

func (p Probe) spinUntilSeesAnother(t *testing.T) {
	word, reached := Cell(t, 0), Cell(t, 0)
	go func() {
		for atomic.LoadUint64(reached) == 0 {
			runtime.Gosched()
		}
		atomic.StoreUint64(word, 7)
	}()
	// Bounded, for a garbage collection would wait for a spin to end while the goroutine
	// that ends it waits for the collection.
	for seen := uint64(0); seen != 7; runtime.Gosched() {
		_, r := p.Execute(t, Op(arch.Store, Address(reached), 1, 8), Op(arch.SpinUntil, Address(word), ^uint64(0), 7, 1000))
		seen = r[1].Value
	}
}

func (p Probe) clock(t *testing.T) {
	_, r := p.Execute(t, Op(arch.Clock), Op(arch.Clock))
	assert.LessOrEqual(t, r[0].Begin, r[0].Value)
	assert.LessOrEqual(t, r[0].Value, r[0].End)
	assert.LessOrEqual(t, r[0].End, r[1].Begin)
	assert.LessOrEqual(t, r[1].Begin, r[1].Value)
}

func (p Probe) exit(t *testing.T) {
	f := NewFrame(t)
	word := Cell(t, 0)
	require.NoError(t, f.Load(arch.Program{Op(arch.Exit, 7), Op(arch.Store, Address(word), 1, 8), Op(arch.Exit, 8)}))
	require.Equal(t, uint64(Exited), p.Run(f, false))
	at, completed := f.At()
	assert.Equal(t, []uint64{0, 0, 7, 0, 0}, []uint64{uint64(at), completed, f.Word(arch.FrameExit), f.Results(1)[0].Count, *word}, "at the first exit")
	require.Equal(t, uint64(Exited), p.Run(f, true))
	at, completed = f.At()
	assert.Equal(t, []uint64{2, 2, 8, 1, 1}, []uint64{uint64(at), completed, f.Word(arch.FrameExit), f.Results(1)[0].Count, *word}, "at the second exit")
	require.Equal(t, uint64(Ended), p.Run(f, true))
	at, completed = f.At()
	assert.Equal(t, []uint64{3, 4}, []uint64{uint64(at), completed}, "at the end")
}

func (p Probe) unknown(t *testing.T) {
	ops := map[string]arch.Op{
		"kind":           Op(arch.Sample + 1),
		"kind, negative": Op(^arch.Kind(0)),
		"kind, high":     Op(1<<32 | arch.Clock),
		"load size":      Op(arch.Load, 0, 3),
		"store size":     Op(arch.Store, 0, 0, 16),
		"call form":      Op(arch.Call, uint64(len(p.ISA.Instructions))),
		"length form":    Op(arch.CallLength, ^uint64(0)),
		"wait":           Op(arch.Wait, 2),
		"interrupts":     Op(arch.Interrupts, 2),
		"load vectors":   Op(arch.LoadVectors, 2),
		"store vectors":  Op(arch.StoreVectors, 2),
	}
	for name, o := range p.Unknown {
		ops[name] = o
	}
	for name, bad := range ops {
		f := NewFrame(t)
		require.NoError(t, f.Load(arch.Program{Op(arch.Clock), bad, Op(arch.Clock)}))
		assert.Equal(t, uint64(Unknown), p.Run(f, false), name)
		r := f.Results(3)
		assert.Equal(t, []uint64{0, arch.TrapUnknown, 0, 0}, []uint64{r[0].Trap, r[1].Trap, r[1].Count, r[2].Count}, name)
		at, completed := f.At()
		assert.Equal(t, []uint64{1, 1}, []uint64{uint64(at), completed}, name)
	}
}

func (p Probe) sampleOfStill(t *testing.T) {
	for name, tc := range map[string]struct {
		version         uint32
		odd, consistent uint64
		value           uint64
	}{
		"even version": {version: 4, consistent: 100, value: 42},
		"odd version":  {version: 5, odd: 100},
	} {
		data := Cell(t, 42)
		version := (*uint32)(unsafe.Pointer(Cell(t, ^uint64(0))))
		*version = tc.version
		_, r := p.Execute(t, Op(arch.Sample, uint64(uintptr(unsafe.Pointer(version))), Address(data), 100))
		assert.Equal(t, [16]uint64{0: tc.odd}, r[0].Regs, name)
		assert.Equal(t, []uint64{tc.consistent, tc.value, 1}, []uint64{r[0].Aux, r[0].Value, r[0].Count}, name)
	}
}

func (p Probe) sampleOfAWriter(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(n uint64, version *uint32, data *uint64)
		never []int
		seen  int
	}{
		"protocol kept": {func(n uint64, version *uint32, data *uint64) {
			atomic.AddUint32(version, 1)
			atomic.StoreUint64(data, n)
			atomic.AddUint32(version, 1)
		}, []int{arch.SampleTorn, arch.SampleLess, arch.SampleSilent}, arch.SampleChanges},
		"version left alone": {func(n uint64, _ *uint32, data *uint64) {
			atomic.StoreUint64(data, n)
		}, []int{arch.SampleOdd, arch.SampleMoved, arch.SampleLess}, arch.SampleSilent},
		"data goes backwards": {func(n uint64, version *uint32, data *uint64) {
			atomic.AddUint32(version, 1)
			atomic.StoreUint64(data, -n)
			atomic.AddUint32(version, 1)
		}, []int{arch.SampleTorn, arch.SampleSilent}, arch.SampleLess},
	} {
		data, stop := Cell(t, 1), new(atomic.Bool)
		version := (*uint32)(unsafe.Pointer(Cell(t, 0)))
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := uint64(2); !stop.Load(); n++ {
				tc.write(n, version, data)
			}
		}()
		f := NewFrame(t)
		var sum [16]uint64
		for sum[tc.seen] == 0 {
			require.NoError(t, f.Load(arch.Program{Op(arch.Sample, uint64(uintptr(unsafe.Pointer(version))), Address(data), 1000)}))
			require.Equal(t, uint64(Ended), p.Run(f, false))
			for i, v := range f.Results(1)[0].Regs {
				sum[i] += v
			}
			runtime.Gosched()
		}
		stop.Store(true)
		<-done
		for _, i := range tc.never {
			assert.Zero(t, sum[i], "%s: count %d of %v", name, i, sum)
		}
	}
}

// keepsRegisters looks at what a callee has to keep: Go's own code around the probe would not
// survive otherwise. An exit and a resumption from another depth of the stack.
func (p Probe) keepsRegisters(t *testing.T) {
	f := NewFrame(t)
	require.NoError(t, f.Load(arch.Program{Op(arch.Exit, 1), Op(arch.Clock), Op(arch.Exit, 2)}))
	require.Equal(t, uint64(Exited), p.Run(f, false))
	deeper(t, 100, func() { require.Equal(t, uint64(Exited), p.Run(f, true)) })
	require.Equal(t, uint64(Ended), p.Run(f, true))
}

func deeper(t *testing.T, depth int, do func()) {
	if depth == 0 {
		do()
		return
	}
	var room [256]byte
	deeper(t, depth-1, do)
	assert.Zero(t, room[depth])
}

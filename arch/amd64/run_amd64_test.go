package amd64

import (
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
)

// Programs without privileged operations run in the test itself.

func newFrame(t *testing.T) arch.Frame {
	t.Helper()
	memory := make([]uint64, arch.FrameSize/8)
	f, err := arch.NewFrame(unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), arch.FrameSize))
	require.NoError(t, err)
	return f
}

func execute(t *testing.T, p ...arch.Op) (arch.Frame, []arch.Result) {
	t.Helper()
	f := newFrame(t)
	require.NoError(t, f.Load(p))
	require.Equal(t, Ended, Run(f, false))
	op, _ := f.At()
	assert.Equal(t, len(p), op, "operation that the program ended at")
	return f, f.Results(len(p) + 1)
}

func op(kind arch.Kind, args ...uint64) arch.Op {
	o := arch.Op{Kind: kind}
	copy(o.Arg[:], args)
	return o
}

// cell returns a word that stays where it is until the test ends: one on the stack moves
// with it.
func cell(t *testing.T, value uint64) *uint64 {
	p := new(uint64)
	*p = value
	t.Cleanup(func() { runtime.KeepAlive(p) })
	return p
}

func address(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

func TestEmptyProgram(t *testing.T) {
	f, r := execute(t)
	assert.Equal(t, uint64(1), r[0].Count)
	assert.NotZero(t, r[0].Begin)
	assert.LessOrEqual(t, r[0].Begin, r[0].End)
	_, completed := f.At()
	assert.Equal(t, uint64(1), completed)
}

func TestLoadAndStore(t *testing.T) {
	const old, value = 0x1122334455667788, 0xa1a2a3a4a5a6a7a8
	for _, tc := range []struct{ size, stored, loaded uint64 }{
		{1, 0x11223344556677a8, 0xa8},
		{2, 0x112233445566a7a8, 0xa7a8},
		{4, 0x11223344a5a6a7a8, 0xa5a6a7a8},
		{8, value, value},
	} {
		word := cell(t, old)
		_, r := execute(t, op(arch.Store, address(word), value, tc.size), op(arch.Load, address(word), tc.size))
		assert.Equal(t, tc.stored, *word, "word after a store of %d bytes", tc.size)
		assert.Equal(t, tc.loaded, r[1].Value, "load of %d bytes", tc.size)
		assert.Equal(t, []uint64{1, 1}, []uint64{r[0].Count, r[1].Count})
		assert.Zero(t, r[0].Trap|r[1].Trap)
	}
}

func TestLoop(t *testing.T) {
	for _, times := range []uint64{0, 1, 2, 1000} {
		f, r := execute(t, op(arch.Clock), op(arch.Clock), op(arch.Loop, 1, times), op(arch.Clock))
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

func TestSpinUntil(t *testing.T) {
	word := cell(t, 0xff01)
	for name, tc := range map[string]struct{ mask, want, limit, reads uint64 }{
		"met at once":       {0xff, 1, 0, 1},
		"met at the limit":  {0xff, 1, 1, 1},
		"masked out":        {0, 0, 0, 1},
		"not met":           {0xff, 2, 5, 5},
		"only met unmasked": {0xff, 0xff01, 3, 3},
	} {
		_, r := execute(t, op(arch.SpinUntil, address(word), tc.mask, tc.want, tc.limit))
		assert.Equal(t, []uint64{0xff01, tc.reads}, []uint64{r[0].Value, r[0].Aux}, name)
	}
}

func TestSpinUntilSeesAnotherCPU(t *testing.T) {
	word, reached := cell(t, 0), cell(t, 0)
	go func() {
		for atomic.LoadUint64(reached) == 0 {
			runtime.Gosched()
		}
		atomic.StoreUint64(word, 7)
	}()
	// Bounded, for a garbage collection would wait for a spin to end while the goroutine
	// that ends it waits for the collection.
	for seen := uint64(0); seen != 7; runtime.Gosched() {
		_, r := execute(t, op(arch.Store, address(reached), 1, 8), op(arch.SpinUntil, address(word), ^uint64(0), 7, 1000))
		seen = r[1].Value
	}
}

func TestClock(t *testing.T) {
	_, r := execute(t, op(arch.Clock), op(arch.Clock))
	assert.LessOrEqual(t, r[0].Begin, r[0].Value)
	assert.LessOrEqual(t, r[0].Value, r[0].End)
	assert.LessOrEqual(t, r[0].End, r[1].Begin)
	assert.LessOrEqual(t, r[1].Begin, r[1].Value)
}

func TestDiscover(t *testing.T) {
	_, r := execute(t, op(arch.Discover, 0), op(arch.Discover, 0x80000000), op(arch.Discover, 7, 0))
	vendor := ""
	for _, name := range []string{"rbx", "rdx", "rcx"} {
		v := r[0].Regs[ISA.Register(name)]
		vendor += string([]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
	}
	assert.Contains(t, []string{"GenuineIntel", "AuthenticAMD", "HygonGenuine"}, vendor)
	assert.GreaterOrEqual(t, r[1].Regs[ISA.Register("rax")], uint64(0x80000001))
	for _, x := range r[:3] {
		for _, v := range x.Regs {
			assert.Less(t, v, uint64(1)<<32, "registers of 32 bits")
		}
	}
}

func TestVectors(t *testing.T) {
	for name, wide := range map[string]uint64{"128 bits": 0, "256 bits": 1} {
		if wide == 1 && !avx(t) {
			t.Logf("%s: not looked at, this CPU has no AVX", name)
			continue
		}
		f := newFrame(t)
		vectors := f[arch.FrameVectors:][:16*32]
		for i := range vectors {
			vectors[i] = byte(i)*3 + 1
		}
		want := append([]byte(nil), vectors...)
		// Between loading and storing, the program wipes both halves of each.
		p := arch.Program{op(arch.LoadVectors, wide)}
		for i := range 16 {
			p = append(p, op(arch.Store, uint64(uintptr(unsafe.Pointer(&vectors[i*32]))), 0, 8))
			p = append(p, op(arch.Store, uint64(uintptr(unsafe.Pointer(&vectors[i*32+16]))), 0, 8))
			if wide == 0 {
				clear(want[i*32+16:][:8])
			}
		}
		require.NoError(t, f.Load(append(p, op(arch.StoreVectors, wide))))
		require.Equal(t, Ended, Run(f, false))
		assert.Equal(t, want, []byte(vectors), name)
	}
}

func avx(t *testing.T) bool {
	_, r := execute(t, op(arch.Discover, 1))
	const osxsave, avx = 1 << 27, 1 << 28
	return r[0].Regs[ISA.Register("rcx")]&(osxsave|avx) == osxsave|avx
}

func TestExit(t *testing.T) {
	f := newFrame(t)
	word := cell(t, 0)
	require.NoError(t, f.Load(arch.Program{op(arch.Exit, 7), op(arch.Store, address(word), 1, 8), op(arch.Exit, 8)}))
	require.Equal(t, Exited, Run(f, false))
	at, completed := f.At()
	assert.Equal(t, []uint64{0, 0, 7, 0, 0}, []uint64{uint64(at), completed, f.Word(arch.FrameExit), f.Results(1)[0].Count, *word}, "at the first exit")
	require.Equal(t, Exited, Run(f, true))
	at, completed = f.At()
	assert.Equal(t, []uint64{2, 2, 8, 1, 1}, []uint64{uint64(at), completed, f.Word(arch.FrameExit), f.Results(1)[0].Count, *word}, "at the second exit")
	require.Equal(t, Ended, Run(f, true))
	at, completed = f.At()
	assert.Equal(t, []uint64{3, 4}, []uint64{uint64(at), completed}, "at the end")
}

func TestUnknownOperations(t *testing.T) {
	for name, bad := range map[string]arch.Op{
		"kind":           op(arch.Sample + 1),
		"kind, negative": op(^arch.Kind(0)),
		"kind, high":     op(1<<32 | arch.Clock),
		"load size":      op(arch.Load, 0, 3),
		"store size":     op(arch.Store, 0, 0, 16),
		"call form":      op(arch.Call, 2),
		"length form":    op(arch.CallLength, ^uint64(0)),
		"wait":           op(arch.Wait, 2),
		"interrupts":     op(arch.Interrupts, 2),
		"load vectors":   op(arch.LoadVectors, 2),
		"store vectors":  op(arch.StoreVectors, 2),
	} {
		f := newFrame(t)
		require.NoError(t, f.Load(arch.Program{op(arch.Clock), bad, op(arch.Clock)}))
		assert.Equal(t, Unknown, Run(f, false), name)
		r := f.Results(3)
		assert.Equal(t, []uint64{0, arch.TrapUnknown, 0, 0}, []uint64{r[0].Trap, r[1].Trap, r[1].Count, r[2].Count}, name)
		at, completed := f.At()
		assert.Equal(t, []uint64{1, 1}, []uint64{uint64(at), completed}, name)
	}
}

func TestLoopOutOfTheFrame(t *testing.T) {
	f := newFrame(t)
	require.NoError(t, f.Load(arch.Program{op(arch.Loop, arch.MaxOps, 2)}))
	assert.Equal(t, Unknown, Run(f, false))
}

func TestSampleOfSomethingStill(t *testing.T) {
	for name, tc := range map[string]struct {
		version         uint32
		odd, consistent uint64
		value           uint64
	}{
		"even version": {version: 4, consistent: 100, value: 42},
		"odd version":  {version: 5, odd: 100},
	} {
		version, data := cell(t, uint64(tc.version)|0xff<<32), cell(t, 42)
		_, r := execute(t, op(arch.Sample, address(version), address(data), 100))
		assert.Equal(t, [16]uint64{0: tc.odd}, r[0].Regs, name)
		assert.Equal(t, []uint64{tc.value, tc.consistent}, []uint64{r[0].Value, r[0].Aux}, name)
	}
}

func TestSampleOfNothing(t *testing.T) {
	_, r := execute(t, op(arch.Sample, 0, 0, 0))
	assert.Equal(t, [16]uint64{}, r[0].Regs)
}

// A writer that keeps to the protocol, one that does not mark what it changes, and one
// that goes backwards. What is seen differs from run to run; what must never be seen and
// what is seen in the end does not.
func TestSampleOfAWriter(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(n uint64, version *uint32, data *uint64)
		never []int
		seen  int
	}{
		"protocol kept": {func(n uint64, version *uint32, data *uint64) {
			atomic.AddUint32(version, 1)
			atomic.StoreUint64(data, n)
			atomic.AddUint32(version, 1)
		}, []int{2, 3, 5}, 4},
		"version left alone": {func(n uint64, _ *uint32, data *uint64) {
			atomic.StoreUint64(data, n)
		}, []int{0, 1, 3}, 5},
		"data goes backwards": {func(n uint64, version *uint32, data *uint64) {
			atomic.AddUint32(version, 1)
			atomic.StoreUint64(data, -n)
			atomic.AddUint32(version, 1)
		}, []int{2, 5}, 3},
	} {
		data, stop := cell(t, 1), new(atomic.Bool)
		version := (*uint32)(unsafe.Pointer(cell(t, 0)))
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := uint64(2); !stop.Load(); n++ {
				tc.write(n, version, data)
			}
		}()
		f := newFrame(t)
		var sum [16]uint64
		for sum[tc.seen] == 0 {
			require.NoError(t, f.Load(arch.Program{op(arch.Sample, uint64(uintptr(unsafe.Pointer(version))), address(data), 1000)}))
			require.Equal(t, Ended, Run(f, false))
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

func TestRunKeepsWhatACalleeKeeps(t *testing.T) {
	// Go's own code around it would not survive otherwise: its g is in R14, and frames are
	// found by RBP. An exit and a resumption from another depth of the stack.
	f := newFrame(t)
	require.NoError(t, f.Load(arch.Program{op(arch.Exit, 1), op(arch.LoadVectors, 0), op(arch.Exit, 2)}))
	require.Equal(t, Exited, Run(f, false))
	deeper(t, 100, func() { require.Equal(t, Exited, Run(f, true)) })
	require.Equal(t, Ended, Run(f, true))
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

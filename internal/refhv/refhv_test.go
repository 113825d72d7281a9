package refhv

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
)

// bench is a machine of plain values.
type bench struct {
	ids    []uint64
	memory map[uint64][]byte // by the number of the page
	lines  []uint64
	delay  []uint64
	pauses int
	// look, where it is set, is called at each pause.
	look func()
}

const page = 4096

func newBench(ids ...uint64) *bench {
	return &bench{ids: ids, memory: map[uint64][]byte{}, lines: make([]uint64, len(ids)), delay: make([]uint64, len(ids))}
}

func (b *bench) CPUs() int         { return len(b.ids) }
func (b *bench) ID(cpu int) uint64 { return b.ids[cpu] }

func (b *bench) Load(address, size uint64) (uint64, bool) {
	p, ok := b.memory[address/page]
	if !ok {
		return 0, false
	}
	var word [8]byte
	copy(word[:], p[address%page:][:size])
	return binary.LittleEndian.Uint64(word[:]), true
}

func (b *bench) Store(address, size, value uint64) bool {
	p, ok := b.memory[address/page]
	if ok {
		copy(p[address%page:][:size], binary.LittleEndian.AppendUint64(nil, value))
	}
	return ok
}

func (b *bench) Interrupt(cpu int, lines uint64) { b.lines[cpu] |= lines }
func (b *bench) Delay(cpu int) uint64            { return b.delay[cpu] }
func (b *bench) Pause(int) {
	b.pauses++
	if b.look != nil {
		b.look()
	}
}

// call makes a call of the service's and returns its result.
func call(h *LoongArch, cpu int, name string, args ...uint64) int64 {
	a := [6]uint64{h.abi.Call(name).Number}
	copy(a[1:], args)
	h.Call(cpu, h.abi.Word("code-service"), &a)
	return int64(a[0])
}

func TestLoongArchDiscovery(t *testing.T) {
	p := abi.LoongArch()
	h := NewLoongArch(newBench(0), p)
	const kernels = 1<<1 | 1<<2 | 1<<3
	for _, test := range []struct {
		index uint32
		want  uint64
		ours  bool
	}{
		{0, 0, false}, {2, 0, false}, {0x3fffffff, 0, false},
		{0x40000000, 0x004d564b, true}, {0x40000001, 0, true}, {0x40000004, kernels, true}, {0x400000ff, 0, true},
		{0x40000100, 0, false},
	} {
		got, ours := h.CPUCFG(0, test.index)
		assert.Equal(t, test.ours, ours, "%#x", test.index)
		assert.Equal(t, test.want, got, "%#x", test.index)
	}
	assert.Equal(t, uint64(0x1c|1<<11), h.Features(0, 0x1c))
	n, ok := h.Counter(0, "cpucfg_exits")
	assert.True(t, ok)
	assert.Equal(t, uint64(4), n)
	_, ok = h.Counter(0, "naps")
	assert.False(t, ok)

	assert.ErrorContains(t, h.SetFeatures(1<<4|1<<1), "bits 0x10")
	require.NoError(t, h.SetFeatures(1<<25|1<<1))
	require.NoError(t, h.SetFeatures(1<<25|1<<1), "the same again")
	assert.ErrorContains(t, h.SetFeatures(1<<1), "already")
	got, _ := h.CPUCFG(0, 0x40000004)
	assert.Equal(t, uint64(1<<25|1<<1), got)
}

func TestLoongArchCalls(t *testing.T) {
	b := newBench(0, 1, 64, 255)
	h := NewLoongArch(b, abi.LoongArch())
	for _, test := range []struct {
		name            string
		low, high, from uint64
		want            [4]uint64
	}{
		{"self", 1, 0, 0, [4]uint64{1}},
		{"two", 3, 0, 0, [4]uint64{1, 1}},
		{"high word", 0, 1, 0, [4]uint64{2: 1}},
		{"lowest counts", 0, 1, 191, [4]uint64{3: 1}},
		{"absent", 1 << 5, 0, 0, [4]uint64{}},
		{"none", 0, 0, 0, [4]uint64{}},
		{"high half of lowest", 1, 0, 1<<32 | 1, [4]uint64{1: 1}},
		{"wraps", 2, 0, 1<<32 - 1, [4]uint64{1}},
		{"beyond the largest number", 1, 0, 256, [4]uint64{}},
	} {
		b.lines = make([]uint64, 4)
		assert.Zero(t, call(h, 0, "IPI", test.low, test.high, test.from), test.name)
		assert.Equal(t, test.want[:], b.lines, test.name)
	}
	for _, code := range []uint64{0, 0x101, 0x102, 0x103, 0x7fff} {
		a := [6]uint64{1, 2, 3, 4, 5, 6}
		h.Call(0, code, &a)
		assert.Equal(t, [6]uint64{1<<64 - 1, 2, 3, 4, 5, 6}, a, "%#x", code)
	}
	for _, function := range []uint64{0, 3, 64, 1 << 32, 1<<32 | 1, 1<<63 | 2} {
		a := [6]uint64{function, 1}
		h.Call(0, 0x100, &a)
		assert.Equal(t, ^uint64(0), a[0], "%#x", function)
	}
	n, _ := h.Counter(0, "hypercall_exits")
	assert.Equal(t, uint64(9+6), n, "of the service only")

	require.NoError(t, h.SetFeatures(1<<25))
	assert.Equal(t, int64(-1), call(h, 0, "IPI", 1))
	assert.Equal(t, int64(-1), call(h, 0, "NOTIFY", 4, 0))
	a := [6]uint64{}
	h.Call(0, 0x102, &a)
	assert.Equal(t, ^uint64(0), a[0], "the VMM has no service")
	m, _ := h.Counter(0, "hypercall_exits")
	assert.Equal(t, n+3, m, "it was asked")
}

func TestLoongArchArea(t *testing.T) {
	b := newBench(0, 1)
	b.memory[16] = make([]byte, page)
	h := NewLoongArch(b, abi.LoongArch())
	const area = 16 * page
	get := func(offset, size uint64) uint64 { v, _ := b.Load(area+offset, size); return v }
	b.Store(area+8, 4, 7) // what was there before
	b.Store(area+16, 1, 1)
	b.Store(area+17, 1, 0xaa)
	b.delay[0] = 1000

	assert.Equal(t, int64(-2), call(h, 0, "NOTIFY", 4, area|1|2))
	assert.Equal(t, int64(-2), call(h, 0, "NOTIFY", 4, area|0x20))
	assert.Equal(t, int64(-1), call(h, 0, "NOTIFY", 1<<3, area|1))
	assert.Equal(t, int64(-1), call(h, 0, "NOTIFY", 1<<32|4, area|1))
	assert.Zero(t, h.Area(0))
	assert.Equal(t, uint64(7), get(8, 4))

	var versions []uint64
	b.look = func() { versions = append(versions, get(8, 4)) }
	assert.Zero(t, call(h, 0, "NOTIFY", 4, area|1))
	assert.Equal(t, uint64(area|1), h.Area(0))
	assert.Equal(t, []uint64{9, 9}, versions, "odd while steal is written")
	assert.Equal(t, []uint64{0, 10, 0, 0xaa}, []uint64{get(0, 8), get(8, 4), get(16, 1), get(17, 1)})

	h.Leave(0, false)
	assert.Zero(t, get(16, 1), "a wait is no preemption")
	h.Leave(0, true)
	assert.Equal(t, uint64(1), get(16, 1))
	b.Store(area+16, 1, 0)
	h.Leave(0, true)
	assert.Zero(t, get(16, 1), "it is told once")
	b.delay[0] += 500
	h.Enter(0)
	assert.Equal(t, []uint64{500, 12, 0}, []uint64{get(0, 8), get(8, 4), get(16, 1)})
	h.Enter(1)
	assert.Equal(t, uint64(12), get(8, 4), "another CPU has no area")

	assert.Zero(t, call(h, 0, "NOTIFY", 4, 0))
	h.Leave(0, true)
	h.Enter(0)
	assert.Equal(t, []uint64{500, 12, 0}, []uint64{get(0, 8), get(8, 4), get(16, 1)}, "taken back")

	assert.Zero(t, call(h, 0, "NOTIFY", 4, 1<<40|1), "nowhere")
	h.Leave(0, true)
	h.Enter(0)
	assert.Zero(t, call(h, 0, "NOTIFY", 4, area|1))
	h.Reset(0)
	h.Leave(0, true)
	assert.Zero(t, get(16, 1), "after a reset there is no area")

	h = NewLoongArch(b, abi.LoongArch())
	require.NoError(t, h.SetFeatures(1<<2))
	b.Store(area+16, 1, 5)
	assert.Zero(t, call(h, 0, "NOTIFY", 4, area|1))
	h.Leave(0, true)
	h.Enter(0)
	assert.Equal(t, uint64(5), get(16, 1), "without PREEMPT")
}

func TestMutants(t *testing.T) {
	rules := abi.LoongArch()
	names := map[string]bool{}
	for _, m := range LoongArchMutants() {
		assert.False(t, names[m.Name], "%s twice", m.Name)
		names[m.Name] = true
		assert.Regexp(t, `\.$`, m.Text, m.Name)
		for _, r := range append(m.Rules, m.Controls...) {
			assert.True(t, rules.HasRule(r), "%s: no rule %s", m.Name, r)
		}
		got, ok := Find(LoongArchMutants(), m.Name)
		assert.True(t, ok)
		assert.Equal(t, m.Text, got.Text)
		NewLoongArch(newBench(0), abi.LoongArch(), m.Change)
	}
	_, ok := Find(LoongArchMutants(), "none")
	assert.False(t, ok)
}

// script is a Trap whose CPUs come out as they are told to.
type script struct {
	*bench
	exits []func(ctx context.Context, held []int) (*Exit, error)
	back  []Exit
	waits map[int]bool
	// out tells that a CPU is out, and pause what comes out meanwhile.
	out   bool
	pause func(held []int) *Exit
	// ended tells that there is no memory any more.
	ended bool
}

func (s *script) Memory(address, size uint64) bool { _, ok := s.Load(address, size); return ok }
func (s *script) Read(address uint64, size int) ([]byte, error) {
	if s.ended {
		return nil, ErrEnded
	}
	v, _ := s.Load(address, uint64(size))
	return binary.LittleEndian.AppendUint64(nil, v)[:size], nil
}
func (s *script) Write(address uint64, b []byte) error {
	var word [8]byte
	copy(word[:], b)
	s.Store(address, uint64(len(b)), binary.LittleEndian.Uint64(word[:]))
	return nil
}
func (s *script) Interrupt(cpu int, lines uint64) error { s.bench.Interrupt(cpu, lines); return nil }
func (s *script) Return(e *Exit) error {
	s.back = append(s.back, *e)
	s.out = false
	return nil
}
func (s *script) PC(int) (uint64, error)      { return 0x1000, nil }
func (s *script) Waits(cpu int) (bool, error) { return s.waits[cpu], nil }
func (s *script) Close() error                { return nil }
func (s *script) Next(ctx context.Context, held []int) (*Exit, error) {
	if s.out {
		if s.pause == nil {
			return nil, nil
		}
		return s.pause(held), nil
	}
	if len(s.exits) == 0 {
		return nil, ErrEnded
	}
	next := s.exits[0]
	s.exits = s.exits[1:]
	e, err := next(ctx, held)
	s.out = e != nil
	return e, err
}

func newHost(s *script) *Host {
	return NewHost(s, binary.LittleEndian, abi.LoongArch())
}

func TestHost(t *testing.T) {
	s := &script{bench: newBench(0, 1)}
	s.memory[16] = make([]byte, page)
	const area = 16 * page
	h := newHost(s)
	exit := func(e Exit) {
		s.exits = append(s.exits, func(_ context.Context, held []int) (*Exit, error) {
			assert.Empty(t, held)
			return &e, nil
		})
	}
	exit(Exit{CPU: 0, Kind: ExitFeatures, Value: 4})
	exit(Exit{CPU: 0, Kind: ExitDiscover, Number: 0x40000000})
	exit(Exit{CPU: 1, Kind: ExitCall, Number: 0x100, Args: [6]uint64{2, 4, area | 1}})
	exit(Exit{CPU: 0, Kind: ExitCall, Number: 0x100, Args: [6]uint64{1, 2}})
	s.exits = append(s.exits, func(ctx context.Context, held []int) (*Exit, error) {
		assert.Equal(t, []int{1}, held)
		<-ctx.Done()
		return nil, nil
	})
	h.Watch = func(e Event) {
		if e.Kind == EventKind(ExitCall) && e.Args[0] == 1 {
			h.Hold(1, time.Millisecond)
			h.Hold(1, time.Hour) // it is off already
			assert.Equal(t, byte(1), s.memory[16][16])
		}
	}
	require.NoError(t, h.Run(t.Context()))
	var kinds []EventKind
	for _, e := range h.Log() {
		kinds = append(kinds, e.Kind)
	}
	assert.Equal(t, []EventKind{
		"features", "cpucfg", "store", "store", "store", "store", "call", "interrupt", "call",
		"store", "held", "released", "store", "store", "store", "store",
	}, kinds)
	assert.Equal(t, uint64(4|1<<11), s.back[0].Value)
	assert.Equal(t, uint64(0x4d564b), s.back[1].Value)
	assert.Equal(t, [6]uint64{0, 4, area | 1}, s.back[2].Args)
	assert.Equal(t, []uint64{0, 1}, s.lines)
	steal := binary.LittleEndian.Uint64(s.memory[16])
	assert.GreaterOrEqual(t, steal, uint64(time.Millisecond))
	assert.Equal(t, h.delay[1], steal)
	assert.Zero(t, s.memory[16][16], "put on again")
}

func TestHostErrors(t *testing.T) {
	s := &script{bench: newBench(0)}
	broken := errors.New("broken")
	s.exits = append(s.exits, func(context.Context, []int) (*Exit, error) { return nil, broken })
	assert.ErrorIs(t, newHost(s).Run(t.Context()), broken)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	s.exits = append(s.exits, func(context.Context, []int) (*Exit, error) { return nil, nil })
	assert.ErrorIs(t, newHost(s).Run(ctx), broken)
}

package refhv

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// areas are where the CPUs of tests have their areas, each in a page of its own.
func area(cpu int) uint64 { return uint64(16+cpu) * page }

// newCrowd is a script of CPUs with areas, and the calls that register them.
func newCrowd(cpus int) (*script, func(Exit)) {
	s := &script{waits: map[int]bool{}}
	var ids []uint64
	for cpu := range cpus {
		ids = append(ids, uint64(cpu))
	}
	s.bench = newBench(ids...)
	exit := func(e Exit) {
		s.exits = append(s.exits, func(context.Context, []int) (*Exit, error) { return &e, nil })
	}
	for cpu := range cpus {
		s.memory[uint64(16+cpu)] = make([]byte, page)
		exit(Exit{CPU: cpu, Kind: ExitCall, Number: 0x100, Args: [6]uint64{2, 4, area(cpu) | 1}})
	}
	return s, exit
}

func ask(what Ask, args ...uint64) Exit {
	e := Exit{Kind: ExitCall, Number: AskCode, Args: [6]uint64{AskFunction, uint64(what)}}
	copy(e.Args[2:], args)
	return e
}

// TestCrowd: the CPUs of a crowd have their turns, one at a time, but for one that waits; the others lose
// time, and say so.
func TestCrowd(t *testing.T) {
	s, exit := newCrowd(4)
	exit(ask(AskCrowd, 0b1110))
	s.waits[3] = true
	var on []int
	for range 40 {
		s.exits = append(s.exits, func(ctx context.Context, held []int) (*Exit, error) {
			<-ctx.Done()
			assert.NotContains(t, held, 0)
			assert.NotContains(t, held, 3, "it waits")
			if len(held) == 1 {
				on = append(on, 3-held[0])
			}
			return nil, nil
		})
	}
	exit(ask(AskCrowd, 0))
	h := newHost(s)
	require.NoError(t, h.Run(t.Context()))
	assert.Contains(t, on, 1)
	assert.Contains(t, on, 2)
	assert.Empty(t, h.held)
	for cpu, delay := range h.delay {
		assert.Equal(t, delay, binary.LittleEndian.Uint64(s.memory[uint64(16+cpu)]), "CPU %d", cpu)
		assert.Equal(t, cpu == 1 || cpu == 2, delay > 0, "CPU %d", cpu)
		assert.Zero(t, s.memory[uint64(16+cpu)][16], "CPU %d is on", cpu)
	}
	for _, e := range s.back {
		assert.Zero(t, e.Args[0])
	}
}

// TestOwn: a module's hypervisor is broken, the kernel's is not.
func TestOwn(t *testing.T) {
	broken := slices.IndexFunc(LoongArchMutants(), func(m Mutant[*LoongArch]) bool { return m.Name == "function-0" })
	require.GreaterOrEqual(t, broken, 0)
	none := Exit{Kind: ExitCall, Number: 0x100}
	kernel := none
	kernel.Kernel = true
	features := Exit{Kind: ExitDiscover, Number: 0x40000004}
	for _, test := range []struct {
		name  string
		exits []Exit
		want  []uint64 // of the last ones
	}{
		{"shared", []Exit{none}, []uint64{1<<64 - 1}},
		{"own", []Exit{ask(AskOwn, AskFeatures, uint64(broken+1)), none, kernel}, []uint64{0, 0, 1<<64 - 1}},
		{"shared again", []Exit{ask(AskOwn, AskFeatures, uint64(broken+1)), ask(AskShared), none}, []uint64{0, 0, 1<<64 - 1}},
		{"features", []Exit{ask(AskOwn, 4, 0), features}, []uint64{0, 4}},
		{"bits that mean nothing", []Exit{ask(AskOwn, 1, 0)}, []uint64{1}},
		{"no mutant", []Exit{ask(AskOwn, AskFeatures, 1000)}, []uint64{1}},
		{"nothing", []Exit{ask(99)}, []uint64{1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &script{bench: newBench(0)}
			for _, e := range test.exits {
				s.exits = append(s.exits, func(context.Context, []int) (*Exit, error) { return &e, nil })
			}
			require.NoError(t, newHost(s).Run(t.Context()))
			var got []uint64
			for _, e := range s.back {
				if e.Kind == ExitDiscover {
					got = append(got, e.Value)
				} else {
					got = append(got, e.Args[0])
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// TestIdle: a CPU that comes back from a wait has its area written.
func TestIdle(t *testing.T) {
	s, exit := newCrowd(1)
	exit(Exit{Kind: ExitIdle})
	exit(Exit{Kind: ExitAwake})
	h := newHost(s)
	require.NoError(t, h.Run(t.Context()))
	version := binary.LittleEndian.Uint32(s.memory[16][8:])
	assert.Equal(t, uint32(4), version)
	n, _ := h.hv.Counter(0, "idle_exits")
	assert.Equal(t, uint64(1), n)
}

// TestPause: what comes out while another CPU is served is served next, and the CPU stands still till then.
func TestPause(t *testing.T) {
	s := &script{bench: newBench(0, 1)}
	s.memory[16] = make([]byte, page)
	register := Exit{CPU: 0, Kind: ExitCall, Number: 0x100, Args: [6]uint64{2, 4, area(0) | 1}}
	other := Exit{CPU: 1, Kind: ExitDiscover, Number: 0x40000000}
	s.exits = append(s.exits, func(context.Context, []int) (*Exit, error) { return &register, nil })
	pauses := 0
	s.pause = func(held []int) *Exit {
		assert.Equal(t, byte(1), s.memory[16][8], "the version is odd")
		if pauses++; pauses == 1 {
			assert.Equal(t, []int{0}, held)
			return &other
		}
		assert.Equal(t, []int{0, 1}, held)
		return nil
	}
	h := newHost(s)
	require.NoError(t, h.Run(t.Context()))
	require.Len(t, s.back, 2)
	assert.Equal(t, uint64(0x4d564b), s.back[1].Value)
	assert.Equal(t, byte(2), s.memory[16][8])
	assert.Equal(t, 2, pauses)
}

// TestOut: a CPU that is out stands still while another's time off ends, which may come before it is served, and
// while it asks for that itself.
func TestOut(t *testing.T) {
	all := ask(AskCrowd)
	all.CPU = 2
	for _, test := range []struct {
		name string
		exit Exit
		late time.Duration
	}{
		{"before it is served", Exit{CPU: 2, Kind: ExitFeatures}, 2 * slice},
		{"while it asks", all, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, exit := newCrowd(1)
			s.ids = []uint64{0, 1, 2}
			exit(ask(AskCrowd, 0b11))
			s.exits = append(s.exits, func(_ context.Context, held []int) (*Exit, error) {
				assert.Equal(t, []int{0}, held, "it lost the first turn")
				time.Sleep(test.late)
				return &test.exit, nil
			})
			pauses := 0
			s.pause = func(held []int) *Exit {
				if len(s.exits) == 0 {
					pauses++
					assert.Contains(t, held, 2)
				}
				return nil
			}
			require.NoError(t, newHost(s).Run(t.Context()))
			assert.NotZero(t, pauses)
			assert.Len(t, s.back, 3)
		})
	}
}

// TestEnded: a machine that ends while a CPU of it is served has not failed.
func TestEnded(t *testing.T) {
	s, _ := newCrowd(1)
	s.ended = true
	require.NoError(t, newHost(s).Run(t.Context()))
	assert.Empty(t, s.back)
}

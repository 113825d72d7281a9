package tcg

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/internal/refhv"
	"pvabi/internal/remote"
)

// stub is a gdbstub of two CPUs. Each time that CPUs are let go on the next of moves is made, which returns the CPU
// that the stop then is about.
type stub struct {
	cpus     [2][registers]uint64
	selected int
	moves    []func() int
	heard    []string
}

func (s *stub) answer(p string) string {
	switch {
	case strings.HasPrefix(p, "vCont"):
		s.heard = append(s.heard, p)
		s.selected = s.moves[0]()
		s.moves = s.moves[1:]
		return fmt.Sprintf("T05thread:%02x;", s.selected+1)
	case p == "g":
		var b []byte
		for _, v := range s.cpus[s.selected] {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		return hex.EncodeToString(b)
	case strings.HasPrefix(p, "Hg"):
		_, err := fmt.Sscanf(p, "Hg%x", &s.selected)
		s.selected--
		if err != nil {
			return "E01"
		}
	case strings.HasPrefix(p, "P"):
		var number int
		var value []byte
		if _, err := fmt.Sscanf(p, "P%x=%x", &number, &value); err != nil {
			return "E01"
		}
		s.cpus[s.selected][number] = binary.LittleEndian.Uint64(value)
	case p[0] == 'm':
		return hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, cpucfg(4, 4)))
	}
	return "OK"
}

// serve answers packets, which have no bytes that are escaped.
func (s *stub) serve(conn net.Conn) {
	for r := bufio.NewReader(conn); ; {
		p, err := r.ReadString('#')
		if err != nil {
			return
		}
		if _, err := r.Discard(2); err != nil { // its sum
			return
		}
		answer := s.answer(strings.Trim(p, "+$#"))
		var sum byte
		for _, b := range []byte(answer) {
			sum += b
		}
		go fmt.Fprintf(conn, "+$%s#%02x", answer, sum)
	}
}

// newStopped is a guest whose kernel asks for a word, at base.
func newStopped(t *testing.T, s *stub) *stopped {
	kernel, err := ReadKernel(image(cpucfg(4, 4), move(4, 4)))
	require.NoError(t, err)
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	go s.serve(far)
	g := &stopped{
		machine: machine{table: abi.LoongArch(), kernel: kernel, cpus: make([]remote.CPU, len(s.cpus))},
		gdb:     remote.NewGDB(near, binary.LittleEndian), sites: map[uint64]Site{}, asleep: map[int]bool{},
		registers: make([][]uint64, len(s.cpus)), vectors: make([]uint64, len(s.cpus)),
	}
	for _, site := range kernel.Sites(g.ours) {
		require.NoError(t, g.add(site))
	}
	return g
}

const word = 0x40000000

// TestStopTwice: all are stopped once more, before the CPU has done the instruction that it came to.
func TestStopTwice(t *testing.T) {
	s := &stub{}
	comes := func() int {
		s.cpus[1][registerA0], s.cpus[1][registerPC] = word, base
		return 1
	}
	again := func() int { return 1 }
	other := func() int { return 0 }
	does := func() int {
		s.cpus[1][registerA0] = 0 // as the processor has no such word
		s.cpus[1][registerPC] += length
		return 1
	}
	for name, moves := range map[string][]func() int{
		"once":            {comes, does},
		"twice":           {comes, again, does},
		"for another CPU": {comes, other, again, does},
	} {
		t.Run(name, func(t *testing.T) {
			s.moves = moves
			g := newStopped(t, s)
			e, err := g.Next(t.Context(), nil)
			require.NoError(t, err)
			assert.Equal(t, &refhv.Exit{CPU: 1, Kind: refhv.ExitDiscover, Number: word, PC: base, Kernel: true}, e)
			e.Value = 7
			require.NoError(t, g.Return(e))
			assert.Equal(t, []uint64{7, base + length}, []uint64{s.cpus[1][registerA0], s.cpus[1][registerPC]})
			assert.Empty(t, s.moves)
		})
	}
}

// TestStopOfHeld: a CPU that is held has not come out once more.
func TestStopOfHeld(t *testing.T) {
	s := &stub{}
	s.cpus[1][registerPC] = base
	s.moves = []func() int{
		func() int { return 1 },
		func() int { s.cpus[0][registerA0], s.cpus[0][registerPC] = word, base; return 0 },
		func() int { s.cpus[0][registerPC] += length; return 0 },
	}
	g := newStopped(t, s)
	e, err := g.Next(t.Context(), []int{1})
	require.NoError(t, err)
	require.NotNil(t, e)
	assert.Zero(t, e.CPU)
	assert.Equal(t, []string{"vCont;c:1", "vCont;c:1", "vCont;s:1"}, s.heard)
}

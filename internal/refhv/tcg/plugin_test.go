package tcg

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/internal/refhv"
	"pvabi/internal/remote"
)

func TestBuildPlugin(t *testing.T) {
	t.Setenv("CC", "")
	file, err := BuildPlugin(t.Context(), t.TempDir())
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	require.NoError(t, err)
	assert.FileExists(t, file)

	t.Setenv("CC", "false -x")
	_, err = BuildPlugin(t.Context(), t.TempDir())
	assert.ErrorContains(t, err, "name another compiler by $CC")
	assert.NotErrorIs(t, err, ErrNoCompiler)
}

func TestNoCompiler(t *testing.T) {
	t.Setenv("CC", "")
	t.Setenv("PATH", t.TempDir())
	_, err := BuildPlugin(t.Context(), t.TempDir())
	assert.ErrorIs(t, err, ErrNoCompiler)
	assert.ErrorContains(t, err, "install one")
}

// plugin is the other end of a guest's socket.
type plugin struct {
	t    *testing.T
	conn net.Conn
}

func (p plugin) hears() (c command) {
	assert.NoError(p.t, binary.Read(p.conn, order, &c))
	return c
}

func (p plugin) says(s standstill) { assert.NoError(p.t, binary.Write(p.conn, order, s)) }

// newPlugged is a guest with two CPUs whose kernel has that code, and the plugin of it.
func newPlugged(t *testing.T, code ...uint32) (*plugged, plugin) {
	kernel, err := ReadKernel(image(code...))
	require.NoError(t, err)
	g, p := net.Pipe()
	t.Cleanup(func() { _, _ = g.Close(), p.Close() })
	m := machine{table: abi.LoongArch(), kernel: kernel, cpus: make([]remote.CPU, 2)}
	return &plugged{machine: m, conn: g}, plugin{t, p}
}

func TestPlugged(t *testing.T) {
	const module = 0xffff800000001000
	code := []uint32{hvcl(0x100), cpucfg(5, 6), iocsrrd(7, 7), idle()}
	registers := [32]uint64{4: 40, 5: 50, 6: 60, 7: 70, 8: 80, 9: 90}
	for _, test := range []struct {
		name string
		come standstill
		want refhv.Exit
		back command
	}{
		{
			"call", standstill{CPU: 1, Instruction: uint64(code[0]), PC: base},
			refhv.Exit{CPU: 1, Kind: refhv.ExitCall, Number: 0x100, Args: [6]uint64{40, 50, 60, 70, 80, 90}, PC: base, Kernel: true},
			command{What: answer, CPU: 1, Value: 7, Args: [6]uint64{40, 50, 60, 70, 80, 90}},
		}, {
			"question", standstill{Instruction: uint64(code[1]), PC: base + 4, Read: 0x40000000, After: 1},
			refhv.Exit{Kind: refhv.ExitDiscover, Number: 0x40000000, Value: 50, PC: base + 4, Kernel: true},
			command{What: answer, To: 5, Value: 7},
		}, {
			"features", standstill{Instruction: uint64(code[2]), PC: module, Read: 8, After: 1},
			refhv.Exit{Kind: refhv.ExitFeatures, Value: 70, PC: module},
			command{What: answer, To: 7, Value: 7},
		}, {
			"wait", standstill{Instruction: uint64(code[3]), PC: module},
			refhv.Exit{Kind: refhv.ExitIdle, PC: module}, command{What: answer, Value: 7},
		}, {
			"its end", standstill{Instruction: uint64(code[3]), PC: module, After: 1},
			refhv.Exit{Kind: refhv.ExitAwake, PC: module}, command{What: answer, Value: 7},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, p := newPlugged(t, code...)
			test.come.Registers, test.come.Asleep, test.come.PCs[1] = registers, 1, 5
			go func() {
				assert.Equal(t, command{What: goOn, Turn: 1, Held: 0b11}, p.hears())
				p.says(test.come)
			}()
			e, err := g.Next(t.Context(), []int{0, 1})
			require.NoError(t, err)
			assert.Equal(t, &test.want, e)
			pc, err := g.PC(1)
			assert.Equal(t, uint64(5), pc, err)
			for cpu, want := range []bool{true, false} {
				waits, err := g.Waits(cpu)
				assert.Equal(t, want, waits, err)
			}
			back := make(chan command)
			go func() { back <- p.hears() }()
			e.Value = 7
			require.NoError(t, g.Return(e))
			assert.Equal(t, test.back, <-back)
		})
	}
}

// TestPluggedStops: time that is over has the CPUs stand still, and is told which turn it is about.
func TestPluggedStops(t *testing.T) {
	g, p := newPlugged(t)
	for turn := range uint64(2) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			assert.Equal(t, command{What: goOn, Turn: turn + 1}, p.hears())
			cancel()
			assert.Equal(t, command{What: stop, Turn: turn + 1}, p.hears())
			p.says(standstill{CPU: mostCPUs})
		}()
		e, err := g.Next(ctx, nil)
		require.NoError(t, err)
		assert.Nil(t, e)
	}
}

func TestPluggedErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		come standstill
		want string
	}{
		{"another kernel", standstill{Instruction: uint64(hvcl(1)), PC: base}, "it does not run where its file says"},
		{"no instruction of ours", standstill{Instruction: ertn, PC: base}, "come out by 06483800"},
		{"no such CPU", standstill{CPU: 2, Instruction: uint64(hvcl(0)), PC: base}, "CPU 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, p := newPlugged(t, hvcl(0x100))
			go func() {
				p.hears()
				p.says(test.come)
			}()
			_, err := g.Next(t.Context(), nil)
			assert.ErrorContains(t, err, test.want)
		})
	}
	g, p := newPlugged(t)
	require.NoError(t, p.conn.Close())
	_, err := g.Next(t.Context(), nil)
	assert.ErrorIs(t, err, refhv.ErrEnded)
}

// TestLink: what QEMU is told, with a folder whose name has a comma.
func TestLink(t *testing.T) {
	kernel, err := ReadKernel(image(hvcl(0x100)))
	require.NoError(t, err)
	dir := filepath.Join(os.TempDir(), "a,b")
	args := NewLink(dir, "", kernel, abi.LoongArch()).Args()
	assert.Contains(t, args, "-gdb")
	assert.NotContains(t, args, "-plugin")
	args = NewLink(dir, filepath.Join(dir, "plugin.so"), kernel, abi.LoongArch()).Args()
	assert.NotContains(t, args, "-gdb")
	escaped := filepath.Join(os.TempDir(), "a,,b")
	assert.Contains(t, args, escaped+"/plugin.so,socket="+escaped+
		"/cpus,first-word=0x40000000,last-word=0x400000ff,iocsr=0x8,text=0x9000000000201000,text-end=0x9000000000201004")
}

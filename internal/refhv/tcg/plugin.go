package tcg

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pvabi/internal/refhv"
	"pvabi/internal/remote"
)

// The transport by a plugin of QEMU's. It sees each instruction as QEMU translates it, in whatever code, has a
// CPU come out before or after one, and leaves an HVCL out. Where all are to stand still each CPU does before the next
// piece of code that QEMU has translated in one. It has QEMU's public interface for plugins only: no plugin can make
// an interrupt pending, nor tell the machine's end, so that qtest and QMP are needed besides.

//go:embed plugin/forward.c
var pluginSource []byte

// FirstPlugin is the first version of QEMU that the plugin is for.
const FirstPlugin = "11.1"

// ErrNoCompiler is wrapped by errors of BuildPlugin where there is no C compiler.
var ErrNoCompiler = errors.New("no C compiler")

// BuildPlugin compiles the plugin, in a folder that is whoever's calls, and returns its file. The compiler is $CC, or
// one of the usual names.
func BuildPlugin(ctx context.Context, dir string) (string, error) {
	compiler := os.Getenv("CC")
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); compiler == "" && err == nil {
			compiler = path
		}
	}
	words := strings.Fields(compiler)
	if len(words) == 0 {
		return "", fmt.Errorf("build the plugin of QEMU: %w: none of cc, gcc and clang is there; install one, or name one by $CC", ErrNoCompiler)
	}
	file := filepath.Join(dir, "plugin.so")
	args := append(words[1:], "-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-o", file, "-x", "c", "-")
	c := exec.CommandContext(ctx, words[0], args...)
	c.Stdin = bytes.NewReader(pluginSource)
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the plugin of QEMU: %s: %w: %s; name another compiler by $CC", c, err, bytes.TrimSpace(out))
	}
	return file, nil
}

// pluginArgument has QEMU load the plugin, and tells that what to look for.
func (l Link) pluginArgument() string {
	return fmt.Sprintf("%s,socket=%s,first-word=%#x,last-word=%#x,iocsr=%#x,text=%#x,text-end=%#x", escaped(l.plugin), escaped(l.cpus),
		l.table.Word("first-word"), l.table.Word("last-word"), uint32(l.table.Register("FEATURES").Number),
		l.kernel.Base, l.kernel.Base+uint64(len(l.kernel.Text)))
}

// What goes over the socket, as forward.c has it.

const mostCPUs = 64

// order is QEMU's, which is this machine's.
var order = binary.NativeEndian

type what uint64

const (
	goOn what = iota
	stop
	answer
)

type command struct {
	What      what
	Turn      uint64
	Held      uint64
	CPU       uint64
	To, Value uint64
	Args      [6]uint64
}

type standstill struct {
	CPU                          uint64 // that came out, or mostCPUs
	Instruction, PC, After, Read uint64
	Registers                    [32]uint64
	Asleep                       uint64
	PCs                          [mostCPUs]uint64
}

// plugged is a guest whose CPUs come out by the plugin.
type plugged struct {
	machine
	conn net.Conn
	turn uint64
	last standstill
	// to is, by CPU, the register that the instruction writes that it came out by.
	to [mostCPUs]int
	// watched is closed when nobody looks for QEMU's end any more.
	watched chan struct{}
}

// openPlugged connects to the plugin, and lets QEMU start the CPUs, which the plugin holds.
func openPlugged(ctx context.Context, m machine, socket string) (*plugged, error) {
	conn, err := remote.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	g := &plugged{machine: m, conn: conn, watched: make(chan struct{})}
	if err := m.qmp.Continue(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go g.watch()
	return g, nil
}

// watch looks for QEMU's end. From then on qtest does not answer any more, and QEMU waits for its CPUs, which must not
// stand still.
func (g *plugged) watch() {
	defer close(g.watched)
	_ = g.qmp.Await("SHUTDOWN") // an error is the end as well
	_, _ = g.conn.Close(), g.qtest.Close()
}

// Close implements refhv.Trap. Some of it watch may have closed.
func (g *plugged) Close() error {
	_, _ = g.conn.Close(), g.machine.Close()
	<-g.watched
	return nil
}

func (g *plugged) send(c command) error {
	if err := binary.Write(g.conn, order, c); err != nil {
		return lost(err)
	}
	return nil
}

// lost is an error of the plugin's connection, which ends with QEMU and not before.
func lost(err error) error { return fmt.Errorf("%w: the plugin of QEMU: %w", refhv.ErrEnded, err) }

// Next implements refhv.Trap.
func (g *plugged) Next(ctx context.Context, held []int) (*refhv.Exit, error) {
	g.turn++
	c := command{What: goOn, Turn: g.turn}
	for _, cpu := range held {
		c.Held |= 1 << cpu
	}
	if err := g.send(c); err != nil {
		return nil, err
	}
	late := context.AfterFunc(ctx, func() {
		// What goes wrong is found by who reads.
		_ = g.send(command{What: stop, Turn: c.Turn})
	})
	err := binary.Read(g.conn, order, &g.last)
	late()
	if err != nil {
		return nil, lost(err)
	}
	return g.exit()
}

// exit is what the CPU came out for that all stand still for.
func (g *plugged) exit() (*refhv.Exit, error) {
	l := &g.last
	if l.CPU == mostCPUs {
		return nil, nil
	}
	s, is := decode(l.PC, uint32(l.Instruction))
	if !is || l.CPU >= uint64(len(g.cpus)) {
		return nil, fmt.Errorf("the plugin of QEMU has CPU %d come out by %08x, at %#x", l.CPU, l.Instruction, l.PC)
	}
	if g.unchecked(l.PC) {
		if err := g.check(l.PC, uint32(l.Instruction)); err != nil {
			return nil, err
		}
	}
	e := &refhv.Exit{CPU: int(l.CPU), PC: l.PC, Kernel: g.kernel.has(l.PC)}
	switch s.Kind {
	case HVCL:
		e.Kind, e.Number = refhv.ExitCall, s.Code
		copy(e.Args[:], l.Registers[registerA0:])
	case CPUCFG:
		e.Kind, e.Number, e.Value = refhv.ExitDiscover, l.Read, l.Registers[s.To]
	case IOCSRRD:
		e.Kind, e.Value = refhv.ExitFeatures, l.Registers[s.To]
	case IDLE:
		e.Kind = refhv.ExitIdle
		if l.After != 0 {
			e.Kind = refhv.ExitAwake
		}
	}
	g.to[e.CPU] = s.To
	return e, nil
}

// Return implements refhv.Trap.
func (g *plugged) Return(e *refhv.Exit) error {
	return g.send(command{What: answer, CPU: uint64(e.CPU), To: uint64(g.to[e.CPU]), Value: e.Value, Args: e.Args})
}

// PC implements refhv.Trap.
func (g *plugged) PC(cpu int) (uint64, error) { return g.last.PCs[cpu], nil }

// Waits implements refhv.Trap.
func (g *plugged) Waits(cpu int) (bool, error) { return g.last.Asleep>>cpu&1 == 1, nil }

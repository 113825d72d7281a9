package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// GDB is a connection to QEMU's gdbstub. A CPU is a thread there: CPU n, counted from 0, is
// thread n+1. Registers are numbered as in the target's description, and have 8 bytes.
//
// The CPUs either all stand still or are on their way, as far as [GDB.Resume] lets them.
// While they are on their way nothing but Wait and Interrupt may be called. An error that wraps
// [ErrExited] says that QEMU is no more.
type GDB struct {
	conn    net.Conn
	order   binary.ByteOrder
	packets chan string
	// ended is closed when no more packets come; why says why not.
	ended chan struct{}
	why   error

	writing sync.Mutex
	// selected is the CPU that commands are about, -1 if that is not known.
	selected int
}

// Stop says why the CPUs stand still.
type Stop struct {
	// CPU is the one that the stop is about.
	CPU int
	// Signal is SIGTRAP after a breakpoint or a step, SIGINT after an Interrupt.
	Signal int
}

// The signals of stops.
const (
	SIGINT  = 2
	SIGTRAP = 5
)

// ErrExited is wrapped by errors of an end that is not there any more: QEMU has ended, or is about
// to.
var ErrExited = errors.New("the guest has ended")

// NewGDB begins to speak over a connection. Register values have the guest's byte order.
func NewGDB(conn net.Conn, order binary.ByteOrder) *GDB {
	g := &GDB{conn: conn, order: order, packets: make(chan string), ended: make(chan struct{}), selected: -1}
	go g.read()
	return g
}

// Close ends the connection. QEMU lets the CPUs go on without it.
func (g *GDB) Close() error {
	err := g.conn.Close()
	for { // the reader may have a packet left
		select {
		case <-g.packets:
		case <-g.ended:
			return err
		}
	}
}

func (g *GDB) read() {
	defer close(g.ended)
	for r := bufio.NewReader(g.conn); ; {
		p, err := readPacket(r)
		if err == nil {
			err = g.write([]byte("+"))
		}
		if err != nil {
			g.why = fmt.Errorf("gdbstub: %w", ended(err))
			return
		}
		g.packets <- p
	}
}

func (g *GDB) write(b []byte) error {
	g.writing.Lock()
	defer g.writing.Unlock()
	_, err := g.conn.Write(b)
	return ended(err)
}

// ended has errors of a connection that the other end has left tell so.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return ErrExited
	}
	return err
}

func (g *GDB) send(content string) error {
	if err := g.write(appendPacket(nil, content)); err != nil {
		return fmt.Errorf("gdbstub: %s: %w", content, err)
	}
	return nil
}

func (g *GDB) receive(ctx context.Context) (string, error) {
	select {
	case p := <-g.packets:
		return p, nil
	case <-g.ended:
		return "", g.why
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// command sends a packet and returns the answer.
func (g *GDB) command(content string) (string, error) {
	if err := g.send(content); err != nil {
		return "", err
	}
	answer, err := g.receive(context.Background())
	switch {
	case err != nil:
		return "", err
	case answer == "", len(answer) == 3 && answer[0] == 'E':
		return "", &Refused{content, answer}
	}
	return answer, nil
}

func (g *GDB) expectOK(content string) error {
	answer, err := g.command(content)
	if err == nil && answer != "OK" {
		err = &Refused{content, answer}
	}
	return err
}

// Break sets a breakpoint for all CPUs at a virtual address, Unbreak removes it. The code in
// memory stays as it is.
func (g *GDB) Break(address uint64) error { return g.expectOK(fmt.Sprintf("Z0,%x,4", address)) }

// Unbreak removes a breakpoint.
func (g *GDB) Unbreak(address uint64) error { return g.expectOK(fmt.Sprintf("z0,%x,4", address)) }

// Select chooses the CPU that Registers, SetRegister, SetRegisters and Memory are about. After a stop
// by a breakpoint it is the one of the stop.
func (g *GDB) Select(cpu int) error {
	if cpu == g.selected {
		return nil
	}
	if err := g.expectOK(fmt.Sprintf("Hg%x", cpu+1)); err != nil {
		return err
	}
	g.selected = cpu
	return nil
}

// Registers returns the registers from number 0 on, as many as the target describes first.
func (g *GDB) Registers() ([]uint64, error) {
	answer, err := g.command("g")
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(answer)
	if err != nil {
		return nil, fmt.Errorf("gdbstub: g: %w", err)
	}
	out := make([]uint64, len(b)/8)
	for i := range out {
		out[i] = g.order.Uint64(b[8*i:])
	}
	return out, nil
}

// Halted tells whether a CPU is asleep until an interrupt comes.
func (g *GDB) Halted(cpu int) (bool, error) {
	command := fmt.Sprintf("qThreadExtraInfo,%x", cpu+1)
	answer, err := g.command(command)
	if err != nil {
		return false, err
	}
	text, err := hex.DecodeString(answer)
	// gdbstub/gdbstub.c, handle_query_thread_extra, QEMU 11.1
	halted, runs := bytes.Contains(text, []byte("[halted")), bytes.Contains(text, []byte("[running"))
	if err != nil || halted == runs {
		return false, &Refused{command, answer}
	}
	return halted, nil
}

// SetRegister writes a register.
func (g *GDB) SetRegister(number int, value uint64) error {
	var b [8]byte
	g.order.PutUint64(b[:], value)
	return g.expectOK(fmt.Sprintf("P%x=%x", number, b))
}

// SetRegisters writes the registers from number 0 on, as Registers has read them.
func (g *GDB) SetRegisters(values []uint64) error {
	b := make([]byte, 8*len(values))
	for i, v := range values {
		g.order.PutUint64(b[8*i:], v)
	}
	return g.expectOK(fmt.Sprintf("G%x", b))
}

// Memory reads guest-virtual memory as the selected CPU sees it.
func (g *GDB) Memory(address uint64, size int) ([]byte, error) {
	command := fmt.Sprintf("m%x,%x", address, size)
	answer, err := g.command(command)
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(answer)
	if err != nil || len(b) != size {
		return nil, &Refused{command, answer}
	}
	return b, nil
}

// Resume lets CPUs go on, all if none are named; the others stand still until they are
// named. The next Wait tells when all stand still again.
func (g *GDB) Resume(cpus ...int) error {
	action := "vCont;c"
	if len(cpus) > 0 {
		var b strings.Builder
		b.WriteString("vCont")
		for _, cpu := range cpus {
			fmt.Fprintf(&b, ";c:%x", cpu+1)
		}
		action = b.String()
	}
	return g.send(action)
}

// Step has one CPU do one instruction while the others stand still, and returns when it has, or when all
// stand still for a breakpoint that another CPU came to before.
func (g *GDB) Step(ctx context.Context, cpu int) error {
	if err := g.send(fmt.Sprintf("vCont;s:%x", cpu+1)); err != nil {
		return err
	}
	s, err := g.Wait(ctx)
	if err == nil && s.Signal != SIGTRAP {
		err = fmt.Errorf("gdbstub: a step of CPU %d ended in %+v", cpu, s)
	}
	return err
}

// Interrupt has all CPUs stand still, of which Wait then tells. It may be called at any time,
// from any goroutine; where the CPUs have come to stand still for another reason before, it
// does nothing.
func (g *GDB) Interrupt() error {
	if err := g.write([]byte{3}); err != nil {
		return fmt.Errorf("gdbstub: interrupt: %w", err)
	}
	return nil
}

// Wait waits until the CPUs stand still. An error that is the cause of ctx's end leaves them
// on their way; Wait can be called again.
func (g *GDB) Wait(ctx context.Context) (Stop, error) {
	for {
		p, err := g.receive(ctx)
		if err != nil {
			return Stop{}, err
		}
		if strings.HasPrefix(p, "O") && p != "OK" {
			continue // what the guest prints to a debugger
		}
		s, err := parseStop(p)
		g.selected = -1
		if err == nil && s.Signal == SIGTRAP {
			g.selected = s.CPU // gdbstub/system.c, gdb_set_stop_cpu, QEMU 11.1
		}
		return s, err
	}
}

// parseStop reads a stop reply ("Stop Reply Packets").
func parseStop(p string) (Stop, error) {
	if strings.HasPrefix(p, "W") || strings.HasPrefix(p, "X") {
		return Stop{}, fmt.Errorf("gdbstub: %w", ErrExited)
	}
	if len(p) < 3 || p[0] != 'T' && p[0] != 'S' {
		return Stop{}, fmt.Errorf("gdbstub: %q is no stop reply", p)
	}
	signal, err := strconv.ParseUint(p[1:3], 16, 8)
	if err != nil {
		return Stop{}, fmt.Errorf("gdbstub: stop reply %q: %w", p, err)
	}
	s := Stop{Signal: int(signal)}
	for field := range strings.SplitSeq(p[3:], ";") {
		id, ok := strings.CutPrefix(field, "thread:")
		if !ok {
			continue
		}
		thread, err := strconv.ParseUint(id, 16, 16)
		if err != nil || thread == 0 {
			return Stop{}, fmt.Errorf("gdbstub: stop reply %q names no thread", p)
		}
		s.CPU = int(thread) - 1
	}
	return s, nil
}

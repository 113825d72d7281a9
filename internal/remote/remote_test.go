package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPacket(t *testing.T) {
	for _, test := range []struct{ content, want string }{
		{"", "$#00"},
		{"OK", "$OK#9a"},
		{"a#b$c}d*e", "$a}\x03b}\x04c}]d}\ne#e2"},
	} {
		got := string(appendPacket(nil, test.content))
		back, err := readPacket(bufio.NewReader(strings.NewReader("++" + got + "+")))
		require.NoError(t, err, "%q", got)
		assert.Equal(t, test.content, back)
		if test.content != "a#b$c}d*e" {
			assert.Equal(t, test.want, got)
		}
	}
	for _, test := range []struct{ packet, want string }{
		{"$0* #7a", "0000"},
		{"$a*!b#" + "0e", "aaaaab"},
	} {
		got, err := readPacket(bufio.NewReader(strings.NewReader(test.packet)))
		require.NoError(t, err, test.packet)
		assert.Equal(t, test.want, got)
	}
	for _, test := range []struct{ packet, want string }{
		{"", "EOF"},
		{"+-", "EOF"},
		{"$OK", "unexpected EOF"},
		{"$OK#9", "unexpected EOF"},
		{"$OK#9b", "its sum is 9a"},
		{"$O$K#9a", "begins twice"},
		{"$*!#4b", "nothing to repeat"},
		{"$a}", "unexpected EOF"},
		{"$" + strings.Repeat("a*~", maxPacket/97+1) + "#00", "longer than"},
	} {
		_, err := readPacket(bufio.NewReader(strings.NewReader(test.packet)))
		assert.ErrorContains(t, err, test.want, "%.20q", test.packet)
	}
}

func FuzzReadPacket(f *testing.F) {
	f.Add("+$T05thread:01;#d6")
	f.Add("$0* #7a")
	f.Add("$a}\x03#00")
	f.Fuzz(func(t *testing.T, bytes string) {
		content, err := readPacket(bufio.NewReader(strings.NewReader(bytes)))
		if err != nil {
			return
		}
		assert.LessOrEqual(t, len(content), maxPacket)
		again, err := readPacket(bufio.NewReader(strings.NewReader(string(appendPacket(nil, content)))))
		require.NoError(t, err)
		assert.Equal(t, content, again)
	})
}

func TestParseStop(t *testing.T) {
	for _, test := range []struct {
		packet string
		want   Stop
		err    string
	}{
		{"T05thread:03;", Stop{CPU: 2, Signal: SIGTRAP}, ""},
		{"T02core:0;thread:1;", Stop{CPU: 0, Signal: SIGINT}, ""},
		{"S05", Stop{Signal: SIGTRAP}, ""},
		{"W00", Stop{}, "has ended"},
		{"X09", Stop{}, "has ended"},
		{"T0", Stop{}, "no stop reply"},
		{"OK", Stop{}, "no stop reply"},
		{"Tzz", Stop{}, "invalid syntax"},
		{"T05thread:00;", Stop{}, "names no thread"},
		{"T05thread:p1.1;", Stop{}, "names no thread"},
	} {
		got, err := parseStop(test.packet)
		if test.err != "" {
			assert.ErrorContains(t, err, test.err, test.packet)
			continue
		}
		require.NoError(t, err, test.packet)
		assert.Equal(t, test.want, got, test.packet)
	}
}

// stub is a gdbstub that answers by a table; what is not in it is not known. It sends no answer to
// what makes CPUs run, but the stop that is next.
type stub struct {
	answers map[string]string
	stops   chan string
	heard   chan string
}

func newStub(t *testing.T, answers map[string]string) (*GDB, *stub) {
	s := &stub{answers: answers, stops: make(chan string, 8), heard: make(chan string, 64)}
	near, far := net.Pipe()
	g := NewGDB(near, binary.LittleEndian)
	served := make(chan struct{})
	go func() {
		defer close(served)
		r := bufio.NewReader(far)
		reply := func(p string) {
			if _, err := far.Write(appendPacket([]byte("+"), p)); err != nil {
				return
			}
		}
		for {
			b, err := r.Peek(1)
			if err != nil {
				return
			}
			if b[0] == '+' {
				_, _ = r.Discard(1)
				continue
			}
			if b[0] == 3 {
				_, _ = r.Discard(1)
				s.heard <- "interrupt"
				go reply("T02thread:01;")
				continue
			}
			p, err := readPacket(r)
			if err != nil {
				return
			}
			s.heard <- p
			if strings.HasPrefix(p, "vCont") {
				go func() {
					if stop, ok := <-s.stops; ok {
						reply(stop)
					}
				}()
				continue
			}
			go reply(s.answers[p])
		}
	}()
	t.Cleanup(func() {
		close(s.stops)
		assert.NoError(t, g.Close())
		require.NoError(t, far.Close())
		<-served
	})
	return g, s
}

func TestGDB(t *testing.T) {
	g, s := newStub(t, map[string]string{
		"Z0,9000000000200000,4":             "OK",
		"z0,9000000000200000,4":             "E22",
		"Hg3":                               "OK",
		"g":                                 "0100000000000000" + "ffffffffffffffff" + "02",
		"P21=8877665544332211":              "OK",
		"G0100000000000000ffffffffffffffff": "OK",
		"m9000000000200000,4":               "0081002b",
		"m9000000000200000,8":               "0081002b",
	})
	require.NoError(t, g.Break(0x9000000000200000))
	var refused *Refused
	require.ErrorAs(t, g.Unbreak(0x9000000000200000), &refused)
	assert.Equal(t, Refused{"z0,9000000000200000,4", "E22"}, *refused)
	require.ErrorAs(t, g.Break(1), &refused, "what the stub does not know has an empty answer")
	require.NoError(t, g.Select(2))
	r, err := g.Registers()
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 1<<64 - 1}, r)
	require.NoError(t, g.SetRegister(33, 0x1122334455667788))
	require.NoError(t, g.SetRegisters(r))
	m, err := g.Memory(0x9000000000200000, 4)
	require.NoError(t, err)
	assert.Equal(t, []byte{0, 0x81, 0, 0x2b}, m)
	_, err = g.Memory(0x9000000000200000, 8)
	assert.Error(t, err, "fewer bytes than asked for")

	for len(s.heard) > 0 {
		<-s.heard
	}
	require.NoError(t, g.Resume())
	assert.Equal(t, "vCont;c", <-s.heard)
	s.stops <- "T05thread:02;"
	stop, err := g.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Stop{CPU: 1, Signal: SIGTRAP}, stop)

	require.NoError(t, g.Select(1), "it is selected by the stop")
	assert.Error(t, g.Select(0), "the stub does not know it")
	assert.Equal(t, "Hg1", <-s.heard)

	require.NoError(t, g.Resume(0, 2))
	assert.Equal(t, "vCont;c:1;c:3", <-s.heard)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	_, err = g.Wait(ctx)
	require.ErrorIs(t, err, enough)
	require.NoError(t, g.Interrupt())
	assert.Equal(t, "interrupt", <-s.heard)
	stop, err = g.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, SIGINT, stop.Signal)
	require.NoError(t, g.Select(2))
	assert.Error(t, g.Select(0), "nothing is selected by an interrupt")
}

func TestGDBHalted(t *testing.T) {
	text := func(s string) string { return hex.EncodeToString([]byte(s)) }
	g, _ := newStub(t, map[string]string{
		"qThreadExtraInfo,1": text("CPU#0 [running]"), "qThreadExtraInfo,2": text("CPU#1 [halted ]"),
		"qThreadExtraInfo,3": text("CPU#2"), "qThreadExtraInfo,4": "zz",
	})
	for cpu, want := range []bool{false, true} {
		got, err := g.Halted(cpu)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, cpu := range []int{2, 3, 4} {
		_, err := g.Halted(cpu)
		var refused *Refused
		assert.ErrorAs(t, err, &refused, "CPU %d", cpu)
	}
}

func TestGDBStep(t *testing.T) {
	g, s := newStub(t, nil)
	s.stops <- "T05thread:02;"
	require.NoError(t, g.Step(t.Context(), 1))
	assert.Equal(t, "vCont;s:2", <-s.heard)
	s.stops <- "T05thread:01;"
	require.NoError(t, g.Step(t.Context(), 1), "another CPU's stop")
	assert.Equal(t, "vCont;s:2", <-s.heard)
	s.stops <- "T02thread:02;"
	assert.ErrorContains(t, g.Step(t.Context(), 1), "a step of CPU 1 ended in")
}

func TestGDBExited(t *testing.T) {
	near, far := net.Pipe()
	g := NewGDB(near, binary.LittleEndian)
	require.NoError(t, far.Close())
	_, err := g.Wait(t.Context())
	assert.ErrorIs(t, err, ErrExited)
	assert.NoError(t, g.Close())
}

// lines serves a connection on which each line has an answer.
func lines(t *testing.T, greeting string, answers map[string]string) net.Conn {
	near, far := net.Pipe()
	go func() {
		if greeting != "" { // a pipe waits for a reader even of nothing
			if _, err := far.Write([]byte(greeting)); err != nil {
				return
			}
		}
		for r := bufio.NewScanner(far); r.Scan(); {
			if _, err := fmt.Fprintln(far, answers[r.Text()]); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = far.Close() })
	return near
}

func TestQTest(t *testing.T) {
	q := NewQTest(lines(t, "", map[string]string{
		"read 0x1000 0x4":                "OK 0x01020304",
		"read 0x1000 0x5":                "OK 0x01020304",
		"write 0x1000 0x2 0xbeef":        "IRQ raise 1\nOK",
		"set_irq_in /machine/c l 0 1":    "OK",
		"set_irq_in /machine/none l 0 1": "FAIL Unknown device",
	}))
	defer q.Close()
	b, err := q.Read(0x1000, 4)
	require.NoError(t, err)
	assert.Equal(t, []byte{1, 2, 3, 4}, b)
	_, err = q.Read(0x1000, 5)
	assert.Error(t, err)
	require.NoError(t, q.Write(0x1000, []byte{0xbe, 0xef}))
	require.NoError(t, q.SetIRQ("/machine/c", "l", 0, 1))
	assert.ErrorContains(t, q.SetIRQ("/machine/none", "l", 0, 1), "Unknown device")
}

func TestQMP(t *testing.T) {
	const cpus = `{"return":[{"cpu-index":1,"qom-path":"/b","props":{"core-id":1}},{"cpu-index":0,"qom-path":"/a","props":{"core-id":0,"socket-id":0}}]}`
	q, err := NewQMP(lines(t, `{"QMP":{"version":{}}}`+"\n", map[string]string{
		`{"execute":"qmp_capabilities"}`: `{"return":{}}`,
		`{"execute":"query-cpus-fast"}`:  `{"event":"RESUME"}` + "\n" + cpus,
		`{"execute":"cont"}`:             `{"return":{}}` + "\n" + `{"event":"RESUME"}` + "\n" + `{"event":"SHUTDOWN"}`,
		`{"arguments":{"command-line":"info x","cpu-index":1},"execute":"human-monitor-command"}`: `{"return":"text"}`,
		`{"arguments":{"command-line":"info y","cpu-index":1},"execute":"human-monitor-command"}`: `{"error":{"desc":"no"}}`,
	}))
	require.NoError(t, err)
	defer q.Close()
	got, err := q.CPUs()
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.Equal(t, []string{"/a", "/b"}, []string{got[0].Path, got[1].Path})
	assert.Equal(t, 1, got[1].Props.Core)
	text, err := q.Monitor(1, "info x")
	require.NoError(t, err)
	assert.Equal(t, "text", text)
	_, err = q.Monitor(1, "info y")
	assert.ErrorContains(t, err, `"no"`)
	require.NoError(t, q.Continue())
	require.NoError(t, q.Await("SHUTDOWN"))

	_, err = NewQMP(lines(t, "{}\n", nil))
	assert.ErrorContains(t, err, "does not greet")
}

func TestDial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dialed := make(chan error, 1)
	go func() {
		c, err := Dial(t.Context(), path)
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	c, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, <-dialed, "it waits for the socket")
	require.NoError(t, errors.Join(c.Close(), l.Close()))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Dial(ctx, path)
	assert.ErrorIs(t, err, context.Canceled)
}

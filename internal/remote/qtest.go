package remote

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
)

// QTest is a connection to QEMU's -qtest, which works beside an accelerator, too
// (system/qtest.c, QEMU 11.1, "qtest protocol"). Its methods may be called at any time, from
// any goroutine, whether the CPUs run or not.
type QTest struct {
	mu   sync.Mutex
	conn net.Conn
	r    *bufio.Reader
}

// NewQTest begins to speak over a connection.
func NewQTest(conn net.Conn) *QTest { return &QTest{conn: conn, r: bufio.NewReader(conn)} }

// Close ends the connection.
func (q *QTest) Close() error { return q.conn.Close() }

// command sends a line and returns what comes after the OK.
func (q *QTest) command(line string) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, err := fmt.Fprintln(q.conn, line); err != nil {
		return "", fmt.Errorf("qtest: %s: %w", line, ended(err))
	}
	for {
		answer, err := q.r.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("qtest: %s: %w", line, ended(err))
		}
		answer = strings.TrimSpace(answer)
		if strings.HasPrefix(answer, "IRQ ") {
			continue // tells of a line that is intercepted
		}
		ok, rest, _ := strings.Cut(answer, " ")
		if ok != "OK" {
			return "", &Refused{line, answer}
		}
		return rest, nil
	}
}

// Read reads guest-physical memory. What is not there reads as the machine has it.
func (q *QTest) Read(address uint64, size int) ([]byte, error) {
	line := fmt.Sprintf("read %#x %#x", address, size)
	rest, err := q.command(line)
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(strings.TrimPrefix(rest, "0x"))
	if err != nil || len(b) != size {
		return nil, &Refused{line, rest}
	}
	return b, nil
}

// Write writes guest-physical memory.
func (q *QTest) Write(address uint64, b []byte) error {
	_, err := q.command(fmt.Sprintf("write %#x %#x 0x%x", address, len(b), b))
	return err
}

// SetIRQ sets an input line of a device, which is named by its path in QEMU's object model.
func (q *QTest) SetIRQ(device, line string, number, level int) error {
	_, err := q.command(fmt.Sprintf("set_irq_in %s %s %d %d", device, line, number, level))
	return err
}

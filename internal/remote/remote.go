// Package remote speaks the protocols by which a running QEMU lets another process look into
// its guest and change it: GDB's remote serial protocol, of which it takes what steers CPUs
// ([GDB]), QEMU's own qtest, which reads and writes guest-physical memory and drives
// interrupt lines while the CPUs run ([QTest]), and the monitor's QMP ([QMP]). All are bytes
// over a connection, in pure Go.
//
// An error of a command that the other end refused is a [Refused]; any other error is one of
// the connection, after which it is of no more use.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Refused is what the other end said instead of doing a command.
type Refused struct {
	Command, Answer string
}

// Error implements error.
func (r *Refused) Error() string { return fmt.Sprintf("%s: refused with %q", r.Command, r.Answer) }

// Dial connects to a Unix socket that another process is about to make: it tries until the
// socket is there, or ctx ends.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: %w", path, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

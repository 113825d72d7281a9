//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"pvabi/arch"
)

// userWord marks a process that takes frames from its standard input, one after the other, runs
// the program in each, and gives it back on its standard output.
const userWord = "pvabi-kmod-user"

// init is such a process. Being an init function it works in every program that can open a
// machine.
func init() {
	if len(os.Args) != 2 || os.Args[1] != userWord {
		return
	}
	if err := runFrames(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pvabi:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

func runFrames(r io.Reader, w io.Writer) error {
	frame, err := arch.NewFrame(make([]byte, arch.FrameSize))
	if err != nil {
		return err
	}
	for {
		if _, err := io.ReadFull(r, frame); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if s := this.run(frame); s != statusEnded {
			return fmt.Errorf("the probe left with status %d", s)
		}
		if _, err := w.Write(frame); err != nil {
			return err
		}
	}
}

// user is such a process, as seen by the one that it runs programs for.
type user struct {
	command *exec.Cmd
	frames  io.WriteCloser
	results io.ReadCloser
	said    bytes.Buffer
}

func startUser() (*user, error) {
	u := &user{command: exec.Command("/proc/self/exe", userWord)}
	u.command.Args[0] = "pvabi"
	u.command.Stderr = &u.said
	// One thread is enough, and a smaller process starts faster.
	u.command.Env = append(os.Environ(), "GOMAXPROCS=1", "GOTRACEBACK=none")
	var err error
	if u.frames, err = u.command.StdinPipe(); err != nil {
		return nil, err
	}
	if u.results, err = u.command.StdoutPipe(); err != nil {
		return nil, err
	}
	return u, u.command.Start()
}

// run has the process run the program of a frame, which it gives back.
func (u *user) run(ctx context.Context, frame arch.Frame) error {
	defer context.AfterFunc(ctx, func() { _ = u.command.Process.Kill() })()
	if _, err := u.frames.Write(frame); err != nil {
		return err
	}
	_, err := io.ReadFull(u.results, frame)
	return err
}

// end ends the process and returns how it ended.
func (u *user) end() error {
	return errors.Join(u.frames.Close(), u.command.Wait())
}

// Unprivileged implements Machine.
func (m *machine) Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error) {
	frame, err := arch.NewFrame(make([]byte, arch.FrameSize))
	if err != nil {
		return nil, err
	}
	if err := frame.Load(p); err != nil {
		return nil, err
	}
	if m.user == nil {
		if m.user, err = startUser(); err != nil {
			m.user = nil
			return nil, fmt.Errorf("kmod: start a process without privilege: %w", err)
		}
	}
	if err = m.user.run(ctx, frame); err == nil {
		return frame.Results(len(p)), nil
	}
	u := m.user
	m.user = nil
	err = errors.Join(context.Cause(ctx), err, u.end())
	if trap := exception(this.signals, u.said.String()); trap != 0 && ctx.Err() == nil {
		r := make([]arch.Result, len(p))
		r[0].Trap, r[0].Count = trap, 1
		return r, nil
	}
	return nil, fmt.Errorf("kmod: a process without privilege: %w: %s", err, strings.TrimSpace(u.said.String()))
}

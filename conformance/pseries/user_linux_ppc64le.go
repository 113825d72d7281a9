package pseries

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
	"pvabi/arch/ppc64le"
)

// userWord marks a process that takes a frame from its standard input, runs the program in
// it, and gives it back on its standard output.
const userWord = "pvabi-pseries-user"

// init is such a process. Being an init function it works in every program that can open
// a machine.
func init() {
	if len(os.Args) != 2 || os.Args[1] != userWord {
		return
	}
	if err := runFrame(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pvabi:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

func runFrame(r io.Reader, w io.Writer) error {
	memory, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	frame, err := arch.NewFrame(memory)
	if err != nil {
		return err
	}
	if s := ppc64le.Run(frame, false); s != ppc64le.Ended {
		return fmt.Errorf("the probe left with status %d", s)
	}
	_, err = w.Write(frame)
	return err
}

// Unprivileged implements Machine. Where a call is no call without privilege, Linux makes a
// signal of it, which ends the process: the first operation then has an exception.
func (m *machine) Unprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error) {
	frame, err := arch.NewFrame(make([]byte, arch.FrameSize))
	if err != nil {
		return nil, err
	}
	if err := frame.Load(p); err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	child := exec.CommandContext(ctx, "/proc/self/exe", userWord)
	child.Args[0] = "pvabi"
	child.Env = append(os.Environ(), "GOMAXPROCS=1", "GOTRACEBACK=none")
	child.Stdin, child.Stdout, child.Stderr = bytes.NewReader(frame), &out, &said
	if err := child.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && strings.Contains(said.String(), "SIGILL") {
			r := make([]arch.Result, len(p))
			r[0].Trap = 1
			return r, nil
		}
		return nil, fmt.Errorf("pseries: a process without privilege: %w: %s", err, strings.TrimSpace(said.String()))
	}
	if out.Len() != len(frame) {
		return nil, fmt.Errorf("pseries: a process without privilege gave %d bytes back, not %d", out.Len(), len(frame))
	}
	copy(frame, out.Bytes())
	return frame.Results(len(p)), nil
}

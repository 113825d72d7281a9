package loongarch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"pvabi/arch"
	"pvabi/arch/loong64"
)

// userWord marks a process that takes a frame from its standard input and runs the program in
// it in privilege level 3. It gives the frame back on its standard output.
const userWord = "pvabi-loongarch-user"

// init is such a process. Being an init function it works in every program that can open a
// machine.
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
	memory := make([]byte, arch.FrameSize)
	if _, err := io.ReadFull(r, memory); err != nil {
		return err
	}
	frame, err := arch.NewFrame(memory)
	if err != nil {
		return err
	}
	if s := loong64.Run(frame, false); s != loong64.Ended {
		return fmt.Errorf("the probe left with status %d", s)
	}
	_, err = w.Write(frame)
	return err
}

// Unprivileged implements conformance.LoongArchGuest. Of a program that a signal ends, only the exception of its
// first operation is known.
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
	child.Stdin, child.Stdout, child.Stderr = bytes.NewReader(frame), &out, &said
	// One thread is enough, and a smaller process starts faster.
	child.Env = append(os.Environ(), "GOMAXPROCS=1", "GOTRACEBACK=none")
	err = child.Run()
	var exit *exec.ExitError
	switch trap := exception(said.String()); {
	case err == nil:
		if frame, err = arch.NewFrame(out.Bytes()); err != nil {
			return nil, err
		}
		return frame.Results(len(p)), nil
	case errors.As(err, &exit) && trap != 0:
		r := make([]arch.Result, len(p))
		r[0].Trap, r[0].Count = trap, 1
		return r, nil
	}
	return nil, fmt.Errorf("loongarch: a program in privilege level 3: %w: %s", err, said.String())
}

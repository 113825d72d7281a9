package qemu

import (
	"errors"
	"fmt"
	"strings"
)

// What can go wrong with a guest. A run's error is an *Error that wraps one of
// these, or an error about the configuration, before anything was started.
var (
	// ErrStart: QEMU could not be started.
	ErrStart = errors.New("qemu does not start")
	// ErrExited: QEMU ended on its own before the agent finished.
	ErrExited = errors.New("qemu ended early")
	// ErrKilled: somebody else ended QEMU by a signal.
	ErrKilled = errors.New("qemu was killed")
	// ErrPanic: the guest's kernel panicked.
	ErrPanic = errors.New("the guest panicked")
	// ErrBoot: the agent did not say who it is in time.
	ErrBoot = errors.New("the guest does not come up")
	// ErrSilent: the agent fell silent.
	ErrSilent = errors.New("the guest fell silent")
	// ErrTimeout: the whole run took too long.
	ErrTimeout = errors.New("the run takes too long")
	// ErrIncomplete: the guest ended in good order, without the last event.
	ErrIncomplete = errors.New("the guest ended before its last event")
	// ErrGarbage: what came over the event channel is not what an agent sends.
	ErrGarbage = errors.New("garbage on the event channel")
	// ErrIdentity: the guest is not the one that was asked for.
	ErrIdentity = errors.New("the guest is not what was asked for")
	// ErrCanceled: the caller ended the run; it also wraps the context's error.
	ErrCanceled = errors.New("the run was ended")
)

// Error is why a run failed.
type Error struct {
	// Err wraps one of the errors above.
	Err error
	// Console is the end of the guest's console, Stderr that of what QEMU itself
	// printed.
	Console, Stderr string
	// ConsoleFile has the whole console.
	ConsoleFile string
}

// Error returns a sentence, and after it what QEMU and the guest said last.
func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString(e.Err.Error())
	if e.Stderr != "" {
		s.WriteString("\nqemu says:\n" + indent(e.Stderr))
	}
	switch {
	case e.Console != "":
		fmt.Fprintf(&s, "\nthe console ends with (all of it is in %s):\n%s", e.ConsoleFile, indent(e.Console))
	case !errors.Is(e.Err, ErrStart):
		s.WriteString("\nthe console is empty")
	}
	return s.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

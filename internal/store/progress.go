package store

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Progress shows how far the store is. Its methods are called by one goroutine
// at a time for each call of a method of [Store].
type Progress interface {
	// Say reports something worth keeping.
	Say(line string)
	// Doing tells what is under way and how much of it is done, from 0 to 1; a
	// negative fraction is an unknown one. An empty text: nothing is any more.
	Doing(text string, fraction float64)
}

// NewProgress writes progress to f: on a terminal as one line that is
// rewritten, elsewhere as a plain line for each thing that begins.
func NewProgress(f *os.File) Progress {
	if term.IsTerminal(int(f.Fd())) {
		return &terminal{w: f, width: func() int {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil {
				return w
			}
			return 80
		}}
	}
	return &lines{w: f}
}

type silent struct{}

func (silent) Say(string)            {}
func (silent) Doing(string, float64) {}

// lines is for files and pipes.
type lines struct {
	mu   sync.Mutex
	w    io.Writer
	last string
}

func (l *lines) Say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.w, line)
}

func (l *lines) Doing(text string, _ float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text != l.last && text != "" {
		fmt.Fprintln(l.w, text)
	}
	l.last = text
}

// terminal rewrites its last line: carriage return, text, erase to the end of
// the line (ECMA-48, EL).
type terminal struct {
	mu    sync.Mutex
	w     io.Writer
	width func() int
	line  string // what is shown and not yet ended
}

const eraseLine = "\r\x1b[K"

func (t *terminal) Say(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line != "" {
		fmt.Fprint(t.w, eraseLine)
	}
	fmt.Fprintln(t.w, line)
	fmt.Fprint(t.w, t.line)
}

func (t *terminal) Doing(text string, fraction float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := text
	if text != "" && fraction >= 0 {
		line = fmt.Sprintf("%s %3.0f %%", text, 100*min(fraction, 1))
	}
	// A line that wraps could not be erased.
	if runes, width := []rune(line), t.width(); len(runes) >= width {
		line = string(runes[:max(width-1, 0)])
	}
	if line != t.line {
		fmt.Fprint(t.w, eraseLine+line)
		t.line = line
	}
}

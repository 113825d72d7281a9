package store

import (
	"fmt"
	"io"
	"sync"
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

// NewProgress writes a plain line to w for each thing that begins.
func NewProgress(w io.Writer) Progress { return &lines{w: w} }

type silent struct{}

func (silent) Say(string)            {}
func (silent) Doing(string, float64) {}

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

// Package progress shows on a terminal what is under way, in one line below
// whatever else is printed there. In files and pipes nothing but whole lines appear.
package progress

import (
	"io"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"pvabi/internal/store"
)

// Display has the line. Its methods can be called by several goroutines. It is a
// [store.Progress].
type Display struct {
	mu sync.Mutex
	w  io.Writer // the terminal; nil for none
	// plain is told what the store does where there is no terminal.
	plain store.Progress
	width func() int
	// target is what runs, fetch what it waits for, which is shown instead.
	target, fetch *bar
	open          bool // the last line that was printed has not ended
	done          chan struct{}
}

type bar struct {
	*progressbar.ProgressBar
	text string
}

// file is an [os.File], or what passes for one.
type file interface {
	io.Writer
	Fd() uintptr
}

func terminal(w io.Writer) bool {
	f, ok := w.(file)
	return ok && term.IsTerminal(int(f.Fd()))
}

// New returns the display of a process that prints to stderr, which shows progress
// if it is a terminal. It has to be closed.
func New(stderr io.Writer) *Display {
	if !terminal(stderr) {
		return &Display{plain: store.NewProgress(stderr)}
	}
	f := stderr.(file)
	d := &Display{w: f, done: make(chan struct{}), width: func() int {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			return w
		}
		return 80
	}}
	go d.tick()
	return d
}

// tick has the time in the line go on.
func (d *Display) tick() {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-second.C:
			d.mu.Lock()
			d.draw()
			d.mu.Unlock()
		case <-d.done:
			return
		}
	}
}

// Close takes the line away.
func (d *Display) Close() {
	if d.w == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.erase()
	d.target, d.fetch = nil, nil
	close(d.done)
}

// Writer returns what is to be written to in place of w, so that what comes to the
// same terminal does not run into the line.
func (d *Display) Writer(w io.Writer) io.Writer {
	if d.w == nil || !terminal(w) {
		return w
	}
	return &above{d, w}
}

// above writes above the line.
type above struct {
	d *Display
	w io.Writer
}

func (a *above) Write(p []byte) (int, error) {
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	a.d.erase()
	n, err := a.w.Write(p)
	a.d.open = len(p) > 0 && p[len(p)-1] != '\n'
	a.d.draw()
	return n, err
}

// Target begins a target of so many rules; the name of none ends it.
func (d *Display) Target(name string, rules int) {
	if d.w == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.erase()
	d.target = nil
	if name != "" {
		d.target = d.bar(name, rules, progressbar.OptionShowCount())
	}
	d.draw()
}

// Checked counts one rule of the target.
func (d *Display) Checked() {
	if d.w == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.target != nil {
		_ = d.target.Add(1) // an error of the terminal's is of no interest
	}
}

// Say implements [store.Progress].
func (d *Display) Say(line string) {
	if d.w == nil {
		d.plain.Say(line)
		return
	}
	_, _ = (&above{d, d.w}).Write([]byte(line + "\n"))
}

// Doing implements [store.Progress].
func (d *Display) Doing(text string, fraction float64) {
	if d.w == nil {
		d.plain.Doing(text, fraction)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case text == "":
		d.erase()
		d.fetch = nil
	case d.fetch == nil || d.fetch.text != text:
		d.erase()
		d.fetch = d.bar(text, 1000)
	}
	if d.fetch != nil && fraction >= 0 {
		_ = d.fetch.Set(int(1000 * min(fraction, 1)))
	}
	d.draw()
}

// bar makes a bar that writes only when it is drawn, or counts.
func (d *Display) bar(text string, of int, more ...progressbar.Option) *bar {
	// A line that wraps could not be erased; 40 is for all but the text.
	short := []rune(text)
	if room := max(d.width()-40, 0); len(short) > room {
		short = short[:room]
	}
	return &bar{text: text, ProgressBar: progressbar.NewOptions(max(of, 1), append([]progressbar.Option{
		progressbar.OptionSetWriter(d.w), progressbar.OptionUseANSICodes(true), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetDescription(strings.TrimSpace(string(short))), progressbar.OptionSetWidth(20),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false),
	}, more...)...)}
}

func (d *Display) shown() *bar {
	if d.fetch != nil {
		return d.fetch
	}
	return d.target
}

func (d *Display) erase() {
	if b := d.shown(); b != nil && !d.open {
		_ = b.Clear()
	}
}

func (d *Display) draw() {
	if b := d.shown(); b != nil && !d.open {
		_ = b.RenderBlank()
	}
}

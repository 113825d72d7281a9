package progress

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// played is what a screen shows of a text, line by line, and what stands in the last
// one: a carriage return goes back to the line's begin, and is taken for erasing.
func played(text string) string {
	text = regexp.MustCompile(`\x1b\[[0-9]*K`).ReplaceAllString(text, "")
	return regexp.MustCompile(`(?m)^[^\n]*\r`).ReplaceAllString(text, "")
}

func TestTerminal(t *testing.T) {
	var out bytes.Buffer
	d := &Display{w: &out, width: func() int { return 60 }, done: make(chan struct{})}
	stdout := &above{d, &out}
	shows := func(want string) {
		t.Helper()
		assert.Regexp(t, "^"+want+"$", played(out.String()))
	}
	d.Target("a-target", 3)
	shows(`a-target   0% \|\s*\| \(0/3\) \[0s\] `)
	d.Doing("fetching a thing that has a long name", 0.5)
	shows(`fetching a thing tha  50% \|█+ +\|  \[0s\] `)
	d.Say("a line")
	d.Doing("", -1)
	shows(`a line\na-target   0% \|\s*\| \(0/3\) \[0s\] `)
	_, err := io.WriteString(stdout, "a result\n")
	require.NoError(t, err)
	d.Checked()
	_, err = io.WriteString(stdout, "half a ")
	require.NoError(t, err)
	shows(`a line\na result\nhalf a `)
	_, err = io.WriteString(stdout, "line\n")
	require.NoError(t, err)
	shows(`a line\na result\nhalf a line\na-target  33% \|█+ +\| \(1/3\) \[0s\] `)
	d.Close()
	shows(`a line\na result\nhalf a line\n`)
}

// In a pipe there is no line that is rewritten.
func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	d := New(w)
	assert.Equal(t, io.Writer(w), d.Writer(w))
	d.Target("a-target", 3)
	d.Doing("fetching a thing", 0.5)
	d.Doing("fetching a thing", 0.6)
	d.Doing("", -1)
	d.Checked()
	d.Close()
	require.NoError(t, w.Close())
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "fetching a thing\n", string(got))
}

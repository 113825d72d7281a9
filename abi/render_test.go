package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files of testdata and docs anew")

var formats = map[string]func(io.Writer, Document) error{"txt": Text, "md": Markdown, "json": JSON}

func documents() map[string]Document {
	docs := map[string]Document{"portable": Portable(Platforms()...), "history": History()}
	for _, p := range Platforms() {
		docs[p.Name] = p
	}
	return docs
}

// golden names the file that has a document: what is in Markdown is for readers.
func golden(name, ext string) string {
	if ext != "md" {
		return filepath.Join("testdata", name+"."+ext)
	}
	if name != "portable" && name != "history" {
		name = "abi-" + name
	}
	return filepath.Join("..", "docs", name+".md")
}

// head is what stands above a document in docs.
func head(name string) string {
	switch name {
	case "portable":
		return "# The portable questions, platforms side by side\n\nMade by `pvabi spec -portable -format markdown`.\n\n"
	case "history":
		return "# What was proposed, and where it ended\n\nMade by `pvabi spec -history -format markdown`.\n\n"
	}
	return "# The ABI of " + name + "\n\nMade by `pvabi spec -platform " + name + " -format markdown`.\n\n"
}

func TestGolden(t *testing.T) {
	for name, doc := range documents() {
		for ext, print := range formats {
			t.Run(name+"."+ext, func(t *testing.T) {
				var got bytes.Buffer
				if ext == "md" {
					got.WriteString(head(name))
				}
				require.NoError(t, print(&got, doc))
				file := golden(name, ext)
				if *update {
					require.NoError(t, os.WriteFile(file, got.Bytes(), 0o666))
				}
				want, err := os.ReadFile(file)
				require.NoError(t, err, "go test ./abi -update writes the file")
				require.Equal(t, string(want), got.String(), "%s differs; go test ./abi -update writes it anew", file)
			})
		}
	}
}

// Whatever is read back from JSON is the same table.
func TestJSONRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		var b bytes.Buffer
		require.NoError(t, JSON(&b, p))
		got := new(Platform)
		require.NoError(t, json.Unmarshal(b.Bytes(), got))
		assert.Equal(t, p, got)
	})
}

func TestEverySourceIsPrinted(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		var text bytes.Buffer
		require.NoError(t, Text(&text, p))
		unwrapped := strings.Join(strings.Fields(text.String()), " ")
		for _, r := range p.Rules {
			for _, s := range r.Sources {
				assert.Contains(t, unwrapped, s.String(), r.ID)
			}
		}
	})
}

// Every row of a table in Markdown has as many cells as its head, and no line of
// text is wider than it should be, save for the lines of cells.
func TestShape(t *testing.T) {
	for name, doc := range documents() {
		var md, text bytes.Buffer
		require.NoError(t, Markdown(&md, doc))
		columns := 0
		for line := range strings.Lines(md.String()) {
			if !strings.HasPrefix(line, "|") {
				columns = 0
				continue
			}
			cells := strings.Count(line, "|") - strings.Count(line, `\|`)
			if columns == 0 {
				columns = cells
			}
			assert.Equal(t, columns, cells, "%s: cells of %q", name, line)
		}
		require.NoError(t, Text(&text, doc))
		for line := range strings.Lines(text.String()) {
			line = strings.TrimSuffix(line, "\n")
			assert.Equal(t, strings.TrimRight(line, " "), line, name)
			if strings.HasPrefix(line, "    ") {
				assert.LessOrEqual(t, utf8.RuneCountInString(line), textWidth, "%s: %q", name, line)
			}
		}
	}
}

func TestWrap(t *testing.T) {
	long := strings.Repeat("x", textWidth)
	for name, c := range map[string]struct{ text, want string }{
		"empty":      {"", ""},
		"short":      {"a b", "  a b\n"},
		"exact":      {"a " + strings.Repeat("b", textWidth-4), "  a " + strings.Repeat("b", textWidth-4) + "\n"},
		"over":       {"a " + strings.Repeat("b", textWidth-3), "  a\n    " + strings.Repeat("b", textWidth-3) + "\n"},
		"longer one": {long, "  " + long + "\n"},
	} {
		var b strings.Builder
		wrap(&b, "  ", c.text)
		assert.Equal(t, c.want, b.String(), name)
	}
}

// A platform without an answer shows as such rather than as a promise.
func TestPortableWithoutAnswer(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Text(&b, Portable(X86KVM(), &Platform{Name: "bare"})))
	assert.Contains(t, b.String(), "bare: no answer")
	assert.Regexp(t, `(?m)^kick/wakes-waiter +wakes=1 +-$`, b.String())
	assert.Regexp(t, `(?m)^kick +KICK_CPU, target in argument 1 +-$`, b.String())
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteError(t *testing.T) {
	want := errors.New("pipe closed")
	for ext, print := range formats {
		assert.ErrorIs(t, print(brokenWriter{want}, X86KVM()), want, ext)
	}
}

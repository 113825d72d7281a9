package conformance

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/abi"
)

func TestDefects(t *testing.T) {
	rules := map[string]bool{}
	for _, p := range abi.Platforms() {
		for _, r := range p.Rules {
			rules[r.ID] = true
		}
	}
	seen := map[string]bool{}
	for _, d := range Defects() {
		assert.False(t, seen[d.ID], d.ID)
		seen[d.ID] = true
		assert.NotEmpty(t, d.Text, d.ID)
		assert.NotEmpty(t, d.Where, d.ID)
		assert.True(t, len(d.Rules) > 0 || d.Why != "", "%s: neither a rule nor a reason", d.ID)
		for _, r := range d.Rules {
			assert.True(t, rules[r], "%s: no rule %s", d.ID, r)
		}
	}
	var b strings.Builder
	assert.NoError(t, WriteDefects(&b))
	assert.Equal(t, len(Defects())+2, strings.Count(b.String(), "\n"))
	assert.Contains(t, b.String(), "| P01 | H_PROD looked at")
}

// TestDocuments holds the documents that are made from tables against them.
func TestDocuments(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"findings.md": func(w io.Writer) error {
			_, err := io.WriteString(w, "# What implementers do otherwise\n\nKnown deviations, each with its source; made by `pvabi spec -findings`.\n\n")
			return errors.Join(err, WriteDeviations(w))
		},
		"defects.md": func(w io.Writer) error {
			_, err := io.WriteString(w, "# Defects of the past, and the rules that notice them\n\nMade by `pvabi spec -defects`.\n\n")
			return errors.Join(err, WriteDefects(w))
		},
	} {
		var b strings.Builder
		assert.NoError(t, write(&b))
		file := filepath.Join("..", "docs", name)
		if *update {
			assert.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
		}
		got, err := os.ReadFile(file)
		assert.NoError(t, err)
		assert.Equal(t, b.String(), string(got), "%s is out of date; go test ./conformance -run TestDocuments -update makes it anew", name)
	}
}

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

// TestPrint does a job on the machine that the test runs on.
func TestPrint(t *testing.T) {
	suites := map[string]Suite{"note": func(_ context.Context, _ Job, emit func(conformance.Event)) error {
		emit(conformance.Event{Note: "here"})
		return nil
	}}
	var out bytes.Buffer
	require.NoError(t, Print(t.Context(), &out, Job{Target: "note", Needs: []string{"/dev/null"}}, suites))
	var got []conformance.Event
	for lines := json.NewDecoder(&out); lines.More(); {
		var e conformance.Event
		require.NoError(t, lines.Decode(&e))
		got = append(got, e)
	}
	kinds, text := events(got)
	assert.Equal(t, []string{"identity", "loaded", "note", "finished"}, kinds)
	assert.Equal(t, "here", text)
	id := got[0].Identity
	assert.Equal(t, runtime.GOARCH, id.GOARCH)
	assert.NotEmpty(t, id.Release)
	assert.NotEmpty(t, id.Machine)
	assert.Positive(t, id.CPUs)
	assert.Equal(t, id.Release, got[1].Loaded.Implementer)

	broken := errors.New("no space")
	assert.ErrorIs(t, Print(t.Context(), writer{broken}, Job{Target: "note"}, suites), broken)
}

type writer struct{ err error }

func (w writer) Write([]byte) (int, error) { return 0, w.err }

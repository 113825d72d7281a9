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

func TestLastLines(t *testing.T) {
	const log = "<5>[ 0.1] Linux\n<3>[ 1.2] kvm_amd: SVM not supported\n  by CPU 0\n<7>[ 1.3] for > debugging\n<30>[ 1.4] init: a > b\n"
	assert.Equal(t, []string{"[ 1.2] kvm_amd: SVM not supported", "  by CPU 0", "[ 1.4] init: a > b"}, lastLines(log, 3))
	assert.Len(t, lastLines(log, 100), 4)
	assert.Equal(t, []string{""}, lastLines("", 1))
}

func TestCountList(t *testing.T) {
	for _, test := range []struct {
		list string
		want int
	}{{"0", 1}, {"0-3", 4}, {"0-3,8", 5}, {"1,3-4,7-7", 4}} {
		got, err := countList(test.list)
		assert.NoError(t, err, test.list)
		assert.Equal(t, test.want, got, test.list)
	}
	for _, list := range []string{"", "a", "0-", "-1", "3-1", "0,,1"} {
		_, err := countList(list)
		assert.Error(t, err, "%q", list)
	}
}

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

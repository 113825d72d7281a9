package agent

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
)

// TestLooks has a rule that holds at every look but the second, and one that always
// holds: only the change is told, and how many there were.
func TestLooks(t *testing.T) {
	looks := 0
	s := &conformance.Suite{ABI: abi.X86KVM(), Checks: []conformance.Check{
		{Rules: []string{"kick/self"}, Run: func(t *conformance.T) { looks++; t.Truth("kick/self", "luck", looks != 2) }},
		{Rules: []string{"kick/result"}, Run: func(t *conformance.T) { t.Truth("kick/result", "no luck", true) }},
	}}
	s.Offers = func(abi.Feature) (bool, error) { return true, nil }
	var results []conformance.Result
	var notes []string
	require.NoError(t, Run(context.Background(), Job{Looks: 3}, func(e conformance.Event) {
		if e.Result != nil {
			results = append(results, *e.Result)
		} else {
			notes = append(notes, e.Note)
		}
	}, s))
	assert.Equal(t, 3, looks)
	require.Len(t, results, 3)
	assert.Equal(t, conformance.Pass, results[0].Verdict)
	assert.Zero(t, results[0].Look)
	assert.Equal(t, conformance.Fail, results[2].Verdict)
	assert.Equal(t, 2, results[2].Look)
	assert.Equal(t, []string{"look 2 of 3: 1 of 2 verdicts are others than before", "look 3 of 3: 0 of 2 verdicts are others than before"}, notes)
}

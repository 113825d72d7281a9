package conformance_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

// TestParts sends values in parts, one between the other's, and puts them together.
func TestParts(t *testing.T) {
	t.Parallel()
	noise := rand.New(rand.NewPCG(1, 2))
	long := conformance.KVMGuestBoot{Name: "long", Err: "why", Console: "text"}
	for range 20000 {
		long.Seen = append(long.Seen, conformance.KVMGuestEvent{Kind: conformance.GuestWrites, Value: noise.Uint64()})
	}
	short := conformance.KVMGuestBoot{Name: "short"}
	first, err := conformance.Parts("first", long)
	require.NoError(t, err)
	require.Greater(t, len(first), 2, "parts of what has %d events", len(long.Seen))
	second, err := conformance.Parts("second", short)
	require.NoError(t, err)
	require.Len(t, second, 1)

	var whole conformance.Whole
	var got []conformance.KVMGuestBoot
	for _, e := range slices.Concat(first[:2], second, first[2:]) {
		assert.Less(t, len(e.Part.Data), 40<<10)
		var b conformance.KVMGuestBoot
		complete, err := whole.Add(*e.Part, &b)
		require.NoError(t, err)
		if complete {
			got = append(got, b)
		}
	}
	assert.Equal(t, []conformance.KVMGuestBoot{short, long}, got)

	_, err = whole.Add(*first[len(first)-1].Part, new(conformance.KVMGuestBoot))
	assert.ErrorContains(t, err, "unpack first", "a value whose beginning is missing")
}

func FuzzWhole(f *testing.F) {
	events, err := conformance.Parts("a", conformance.KVMGuestBoot{Name: "b"})
	require.NoError(f, err)
	f.Add(events[0].Part.Data, []byte{})
	f.Add([]byte{0x1f, 0x8b}, []byte("x"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var whole conformance.Whole
		_, err := whole.Add(conformance.Part{Name: "a", Data: first}, new(conformance.KVMGuestBoot))
		require.NoError(t, err)
		_, _ = whole.Add(conformance.Part{Name: "a", Data: second, Last: true}, new(conformance.KVMGuestBoot))
	})
}

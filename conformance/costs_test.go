package conformance

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// metered is a machine whose CPU 0 runs programs at once. Its clock has two ticks in a nanosecond, and
// goes on by what operations cost: a Discover 100 ticks, or 150 while register 7 is not 0, all else
// nothing. Each Discover after the machine's first 1000 costs 10 more: something has changed.
type metered struct {
	microvm.Machine
	ticks, register, discovered uint64
	results                     []arch.Result
	// writes are all that was written to register 7; trap is that of a Discover.
	writes []uint64
	trap   uint64
}

func (m *metered) Start(_ int, p arch.Program) error {
	m.results = make([]arch.Result, len(p))
	for at := 0; at < len(p); at++ {
		r, o := &m.results[at], p[at]
		r.Count++
		switch o.Kind {
		case arch.Clock:
			r.Value = 2*uint64(time.Now().UnixNano()) + m.ticks
		case arch.WriteRegister:
			m.register = o.Arg[1]
			m.writes = append(m.writes, o.Arg[1])
		case arch.Discover:
			r.Trap = m.trap
			m.ticks += 100
			if m.register != 0 {
				m.ticks += 50
			}
			if m.discovered++; m.discovered > 1000 {
				m.ticks += 10
			}
		case arch.Loop:
			if r.Count < o.Arg[1] {
				at = int(o.Arg[0]) - 1
			}
		}
	}
	return nil
}

func (m *metered) Wait(context.Context, int) (arch.Stop, error) { return arch.Stop{Ended: true}, nil }
func (m *metered) Results(int) []arch.Result                    { return m.results }
func (m *metered) Close() error                                 { return nil }

func meteredSuite(m *metered) *Suite {
	return &Suite{
		ABI:    abi.X86KVM(),
		Open:   func(microvm.Config) (microvm.Machine, error) { return m, nil },
		Offers: func(f abi.Feature) (bool, error) { return f.Name != "STEAL_TIME", nil },
		Costs: &Costs{
			Sharing: func(*T, microvm.Machine) []Sharing {
				with := Sharing{Name: "steal"}
				with.Begin[caller], with.End[caller] = arch.Program{writeRegister(7, 1)}, arch.Program{writeRegister(7, 0)}
				return []Sharing{{Name: "none"}, with}
			},
			Costs: []Cost{
				{Name: "discover", Ops: ops(discover(0, 0))},
				{Name: "not-offered", Ops: ops(discover(0, 0)), Needs: "STEAL_TIME"},
			},
		},
	}
}

// TestMeasure has each value the cost of one turn, and rounds in which both kinds of sharing have their
// turn, so that both see the change.
func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &metered{}
		var got []Measured
		require.NoError(t, meteredSuite(m).Measure(t.Context(), 3, func(m Measured) { got = append(got, m) }))
		require.Len(t, got, 2)
		turns := got[0].Turns
		assert.Greater(t, turns, uint64(1000), "as many turns as take about as long as is wanted")
		assert.Equal(t, []Measured{
			{"discover", "none", turns, []float64{55, 55, 55}, 0, ""}, {"discover", "steal", turns, []float64{80, 80, 80}, 0, ""},
		}, got)
		assert.Equal(t, []uint64{1, 0, 1, 0, 1, 0}, m.writes, "the area is there in every second program, and taken back")
	})
}

func TestMeasureFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := meteredSuite(&metered{trap: 7}).Measure(t.Context(), 1, func(Measured) { t.Error("measured") })
		assert.EqualError(t, err, "discover, with none shared: operation 1 was done 1 times, and its exception is 6")
	})
}

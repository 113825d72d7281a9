package conformance_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/internal/model"
)

// The suite of powerpc-papr against the project's own model of what PAPR says.

func paprSuite(_ context.Context, open func(microvm.Config) (microvm.Machine, error)) (*conformance.Suite, error) {
	s := conformance.PowerPCPAPR(conformance.Implementer{Name: "model"}, model.PAPRFunctions(), open)
	return s, nil
}

func paprName(r conformance.Result) string { return strings.TrimPrefix(r.Rule, "powerpc-papr/") }

func TestPAPRModelConforms(t *testing.T) {
	for seed := range uint64(5) {
		judgeBy(t, paprSuite, model.Hosts("powerpc-papr")[0].Open, seed, nil, func(r conformance.Result) bool {
			assert.Equal(t, conformance.Pass, r.Verdict, "seed %d: %s", seed, describe(r))
			return true
		})
	}
}

// The model with what QEMU does otherwise breaks the rules that QEMU is known to break, and no others:
// the list of deviations and the model are held against each other.
func TestPAPRModelIsQEMU(t *testing.T) {
	qemu := conformance.Implementer{Name: "QEMU", Version: "11.1.2"}
	var want, got []string
	for _, d := range conformance.Deviations {
		if name, ours := strings.CutPrefix(d.Rule, "powerpc-papr/"); ours && d.Applies(qemu) && !strings.HasPrefix(name, "guest/") {
			want = append(want, name)
		}
	}
	judgeBy(t, paprSuite, model.PAPRAsQEMU(), 1, nil, func(r conformance.Result) bool {
		if r.Verdict == conformance.Fail {
			got = append(got, paprName(r))
		} else {
			assert.Contains(t, []conformance.Verdict{conformance.Pass, conformance.Unreached}, r.Verdict, describe(r))
		}
		return true
	})
	assert.ElementsMatch(t, want, got)
}

// interrupted is a machine of a kernel whose CPUs somebody interrupts, at each of the looks that random
// chooses.
type interrupted struct {
	conformance.PAPRMachine
	random *rand.Rand
}

func (m *interrupted) At(cpu int) (op int, completed uint64) {
	if m.random.IntN(30) == 0 {
		if err := m.Interrupt(); err != nil {
			panic(err)
		}
	}
	return m.PAPRMachine.At(cpu)
}

// Interrupts that others make break no rule: what they came into is looked at again, or is told to be in
// doubt.
func TestPAPRModelInterrupted(t *testing.T) {
	doubtful := 0
	for seed := range uint64(20) {
		judgeBy(t, paprSuite, func(s uint64, c microvm.Config) (microvm.Machine, error) {
			m, err := model.Hosts("powerpc-papr")[0].Open(s, c)
			if err != nil {
				return nil, err
			}
			return &interrupted{m.(conformance.PAPRMachine), rand.New(rand.NewPCG(seed, 1))}, nil
		}, seed, nil, func(r conformance.Result) bool {
			if r.Verdict == conformance.Error && strings.Contains(r.Reason, "something came in between") {
				doubtful++
				return true
			}
			assert.Equal(t, conformance.Pass, r.Verdict, "seed %d: %s", seed, describe(r))
			return true
		})
	}
	assert.Less(t, doubtful, 20, "findings in doubt, in all runs")
}

func TestPAPRModelMutants(t *testing.T) {
	noticesMutants(t, abi.PowerPCPAPR(), paprSuite, 20, nil)
}

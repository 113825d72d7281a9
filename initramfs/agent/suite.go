package agent

import (
	"context"
	"fmt"

	"pvabi/abi"
	"pvabi/conformance"
)

// Run does a job by the suites that were made for its target, one for each side of the ABI, in
// their order: the checks against the platform's table as it is, as often as the job says, then
// against it with each of the job's changes. A job that measures does nothing else.
func Run(ctx context.Context, job Job, emit func(conformance.Event), suites ...*conformance.Suite) error {
	for _, s := range suites {
		s.Alive = func() { emit(conformance.Event{Alive: true}) }
	}
	if job.Rounds > 0 {
		return measure(ctx, job.Rounds, emit, suites)
	}
	if job.Mutate > 0 {
		return mutate(ctx, job, emit, suites)
	}
	first := map[string]conformance.Verdict{}
	for look := 1; look <= max(job.Looks, 1); look++ {
		changed := 0
		for _, s := range suites {
			s.Only = func(rule string) bool { return Selected(job.Only, rule) }
			if err := s.Run(ctx, func(r conformance.Result) {
				switch {
				case look == 1:
					first[r.Rule] = r.Verdict
				case first[r.Rule] == r.Verdict:
					return
				default:
					changed++
					r.Look = look
				}
				emit(conformance.Event{Result: &r})
			}); err != nil {
				return err
			}
		}
		if look > 1 {
			emit(conformance.Event{Note: fmt.Sprintf("look %d of %d: %d of %d verdicts are others than before", look, job.Looks, changed, len(first))})
		}
	}
	for _, s := range suites {
		if err := mutants(ctx, job.Mutants, s, emit); err != nil {
			return err
		}
	}
	return nil
}

// measure measures the costs of hypervisors.
func measure(ctx context.Context, rounds int, emit func(conformance.Event), suites []*conformance.Suite) error {
	for _, s := range suites {
		if s.Costs == nil || s.Guest != nil {
			continue
		}
		if err := s.Measure(ctx, rounds, func(m conformance.Measured) { emit(conformance.Event{Measured: &m}) }); err != nil {
			return err
		}
	}
	return nil
}

// mutate changes each value of the table in turn.
func mutate(ctx context.Context, job Job, emit func(conformance.Event), suites []*conformance.Suite) error {
	for _, s := range suites {
		s.Only = func(rule string) bool { return Selected(job.Only, rule) }
	}
	spared := func(m abi.Mutation) string { return conformance.WhySpared(suites[0].ABI.Name, job.Target, m) }
	return conformance.Mutate(ctx, suites, job.Mutate, spared,
		func(r conformance.Result) { emit(conformance.Event{Result: &r}) },
		func(m conformance.Mutated) { emit(conformance.Event{Mutated: &m}) })
}

// mutants looks, for each change, at those of its rules that the suite has.
func mutants(ctx context.Context, changes []Mutant, s *conformance.Suite, emit func(conformance.Event)) error {
	for _, m := range changes {
		mutant := *s
		mutant.ABI = s.ABI.Clone()
		if err := mutant.ABI.Set(m.Path, m.Value); err != nil {
			return fmt.Errorf("change the table: %w", err)
		}
		mutant.Only = func(rule string) bool { return Selected(m.Only, rule) }
		// What is wrong on purpose is no deviation, and need not be waited for long. What a kernel does
		// for its locks comes in its own time.
		mutant.Deviations = nil
		if s.Guest == nil {
			mutant.Looks = conformance.Looks / 10
		}
		if err := mutant.Run(ctx, func(r conformance.Result) {
			r.Mutant = m.String()
			emit(conformance.Event{Result: &r})
		}); err != nil {
			return err
		}
	}
	return nil
}

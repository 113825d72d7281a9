package agent

import (
	"context"
	"fmt"

	"pvabi/conformance"
)

// Run does a job by a suite that was made for its target: the checks against the
// platform's table as it is, then against it with each of the job's changes.
func Run(ctx context.Context, job Job, s *conformance.Suite, emit func(conformance.Event)) error {
	s.Only = func(rule string) bool { return Selected(job.Only, rule) }
	if err := s.Run(ctx, func(r conformance.Result) { emit(conformance.Event{Result: &r}) }); err != nil {
		return err
	}
	for _, m := range job.Mutants {
		mutant := *s
		mutant.ABI = s.ABI.Clone()
		if err := mutant.ABI.Set(m.Path, m.Value); err != nil {
			return fmt.Errorf("change the table: %w", err)
		}
		mutant.Only = func(rule string) bool { return Selected(m.Only, rule) }
		// What is wrong on purpose is no deviation, and need not be waited for long.
		mutant.Deviations = nil
		mutant.Looks = conformance.Looks / 10
		if err := mutant.Run(ctx, func(r conformance.Result) {
			r.Mutant = m.String()
			emit(conformance.Event{Result: &r})
		}); err != nil {
			return err
		}
	}
	return nil
}

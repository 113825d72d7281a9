package vmtests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pvabi/abi"
	"pvabi/conformance"
)

// mutateBound bounds a boot in which every value of a table is changed, or the hypervisor in many ways.
const mutateBound = 2 * time.Hour

// maxDeaths is how many mutations may end a target's guest, each of which takes another boot.
const maxDeaths = 20

// mutated keeps what became of a mutation. What has begun and has not ended stands last, as lost.
func (o *outcome) mutated(m conformance.Mutated) {
	all := o.run.Mutated
	if n := len(all); n > 0 && all[n-1].Fate == conformance.Begun {
		all = all[:n-1]
	}
	o.run.Mutated = append(all, m)
}

// Mutations runs a target once, and then with each value of its platform's table changed in turn. A mutation
// at which the guest ends is Killed by that, and the rest is looked at in another boot. The Run has one entry
// in Mutated for each of abi.Platform.Mutations, in that order, unless its Error or Unreached says why not.
func (r *Runner) Mutations(ctx context.Context, t Target) *conformance.Run {
	if t.local != nil {
		return &conformance.Run{
			Target: t.Name, Platform: t.Platform, Implementer: conformance.Implementer{Name: t.Implementer},
			Results: []conformance.Result{}, Unreached: "tables are mutated in guests that may end, and this is the machine itself",
		}
	}
	again := *r
	again.Mutate = 1
	var run *conformance.Run
	fates := map[int]conformance.Mutated{}
	for deaths := 0; ; deaths++ {
		next := again.once(ctx, t)
		var last *conformance.Mutated
		for _, m := range next.Mutated {
			if m.Fate == conformance.Begun {
				last = &m
				continue
			}
			fates[m.Number] = m
		}
		if run == nil {
			run = next
		}
		if next.Error == "" || last == nil || ctx.Err() != nil || deaths == maxDeaths {
			run.Error = next.Error
			break
		}
		last.Fate, last.Verdict = conformance.Killed, conformance.Error
		last.Reason = "the guest did not outlive it: " + next.Error
		fates[last.Number] = *last
		run.Notes = append(run.Notes, fmt.Sprintf("mutation %d, %s, ended the guest: %s", last.Number, last.Path, next.Error))
		again.Mutate = last.Number + 1
		again.Events = nil
	}
	run.Mutated = nil
	if run.Unreached != "" {
		return run
	}
	all := platform(t.Platform).Mutations()
	for i, change := range all {
		m, ok := fates[i+1]
		if !ok {
			m = conformance.Mutated{Mutation: change, Number: i + 1, Fate: conformance.Lost, Reason: "not looked at: the target failed"}
		}
		run.Mutated = append(run.Mutated, m)
	}
	return run
}

// platform returns the platform of that name.
func platform(name string) *abi.Platform {
	all := abi.Platforms()
	i := slices.IndexFunc(all, func(p *abi.Platform) bool { return p.Name == name })
	if i < 0 {
		panic(errors.New("no platform " + name))
	}
	return all[i]
}

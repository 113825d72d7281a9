// Package suites has what an agent can look at: the suites by the names of their targets. The
// agent that boots (command initramfs/init) and the one that is a plain program
// (pvabi agent) know the same ones.
//
// The suites of an architecture are in the file named after it, which adds them to the list.
package suites

import (
	"context"
	"maps"

	"pvabi/conformance"
	"pvabi/initramfs/agent"
)

// all are the suites that the agent knows. Those of its architecture are added by the
// file named after it.
var all = map[string]agent.Suite{
	// boot looks at nothing: a guest that starts and ends, to measure and to
	// test what boots it.
	"boot": func(context.Context, agent.Job, func(conformance.Event)) error { return nil },
}

// All returns the suites of this architecture by target.
func All() map[string]agent.Suite { return maps.Clone(all) }

package agent

import (
	"context"

	"pvabi/conformance"
)

// Here does a job in this process, on the machine that runs it. The events are those of any agent.
func Here(ctx context.Context, job Job, suites map[string]Suite, emit func(conformance.Event)) {
	do(ctx, linux{}, job, suites, emit)
}

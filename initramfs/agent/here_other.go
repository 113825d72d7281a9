//go:build !linux

package agent

import (
	"context"
	"runtime"

	"pvabi/conformance"
)

// Here does a job in this process, on the machine that runs it. It fails: agents are for Linux.
func Here(_ context.Context, _ Job, _ map[string]Suite, emit func(conformance.Event)) {
	emit(conformance.Event{Fatal: "an agent runs on Linux only, and this is " + runtime.GOOS})
	emit(conformance.Event{Finished: true})
}

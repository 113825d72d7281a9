//go:build linux

// Command init is what a guest boots: see package agent. BuildAgent of package
// initramfs compiles it.
package main

import (
	"context"
	"fmt"
	"os"

	"pvabi/conformance"
	"pvabi/initramfs/agent"
)

// suites are the targets that the agent knows. Those of its architecture are added by
// the file named after it.
var suites = map[string]agent.Suite{
	// boot looks at nothing: a guest that starts and ends, to measure and to
	// test what boots it.
	"boot": func(context.Context, agent.Job, func(conformance.Event)) error { return nil },
}

func main() {
	if err := agent.Main(suites); err != nil {
		fmt.Fprintln(os.Stderr, "pvabi agent:", err)
		os.Exit(2)
	}
}

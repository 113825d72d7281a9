//go:build linux

// Command init is what a guest boots: see package agent. BuildAgent of package
// initramfs compiles it.
package main

import (
	"fmt"
	"os"

	"pvabi/initramfs/agent"
	"pvabi/initramfs/suites"
)

func main() {
	if err := agent.Main(suites.All()); err != nil {
		fmt.Fprintln(os.Stderr, "pvabi agent:", err)
		os.Exit(2)
	}
}

//go:build linux && !amd64

package agent

// cpuidSignature is empty where there is no such instruction.
func cpuidSignature() string { return "" }

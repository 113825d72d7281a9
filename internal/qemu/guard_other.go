//go:build !linux

package qemu

import (
	"fmt"
	"strings"
)

// guarded has no guard to offer here. vmtest cuts the command at blanks.
func guarded(command, env []string, _ int) (string, error) {
	for _, word := range command {
		if strings.ContainsAny(word, " \t\n") {
			return "", fmt.Errorf("a blank in %q", word)
		}
	}
	if len(env) > 0 {
		return "", fmt.Errorf("cannot add %q to the environment on this system", env)
	}
	return strings.Join(command, " "), nil
}

func killGroup(int) {}

func peakRSS(int) int64 { return 0 }

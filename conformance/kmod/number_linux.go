//go:build ppc64le || s390x

package kmod

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// numberFile reads a number that the kernel tells of a CPU.
func numberFile(cpu int, file string) (uint64, error) {
	name := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/%s", cpu, file)
	content, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("kmod: by which number CPU %d goes: %w", cpu, err)
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(content)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("kmod: by which number CPU %d goes: %s: %w", cpu, name, err)
	}
	return n, nil
}

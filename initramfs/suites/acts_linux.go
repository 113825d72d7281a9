//go:build amd64 || loong64

package suites

import (
	"bytes"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
)

// acts is what the guest does.
type acts struct {
	*linuxguest.Kernel
	emit func(conformance.Event)
}

func (g acts) show(name, text string) {
	g.emit(conformance.Event{Shown: &conformance.Shown{Name: name, Text: text}})
}

// offline takes a CPU offline, or online again.
func (g acts) offline(cpu int, off bool) func() error {
	return func() error {
		value := "1"
		if off {
			value = "0"
		}
		name := fmt.Sprintf("sys/devices/system/cpu/cpu%d/online", cpu)
		if now, err := fs.ReadFile(g, name); err != nil || strings.TrimSpace(string(now)) == value {
			return err
		}
		return g.Write(name, value)
	}
}

// stealOf returns what the kernel shows as stolen from a CPU.
func stealOf(g fs.FS, cpu int) ([]byte, error) {
	text, err := fs.ReadFile(g, "proc/stat")
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 8 && string(f[0]) == "cpu"+strconv.Itoa(cpu) {
			return f[8], nil
		}
	}
	return nil, fmt.Errorf("/proc/stat has no CPU %d", cpu)
}

package kmod

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"pvabi/conformance/microvm"
)

// Plain tells why a machine of a guest's own CPUs, at most so many, cannot be what is asked for, or
// nil.
func Plain(c microvm.Config, most int) error {
	if c.Key() != (microvm.Config{CPUs: c.CPUs, IDs: c.IDs}).Key() {
		return fmt.Errorf("kmod: a guest cannot choose what its hypervisor offers: %s", c.Key())
	}
	if c.CPUs > most {
		return fmt.Errorf("kmod: a machine has %d CPUs, and %d were asked for", most, c.CPUs)
	}
	return nil
}

// Interrupts sums what the kernel has counted of one of its CPUs in those rows of /proc/interrupts
// that are selected. A row is words: the interrupt's name with a colon behind it, a count for each CPU
// that is online, and what it is about, of which the last word is who handles it. It is an error
// that there is none.
func Interrupts(cpu int, selected func(row []string) bool) (uint64, error) {
	f, err := os.Open("/proc/interrupts")
	if err != nil {
		return 0, fmt.Errorf("kmod: interrupts of a CPU: %w; is /proc mounted?", err)
	}
	defer f.Close()
	return interrupts(f, cpu, selected)
}

func interrupts(r io.Reader, cpu int, selected func(row []string) bool) (sum uint64, err error) {
	rows := bufio.NewScanner(r)
	rows.Scan()
	column := slices.Index(strings.Fields(rows.Text()), fmt.Sprintf("CPU%d", cpu))
	if column < 0 {
		return 0, errors.Join(fmt.Errorf("kmod: no CPU%d in the heading of /proc/interrupts, %q; is it online?", cpu, rows.Text()), rows.Err())
	}
	found := false
	for rows.Scan() {
		row := strings.Fields(rows.Text())
		// Rows that are not about CPUs have fewer columns, or words in them.
		if column+1 >= len(row) || !selected(row) {
			continue
		}
		if n, err := strconv.ParseUint(row[column+1], 10, 64); err == nil {
			sum, found = sum+n, true
		}
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("kmod: read /proc/interrupts: %w", err)
	}
	if !found {
		return 0, errors.New("kmod: /proc/interrupts has no such row: this kernel does not use what it counts")
	}
	return sum, nil
}

// SetOnline has the kernel take one of its CPUs offline, or bring it back. It does nothing to one that
// is there already.
func SetOnline(cpu int, online bool) error {
	name := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu)
	want := "0"
	if online {
		want = "1"
	}
	now, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("kmod: whether CPU %d is online: %w; the kernel needs CONFIG_HOTPLUG_CPU", cpu, err)
	}
	if strings.TrimSpace(string(now)) == want {
		return nil
	}
	if err := os.WriteFile(name, []byte(want), 0); err != nil {
		return fmt.Errorf("kmod: write %s to %s: %w; the kernel's log may tell more", want, name, err)
	}
	return nil
}

// signal is an exception that Linux makes a signal of: the signal's number and code, where the code 0
// stands for any, and Result.Trap.
type signal struct {
	number, code int32
	trap         uint64
}

// exception is Result.Trap for a signal, 0 if that is none of them.
func exception(signals []signal, number, code int32) uint64 {
	for _, s := range signals {
		if s.number == number && (s.code == 0 || s.code == code) {
			return s.trap
		}
	}
	return 0
}

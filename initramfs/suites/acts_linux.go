//go:build amd64 || loong64

package suites

import (
	"bytes"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

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

func (g acts) cycle(cpu int) func() error {
	return func() error {
		if err := g.offline(cpu, true)(); err != nil {
			return err
		}
		return g.offline(cpu, false)()
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

// echo writes back each byte that it reads, to the end.
func echo(from, to int) error {
	var b [1]byte
	for {
		n, err := unix.Read(from, b[:])
		if n == 0 || err != nil {
			return err
		}
		if _, err := unix.Write(to, b[:]); err != nil {
			return err
		}
	}
}

// nothing is what is done where there is nothing to do.
func nothing() error { return nil }

// wakes has a thread sleep on CPU 1 that may run on CPUs 1 and 2, wakes it from CPU 0 for some rounds,
// doing something right before each time, and shows how often it was found on each CPU then. A kernel
// wakes it where it slept unless that CPU is not free.
func (g acts) wakes(when string, rounds int, before func() error) func() error {
	return func() error {
		var found [4]int
		var there, back [2]int
		if err := unix.Pipe2(there[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		if err := unix.Pipe2(back[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		sleeper := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and ends with it
			sleeper <- sleep(there[0], back[1], &found)
		}()
		err := g.Pinned(0, func() error {
			defer unix.Close(there[1])
			var b [1]byte
			for range rounds {
				// Until the sleeper sleeps, and its CPU has nothing to do.
				time.Sleep(2 * time.Millisecond)
				if err := before(); err != nil {
					return err
				}
				if _, err := unix.Write(there[1], b[:]); err != nil {
					return err
				}
				if _, err := unix.Read(back[0], b[:]); err != nil {
					return err
				}
			}
			return nil
		})
		if other := <-sleeper; err == nil {
			err = other
		}
		for _, fd := range []int{there[0], back[0], back[1]} {
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("wakes: %w", err)
		}
		g.show("wakes "+when, strings.Trim(fmt.Sprint(found), "[]"))
		return nil
	}
}

// sleep counts the CPUs that it is woken on; it goes to sleep on CPU 1 each time.
func sleep(from, to int, found *[4]int) error {
	var one, both unix.CPUSet
	one.Set(1)
	both.Set(1)
	both.Set(2)
	var b [1]byte
	for {
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(0, &both); err != nil {
			return err
		}
		n, err := unix.Read(from, b[:])
		if n == 0 || err != nil {
			return err
		}
		cpu, err := processor()
		if err != nil {
			return err
		}
		found[cpu%len(found)]++
		if _, err := unix.Write(to, b[:]); err != nil {
			return err
		}
	}
}

// processor is the CPU that the thread runs on.
func processor() (int, error) {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return 0, fmt.Errorf("getcpu: %w", errno)
	}
	return int(cpu), nil
}

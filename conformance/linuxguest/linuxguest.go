// Package linuxguest is the Linux that this process runs on, as a guest that shows itself
// (conformance.GuestKernel).
//
// # What a kernel tells
//
// Files of /proc, /sys and debugfs are read as they are; the log is that of syslog(2). What a kernel
// does is recorded by its own tracing, in an instance with buffers of its own
// (Documentation/trace/ftrace.rst, "Instances"): events are enabled there and nowhere else, and
// places without an event are probed by breakpoints (Documentation/trace/kprobetrace.rst). The
// kernel does not let functions be probed that it keeps from being traced, which assembler and what
// is marked notrace are (kernel/trace/trace_kprobe.c, within_notrace_func); their callers can be.
//
// All of it needs root, debugfs, and tracefs, which is mounted where the kernel has it.
package linuxguest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"pvabi/conformance"
)

// A Line is one of the kernel's log.
type Line struct {
	// Level is its importance, KERN_DEBUG 7 the least (include/linux/kern_levels.h); a line that
	// goes on from the one before has the level of that.
	Level int
	Text  string
}

// Debug is the level of lines that are for debugging only.
const Debug = 7

// parseLog takes a log in the form of syslog(2) apart: "<LEVEL>text", where the bits above
// the level are a facility.
func parseLog(log string) []Line {
	var out []Line
	level := 0
	for line := range strings.SplitSeq(strings.TrimRight(log, "\n"), "\n") {
		prefix, text, ok := strings.Cut(line, ">")
		number, isPrefix := strings.CutPrefix(prefix, "<")
		n, err := strconv.ParseUint(number, 10, 16)
		if ok && isPrefix && err == nil {
			level, line = int(n&7), text
		}
		if line != "" {
			out = append(out, Line{level, line})
		}
	}
	return out
}

// symbols finds symbols in /proc/kallsyms: address, type and name, in the order of addresses. A
// symbol ends where the next one begins. Local variables have a dot and a number behind their
// names, of which name is without.
func symbols(list []byte, name string) (address, size uint64, err error) {
	at := -1
	for _, form := range []string{" " + name + "\n", " " + name + "."} {
		if at = bytes.Index(list, []byte(form)); at >= 0 {
			break
		}
	}
	if at < 0 {
		return 0, 0, fmt.Errorf("%w: no %s in /proc/kallsyms; it needs CONFIG_KALLSYMS_ALL", conformance.ErrHidden, name)
	}
	from := bytes.LastIndexByte(list[:at], '\n') + 1
	for line := range bytes.Lines(list[from:]) {
		word, _, _ := bytes.Cut(line, []byte(" "))
		n, err := strconv.ParseUint(string(word), 16, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("a line of /proc/kallsyms: %q: %w", line, err)
		}
		switch {
		case n == 0:
			return 0, 0, fmt.Errorf("%w: addresses in /proc/kallsyms are hidden; it needs root, and kptr_restrict at 0 or 1", conformance.ErrHidden)
		case address == 0:
			address = n
		case n != address:
			return address, n - address, nil
		}
	}
	return address, 0, nil
}

// probed finds the address of a function in the kernel's list of probes: address, kind, function and
// offset, and more (Documentation/trace/kprobes.rst, "The kprobes debugfs interface").
func probed(list, function string) (uint64, error) {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		name, offset, ok := strings.Cut(f[2], "+")
		if !ok || name != function {
			continue
		}
		address, errA := strconv.ParseUint(f[0], 16, 64)
		off, errB := strconv.ParseUint(offset, 0, 64)
		if errA == nil && errB == nil && address > off {
			return address - off, nil
		}
	}
	return 0, fmt.Errorf("the list of probes has no address of %s", function)
}

// group is what probes are listed under.
const group = "pvabi"

// folder is where a probe is among the events of an instance.
func folder(p conformance.Probe) string {
	if p.Event != "" && p.Args == "" {
		return p.Event
	}
	return group + "/" + p.Name
}

// definitions are the lines of a file of tracefs that make a probe. They are of one event. A probe
// that is an event of the kernel's takes none.
func definitions(p conformance.Probe) (file string, lines []string) {
	file = "kprobe_events"
	if p.Event != "" {
		if p.Args != "" {
			file, lines = "dynamic_events", []string{fmt.Sprintf("e:%s/%s %s %s", group, p.Name, p.Event, p.Args)}
		}
		return file, lines
	}
	kind := "p"
	if p.Return {
		kind = "r"
	}
	for at := range strings.FieldsSeq(p.At) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s:%s/%s %s %s", kind, group, p.Name, at, p.Args)))
	}
	return file, lines
}

// name is what hits of a probe are called in a trace.
func name(p conformance.Probe) string { return folder(p)[strings.LastIndex(folder(p), "/")+1:] }

// lost begins the line that stands in a trace for what did not fit, behind the CPU.
const lost = "[LOST "

// parseHits reads a trace: lines of task and its number, CPU, flags, time, event, and what it says
// (Documentation/trace/ftrace.rst, "Output format"). names tells what an event in it is called by
// its probe.
func parseHits(trace string, names map[string]string) (out []conformance.Hit, missing error) {
	for line := range strings.Lines(trace) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "CPU:") && strings.Contains(line, lost) {
			missing = fmt.Errorf("%w: %q", conformance.ErrLost, line)
			continue
		}
		head, text, _ := strings.Cut(line, ": ")
		event, text, ok := strings.Cut(text, ": ")
		if !ok || names[event] == "" {
			continue // headings, and what others have the kernel note
		}
		// Names of tasks may have blanks and brackets.
		bracket := strings.LastIndexByte(head, '[')
		number, _, _ := strings.Cut(head[bracket+1:], "]")
		cpu, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("a line of a trace: %q: no CPU: %w", line, err)
		}
		task := strings.TrimSpace(head[:max(bracket, 0)])
		thread, err := strconv.Atoi(task[strings.LastIndexByte(task, '-')+1:])
		if err != nil {
			return nil, fmt.Errorf("a line of a trace: %q: no thread: %w", line, err)
		}
		h := conformance.Hit{Probe: names[event], CPU: int(cpu), Thread: thread, Args: map[string]uint64{}}
		for word := range strings.FieldsSeq(text) {
			key, value, ok := strings.Cut(word, "=")
			if !ok {
				continue
			}
			if n, err := strconv.ParseUint(value, 0, 64); err == nil {
				h.Args[key] = n
			} else if n, err := strconv.ParseInt(value, 0, 64); err == nil {
				h.Args[key] = uint64(n)
			}
		}
		out = append(out, h)
	}
	return out, missing
}

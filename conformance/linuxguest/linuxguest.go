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
	"fmt"
	"regexp"
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

// group is what probes are listed under.
const group = "pvabi"

// folder is where a probe is among the events of an instance.
func folder(p conformance.Probe) string {
	if p.Event != "" {
		return p.Event
	}
	return group + "/" + p.Name
}

// definition is the line of kprobe_events that makes a probe.
func definition(p conformance.Probe) string {
	kind := "p"
	if p.Return {
		kind = "r"
	}
	return strings.TrimSpace(fmt.Sprintf("%s:%s/%s %s %s", kind, group, p.Name, p.At, p.Args))
}

// name is what hits of a probe are called in a trace.
func name(p conformance.Probe) string { return folder(p)[strings.LastIndex(folder(p), "/")+1:] }

// traced is a line of a trace: task and its number, CPU, flags, time, event, and what it says
// (Documentation/trace/ftrace.rst, "Output format"). Names of tasks may have blanks.
var traced = regexp.MustCompile(`^.*-\d+ +\[(\d+)\] \S+ +\d+\.\d+: ([^ :]+): (.*)$`)

// lost is the line that stands in a trace for what did not fit.
var lost = regexp.MustCompile(`\[LOST (\d+ )?EVENTS\]`)

// parseHits reads a trace. names tells what an event in it is called by its probe.
func parseHits(trace string, names map[string]string) ([]conformance.Hit, error) {
	var out []conformance.Hit
	for line := range strings.Lines(trace) {
		line = strings.TrimRight(line, "\n")
		if lost.MatchString(line) {
			return nil, fmt.Errorf("the kernel lost events, so that nothing can be told: %q", line)
		}
		m := traced.FindStringSubmatch(line)
		if m == nil || names[m[2]] == "" {
			continue // headings, and what others have the kernel note
		}
		cpu, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, fmt.Errorf("a line of a trace: %q: %w", line, err)
		}
		h := conformance.Hit{Probe: names[m[2]], CPU: cpu, Args: map[string]uint64{}}
		for word := range strings.FieldsSeq(m[3]) {
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
	return out, nil
}

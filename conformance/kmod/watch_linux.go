package kmod

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	module "pvabi/internal/kmod"
)

// Watch tells what a kernel is like after something was done on it, compared with before.
type Watch struct {
	before system
	log    kernelLog
}

// NewWatch begins to watch the kernel that runs.
func NewWatch() (*Watch, error) {
	before, err := look()
	if err != nil {
		return nil, err
	}
	log, err := openLog()
	if err != nil {
		return nil, err
	}
	return &Watch{before, log}, nil
}

// Same returns an error that tells how the kernel differs from before: it must have no
// module of ours that it had not, and the taint that it had, but for that of an unsigned module.
func (w *Watch) Same() error {
	after, err := look()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range after.modules {
		if !slices.Contains(w.before.modules, name) {
			errs = append(errs, fmt.Errorf("kmod: module %s is left; rmmod %s unloads it", name, name))
		}
	}
	if got, want := after.taint, w.before.taint|taintUnsigned; got != want && got != w.before.taint {
		errs = append(errs, fmt.Errorf("kmod: the kernel's taint is now %#x, want %#x", got, want))
	}
	return errors.Join(errs...)
}

// Complaints returns what the kernel said since the watch began, or since it was last asked, that
// is a warning or worse. It may be about something else, where others use the machine.
func (w *Watch) Complaints() ([]string, error) { return w.log.complaints() }

// Close ends the watch.
func (w *Watch) Close() error { return w.log.close() }

// taintUnsigned is TAINT_UNSIGNED_MODULE, 13, as a bit (include/linux/panic.h).
const taintUnsigned = 1 << 13

// modulePrefix begins the names of our modules; the id of the process follows.
const modulePrefix = "pvabi_"

// system is what a kernel shows of our modules that are loaded, and of all that were.
type system struct {
	modules []string
	taint   uint64
}

func look() (system, error) {
	var s system
	modules, err := loadedModules()
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(modules) {
		if name, _, _ := strings.Cut(line, " "); strings.HasPrefix(name, modulePrefix) {
			s.modules = append(s.modules, name)
		}
	}
	const name = "/proc/sys/kernel/tainted"
	taint, err := os.ReadFile(name)
	if err != nil {
		return s, fmt.Errorf("kmod: %w", err)
	}
	if s.taint, err = strconv.ParseUint(string(bytes.TrimSpace(taint)), 10, 64); err != nil {
		return s, fmt.Errorf("kmod: %s: %w", name, err)
	}
	return s, nil
}

// loadedModules is the content of /proc/modules.
func loadedModules() (string, error) {
	const name = "/proc/modules"
	modules, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && exists("/proc/version") {
		return "", fmt.Errorf("kmod: %w: there is no %s", module.NoModules, name)
	}
	if err != nil {
		return "", fmt.Errorf("kmod: which modules are loaded: %w; is /proc mounted?", err)
	}
	return string(modules), nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// kernelLog is a file that has the records that come to the kernel's log from now on
// (Documentation/ABI/testing/dev-kmsg).
type kernelLog int

func openLog() (kernelLog, error) {
	f, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("kmod: open /dev/kmsg: %w; is /dev mounted?", err)
	}
	if _, err := unix.Seek(f, 0, unix.SEEK_END); err != nil {
		return 0, errors.Join(fmt.Errorf("kmod: the end of /dev/kmsg: %w", err), unix.Close(f))
	}
	return kernelLog(f), nil
}

func (l kernelLog) close() error { return unix.Close(int(l)) }

// slow is how messages begin that a kernel has for a machine that keeps it waiting, as an
// emulated one does (kernel/time/hrtimer.c, kernel/time/clocksource.c, kernel/events/core.c,
// kernel/sched/rt.c, arch/x86/kernel/tsc.c; Linux 6.12).
var slow = []string{
	"hrtimer: interrupt took", "clocksource: ", "perf: interrupt took too long", "sched: RT throttling activated", "tsc: ",
}

// complaints returns the messages of the kernel that are warnings or worse, but for what it
// says of a slow machine.
func (l kernelLog) complaints() ([]string, error) {
	const kernel, warning = 0, 4
	var out []string
	record := make([]byte, 8192)
	for {
		n, err := unix.Read(int(l), record)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return out, nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // EPIPE: the next record was overwritten
		case err != nil:
			return out, fmt.Errorf("kmod: read /dev/kmsg: %w", err)
		}
		// A record is "priority,number,time,flags;text", and the priority 8 times who says
		// it plus how bad it is.
		header, text, _ := strings.Cut(string(record[:n]), ";")
		word, _, _ := strings.Cut(header, ",")
		priority, err := strconv.Atoi(word)
		if err != nil {
			return out, fmt.Errorf("kmod: /dev/kmsg has a record %q", record[:n])
		}
		isSlow := slices.ContainsFunc(slow, func(s string) bool { return strings.HasPrefix(text, s) })
		if priority/8 == kernel && priority%8 <= warning && !isSlow {
			out = append(out, strings.TrimSpace(text))
		}
	}
}

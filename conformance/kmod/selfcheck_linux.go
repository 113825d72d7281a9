//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pvabi/arch"
)

// SelfCheck looks whether this carrier works on the kernel that runs, and harms nothing: it
// opens a machine, has each CPU run programs that do nothing, load what can be loaded, and load
// what cannot, and closes it again. The kernel must then have the modules and the taint that
// it had before, but for being tainted by an unsigned module, and must have complained of
// nothing.
func SelfCheck(ctx context.Context, c Config) error {
	before, err := look()
	if err != nil {
		return err
	}
	log, err := openLog()
	if err != nil {
		return err
	}
	defer log.close()
	m, err := open(c)
	if err != nil {
		return err
	}
	var errs []error
	for i := range m.cpus {
		if err := m.tryPrograms(ctx, i); err != nil {
			errs = append(errs, fmt.Errorf("kmod: self-check of CPU %d: %w", m.cpus[i].number, err))
		}
	}
	errs = append(errs, m.Close())
	after, err := look()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if after.modules != before.modules {
		errs = append(errs, fmt.Errorf("kmod: self-check: the modules are now\n%s, and were\n%s", after.modules, before.modules))
	}
	if got, want := after.taint, before.taint|taintUnsigned; got != want && got != before.taint {
		errs = append(errs, fmt.Errorf("kmod: self-check: the kernel's taint is now %#x, want %#x", got, want))
	}
	complaints, err := log.complaints()
	if err != nil {
		errs = append(errs, err)
	}
	if len(complaints) > 0 {
		errs = append(errs, fmt.Errorf("kmod: self-check: the kernel complains:\n%s", strings.Join(complaints, "\n")))
	}
	return errors.Join(errs...)
}

// tryPrograms has a CPU run programs whose results are known.
func (m *machine) tryPrograms(ctx context.Context, cpu int) error {
	const value = 0x1122334455667788
	if err := m.Reset(); err != nil {
		return err
	}
	a := m.Alloc(16, 16, 0)
	a.Store(8, 8, value)
	load := func(address uint64) arch.Op { return arch.Op{Kind: arch.Load, Arg: [6]uint64{address, 8}} }
	for _, try := range []struct {
		what    string
		program arch.Program
		traps   bool   // the first operation
		value   uint64 // of the last one
	}{
		{"nothing", nil, false, 0},
		{"a load", arch.Program{load(a.Address() + 8)}, false, value},
		{"a load of no memory and one of memory", arch.Program{load(this.nowhere), load(a.Address() + 8)}, true, value},
	} {
		ctx, cancel := context.WithTimeout(ctx, haltBudget)
		defer cancel()
		if err := m.Start(cpu, try.program); err != nil {
			return fmt.Errorf("%s: %w", try.what, err)
		}
		stop, err := m.Wait(ctx, cpu)
		if err != nil || !stop.Ended {
			return errors.Join(fmt.Errorf("%s: no end: %s", try.what, stop.Reason), err)
		}
		r := m.Results(cpu)
		if len(r) == 0 {
			continue
		}
		if got := r[0].Trap; got != 0 != try.traps || try.traps && this.trap != 0 && got != this.trap {
			return fmt.Errorf("%s: the trap is %#x", try.what, got)
		}
		if got := r[len(r)-1].Value; got != try.value {
			return fmt.Errorf("%s: the value is %#x, want %#x", try.what, got, try.value)
		}
	}
	return nil
}

// taintUnsigned is TAINT_UNSIGNED_MODULE, 13, as a bit (include/linux/panic.h).
const taintUnsigned = 1 << 13

// system is what a kernel shows of the modules that were loaded.
type system struct {
	modules string
	taint   uint64
}

func look() (system, error) {
	var s system
	modules, err := os.ReadFile("/proc/modules")
	if err != nil {
		return s, fmt.Errorf("kmod: self-check: %w; is /proc mounted?", err)
	}
	s.modules = string(modules)
	const name = "/proc/sys/kernel/tainted"
	taint, err := os.ReadFile(name)
	if err != nil {
		return s, fmt.Errorf("kmod: self-check: %w", err)
	}
	if s.taint, err = strconv.ParseUint(string(bytes.TrimSpace(taint)), 10, 64); err != nil {
		return s, fmt.Errorf("kmod: self-check: %s: %w", name, err)
	}
	return s, nil
}

// kernelLog is a file that has the records that come to the kernel's log from now on
// (Documentation/ABI/testing/dev-kmsg).
type kernelLog int

func openLog() (kernelLog, error) {
	f, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("kmod: self-check: open /dev/kmsg: %w; is /dev mounted?", err)
	}
	if _, err := unix.Seek(f, 0, unix.SEEK_END); err != nil {
		return 0, errors.Join(fmt.Errorf("kmod: self-check: the end of /dev/kmsg: %w", err), unix.Close(f))
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
			return out, fmt.Errorf("kmod: self-check: read /dev/kmsg: %w", err)
		}
		// A record is "priority,number,time,flags;text", and the priority 8 times who says
		// it plus how bad it is.
		header, text, _ := strings.Cut(string(record[:n]), ";")
		word, _, _ := strings.Cut(header, ",")
		priority, err := strconv.Atoi(word)
		if err != nil {
			return out, fmt.Errorf("kmod: self-check: /dev/kmsg has a record %q", record[:n])
		}
		isSlow := slices.ContainsFunc(slow, func(s string) bool { return strings.HasPrefix(text, s) })
		if priority/8 == kernel && priority%8 <= warning && !isSlow {
			out = append(out, strings.TrimSpace(text))
		}
	}
}

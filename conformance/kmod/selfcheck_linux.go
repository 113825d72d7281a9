//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pvabi/arch"
)

// SelfCheck looks whether this carrier works on the kernel that runs, and harms nothing: it
// opens a machine, has each CPU run programs that do nothing, load what can be loaded, and load
// what cannot, and closes it again. The kernel must then be as it was, see [Watch].
func SelfCheck(ctx context.Context, c Config) error {
	w, err := NewWatch()
	if err != nil {
		return err
	}
	defer w.Close()
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
	errs = append(errs, m.Close(), w.Same())
	complaints, err := w.Complaints()
	if errs = append(errs, err); len(complaints) > 0 {
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

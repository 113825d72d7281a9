package vmtests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/internal/store"
)

// Faults of guests and of what they are made of, as the report of a run has them. What
// package internal/qemu tells apart is tested there, and what the command line does in
// cmd/pvabi.

// faulty is a target to do something bad to, with a runner for it, and the kernel and
// the QEMU that it would take. Temporary files are looked after.
func faulty(t *testing.T) (Target, *Runner, *store.Kernel, *store.QEMU) {
	t.Helper()
	targets, err := Find("x86-kvm")
	require.NoError(t, err)
	target := targets[0]
	reachable(t, target)
	s, err := artefacts()
	require.NoError(t, err)
	kernel, err := s.Kernel(t.Context(), store.KernelSpec{GOARCH: target.Guest.GOARCH})
	require.NoError(t, err)
	emulator, err := s.QEMU(t.Context(), store.QEMUSpec{GOARCH: target.Guest.GOARCH})
	require.NoError(t, err)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Cleanup(func() {
		left, err := os.ReadDir(temp)
		assert.NoError(t, err)
		assert.Empty(t, left, "nothing is left behind")
	})
	return target, &Runner{Store: artefacts, Output: t.TempDir()}, kernel, emulator
}

// wrapped is a script that begins with some lines and becomes a QEMU with the
// arguments "$@".
func wrapped(t *testing.T, q *store.QEMU, lines string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "qemu")
	var command strings.Builder
	for _, word := range append(append([]string{"env"}, q.Env...), q.Command...) {
		fmt.Fprintf(&command, "'%s' ", strings.ReplaceAll(word, "'", `'\''`))
	}
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+lines+"\nexec "+command.String()+`"$@"`+"\n"), 0o755))
	return script
}

// verdicts asserts that every rule has one result, and returns how many have which
// verdict.
func verdicts(t *testing.T, target Target, run *conformance.Run) map[conformance.Verdict]int {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range run.Results {
		assert.False(t, seen[r.Rule], "%s has two results", r.Rule)
		seen[r.Rule] = true
	}
	for _, rule := range target.Rules {
		assert.True(t, seen[rule.ID], "%s has a result", rule.ID)
	}
	return run.Totals()
}

func exitStatus(run *conformance.Run) int {
	return (&conformance.Report{Runs: []*conformance.Run{run}}).ExitStatus(true, false)
}

// TestKernelLacks has kernels that a target cannot be looked at on.
func TestKernelLacks(t *testing.T) {
	target, r, kernel, emulator := faulty(t)
	// Modules of the kernel, but not all of them.
	few := t.TempDir()
	require.NoError(t, filepath.WalkDir(kernel.Modules, func(path string, d os.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), "virtio_console.ko") {
			return errors.Join(err, os.Symlink(path, filepath.Join(few, d.Name())))
		}
		return err
	}))
	if entries, _ := os.ReadDir(few); len(entries) == 0 {
		require.NoError(t, os.WriteFile(filepath.Join(few, "modules.builtin"), []byte("kernel/drivers/char/virtio_console.ko\n"), 0o644))
	}
	for _, test := range []struct {
		name      string
		change    func(*Runner)
		unreached string // part of the reason
		failed    string // part of the error
	}{
		{"no modules", func(r *Runner) { r.Kernel = kernel.Image }, "the guest has no /dev/kvm, with no modules loaded; if the kernel has modules, give their folder by -modules", ""},
		{"modules without KVM", func(r *Runner) { r.Modules = few }, "kernel module missing: kvm_amd is not in " + few, ""},
		{"folder without modules", func(r *Runner) { r.Modules = t.TempDir() }, "", "no kernel modules in "},
		{"no event channel", func(r *Runner) {
			r.QEMU = wrapped(t, emulator, `
for word; do
	shift
	case $word in virtio-serial*|virtserialport*) word=virtio-rng-pci;; esac
	set -- "$@" "$word"
done`)
		}, "", "the agent says: open the event channel: no port named pvabi in /sys/class/virtio-ports; the kernel needs VIRTIO_CONSOLE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := *r
			test.change(&changed)
			run := changed.Run(t.Context(), target)
			want := conformance.Unreached
			if test.failed != "" {
				want = conformance.Error
			}
			assert.Equal(t, map[conformance.Verdict]int{want: len(target.Rules)}, verdicts(t, target, run))
			assert.Contains(t, run.Unreached, test.unreached)
			assert.Contains(t, run.Error, test.failed)
			assert.Equal(t, test.failed == "", run.Error == "", run.Error)
			assert.Equal(t, test.unreached == "", run.Unreached == "", run.Unreached)
			assert.Equal(t, conformance.ExitFailed, exitStatus(run))
		})
	}
}

// TestEndedDuringChecks ends a run while results come in: by killing its QEMU, and by
// canceling it.
func TestEndedDuringChecks(t *testing.T) {
	target, r, _, emulator := faulty(t)
	pid := filepath.Join(t.TempDir(), "pid")
	r.QEMU = wrapped(t, emulator, "echo $$ > '"+pid+"'")
	signal := func(s syscall.Signal) {
		content, err := os.ReadFile(pid)
		require.NoError(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(content)))
		require.NoError(t, err)
		qemu, err := os.FindProcess(n)
		require.NoError(t, err)
		err = qemu.Signal(s)
		if s != 0 {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, os.ErrProcessDone, "QEMU is gone")
		}
	}
	for _, test := range []struct {
		name string
		end  func(cancel context.CancelCauseFunc)
		want string
	}{
		{"kill", func(context.CancelCauseFunc) { signal(syscall.SIGKILL) }, "qemu was killed: by signal 9"},
		{"terminate", func(context.CancelCauseFunc) { signal(syscall.SIGTERM) }, "qemu was killed: by signal 15"},
		{"cancel", func(cancel context.CancelCauseFunc) { cancel(errors.New("interrupt")) }, "the run was ended: interrupt"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			changed := *r
			changed.Events = atFirstResult(func() { test.end(cancel) })
			run := changed.Run(ctx, target)
			assert.True(t, strings.HasPrefix(run.Error, test.want), run.Error)
			got := verdicts(t, target, run)
			assert.Positive(t, got[conformance.Error], "what was not looked at")
			assert.Less(t, got[conformance.Error], len(target.Rules), "what came before stays")
			assert.Zero(t, got[conformance.Fail], "no verdict is made of it")
			assert.Equal(t, conformance.ExitFailed, exitStatus(run))
			signal(0)
		})
	}
}

// atFirstResult returns events that call a function once, at the first result.
func atFirstResult(f func()) Events { return &firstResult{do: f} }

type firstResult struct{ do func() }

func (*firstResult) Begin(Target, []abi.Rule) {}
func (*firstResult) Say(string)               {}
func (*firstResult) End(*conformance.Run)     {}
func (e *firstResult) Result(conformance.Result) {
	if e.do != nil {
		e.do()
		e.do = nil
	}
}

// TestOffline has an empty store and no network.
func TestOffline(t *testing.T) {
	target, r, kernel, emulator := faulty(t)
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("cannot run here: artefacts are fetched by apt, and there is none")
	}
	t.Setenv("PVABI_DEBIAN_MIRROR", "http://127.0.0.1:9/debian") // nobody listens at port "discard"
	empty, err := store.Open(t.TempDir(), nil)
	require.NoError(t, err)
	r.Store = func() (*store.Store, error) { return empty, nil }
	run := r.Run(t.Context(), target)
	assert.Contains(t, run.Error, "a kernel: ")
	assert.Contains(t, run.Error, "go online once, or name files with -kernel, -modules and -qemu")
	assert.Equal(t, conformance.ExitFailed, exitStatus(run))

	r.Kernel, r.Modules, r.Only = kernel.Image, kernel.Modules, []string{"number/undefined"}
	path := os.Getenv("PATH")
	t.Setenv("PATH", without(t, path, "qemu-system-x86_64"))
	run = r.Run(t.Context(), target)
	assert.Contains(t, run.Error, "no QEMU: ")
	assert.Contains(t, run.Error, "and none is installed: ")
	assert.Contains(t, run.Error, "as root: apt-get install qemu-system-x86")
	assert.Equal(t, conformance.ExitFailed, exitStatus(run))

	installed := wrapped(t, emulator, "")
	require.NoError(t, os.Rename(installed, filepath.Join(filepath.Dir(installed), "qemu-system-x86_64")))
	t.Setenv("PATH", filepath.Dir(installed)+":"+path)
	run = r.Run(t.Context(), target)
	require.Empty(t, run.Error)
	assert.Equal(t, map[conformance.Verdict]int{conformance.Pass: 1}, run.Totals())
	require.NotEmpty(t, run.Notes)
	assert.Contains(t, run.Notes[0], "using the installed QEMU "+emulator.Version+", because the store has none: ")
}

// without takes the folders that have a program off a PATH.
func without(t *testing.T, path, program string) string {
	t.Helper()
	var kept []string
	for _, dir := range filepath.SplitList(path) {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			kept = append(kept, dir)
		}
	}
	return strings.Join(kept, string(filepath.ListSeparator))
}

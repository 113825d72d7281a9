//go:build linux

// Package guesttest has tests run in guests: the program that they are in boots a guest, and is the
// agent there, whose one suite is to run them.
package guesttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
	"pvabi/initramfs"
	"pvabi/initramfs/agent"
	"pvabi/internal/qemu"
	"pvabi/internal/store"
)

// target is what the agent is told to look at.
const target = "tests"

// Inside tells whether this is such a guest.
func Inside() bool { return os.Getpid() == 1 }

// Main is for TestMain: it runs the tests, which run does, and never returns. In a guest, flags are
// those of the tests.
func Main(run func() int, flags ...string) {
	if !Inside() {
		os.Exit(run())
	}
	os.Args = append([]string{os.Args[0], "-test.v"}, flags...)
	err := agent.Main(map[string]agent.Suite{target: func(context.Context, agent.Job, func(conformance.Event)) error {
		if code := run(); code != 0 {
			return fmt.Errorf("tests failed, with status %d; the console has them", code)
		}
		return nil
	}})
	fmt.Println(err) // which PID 1 has only before anything else
	os.Exit(1)
}

// Guest is a guest for tests, of Debian's kernel and QEMU.
type Guest struct {
	GOARCH string
	// Suite is Debian's that the kernel comes from; empty for the store's default.
	Suite   string
	CPUs    int
	Threads qemu.Threads
	// Machine is added to the board's, and CPU stands in its place, where they are not empty.
	Machine, CPU string
	// Load are modules, and Needs files that there must be once they are loaded.
	Load, Needs []string
	// Append is added to the kernel's command line.
	Append []string
	// Files are files of the host by the names that the guest has for them.
	Files map[string]string
	// Silence is how long the guest may be silent; 0 is the default of package qemu.
	Silence time.Duration
}

// Run boots the guest, in which the tests of this program must pass, that one among them. Where the
// host has no kernel or QEMU for it, the test is skipped.
func (g Guest) Run(t *testing.T, passed string) {
	t.Helper()
	s, err := store.Open("", store.NewProgress(os.Stderr))
	require.NoError(t, err)
	kernel, err := s.Kernel(t.Context(), store.KernelSpec{GOARCH: g.GOARCH, Suite: g.Suite})
	if err != nil {
		t.Skipf("cannot run here: no kernel: %v", err)
	}
	q, err := s.QEMU(t.Context(), store.QEMUSpec{GOARCH: g.GOARCH})
	if err != nil {
		t.Skipf("cannot run here: no QEMU: %v", err)
	}
	temp := t.TempDir()
	image, err := initramfs.Build(initramfs.Config{
		Agent: Build(t, g.GOARCH, "test", "-c"), GOARCH: g.GOARCH, Release: kernel.Release, Modules: kernel.Modules,
		Load: g.Load, May: agent.ChannelModules, Files: g.Files, Path: filepath.Join(temp, "image"),
	})
	require.NoError(t, err)
	board, err := qemu.BoardOf(g.GOARCH)
	require.NoError(t, err)
	board.Machine += g.Machine
	if g.CPU != "" {
		board.CPU = g.CPU
	}
	if q.Firmware != nil {
		board.Firmware = q.Firmware.Path
	}
	console := filepath.Join(temp, "console")
	var bad []string
	words := agent.Job{Target: target, Modules: image.Names(), Needs: g.Needs}.Words()
	report, err := qemu.Run(t.Context(), qemu.Config{
		QEMU: q.Command, Env: q.Env, Board: board, CPUs: g.CPUs, Threads: g.Threads,
		Kernel: kernel.Image, Initramfs: image.Path, Release: kernel.Release,
		Append: append(words, g.Append...), Console: console, Silence: g.Silence,
	}, func(e conformance.Event) {
		if e.Fatal+e.Unreached != "" {
			bad = append(bad, e.Fatal, e.Unreached)
		}
	})
	said, readErr := os.ReadFile(console)
	require.NoError(t, readErr)
	said = []byte(strings.ReplaceAll(string(said), "\r", ""))
	require.NoError(t, err, "console:\n%s", said)
	require.Empty(t, bad, "console:\n%s", said)
	assert.Contains(t, string(said), "--- PASS: "+passed, "console")
	t.Logf("to identity %.1f s, end %.1f s; the guest's tests:\n%s", report.ToIdentity, report.Total, said)
}

// Build has the go command make a program for a guest of the package that is tested, and returns its
// file: by "build", or by "test", "-c".
func Build(t *testing.T, goarch string, command ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	c := exec.CommandContext(t.Context(), "go", append(command, "-trimpath", "-ldflags=-s -w", "-o", file, ".")...)
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+goarch, "CGO_ENABLED=0", "GOAMD64=v1", "GOPPC64=power8", "GOFLAGS=")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

//go:build amd64 || ppc64le

package microvm_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
	"pvabi/conformance/microvm"
	"pvabi/initramfs"
	"pvabi/initramfs/agent"
	"pvabi/internal/qemu"
	"pvabi/internal/store"
)

// In a guest that TestGuests booted this program is the agent, and its tests are what the agent
// does.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		os.Exit(microvm.RunTests(m))
	}
	os.Args = []string{os.Args[0], "-test.v", "-test.skip=^TestGuests$"}
	err := agent.Main(map[string]agent.Suite{"microvm": func(context.Context, agent.Job, func(conformance.Event)) error {
		if code := microvm.RunTests(m); code != 0 {
			return fmt.Errorf("tests failed, with status %d; the console has them", code)
		}
		return nil
	}})
	fmt.Println(err) // which PID 1 has only before anything else
}

// TestGuests runs the other tests in guests that have a KVM.
func TestGuests(t *testing.T) {
	if testing.Short() {
		t.Skip("boots guests; not done under -short")
	}
	dir, err := store.DefaultDir()
	require.NoError(t, err)
	s, err := store.Open(dir, store.NewProgress(os.Stderr))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		goarch, module string
		threads        qemu.Threads
		machine, cpu   string // added to the board's, and in its place
		enabled        string
	}{
		"amd64":                {"amd64", "kvm_amd", qemu.OneThread, "", "", "yes"},
		"ppc64le, nested HV":   {"ppc64le", "kvm_hv", qemu.ThreadPerCPU, ",cap-nested-hv=on", "POWER9", "yes"},
		"ppc64le, nested PAPR": {"ppc64le", "kvm_hv", qemu.ThreadPerCPU, ",cap-nested-papr=on", "POWER10", "nested-papr"},
	} {
		t.Run(name, func(t *testing.T) {
			kernel, err := s.Kernel(t.Context(), store.KernelSpec{GOARCH: tc.goarch})
			if err != nil {
				t.Skipf("cannot run here: no kernel: %v", err)
			}
			q, err := s.QEMU(t.Context(), store.QEMUSpec{GOARCH: tc.goarch})
			if err != nil {
				t.Skipf("cannot run here: no QEMU: %v", err)
			}
			temp := t.TempDir()
			binary := filepath.Join(temp, "init")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-s -w", "-o", binary, ".")
			build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+tc.goarch, "CGO_ENABLED=0", "GOAMD64=v1", "GOPPC64=power8", "GOFLAGS=")
			out, err := build.CombinedOutput()
			require.NoError(t, err, "%s", out)
			image, err := initramfs.Build(initramfs.Config{
				Agent: binary, GOARCH: tc.goarch, Release: kernel.Release, Modules: kernel.Modules,
				Load: []string{tc.module}, May: agent.ChannelModules, Path: filepath.Join(temp, "image"),
			})
			require.NoError(t, err)
			board, err := qemu.BoardOf(tc.goarch)
			require.NoError(t, err)
			board.Machine += tc.machine
			if tc.cpu != "" {
				board.CPU = tc.cpu
			}
			console := filepath.Join(temp, "console")
			var bad []string
			job := agent.Job{Target: "microvm", Modules: image.Names(), Needs: []string{"/dev/kvm"}}
			report, err := qemu.Run(t.Context(), qemu.Config{
				QEMU: q.Command, Env: q.Env, Board: board, CPUs: 2, Threads: tc.threads,
				Kernel: kernel.Image, Initramfs: image.Path, Release: kernel.Release,
				Append: append(job.Words(), microvm.Enabled+"="+tc.enabled), Console: console,
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
			assert.Contains(t, string(said), "--- PASS: TestKickWakes", "console")
			t.Logf("to identity %.1f s, end %.1f s; the guest's tests:\n%s", report.ToIdentity, report.Total, said)
		})
	}
}

package kmod

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
	"pvabi/initramfs"
	"pvabi/initramfs/agent"
	"pvabi/internal/qemu"
	"pvabi/internal/store"
)

// The tests of the carrier run in guests, of each architecture that has a probe. There this
// program is the agent, and its tests are what the agent does.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		os.Exit(m.Run())
	}
	os.Args = []string{os.Args[0], "-test.v", "-test.run=^TestInGuest$"}
	err := agent.Main(map[string]agent.Suite{"kmod": func(context.Context, agent.Job, func(conformance.Event)) error {
		if code := m.Run(); code != 0 {
			return fmt.Errorf("tests failed, with status %d; the console has them", code)
		}
		return nil
	}})
	fmt.Println(err) // which PID 1 has only before anything else
}

func inGuest() bool { return os.Getpid() == 1 }

// TestGuests boots Debian's kernels.
func TestGuests(t *testing.T) {
	if testing.Short() || inGuest() {
		t.Skip("boots guests; not done under -short")
	}
	dir, err := store.DefaultDir()
	require.NoError(t, err)
	s, err := store.Open(dir, store.NewProgress(os.Stderr))
	require.NoError(t, err)
	for _, tc := range []struct {
		goarch, suite string
		threads       qemu.Threads
	}{
		{"amd64", "", qemu.ThreadPerCPU},
		{"ppc64le", "", qemu.ThreadPerCPU},
		{"s390x", "", qemu.ThreadPerCPU},
		{"loong64", "", qemu.ThreadPerCPU},
		// Linux 6.12, which has checksums of its interfaces where 7.2 has none.
		{"amd64", "trixie", qemu.OneThread},
	} {
		t.Run(tc.goarch+tc.suite, func(t *testing.T) {
			kernel, err := s.Kernel(t.Context(), store.KernelSpec{GOARCH: tc.goarch, Suite: tc.suite})
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
				Load: []string{"dummy"}, May: agent.ChannelModules, Path: filepath.Join(temp, "image"),
			})
			require.NoError(t, err)
			board, err := qemu.BoardOf(tc.goarch)
			require.NoError(t, err)
			if q.Firmware != nil {
				board.Firmware = q.Firmware.Path
			}
			console := filepath.Join(temp, "console")
			var bad []string
			report, err := qemu.Run(t.Context(), qemu.Config{
				QEMU: q.Command, Env: q.Env, Board: board, CPUs: 3, Threads: tc.threads,
				Kernel: kernel.Image, Initramfs: image.Path, Release: kernel.Release,
				Append: agent.Job{Target: "kmod"}.Words(), Console: console,
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
			assert.Contains(t, string(said), "--- PASS: TestInGuest", "console")
			t.Logf("to identity %.1f s, end %.1f s; the guest's tests:\n%s", report.ToIdentity, report.Total, said)
		})
	}
}

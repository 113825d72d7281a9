package probetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch/internal/probetest"
	"pvabi/initramfs"
	"pvabi/internal/qemu"
	"pvabi/internal/store"
)

// TestGuests runs the tests of each probe in a guest of its architecture.
func TestGuests(t *testing.T) {
	for _, goarch := range []string{"ppc64le", "s390x", "loong64"} {
		t.Run(goarch, func(t *testing.T) {
			agent := probetest.Build(t, goarch)
			s, err := store.Open("", store.NewProgress(os.Stderr))
			require.NoError(t, err)
			kernel, err := s.Kernel(t.Context(), store.KernelSpec{GOARCH: goarch})
			if err != nil {
				t.Skipf("cannot run here: no kernel: %v", err)
			}
			emulator, err := s.QEMU(t.Context(), store.QEMUSpec{GOARCH: goarch})
			if err != nil {
				t.Skipf("cannot run here: no QEMU: %v", err)
			}
			board, err := qemu.BoardOf(goarch)
			require.NoError(t, err)
			boot := filepath.Join(t.TempDir(), "kernel")
			file, err := os.Create(boot)
			require.NoError(t, err)
			defer file.Close()
			if err := initramfs.UnpackKernel(file, kernel.Image); errors.Is(err, initramfs.ErrNotDirect) {
				boot = kernel.Image
			} else {
				require.NoError(t, err)
			}
			image, err := initramfs.Build(initramfs.Config{
				Agent: agent, GOARCH: goarch, Release: kernel.Release, Path: filepath.Join(t.TempDir(), "image"),
			})
			require.NoError(t, err)

			// Two CPUs that run at once: some tests need another that writes.
			arguments := append(emulator.Command[1:len(emulator.Command):len(emulator.Command)],
				"-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
				"-machine", board.Machine, "-cpu", board.CPU, "-m", fmt.Sprint(board.Memory),
				"-smp", "2", "-accel", "tcg,thread=multi",
				"-kernel", boot, "-initrd", image.Path,
				"-append", "console="+board.Console+" panic=-1 loglevel=4 "+board.Append+" "+probetest.GuestWord+"=1 -- -test.v")
			if board.Firmware != "" {
				arguments = append(arguments, "-bios", board.Firmware)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, emulator.Command[0], arguments...)
			cmd.Env = append(os.Environ(), emulator.Env...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			runtime.LockOSThread() // QEMU ends with the thread that started it
			defer runtime.UnlockOSThread()
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%v", cmd)
			assert.Contains(t, string(out), probetest.Passed)
		})
	}
}

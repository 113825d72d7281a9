package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pvabi/conformance"
	"pvabi/internal/guesttest"
)

// selfVariable makes this test binary the command pvabi.
const selfVariable = "PVABI_TEST_SELF"

func TestMain(m *testing.M) {
	if os.Getenv(selfVariable) != "" {
		main()
	}
	guesttest.Main(m.Run, "-test.run=^TestInGuest$")
}

// TestSignals ends a run by signals while its guest boots. The guest is a script that
// tells its process id and sleeps.
func TestSignals(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the agent")
	}
	const qemu = `#!/bin/sh
[ "$1" = --version ] && echo QEMU emulator version 11.0 && exit
echo $$ > pid.new && mv pid.new pid
exec sleep 1000
`
	for _, test := range []struct {
		name   string
		signal syscall.Signal
		kept   []string // in the folder for results
		stderr string
	}{
		{"interrupt", syscall.SIGINT, []string{"results.json", "x86-kvm.console"}, "pvabi run: interrupt signal received: what was finished is in results/results.json\n"},
		{"terminate", syscall.SIGTERM, []string{"results.json", "x86-kvm.console"}, "pvabi run: terminated signal received: what was finished is in results/results.json\n"},
		{"hang up", syscall.SIGHUP, []string{"results.json", "x86-kvm.console"}, "pvabi run: hangup signal received: what was finished is in results/results.json\n"},
		{"kill", syscall.SIGKILL, []string{"x86-kvm.console"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			files(t, map[string]string{"kernel": string(bzImage()), "qemu": qemu, "results/results.json": "of yesterday"})
			pvabi := self(t, "run", "-kernel", "kernel", "-qemu", "qemu", "x86-kvm")
			var stderr strings.Builder
			pvabi.Stderr = &stderr
			require.NoError(t, pvabi.Start())
			guest := process(t)
			require.NoError(t, pvabi.Process.Signal(test.signal))
			err := pvabi.Wait()
			waitForEnd(t, guest)
			assert.Equal(t, test.stderr, stderr.String())
			assert.Equal(t, test.kept, entries(t, "results"))
			if test.signal == syscall.SIGKILL {
				assert.NotEmpty(t, entries(t, "tmp"), "nobody could clean up")
				// The next one does, although it does not come far.
				require.NoError(t, os.WriteFile("qemu", []byte("#!/bin/sh\necho QEMU emulator version 11.0\n"), 0o755))
				status, _, stderr := call(t.Context(), "run", "-kernel", "kernel", "-qemu", "qemu", "x86-kvm")
				assert.Equal(t, conformance.ExitFailed, status)
				assert.Contains(t, stderr, "the guest ended before its last event")
			} else {
				assert.Equal(t, conformance.ExitFailed, pvabi.ProcessState.ExitCode(), "%v", err)
				saved, err := readReport("results/results.json")
				require.NoError(t, err)
				assert.Contains(t, saved.Runs[0].Error, "signal received")
			}
			assert.Empty(t, entries(t, "tmp"))
		})
	}
}

// TestReaderGoesAway has a reader of the report that stops reading.
func TestReaderGoesAway(t *testing.T) {
	files(t, nil)
	pvabi := self(t, "run", "-kernel", "nosuch", "x86-kvm")
	// A pipe that is full makes the run wait until it is closed.
	reader, stdout, err := os.Pipe()
	require.NoError(t, err)
	size, err := unix.FcntlInt(stdout.Fd(), unix.F_SETPIPE_SZ, 4096)
	require.NoError(t, err)
	_, err = stdout.Write(make([]byte, size-100))
	require.NoError(t, err)
	var stderr strings.Builder
	pvabi.Stdout, pvabi.Stderr = stdout, &stderr
	require.NoError(t, pvabi.Start())
	require.NoError(t, stdout.Close())
	_, err = io.CopyN(io.Discard, reader, int64(size))
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	assert.Error(t, pvabi.Wait())
	assert.Equal(t, conformance.ExitFailed, pvabi.ProcessState.ExitCode())
	assert.Contains(t, stderr.String(), "broken pipe")
	assert.Equal(t, []string{"results.json"}, entries(t, "results"))
}

// self is pvabi as a process of its own.
func self(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), selfVariable+"=1")
	return cmd
}

// waitForEnd waits for the process of a pidfd, which can be read from when it has
// ended, and closes it.
func waitForEnd(t *testing.T, fd int) {
	t.Helper()
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, 1, n, "QEMU has ended")
		return
	}
}

// process waits until the script tells who it is, and returns a pidfd.
func process(t *testing.T) int {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if content, err := os.ReadFile("pid"); err == nil {
			pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
			require.NoError(t, err)
			fd, err := unix.PidfdOpen(pid, 0)
			require.NoError(t, err)
			return fd
		}
		if time.Now().After(deadline) {
			require.Fail(t, "the guest did not start")
		}
	}
}

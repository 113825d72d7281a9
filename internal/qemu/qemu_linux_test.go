package qemu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	vmtest "github.com/hugelgupf/vmtest/qemu"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pvabi/conformance"
)

// faked returns a configuration that runs this test binary as QEMU, in a folder
// whose name has what command lines stumble over.
func faked(t *testing.T, script ...string) Config {
	dir := filepath.Join(t.TempDir(), "a folder, with 'all'")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, name := range []string{"kernel", "initramfs"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
	}
	binary, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(dir, "qemu") // a name with a blank
	require.NoError(t, os.Symlink(binary, link))
	board, err := BoardOf("amd64")
	require.NoError(t, err)
	return Config{
		QEMU: []string{link, "-L", "data of qemu"}, Env: []string{fakeVariable + "=" + strings.Join(script, ";")},
		Board: board, CPUs: 2, Release: "7.2.12",
		Kernel: filepath.Join(dir, "kernel"), Initramfs: filepath.Join(dir, "initramfs"),
		Console: filepath.Join(dir, "console"), Append: []string{"pvabi.target=x"},
	}
}

func TestRun(t *testing.T) {
	t.Setenv("VMTEST_QEMU", "/does/not/exist")
	t.Setenv("VMTEST_TIMEOUT", "nonsense")
	t.Setenv("VMTEST_KERNEL_APPEND", "leak=1")
	c := faked(t, "args", "console Linux version", "stderr a warning", identity, loaded, result, finished, done)
	var got kinds
	report, err := Run(t.Context(), c, got.add)
	require.NoError(t, err)
	assert.Equal(t, kinds{"identity", "loaded", "x/y/z", "finished"}, got)
	assert.Equal(t, "7.2.12", report.Identity.Release)
	assert.Empty(t, report.Notes)
	assert.Contains(t, report.Stderr, "a warning")
	assert.Positive(t, report.ToIdentity)
	assert.LessOrEqual(t, report.ToIdentity, report.ToLoaded)
	assert.LessOrEqual(t, report.ToLoaded, report.ToResult)
	assert.LessOrEqual(t, report.ToResult, report.Total)

	console, err := os.ReadFile(c.Console)
	require.NoError(t, err)
	assert.NotContains(t, string(console), "leak=1", "vmtest's variables change nothing")
	for _, want := range []string{
		"-nodefaults\n", "-no-reboot\n", "-machine\nq35\n", "-cpu\nmax\n", "-m\n512\n", "-smp\n2\n", "-accel\ntcg,thread=single\n", "-bios\nqboot.rom\n",
		"-kernel\n" + c.Kernel + "\n", "-initrd\n" + c.Initramfs + "\n", "-append\nconsole=ttyS0 panic=-1 ", " pvabi.target=x\n", "name=pvabi\n",
	} {
		assert.Contains(t, string(console), want)
	}

	// The command line that is reported is the one that was run, for a shell.
	args, _, _ := strings.Cut(string(console), "Linux version")
	out, err := exec.Command("sh", "-c", `printf '%s\n' `+report.Command).Output()
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(args), strings.TrimSpace(string(out)))
}

func TestRunErrors(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	for _, test := range []struct {
		name   string
		script []string
		change func(*Config)
		is     error
		want   []string // parts of the message
		events kinds
	}{
		{name: "no QEMU", change: func(c *Config) { c.QEMU = []string{"/does/not/exist/qemu"} }, is: ErrStart, want: []string{"/does/not/exist/qemu"}},
		{name: "no QEMU on PATH", change: func(c *Config) { c.QEMU = []string{"qemu-system-none"} }, is: ErrStart, want: []string{"qemu-system-none", "not found"}},
		{name: "QEMU is no program", change: func(c *Config) { c.QEMU = []string{c.Kernel} }, is: ErrStart, want: []string{"permission denied"}},
		{name: "bad arguments", script: []string{"stderr qemu: -bios qboot.rom: could not load", "exit 1"}, is: ErrExited, want: []string{"exit status 1", "could not load", "the console is empty"}},
		{name: "dies early", script: []string{identity, loaded, "console BUG: unable", "exit 3"}, is: ErrExited, want: []string{"exit status 3", "BUG: unable"}, events: kinds{"identity", "loaded"}},
		{name: "crashes", script: []string{identity, "signal 6"}, is: ErrExited, want: []string{"crashed by signal 6"}, events: kinds{"identity"}},
		{name: "killed", script: []string{identity, "signal 9"}, is: ErrKilled, want: []string{"signal 9"}, events: kinds{"identity"}},
		{name: "terminated", script: []string{identity, "stderr qemu: terminating on signal 15 from pid 1", "exit 0"}, is: ErrKilled, want: []string{"by signal 15 from pid 1"}, events: kinds{"identity"}},
		{name: "panic", script: []string{identity, "console [ 1.0] Kernel panic - not syncing: Attempted to kill init!", "console ---[ end", "exit 0"}, is: ErrPanic, want: []string{"Attempted to kill init!", "---[ end"}, events: kinds{"identity"}},
		{name: "panic before the agent", script: []string{"console Kernel panic - not syncing: VFS: no root", "exit 0"}, is: ErrPanic, want: []string{"VFS: no root"}},
		{name: "agent cannot be heard", script: []string{"console pvabi: agent failed: open the event channel: no port named pvabi", "console [ 1.0] reboot: Power down", "exit 0"}, is: ErrIncomplete, want: []string{"last event: the agent says: open the event channel: no port named pvabi\n"}},
		{name: "ends without the last event", script: []string{identity, result, "exit 0"}, is: ErrIncomplete, events: kinds{"identity", "x/y/z"}},
		{name: "channel ends without the last event", script: []string{identity, done, "exit 0"}, is: ErrIncomplete, events: kinds{"identity"}},
		{name: "channel ends without the last event, guest hangs", script: []string{identity, done, "hang"}, is: ErrIncomplete, events: kinds{"identity"}},
		{name: "no boot", script: []string{"hang"}, change: func(c *Config) { c.Boot = 50 * time.Millisecond }, is: ErrBoot, want: []string{"no event in 50ms"}},
		{name: "silent", script: []string{identity, "hang"}, change: func(c *Config) { c.Silence = 50 * time.Millisecond }, is: ErrSilent, want: []string{"no event in 50ms"}, events: kinds{"identity"}},
		{name: "too long", script: []string{identity, "hang"}, change: func(c *Config) { c.Whole = 200 * time.Millisecond }, is: ErrTimeout, want: []string{"more than 200ms"}},
		{name: "garbage", script: []string{identity, "raw \x01\x02 no JSON", "hang"}, is: ErrGarbage, want: []string{"no JSON"}, events: kinds{"identity"}},
		{name: "garbage first", script: []string{"raw garbage", "hang"}, is: ErrGarbage},
		{name: "line too long", script: []string{identity, "raw " + long, "hang"}, is: ErrGarbage, want: []string{"too long"}, events: kinds{"identity"}},
		{name: "result first", script: []string{result, "hang"}, is: ErrGarbage, want: []string{"who it is first"}},
		{name: "identity twice", script: []string{identity, identity, "hang"}, is: ErrGarbage, want: []string{"only once"}, events: kinds{"identity"}},
		{name: "empty event", script: []string{identity, empty, "hang"}, is: ErrGarbage, want: []string{"0 fields"}, events: kinds{"identity"}},
		{name: "event after the last", script: []string{identity, finished, result, "hang"}, is: ErrGarbage, want: []string{"after the last one"}, events: kinds{"identity", "finished"}},
		{name: "event after the channel's end", script: []string{identity, finished, done, result, "hang"}, is: ErrGarbage, want: []string{"after the channel's end"}, events: kinds{"identity", "finished"}},
		{name: "channel ends twice", script: []string{identity, finished, done, done, "hang"}, is: ErrGarbage, want: []string{"after the channel's end"}, events: kinds{"identity", "finished"}},
		{name: "other architecture", script: []string{strings.Replace(identity, "amd64", "s390x", 1), "hang"}, is: ErrIdentity, want: []string{"architecture is s390x, want amd64"}},
		{name: "other machine", script: []string{strings.Replace(identity, "x86_64", "i686", 1), "hang"}, is: ErrIdentity, want: []string{"machine is i686, want x86_64"}},
		{name: "other kernel", script: []string{strings.Replace(identity, "7.2.12", "6.1.0", 1), "hang"}, is: ErrIdentity, want: []string{"kernel release is 6.1.0, want 7.2.12"}},
		{name: "CPU missing", script: []string{strings.Replace(identity, `"cpus":2`, `"cpus":1`, 1), "hang"}, is: ErrIdentity, want: []string{"number of CPUs is 1, want 2"}},
		{name: "no kernel", change: func(c *Config) { c.Kernel = "/does/not/exist" }, is: os.ErrNotExist, want: []string{"boot the kernel"}},
		{name: "no initramfs", change: func(c *Config) { c.Initramfs = filepath.Dir(c.Kernel) }, want: []string{"boot the initramfs", "no regular file"}},
		{name: "no place for the console", change: func(c *Config) { c.Console = "/does/not/exist/console" }, is: os.ErrNotExist, want: []string{"the console's file"}},
		{name: "unknown architecture", change: func(c *Config) { c.Board.GOARCH = "mips64" }, want: []string{`no GOARCH "mips64"`}},
		{name: "no CPUs", change: func(c *Config) { c.CPUs = 0 }, want: []string{"0 CPUs"}},
		{name: "no command", change: func(c *Config) { c.QEMU = nil }, is: ErrStart},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := faked(t, append([]string{"console first line"}, test.script...)...)
			if len(test.script) > 0 && strings.HasPrefix(test.script[0], "stderr") {
				c = faked(t, test.script...)
			}
			if test.change != nil {
				test.change(&c)
			}
			var got kinds
			_, err := Run(t.Context(), c, got.add)
			require.Error(t, err)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			for _, part := range test.want {
				assert.ErrorContains(t, err, part)
			}
			if test.events != nil {
				assert.Equal(t, test.events, got)
			}
		})
	}
}

func TestRunBootsAgain(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "marker")
	c := faked(t, "once "+marker, identity, finished, done)
	c.Boot = 5 * time.Second // the fake needs milliseconds
	var got kinds
	report, err := Run(t.Context(), c, got.add)
	require.NoError(t, err)
	assert.Equal(t, kinds{"identity", "finished"}, got)
	require.Len(t, report.Notes, 1)
	assert.Contains(t, report.Notes[0], "booted a second time: the guest does not come up")
}

func TestRunBootsOnce(t *testing.T) {
	t.Parallel()
	c := faked(t, "once "+filepath.Join(t.TempDir(), "marker"), identity, finished, done)
	c.Boot, c.Once = 2*time.Second, true
	report, err := Run(t.Context(), c, func(conformance.Event) {})
	require.ErrorIs(t, err, ErrBoot)
	assert.Empty(t, report.Notes)
}

func TestRunEndsQEMUThatLingers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for QEMU's time to end")
	}
	t.Parallel()
	c := faked(t, identity, finished, done, "hang")
	report, err := Run(t.Context(), c, func(conformance.Event) {})
	require.NoError(t, err, "the events are the record")
	require.Len(t, report.Notes, 1)
	assert.Contains(t, report.Notes[0], "did not end within")
}

func TestRunIsCanceled(t *testing.T) {
	for _, script := range [][]string{{"hang"}, {identity, "hang"}, {identity, finished, done, "hang"}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := faked(t, append([]string{"pid"}, script...)...)
		interrupt := errors.New("interrupt")
		go func() {
			process(t, c.Console)
			cancel(interrupt)
		}()
		_, err := Run(ctx, c, func(conformance.Event) {})
		require.ErrorIs(t, err, ErrCanceled)
		require.ErrorIs(t, err, interrupt)
		pid, group := process(t, c.Console)
		assert.Equal(t, pid, group, "Ctrl-C at the terminal does not reach QEMU")
		assert.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH, "QEMU is gone")
	}
}

// TestRunEndsQEMUOfAScript has QEMU started by a script that stays its parent, as
// those of users do.
func TestRunEndsQEMUOfAScript(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := faked(t, "pid", identity, "hang")
	require.NoError(t, os.Rename(c.QEMU[0], c.QEMU[0]+".real"))
	require.NoError(t, os.WriteFile(c.QEMU[0], []byte("#!/bin/sh\n\"$0.real\" \"$@\"\n"), 0o755))
	fd := make(chan int, 1)
	go func() {
		defer cancel()
		pid, _ := process(t, c.Console)
		f, err := unix.PidfdOpen(pid, 0)
		assert.NoError(t, err)
		fd <- f
	}()
	_, err := Run(ctx, c, func(conformance.Event) {})
	require.ErrorIs(t, err, ErrCanceled)
	waitForEnd(t, <-fd)
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
		assert.Equal(t, 1, n, "the process has ended")
		return
	}
}

// process reads what the fake's command "pid" wrote, once it has.
func process(t *testing.T, console string) (pid, group int) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		content, _ := os.ReadFile(console)
		if n, _ := fmt.Sscan(string(content), &pid, &group); n == 2 && strings.Contains(string(content), "\n") {
			return pid, group
		}
		if time.Now().After(deadline) {
			t.Error("the fake did not say who it is")
			return 0, 0
		}
		time.Sleep(time.Millisecond)
	}
}

// TestQEMUDoesNotOutlive kills a process that has QEMU running.
func TestQEMUDoesNotOutlive(t *testing.T) {
	if os.Getenv("PVABI_TEST_PARENT") != "" {
		c := faked(t, "pid", identity, "hang")
		_, err := Run(t.Context(), c, func(conformance.Event) {
			pid, _ := process(t, c.Console)
			fmt.Println("pid:", pid)
		})
		t.Fatal(err) // it ended
	}
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV} {
		parent := exec.Command(os.Args[0], "-test.run=^TestQEMUDoesNotOutlive$", "-test.v")
		parent.Env = append(os.Environ(), "PVABI_TEST_PARENT=1", "GOTRACEBACK=none", "TMPDIR="+t.TempDir())
		out, err := parent.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, parent.Start())
		pid := 0
		for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "pid: "); ok {
				pid, err = strconv.Atoi(rest)
				require.NoError(t, err)
			}
		}
		require.NotZero(t, pid)
		fd, err := unix.PidfdOpen(pid, 0)
		require.NoError(t, err)
		require.NoError(t, parent.Process.Signal(s))
		waitForEnd(t, fd) // QEMU ends with its parent
		_ = parent.Wait()
	}
}

// TestSerialChannelLosesNothing has QEMU write more than a terminal holds while nobody reads.
func TestSerialChannelLosesNothing(t *testing.T) {
	var failed error
	events := make(chan conformance.Event)
	o, err := vmtest.OptionsFor("loong64", vmtest.WithQEMUCommand("qemu"), channel(true, events, &failed))
	require.NoError(t, err)
	qemu := o.ExtraFiles[len(o.ExtraFiles)-1]
	require.NoError(t, unix.SetNonblock(int(qemu.Fd()), true))
	for i := range 900 {
		line := fmt.Appendf(nil, "{\"%d\":%q}\n", i, strings.Repeat("x", 1000))
		n, err := unix.Write(int(qemu.Fd()), line)
		require.NoError(t, err, "line %d", i)
		require.Len(t, line, n)
	}
	runtime.KeepAlive(o) // whose pipe's other end would be closed
}

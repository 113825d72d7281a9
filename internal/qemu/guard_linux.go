package qemu

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The guard keeps QEMU from outliving the process that started it, even one
// that dies by SIGKILL. It is this program, started again: it asks the kernel
// to be killed when its parent dies, which an exec does not change, and becomes
// QEMU. vmtest has no way to ask for that (os/exec's SysProcAttr), and of QEMU
// itself, "-run-with" has none in the versions that are to be supported.
//
// It also moves to a process group of its own, so that Ctrl-C at the terminal
// reaches only the parent, which then ends QEMU in good order, and sees to it
// that a QEMU that crashes leaves no core file.
const guardWord = "pvabi-qemu-guard"

// self starts this program again. As a name it survives that the file was
// replaced, and has no blanks, at which vmtest cuts commands into arguments.
const self = "/proc/self/exe"

// guarded returns the command that starts a command under guard, with env
// added to its environment. fd is the number, in the child, of the pipe's
// writing end where the guard reports its process id, and what failed if it
// does.
func guarded(command, env []string, fd int) (string, error) {
	if _, err := os.Stat(self); err != nil {
		return "", fmt.Errorf("%w; is /proc mounted?", err)
	}
	order, err := json.Marshal(order{Command: command, Env: env})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s %d %d %s", self, guardWord, os.Getpid(), fd, url.QueryEscape(string(order))), nil
}

// order is what the guard is to start.
type order struct {
	Command []string `json:"command"`
	Env     []string `json:"env,omitempty"`
}

// init is the guard. Being an init function it works in every program that
// can start QEMU, tests included, before these look at their arguments.
func init() {
	if len(os.Args) < 5 || os.Args[1] != guardWord {
		return
	}
	fd, err := strconv.Atoi(os.Args[3])
	if err != nil {
		os.Exit(127)
	}
	pipe := os.NewFile(uintptr(fd), "guard")
	unix.CloseOnExec(fd)
	lines := json.NewEncoder(pipe)
	if err := lines.Encode(guardReport{PID: os.Getpid()}); err != nil {
		os.Exit(127)
	}
	err = guard(os.Args[2], os.Args[4], os.Args[5:])
	_ = lines.Encode(guardReport{Error: err.Error()}) // it shows as an early end otherwise
	os.Exit(127)
}

// guard becomes the command; it returns only if that fails. Init functions run
// on the main thread, and locked to it, so that all of this concerns one
// thread.
func guard(parent, words string, args []string) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask to be killed with the parent: %w", err)
	}
	if ppid := strconv.Itoa(os.Getppid()); ppid != parent { // it died before that
		return fmt.Errorf("the parent is process %s, and was %s", ppid, parent)
	}
	if err := unix.Setpgid(0, 0); err != nil {
		return fmt.Errorf("make a process group: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limit core files: %w", err)
	}
	text, err := url.QueryUnescape(words)
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	file, err := exec.LookPath(o.Command[0])
	if err != nil {
		return err
	}
	if err := syscall.Exec(file, append(o.Command, args...), append(os.Environ(), o.Env...)); err != nil {
		return fmt.Errorf("start %s: %w", file, err)
	}
	return nil
}

// killGroup kills the process group that a guard made, if its number is known: a
// QEMU that was started by a script of the user's is not QEMU's process, but a
// child of it.
func killGroup(pid int) {
	if pid > 0 {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
}

// peakRSS returns the most memory that a process had resident, in bytes; 0 if
// that is not known (any more).
func peakRSS(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

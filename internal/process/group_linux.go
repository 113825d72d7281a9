package process

import (
	"os/exec"
	"runtime"
	"syscall"
)

// group puts a command into a process group that is killed as one when the
// command's context ends. The kernel kills the command itself when this process
// dies, even by SIGKILL; its children have to end by themselves then, as those of
// apt do when their pipe to it closes.
//
// The kernel takes the thread that started the command for its parent
// (prctl(2), PR_SET_PDEATHSIG), so that thread is kept until release.
func group(cmd *exec.Cmd) (release func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

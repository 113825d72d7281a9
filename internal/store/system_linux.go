package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// lock takes the store for this caller alone, waiting for others, and removes
// what they left behind. The lock ends with the process, however it ends.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f, err := s.lockFile(ctx)
	if err != nil {
		<-s.turn
		return nil, err
	}
	unlock = func() {
		_ = os.RemoveAll(s.path("tmp"))
		_ = f.Close()
		<-s.turn
	}
	// The number only serves others' messages, so a full disk does not matter.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	if err := s.sweep(); err != nil {
		unlock()
		return nil, fmt.Errorf("removing what an earlier run left behind: %w", err)
	}
	return unlock, nil
}

// lockFile returns the lock's file, locked against other processes.
func (s *Store) lockFile(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(s.path("lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		s.say("waiting for another pvabi%s, which is filling %s", holder(f), s.dir)
		return f, waitForLock(ctx, f)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return f, nil
}

// holder reads who has the lock, for a message. It may not have written that yet.
func holder(f *os.File) string {
	var buf [20]byte
	n, _ := f.ReadAt(buf[:], 0)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %s)", buf[:n])
}

// waitForLock waits for the lock of f, or for ctx; in the second case it closes
// f. flock cannot be called off, so the thread that waits in it is then left to
// give the lock back when it gets it.
func waitForLock(ctx context.Context, f *os.File) error {
	got := make(chan error, 1)
	go func() { got <- flock(f, syscall.LOCK_EX) }()
	select {
	case err := <-got:
		if err != nil {
			_ = f.Close()
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		return nil
	case <-ctx.Done():
		go func() {
			<-got
			_ = f.Close()
		}()
		return ctx.Err()
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// sweep removes unfinished work and package indexes that are too old for use.
func (s *Store) sweep() error {
	if err := os.RemoveAll(s.path("tmp")); err != nil {
		return err
	}
	if err := os.Mkdir(s.path("tmp"), 0o755); err != nil {
		return err
	}
	indexes, err := os.ReadDir(s.path("apt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range indexes {
		dir := s.path("apt", d.Name())
		info, err := os.Stat(filepath.Join(dir, stamp))
		if err == nil && s.now().Sub(info.ModTime()) < listAge {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// group puts a command into a process group that is killed as one when the
// command's context ends. The kernel kills the command itself when this process
// dies, even by SIGKILL; apt's own children end when their pipe to it closes.
//
// The kernel takes the thread that started the command for its parent
// (prctl(2), PR_SET_PDEATHSIG), so that thread is kept until release.
func group(cmd *exec.Cmd) (release func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gofrs/flock"
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
	_ = os.WriteFile(f.Path(), strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o644)
	if err := s.sweep(); err != nil {
		unlock()
		return nil, fmt.Errorf("removing what an earlier run left behind: %w", err)
	}
	return unlock, nil
}

// lockFile returns the lock's file, locked against other processes.
func (s *Store) lockFile(ctx context.Context) (*flock.Flock, error) {
	f := flock.New(s.path("lock"), flock.SetPermissions(0o644))
	got, err := f.TryLock()
	if err == nil && !got {
		s.say("waiting for another pvabi%s, which is filling %s", holder(f), s.dir)
		_, err = f.TryLockContext(ctx, lockPeriod)
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", f.Path(), err)
	}
	return f, nil
}

// lockPeriod is how often one that waits for the lock looks whether it is free.
const lockPeriod = 100 * time.Millisecond

// holder reads who has the lock, for a message. It may not have written that yet.
func holder(f *flock.Flock) string {
	pid, _ := os.ReadFile(f.Path())
	if len(pid) == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %s)", pid)
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

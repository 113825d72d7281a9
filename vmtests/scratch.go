package vmtests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/gofrs/flock"
)

// A guest's files are in a folder in $TMPDIR while it runs. The folder is locked
// (flock(2), which ends with the process): one that is not was left behind by a
// process that was killed, and is removed by the next that needs one.

const scratchPattern = "pvabi-guest-*"

var scratchName = regexp.MustCompile(`^pvabi-guest-[0-9]+$`)

// scratch makes such a folder. remove removes it.
func scratch() (dir string, remove func(), err error) {
	sweep()
	for {
		if dir, err = os.MkdirTemp("", scratchPattern); err != nil {
			return "", nil, fmt.Errorf("a folder for the guest's files: %w; set TMPDIR to a folder that can be written", err)
		}
		lock, err := lockFolder(dir)
		if err == nil {
			return dir, func() {
				_ = os.RemoveAll(dir)
				_ = lock.Close()
			}, nil
		}
		// Another process swept it away before it was locked.
		if !errors.Is(err, errTaken) {
			_ = os.RemoveAll(dir)
			return "", nil, fmt.Errorf("lock the folder for the guest's files: %w; set TMPDIR to a folder on a local disk", err)
		}
	}
}

// sweep removes the folders that nobody has locked. What cannot be removed is
// somebody else's.
func sweep() {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !scratchName.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(os.TempDir(), e.Name())
		if lock, err := lockFolder(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}

var errTaken = errors.New("somebody else has it")

// lockFolder locks a folder until the lock that it returns is closed. The error is
// errTaken if it is locked, or no longer there.
func lockFolder(dir string) (*flock.Flock, error) {
	lock := flock.New(dir, flock.SetFlag(os.O_RDONLY))
	got, err := lock.TryLock()
	if errors.Is(err, os.ErrNotExist) || err == nil && !got {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	locked, lockedErr := lock.Stat()
	there, thereErr := os.Stat(dir)
	if lockedErr != nil || thereErr != nil || !os.SameFile(locked, there) {
		return nil, errors.Join(errTaken, lock.Close())
	}
	return lock, nil
}

// roomy adds what to do about a $TMPDIR that is too small. Programs that were run
// tell of it in words only.
func roomy(err error) error {
	if errors.Is(err, syscall.ENOSPC) || err != nil && strings.Contains(err.Error(), "no space left on device") {
		return fmt.Errorf("%w; make room in %s, or set TMPDIR to a folder on another disk", err, os.TempDir())
	}
	return err
}

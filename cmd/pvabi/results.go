package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"pvabi/vmtests"
)

// results is the name of the report in the folder for results.
const results = "results.json"

// claim makes the folder for results and takes it for this process alone, until the
// lock that it returns is closed. What an earlier run of the targets left there, and the
// files that it is to write, go: they must not be taken for this one's, whatever becomes of that.
func claim(dir string, targets []vmtests.Target, files ...string) (*flock.Flock, error) {
	if dir == "" {
		return nil, errors.New("-o wants the name of a folder")
	}
	failed := func(err error) error {
		return fmt.Errorf("the folder for results: %w; name another one by -o", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, failed(err)
	}
	folder := flock.New(dir, flock.SetFlag(os.O_RDONLY))
	// Not every system has locks on folders; without, nobody else is noticed.
	if got, err := folder.TryLock(); err == nil && !got {
		return nil, failed(fmt.Errorf("another pvabi writes to %s", dir))
	}
	var (
		stale []string
		err   error
	)
	for _, f := range files {
		stale = append(stale, filepath.Join(dir, f))
	}
	for _, t := range targets {
		stale = append(stale, t.Console(dir))
	}
	for _, name := range stale {
		if e := os.Remove(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	// Better now than after minutes of checks.
	if probe, e := os.CreateTemp(dir, temporary); e != nil {
		err = errors.Join(err, e)
	} else {
		err = errors.Join(err, probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		return nil, errors.Join(failed(err), folder.Close())
	}
	return folder, nil
}

// temporary is the pattern for names of files that become the report.
const temporary = "." + results + "-*"

// save has a file written into a folder, where it appears whole or not at all.
func save(write func(io.Writer) error, dir, name string) (err error) {
	f, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the results: %w", errors.Join(err, os.Remove(f.Name())))
		}
	}()
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

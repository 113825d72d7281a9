package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// question asks the archive for one artefact.
type question struct {
	what string // for messages: "kernel for s390x"
	// key are the words that tell the question from others.
	key []string
	// suite and arch name the package index to look in, in Debian's words.
	suite, arch string
	// version is what was asked for, or empty.
	version string
	// look returns possible answers in the order in which they are tried.
	look func(context.Context, *archive) ([]*answer, error)
	// complete adds what is known only of unpacked parts. It may be nil.
	complete func(*answer, []*manifest) error
}

func (q question) file() string {
	return strings.ReplaceAll(strings.Join(q.key, "_"), ":", "%3a") + ".json"
}

// answer says which packages are the artefact.
type answer struct {
	Schema int `json:"schema"`
	// Looked is when the archive was asked, Next when it is to be asked again.
	Looked time.Time `json:"looked"`
	Next   time.Time `json:"next"`
	// Exact answers ask for one package version, and never age.
	Exact bool `json:"exact"`
	// Version is that of the package that gives the artefact its name.
	Version string `json:"version"`
	// Release is a kernel's "uname -r".
	Release string `json:"release,omitempty"`
	Parts   []part `json:"parts"`
	// Root is a folder of links to libraries and modules, relative to the store,
	// with the links' names and what they say. Only a QEMU has one.
	Root    string            `json:"root,omitempty"`
	Links   map[string]string `json:"links,omitempty"`
	Modules map[string]string `json:"modules,omitempty"`
}

const answerSchema = 1

// The ages at which the archive is asked again: after an answer, and after a
// failure to get a newer one.
const (
	answerAge = 24 * time.Hour
	retryAge  = time.Hour
)

// packages lists the packages of an answer.
func (a *answer) packages() []Package {
	out := make([]Package, len(a.Parts))
	for i, p := range a.Parts {
		out[i] = p.Package
	}
	return out
}

// current tells whether the answer still counts without asking the archive. One
// from the future was given under a wrong clock.
func (s *Store) current(a *answer) bool {
	if s.Refresh && a.Looked.Before(s.opened) {
		return false
	}
	now := s.now()
	return a.Exact || (now.Before(a.Next) && !now.Add(answerAge).Before(a.Next))
}

// recall returns the saved answer, or nil. What cannot be read counts as none:
// the archive will be asked.
func (s *Store) recall(q question) *answer {
	data, err := os.ReadFile(s.path("resolved", q.file()))
	if err != nil {
		return nil
	}
	a := new(answer)
	if json.Unmarshal(data, a) != nil || a.Schema != answerSchema || len(a.Parts) == 0 {
		return nil
	}
	return a
}

// save writes the answer. The lock must be held.
func (s *Store) save(q question, a *answer) error {
	data, err := json.MarshalIndent(a, "", "\t")
	if err != nil {
		return err
	}
	tmp := s.path("tmp", q.file())
	if err := os.MkdirAll(s.path("resolved"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(tmp, append(data, '\n'), 0o644); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, s.path("resolved", q.file()))
}

// whole checks all files of an answer and returns the parts' manifests.
func (s *Store) whole(ctx context.Context, a *answer) ([]*manifest, error) {
	manifests := make([]*manifest, len(a.Parts))
	for i, p := range a.Parts {
		m, err := s.check(ctx, p)
		if err != nil {
			return nil, err
		}
		manifests[i] = m
	}
	return manifests, s.checkRoot(a)
}

// obtain answers a question: from the store if it can, else from the archive.
func (s *Store) obtain(ctx context.Context, q question) (*answer, []*manifest, error) {
	if a := s.recall(q); a != nil && s.current(a) {
		if manifests, err := s.whole(ctx, a); err == nil {
			return a, manifests, nil
		}
	}
	a, manifests, err := s.fetch(ctx, q)
	s.progress.Doing("", -1)
	if err != nil {
		return nil, nil, fmt.Errorf("store: %s: %w", q.what, remedy(s.dir, err))
	}
	return a, manifests, nil
}

// fetch is obtain's way through the archive, one process at a time.
func (s *Store) fetch(ctx context.Context, q question) (*answer, []*manifest, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return s.keepOld(ctx, q, s.recall(q), err)
	}
	defer unlock()

	// Another process may have answered meanwhile.
	old := s.recall(q)
	if old != nil && s.current(old) {
		manifests, err := s.mend(ctx, q, old)
		if err == nil || !errors.Is(err, errGone) {
			return old, manifests, err
		}
	}
	a, manifests, err := s.ask(ctx, q)
	if err == nil {
		return a, manifests, nil
	}
	a, manifests, err = s.keepOld(ctx, q, old, err)
	if err != nil {
		return nil, nil, err
	}
	a.Next = s.now().Add(retryAge)
	if err := s.save(q, a); err != nil {
		s.say("%s: cannot note when to look again: %v", q.what, err)
	}
	return a, manifests, nil
}

// keepOld returns an old answer when a failure keeps the store from getting a
// new one, and the failure where there is no old answer that is whole, or where
// a new one was demanded.
func (s *Store) keepOld(ctx context.Context, q question, old *answer, failure error) (*answer, []*manifest, error) {
	if old == nil || s.Refresh || ctx.Err() != nil {
		return nil, nil, failure
	}
	manifests, err := s.whole(ctx, old)
	if err != nil {
		return nil, nil, failure
	}
	s.say("%s: cannot look for a newer one (%v); using %s, looked up on %s",
		q.what, failure, old.Version, old.Looked.Local().Format(time.DateTime))
	return old, manifests, nil
}

// mend fetches what is missing or damaged of an answer.
func (s *Store) mend(ctx context.Context, q question, a *answer) ([]*manifest, error) {
	manifests, err := s.whole(ctx, a)
	if err == nil || ctx.Err() != nil {
		return manifests, err
	}
	ar := &archive{store: s, suite: q.suite, arch: q.arch}
	if err := s.fill(ctx, ar, a.Parts); err != nil {
		return nil, err
	}
	if err := s.makeRoot(a); err != nil {
		return nil, err
	}
	return s.whole(ctx, a)
}

// ask looks an artefact up in the archive, fetches it and saves the answer.
func (s *Store) ask(ctx context.Context, q question) (*answer, []*manifest, error) {
	ar := &archive{store: s, suite: q.suite, arch: q.arch}
	for {
		a, manifests, err := s.choose(ctx, q, ar)
		if err == nil {
			return a, manifests, s.save(q, a)
		}
		// All that an older index names may be gone since: look at a new one.
		if !errors.Is(err, errGone) || ar.updated || ctx.Err() != nil {
			return nil, nil, err
		}
		if err := ar.update(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// choose takes the first answer whose files can really be had.
func (s *Store) choose(ctx context.Context, q question, ar *archive) (*answer, []*manifest, error) {
	candidates, err := q.look(ctx, ar)
	if err != nil {
		return nil, nil, err
	}
	var gone error
	for _, a := range candidates {
		if gone != nil {
			s.say("%s: %v; trying %s", q.what, gone, a.Version)
		}
		if gone = s.fill(ctx, ar, a.Parts); errors.Is(gone, errGone) {
			continue
		} else if gone != nil {
			return nil, nil, gone
		}
		a.Schema, a.Exact = answerSchema, a.Version == q.version
		a.Looked = s.now()
		a.Next = a.Looked.Add(answerAge)
		manifests, err := s.whole(ctx, a)
		if err == nil && q.complete != nil {
			err = q.complete(a, manifests)
		}
		if err == nil {
			err = s.makeRoot(a)
		}
		if err != nil {
			return nil, nil, err
		}
		return a, manifests, nil
	}
	return nil, nil, gone
}

// fill fetches and unpacks those of the parts that are not whole in the store.
// The lock must be held.
func (s *Store) fill(ctx context.Context, ar *archive, parts []part) error {
	var missing []part
	for _, p := range parts {
		_, err := s.check(ctx, p)
		var bad *damage
		switch {
		case err == nil:
			continue
		case errors.As(err, &bad):
			s.say("%v: fetching %s again", err, p.Name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		missing = append(missing, p)
	}
	if len(missing) == 0 {
		return nil
	}
	work, err := os.MkdirTemp(s.path("tmp"), "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := ar.download(ctx, missing, work); err != nil {
		return err
	}
	for i, p := range missing {
		s.progress.Doing("unpacking "+several(missing), float64(i)/float64(len(missing)))
		deb := filepath.Join(work, p.fileStem()+".deb")
		fresh := filepath.Join(work, "unpacked")
		if err := unpackDeb(ctx, deb, p, fresh); err != nil {
			return fmt.Errorf("unpacking %s: %w", p.Package, err)
		}
		if err := os.Remove(deb); err != nil {
			return err
		}
		if err := s.place(fresh, p.dir()); err != nil {
			return err
		}
	}
	return nil
}

// place moves a new folder to its name in the store. What was there is moved
// out of the way first; a process that dies in between leaves a folder missing,
// which the next one fetches.
func (s *Store) place(fresh, dir string) error {
	to := s.path(dir)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	old := fresh + ".old"
	if err := os.Rename(to, old); err == nil {
		defer os.RemoveAll(old)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, to)
}

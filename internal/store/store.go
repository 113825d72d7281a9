// Package store keeps what a virtual machine boots from: kernels with their
// modules, QEMU, firmware, Xen. It takes them out of Debian's archive once and has
// them ready from then on, without root and without the network.
//
// # The archive
//
// apt does the fetching, because apt knows the archive's formats and verifies
// its signatures. It runs with a state, sources and cache of its own inside the
// store, and for whichever architecture is wanted; the machine's own apt state
// is neither changed nor locked. Only the machine's settings (proxies,
// credentials, the address of its Debian mirror) are read.
// PVABI_DEBIAN_MIRROR replaces that address.
//
// # The folder
//
//	lock                                 held (flock) by whoever changes the store
//	tmp/                                 work of the lock's holder
//	apt/SUITE_ARCH/                      apt's state, kept for an hour
//	packages/PART/NAME_VERSION_ARCH/     a part of one unpacked Debian package
//	    manifest.json                    what was kept: sizes and SHA-256
//	roots/EMULATOR_VERSION_ARCH-DIGEST/  a QEMU's libraries: links into packages/
//	resolved/*.json                      which packages answer which question
//
// A package's version never changes its content in Debian, so a folder under
// packages/ is written once. Folders and files are made in tmp/ and renamed into
// place, the answer in resolved/ last: a process that dies at any moment leaves
// at worst something in tmp/, which the next holder of the lock removes.
// Readers need no lock.
//
// # Answers
//
// A question is "the kernel of suite forky for s390x"; its answer, the newest
// packages that could really be had, serves for a day. After that the store
// asks the archive again and, when that fails, goes on with what it has and
// says so. A question for one exact package version has one answer for ever.
// With [Store.Refresh] all is asked anew.
//
// Every answer's files are held against their manifests each time it is used. A
// file that differs is fetched again.
package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Suite is Debian's suite that artefacts come from where none is named.
const Suite = "forky"

// debianKeyring has the keys that Debian signs its archive with.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Store is a folder of artefacts. Its methods can be called at the same time by
// several goroutines, and several processes can share the folder.
type Store struct {
	// Refresh has every artefact looked up in the archive anew, once, however
	// fresh the store's own answer is. It must be set before the first use.
	Refresh bool

	dir      string
	progress Progress
	opened   time.Time
	now      func() time.Time
	// keyring holds the archive's keys; trust is the option of the sources list
	// that names it. Tests, whose archives nobody signed, change them.
	keyring, trust string

	// turn is taken by the goroutine that has the lock, or waits for it.
	turn chan struct{}

	mu        sync.Mutex
	unreached error     // why the archive could not be reached
	retry     time.Time // when to try again
}

// Package names one Debian package that an artefact was taken from.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Arch is Debian's name of the architecture, or "all".
	Arch string `json:"arch"`
	// SHA256 is the hash of the package file in lower-case hexadecimal, as the
	// archive's signed index gives it.
	SHA256 string `json:"sha256"`
}

// String renders the package as "name version arch".
func (p Package) String() string { return p.Name + " " + p.Version + " " + p.Arch }

// DefaultDir is the folder of the store where the caller names none: PVABI_CACHE,
// or pvabi in the user's cache folder ($XDG_CACHE_HOME, ~/.cache).
func DefaultDir() (string, error) {
	if dir := os.Getenv("PVABI_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("store: no folder for the cache: %w; set PVABI_CACHE to one", err)
	}
	return filepath.Join(dir, "pvabi"), nil
}

// Open opens the store in dir, for none in DefaultDir; it is made where it does not exist. A
// nil progress keeps silent.
func Open(dir string, progress Progress) (*Store, error) {
	if dir == "" {
		var err error
		if dir, err = DefaultDir(); err != nil {
			return nil, err
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store: open %s: %w", dir, err)
	}
	// What apt's configuration (quotes, backslashes, control characters) and the
	// dynamic linker's --library-path (the others, see ld.so(8)) cannot express.
	if strings.ContainsFunc(abs, func(r rune) bool { return r < ' ' || strings.ContainsRune("\"\\:;$", r) }) {
		return nil, fmt.Errorf("store: open %q: the path has a character that apt or the dynamic linker cannot handle; set PVABI_CACHE to a folder without quotes, backslashes, colons, semicolons and dollar signs", abs)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("store: open %s: %w; set PVABI_CACHE to a folder that can be written", dir, err)
	}
	if progress == nil {
		progress = silent{}
	}
	return &Store{
		dir:      abs,
		progress: progress,
		opened:   time.Now(),
		now:      time.Now,
		turn:     make(chan struct{}, 1),
		keyring:  debianKeyring,
		trust:    "signed-by=" + debianKeyring,
	}, nil
}

// Dir returns the store's folder, an absolute path.
func (s *Store) Dir() string { return s.dir }

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// say reports a line that stays.
func (s *Store) say(format string, args ...any) { s.progress.Say(fmt.Sprintf(format, args...)) }

// word is what a suite, flavour or version may look like. They become parts of
// file names, sources lists and apt's arguments.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~:-]*$`)

// checkWords refuses a specification with a field that is not a word. Fields
// come as name, value, name, value; empty values are left to defaults.
func checkWords(fields ...string) error {
	for i := 0; i < len(fields); i += 2 {
		if v := fields[i+1]; v != "" && !word.MatchString(v) {
			return fmt.Errorf("store: %s %q: want letters, digits and any of .+~:- only", fields[i], v)
		}
	}
	return nil
}

// ErrNone is part of the error where Debian's suite has nothing of what is asked for: it is not built for the
// architecture, lacks the package, or has other versions of it.
var ErrNone = errors.New("the archive has none")

// errGone is part of the error when the archive's index names a file that the
// archive no longer has, or not with that content.
var errGone = errors.New("the archive does not have it as listed")

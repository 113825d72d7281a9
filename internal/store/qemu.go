package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// QEMUSpec says which QEMU is wanted.
type QEMUSpec struct {
	GOARCH string // of the guest
	// Suite is Debian's; the default is [Suite].
	Suite string
	// Version narrows the choice to package versions that begin with it: "11.1".
	// The default is the newest that can be had.
	Version string
}

// QEMU is an emulator for one architecture of guests.
type QEMU struct {
	GOARCH string // of the guest
	// Version is what the program itself says: "11.1.2".
	Version string
	// Command starts it: the program and the arguments that it needs to find its
	// libraries and data. A user's own arguments go after them.
	Command []string
	// Program is the emulator's own file, whose hash SHA256 is. Command begins with
	// another one where the program runs with a dynamic linker of its own.
	Program string
	// Env has environment variables, "NAME=value", to run it with.
	Env []string
	// SHA256 is Program's, in lower-case hexadecimal.
	SHA256 string
	// Firmware goes with -bios; it is nil where the guest needs none, or none is
	// known.
	Firmware *Firmware
	// Packages are those that it was taken from; none for one of the user's.
	Packages []Package
}

// What is kept of QEMU's packages: shared libraries that lie where the dynamic
// linker looks, and data without UEFI for other machines than the store's guests.
const (
	keepLibraries = `^(usr/)?lib(64)?/([^/]+-linux-[^/]+/)?[^/]+\.so[^/]*$`
	keepData      = `^usr/share/(qemu|seabios)/`
)

// Debian's QEMU 7.2 for x86 has TCG in modules of its own, which another package has; 10.0 has not.
const (
	modular      = "1:10"
	modulesOwner = "qemu-system-common"
	keepModules  = `^usr/lib/[^/]+/qemu/accel-tcg-[^/]+\.so$`
)

// QEMU returns an emulator with all that it needs, fetched where the store does
// not have it. It runs with its own dynamic linker and libraries, so that the
// host's may be of any age.
func (s *Store) QEMU(ctx context.Context, spec QEMUSpec) (*QEMU, error) {
	q, err := s.unpackedQEMU(ctx, spec)
	if err != nil {
		return nil, err
	}
	if q.Version, err = version(ctx, q); err != nil {
		return nil, err
	}
	q.Firmware, err = s.Firmware(ctx, FirmwareSpec{GOARCH: spec.GOARCH, Suite: spec.Suite})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// unpackedQEMU is QEMU before it was run.
func (s *Store) unpackedQEMU(ctx context.Context, spec QEMUSpec) (*QEMU, error) {
	arch, err := guest(spec.GOARCH)
	if err != nil {
		return nil, err
	}
	debian, err := host()
	if err != nil {
		return nil, err
	}
	spec.Suite = cmp.Or(spec.Suite, Suite)
	if err := checkWords("suite", spec.Suite, "version", spec.Version); err != nil {
		return nil, err
	}
	a, manifests, err := s.obtain(ctx, question{
		what:    fmt.Sprintf("QEMU of Debian %s for %s", spec.Suite, spec.GOARCH),
		key:     []string{arch.emulator, spec.Suite, debian, cmp.Or(spec.Version, "newest")},
		suite:   spec.Suite,
		arch:    debian,
		version: spec.Version,
		look: func(ctx context.Context, ar *archive) ([]*answer, error) {
			return lookForQEMU(ctx, ar, arch, spec)
		},
		complete: func(a *answer, manifests []*manifest) error {
			return s.linkLibraries(a, manifests, arch)
		},
	})
	if err != nil {
		return nil, err
	}
	program, sum := s.program(manifests, arch)
	loader, err := interpreter(program)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	libs := s.path(a.Root, libFolder)
	q := &QEMU{
		GOARCH: spec.GOARCH,
		Command: []string{
			filepath.Join(libs, path.Base(loader)), "--library-path", libs, "--argv0", arch.emulator, program,
		},
		Program: program,
		// QEMU also looks for modules where it was built to be installed, and
		// there may be those of another version.
		Env:      []string{"QEMU_MODULE_DIR=" + s.path(a.Root, moduleFolder)},
		SHA256:   sum,
		Packages: a.packages(),
	}
	for _, m := range manifests {
		for _, dir := range dataFolders(m) {
			q.Command = append(q.Command, "-L", s.path(m.Part.dir(), dir))
		}
	}
	return q, nil
}

// lookForQEMU lists the versions of the emulator's package, the newest first,
// each with its libraries and data.
func lookForQEMU(ctx context.Context, ar *archive, arch *architecture, spec QEMUSpec) ([]*answer, error) {
	for _, name := range arch.providers {
		records, err := ar.show(ctx, name)
		if err != nil {
			return nil, err
		}
		var out []*answer
		for _, r := range records {
			if !satisfies(r.Version, spec.Version) {
				continue
			}
			a, err := qemuParts(ctx, ar, arch, r)
			if err != nil && len(out) > 0 {
				break // an older one, whose libraries are no longer listed
			} else if err != nil {
				return nil, err
			}
			out = append(out, a)
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, fmt.Errorf("%w: no package %s%s", ErrNone, strings.Join(arch.providers, " or "), wished(spec.Version))
}

func qemuParts(ctx context.Context, ar *archive, arch *architecture, emulator record) (*answer, error) {
	closure, err := ar.closure(ctx, append([]string{emulator.Name + "=" + emulator.Version}, arch.data...)...)
	if err != nil {
		return nil, err
	}
	a := &answer{Version: emulator.Version, Parts: []part{{
		Package: emulator.Package, Folder: arch.emulator, Size: emulator.Size,
		Keep: "^usr/bin/" + regexp.QuoteMeta(arch.emulator) + "$",
	}}}
	for _, r := range closure {
		if slices.Contains(arch.data, r.Name) {
			a.Parts = append(a.Parts, part{Package: r.Package, Folder: "data", Keep: keepData, Size: r.Size})
		}
		if r.Name == modulesOwner && compareVersions(emulator.Version, modular) < 0 {
			a.Parts = append(a.Parts, part{Package: r.Package, Folder: "modules", Keep: keepModules, Size: r.Size})
		}
	}
	for _, r := range libraries(closure, emulator.Name) {
		a.Parts = append(a.Parts, part{Package: r.Package, Folder: "library", Keep: keepLibraries, Size: r.Size})
	}
	return a, nil
}

// In a QEMU's root: the folders of the links to its libraries and to its modules.
const (
	libFolder    = "lib"
	moduleFolder = "modules"
)

// program returns path and hash of an answer's emulator.
func (s *Store) program(manifests []*manifest, arch *architecture) (path, sum string) {
	for _, m := range manifests {
		if f, ok := m.find("usr/bin/" + arch.emulator); ok {
			return s.path(m.Part.dir(), f.Path), f.SHA256
		}
	}
	return "", ""
}

// linkLibraries finds the libraries that the emulator needs, and those need, and
// gives the answer a root with one link for each. Parts that turn out not to be
// needed are taken off the answer.
func (s *Store) linkLibraries(a *answer, manifests []*manifest, arch *architecture) error {
	program, _ := s.program(manifests, arch)
	if program == "" {
		return fmt.Errorf("package %v has no %s", a.Parts[0].Package, arch.emulator)
	}
	// Where each library is, by the name that programs know it by.
	type library struct {
		part part
		path string // relative to the store
	}
	have := make(map[string]library)
	var modules []string // relative to the store
	for _, m := range manifests {
		for _, f := range m.Files {
			at := path.Join(m.Part.dir(), f.Path)
			switch m.Part.Keep {
			case keepLibraries:
				have[path.Base(f.Path)] = library{m.Part, at}
			case keepModules:
				modules = append(modules, at)
			}
		}
	}
	loader, err := interpreter(program)
	if err != nil {
		return err
	}
	needs, err := needed(program)
	if err != nil {
		return err
	}
	// Libraries that a module needs and the program does not are not looked for: TCG's has none.
	a.Modules = nil
	for _, m := range modules {
		if a.Modules == nil {
			a.Modules = make(map[string]string)
		}
		a.Modules[path.Base(m)] = path.Join("../../..", m) // from roots/NAME/modules
	}
	used := make(map[part]bool)
	links := make(map[string]string)
	for todo := append(needs, path.Base(loader)); len(todo) > 0; todo = todo[1:] {
		name := todo[0]
		if links[name] != "" {
			continue
		}
		l, ok := have[name]
		if !ok {
			return fmt.Errorf("%s %s needs the library %s, which none of its packages has", arch.emulator, a.Version, name)
		}
		links[name] = path.Join("../../..", l.path) // from roots/NAME/lib
		used[l.part] = true
		more, err := needed(s.path(l.path))
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	a.Parts = slices.DeleteFunc(a.Parts, func(p part) bool { return p.Keep == keepLibraries && !used[p] })
	a.Links = links
	linked := []map[string]string{links}
	if a.Modules != nil {
		linked = append(linked, a.Modules)
	}
	var names []byte
	for _, l := range linked {
		sorted, err := json.Marshal(l)
		if err != nil {
			return err
		}
		names = append(names, sorted...)
	}
	digest := sha256.Sum256(names)
	stem := part{Package: Package{arch.emulator, a.Version, a.Parts[0].Arch, ""}}.fileStem()
	a.Root = path.Join("roots", stem+"-"+hex.EncodeToString(digest[:6]))
	return nil
}

// checkRoot holds the links of an answer's root against the answer.
func (s *Store) checkRoot(a *answer) error {
	if a.Root == "" {
		return nil
	}
	if _, err := os.Stat(s.path(a.Root, moduleFolder)); err != nil {
		return err
	}
	for dir, links := range a.linkedIn() {
		for name, want := range links {
			link := s.path(a.Root, dir, name)
			if got, err := os.Readlink(link); errors.Is(err, fs.ErrNotExist) {
				return &damage{link, "missing"}
			} else if err != nil {
				return err
			} else if got != want {
				return &damage{link, "a link to " + got + ", want " + want}
			}
		}
	}
	return nil
}

// linkedIn are the links in a QEMU's root by the folder that they are in.
func (a *answer) linkedIn() map[string]map[string]string {
	return map[string]map[string]string{libFolder: a.Links, moduleFolder: a.Modules}
}

// makeRoot makes an answer's root unless it is there. The lock must be held.
func (s *Store) makeRoot(a *answer) error {
	if a.Root == "" || s.checkRoot(a) == nil {
		return nil
	}
	fresh, err := os.MkdirTemp(s.path("tmp"), "root-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	for dir, links := range a.linkedIn() {
		if err := os.Mkdir(filepath.Join(fresh, dir), 0o755); err != nil {
			return err
		}
		for name, to := range links {
			if err := os.Symlink(to, filepath.Join(fresh, dir, name)); err != nil {
				return err
			}
		}
	}
	return s.place(fresh, a.Root)
}

// dataFolders lists the folders of a data package that QEMU's -L names.
func dataFolders(m *manifest) []string {
	if m.Part.Keep != keepData {
		return nil
	}
	var out []string
	for _, f := range m.Files {
		// usr/share/NAME/...
		if dir := strings.Join(strings.SplitN(f.Path, "/", 4)[:3], "/"); !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// interpreter returns the path of the dynamic linker that a program asks for.
func interpreter(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", program, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, min(p.Filesz, 4096))
			if _, err := p.ReadAt(name, 0); err != nil {
				return "", fmt.Errorf("reading %s: %w", program, err)
			}
			return strings.TrimRight(string(name), "\x00"), nil
		}
	}
	return "", fmt.Errorf("%s names no dynamic linker", program)
}

// needed returns the names of the libraries that a program or library was
// linked with.
func needed(name string) ([]string, error) {
	f, err := elf.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return libs, nil
}

// versionLine is what QEMU's --version begins with.
var versionLine = regexp.MustCompile(`^QEMU emulator version ([0-9][^ \n]*)`)

// versionTime is what a program may take to tell its version: one that takes longer
// does something else.
const versionTime = 30 * time.Second

// version asks a QEMU for its version, which also proves that it runs here.
func version(ctx context.Context, q *QEMU) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd, release := command(bounded, q.Command[0], append(slices.Clone(q.Command[1:]), "--version")...)
	defer release()
	cmd.Env = append(cmd.Env, q.Env...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if bounded.Err() != nil {
		return "", fmt.Errorf("store: %s is no QEMU system emulator: it does not answer --version within %v", q.Command[0], versionTime)
	}
	if err != nil {
		return "", fmt.Errorf("store: %s does not run here: %w: %s", q.Command[0], err, strings.TrimSpace(string(out)))
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("store: %s is no QEMU system emulator: --version says %q", q.Command[0], strings.TrimSpace(string(out)))
	}
	return string(m[1]), nil
}

// InstalledQEMU finds the emulator that is installed on this machine, and its
// firmware where the guest needs one that is installed. The error is
// exec.ErrNotFound where there is none.
func InstalledQEMU(ctx context.Context, goarch string) (*QEMU, error) {
	arch, err := guest(goarch)
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath(arch.emulator)
	if err != nil {
		return nil, fmt.Errorf("store: %w; as root: apt-get install %s", err, arch.providers[0])
	}
	q, err := QEMUFile(ctx, goarch, program)
	if err != nil || arch.firmware.file == "" {
		return q, err
	}
	file := "/" + arch.firmware.file
	if sum, err := SHA256(file); err == nil {
		q.Firmware = &Firmware{Path: file, SHA256: sum}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store: %w", err)
	}
	return q, nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// QEMUFile takes a program of the user's own for the emulator of an
// architecture, with the firmware in a folder pc-bios beside it, if there is one. Whether it
// emulates that architecture is found out by booting.
func QEMUFile(ctx context.Context, goarch, program string) (*QEMU, error) {
	if _, err := guest(goarch); err != nil {
		return nil, err
	}
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	sum, err := SHA256(program)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	q := &QEMU{GOARCH: goarch, Command: []string{program}, Program: program, SHA256: sum}
	// A build of QEMU has its firmware there (configure, pc-bios).
	if firmware := filepath.Join(filepath.Dir(program), "pc-bios"); isDir(firmware) {
		q.Command = append(q.Command, "-L", firmware)
	}
	q.Version, err = version(ctx, q)
	if err != nil {
		return nil, err
	}
	return q, nil
}

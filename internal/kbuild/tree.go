// Package kbuild reads what the build of a Linux kernel leaves behind: in a tree the kernel, its
// modules and its configuration, and the configuration wherever else a kernel has it.
package kbuild

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is a folder that a kernel was built in: a source tree, or the folder of make O=.
type Tree struct {
	Dir string
	// GOARCH is what the tree is configured for.
	GOARCH string
	// Release is what uname -r prints on the kernel that was built last.
	Release string
	// Kernel is the file to boot.
	Kernel string
	// Modules is the folder to find modules in: Dir, or empty where the kernel takes none or
	// none were built.
	Modules string
	Config  Config
}

// The files of a tree that tell of its build.
const (
	configFile  = ".config"
	releaseFile = "include/config/kernel.release"
	orderFile   = "modules.order"
)

// ErrNoBuild is wrapped by errors about a folder in which no kernel was built.
var ErrNoBuild = errors.New("no kernel was built there")

// built are the architectures of targets: the option that selects one, and the files that its
// build makes a kernel of, the one to boot first.
var built = []struct {
	goarch, option string
	kernels        []string
}{
	{"amd64", "X86_64", []string{"arch/x86/boot/bzImage", "vmlinux"}},
	{"ppc64le", "PPC64", []string{"vmlinux"}},
	// vmlinux cannot be booted: what moves it into place is not in it.
	{"s390x", "S390", []string{"arch/s390/boot/bzImage"}},
	{"loong64", "LOONGARCH", []string{"arch/loongarch/boot/vmlinuz.efi", "arch/loongarch/boot/vmlinux.efi", "vmlinux"}},
}

// Open looks at a build tree. The error wraps [ErrNoBuild] where none was made, and says what to do.
func Open(dir string) (*Tree, error) {
	none := func(what string) error {
		return fmt.Errorf("%s: %w: %s; run make there, or give the folder of make O=", dir, ErrNoBuild, what)
	}
	f, err := os.Open(filepath.Join(dir, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, none("it has no " + configFile)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &Tree{Dir: dir}
	if t.Config, err = ParseConfig(f); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	release, err := os.ReadFile(filepath.Join(dir, releaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, none("it has no " + releaseFile)
	}
	if err != nil {
		return nil, err
	}
	t.Release = strings.TrimSpace(string(release))
	i := slices.IndexFunc(built, func(a struct {
		goarch, option string
		kernels        []string
	}) bool {
		return t.Config.On(a.option)
	})
	if i < 0 {
		return nil, fmt.Errorf("%s is configured for an architecture that no target is of", dir)
	}
	t.GOARCH = built[i].goarch
	if t.Kernel, err = t.kernel(built[i].kernels); err != nil {
		return nil, err
	}
	if t.Kernel == "" {
		return nil, none("it has none of " + strings.Join(built[i].kernels, ", "))
	}
	if exists(filepath.Join(dir, orderFile)) {
		t.Modules = dir
	}
	return t, nil
}

// Source is the folder with the sources of a tree: dir itself, unless that is one of make O=, which
// leaves a link to them there.
func Source(dir string) string {
	if source := filepath.Join(dir, "source"); exists(filepath.Join(source, "Kbuild")) {
		return source
	}
	return dir
}

// kernel is the first of the files that there is. All of them are made of vmlinux, so that one that
// is older is of an earlier build.
func (t *Tree) kernel(names []string) (string, error) {
	for _, name := range names {
		file := filepath.Join(t.Dir, name)
		info, err := os.Stat(file)
		if err != nil {
			continue
		}
		whole, err := os.Stat(filepath.Join(t.Dir, "vmlinux"))
		if err == nil && info.ModTime().Before(whole.ModTime()) {
			return "", fmt.Errorf("%s is older than the vmlinux of the same tree: the build did not come to its end; run make again", file)
		}
		return file, nil
	}
	return "", nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

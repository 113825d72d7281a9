package kmod

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pvabi/internal/decompress"
)

// versionSections hold the checksums of the kernel's interfaces that a module was built for
// (kernel/module/version.c). The first entry is that of struct module itself.
var versionSections = []string{"__versions", "__version_ext_crcs", "__version_ext_names"}

// What a sibling may have, so that nobody's file has us use up all memory: the largest
// struct module has about 2 KiB, the checksums of a large module 100 KiB.
const (
	maxStruct   = 64 << 10
	maxVersions = 4 << 20
	maxSibling  = 128 << 20
)

// Release is the kernel's release, as uname -r prints it.
func (k *Kernel) Release() string {
	release, _, _ := strings.Cut(k.Vermagic, " ")
	return release
}

// ParseSibling learns from a module, not compressed, what all modules of its kernel have in
// common. The module must be for goarch.
func ParseSibling(content []byte, goarch string) (*Kernel, error) {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("no kernel module: %w", err)
	}
	l, ok := layouts[goarch]
	if !ok {
		return nil, fmt.Errorf("kmod: no layout of modules for %s", goarch)
	}
	if f.Type != elf.ET_REL || f.Machine != l.machine || f.ByteOrder != l.order || f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("no kernel module for %s, but a file of %v for %v", goarch, f.Type, f.Machine)
	}
	k := &Kernel{Versions: map[string][]byte{}}
	this := f.Section(".gnu.linkonce.this_module")
	if this == nil {
		return nil, errors.New("no kernel module: it has no section .gnu.linkonce.this_module")
	}
	k.Size, k.Align = this.Size, max(this.Addralign, 1)
	if k.Size < moduleName+moduleNameLen || k.Size > maxStruct || k.Align > maxStruct || k.Align&(k.Align-1) != 0 {
		return nil, fmt.Errorf("a struct module of %d bytes, aligned to %d, cannot be", k.Size, k.Align)
	}
	info, err := read(f, ".modinfo", maxVersions)
	if err != nil {
		return nil, err
	}
	for line := range bytes.SplitSeq(info, []byte{0}) {
		if v, ok := bytes.CutPrefix(line, []byte("vermagic=")); ok {
			k.Vermagic = string(v)
		}
	}
	if k.Release() == "" {
		return nil, errors.New("no kernel module: its section .modinfo has no vermagic")
	}
	for _, name := range versionSections {
		content, err := read(f, name, maxVersions)
		if err != nil {
			return nil, err
		}
		if content != nil {
			k.Versions[name] = content
		}
	}
	// The places where a kernel with kCFI checks (kernel/cfi.c, module_cfi_finalize).
	if f.Section("__kcfi_traps") != nil {
		return nil, Checked
	}
	return k, nil
}

// read returns the content of a section, nil if there is none.
func read(f *elf.File, name string, limit uint64) ([]byte, error) {
	s := f.Section(name)
	if s == nil {
		return nil, nil
	}
	if s.Type == elf.SHT_NOBITS || s.Size > limit || s.FileSize > limit {
		return nil, fmt.Errorf("section %s is no list of at most %d bytes", name, limit)
	}
	content, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", name, err)
	}
	return content, nil
}

// ReadSibling is ParseSibling for a file, decompressed as its name says.
func ReadSibling(name, goarch string) (*Kernel, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read a module of the kernel: %w", err)
	}
	defer f.Close()
	content, err := decompress.All(f, filepath.Ext(name), maxSibling)
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", name, err)
	}
	k, err := ParseSibling(content, goarch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return k, nil
}

// FindSibling learns from any module in a folder, usually /lib/modules/RELEASE, that is for
// the release of the kernel. The error is a NoSibling if there is none, and tells of the last
// module that was looked at.
func FindSibling(dir, release, goarch string) (*Kernel, error) {
	var found *Kernel
	var last error
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base, _, _ := strings.Cut(d.Name(), ".ko")
		ending := strings.TrimPrefix(d.Name(), base)
		if d.IsDir() || ending != ".ko" && !strings.HasPrefix(ending, ".ko.") {
			return nil
		}
		k, err := ReadSibling(name, goarch)
		switch {
		case errors.Is(err, Checked):
			return err
		case err != nil:
			last = err
			return nil
		case k.Release() != release:
			last = fmt.Errorf("%s is of release %s", name, k.Release())
			return nil
		}
		found = k
		return fs.SkipAll
	})
	switch {
	case found != nil:
		return found, nil
	case errors.Is(err, Checked):
		return nil, err
	case err != nil:
		last = err
	case last == nil:
		last = errors.New("no file in it ends in .ko, .ko.xz, .ko.zst or .ko.gz")
	}
	return nil, fmt.Errorf("%w: %s: %w; install the kernel's modules, or name a file of one", NoSibling, dir, last)
}

// Package initramfs makes what a target boots: the root file system with the
// agent and the kernel modules that it needs, and it looks into kernel files.
//
// An image is an uncompressed cpio archive in the newc format. It holds
//
//	init                              the agent, a static binary
//	dev/console, dev/null             what a process needs before /dev is mounted
//	lib/modules/RELEASE/**/NAME.ko    modules and what they depend on, decompressed
//	lib/modules/RELEASE/modules.dep   which module needs which, as depmod writes it
//
// and nothing that depends on when, where or by whom it was made: the same
// inputs give the same bytes. Modules are stored decompressed, and so is the
// archive, because a guest under emulation decompresses five times slower than
// it copies.
//
// Package agent, a folder below, is the program that runs inside.
package initramfs

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/mkuimage/cpio"
)

// Config says what an image is made of.
type Config struct {
	// Agent is the file of the static binary that becomes /init.
	Agent string
	// GOARCH is the architecture of the guest. Agent and modules must be for it.
	GOARCH string
	// Release is the kernel's release, as uname -r prints it. Modules must have
	// been built for it.
	Release string
	// Modules is the folder of the kernel's modules: lib/modules/RELEASE of the
	// system that the kernel comes from, or the tree that it was built in. It is
	// not read when Load is empty.
	Modules string
	// Load names the modules that the guest is to load. What they depend on is
	// found. Underscore and hyphen in a name are the same.
	Load []string
	// May names further modules, which come first. Those that the folder does not
	// have are left out: the kernel may have them built in.
	May []string
	// Replace are files of modules that stand in for those of the folder that have their names,
	// such as kvm.ko of an own build. The guest has to load each of them.
	Replace []string
	// Files are further files, executable, by their path in the image: "bin/x", and the files
	// that they are copied from.
	Files map[string]string
	// Path is where the image is written. The file appears complete or not at
	// all.
	Path string
}

// Image is an image that was built.
type Image struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`   // in bytes
	SHA256 string `json:"sha256"` // of the file, in hexadecimal
	// Modules are in an order in which they can be loaded.
	Modules []Module `json:"modules"`
}

// Module is a kernel module in an image.
type Module struct {
	Name   string `json:"name"`   // as the kernel calls it
	File   string `json:"file"`   // that it was read from
	Size   int64  `json:"size"`   // in bytes, decompressed
	SHA256 string `json:"sha256"` // of the decompressed module, in hexadecimal
}

// Names returns the names of the image's modules in the order in which they
// can be loaded.
func (i *Image) Names() []string {
	names := make([]string, len(i.Modules))
	for n, m := range i.Modules {
		names[n] = m.Name
	}
	return names
}

// Build writes the image that c describes.
//
// A module that the kernel has built in, according to the folder's
// modules.builtin, is left out. Errors wrap ErrModuleMissing or
// ErrOtherKernel where that is what is wrong.
func Build(c Config) (*Image, error) {
	agent, err := readAgent(c.Agent, c.GOARCH)
	if err != nil {
		return nil, err
	}
	var modules []*module
	if len(c.Load) > 0 || len(c.Replace) > 0 {
		modules, err = closure(c)
		if err != nil {
			return nil, err
		}
	}
	records := []cpio.Record{
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.CharDev("dev/null", 0o666, 1, 3),
		file("init", agent, 0o755),
	}
	for name, from := range c.Files {
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("read a file for the image: %w", err)
		}
		records = append(records, file(name, content, 0o755))
	}
	dir := path.Join("lib/modules", c.Release)
	if len(modules) > 0 {
		records = append(records, file(path.Join(dir, "modules.dep"), dependencies(modules), 0o644))
	}
	image := &Image{Path: c.Path}
	for _, m := range modules {
		records = append(records, file(path.Join(dir, m.path), m.content, 0o644))
		sum := sha256.Sum256(m.content)
		image.Modules = append(image.Modules, Module{
			Name: m.name, File: m.file, Size: int64(len(m.content)), SHA256: hex.EncodeToString(sum[:]),
		})
	}
	slices.SortFunc(records, func(a, b cpio.Record) int { return cmp.Compare(a.Name, b.Name) })
	cpio.MakeAllReproducible(records)
	if err := image.write(records); err != nil {
		return nil, fmt.Errorf("write the initramfs %s: %w", c.Path, err)
	}
	return image, nil
}

func file(name string, content []byte, mode uint64) cpio.Record {
	return cpio.StaticRecord(content, cpio.Info{Name: name, Mode: cpio.S_IFREG | mode})
}

// write writes the records to the image's file, by way of a temporary one.
func (i *Image) write(records []cpio.Record) (err error) {
	f, err := os.CreateTemp(filepath.Dir(i.Path), "."+filepath.Base(i.Path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	out := &counter{w: f, hash: sha256.New()}
	w := cpio.Newc.Writer(out)
	err = cpio.WriteRecordsAndDirs(w, records)
	if err == nil {
		err = cpio.WriteTrailer(w)
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	i.Size, i.SHA256 = out.size, hex.EncodeToString(out.hash.Sum(nil))
	return os.Rename(f.Name(), i.Path)
}

// counter counts and hashes what is written through it.
type counter struct {
	w    io.Writer
	hash hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.hash.Write(p[:n])
	c.size += int64(n)
	return n, err
}

// readAgent reads the agent's binary and makes sure that a guest can run it
// with nothing else in its file system.
func readAgent(name, goarch string) ([]byte, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the agent: %w", err)
	}
	f, err := openELF(content)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w; build it with GOOS=linux", name, err)
	}
	if got := elfArch(f); got != goarch {
		return nil, fmt.Errorf("agent %s is for %s, and the guest is %s; build it with GOARCH=%s", name, got, goarch, goarch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("agent %s is linked dynamically, and a guest has no libraries; build it with CGO_ENABLED=0", name)
		}
	}
	return content, nil
}

// closure finds the modules that an image is to have and all that they depend on, in an
// order in which they can be loaded.
func closure(c Config) ([]*module, error) {
	tree, err := openTree(c.Modules)
	if err != nil {
		return nil, err
	}
	if err := tree.replace(c.Replace); err != nil {
		return nil, err
	}
	var order []*module
	found := make(map[string]*module)
	// visit loads the module called name, needed by the module called by, if
	// any, after all that it depends on.
	var visit func(name, by string) error
	visit = func(name, by string) error {
		name = canonical(name)
		if _, done := found[name]; done || tree.builtin[name] {
			return nil
		}
		m, err := tree.read(name, by)
		if err != nil {
			return err
		}
		found[name] = m // before what it depends on, so that a circle ends
		if m.release != c.Release {
			return fmt.Errorf("%w: %s is for %q, and the kernel is %q; give the folder of the kernel's own modules",
				ErrOtherKernel, m.file, m.release, c.Release)
		}
		if m.goarch != c.GOARCH {
			return fmt.Errorf("%w: %s is for %s, and the guest is %s", ErrOtherKernel, m.file, m.goarch, c.GOARCH)
		}
		for _, dep := range m.depends {
			if err := visit(dep, name); err != nil {
				return err
			}
		}
		order = append(order, m)
		return nil
	}
	for _, name := range c.May {
		if err := visit(name, ""); err != nil && !errors.Is(err, ErrModuleMissing) {
			return nil, err
		}
	}
	for _, name := range c.Load {
		if err := visit(name, ""); err != nil {
			return nil, err
		}
	}
	for name, file := range tree.replaced {
		if found[name] == nil {
			return nil, fmt.Errorf("%s: the guest loads no module %s, so that nothing of it would be looked at", file, name)
		}
	}
	return order, nil
}

// dependencies returns the content of modules.dep for modules in load order:
// one line for each, with all that it depends on, what is nearest first, as
// depmod writes it. There is no blank after the colon of a module that needs
// nothing: u-root's kmodule would take it for a module with an empty name
// (pkg/kmodule/kmodule_linux.go, genDeps, v0.16.0).
func dependencies(modules []*module) []byte {
	byName := make(map[string]*module)
	for _, m := range modules {
		byName[m.name] = m
	}
	var out strings.Builder
	for _, m := range modules {
		out.WriteString(m.path + ":")
		seen := map[string]bool{m.name: true}
		for queue := slices.Clone(m.depends); len(queue) > 0; queue = queue[1:] {
			dep := byName[canonical(queue[0])] // nil: built in
			if dep == nil || seen[dep.name] {
				continue
			}
			seen[dep.name] = true
			out.WriteString(" " + dep.path)
			queue = append(queue, dep.depends...)
		}
		out.WriteString("\n")
	}
	return []byte(out.String())
}

// tree is a folder of modules.
type tree struct {
	dir     string            // as it was given
	root    string            // the folder that it is, after symbolic links
	files   map[string]string // path of a module's file by canonical name
	builtin map[string]bool
	// replaced are files that stand in for those of the folder, by canonical name.
	replaced map[string]string
}

func openTree(dir string) (*tree, error) {
	// WalkDir does not enter a folder that is a symbolic link.
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of kernel modules: %w", err)
	}
	if info, err := os.Stat(root); err != nil {
		return nil, fmt.Errorf("open the folder of kernel modules: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open the folder of kernel modules: %s is no folder", dir)
	}
	t := &tree{dir: dir, root: root, files: make(map[string]string), builtin: make(map[string]bool)}
	read := t.walk
	if _, err := os.Stat(filepath.Join(root, ".config")); err == nil {
		read = t.ordered
	}
	if err := read(); err != nil {
		return nil, fmt.Errorf("read the folder of kernel modules: %w", err)
	}
	list, err := os.ReadFile(filepath.Join(root, "modules.builtin"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the list of built-in modules: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		if name, _, ok := splitName(path.Base(strings.TrimSpace(line))); ok {
			t.builtin[name] = true
		}
	}
	if len(t.files) == 0 && len(t.builtin) == 0 {
		return nil, fmt.Errorf("no kernel modules in %s; give the folder lib/modules/RELEASE of the system that the kernel comes from, or the tree that it was built in", dir)
	}
	return t, nil
}

// walk finds the modules' files in the folder.
func (t *tree) walk() error {
	updates := filepath.Join(t.root, "updates") + string(filepath.Separator)
	return filepath.WalkDir(t.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name, _, ok := splitName(d.Name()); ok {
			// What is in "updates" comes before all the rest, see depmod.d(5).
			if _, twice := t.files[name]; !twice || strings.HasPrefix(p, updates) {
				t.files[name] = p
			}
		}
		return nil
	})
}

// ordered finds the modules' files in a tree that a kernel was built in, by its list of them: others
// in it may be of an earlier configuration. The list names a module by its file (6.1) or by the object
// that it is linked from (7.2, scripts/Makefile.modfinal).
func (t *tree) ordered() error {
	list, err := os.ReadFile(filepath.Join(t.root, "modules.order"))
	if err != nil {
		return fmt.Errorf("a tree in which no modules were built: %w; run make modules there", err)
	}
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSpace(line)
		file := strings.TrimSuffix(strings.TrimSuffix(line, ".o"), ".ko") + ".ko"
		if name, _, ok := splitName(path.Base(file)); ok && line != "" {
			t.files[name] = filepath.Join(t.root, filepath.FromSlash(file))
		}
	}
	return nil
}

// replace has files stand in for those of the folder that have their names.
func (t *tree) replace(files []string) error {
	t.replaced = make(map[string]string)
	for _, file := range files {
		name, _, ok := splitName(filepath.Base(file))
		switch {
		case !ok:
			return fmt.Errorf("%s: the name of a module's file ends in .ko", file)
		case t.builtin[name]:
			return fmt.Errorf("%s: the kernel has %s built in, and not as a module", file, name)
		case t.replaced[name] != "":
			return fmt.Errorf("%s and %s are both of module %s; give one", t.replaced[name], file, name)
		}
		t.replaced[name] = file
	}
	return nil
}

// read reads a module; by is the module that needs it, if any.
func (t *tree) read(name, by string) (*module, error) {
	if file := t.replaced[name]; file != "" {
		m, err := readModule(file)
		if err != nil {
			return nil, err
		}
		m.name, m.path = name, "updates/"+name+".ko"
		return m, nil
	}
	p, ok := t.files[name]
	if !ok {
		if by != "" {
			by = ", which " + by + " needs,"
		}
		return nil, fmt.Errorf("%w: %s%s is not in %s (%d modules there)", ErrModuleMissing, name, by, t.dir, len(t.files))
	}
	m, err := readModule(p)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(t.root, p)
	if err != nil {
		return nil, fmt.Errorf("read kernel module %s: %w", p, err)
	}
	_, compression, _ := splitName(filepath.Base(rel))
	m.name, m.path = name, strings.TrimSuffix(filepath.ToSlash(rel), compression)
	return m, nil
}

package kbuild

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pvabi/initramfs"
)

// Config is the configuration of a kernel: the values of its options by their names, without the
// CONFIG_ in front. An option that is not set is not in it.
type Config map[string]string

// On tells whether an option is y.
func (c Config) On(option string) bool { return c[option] == "y" }

// Module tells whether an option is m.
func (c Config) Module(option string) bool { return c[option] == "m" }

// ParseConfig reads a configuration in the form of .config. What is none is an error.
func ParseConfig(r io.Reader) (Config, error) {
	c := Config{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "=")
		if name, is := strings.CutPrefix(name, "CONFIG_"); ok && is {
			c[name] = strings.Trim(value, `"`)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(c) == 0 {
		return nil, errors.New("not the configuration of a kernel: no line begins with CONFIG_")
	}
	return c, nil
}

// ConfigOf finds the configuration of a kernel: beside its file, in the folder of its modules, in
// the tree that it was built in, or in the kernel itself, where it is built with IKCONFIG. It also
// returns the file. There being none is no error; the configuration is nil then.
func ConfigOf(kernel, release, modules string) (Config, string, error) {
	dir := filepath.Dir(kernel)
	candidates := []string{filepath.Join(dir, "config-"+release)}
	// Debian's kernels from 7 on have it in the folder of their modules.
	for _, d := range []string{dir, modules} {
		if d != "" && filepath.Base(d) == release {
			candidates = append(candidates, filepath.Join(d, "config"))
		}
	}
	trees := []string{modules}
	for d := dir; ; d = filepath.Dir(d) {
		trees = append(trees, d)
		if d == filepath.Dir(d) {
			break
		}
	}
	for _, d := range trees {
		if d == "" {
			continue
		}
		if r, err := os.ReadFile(filepath.Join(d, releaseFile)); err == nil && strings.TrimSpace(string(r)) == release {
			candidates = append(candidates, filepath.Join(d, configFile))
		}
	}
	for _, name := range candidates {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		c, err := ParseConfig(f)
		f.Close()
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		return c, name, nil
	}
	text, err := initramfs.KernelConfig(kernel)
	if err != nil || text == nil {
		return nil, "", err
	}
	c, err := ParseConfig(strings.NewReader(string(text)))
	if err != nil {
		return nil, "", fmt.Errorf("the configuration in %s: %w", kernel, err)
	}
	return c, kernel, nil
}

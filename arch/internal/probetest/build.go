package probetest

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Build builds the tests of the probe of an architecture, with more arguments for go, and
// returns the file. It skips the calling test where tests are to be short.
func Build(t *testing.T, goarch string, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds for another architecture; not done under -short")
	}
	file := filepath.Join(t.TempDir(), goarch+".test")
	cmd := exec.Command("go", append(append([]string{"test", "-c", "-o", file}, args...), "pvabi/arch/"+goarch)...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+goarch, "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", cmd, out)

	// Go holds a test's result to be good for as long as the files are the same that the test
	// has read, which here a compiler did.
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "pvabi/arch/"+goarch).Output()
	require.NoError(t, err)
	sources, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.[gs]*"))
	require.NoError(t, err)
	for _, source := range sources {
		_, err := os.ReadFile(source)
		require.NoError(t, err)
	}
	return file
}

// Code is a probe that was found in a program's file. Offsets are in bytes.
type Code struct {
	Bytes []byte
	Run   int
	// Entries are the places of all functions in the probe, by name.
	Entries map[string]int
	Fixups  []Fixup
	// Illegal are those for instructions that a machine may not have, in a probe with any.
	Illegal []Fixup
}

// Fixup is where an instruction may fault, and where to go on then.
type Fixup struct{ At, Resume int }

// Find returns the probe in a program that Build built.
func Find(file, goarch string) (*Code, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	symbols := map[string]elf.Symbol{}
	for _, s := range all {
		symbols[s.Name] = s
	}
	symbol := func(name string) (elf.Symbol, error) {
		s, ok := symbols["pvabi/arch/"+goarch+"."+name]
		if !ok {
			return s, fmt.Errorf("%s has no symbol %s", file, name)
		}
		return s, nil
	}
	read := func(s elf.Symbol, size uint64) ([]byte, error) {
		section := f.Sections[s.Section]
		b := make([]byte, size)
		_, err := section.ReadAt(b, int64(s.Value-section.Addr))
		return b, err
	}
	run, err := symbol("run")
	if err != nil {
		return nil, err
	}
	end, err := symbol("end")
	if err != nil {
		return nil, err
	}
	pairs := func(name string) ([]Fixup, error) {
		table, err := symbol(name)
		if err != nil {
			return nil, err
		}
		words, err := read(table, table.Size)
		if err != nil {
			return nil, fmt.Errorf("%s: the probe's %s: %w", file, name, err)
		}
		var out []Fixup
		for ; len(words) >= 16; words = words[16:] {
			at, resume := f.ByteOrder.Uint64(words), f.ByteOrder.Uint64(words[8:])
			out = append(out, Fixup{int(at - run.Value), int(resume - run.Value)})
		}
		return out, nil
	}
	c := &Code{}
	if c.Bytes, err = read(run, end.Value-run.Value); err != nil {
		return nil, fmt.Errorf("%s: the probe's code: %w", file, err)
	}
	c.Entries = map[string]int{}
	for name, x := range symbols {
		if name, ok := strings.CutPrefix(name, "pvabi/arch/"+goarch+"."); ok && x.Value >= run.Value && x.Value < end.Value {
			c.Entries[name] = int(x.Value - run.Value)
		}
	}
	if c.Fixups, err = pairs("fixups"); err != nil {
		return nil, err
	}
	if _, err := symbol("illegals"); err == nil {
		if c.Illegal, err = pairs("illegals"); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// foreign keeps what Foreign found.
var foreign = map[string]*Code{}

// Foreign returns the probe of an architecture, from a program that is built for it. It is the
// same wherever a program has it, which Foreign tests by building two. Tests that run at the same
// time must not call it.
func Foreign(t *testing.T, goarch string) *Code {
	t.Helper()
	if c := foreign[goarch]; c != nil {
		return c
	}
	here, err := Find(Build(t, goarch), goarch)
	require.NoError(t, err)
	there, err := Find(Build(t, goarch, "-ldflags=-T=0x4321000"), goarch)
	require.NoError(t, err)
	require.Equal(t, here, there, "the probe in programs that lie at different addresses")
	foreign[goarch] = here
	return here
}

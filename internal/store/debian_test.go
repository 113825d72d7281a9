package store

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests in this file fetch from Debian's real archive.

// verbose shows progress in the test's log.
type verbose struct{ t *testing.T }

func (v verbose) Say(line string) { v.t.Log(line) }
func (v verbose) Doing(text string, fraction float64) {
	if fraction < 0 && text != "" {
		v.t.Log(text)
	}
}

func openReal(t *testing.T) *Store {
	t.Helper()
	if testing.Short() {
		t.Skip("fetches from Debian's archive")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("no apt here")
	}
	s, err := Open(filepath.Join(t.TempDir(), "a cache"), verbose{t})
	require.NoError(t, err)
	return s
}

// imageMarks are the marks by which boot loaders know a kernel's image.
var imageMarks = map[string]struct {
	offset int
	mark   string
}{
	"amd64":   {0x202, "HdrS"},              // Documentation/arch/x86/boot.rst
	"ppc64le": {0, elf.ELFMAG + "\x02\x01"}, // ELFCLASS64, ELFDATA2LSB
	"s390x":   {0x10008, "S390EP"},          // arch/s390/boot/head.S
	"loong64": {4, "zimg"},                  // drivers/firmware/efi/libstub/zboot-header.S
}

func TestDebianKernels(t *testing.T) {
	s := openReal(t)
	for _, spec := range []KernelSpec{
		{GOARCH: "amd64"},
		{GOARCH: "ppc64le"},
		{GOARCH: "s390x"},
		{GOARCH: "loong64"},
		{GOARCH: "amd64", Suite: "trixie", Version: "6.12"},
		{GOARCH: "amd64", Suite: "bookworm", Version: "6.1"},
	} {
		t.Run(spec.GOARCH+spec.Suite, func(t *testing.T) {
			start := time.Now()
			k, err := s.Kernel(t.Context(), spec)
			require.NoError(t, err)
			t.Logf("%s in %.1fs", k.Release, time.Since(start).Seconds())
			image, err := os.ReadFile(k.Image)
			require.NoError(t, err)
			want := imageMarks[spec.GOARCH]
			assert.Equal(t, want.mark, string(image[want.offset:want.offset+len(want.mark)]), "mark of %s", k.Image)
			sum, err := SHA256(k.Image)
			require.NoError(t, err)
			assert.Equal(t, sum, k.SHA256)
			assert.Equal(t, k.Release, filepath.Base(k.Modules))
			assert.True(t, strings.HasPrefix(k.Release, spec.Version), "release %s, want %s", k.Release, spec.Version)
			modules, err := filepath.Glob(filepath.Join(k.Modules, "kernel/drivers/*/*.ko*"))
			require.NoError(t, err)
			assert.NotEmpty(t, modules)

			start = time.Now()
			again, err := s.Kernel(t.Context(), spec)
			require.NoError(t, err)
			assert.Equal(t, k, again)
			t.Logf("again in %.3fs", time.Since(start).Seconds())
		})
	}
}

func TestDebianXen(t *testing.T) {
	s := openReal(t)
	for _, spec := range []XenSpec{{GOARCH: "amd64"}, {GOARCH: "amd64", Suite: "bookworm", Version: "4.17"}} {
		t.Run(spec.GOARCH+spec.Suite, func(t *testing.T) {
			x, err := s.Xen(t.Context(), spec)
			require.NoError(t, err)
			t.Log(x.Version)
			assert.True(t, strings.HasPrefix(x.Version, x.Release+"."), "release %s of version %s", x.Release, x.Version)
			file, err := os.ReadFile(x.Path)
			require.NoError(t, err)
			assert.Equal(t, "\x1f\x8b", string(file[:2]), "compressed by gzip")
			again, err := s.Xen(t.Context(), spec)
			require.NoError(t, err)
			assert.Equal(t, x, again)
		})
	}
}

func TestDebianQEMU(t *testing.T) {
	s := openReal(t)
	for _, goarch := range []string{"amd64", "ppc64le", "s390x", "loong64"} {
		t.Run(goarch, func(t *testing.T) {
			start := time.Now()
			q, err := s.QEMU(t.Context(), QEMUSpec{GOARCH: goarch})
			require.NoError(t, err)
			t.Logf("%s in %.1fs, %d packages", q.Version, time.Since(start).Seconds(), len(q.Packages))
			arch, err := guest(goarch)
			require.NoError(t, err)
			assert.Equal(t, arch.firmware.pkg != "", q.Firmware != nil)

			cmd := exec.Command(q.Command[0], append(slices.Clone(q.Command[1:]), "-M", "help")...)
			cmd.Env = append(os.Environ(), q.Env...)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			assert.Contains(t, string(out), "Supported machines")

			start = time.Now()
			again, err := s.QEMU(t.Context(), QEMUSpec{GOARCH: goarch})
			require.NoError(t, err)
			assert.Equal(t, q, again)
			t.Logf("again in %.3fs", time.Since(start).Seconds())
		})
	}
}

func TestDebianSignatureIsVerified(t *testing.T) {
	s := openReal(t)
	// The machine's own keys, but none of Debian's.
	empty := filepath.Join(t.TempDir(), "empty.gpg")
	require.NoError(t, os.WriteFile(empty, nil, 0o644))
	s.trust = "signed-by=" + empty
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "s390x"})
	require.ErrorContains(t, err, "not signed")
}

package store

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeDeb is a package of a fake archive.
type fakeDeb struct {
	name, version, arch string
	section, depends    string
	files               map[string]string // contents by path
}

// fakeArchive is a Debian archive that nobody signed.
type fakeArchive struct {
	t    *testing.T
	root string
	url  string

	published int

	mu sync.Mutex
	// requests counts what was asked for, by the last element of the path.
	requests map[string]int
	// serve, if set, sees each request first and tells whether it answered it.
	serve func(w http.ResponseWriter, r *http.Request) bool
}

// newArchive starts a fake archive and makes it the one that stores use.
func newArchive(t *testing.T) *fakeArchive {
	t.Helper()
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	a := &fakeArchive{t: t, root: t.TempDir(), requests: make(map[string]int)}
	files := http.FileServer(http.Dir(a.root))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.requests[path.Base(r.URL.Path)]++
		serve := a.serve
		a.mu.Unlock()
		if serve == nil || !serve(w, r) {
			files.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	a.url = server.URL
	t.Setenv("PVABI_DEBIAN_MIRROR", a.url)
	t.Setenv("no_proxy", "127.0.0.1")
	impatient := filepath.Join(t.TempDir(), "apt.conf")
	require.NoError(t, os.WriteFile(impatient, []byte("Acquire::Retries \"0\";\n"), 0o644))
	t.Setenv("APT_CONFIG", impatient)
	return a
}

// intercept has f see each request first.
func (a *fakeArchive) intercept(f func(w http.ResponseWriter, r *http.Request) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serve = f
}

// count returns how often a file was asked for.
func (a *fakeArchive) count(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[name]
}

// publish makes the packages all that a suite has, for one architecture.
func (a *fakeArchive) publish(suite, arch string, debs ...fakeDeb) {
	a.t.Helper()
	var index strings.Builder
	for _, d := range debs {
		file := a.build(d)
		data, err := os.ReadFile(filepath.Join(a.root, file))
		require.NoError(a.t, err)
		fmt.Fprintf(&index, "Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: nobody <nobody@example.org>\n", d.name, d.version, d.arch)
		if d.section != "" {
			fmt.Fprintf(&index, "Section: %s\n", d.section)
		}
		if d.depends != "" {
			fmt.Fprintf(&index, "Depends: %s\n", d.depends)
		}
		fmt.Fprintf(&index, "Filename: %s\nSize: %d\nSHA256: %x\nDescription: for a test\n\n", file, len(data), sha256.Sum256(data))
	}
	name := "main/binary-" + arch + "/Packages"
	dir := filepath.Join(a.root, "dists", suite)
	require.NoError(a.t, os.MkdirAll(filepath.Join(dir, path.Dir(name)), 0o755))
	require.NoError(a.t, os.WriteFile(filepath.Join(dir, name), []byte(index.String()), 0o644))
	automatic := ""
	if strings.HasSuffix(suite, "-backports") {
		automatic = "NotAutomatic: yes\nButAutomaticUpgrades: yes\n"
	}
	release := fmt.Sprintf("Origin: Debian\nLabel: Debian\nSuite: %s\nCodename: %s\n%sDate: %s\nArchitectures: %s\nComponents: main\nSHA256:\n %x %d %s\n",
		suite, suite, automatic, time.Now().UTC().Format(time.RFC1123), arch, sha256.Sum256([]byte(index.String())), index.Len(), name)
	require.NoError(a.t, os.WriteFile(filepath.Join(dir, "Release"), []byte(release), 0o644))
	// HTTP tells files of the same second from each other only by luck.
	a.published++
	mtime := time.Now().Add(time.Duration(a.published-100) * time.Second)
	for _, file := range []string{name, "Release"} {
		require.NoError(a.t, os.Chtimes(filepath.Join(dir, file), mtime, mtime))
	}
}

// build makes the package's file and returns its path in the archive.
func (a *fakeArchive) build(d fakeDeb) string {
	a.t.Helper()
	tree := a.t.TempDir()
	write := func(name, text string) {
		full := filepath.Join(tree, name)
		require.NoError(a.t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(a.t, os.WriteFile(full, []byte(text), 0o755))
	}
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: nobody <nobody@example.org>\nDescription: for a test\n", d.name, d.version, d.arch)
	write("DEBIAN/control", control)
	for name, text := range d.files {
		write(name, text)
	}
	file := filepath.Join("pool", part{Package: Package{d.name, d.version, d.arch, ""}}.fileStem()+".deb")
	file = strings.ReplaceAll(file, "%3a", "") // Debian's pool leaves epochs out
	require.NoError(a.t, os.MkdirAll(filepath.Join(a.root, "pool"), 0o755))
	out, err := exec.Command("dpkg-deb", "--root-owner-group", "-Zgzip", "-b", tree, filepath.Join(a.root, file)).CombinedOutput()
	require.NoError(a.t, err, string(out))
	return file
}

// oldKernel is a kernel in one package, as Debian's are up to 6.12.
func oldKernel(release, version, arch string) fakeDeb {
	return fakeDeb{name: "linux-image-" + release, version: version, arch: arch, section: "kernel", files: map[string]string{
		"boot/vmlinuz-" + release:                                "image of " + release,
		"boot/System.map-" + release:                             "not kept",
		"boot/config-" + release:                                 "CONFIG_KVM=m\n",
		"lib/modules/" + release + "/kernel/arch/x86/kvm/kvm.ko": "module of " + release,
		"usr/share/doc/linux-image-" + release + "/copyright":    "not kept",
	}}
}

// newKernel is a kernel in two packages, and a third one that only depends on
// them, as Debian's 7.2 is.
func newKernel(release, version, arch string) []fakeDeb {
	dir := "usr/lib/modules/" + release
	return []fakeDeb{
		{name: "linux-image-" + release, version: version, arch: arch, section: "kernel"},
		{name: "linux-binary-" + release, version: version, arch: arch, section: "kernel", files: map[string]string{
			dir + "/vmlinuz": "image of " + release,
		}},
		{name: "linux-modules-" + release, version: version, arch: arch, section: "kernel", files: map[string]string{
			dir + "/kernel/arch/x86/kvm/kvm.ko.xz": "module of " + release,
		}},
	}
}

// told is a Progress that remembers.
type told struct {
	mu    sync.Mutex
	lines []string
	doing []string
}

func (r *told) Say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *told) Doing(text string, _ float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text != "" {
		r.doing = append(r.doing, text)
	}
}

func (r *told) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// openFake opens a store that believes the fake archive.
func openFake(t *testing.T, dir string) (*Store, *told) {
	t.Helper()
	p := new(told)
	s, err := Open(dir, p)
	require.NoError(t, err)
	s.trust = "trusted=yes"
	s.keyring = os.DevNull
	return s, p
}

// withoutApt takes apt away from this process.
func withoutApt(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
}

// onPath puts a shell script before all other programs of its name. In it,
// $REAL is the program that it hides.
func onPath(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	real, err := exec.LookPath(name)
	if err != nil {
		real = "/nonexistent/" + name
	}
	text := "#!/bin/sh\nREAL=" + real + "\n" + script + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// leftovers lists what is in the store's folder for work.
func leftovers(t *testing.T, s *Store) []string {
	t.Helper()
	var names []string
	entries, _ := os.ReadDir(s.path("tmp"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

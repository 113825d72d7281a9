package store

import (
	"encoding/json"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const cloud = "cloud-amd64"

func TestKernelLayouts(t *testing.T) {
	a := newArchive(t)
	a.publish("old", "amd64", oldKernel("6.1.0-50-cloud-amd64", "6.1.176-1", "amd64"))
	a.publish("new", "amd64", newKernel("7.2.12+deb14-cloud-amd64", "7.2.12-1", "amd64")...)
	s, _ := openFake(t, t.TempDir())
	for _, tt := range []struct {
		suite, release, version string
		packages                []string
		module                  string
	}{
		{"old", "6.1.0-50-cloud-amd64", "6.1.176-1", []string{"linux-image-6.1.0-50-cloud-amd64"}, "kvm.ko"},
		{"new", "7.2.12+deb14-cloud-amd64", "7.2.12-1", []string{"linux-binary-7.2.12+deb14-cloud-amd64", "linux-modules-7.2.12+deb14-cloud-amd64"}, "kvm.ko.xz"},
	} {
		t.Run(tt.suite, func(t *testing.T) {
			k, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64", Suite: tt.suite})
			require.NoError(t, err)
			assert.Equal(t, tt.release, k.Release)
			assert.Equal(t, tt.version, k.Version)
			assert.Equal(t, cloud, k.Flavour)
			var names []string
			for _, p := range k.Packages {
				names = append(names, p.Name)
				assert.Len(t, p.SHA256, 64)
			}
			assert.Equal(t, tt.packages, names)
			image, err := os.ReadFile(k.Image)
			require.NoError(t, err)
			assert.Equal(t, "image of "+tt.release, string(image))
			sum, err := SHA256(k.Image)
			require.NoError(t, err)
			assert.Equal(t, sum, k.SHA256)
			module, err := os.ReadFile(filepath.Join(k.Modules, "kernel/arch/x86/kvm", tt.module))
			require.NoError(t, err)
			assert.Equal(t, "module of "+tt.release, string(module))
			assert.Equal(t, tt.release, filepath.Base(k.Modules))
		})
	}
	for _, pattern := range []string{"packages/*/*/boot/System.map*", "packages/*/*/usr/share"} {
		got, err := filepath.Glob(s.path(pattern))
		require.NoError(t, err)
		assert.Empty(t, got)
	}
	assert.Empty(t, leftovers(t, s))
}

func TestKernelOfWish(t *testing.T) {
	a := newArchive(t)
	var debs []fakeDeb
	for _, v := range []string{"6.12.9", "6.12.10", "6.13.1"} {
		debs = append(debs, oldKernel(v+"+deb13-cloud-amd64", v+"-1", "amd64"), oldKernel(v+"+deb13-amd64", v+"-1", "amd64"))
	}
	debs = append(debs, fakeDeb{name: "linux-image-9.9.9+deb13-cloud-amd64-dbg", version: "9.9.9-1", arch: "amd64"})
	a.publish(Suite, "amd64", debs...)
	s, _ := openFake(t, t.TempDir())
	for _, tt := range []struct {
		version, flavour, want string
	}{
		{"", "", "6.13.1+deb13-cloud-amd64"},
		{"", "amd64", "6.13.1+deb13-amd64"},
		{"6.12", "", "6.12.10+deb13-cloud-amd64"},
		{"6.12.9", "", "6.12.9+deb13-cloud-amd64"},
		{"6.12.9-1", "amd64", "6.12.9+deb13-amd64"},
		{"6.12.10+deb13-cloud-amd64", "", "6.12.10+deb13-cloud-amd64"},
	} {
		t.Run(tt.version+" "+tt.flavour, func(t *testing.T) {
			k, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64", Version: tt.version, Flavour: tt.flavour})
			require.NoError(t, err)
			assert.Equal(t, tt.want, k.Release)
		})
	}
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64", Version: "6.1"})
	assert.EqualError(t, err, "store: kernel of Debian forky for amd64, flavour cloud-amd64: the archive has none of version 6.1")
	require.ErrorIs(t, err, ErrNone)
	for range 2 { // when the index is fetched, and from what was fetched
		_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "loong64"})
		assert.ErrorContains(t, err, "the archive has none: Debian forky is not built for loong64")
		require.ErrorIs(t, err, ErrNone)
	}
}

func TestSpecIsRefused(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	require.NoError(t, err)
	for _, tt := range []struct {
		spec KernelSpec
		want string
	}{
		{KernelSpec{GOARCH: "vax"}, `no guest architecture "vax"; there are amd64, ppc64le, s390x, loong64`},
		{KernelSpec{GOARCH: "arm64"}, `no guest architecture "arm64"`},
		{KernelSpec{GOARCH: "amd64", Suite: "../x"}, `suite "../x"`},
		{KernelSpec{GOARCH: "amd64", Flavour: "a b"}, `flavour "a b"`},
		{KernelSpec{GOARCH: "amd64", Version: "-oX=y"}, `version "-oX=y"`},
	} {
		_, err := s.Kernel(t.Context(), tt.spec)
		assert.ErrorContains(t, err, tt.want)
	}
}

// TestGone has the index name files that the archive does not have.
func TestGone(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64",
		oldKernel("6.12.107+deb13-cloud-amd64", "6.12.107-1", "amd64"),
		oldKernel("6.12.117+deb13-cloud-amd64", "6.12.117-1", "amd64"))
	lost := filepath.Join(a.root, "pool/linux-image-6.12.117+deb13-cloud-amd64_6.12.117-1_amd64.deb")
	require.NoError(t, os.Remove(lost))

	s, said := openFake(t, t.TempDir())
	k, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	assert.Equal(t, "6.12.107-1", k.Version)
	assert.Contains(t, said.said(), "the archive does not have it as listed")
	assert.Contains(t, said.said(), "trying 6.12.107-1")

	// None left: an error that says so, and a store that still has the other.
	require.NoError(t, os.RemoveAll(filepath.Join(a.root, "pool")))
	_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64", Version: "6.12.117"})
	assert.ErrorIs(t, err, errGone)
	again, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	assert.Equal(t, k, again)
}

// TestGoneFromOldIndex has the index change while the store still uses an older
// one.
func TestGoneFromOldIndex(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"), oldKernel("7.1-amd64", "7.1-1", "amd64"))
	dir := t.TempDir()
	s, _ := openFake(t, dir)
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)

	require.NoError(t, os.RemoveAll(filepath.Join(a.root, "pool")))
	a.publish(Suite, "amd64", oldKernel("7.2-amd64", "7.2-1", "amd64"))
	k, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64", Flavour: "amd64"})
	require.NoError(t, err)
	assert.Equal(t, "7.2-amd64", k.Release)
}

func TestOffline(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	dir := t.TempDir()
	s, _ := openFake(t, dir)
	spec := KernelSpec{GOARCH: "amd64"}
	first, err := s.Kernel(t.Context(), spec)
	require.NoError(t, err)

	withoutApt(t)
	s, said := openFake(t, dir)
	again, err := s.Kernel(t.Context(), spec)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.Empty(t, said.said())
	assert.Empty(t, said.doing)

	_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "s390x"})
	require.ErrorContains(t, err, "apt-get")
	assert.ErrorContains(t, err, "name files with -kernel, -modules and -qemu")
}

func TestAnswersAge(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	dir := t.TempDir()
	s, said := openFake(t, dir)
	newest, exact := KernelSpec{GOARCH: "amd64"}, KernelSpec{GOARCH: "amd64", Version: "7.1-1"}
	for _, spec := range []KernelSpec{newest, exact} {
		_, err := s.Kernel(t.Context(), spec)
		require.NoError(t, err)
	}
	release := func(spec KernelSpec) string {
		t.Helper()
		k, err := s.Kernel(t.Context(), spec)
		require.NoError(t, err)
		return k.Release
	}
	at := func(d time.Duration) { s.now = func() time.Time { return time.Now().Add(d) } }

	a.publish(Suite, "amd64", oldKernel("7.2-cloud-amd64", "7.2-1", "amd64"))
	at(23 * time.Hour)
	assert.Equal(t, "7.1-cloud-amd64", release(newest), "within a day")

	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return true
	})
	at(25 * time.Hour)
	assert.Equal(t, "7.1-cloud-amd64", release(newest), "after a day, archive down")
	assert.Contains(t, said.said(), "cannot look for a newer one")
	assert.Contains(t, said.said(), "using 7.1-1, looked up on ")

	a.intercept(nil)
	at(25*time.Hour + 30*time.Minute)
	assert.Equal(t, "7.1-cloud-amd64", release(newest), "half an hour after a failure")
	at(27 * time.Hour)
	assert.Equal(t, "7.2-cloud-amd64", release(newest), "two hours after a failure")
	assert.Equal(t, "7.1-cloud-amd64", release(exact), "an exact version")
	at(-48 * time.Hour)
	count := a.count("Release")
	assert.Equal(t, "7.2-cloud-amd64", release(newest), "answer from the future")
	assert.Greater(t, a.count("Release"), count)
}

func TestRefresh(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	dir := t.TempDir()
	s, _ := openFake(t, dir)
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)

	a.publish(Suite, "amd64", oldKernel("7.2-cloud-amd64", "7.2-1", "amd64"))
	s, _ = openFake(t, dir)
	s.Refresh = true
	for range 2 {
		k, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
		require.NoError(t, err)
		assert.Equal(t, "7.2-cloud-amd64", k.Release)
	}
	assert.Equal(t, 2, a.count("Packages"), "indexes fetched")

	// Who demands a new answer is not given an old one.
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return true
	})
	s, _ = openFake(t, dir)
	s.Refresh = true
	_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	assert.ErrorContains(t, err, "503")
}

func TestDamage(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	dir := t.TempDir()
	s, _ := openFake(t, dir)
	spec := KernelSpec{GOARCH: "amd64"}
	k, err := s.Kernel(t.Context(), spec)
	require.NoError(t, err)
	folder := s.path("packages/kernel/linux-image-7.1-cloud-amd64_7.1-1_amd64")
	module := filepath.Join(k.Modules, "kernel/arch/x86/kvm/kvm.ko")
	saved := s.path("resolved/kernel_forky_amd64_cloud-amd64_newest.json")

	for _, tt := range []struct {
		name   string
		break_ func() error
		said   string
	}{
		{"truncated image", func() error { return os.Truncate(k.Image, 3) }, "is damaged (3 bytes, want 24)"},
		{"changed image", func() error { return os.WriteFile(k.Image, []byte("Image of 7.1-cloud-amd64"), 0o644) }, "is damaged (SHA-256 "},
		{"missing module", func() error { return os.Remove(module) }, "is damaged (missing)"},
		{"folder for a module", func() error {
			if err := os.Remove(module); err != nil {
				return err
			}
			return os.Mkdir(module, 0o755)
		}, "is damaged (not a regular file)"},
		{"missing manifest", func() error { return os.Remove(filepath.Join(folder, manifestName)) }, "is damaged (missing)"},
		{"empty manifest", func() error { return os.Truncate(filepath.Join(folder, manifestName), 0) }, "is damaged (unexpected end"},
		{"other manifest", func() error {
			return os.WriteFile(filepath.Join(folder, manifestName), []byte(`{"schema":1}`), 0o644)
		}, "is damaged (about something else)"},
		{"missing folder", func() error { return os.RemoveAll(folder) }, ""},
		{"garbage for an answer", func() error { return os.WriteFile(saved, []byte("{"), 0o644) }, ""},
		{"no answer", func() error { return os.Remove(saved) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, tt.break_())
			s, said := openFake(t, dir)
			again, err := s.Kernel(t.Context(), spec)
			require.NoError(t, err)
			assert.Equal(t, k, again)
			if tt.said != "" {
				assert.Contains(t, said.said(), tt.said)
				assert.Contains(t, said.said(), ": fetching linux-image-7.1-cloud-amd64 again")
			}
			image, err := os.ReadFile(k.Image)
			require.NoError(t, err)
			assert.Equal(t, "image of 7.1-cloud-amd64", string(image))
			assert.FileExists(t, module)
			assert.Empty(t, leftovers(t, s))
		})
	}
}

// TestDamageOfLostVersion damages what the archive no longer has.
func TestDamageOfLostVersion(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	s, _ := openFake(t, t.TempDir())
	k, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)

	require.NoError(t, os.Truncate(k.Image, 0))
	require.NoError(t, os.RemoveAll(filepath.Join(a.root, "pool")))
	a.publish(Suite, "amd64", oldKernel("7.2-cloud-amd64", "7.2-1", "amd64"))
	k, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	assert.Equal(t, "7.2-cloud-amd64", k.Release)
}

// TestCorruptDownload serves a package file that is not the one of the index.
func TestCorruptDownload(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if path.Ext(r.URL.Path) != ".deb" {
			return false
		}
		data, err := os.ReadFile(filepath.Join(a.root, r.URL.Path))
		if err != nil {
			return false
		}
		data[len(data)-1] ^= 1
		_, _ = w.Write(data)
		return true
	})
	s, _ := openFake(t, t.TempDir())
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.ErrorContains(t, err, "linux-image-7.1-cloud-amd64")
	assert.Empty(t, leftovers(t, s))

	a.intercept(nil)
	_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	assert.NoError(t, err)
}

func TestUnsignedArchiveIsRefused(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	s, _ := openFake(t, t.TempDir())
	s.trust = "signed-by=" + debianKeyring
	// The user's settings must not weaken that.
	conf := filepath.Join(t.TempDir(), "apt.conf")
	require.NoError(t, os.WriteFile(conf, []byte("Acquire::AllowInsecureRepositories \"true\";\nAPT::Get::AllowUnauthenticated \"true\";\n"), 0o644))
	t.Setenv("APT_CONFIG", conf)
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.ErrorContains(t, err, "not signed")
	assert.Equal(t, 0, a.count("linux-image-7.1-cloud-amd64_7.1-1_amd64.deb"))
}

// TestMachineIsLeftAlone gives apt a machine of its own to find in its settings,
// with hooks, and looks whether anything of that was used.
func TestMachineIsLeftAlone(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	machine := filepath.Join(t.TempDir(), "machine")
	ran := filepath.Join(t.TempDir(), "ran")
	conf := filepath.Join(t.TempDir(), "apt.conf")
	require.NoError(t, os.WriteFile(conf, []byte(strings.NewReplacer("MACHINE", machine, "RAN", ran).Replace(`
Dir "MACHINE";
Dir::State "MACHINE/state";
Dir::State::lists "MACHINE/lists";
Dir::State::status "MACHINE/status";
Dir::Cache "MACHINE/cache";
Dir::Cache::archives "MACHINE/archives";
Dir::Cache::pkgcache "MACHINE/pkgcache";
Dir::Etc "MACHINE/etc";
APT::Architectures { "amd64"; "i386"; };
APT::Default-Release "nonesuch";
APT::Update::Pre-Invoke { "touch RAN"; };
APT::Update::Post-Invoke { "touch RAN"; };
APT::Update::Post-Invoke-Success { "touch RAN"; };
`)), 0o644))
	t.Setenv("APT_CONFIG", conf)
	s, _ := openFake(t, t.TempDir())
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	assert.NoDirExists(t, machine)
	assert.NoFileExists(t, ran)
}

func TestMirror(t *testing.T) {
	sources := filepath.Join(t.TempDir(), "sources.list")
	conf := filepath.Join(t.TempDir(), "apt.conf")
	cache := t.TempDir()
	require.NoError(t, os.WriteFile(conf, []byte(`Dir::Etc::sourcelist "`+sources+`"; Dir::Etc::sourceparts "/dev/null"; Dir::State::lists "`+t.TempDir()+`"; Dir::Cache "`+cache+`";`), 0o644))
	for _, tt := range []struct {
		name, variable, sources string
		want, err               string
	}{
		{name: "machine", sources: "deb http://mirror.example/debian bookworm main", want: "http://mirror.example/debian"},
		{name: "cloud image", sources: "deb mirror+file:/etc/apt/mirrors/debian.list bookworm main", want: "mirror+file:/etc/apt/mirrors/debian.list"},
		{name: "variable", variable: "http://other.example/debian/", sources: "deb http://mirror.example/debian bookworm main", want: "http://other.example/debian"},
		{name: "none", sources: "deb http://mirror.example/ubuntu noble main", err: "set PVABI_DEBIAN_MIRROR to the address"},
		{name: "nonsense", variable: "mirror.example debian", err: `PVABI_DEBIAN_MIRROR: "mirror.example debian" is not the address`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			newArchive(t) // for its skips
			t.Setenv("APT_CONFIG", conf)
			t.Setenv("PVABI_DEBIAN_MIRROR", tt.variable)
			require.NoError(t, os.WriteFile(sources, []byte(tt.sources+"\n"), 0o644))
			got, err := findMirror(t.Context())
			left, globErr := filepath.Glob(cache + "/*")
			require.NoError(t, globErr)
			assert.Empty(t, left, "the machine's apt cache")
			if tt.err != "" {
				assert.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestNoKeyring(t *testing.T) {
	newArchive(t)
	s, _ := openFake(t, t.TempDir())
	s.keyring = "/nonexistent/keyring.gpg"
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	assert.ErrorContains(t, err, "apt-get install debian-archive-keyring")
}

func TestNoNetwork(t *testing.T) {
	a := newArchive(t)
	s, _ := openFake(t, t.TempDir())
	// A port that nobody listens on: that of a server that is gone.
	t.Setenv("PVABI_DEBIAN_MIRROR", strings.Replace(a.url, "127.0.0.1", "127.0.0.2", 1))
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.ErrorContains(t, err, "fetching the package index of Debian forky for amd64")
	assert.ErrorContains(t, err, "go online once, or name files with -kernel, -modules and -qemu")
	assert.Empty(t, leftovers(t, s))

	// apt is not made to wait for the network again at once.
	withoutApt(t)
	_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "s390x"})
	assert.ErrorContains(t, err, "fetching the package index of Debian forky for amd64")
}

func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, dir := range []string{file, filepath.Join(file, "below"), `/tmp/a"b`, "/tmp/a:b", "/tmp/a\nb"} {
		_, err := Open(dir, nil)
		assert.ErrorContains(t, err, "PVABI_CACHE", "open %q", dir)
	}
	t.Setenv("PVABI_CACHE", "/somewhere")
	dir, err := DefaultDir()
	require.NoError(t, err)
	assert.Equal(t, "/somewhere", dir)
	t.Setenv("PVABI_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	dir, err = DefaultDir()
	require.NoError(t, err)
	assert.Equal(t, "/xdg/pvabi", dir)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	_, err = DefaultDir()
	assert.ErrorContains(t, err, "set PVABI_CACHE")
	_, err = Open("", nil)
	assert.ErrorContains(t, err, "set PVABI_CACHE")
	t.Setenv("PVABI_CACHE", filepath.Join(t.TempDir(), "cache"))
	s, err := Open("", nil)
	require.NoError(t, err)
	assert.Equal(t, os.Getenv("PVABI_CACHE"), s.dir)
}

// TestManifest looks at what the store writes down about a package.
func TestManifest(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "1:7.1-1", "amd64"))
	s, _ := openFake(t, t.TempDir())
	_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	data, err := os.ReadFile(s.path("packages/kernel/linux-image-7.1-cloud-amd64_1%3a7.1-1_amd64", manifestName))
	require.NoError(t, err)
	var m manifest
	require.NoError(t, json.Unmarshal(data, &m))
	assert.Len(t, m.Files, 3)
	f, ok := m.find("boot/config-7.1-cloud-amd64")
	require.True(t, ok)
	assert.EqualValues(t, len("CONFIG_KVM=m\n"), f.Size)
}

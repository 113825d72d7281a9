package store

import (
	"debug/elf"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dynamicProgram finds a program on this machine that is linked dynamically, and
// the files of all its libraries by their names.
func dynamicProgram(t *testing.T) (program, loader string, libs map[string]string) {
	t.Helper()
	program, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("needs dpkg-deb")
	}
	loader, err = interpreter(program)
	require.NoError(t, err)
	libs = map[string]string{path.Base(loader): loader}
	todo, err := needed(program)
	require.NoError(t, err)
	for ; len(todo) > 0; todo = todo[1:] {
		if libs[todo[0]] != "" {
			continue
		}
		found, err := filepath.Glob("/lib/*-linux-*/" + todo[0])
		require.NoError(t, err)
		require.NotEmpty(t, found, todo[0])
		libs[todo[0]] = found[0]
		more, err := needed(found[0])
		require.NoError(t, err)
		todo = append(todo, more...)
	}
	return program, loader, libs
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

// publishQEMU publishes a program of this machine as an emulator, with its
// libraries in two packages, and packages that it depends on and does not need.
// A package or library of the name without is left out.
func publishQEMU(t *testing.T, a *fakeArchive, without string) {
	publishQEMUVersion(t, a, without, "1:99.1+ds-1")
}

// publishQEMUVersion is publishQEMU for another version.
func publishQEMUVersion(t *testing.T, a *fakeArchive, without, version string) {
	t.Helper()
	program, _, libs := dynamicProgram(t)
	debian, err := host()
	require.NoError(t, err)
	libc := fakeDeb{name: "libc6", version: "2.99-1", arch: debian, section: "libs", files: map[string]string{"usr/lib/gconv/x.so": "not kept"}}
	others := fakeDeb{name: "libothers", version: "3-1", arch: debian, section: "libs", depends: "libc6, libunused", files: map[string]string{}}
	for name, file := range libs {
		deb := &others
		if strings.HasPrefix(name, "libc.") || strings.HasPrefix(name, "ld") {
			deb = &libc
		}
		if name != without {
			deb.files["usr/lib/some-linux-abi/"+name] = read(t, file)
		}
	}
	debs := []fakeDeb{
		{name: "qemu-system-x86", version: version, arch: debian, section: "otherosfs", depends: "libc6, libothers, qemu-system-common", files: map[string]string{
			"usr/bin/qemu-system-x86_64": read(t, program), "usr/bin/qemu-system-i386": "not kept",
		}},
		libc, others,
		{name: "libunused", version: "1", arch: debian, section: "libs", files: map[string]string{"usr/lib/some-linux-abi/libunused.so.1": "x"}},
		{name: "qemu-system-common", version: "1", arch: debian, section: "otherosfs", depends: "an-init-system", files: map[string]string{
			"usr/lib/some-linux-abi/qemu/accel-tcg-x86_64.so": "x", "usr/lib/some-linux-abi/qemu/ui-gtk.so": "not kept",
		}},
		{name: "an-init-system", version: "1", arch: debian, section: "admin", depends: "libinit"},
		{name: "libinit", version: "1", arch: debian, section: "libs"},
		{name: "qemu-system-data", version: "1", arch: "all", section: "otherosfs", files: map[string]string{"usr/share/qemu/linuxboot.bin": "x", "usr/share/doc/x": "not kept"}},
		{name: "seabios", version: "1", arch: "all", section: "otherosfs", files: map[string]string{"usr/share/seabios/bios.bin": "x"}},
	}
	a.publish(Suite, debian, slices.DeleteFunc(debs, func(d fakeDeb) bool { return d.name == without })...)
}

// An old QEMU finds its TCG in a folder of the store's.
func TestModularQEMU(t *testing.T) {
	a := newArchive(t)
	publishQEMUVersion(t, a, "", "1:7.2+ds-1")
	dir := t.TempDir()
	s, _ := openFake(t, dir)
	q, err := s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	folder, ok := strings.CutPrefix(q.Env[0], "QEMU_MODULE_DIR=")
	require.True(t, ok)
	modules, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, modules, 1)
	got, err := os.ReadFile(path.Join(folder, "accel-tcg-x86_64.so"))
	require.NoError(t, err)
	assert.Equal(t, "x", string(got))

	require.NoError(t, os.Remove(path.Join(folder, "accel-tcg-x86_64.so")))
	_, err = s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	assert.FileExists(t, path.Join(folder, "accel-tcg-x86_64.so"), "a missing link is made again")
}

func TestUnpackedQEMU(t *testing.T) {
	a := newArchive(t)
	publishQEMU(t, a, "")
	dir := t.TempDir()
	s, _ := openFake(t, dir)
	q, err := s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "amd64", Version: "99.1"})
	require.NoError(t, err)

	var names []string
	for _, p := range q.Packages {
		names = append(names, p.Name)
	}
	assert.ElementsMatch(t, []string{"qemu-system-x86", "qemu-system-data", "seabios", "libc6", "libothers"}, names)
	for name, want := range map[string]int{"qemu-system-common": 0, "an-init-system": 0, "libinit": 0, "libothers": 1} {
		got := 0
		for request, n := range a.requests {
			if strings.HasPrefix(request, name+"_") {
				got += n
			}
		}
		assert.Equal(t, want, got, "downloads of %s", name)
	}

	// The command runs the program with its own loader and libraries.
	want := []string{"--library-path", "--argv0", "-L"}
	for _, w := range want {
		assert.Contains(t, q.Command, w)
	}
	assert.Equal(t, 2, strings.Count(strings.Join(q.Command, "\n")+"\n", "-L\n"))
	program := slices.IndexFunc(q.Command, func(arg string) bool { return path.Base(arg) == "qemu-system-x86_64" && path.IsAbs(arg) })
	require.Positive(t, program)
	out, err := exec.Command(q.Command[0], append(slices.Clone(q.Command[1:program+1]), "--version")...).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "package archive backend")
	sum, err := SHA256(q.Command[program])
	require.NoError(t, err)
	assert.Equal(t, sum, q.SHA256)
	out, err = exec.Command(q.Command[0], "--library-path", q.Command[2], "--list", q.Command[program]).CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		if _, file, ok := strings.Cut(line, "=> "); ok {
			assert.True(t, strings.HasPrefix(file, dir+"/"), "library from outside the store: %s", line)
		}
	}

	modules, ok := strings.CutPrefix(q.Env[0], "QEMU_MODULE_DIR=")
	require.True(t, ok)
	entries, err := os.ReadDir(modules)
	require.NoError(t, err)
	assert.Empty(t, entries)

	// Damage to links and libraries is mended, without apt where it can be.
	libs := q.Command[2]
	lib, err := filepath.EvalSymlinks(filepath.Join(libs, "libc.so.6"))
	require.NoError(t, err)
	for _, tt := range []struct {
		name   string
		damage func() error
	}{
		{"truncated library", func() error { return os.Truncate(lib, 100) }},
		{"missing link", func() error { return os.Remove(filepath.Join(libs, "libc.so.6")) }},
		{"missing root", func() error { return os.RemoveAll(filepath.Dir(libs)) }},
		{"other link", func() error {
			link := filepath.Join(libs, "libc.so.6")
			if err := os.Remove(link); err != nil {
				return err
			}
			return os.Symlink("/lib/libc.so.6", link)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, tt.damage())
			if tt.name != "truncated library" {
				withoutApt(t)
			}
			again, err := s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "amd64", Version: "99.1"})
			require.NoError(t, err)
			assert.Equal(t, q, again)
			got, err := filepath.EvalSymlinks(filepath.Join(libs, "libc.so.6"))
			require.NoError(t, err)
			assert.Equal(t, lib, got)
		})
	}
}

func TestQEMUWithoutLibrary(t *testing.T) {
	a := newArchive(t)
	publishQEMU(t, a, "libothers")
	s, _ := openFake(t, t.TempDir())
	_, err := s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "amd64"})
	require.ErrorContains(t, err, "qemu-system-x86 : Depends: libothers but it is not installable")

	publishQEMU(t, a, "libc.so.6")
	s.Refresh, s.opened = true, time.Now()
	_, err = s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "amd64"})
	require.ErrorContains(t, err, "needs the library libc.so.6, which none of its packages has")

	_, err = s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "amd64", Version: "98"})
	assert.ErrorContains(t, err, "the archive has none: no package qemu-system-x86 of version 98")
}

// TestProvider has an emulator in the package that had it before it got one of
// its own.
func TestProvider(t *testing.T) {
	a := newArchive(t)
	program, _, libs := dynamicProgram(t)
	debian, err := host()
	require.NoError(t, err)
	libc := fakeDeb{name: "libc6", version: "1", arch: debian, section: "libs", files: map[string]string{}}
	for name, file := range libs {
		libc.files["lib/"+name] = read(t, file)
	}
	a.publish(Suite, debian,
		fakeDeb{name: "qemu-system-misc", version: "1:7.2-1", arch: debian, depends: "libc6", files: map[string]string{"usr/bin/qemu-system-s390x": read(t, program)}},
		fakeDeb{name: "qemu-system-data", version: "1:7.2-1", arch: "all", files: map[string]string{"usr/share/qemu/s390-ccw.img": "x"}},
		libc)
	s, _ := openFake(t, t.TempDir())
	q, err := s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "s390x"})
	require.NoError(t, err)
	assert.Equal(t, "qemu-system-misc", q.Packages[0].Name)
	_, err = s.QEMU(t.Context(), QEMUSpec{GOARCH: "s390x"})
	assert.ErrorContains(t, err, "does not run here", "dpkg-deb does not take -L")
}

// TestBackports has an emulator whose libraries are in another suite.
func TestBackports(t *testing.T) {
	a := newArchive(t)
	program, _, libs := dynamicProgram(t)
	debian, err := host()
	require.NoError(t, err)
	libc := fakeDeb{name: "libc6", version: "1", arch: debian, section: "libs", files: map[string]string{}}
	for name, file := range libs {
		libc.files["lib/"+name] = read(t, file)
	}
	emulator := func(version string) []fakeDeb {
		return []fakeDeb{
			{name: "qemu-system-ppc", version: version, arch: debian, depends: "libc6, qemu-system-data (= " + version + ")", files: map[string]string{"usr/bin/qemu-system-ppc64": read(t, program)}},
			{name: "qemu-system-data", version: version, arch: "all", files: map[string]string{"usr/share/qemu/slof.bin": version}},
		}
	}
	a.publish("old", debian, append(emulator("7.2-1"), libc)...)
	a.publish("old-backports", debian, emulator("10.0-1")...)
	s, _ := openFake(t, t.TempDir())
	for suite, want := range map[string]string{"old": "7.2-1", "old-backports": "10.0-1"} {
		q, err := s.unpackedQEMU(t.Context(), QEMUSpec{GOARCH: "ppc64le", Suite: suite})
		require.NoError(t, err)
		assert.Equal(t, want, q.Packages[0].Version)
		assert.Equal(t, want, read(t, filepath.Join(q.Command[len(q.Command)-1], "slof.bin")))
	}
}

func TestFirmware(t *testing.T) {
	a := newArchive(t)
	debian, err := host()
	require.NoError(t, err)
	a.publish(Suite, debian, fakeDeb{name: "qemu-efi-loongarch64", version: "2026.02-1", arch: "all", files: map[string]string{
		"usr/share/qemu-efi-loongarch64/QEMU_EFI.fd":  "firmware",
		"usr/share/qemu-efi-loongarch64/QEMU_VARS.fd": "not kept",
	}})
	s, _ := openFake(t, t.TempDir())
	f, err := s.Firmware(t.Context(), FirmwareSpec{GOARCH: "loong64"})
	require.NoError(t, err)
	assert.Equal(t, "firmware", read(t, f.Path))
	assert.Equal(t, "2026.02-1", f.Package.Version)
	sum, err := SHA256(f.Path)
	require.NoError(t, err)
	assert.Equal(t, sum, f.SHA256)
	_, err = s.Firmware(t.Context(), FirmwareSpec{GOARCH: "loong64", Version: "2025"})
	assert.ErrorContains(t, err, "no package qemu-efi-loongarch64 of version 2025")

	none, err := s.Firmware(t.Context(), FirmwareSpec{GOARCH: "s390x"})
	require.NoError(t, err)
	assert.Nil(t, none)
}

func TestInstalledQEMU(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := InstalledQEMU(t.Context(), "s390x")
	require.ErrorIs(t, err, exec.ErrNotFound)
	assert.ErrorContains(t, err, "apt-get install qemu-system-s390x")

	onPath(t, "qemu-system-s390x", `echo "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"; echo "Copyright"`)
	q, err := InstalledQEMU(t.Context(), "s390x")
	require.NoError(t, err)
	assert.Equal(t, "7.2.22", q.Version)
	sum, err := SHA256(q.Command[0])
	require.NoError(t, err)
	assert.Equal(t, &QEMU{GOARCH: "s390x", Version: "7.2.22", Command: q.Command[:1], Program: q.Command[0], SHA256: sum}, q)
}

func TestQEMUFile(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o755))
		return file
	}
	for _, tt := range []struct{ name, file, err string }{
		{"missing", filepath.Join(dir, "none"), "no such file"},
		{"folder", dir, "is a directory"},
		{"empty", script("empty", ""), "does not run here"},
		{"fails", script("fails", "#!/bin/sh\necho broken >&2; exit 3\n"), "exit status 3: broken"},
		{"another program", script("other", "#!/bin/sh\necho qemu-img version 7\n"), `is no QEMU system emulator: --version says "qemu-img version 7"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := QEMUFile(t.Context(), "amd64", tt.file)
			assert.ErrorContains(t, err, tt.err)
		})
	}
	_, err := QEMUFile(t.Context(), "vax", "x")
	assert.ErrorContains(t, err, "vax")
	t.Chdir(dir)
	script("own", "#!/bin/sh\necho QEMU emulator version 12.0.50\n")
	q, err := QEMUFile(t.Context(), "amd64", "own")
	require.NoError(t, err)
	assert.Equal(t, "12.0.50", q.Version)
	assert.True(t, filepath.IsAbs(q.Command[0]))
	assert.Len(t, q.Command, 1)

	require.NoError(t, os.Mkdir("pc-bios", 0o755))
	q, err = QEMUFile(t.Context(), "amd64", "own")
	require.NoError(t, err)
	assert.Equal(t, []string{"-L", filepath.Join(filepath.Dir(q.Program), "pc-bios")}, q.Command[1:], "the firmware of the same build")
}

// FuzzELF has the readers of programs and libraries read foreign bytes.
func FuzzELF(f *testing.F) {
	f.Add([]byte(elf.ELFMAG))
	if data, err := os.ReadFile("/proc/self/exe"); err == nil {
		f.Add(data[:min(len(data), 4096)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		name := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(name, data, 0o644))
		_, _ = interpreter(name)
		_, _ = needed(name)
	})
}

func TestTable(t *testing.T) {
	for _, a := range architectures {
		assert.NotEmpty(t, a.debian, a.goarch)
		if a.emulator == "" {
			continue
		}
		assert.NotEmpty(t, a.flavour, a.goarch)
		assert.NotEmpty(t, a.images, a.goarch)
		assert.NotEmpty(t, a.providers, a.goarch)
		assert.NotEmpty(t, a.data, a.goarch)
	}
	debian, err := host()
	if err != nil {
		assert.ErrorContains(t, err, runtime.GOARCH)
	} else {
		assert.NotEmpty(t, debian)
	}
}

package store

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// versionPairs has versions in ascending or equal order.
var versionPairs = []struct {
	a, b string
	want int
}{
	{"7.2.9-1", "7.2.12-1", -1},
	{"7.2.12-1", "7.2.12-1", 0},
	{"6.12.107-1", "6.12.117-1", -1},
	{"1:7.2+dfsg-7", "1:10.0.2+ds-1", -1},
	{"11.1", "1:1.0", -1},
	{"0:1.0", "1.0", 0},
	{"1.0~rc1-1", "1.0-1", -1},
	{"1.0~~", "1.0~", -1},
	{"1.0", "1.0+b1", -1},
	{"1.0a", "1.0+", -1},
	{"1.0-1", "1.0-1+deb13u1", -1},
	{"1.0-1~bpo12+1", "1.0-1", -1},
	{"1.0", "1.0-0", 0},
	{"1.2-3-4", "1.2-3-5", -1},
	{"1.007", "1.7", 0},
	{"1.99999999999999999999999998", "1.99999999999999999999999999", -1},
	{"", "1", -1},
}

func TestCompareVersions(t *testing.T) {
	for _, tt := range versionPairs {
		assert.Equal(t, tt.want, compareVersions(tt.a, tt.b), "%s and %s", tt.a, tt.b)
		assert.Equal(t, -tt.want, compareVersions(tt.b, tt.a), "%s and %s", tt.b, tt.a)
	}
}

// TestCompareVersionsAsDpkg asks the reference.
func TestCompareVersionsAsDpkg(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("needs dpkg")
	}
	for _, tt := range versionPairs {
		op := map[int]string{-1: "lt", 0: "eq"}[tt.want]
		assert.NoError(t, exec.Command("dpkg", "--compare-versions", tt.a, op, tt.b).Run(), "%s %s %s", tt.a, op, tt.b)
	}
}

func TestSatisfies(t *testing.T) {
	for _, tt := range []struct {
		version, wish string
		want          bool
	}{
		{"7.2.12-1", "", true},
		{"7.2.12-1", "7.2", true},
		{"7.2.12-1", "7.2.12", true},
		{"7.2.12-1", "7.2.12-1", true},
		{"7.2.12-1", "7.2.1", false},
		{"7.20-1", "7.2", false},
		{"7.2.12-1", "7.2.", true},
		{"1:11.1.2+ds-3", "11.1", true},
		{"1:11.1.2+ds-3", "1:11.1", true},
		{"1:11.1.2+ds-3", "2:11.1", false},
		{"7.2.12-1", "7.2.12-1-and-more", false},
	} {
		assert.Equal(t, tt.want, satisfies(tt.version, tt.wish), "%q for the wish %q", tt.version, tt.wish)
	}
}

const someRecords = `Package: libaio1t64
Version: 0.3.113-8
Architecture: amd64
Depends: libc6 (>= 2.33),
 libignored (= 1)
Section: libs
Size: 15012
SHA256: 00ff
Description: text
 Package: not-a-field

Package: qemu-system-x86
Architecture: amd64
Version: 1:11.1.2+ds-3
Pre-Depends: dpkg:any
Depends: libaio1 | libaio1t64 (>= 0.3), systemd(>=1)
Section: otherosfs

Package: without-version
Architecture: all
`

func TestParseRecords(t *testing.T) {
	got, err := parseRecords(strings.NewReader(someRecords))
	require.NoError(t, err)
	want := []record{
		{Package: Package{"libaio1t64", "0.3.113-8", "amd64", "00ff"}, Section: "libs", Size: 15012, depends: []string{"libc6"}},
		{Package: Package{"qemu-system-x86", "1:11.1.2+ds-3", "amd64", ""}, Section: "otherosfs", depends: []string{"dpkg", "libaio1", "libaio1t64", "systemd"}},
	}
	assert.Equal(t, want, got)
}

func TestParseURIs(t *testing.T) {
	got := parseURIs(`Reading package lists...
'http://mirror.example/pool/a_1.deb' qemu-system-x86_1%3a11.1.2+ds-3_amd64.deb 10769532 SHA256:00
'http://mirror.example/pool/b_1.deb' seabios_1.17.0-1_all.deb 158720
'http://mirror.example/pool/c_1.deb' ../../etc/passwd 1
'half a line
`)
	assert.Equal(t, []Package{
		{Name: "qemu-system-x86", Version: "1:11.1.2+ds-3", Arch: "amd64"},
		{Name: "seabios", Version: "1.17.0-1", Arch: "all"},
	}, got)
}

func TestLibraries(t *testing.T) {
	rec := func(name, section string, depends ...string) record {
		return record{Package: Package{Name: name}, Section: section, depends: depends}
	}
	closure := []record{
		rec("qemu", "otherosfs", "libc6", "libglib", "common"),
		rec("libc6", "libs", "libgcc"),
		rec("libgcc", "libs", "libc6"),
		rec("libglib", "libs", "libc6", "not-installed"),
		rec("common", "otherosfs", "libusb", "systemd"),
		rec("libusb", "libs"),
		rec("systemd", "admin"),
	}
	var got []string
	for _, r := range libraries(closure, "qemu") {
		got = append(got, r.Name)
	}
	assert.Equal(t, []string{"libc6", "libglib", "libgcc"}, got)
}

func TestLabelledMirror(t *testing.T) {
	got, ok := labelledMirror("Debian-Security|main|http://mirror.example/debian-security\nDebian|contrib|http://mirror.example/x\nDebian|main|http://mirror.example/os/\nDebian|main|http://second.example/debian\n")
	assert.True(t, ok)
	assert.Equal(t, "http://mirror.example/os", got)
	for _, text := range []string{"", "Ubuntu|main|http://mirror.example/debian", "Debian|main|a b", "Debian|main|"} {
		_, ok := labelledMirror(text)
		assert.False(t, ok, "%q", text)
	}
}

func TestNamedMirror(t *testing.T) {
	got, ok := namedMirror("'http://mirror.example/debian-security/dists/bookworm-security/InRelease' x 0\n'http://mirror.example/debian/dists/bookworm/InRelease' mirror.example 0 \n")
	assert.True(t, ok)
	assert.Equal(t, "http://mirror.example/debian", got)
	for _, text := range []string{"", "'", "'http://mirror.example/ubuntu/dists/noble/InRelease'", "'/debian/dists/x"} {
		_, ok := namedMirror(text)
		assert.False(t, ok, "%q", text)
	}
}

func TestAptError(t *testing.T) {
	failed := exec.ErrDot // any error
	err := aptError("apt-get", failed, "W: a warning\nE: Failed to fetch http://x/y.deb  404  Not Found [IP: 192.0.2.1 80]\nE: Unable to fetch some archives\n")
	assert.ErrorIs(t, err, errGone)
	assert.ErrorIs(t, err, failed)
	assert.ErrorContains(t, err, "404  Not Found [IP: 192.0.2.1 80]; Unable to fetch some archives")
	for _, stderr := range []string{
		"E: Failed to fetch http://x/linux-404_1.deb  Could not connect to x",
		"E: Failed to fetch http://x/y.deb  503  Down",
		"E: Unable to locate package x\n",
		"",
	} {
		assert.NotErrorIs(t, aptError("apt-get", failed, stderr), errGone, "%q", stderr)
	}
}

func TestKernelNames(t *testing.T) {
	rec := func(name, version string) record { return record{Package: Package{name, version, "amd64", ""}} }
	var got []string
	for _, a := range kernels([]record{
		rec("linux-image-7.2.12+deb14-amd64", "7.2.12-1"), // empty: there is a binary package
		rec("linux-binary-7.2.12+deb14-amd64", "7.2.12-1"),
		rec("linux-modules-7.2.12+deb14-amd64", "7.2.12-1"),
		rec("linux-image-7.2.13+deb14-amd64", "7.2.13-1"),
		rec("linux-binary-7.2.13+deb14-amd64", "7.2.13-1"), // its modules are not there yet
		rec("linux-image-7.2.12+deb14-cloud-amd64", "7.2.12-1"),
		rec("linux-image-7.2.12+deb14-rt-amd64", "7.2.12-1"),
		rec("linux-image-6.1.0-9-amd64", "6.1.27-1"),
		rec("linux-image-6.1.0-50-amd64", "6.1.176-1"),
		rec("linux-image-6.1.0-50-cloud-amd64", "6.1.176-1"),
		rec("linux-image-6.1.0-50-amd64-unsigned", "6.1.176-1"),
		rec("linux-image-amd64", "6.1.176-1"),
	}, KernelSpec{Flavour: "amd64"}) {
		got = append(got, a.Release)
	}
	assert.Equal(t, []string{"7.2.12+deb14-amd64", "6.1.0-50-amd64", "6.1.0-9-amd64"}, got)
}

func TestStatus(t *testing.T) {
	var got []float64
	readStatus(strings.NewReader("dlstatus:1:0.0000:Retrieving file 1 of 1\nnonsense\ndlstatus:1:x:y\npmstatus:a:1:b\ndlstatus:1:62.5:Retrieving: 3s\n"), func(f float64) {
		got = append(got, f)
	})
	assert.Equal(t, []float64{0, 0.625}, got)
}

func FuzzCompareVersions(f *testing.F) {
	for _, tt := range versionPairs {
		f.Add(tt.a, tt.b, "1.0")
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		assert.Equal(t, 0, compareVersions(a, a))
		assert.Equal(t, -compareVersions(a, b), compareVersions(b, a))
		v := []string{a, b, c}
		slices.SortFunc(v, compareVersions)
		assert.LessOrEqual(t, compareVersions(v[0], v[2]), 0, "%q", v)
	})
}

// FuzzParse gives the parsers of apt's output foreign bytes. What comes out goes
// into file names, arguments and sources lists.
func FuzzParse(f *testing.F) {
	f.Add(someRecords)
	f.Add("'http://m/debian/dists/x/InRelease' a_1_all.deb 3\nDebian|main|http://m/debian")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parseRecords(strings.NewReader(text))
		assert.NoError(t, err)
		for _, p := range parseURIs(text) {
			assert.NotContains(t, p.Name+p.Arch, "/")
			assert.False(t, strings.HasPrefix(p.Name, "-"))
		}
		for _, pick := range []func(string) (string, bool){labelledMirror, namedMirror} {
			if m, ok := pick(text); ok {
				assert.NoError(t, checkMirror(m))
				assert.Len(t, strings.Fields(m), 1)
			}
		}
	})
}

package kbuild

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const release = "7.2.13-own"

// tree writes files into a folder, each a second after the one before. "name=content" gives a content.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	when := time.Now().Add(-time.Hour)
	for i, f := range files {
		name, content, _ := strings.Cut(f, "=")
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
		at := when.Add(time.Duration(i) * time.Second)
		require.NoError(t, os.Chtimes(name, at, at))
	}
	return dir
}

const isX86 = ".config=CONFIG_X86_64=y\nCONFIG_KVM=m\n# CONFIG_SMP is not set\nCONFIG_LOCALVERSION=\"-own\"\n"

func TestOpen(t *testing.T) {
	built := releaseFile + "=" + release + "\n"
	for name, test := range map[string]struct {
		files                   []string
		goarch, kernel, modules string
		err                     string
	}{
		"x86":                {[]string{isX86, built, "vmlinux", "arch/x86/boot/bzImage", "modules.order"}, "amd64", "arch/x86/boot/bzImage", ".", ""},
		"no modules":         {[]string{isX86, built, "vmlinux", "arch/x86/boot/bzImage"}, "amd64", "arch/x86/boot/bzImage", "", ""},
		"vmlinux alone":      {[]string{isX86, built, "vmlinux"}, "amd64", "vmlinux", "", ""},
		"PowerPC":            {[]string{".config=CONFIG_PPC64=y\n", built, "vmlinux"}, "ppc64le", "vmlinux", "", ""},
		"s390":               {[]string{".config=CONFIG_S390=y\n", built, "vmlinux", "arch/s390/boot/bzImage"}, "s390x", "arch/s390/boot/bzImage", "", ""},
		"LoongArch":          {[]string{".config=CONFIG_LOONGARCH=y\n", built, "vmlinux", "arch/loongarch/boot/vmlinux.efi"}, "loong64", "arch/loongarch/boot/vmlinux.efi", "", ""},
		"an older bzImage":   {[]string{isX86, built, "arch/x86/boot/bzImage", "vmlinux"}, "", "", "", "is older than the vmlinux"},
		"not configured":     {[]string{"Kbuild"}, "", "", "", "no kernel was built there: it has no .config; run make"},
		"not built":          {[]string{isX86}, "", "", "", "it has no include/config/kernel.release"},
		"not to its end":     {[]string{isX86, built}, "", "", "", "it has none of arch/x86/boot/bzImage, vmlinux"},
		"other architecture": {[]string{".config=CONFIG_ARM64=y\n", built}, "", "", "", "an architecture that no target is of"},
		"no configuration":   {[]string{".config=hello"}, "", "", "", "no line begins with CONFIG_"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, test.files...)
			got, err := Open(dir)
			if test.err != "" {
				assert.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.goarch, got.GOARCH)
			assert.Equal(t, release, got.Release)
			assert.Equal(t, filepath.Join(dir, test.kernel), got.Kernel)
			if test.modules != "" {
				test.modules = filepath.Join(dir, test.modules)
			}
			assert.Equal(t, test.modules, got.Modules)
		})
	}
}

func TestSource(t *testing.T) {
	source, output := tree(t, "Kbuild"), tree(t, isX86)
	assert.Equal(t, source, Source(source))
	assert.Equal(t, output, Source(output))
	link := filepath.Join(output, "source")
	require.NoError(t, os.Symlink(source, link))
	assert.Equal(t, link, Source(output))
}

func TestConfig(t *testing.T) {
	c, err := ParseConfig(strings.NewReader(strings.TrimPrefix(isX86, ".config=")))
	require.NoError(t, err)
	assert.Equal(t, Config{"X86_64": "y", "KVM": "m", "LOCALVERSION": "-own"}, c)
	assert.True(t, c.On("X86_64"))
	assert.False(t, c.On("KVM"))
	assert.True(t, c.Module("KVM"))
	assert.False(t, c.On("SMP") || c.Module("SMP"))
}

func TestConfigOf(t *testing.T) {
	mine, other := releaseFile+"="+release+"\n", releaseFile+"=6.1.0\n"
	for name, test := range map[string]struct {
		files           []string
		kernel, modules string
		want            string
	}{
		"beside it":               {[]string{"boot/vmlinuz", "boot/config-" + release + "=CONFIG_A=y\n"}, "boot/vmlinuz", "", "boot/config-" + release},
		"in the modules' folder":  {[]string{"m/" + release + "/vmlinuz", "m/" + release + "/config=CONFIG_A=y\n"}, "m/" + release + "/vmlinuz", "", "m/" + release + "/config"},
		"in its tree":             {[]string{isX86, mine, "arch/x86/boot/bzImage"}, "arch/x86/boot/bzImage", "", ".config"},
		"in the tree of modules":  {[]string{"k", "t/" + isX86, "t/" + mine}, "k", "t", "t/.config"},
		"a tree of another build": {[]string{isX86, other, "arch/x86/boot/bzImage=" + image}, "arch/x86/boot/bzImage", "", ""},
		"nowhere":                 {[]string{"k=" + image}, "k", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, test.files...)
			if test.modules != "" {
				test.modules = filepath.Join(dir, test.modules)
			}
			c, from, err := ConfigOf(filepath.Join(dir, test.kernel), release, test.modules)
			require.NoError(t, err)
			if test.want == "" {
				assert.Nil(t, c)
				assert.Empty(t, from)
				return
			}
			assert.NotEmpty(t, c)
			assert.Equal(t, filepath.Join(dir, test.want), from)
		})
	}
}

// image passes for a kernel, of s390, that is not compressed and has no configuration in it.
var image = strings.Repeat("\x00", 0x10008) + "S390EP" + strings.Repeat("\x00", 0x1000)

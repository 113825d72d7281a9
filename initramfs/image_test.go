package initramfs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/mkuimage/cpio"
	"github.com/ulikunitz/xz"

	"pvabi/internal/decompress"
)

const release = "7.2.12+test-amd64"

func compress(t testing.TB, ending string, content []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch ending {
	case ".xz":
		w, err = xz.NewWriter(&out)
	case ".zst":
		w, err = zstd.NewWriter(&out)
	case ".gz":
		w = gzip.NewWriter(&out)
	default:
		return content
	}
	require.NoError(t, err)
	_, err = w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// write writes files below a new folder, which it returns.
func write(t testing.TB, files map[string][]byte) string {
	dir := t.TempDir()
	for name, content := range files {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, content, 0o644))
	}
	return dir
}

// kvmTree is a folder of modules as of an x86 kernel, compressed in all ways.
func kvmTree(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"kernel/arch/x86/kvm/kvm.ko.xz":        compress(t, ".xz", ko(t, release, "irqbypass")),
		"kernel/arch/x86/kvm/kvm-amd.ko.zst":   compress(t, ".zst", ko(t, release, "kvm,ccp")),
		"kernel/virt/lib/irqbypass.ko":         ko(t, release, ""),
		"kernel/drivers/crypto/ccp/ccp.ko.gz":  compress(t, ".gz", ko(t, release, "")),
		"kernel/drivers/net/dummy.ko":          ko(t, release, ""),
		"kernel/drivers/net/README":            []byte("no module"),
		"modules.builtin":                      []byte("kernel/fs/ext4/ext4.ko\nkernel/drivers/char/virtio-console.ko\n"),
		"updates/dkms/dummy.ko":                ko(t, release, "irqbypass"),
		"kernel/drivers/misc/needs-missing.ko": ko(t, release, "irqbypass,not_there"),
		"kernel/drivers/misc/needs-builtin.ko": ko(t, release, "virtio_console"),
	}
}

func agentFile(t testing.TB) string {
	e := amd64ELF(elf.ET_EXEC)
	e.segments = []segment{{elf.PT_LOAD, "text"}}
	return filepath.Join(write(t, map[string][]byte{"agent": e.bytes(t)}), "agent")
}

func config(t testing.TB, load ...string) Config {
	return Config{
		Agent: agentFile(t), GOARCH: "amd64", Release: release, Modules: write(t, kvmTree(t)),
		Load: load, Path: filepath.Join(t.TempDir(), "image"),
	}
}

// read returns an image's files and the order in which they are.
func read(t testing.TB, name string) (map[string]cpio.Record, []string) {
	f, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(f))
	require.NoError(t, err)
	files := make(map[string]cpio.Record)
	var order []string
	for _, r := range records {
		files[r.Name] = r
		order = append(order, r.Name)
	}
	return files, order
}

func content(t testing.TB, r cpio.Record) []byte {
	b, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
	require.NoError(t, err)
	return b
}

func TestBuild(t *testing.T) {
	c := config(t, "kvm_amd")
	image, err := Build(c)
	require.NoError(t, err)

	assert.Equal(t, []string{"irqbypass", "kvm", "ccp", "kvm_amd"}, image.Names(), "in load order")
	whole, err := os.ReadFile(c.Path)
	require.NoError(t, err)
	sum := sha256.Sum256(whole)
	assert.Equal(t, hex.EncodeToString(sum[:]), image.SHA256)
	assert.Equal(t, int64(len(whole)), image.Size)

	files, order := read(t, c.Path)
	for i, name := range order {
		if dir := filepath.Dir(name); dir != "." {
			assert.Contains(t, order[:i], dir, "a folder comes before what is in it")
		}
	}
	assert.Equal(t, uint64(cpio.S_IFREG|0o755), files["init"].Mode)
	for name, major := range map[string]uint64{"dev/console": 5, "dev/null": 1} {
		assert.Equal(t, uint64(cpio.S_IFCHR), files[name].Mode&cpio.S_IFMT, name)
		assert.Equal(t, major, files[name].Rmajor, name)
	}
	dir := "lib/modules/" + release + "/"
	assert.Equal(t, "kernel/virt/lib/irqbypass.ko:\n"+
		"kernel/arch/x86/kvm/kvm.ko: kernel/virt/lib/irqbypass.ko\n"+
		"kernel/drivers/crypto/ccp/ccp.ko:\n"+
		"kernel/arch/x86/kvm/kvm-amd.ko: kernel/arch/x86/kvm/kvm.ko kernel/drivers/crypto/ccp/ccp.ko kernel/virt/lib/irqbypass.ko\n",
		string(content(t, files[dir+"modules.dep"])))
	kvm := content(t, files[dir+"kernel/arch/x86/kvm/kvm.ko"])
	assert.Equal(t, ko(t, release, "irqbypass"), kvm, "decompressed")
	sum = sha256.Sum256(kvm)
	assert.Equal(t, hex.EncodeToString(sum[:]), image.Modules[1].SHA256)
	assert.Equal(t, int64(len(kvm)), image.Modules[1].Size)
	assert.Equal(t, filepath.Join(c.Modules, "kernel/arch/x86/kvm/kvm.ko.xz"), image.Modules[1].File)
}

// TestBuildIsReproducible builds from copies of the same files, made at another
// time in another place.
func TestBuildIsReproducible(t *testing.T) {
	var images [][]byte
	for range 2 {
		c := config(t, "kvm-amd", "dummy")
		_, err := Build(c)
		require.NoError(t, err)
		image, err := os.ReadFile(c.Path)
		require.NoError(t, err)
		images = append(images, image)
	}
	assert.True(t, bytes.Equal(images[0], images[1]), "same inputs give the same bytes")
}

func TestBuildChoosesModules(t *testing.T) {
	for _, test := range []struct {
		name string
		load []string
		want []string
	}{
		{"none", nil, []string{}},
		{"twice, in both spellings", []string{"kvm-amd", "kvm_amd", "irqbypass"}, []string{"irqbypass", "kvm", "ccp", "kvm_amd"}},
		{"built in", []string{"ext4", "virtio_console"}, []string{}},
		{"needs one that is built in", []string{"needs_builtin"}, []string{"needs_builtin"}},
		{"updates come first", []string{"dummy"}, []string{"irqbypass", "dummy"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			image, err := Build(config(t, test.load...))
			require.NoError(t, err)
			assert.Equal(t, test.want, image.Names())
		})
	}
}

func TestBuildFollowsSymbolicLink(t *testing.T) {
	c := config(t, "kvm")
	link := filepath.Join(t.TempDir(), "modules")
	require.NoError(t, os.Symlink(c.Modules, link))
	c.Modules = link
	image, err := Build(c)
	require.NoError(t, err)
	assert.Equal(t, []string{"irqbypass", "kvm"}, image.Names())
}

// What lies about in a tree from an earlier build is not taken, and the list names modules in either way.
func TestBuildFromTree(t *testing.T) {
	c := config(t, "kvm-amd")
	c.May = []string{"virtio_pci", "virtio_console"}
	c.Modules = write(t, map[string][]byte{
		".config":                          nil,
		"modules.order":                    []byte("virt/lib/irqbypass.ko\narch/x86/kvm/kvm.o\narch/x86/kvm/kvm-amd.o\n"),
		"modules.builtin":                  []byte("kernel/drivers/virtio/virtio_pci.ko\n"),
		"arch/x86/kvm/kvm.ko":              ko(t, release, "irqbypass"),
		"arch/x86/kvm/kvm-amd.ko":          ko(t, release, "kvm"),
		"virt/lib/irqbypass.ko":            ko(t, release, ""),
		"drivers/char/virtio_console.ko":   ko(t, "6.1.0", ""),
		"drivers/virtio/virtio_pci.ko":     ko(t, "6.1.0", ""),
		"tools/testing/selftests/other.ko": []byte("no module"),
	})
	image, err := Build(c)
	require.NoError(t, err)
	assert.Equal(t, []string{"irqbypass", "kvm", "kvm_amd"}, image.Names())

	require.NoError(t, os.Remove(filepath.Join(c.Modules, "modules.order")))
	_, err = Build(c)
	assert.ErrorContains(t, err, "run make modules there")
}

// A module of the user's comes in the place of the folder's, and what it needs with it.
func TestBuildReplaces(t *testing.T) {
	c := config(t, "kvm-amd")
	own := write(t, map[string][]byte{
		"kvm.ko": ko(t, release, "irqbypass,extra"), "extra.ko": ko(t, release, ""),
		"kvm-amd.ko.xz": compress(t, ".xz", ko(t, release, "kvm,ccp")),
	})
	c.Replace = []string{filepath.Join(own, "kvm.ko"), filepath.Join(own, "kvm-amd.ko.xz"), filepath.Join(own, "extra.ko")}
	image, err := Build(c)
	require.NoError(t, err)
	assert.Equal(t, []string{"irqbypass", "extra", "kvm", "ccp", "kvm_amd"}, image.Names())
	assert.Equal(t, filepath.Join(own, "kvm.ko"), image.Modules[2].File)
	files, _ := read(t, c.Path)
	dir := "lib/modules/" + release + "/"
	assert.Equal(t, ko(t, release, "kvm,ccp"), content(t, files[dir+"updates/kvm_amd.ko"]), "decompressed")
	assert.Contains(t, string(content(t, files[dir+"modules.dep"])), "updates/kvm.ko: kernel/virt/lib/irqbypass.ko updates/extra.ko\n")
}

func TestBuildErrors(t *testing.T) {
	dynamic := amd64ELF(elf.ET_EXEC)
	dynamic.segments = []segment{{elf.PT_INTERP, "/lib64/ld-linux-x86-64.so.2\x00"}}
	foreign := elfFile{machine: elf.EM_S390, order: binary.BigEndian, kind: elf.ET_EXEC}
	noInfo := amd64ELF(elf.ET_REL).bytes(t)
	noMagic := amd64ELF(elf.ET_REL)
	noMagic.sections = map[string]string{".modinfo": "depends=\x00"}
	other := elfFile{machine: elf.EM_PPC64, order: binary.LittleEndian, kind: elf.ET_REL, sections: map[string]string{".modinfo": "vermagic=" + release + "\x00"}}
	bad := write(t, map[string][]byte{
		"dynamic": dynamic.bytes(t), "foreign": foreign.bytes(t), "script": []byte("#!/bin/sh\n"), "empty": nil,
		"m/kernel/garbage.ko": []byte("garbage"), "m/kernel/noinfo.ko": noInfo, "m/kernel/nomagic.ko": noMagic.bytes(t),
		"m/kernel/other.ko": other.bytes(t), "m/kernel/old.ko": ko(t, "6.1.0-old", ""),
		"m/kernel/cut.ko.xz": compress(t, ".xz", ko(t, release, ""))[:40], "m/kernel/no.ko.zst": []byte("no zstd at all"), "m/kernel/no.ko.gz": nil,
	})
	file := func(name string) func(*Config) { return func(c *Config) { c.Agent = filepath.Join(bad, name) } }
	module := func(name string) func(*Config) {
		return func(c *Config) { c.Modules, c.Load = filepath.Join(bad, "m"), []string{name} }
	}
	replace := func(dir string, names ...string) func(*Config) {
		return func(c *Config) {
			for _, name := range names {
				c.Replace = append(c.Replace, filepath.Join(dir, name))
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(*Config)
		is     error
		want   []string // parts of the message
	}{
		{"no agent", file("none"), os.ErrNotExist, []string{"read the agent", "none"}},
		{"agent is a script", file("script"), nil, []string{"script", "not an ELF file", "GOOS=linux"}},
		{"agent is empty", file("empty"), nil, []string{"not an ELF file"}},
		{"agent is dynamic", file("dynamic"), nil, []string{"linked dynamically", "CGO_ENABLED=0"}},
		{"agent is for another architecture", file("foreign"), nil, []string{"is for s390x, and the guest is amd64", "GOARCH=amd64"}},
		{"no folder of modules", func(c *Config) { c.Modules = "/does/not/exist" }, os.ErrNotExist, []string{"folder of kernel modules"}},
		{"folder of modules is a file", func(c *Config) { c.Modules = c.Agent }, nil, []string{"folder of kernel modules", "is no folder"}},
		{"folder without modules", func(c *Config) { c.Modules = filepath.Dir(c.Path) }, nil, []string{"no kernel modules in ", "lib/modules/RELEASE"}},
		{"no such module", func(c *Config) { c.Load = []string{"no-such"} }, ErrModuleMissing, []string{"no_such is not in "}},
		{"dependency missing", func(c *Config) { c.Load = []string{"needs_missing"} }, ErrModuleMissing, []string{"not_there, which needs_missing needs, is not in "}},
		{"of another release", module("old"), ErrOtherKernel, []string{"old.ko", `"6.1.0-old"`, release}},
		{"of another architecture", module("other"), ErrOtherKernel, []string{"other.ko is for ppc64le, and the guest is amd64"}},
		{"garbage", module("garbage"), nil, []string{"garbage.ko", "not an ELF file"}},
		{"no module information", module("noinfo"), nil, []string{"noinfo.ko", "not a kernel module"}},
		{"no vermagic", module("nomagic"), nil, []string{"nomagic.ko", "no vermagic"}},
		{"cut off", module("cut"), nil, []string{"decompress", "cut.ko.xz"}},
		{"stands in for none that is loaded", replace(write(t, map[string][]byte{"dummy.ko": ko(t, release, "")}), "dummy.ko"), nil, []string{"dummy.ko: the guest loads no module dummy"}},
		{"stands in for one that is built in", replace(write(t, map[string][]byte{"ext4.ko": ko(t, release, "")}), "ext4.ko"), nil, []string{"ext4.ko: the kernel has ext4 built in"}},
		{"stands in twice", replace(write(t, map[string][]byte{"kvm.ko": ko(t, release, "")}), "kvm.ko", "kvm.ko"), nil, []string{"both of module kvm"}},
		{"stands in where no module is wanted", func(c *Config) { c.Load, c.Replace = nil, []string{"kvm.ko"} }, nil, []string{"kvm.ko: the guest loads no module kvm"}},
		{"stands in, of another release", replace(write(t, map[string][]byte{"kvm.ko": ko(t, "6.1.0-old", "")}), "kvm.ko"), ErrOtherKernel, []string{"kvm.ko"}},
		{"stands in, and is no module", replace("/", "etc"), nil, []string{"/etc", ".ko"}},
		{"stands in, and is not there", replace("/does/not/exist", "kvm.ko"), os.ErrNotExist, []string{"kvm.ko"}},
		{"the image has no folder", func(c *Config) { c.Path = "/does/not/exist/image" }, os.ErrNotExist, []string{"write the initramfs /does/not/exist/image"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config(t, "kvm_amd")
			test.change(&c)
			_, err := Build(c)
			require.Error(t, err)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			for _, part := range test.want {
				assert.ErrorContains(t, err, part)
			}
			if entries, err := os.ReadDir(filepath.Dir(c.Path)); err == nil {
				assert.Empty(t, entries, "nothing is left behind")
			}
		})
	}
}

func TestDecompressBounds(t *testing.T) {
	for _, ending := range []string{"", ".xz", ".zst", ".gz"} {
		packed := compress(t, ending, make([]byte, 4096))
		_, err := decompress.All(bytes.NewReader(packed), ending, 4095)
		assert.Error(t, err, ending)
		got, err := decompress.All(bytes.NewReader(packed), ending, 1<<20)
		assert.NoError(t, err, ending)
		assert.Len(t, got, 4096, ending)
	}
}

func FuzzParseModule(f *testing.F) {
	f.Add(ko(f, release, "kvm,irqbypass"))
	f.Add(ko(f, release, ",,"))
	f.Add(amd64ELF(elf.ET_REL).bytes(f))
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := parseModule(content)
		if err != nil {
			return
		}
		assert.NotEmpty(t, m.release)
		assert.NotContains(t, m.depends, "")
	})
}

func FuzzSplitName(f *testing.F) {
	for _, name := range []string{"kvm-amd.ko", "kvm.ko.xz", ".ko", "x.ko.zst", "a.ko.ko.gz"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		module, compression, ok := splitName(name)
		if !ok {
			return
		}
		assert.NotContains(t, module, "-")
		assert.Equal(t, canonical(name), canonical(module+".ko"+compression))
		assert.False(t, strings.HasPrefix(name, ".ko"+compression) && module == "")
	})
}

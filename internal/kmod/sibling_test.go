package kmod

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

func image(t testing.TB, goarch string, change func(*Spec)) []byte {
	t.Helper()
	s := spec(goarch)
	if change != nil {
		change(&s)
	}
	file, err := Image(s)
	require.NoError(t, err)
	return file
}

func TestParseSiblingRefuses(t *testing.T) {
	good := image(t, "amd64", nil)
	for name, tc := range map[string]struct {
		content []byte
		goarch  string
		want    string
	}{
		"empty":            {nil, "amd64", "no kernel module"},
		"other machine":    {good, "s390x", "no kernel module for s390x, but a file of ET_REL for EM_X86_64"},
		"unknown machine":  {good, "mips", "no layout"},
		"no struct module": {bytes.ReplaceAll(good, []byte(".gnu.linkonce.this_module"), []byte(".gnu.linkonce.other_modul")), "amd64", "no section"},
		"no vermagic":      {bytes.ReplaceAll(good, []byte("vermagic="), []byte("vermagix=")), "amd64", "no vermagic"},
		"huge structure":   {image(t, "amd64", func(s *Spec) { s.Kernel.Size = 1 << 20 }), "amd64", "cannot be"},
		"odd alignment":    {image(t, "amd64", func(s *Spec) { s.Kernel.Align = 24 }), "amd64", "cannot be"},
		"cut off":          {good[:len(good)-100], "amd64", ""},
	} {
		_, err := ParseSibling(tc.content, tc.goarch)
		assert.ErrorContains(t, err, tc.want, name)
	}
	_, err := ParseSibling(bytes.ReplaceAll(good, []byte("__versions\x00"), []byte("__vers\x00\x00\x00\x00\x00")), "amd64")
	assert.NoError(t, err)
	checked := bytes.ReplaceAll(image(t, "amd64", func(s *Spec) {
		s.Kernel.Versions = map[string][]byte{"__version_ext_crcs": {1, 2, 3, 4}}
	}), []byte("__version_ext_crcs\x00"), []byte("__kcfi_traps\x00\x00\x00\x00\x00\x00\x00"))
	_, err = ParseSibling(checked, "amd64")
	assert.ErrorIs(t, err, Checked)
}

func TestFindSibling(t *testing.T) {
	const release = "7.2.12"
	good := image(t, "amd64", nil)
	other := image(t, "amd64", func(s *Spec) { s.Kernel.Vermagic = "6.1.0 SMP " })
	packed := func(pack func(*bytes.Buffer) (interface {
		Write([]byte) (int, error)
		Close() error
	}, error)) []byte {
		var b bytes.Buffer
		w, err := pack(&b)
		require.NoError(t, err)
		_, err = w.Write(good)
		require.NoError(t, errors.Join(err, w.Close()))
		return b.Bytes()
	}
	type writer = interface {
		Write([]byte) (int, error)
		Close() error
	}
	for name, tc := range map[string]struct {
		files map[string][]byte
		want  string // part of the error
	}{
		"plain":              {map[string][]byte{"kernel/a.ko": good}, ""},
		"xz":                 {map[string][]byte{"a.ko.xz": packed(func(b *bytes.Buffer) (writer, error) { return xz.NewWriter(b) })}, ""},
		"zstd":               {map[string][]byte{"a.ko.zst": packed(func(b *bytes.Buffer) (writer, error) { return zstd.NewWriter(b) })}, ""},
		"gzip":               {map[string][]byte{"a.ko.gz": packed(func(b *bytes.Buffer) (writer, error) { return gzip.NewWriter(b), nil })}, ""},
		"after others":       {map[string][]byte{"a.ko": other, "b.ko": []byte("no module"), "c.ko.xz": []byte("not packed"), "d.ko": good}, ""},
		"nothing":            {map[string][]byte{"modules.dep": nil, "a.kobold": good}, "no file in it ends in .ko"},
		"only of others":     {map[string][]byte{"a.ko": other}, "a.ko is of release 6.1.0"},
		"only what is cut":   {map[string][]byte{"a.ko": good[:500]}, "a.ko: "},
		"a folder is no one": {map[string][]byte{"a.ko/b": good}, "no file in it ends in .ko"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range tc.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o644))
			}
			k, err := FindSibling(dir, release, "amd64")
			if tc.want != "" {
				assert.ErrorIs(t, err, NoSibling)
				assert.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, spec("amd64").Kernel, k)
		})
	}
	_, err := FindSibling(filepath.Join(t.TempDir(), "none"), release, "amd64")
	assert.ErrorIs(t, err, NoSibling)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzParseSibling(f *testing.F) {
	for goarch := range layouts {
		f.Add(image(f, goarch, nil))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for goarch := range layouts {
			k, err := ParseSibling(content, goarch)
			if err != nil {
				continue
			}
			// Whatever a file says, a module can be written for it.
			s := spec(goarch)
			s.Kernel = k
			file, err := Image(s)
			require.NoError(t, err)
			again, err := ParseSibling(file, goarch)
			require.NoError(t, err)
			assert.Equal(t, k, again)
		}
	})
}

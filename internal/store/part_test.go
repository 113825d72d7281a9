package store

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		content := []byte(h.Name)
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		require.NoError(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write(content)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// unpackInto unpacks into a store of its own and checks what came of it.
func unpackInto(t testing.TB, p part, data []byte) (*Store, *manifest, error) {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "store"), nil)
	require.NoError(t, err)
	if err := p.unpack(bytes.NewReader(data), s.path(p.dir())); err != nil {
		return s, nil, err
	}
	m, err := s.check(t.Context(), p)
	return s, m, err
}

var onePart = part{Package: Package{"p", "1:2-3", "all", "00"}, Folder: "some", Keep: "^(usr|\\.\\.|etc)/"}

func TestUnpack(t *testing.T) {
	s, m, err := unpackInto(t, onePart, tarOf(t,
		tar.Header{Name: "./usr/", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "./usr/bin/tool", Typeflag: tar.TypeReg, Mode: 0o4755},
		tar.Header{Name: "usr/lib/libx.so.1.2", Typeflag: tar.TypeReg},
		tar.Header{Name: "./usr/lib/libx.so.1", Typeflag: tar.TypeSymlink, Linkname: "libx.so.1.2"},
		tar.Header{Name: "./usr/lib/same", Typeflag: tar.TypeLink, Linkname: "./usr/lib/libx.so.1.2"},
		tar.Header{Name: "./usr/lib/build", Typeflag: tar.TypeSymlink, Linkname: "/usr/src"},
		tar.Header{Name: "./usr/lib/out", Typeflag: tar.TypeSymlink, Linkname: "../../../out"},
		tar.Header{Name: "./usr/dev", Typeflag: tar.TypeChar},
		tar.Header{Name: "./var/other", Typeflag: tar.TypeReg},
	))
	require.NoError(t, err)
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Path)
	}
	assert.Equal(t, []string{"usr/bin/tool", "usr/lib/libx.so.1.2", "usr/lib/libx.so.1", "usr/lib/same"}, names)
	info, err := os.Stat(s.path(onePart.dir(), "usr/bin/tool"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o755), info.Mode())
	assert.Equal(t, "packages/some/p_1%3a2-3_all", onePart.dir())
	assert.NoDirExists(t, s.path(onePart.dir(), "var"))
}

func TestUnpackRefuses(t *testing.T) {
	whole := tarOf(t, tar.Header{Name: "usr/a", Typeflag: tar.TypeReg})
	for _, tt := range []struct {
		name string
		tar  []byte
		err  string
	}{
		{"cut off", whole[:515], "unexpected EOF"},
		{"garbage", bytes.Repeat([]byte("x"), 1024), "invalid tar header"},
		{"same file twice", tarOf(t, tar.Header{Name: "usr/a", Typeflag: tar.TypeReg}, tar.Header{Name: "usr/a", Typeflag: tar.TypeReg}), "exists"},
		{"below a link", tarOf(t,
			tar.Header{Name: "usr/a", Typeflag: tar.TypeSymlink, Linkname: "b"},
			tar.Header{Name: "usr/a/c", Typeflag: tar.TypeReg}), "usr/a"},
		{"second name of what is not kept", tarOf(t, tar.Header{Name: "usr/a", Typeflag: tar.TypeLink, Linkname: "var/b"}), "not kept"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := unpackInto(t, onePart, tt.tar)
			assert.ErrorContains(t, err, tt.err)
		})
	}
}

// FuzzUnpack unpacks foreign bytes. Whatever comes of them stays in its folder
// and passes its own check.
func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, tar.Header{Name: "usr/a", Typeflag: tar.TypeReg}, tar.Header{Name: "usr/b", Typeflag: tar.TypeSymlink, Linkname: "a"}))
	f.Add(tarOf(f, tar.Header{Name: "../x", Typeflag: tar.TypeReg}))
	f.Add(tarOf(f, tar.Header{Name: "usr/../../../etc/x", Typeflag: tar.TypeReg}))
	f.Add(tarOf(f, tar.Header{Name: "usr/a", Typeflag: tar.TypeSymlink, Linkname: "../.."}, tar.Header{Name: "usr/a/x", Typeflag: tar.TypeReg}))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, err := unpackInto(t, onePart, data)
		if err != nil {
			var bad *damage
			assert.NotErrorAs(t, err, &bad, "unpacked without an error, but")
		}
		entries, err := os.ReadDir(filepath.Dir(s.Dir()))
		require.NoError(t, err)
		assert.Len(t, entries, 1)
		err = filepath.WalkDir(s.Dir(), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.Type() != fs.ModeSymlink {
				return err
			}
			to, err := os.Readlink(name)
			if err == nil && filepath.IsAbs(to) {
				t.Errorf("%s leads to %s", name, to)
			}
			return err
		})
		assert.NoError(t, err)
	})
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	p.Doing("fetching a thing", -1)
	p.Doing("fetching a thing", 0.5)
	p.Say("a line")
	p.Doing("fetching a thing", 0.5)
	p.Doing("unpacking something", 1.5)
	p.Doing("", -1)
	p.Say("the end")
	assert.Equal(t, "fetching a thing\na line\nunpacking something\nthe end\n", out.String())
}

package store

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// part is a Debian package and what is kept of it.
type part struct {
	Package
	// Folder is the one below packages/, a name for what is kept.
	Folder string `json:"folder"`
	// Keep is a regular expression for the paths that are kept; they begin
	// without a slash.
	Keep string `json:"keep"`
	// Size is the package file's, in bytes.
	Size int64 `json:"size"`
}

// dir is the part's folder, relative to the store's. Its name is the package
// file's, with the epoch's colon escaped as apt does.
func (p part) dir() string { return path.Join("packages", p.Folder, p.fileStem()) }

func (p part) fileStem() string {
	return p.Name + "_" + strings.ReplaceAll(p.Version, ":", "%3a") + "_" + p.Arch
}

// several names parts, of which there is at least one, for a message.
func several(parts []part) string {
	if len(parts) == 1 {
		return parts[0].Name
	}
	return fmt.Sprintf("%s and %d more", parts[0].Name, len(parts)-1)
}

// manifest says what a part's folder must hold.
type manifest struct {
	Schema int    `json:"schema"`
	Part   part   `json:"part"`
	Files  []file `json:"files"`
}

// manifestName is the file in a part's folder that has its manifest.
const manifestName = "manifest.json"

// manifestSchema changes when older folders have to be made anew.
const manifestSchema = 1

// file is one kept file: a regular one or a symbolic link.
type file struct {
	Path   string `json:"path"`
	Size   int64  `json:"size,omitempty"` // in bytes
	SHA256 string `json:"sha256,omitempty"`
	Link   string `json:"link,omitempty"` // what a symbolic link says
}

// find returns the file at a path.
func (m *manifest) find(path string) (file, bool) {
	i := slices.IndexFunc(m.Files, func(f file) bool { return f.Path == path })
	if i < 0 {
		return file{}, false
	}
	return m.Files[i], true
}

// damage is the error for a kept file that is not as it was written.
type damage struct{ file, what string }

func (d *damage) Error() string { return fmt.Sprintf("%s is damaged (%s)", d.file, d.what) }

// check holds the folder of a part against its manifest, which it returns. The
// error is fs.ErrNotExist where there is no folder, and a *damage where it is
// not as it was written.
func (s *Store) check(ctx context.Context, p part) (*manifest, error) {
	dir := s.path(p.dir())
	if _, err := os.Lstat(dir); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, manifestName)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &damage{name, "missing"}
	} else if err != nil {
		return nil, err
	}
	m := new(manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, &damage{name, err.Error()}
	}
	if m.Schema != manifestSchema || m.Part != p {
		return nil, &damage{name, "about something else"}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	for _, f := range m.Files {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f.check(filepath.Join(dir, filepath.FromSlash(f.Path)))
		})
	}
	return m, g.Wait()
}

func (f file) check(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &damage{name, "missing"}
	} else if err != nil {
		return err
	}
	if f.Link != "" {
		if link, err := os.Readlink(name); err != nil || link != f.Link {
			return &damage{name, "want a link to " + f.Link}
		}
		return nil
	}
	if !info.Mode().IsRegular() {
		return &damage{name, "not a regular file"}
	}
	if info.Size() != f.Size {
		return &damage{name, fmt.Sprintf("%d bytes, want %d", info.Size(), f.Size)}
	}
	sum, err := SHA256(name)
	if err != nil {
		return err
	}
	if sum != f.SHA256 {
		return &damage{name, fmt.Sprintf("SHA-256 %s, want %s", sum, f.SHA256)}
	}
	return nil
}

// SHA256 returns the SHA-256 of a file in lower-case hexadecimal.
func SHA256(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// unpack writes what p keeps of a package's file tree, a tar stream, into dir,
// which must not exist, and then the manifest.
func (p part) unpack(r io.Reader, dir string) error {
	keep, err := regexp.Compile(p.Keep)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	m := manifest{Schema: manifestSchema, Part: p, Files: []file{}}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("reading the package's files: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if !keep.MatchString(name) {
			continue
		}
		f, err := keepFile(root, name, h, tr, m.find)
		if err != nil {
			return err
		}
		if f != nil {
			m.Files = append(m.Files, *f)
		}
	}
	data, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return root.WriteFile(manifestName, append(data, '\n'), 0o644)
}

// keepFile writes one member of the tar stream. It returns nil for those that
// are not kept: folders, devices, and links that lead out of the package.
func keepFile(root *os.Root, name string, h *tar.Header, content io.Reader, find func(string) (file, bool)) (*file, error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeLink, tar.TypeSymlink:
	default:
		return nil, nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return nil, err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		to := path.Join(path.Dir(name), h.Linkname)
		if path.IsAbs(h.Linkname) || to == ".." || strings.HasPrefix(to, "../") {
			return nil, nil
		}
		return &file{Path: name, Link: h.Linkname}, root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		first, ok := find(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"))
		if !ok {
			return nil, fmt.Errorf("%s is a second name of %s, which is not kept", name, h.Linkname)
		}
		old := first.Path
		first.Path = name
		return &first, root.Link(old, name)
	}
	w, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644|fs.FileMode(h.Mode)&0o111)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), content)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("writing %s: %w", name, err)
	}
	return &file{Path: name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

package store

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
)

// XenSpec says which Xen is wanted.
type XenSpec struct {
	GOARCH string // of the hypervisor
	// Suite is Debian's; the default is [Suite].
	Suite string
	// Version narrows the choice to releases or package versions that begin with
	// it: "4.17". The default is the newest that can be had.
	Version string
}

// Xen is a hypervisor.
type Xen struct {
	// Release is the part of the version that names the package: "4.20".
	Release string
	// Version is that of the Debian package: "4.20.2+37-g61ff35323e-0+deb13u1".
	Version string
	// Path is the hypervisor's file, compressed as Debian packs it.
	Path string
	// SHA256 is the file's, in lower-case hexadecimal.
	SHA256  string
	Package Package
}

// xenPackage matches the names of packages with a hypervisor, one for each release of
// Xen, so that several can be installed.
var xenPackage = regexp.MustCompile(`^xen-hypervisor-([0-9]+\.[0-9]+)-[a-z0-9]+$`)

// keepXen keeps the hypervisor that multiboot loaders boot, not the one for EFI.
const keepXen = `^boot/xen-[^/]+\.gz$`

// Xen returns a hypervisor, fetched where the store does not have it.
func (s *Store) Xen(ctx context.Context, spec XenSpec) (*Xen, error) {
	arch, err := guest(spec.GOARCH)
	if err != nil {
		return nil, err
	}
	spec.Suite = cmp.Or(spec.Suite, Suite)
	if err := checkWords("suite", spec.Suite, "version", spec.Version); err != nil {
		return nil, err
	}
	a, manifests, err := s.obtain(ctx, question{
		what:    fmt.Sprintf("Xen of Debian %s for %s", spec.Suite, spec.GOARCH),
		key:     []string{"xen", spec.Suite, arch.debian, cmp.Or(spec.Version, "newest")},
		suite:   spec.Suite,
		arch:    arch.debian,
		version: spec.Version,
		look: func(ctx context.Context, ar *archive) ([]*answer, error) {
			records, err := ar.search(ctx, "^xen-hypervisor-[0-9.]+-"+regexp.QuoteMeta(arch.debian)+"$")
			if err != nil {
				return nil, err
			}
			answers := hypervisors(records, spec.Version)
			if len(answers) == 0 {
				return nil, fmt.Errorf("%w%s", ErrNone, wished(spec.Version))
			}
			return answers, nil
		},
	})
	if err != nil {
		return nil, err
	}
	m := manifests[0]
	if len(m.Files) == 0 {
		return nil, fmt.Errorf("store: package %v has no file that matches %s", m.Part.Package, keepXen)
	}
	f := m.Files[0]
	return &Xen{
		Release: a.Release, Version: a.Version, Package: m.Part.Package,
		Path: s.path(m.Part.dir(), filepath.FromSlash(f.Path)), SHA256: f.SHA256,
	}, nil
}

// hypervisors lists the packages that have a hypervisor of the wished version, the
// newest first.
func hypervisors(records []record, wish string) []*answer {
	var out []*answer
	for _, r := range records {
		m := xenPackage.FindStringSubmatch(r.Name)
		if m == nil || !(satisfies(r.Version, wish) || satisfies(m[1], wish)) {
			continue
		}
		out = append(out, &answer{
			Version: r.Version, Release: m[1],
			Parts: []part{{Package: r.Package, Folder: "xen", Keep: keepXen, Size: r.Size}},
		})
	}
	slices.SortFunc(out, func(a, b *answer) int {
		return cmp.Or(compareVersions(b.Version, a.Version), compareVersions(b.Release, a.Release))
	})
	return out
}

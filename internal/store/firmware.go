package store

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
)

// FirmwareSpec says which firmware is wanted.
type FirmwareSpec struct {
	GOARCH string // of the guest
	// Suite is Debian's; the default is [Suite].
	Suite string
	// Version narrows the choice to package versions that begin with it.
	Version string
}

// Firmware is a file for QEMU's -bios.
type Firmware struct {
	Path string
	// SHA256 is the file's, in lower-case hexadecimal.
	SHA256 string
	// Package is the one that the file comes from; it is nil for an installed
	// file.
	Package *Package
}

// Firmware returns the firmware that guests of an architecture need beyond what
// every QEMU brings, fetched where the store does not have it. It is nil, without
// an error, for those that need none.
func (s *Store) Firmware(ctx context.Context, spec FirmwareSpec) (*Firmware, error) {
	arch, err := guest(spec.GOARCH)
	if err != nil || arch.firmware.pkg == "" {
		return nil, err
	}
	debian, err := host()
	if err != nil {
		return nil, err
	}
	spec.Suite = cmp.Or(spec.Suite, Suite)
	if err := checkWords("suite", spec.Suite, "version", spec.Version); err != nil {
		return nil, err
	}
	fw := arch.firmware
	a, manifests, err := s.obtain(ctx, question{
		what:    fmt.Sprintf("firmware of Debian %s for %s", spec.Suite, spec.GOARCH),
		key:     []string{"firmware", spec.Suite, fw.pkg, cmp.Or(spec.Version, "newest")},
		suite:   spec.Suite,
		arch:    debian,
		version: spec.Version,
		look: func(ctx context.Context, ar *archive) ([]*answer, error) {
			records, err := ar.show(ctx, fw.pkg)
			if err != nil {
				return nil, err
			}
			var out []*answer
			for _, r := range records {
				if satisfies(r.Version, spec.Version) {
					p := part{Package: r.Package, Folder: "firmware", Keep: "^" + regexp.QuoteMeta(fw.file) + "$", Size: r.Size}
					out = append(out, &answer{Version: r.Version, Parts: []part{p}})
				}
			}
			if len(out) == 0 {
				return nil, fmt.Errorf("%w: no package %s%s", ErrNone, fw.pkg, wished(spec.Version))
			}
			return out, nil
		},
	})
	if err != nil {
		return nil, err
	}
	p := a.Parts[0]
	f, ok := manifests[0].find(fw.file)
	if !ok {
		return nil, fmt.Errorf("store: package %v has no file %s", p.Package, fw.file)
	}
	return &Firmware{Path: s.path(p.dir(), f.Path), SHA256: f.SHA256, Package: &p.Package}, nil
}

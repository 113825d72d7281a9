package store

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
)

// KernelSpec says which kernel is wanted.
type KernelSpec struct {
	GOARCH string
	// Suite is Debian's; the default is [Suite].
	Suite string
	// Flavour is Debian's, such as "amd64" or "rt-amd64"; the default depends on
	// the architecture.
	Flavour string
	// Version narrows the choice to releases or package versions that begin with
	// it: "6.12", "6.12.107-1". The default is the newest that can be had.
	Version string
}

// Kernel is a Linux kernel with its modules.
type Kernel struct {
	GOARCH string
	// Suite and Flavour are Debian's names.
	Suite, Flavour string
	// Release is what "uname -r" prints: "7.2.12+deb14-cloud-amd64".
	Release string
	// Version is that of the Debian package: "7.2.12-1".
	Version string
	// Image is the kernel's file, as QEMU's -kernel takes it.
	Image string
	// SHA256 is the image's, in lower-case hexadecimal.
	SHA256 string
	// Modules is the folder with the modules, named by the release. The modules
	// are as Debian packs them, .ko.xz or .ko, and there is no modules.dep.
	Modules  string
	Packages []Package
}

// keepKernel keeps what boots, the configuration, and the modules. Debian's
// kernels up to 6.12 are one package with /boot/vmlinuz-RELEASE and
// /lib/modules/RELEASE; 7.2's are two, all in /usr/lib/modules/RELEASE.
const keepKernel = `^boot/(vmlinu[xz]|config)-|^(usr/)?lib/modules/`

// Kernel returns a kernel, fetched where the store does not have it.
func (s *Store) Kernel(ctx context.Context, spec KernelSpec) (*Kernel, error) {
	arch, err := guest(spec.GOARCH)
	if err != nil {
		return nil, err
	}
	spec.Suite = cmp.Or(spec.Suite, Suite)
	spec.Flavour = cmp.Or(spec.Flavour, arch.flavour)
	if err := checkWords("suite", spec.Suite, "flavour", spec.Flavour, "version", spec.Version); err != nil {
		return nil, err
	}
	a, manifests, err := s.obtain(ctx, question{
		what:    fmt.Sprintf("kernel of Debian %s for %s, flavour %s", spec.Suite, spec.GOARCH, spec.Flavour),
		key:     []string{"kernel", spec.Suite, arch.debian, spec.Flavour, cmp.Or(spec.Version, "newest")},
		suite:   spec.Suite,
		arch:    arch.debian,
		version: spec.Version,
		look: func(ctx context.Context, ar *archive) ([]*answer, error) {
			return lookForKernel(ctx, ar, spec)
		},
	})
	if err != nil {
		return nil, err
	}
	k := &Kernel{
		GOARCH: spec.GOARCH, Suite: spec.Suite, Flavour: spec.Flavour,
		Release: a.Release, Version: a.Version, Packages: a.packages(),
	}
	for _, m := range manifests {
		dir := s.path(m.Part.dir())
		for _, f := range m.Files {
			if k.Image == "" && isImage(arch, a.Release, f.Path) {
				k.Image, k.SHA256 = filepath.Join(dir, f.Path), f.SHA256
			}
			if base := modulesOf(f.Path, a.Release); k.Modules == "" && base != "" {
				k.Modules = filepath.Join(dir, base)
			}
		}
	}
	if k.Image == "" || k.Modules == "" {
		return nil, fmt.Errorf("store: kernel %s: no image (%v) or no modules in packages %v", a.Release, arch.images, k.Packages)
	}
	return k, nil
}

// isImage tells whether a path is where a kernel's image is found.
func isImage(arch *architecture, release, path string) bool {
	for _, name := range arch.images {
		if path == "usr/lib/modules/"+release+"/"+name || path == "boot/"+name+"-"+release {
			return true
		}
	}
	return false
}

// modulesOf returns the folder of a release's modules that a module is in.
func modulesOf(path, release string) string {
	m := modulePath.FindStringSubmatch(path)
	if m == nil || m[2] != release {
		return ""
	}
	return m[1]
}

var modulePath = regexp.MustCompile(`^((?:usr/)?lib/modules/([^/]+))/kernel/.*\.ko(\.[a-z0-9]+)?$`)

// lookForKernel lists the kernels of a flavour, the newest first.
func lookForKernel(ctx context.Context, ar *archive, spec KernelSpec) ([]*answer, error) {
	records, err := ar.search(ctx, "^linux-(image|binary|modules)-[0-9].*-"+regexp.QuoteMeta(spec.Flavour)+"$")
	if err != nil {
		return nil, err
	}
	answers := kernels(records, spec)
	if len(answers) == 0 {
		return nil, fmt.Errorf("%w%s", ErrNone, wished(spec.Version))
	}
	return answers, nil
}

func wished(version string) string {
	if version == "" {
		return ""
	}
	return " of version " + version
}

// kernels sorts the packages of a flavour into kernels. A release's name is the
// upstream version and a suffix of Debian's, then the flavour:
// 7.2.12+deb14-cloud-amd64, 6.1.0-50-cloud-amd64.
func kernels(records []record, spec KernelSpec) []*answer {
	name := regexp.MustCompile(`^linux-(image|binary|modules)-([0-9][^-]*(?:-[0-9][^-]*)?-` + regexp.QuoteMeta(spec.Flavour) + `)$`)
	type key struct{ release, version string }
	found := make(map[key]map[string]part)
	for _, r := range records {
		m := name.FindStringSubmatch(r.Name)
		if m == nil || !(satisfies(r.Version, spec.Version) || satisfies(m[2], spec.Version)) {
			continue
		}
		k := key{m[2], r.Version}
		if found[k] == nil {
			found[k] = make(map[string]part)
		}
		found[k][m[1]] = part{Package: r.Package, Folder: "kernel", Keep: keepKernel, Size: r.Size}
	}
	var out []*answer
	for k, parts := range found {
		a := &answer{Version: k.version, Release: k.release}
		binary, split := parts["binary"]
		modules := parts["modules"]
		image, whole := parts["image"]
		switch {
		case split && modules.Name != "":
			a.Parts = []part{binary, modules}
		case whole && !split: // where there is a binary package, this one is empty
			a.Parts = []part{image}
		default:
			continue
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *answer) int {
		return cmp.Or(compareVersions(b.Version, a.Version), compareVersions(b.Release, a.Release))
	})
	return out
}

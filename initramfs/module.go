package initramfs

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"

	"pvabi/internal/decompress"
)

// ErrModuleMissing is wrapped by errors about a module that is not there.
var ErrModuleMissing = errors.New("kernel module missing")

// ErrOtherKernel is wrapped by errors about modules that do not belong to the
// kernel that is to load them.
var ErrOtherKernel = errors.New("modules of another kernel")

// maxModule bounds a decompressed module in bytes; the largest ones of
// distribution kernels, amdgpu's and xfs's, stay below 32 MiB without debug
// information.
const maxModule = 128 << 20

// module is a kernel module as read from its file.
type module struct {
	name    string // canonical
	file    string // on the host
	path    string // below lib/modules/RELEASE in the image
	content []byte // decompressed

	// What the module says of itself.
	goarch  string
	release string
	depends []string
}

// canonical returns a module's name as the kernel has it: hyphens of a file's
// name are underscores (include/linux/moduleparam.h, KBUILD_MODNAME).
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// splitName splits the name of a module's file into the module's canonical
// name and the ending that says how it is compressed, "" if it is not.
func splitName(name string) (module, compression string, ok bool) {
	for _, compression := range []string{"", ".xz", ".zst", ".gz"} {
		if m, ok := strings.CutSuffix(name, ".ko"+compression); ok && m != "" {
			return canonical(m), compression, true
		}
	}
	return "", "", false
}

// readModule reads a module from a file, decompressed as its ending says.
func readModule(name string) (*module, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read a kernel module: %w", err)
	}
	defer f.Close()
	_, compression, _ := splitName(name)
	content, err := decompress.All(f, compression, maxModule)
	if err != nil {
		return nil, fmt.Errorf("decompress kernel module %s: %w", name, err)
	}
	m, err := parseModule(content)
	if err != nil {
		return nil, fmt.Errorf("read kernel module %s: %w", name, err)
	}
	m.file = name
	return m, nil
}

// parseModule reads what a module says of itself from its section .modinfo: a
// list of key=value, each ended by a zero byte (include/linux/moduleparam.h,
// __MODULE_INFO). "depends" names the modules whose symbols it uses; soft
// dependencies are wishes that a module loads without, and are not followed.
func parseModule(content []byte) (*module, error) {
	f, err := openELF(content)
	if err != nil {
		return nil, err
	}
	if f.Type != elf.ET_REL {
		return nil, fmt.Errorf("an ELF file of type %v, and modules are %v", f.Type, elf.ET_REL)
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo: not a kernel module")
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("section .modinfo: %w", err)
	}
	m := &module{content: content, goarch: elfArch(f)}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "vermagic": // the release, then what else must be the same
			m.release, _, _ = strings.Cut(value, " ")
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					m.depends = append(m.depends, name)
				}
			}
		}
	}
	if m.release == "" {
		return nil, errors.New("no vermagic in its section .modinfo")
	}
	return m, nil
}

// openELF is elf.NewFile for content that may be anything.
func openELF(content []byte) (*elf.File, error) {
	if !bytes.HasPrefix(content, []byte(elf.ELFMAG)) {
		return nil, errors.New("not an ELF file")
	}
	return elf.NewFile(bytes.NewReader(content))
}

// elfArchs are the architectures that targets run on, as ELF headers name them.
var elfArchs = []struct {
	machine elf.Machine
	data    elf.Data
	goarch  string
}{
	{elf.EM_X86_64, elf.ELFDATA2LSB, "amd64"},
	{elf.EM_LOONGARCH, elf.ELFDATA2LSB, "loong64"},
	{elf.EM_PPC64, elf.ELFDATA2LSB, "ppc64le"},
	{elf.EM_S390, elf.ELFDATA2MSB, "s390x"},
}

// elfArch returns the GOARCH of an ELF file, or the name that ELF has for the
// architecture if it is none of a target.
func elfArch(f *elf.File) string {
	for _, a := range elfArchs {
		if f.Machine == a.machine && f.Data == a.data && f.Class == elf.ELFCLASS64 {
			return a.goarch
		}
	}
	return fmt.Sprintf("%v (%v, %v)", f.Machine, f.Class, f.Data)
}

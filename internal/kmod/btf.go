package kmod

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// What there is to learn from a kernel that has no module for a sibling: the size of struct module
// from its description of its own types, and vermagic from its memory.
const (
	btfFile     = "/sys/kernel/btf/vmlinux"
	symbolsFile = "/proc/kallsyms"
	memoryFile  = "/proc/kcore"
)

// wideAlign is an alignment that does for struct module on each architecture: that of the largest
// cache line, of s390 (arch/s390/include/asm/cache.h, L1_CACHE_BYTES).
const wideAlign = 256

// structModule returns the size of struct module, in bytes, from a kernel's BTF
// (Documentation/bpf/btf.rst), and looks whether its name is where Image writes it.
func structModule(types io.ReaderAt) (uint64, error) {
	spec, err := btf.LoadSpecFromReader(types)
	if err != nil {
		return 0, err
	}
	var s *btf.Struct
	if err := spec.TypeByName("module", &s); err != nil {
		return 0, err
	}
	for _, m := range s.Members {
		if m.Name != "name" {
			continue
		}
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			return 0, err
		}
		if at := m.Offset.Bytes(); at != moduleName || size != moduleNameLen {
			return 0, fmt.Errorf("struct module has its name at %d, of %d bytes, and not at %d, of %d", at, size, moduleName, moduleNameLen)
		}
		return uint64(s.Size), nil
	}
	return 0, fmt.Errorf("struct module has no name")
}

// symbols finds a variable among the kernel's symbols (/proc/kallsyms: address, type and name).
// checked tells whether there are those that kCFI has for the functions that it checks
// (Documentation/kbuild/llvm.rst, and clang's -fsanitize=kcfi).
func symbols(r io.Reader, name string) (address uint64, checked bool, err error) {
	rows := bufio.NewScanner(r)
	for rows.Scan() {
		fields := strings.Fields(rows.Text())
		if len(fields) < 3 {
			continue
		}
		checked = checked || strings.HasPrefix(fields[2], "__cfi_")
		if fields[2] == name && len(fields) == 3 {
			if address, err = strconv.ParseUint(fields[0], 16, 64); err != nil {
				return 0, checked, fmt.Errorf("address of %s: %w", name, err)
			}
		}
	}
	if err := rows.Err(); err != nil {
		return 0, checked, err
	}
	if address == 0 {
		return 0, checked, fmt.Errorf("no address of %s; the kernel needs CONFIG_KALLSYMS_ALL, and this process CAP_SYSLOG", name)
	}
	return address, checked, nil
}

// memoryText reads a string of C's from an image of the kernel's memory.
func memoryText(memory *elf.File, address uint64) (string, error) {
	const most = 256
	for _, p := range memory.Progs {
		if p.Type != elf.PT_LOAD || address < p.Vaddr || address-p.Vaddr >= p.Filesz {
			continue
		}
		text := make([]byte, min(most, p.Filesz-(address-p.Vaddr)))
		if _, err := p.ReadAt(text, int64(address-p.Vaddr)); err != nil {
			return "", err
		}
		s, _, ended := strings.Cut(string(text), "\x00")
		if !ended {
			return "", fmt.Errorf("no string at %#x", address)
		}
		return s, nil
	}
	return "", fmt.Errorf("no memory at %#x", address)
}

// known makes a Kernel of what was learned.
func known(release, vermagic string, size uint64) (*Kernel, error) {
	k := &Kernel{Vermagic: vermagic, Size: size, Align: wideAlign, Versions: map[string][]byte{}}
	switch {
	case k.Release() != release:
		return nil, fmt.Errorf("its vermagic, %q, is of another release than %s", vermagic, release)
	case strings.Contains(vermagic, " modversions "):
		return nil, fmt.Errorf("it looks at checksums of its interfaces (CONFIG_MODVERSIONS), which only a module tells")
	case size < moduleName+moduleNameLen || size > maxStruct:
		return nil, fmt.Errorf("a struct module of %d bytes cannot be", size)
	}
	return k, nil
}

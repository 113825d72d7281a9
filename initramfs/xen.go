package initramfs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"pvabi/internal/decompress"
)

// ErrXen is wrapped by errors about a file that is no usable Xen.
var ErrXen = errors.New("not a usable Xen")

// maxXen bounds a hypervisor's file, compressed or not, in bytes. Those of distributions are
// smaller than 3 MiB.
const maxXen = 64 << 20

// xenRemedy is what to do about a file that is no Xen, or another form of it.
const xenRemedy = "give the file that a boot loader takes for multiboot: /boot/xen-*.gz of a distribution, xen/xen.gz of an own build"

// multiboot is what a multiboot boot loader looks for: three words, of which the first is magic
// and all add up to 0, aligned to four bytes within the first 8192 (The Multiboot
// Specification 0.6.96, 3.1.1).
const (
	multibootMagic  = 0x1badb002
	multibootWithin = 8192
)

// xenPrefix begins each line that Xen prints, and is in each Xen (xen/drivers/char/console.c).
const xenPrefix = "(XEN) "

// UnpackXen writes the Xen in a file, which may be compressed, to w as QEMU boots it, and returns
// its build id in lower-case hexadecimal, which is empty where it has none. A running Xen
// tells its guests that id (XENVER_build_id). An error that wraps ErrXen says that the file is no
// Xen.
func UnpackXen(w io.Writer, name string) (buildID string, err error) {
	content, err := readBootable(name, "hypervisor", maxXen, ErrXen)
	if err != nil {
		return "", err
	}
	if has(content, 0, "\x1f\x8b") {
		if content, err = decompress.All(bytes.NewReader(content), ".gz", maxXen); err != nil {
			return "", fmt.Errorf("%w: %s: %w; fetch or copy the file again", ErrXen, name, err)
		}
	}
	buildID, err = inspectXen(content)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrXen, name, err)
	}
	if _, err := w.Write(content); err != nil {
		return "", fmt.Errorf("unpack Xen %s: %w", name, err)
	}
	return buildID, nil
}

// inspectXen makes sure that a file is a Xen that QEMU can boot, and returns its build id.
func inspectXen(content []byte) (buildID string, err error) {
	f, err := openELF(content)
	switch {
	case has(content, 0, "MZ"):
		return "", fmt.Errorf("an EFI application or a Linux kernel; %s", xenRemedy)
	case err != nil:
		return "", fmt.Errorf("%w; %s", err, xenRemedy)
	case f.Class != elf.ELFCLASS32 || f.Machine != elf.EM_386: // such as xen-syms
		return "", fmt.Errorf("an ELF file for %v (%v), and multiboot takes %v; %s", f.Machine, f.Class, elf.EM_386, xenRemedy)
	case !hasMultiboot(content):
		return "", fmt.Errorf("no multiboot header in its first %d bytes; %s", multibootWithin, xenRemedy)
	case !bytes.Contains(content, []byte(xenPrefix)):
		return "", fmt.Errorf("a multiboot program, and not Xen: it has no %q; %s", xenPrefix, xenRemedy)
	}
	for _, p := range f.Progs {
		if end := p.Off + p.Filesz; end < p.Off || uint64(len(content)) < end {
			return "", fmt.Errorf("%d bytes, and a segment ends at %d: %w", len(content), end, errCut)
		}
		if p.Type == elf.PT_NOTE {
			if id, ok := note(content[p.Off:p.Off+p.Filesz], f.ByteOrder, "GNU\x00", gnuBuildID); ok {
				buildID = hex.EncodeToString(id)
			}
		}
	}
	return buildID, nil
}

// gnuBuildID is the type of the ELF note, of owner "GNU", that tells a build from all others
// (NT_GNU_BUILD_ID of elf.h).
const gnuBuildID = 3

// hasMultiboot tells whether a file begins as a multiboot loader wants it to.
func hasMultiboot(content []byte) bool {
	le := binary.LittleEndian
	for at := 0; at+12 <= min(len(content), multibootWithin); at += 4 {
		if le.Uint32(content[at:]) == multibootMagic &&
			le.Uint32(content[at:])+le.Uint32(content[at+4:])+le.Uint32(content[at+8:]) == 0 {
			return true
		}
	}
	return false
}

package initramfs

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"pvabi/internal/decompress"
)

// ErrKernel is wrapped by errors about a file that is no usable kernel.
var ErrKernel = errors.New("not a usable kernel")

// Formats of kernel files.
const (
	FormatBzImage = "bzImage"   // x86: setup code, then a compressed kernel
	FormatELF     = "ELF"       // vmlinux
	FormatS390    = "s390"      // s390: a memory image to be loaded at address 0
	FormatZboot   = "EFI zboot" // EFI application around a compressed kernel
)

// KernelInfo is what a kernel file says of itself.
type KernelInfo struct {
	GOARCH string `json:"goarch"`
	Format string `json:"format"`
	// Release is what uname -r will print. It is empty where the file does not
	// tell, such as in an ELF file that only wraps a compressed kernel.
	Release string `json:"release"`
}

// maxKernel bounds a kernel file, and what is compressed in one, in bytes.
const maxKernel = 1 << 30

// InspectKernel reads from a kernel file for which architecture it is, and
// which release. It finds files that are missing, empty, cut off, or no kernel
// at all; the error then wraps ErrKernel or an fs error and names the file.
func InspectKernel(name string) (KernelInfo, error) {
	content, err := readKernel(name)
	if err != nil {
		return KernelInfo{}, err
	}
	info, err := inspectKernel(content)
	if err != nil {
		return KernelInfo{}, fmt.Errorf("%w: %s: %w", ErrKernel, name, err)
	}
	return info, nil
}

// CheckKernel is InspectKernel for a kernel that must be for goarch.
func CheckKernel(name, goarch string) (KernelInfo, error) {
	info, err := InspectKernel(name)
	if err == nil && info.GOARCH != goarch {
		err = fmt.Errorf("%w: %s is for %s (its format is %s), and the target needs a kernel for %s", ErrKernel, name, info.GOARCH, info.Format, goarch)
	}
	return info, err
}

func readKernel(name string) ([]byte, error) {
	return readBootable(name, "kernel", maxKernel, ErrKernel)
}

// readBootable reads a file that is to be booted: a kernel, or Xen. What cannot be one wraps
// unusable.
func readBootable(name, what string, limit int64, unusable error) ([]byte, error) {
	s, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", what, err)
	}
	switch {
	case !s.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is no regular file", unusable, name)
	case s.Size() == 0:
		return nil, fmt.Errorf("%w: %s is empty", unusable, name)
	case s.Size() > limit:
		return nil, fmt.Errorf("%w: %s has %d bytes, more than any %s", unusable, name, s.Size(), what)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", what, err)
	}
	return content, nil
}

var errCut = errors.New("the file is cut off; fetch or copy it again")

func inspectKernel(content []byte) (KernelInfo, error) {
	switch {
	case has(content, 0x202, "HdrS"):
		return inspectBzImage(content)
	case has(content, 0, "MZ") && has(content, 4, "zimg"):
		return inspectZboot(content)
	case has(content, 0, elf.ELFMAG):
		return inspectELF(content)
	case has(content, s390Magic, "S390EP"):
		return inspectS390(content)
	}
	return KernelInfo{}, errors.New("neither bzImage, ELF, s390 image nor EFI zboot")
}

// has tells whether content has magic at an offset.
func has(content []byte, offset int, magic string) bool {
	return len(content) >= offset && bytes.HasPrefix(content[offset:], []byte(magic))
}

// Offsets into a bzImage, all values little endian:
// Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".
const (
	bzSetupSects    = 0x1f1 // 1 byte: size of the setup code in sectors, less one; 0 means 4
	bzSyssize       = 0x1f4 // 4 bytes: size of the rest in 16-byte units
	bzVersion       = 0x206 // 2 bytes: of the boot protocol
	bzKernelVersion = 0x20e // 2 bytes: where the version is, less 0x200
	bzXloadflags    = 0x236 // 2 bytes
	bzPayloadOffset = 0x248 // 4 bytes: from the end of the setup code
	bzPayloadLength = 0x24c // 4 bytes
	bzHeaderEnd     = 0x250

	bzXLFKernel64  = 1     // xloadflags: the kernel has a 64-bit entry point
	bzVersionXLF   = 0x20c // the first protocol with xloadflags
	bzSectorLength = 512
)

// bzSetup returns the size of a bzImage's setup code in bytes.
func bzSetup(content []byte) uint64 {
	sects := uint64(content[bzSetupSects])
	if sects == 0 {
		sects = 4
	}
	return (sects + 1) * bzSectorLength
}

func inspectBzImage(content []byte) (KernelInfo, error) {
	info := KernelInfo{GOARCH: "386", Format: FormatBzImage}
	if len(content) < bzHeaderEnd {
		return info, errCut
	}
	le := binary.LittleEndian
	setup := bzSetup(content)
	if want := setup + 16*uint64(le.Uint32(content[bzSyssize:])); uint64(len(content)) < want {
		return info, fmt.Errorf("%d bytes, and its header says %d: %w", len(content), want, errCut)
	}
	if le.Uint16(content[bzVersion:]) >= bzVersionXLF && le.Uint16(content[bzXloadflags:])&bzXLFKernel64 != 0 {
		info.GOARCH = "amd64"
	}
	if v := le.Uint16(content[bzKernelVersion:]); v != 0 {
		info.Release = firstWord(content, uint64(v)+0x200)
	}
	return info, nil
}

// Offsets into an s390 image, all values big endian: arch/s390/boot/head.S,
// EP_STRING; arch/s390/include/asm/setup.h, struct parmarea (7.2).
const (
	s390Magic         = 0x10008
	s390KernelVersion = 0x10428 // 8 bytes: address of the version; 0 before 5.8
)

func inspectS390(content []byte) (KernelInfo, error) {
	info := KernelInfo{GOARCH: "s390x", Format: FormatS390}
	if len(content) < s390KernelVersion+8 {
		return info, errCut
	}
	v := binary.BigEndian.Uint64(content[s390KernelVersion:])
	if v >= uint64(len(content)) {
		return info, fmt.Errorf("%d bytes, and its version is at %#x: %w", len(content), v, errCut)
	}
	if v != 0 {
		info.Release = firstWord(content, v)
	}
	return info, nil
}

// Offsets into an EFI zboot image, all values little endian:
// drivers/firmware/efi/libstub/zboot-header.S (7.2). At peOffset is where the
// PE header begins: four bytes of signature, two of machine.
const (
	zbootPayloadOffset = 8  // 4 bytes
	zbootPayloadSize   = 12 // 4 bytes
	zbootCompression   = 24 // a string, ended by a zero byte
	peOffset           = 0x3c
	zbootHeaderEnd     = 0x40
)

// peArchs are the architectures of targets as PE headers name them.
var peArchs = map[uint16]string{
	pe.IMAGE_FILE_MACHINE_AMD64:       "amd64",
	pe.IMAGE_FILE_MACHINE_ARM64:       "arm64",
	pe.IMAGE_FILE_MACHINE_LOONGARCH64: "loong64",
	pe.IMAGE_FILE_MACHINE_RISCV64:     "riscv64",
}

func inspectZboot(content []byte) (KernelInfo, error) {
	info := KernelInfo{Format: FormatZboot}
	if len(content) < zbootHeaderEnd {
		return info, errCut
	}
	le := binary.LittleEndian
	header := uint64(le.Uint32(content[peOffset:]))
	end := uint64(le.Uint32(content[zbootPayloadOffset:])) + uint64(le.Uint32(content[zbootPayloadSize:]))
	if uint64(len(content)) < max(header+6, end) {
		return info, fmt.Errorf("%d bytes, and its header says %d: %w", len(content), max(header+6, end), errCut)
	}
	machine := le.Uint16(content[header+4:])
	info.GOARCH = peArchs[machine]
	if info.GOARCH == "" {
		info.GOARCH = fmt.Sprintf("PE machine %#x", machine)
	}
	// A kernel compressed in a way not known here is a kernel all the same.
	if kernel, err := unpack(zbootPayload(content)); err == nil {
		info.Release = bannerRelease(kernel)
	}
	return info, nil
}

func inspectELF(content []byte) (KernelInfo, error) {
	info := KernelInfo{Format: FormatELF}
	f, err := openELF(content)
	if err != nil {
		return info, err
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return info, fmt.Errorf("an ELF file of type %v", f.Type)
	}
	loads := 0
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		loads++
		if end := p.Off + p.Filesz; end < p.Off || uint64(len(content)) < end {
			return info, fmt.Errorf("%d bytes, and a segment ends at %d: %w", len(content), end, errCut)
		}
	}
	if loads == 0 {
		return info, errors.New("an ELF file with nothing to load")
	}
	info.GOARCH = elfArch(f)
	info.Release = bannerRelease(content)
	return info, nil
}

// bannerRelease finds the release in linux_banner, "Linux version RELEASE (…"
// (init/version-timestamp.c). Format strings can look alike, so what follows
// must begin like a version.
func bannerRelease(content []byte) string {
	banner := []byte("Linux version ")
	for {
		i := bytes.Index(content, banner)
		if i < 0 {
			return ""
		}
		content = content[i+len(banner):]
		if r := firstWord(content, 0); r != "" && r[0] >= '0' && r[0] <= '9' {
			return r
		}
	}
}

// firstWord returns the printable word that begins at an offset.
func firstWord(content []byte, offset uint64) string {
	if offset >= uint64(len(content)) {
		return ""
	}
	word := content[offset:min(offset+64, uint64(len(content)))] // __NEW_UTS_LEN is 64
	if end := bytes.IndexFunc(word, func(r rune) bool { return r <= ' ' || r > '~' }); end >= 0 {
		word = word[:end]
	}
	return string(word)
}

// compressions are the magics of how kernels are compressed, those that are
// known here. What is complete can be decompressed whatever was done with it, so
// that data which cannot is damaged; an xz file may have been filtered for its
// instruction set (scripts/xz_wrap.sh), which the decoder does not know.
var compressions = []struct {
	magic, ending string
	complete      bool
}{
	{"\x28\xb5\x2f\xfd", ".zst", true},
	{"\xfd7zXZ\x00", ".xz", false},
	{"\x1f\x8b", ".gz", true},
}

var errDamaged = errors.New("the compressed kernel in it is damaged; fetch or copy the file again")

// unpack decompresses the payload of a kernel file. Except after gzip, which
// has one of its own, four bytes with the size follow the compressed data
// (scripts/Makefile.lib, size_append, up to 7.2); they are accepted, not
// required.
func unpack(payload []byte) ([]byte, error) {
	for _, c := range compressions {
		if !strings.HasPrefix(string(payload[:min(len(payload), 8)]), c.magic) {
			continue
		}
		whole, err := decompress.All(bytes.NewReader(payload), c.ending, maxKernel)
		if err != nil && len(payload) > 4 {
			var without error
			if whole, without = decompress.All(bytes.NewReader(payload[:len(payload)-4]), c.ending, maxKernel); without == nil {
				err = nil
			}
		}
		if err != nil && c.complete {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return whole, err
	}
	return nil, errors.New("compressed in a way that is not known here")
}

// ErrNotDirect is wrapped by errors about kernels that can only be booted as
// they are.
var ErrNotDirect = errors.New("cannot be booted without its own decompressor")

// xenPhys32Entry is the type of the ELF note, of owner "Xen", in which an x86
// kernel with CONFIG_PVH says where it can be entered in 32-bit mode
// (include/xen/interface/elfnote.h, XEN_ELFNOTE_PHYS32_ENTRY).
const xenPhys32Entry = 18

// UnpackKernel writes the kernel that is compressed in a file to w: of a bzImage
// the ELF kernel, of an EFI zboot image for LoongArch the image in it. QEMU boots the
// one by the entry point of CONFIG_PVH, which spares an emulated guest the
// decompression, more than a second, and the other without firmware, which spares it
// half a minute. An error that wraps ErrNotDirect says that this kernel has no such entry
// point, is of another format, or is compressed in an unknown way; it must then be booted
// as it is. One that wraps ErrKernel says that the file cannot be booted at all.
func UnpackKernel(w io.Writer, name string) error {
	content, err := readKernel(name)
	if err != nil {
		return err
	}
	info, err := inspectKernel(content)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrKernel, name, err)
	}
	var kernel []byte
	switch {
	case info.Format == FormatBzImage:
		kernel, err = unpackBzImage(content)
	case info.Format == FormatZboot && info.GOARCH == "loong64":
		kernel, err = unpack(zbootPayload(content))
	default:
		return fmt.Errorf("kernel %s %w: its format is %s", name, ErrNotDirect, info.Format)
	}
	if errors.Is(err, errDamaged) {
		return fmt.Errorf("%w: %s: %w", ErrKernel, name, err)
	}
	if err != nil {
		return fmt.Errorf("kernel %s %w: %w", name, ErrNotDirect, err)
	}
	if _, err := w.Write(kernel); err != nil {
		return fmt.Errorf("unpack kernel %s: %w", name, err)
	}
	return nil
}

// zbootPayload is what is compressed in a whole EFI zboot image.
func zbootPayload(content []byte) []byte {
	le := binary.LittleEndian
	start := uint64(le.Uint32(content[zbootPayloadOffset:]))
	return content[start : start+uint64(le.Uint32(content[zbootPayloadSize:]))]
}

// bzPayload is what is compressed in a whole bzImage, or nil where its header does not tell.
func bzPayload(content []byte) []byte {
	le := binary.LittleEndian
	start := bzSetup(content) + uint64(le.Uint32(content[bzPayloadOffset:]))
	end := start + uint64(le.Uint32(content[bzPayloadLength:]))
	if start == end || end > uint64(len(content)) {
		return nil
	}
	return content[start:end]
}

// unpackBzImage returns the ELF kernel in a whole bzImage.
func unpackBzImage(content []byte) ([]byte, error) {
	payload := bzPayload(content)
	if payload == nil {
		return nil, errors.New("its header does not say where the kernel is")
	}
	kernel, err := unpack(payload)
	if err != nil {
		return nil, err
	}
	f, err := openELF(kernel)
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Off > uint64(len(kernel)) || p.Filesz > uint64(len(kernel))-p.Off {
			continue
		}
		if _, ok := note(kernel[p.Off:p.Off+p.Filesz], f.ByteOrder, "Xen\x00", xenPhys32Entry); ok {
			return kernel, nil
		}
	}
	return nil, errors.New("it was built without CONFIG_PVH")
}

// note finds, in a segment of ELF notes, the content of the first one of an owner and type. A
// note is three words (length of the owner's name, length of the content,
// type), then name and content, each padded to four bytes.
func note(notes []byte, order binary.ByteOrder, owner string, kind uint32) (content []byte, ok bool) {
	pad := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
	for len(notes) >= 12 {
		name, content, k := order.Uint32(notes), order.Uint32(notes[4:]), order.Uint32(notes[8:])
		begin := 12 + pad(name)
		if begin+pad(content) > uint64(len(notes)) {
			return nil, false
		}
		if k == kind && string(notes[12:12+uint64(name)]) == owner {
			return notes[begin : begin+uint64(content)], true
		}
		notes = notes[begin+pad(content):]
	}
	return nil, false
}

// KernelConfig returns the configuration that a kernel built with CONFIG_IKCONFIG has in itself: what
// is compressed by gzip between two marks (kernel/configs.c). It is nil for a kernel without, and
// for one that is compressed in a way that is not known here.
func KernelConfig(name string) ([]byte, error) {
	content, err := readKernel(name)
	if err != nil {
		return nil, err
	}
	info, err := inspectKernel(content)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKernel, name, err)
	}
	config, ok := []byte(nil), false
	if payload := compressed(info.Format, content); payload != nil {
		if whole, err := unpack(payload); err == nil {
			_, config, ok = bytes.Cut(whole, []byte(configMark))
		}
	}
	// What is compressed can have a part of it as it is, so that this comes second.
	if !ok {
		_, config, ok = bytes.Cut(content, []byte(configMark))
	}
	if !ok {
		return nil, nil
	}
	// What comes after the compressed data, the reader leaves.
	r, err := gzip.NewReader(io.MultiReader(strings.NewReader("\x1f\x8b"), bytes.NewReader(config)))
	if err != nil {
		return nil, fmt.Errorf("the configuration in kernel %s: %w", name, err)
	}
	r.Multistream(false)
	text, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("the configuration in kernel %s: %w", name, err)
	}
	return text, nil
}

// configMark is what a configuration in a kernel begins with: the mark, then the magic of gzip.
const configMark = "IKCFG_ST\x1f\x8b"

// maxConfig bounds a configuration in bytes; those of distributions have 300 KB.
const maxConfig = 16 << 20

// compressed is what is compressed in a kernel's file, or nil where nothing is that can be found.
func compressed(format string, content []byte) []byte {
	switch format {
	case FormatZboot:
		return zbootPayload(content)
	case FormatBzImage:
		return bzPayload(content)
	case FormatS390:
		for _, c := range compressions {
			if i := bytes.Index(content, []byte(c.magic)); i >= 0 {
				return content[i:]
			}
		}
	}
	return nil
}

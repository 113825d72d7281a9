package initramfs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const banner = "%s version %s\x00Linux version %s\x00Linux version " + release + " (builder@host) (gcc) #1 SMP\n\x00"

// xenNote is a segment of notes as x86 kernels have them, with one that says
// where a PVH guest is entered.
var xenNote = "\x06\x00\x00\x00\x04\x00\x00\x00\x00\x01\x00\x00Linux\x00\x00\x00\x00\x00\x00\x00" +
	"\x04\x00\x00\x00\x08\x00\x00\x00\x12\x00\x00\x00Xen\x00\x00\x00\x00\x01\x00\x00\x00\x00"

func vmlinux(t testing.TB, machine elf.Machine, order binary.ByteOrder, notes string) []byte {
	e := elfFile{machine: machine, order: order, kind: elf.ET_EXEC, segments: []segment{{elf.PT_LOAD, banner}}}
	if notes != "" {
		e.segments = append(e.segments, segment{elf.PT_NOTE, notes})
	}
	return e.bytes(t)
}

// bzImage returns a bzImage around a payload.
func bzImage(payload []byte) []byte {
	const setup = 5 * bzSectorLength
	le := binary.LittleEndian
	image := make([]byte, setup+64)
	image[bzSetupSects] = 0 // which means 4
	copy(image[0x202:], "HdrS")
	le.PutUint16(image[bzVersion:], 0x20f)
	le.PutUint16(image[bzXloadflags:], bzXLFKernel64)
	le.PutUint16(image[bzKernelVersion:], 0x300)
	copy(image[0x500:], release+" (builder@host) #1 SMP\x00")
	le.PutUint32(image[bzPayloadOffset:], 64)
	le.PutUint32(image[bzPayloadLength:], uint32(len(payload)))
	image = append(image, payload...)
	image = append(image, make([]byte, (16-(len(image)-setup)%16)%16)...)
	le.PutUint32(image[bzSyssize:], uint32(len(image)-setup)/16)
	return image
}

// zboot returns an EFI zboot image for a machine around a payload.
func zboot(machine uint16, payload []byte) []byte {
	le := binary.LittleEndian
	image := make([]byte, 256)
	copy(image, "MZ\x00\x00zimg")
	le.PutUint32(image[zbootPayloadOffset:], uint32(len(image)))
	le.PutUint32(image[zbootPayloadSize:], uint32(len(payload)))
	copy(image[zbootCompression:], "zstd\x00")
	le.PutUint32(image[peOffset:], 64)
	copy(image[64:], "PE\x00\x00")
	le.PutUint16(image[68:], machine)
	return append(image, payload...)
}

func s390Image(version uint64) []byte {
	image := make([]byte, 0x11000)
	copy(image[s390Magic:], "S390EP")
	binary.BigEndian.PutUint64(image[s390KernelVersion:], version)
	copy(image[0x10800:], release+" (builder@host) #1 SMP\x00")
	return image
}

// sized appends a size, as kernels do after compressed data.
func sized(payload []byte, size int) []byte {
	return binary.LittleEndian.AppendUint32(payload, uint32(size))
}

func TestInspectKernel(t *testing.T) {
	kernel := vmlinux(t, elf.EM_X86_64, binary.LittleEndian, xenNote)
	i386 := bzImage(nil)
	binary.LittleEndian.PutUint16(i386[bzXloadflags:], 0)
	for _, test := range []struct {
		name    string
		content []byte
		want    KernelInfo
	}{
		{"x86", bzImage(compress(t, ".zst", kernel)), KernelInfo{"amd64", FormatBzImage, release}},
		{"x86 of 32 bits", i386, KernelInfo{"386", FormatBzImage, release}},
		{"x86 ELF", kernel, KernelInfo{"amd64", FormatELF, release}},
		{"ppc64le", vmlinux(t, elf.EM_PPC64, binary.LittleEndian, ""), KernelInfo{"ppc64le", FormatELF, release}},
		{"ppc64, big endian", vmlinux(t, elf.EM_PPC64, binary.BigEndian, ""), KernelInfo{"EM_PPC64 (ELFCLASS64, ELFDATA2MSB)", FormatELF, release}},
		{"s390", s390Image(0x10800), KernelInfo{"s390x", FormatS390, release}},
		{"s390, old", s390Image(0), KernelInfo{"s390x", FormatS390, ""}},
		{"loong64", zboot(0x6264, sized(compress(t, ".zst", kernel), len(kernel))), KernelInfo{"loong64", FormatZboot, release}},
		{"loong64, gzip", zboot(0x6264, compress(t, ".gz", kernel)), KernelInfo{"loong64", FormatZboot, release}},
		{"loong64, in an unknown way", zboot(0x6264, []byte("LZIP")), KernelInfo{"loong64", FormatZboot, ""}},
		{"arm64", zboot(0xaa64, compress(t, ".xz", kernel)), KernelInfo{"arm64", FormatZboot, release}},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := filepath.Join(write(t, map[string][]byte{"k": test.content}), "k")
			got, err := InspectKernel(name)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)

			_, err = CheckKernel(name, test.want.GOARCH)
			assert.NoError(t, err)
			_, err = CheckKernel(name, "mips64")
			require.ErrorIs(t, err, ErrKernel)
			assert.ErrorContains(t, err, "needs a kernel for mips64")

			for _, cut := range []int{1, len(test.content) / 2} {
				short := filepath.Join(write(t, map[string][]byte{"k": test.content[:len(test.content)-cut]}), "k")
				if got, err := InspectKernel(short); err == nil {
					// What is cut off lies behind all that the header speaks of.
					assert.Equal(t, test.want, got, "cut by %d", cut)
				} else {
					require.ErrorIs(t, err, ErrKernel, "cut by %d", cut)
				}
			}
		})
	}
}

func TestInspectKernelErrors(t *testing.T) {
	kernel := bzImage(make([]byte, 4096))
	cutZboot := zboot(0x6264, make([]byte, 4096))
	cutELF := vmlinux(t, elf.EM_PPC64, binary.LittleEndian, "")
	dir := write(t, map[string][]byte{
		"empty": nil, "text": []byte("this is no kernel\n"), "zeros": make([]byte, 1<<20),
		"bz-cut": kernel[:len(kernel)-1000], "bz-header": kernel[:0x210],
		"zboot-cut": cutZboot[:1000], "zboot-header": cutZboot[:20], "elf-header": cutELF[:30],
		"s390-cut": s390Image(0x10800)[:0x10420], "s390-version": s390Image(1 << 40),
		"module": ko(t, release, ""), "nothing": amd64ELF(elf.ET_EXEC).bytes(t),
	})
	for _, test := range []struct {
		name string
		want string
	}{
		{"none", "no such file"},
		{".", "no regular file"},
		{"empty", "is empty"},
		{"text", "neither bzImage, ELF"},
		{"zeros", "neither bzImage, ELF"},
		{"bz-cut", "cut off"},
		{"bz-header", "cut off"},
		{"zboot-cut", "cut off"},
		{"zboot-header", "cut off"},
		{"elf-header", "EOF"},
		{"s390-cut", "cut off"},
		{"s390-version", "cut off"},
		{"module", "an ELF file of type ET_REL"},
		{"nothing", "nothing to load"},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := filepath.Join(dir, test.name)
			_, err := InspectKernel(name)
			require.Error(t, err)
			assert.ErrorContains(t, err, test.want)
			assert.ErrorContains(t, err, name)
		})
	}
	_, err := InspectKernel(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestUnpackKernel(t *testing.T) {
	kernel := vmlinux(t, elf.EM_X86_64, binary.LittleEndian, xenNote)
	plain := vmlinux(t, elf.EM_X86_64, binary.LittleEndian, strings.Replace(xenNote, "\x12", "\x13", 1))
	overlong := vmlinux(t, elf.EM_X86_64, binary.LittleEndian, "\xff\xff\xff\xff\xff\xff\xff\xff\x12\x00\x00\x00")
	damaged := compress(t, ".zst", kernel)
	damaged[len(damaged)/2] ^= 1
	wild := bzImage(kernel)
	binary.LittleEndian.PutUint32(wild[bzPayloadLength:], 1<<31)
	for _, test := range []struct {
		name    string
		content []byte
		want    string // of the error; none for a kernel that can be had
	}{
		{"zstd", bzImage(sized(compress(t, ".zst", kernel), len(kernel))), ""},
		{"zstd without a size", bzImage(compress(t, ".zst", kernel)), ""},
		{"gzip", bzImage(compress(t, ".gz", kernel)), ""},
		{"xz", bzImage(sized(compress(t, ".xz", kernel), len(kernel))), ""},
		{"lz4", bzImage([]byte("\x02\x21\x4c\x18 and so on")), "not known here"},
		{"gzip cut in the middle", bzImage(compress(t, ".gz", kernel)[:100]), "is damaged; fetch or copy the file again: unexpected EOF"},
		{"zstd changed in the middle", bzImage(damaged), "is damaged"},
		{"xz cut in the middle, or filtered", bzImage(compress(t, ".xz", kernel)[:100]), "unexpected EOF"},
		{"no PVH", bzImage(compress(t, ".zst", plain)), "CONFIG_PVH"},
		{"notes that do not end", bzImage(compress(t, ".zst", overlong)), "CONFIG_PVH"},
		{"no payload", bzImage(nil), "does not say where"},
		{"payload beyond the end", wild, "does not say where"},
		{"zboot", zboot(0x6264, sized(compress(t, ".zst", kernel), len(kernel))), ""},
		{"zboot, in an unknown way", zboot(0x6264, []byte("LZIP")), "not known here"},
		{"zboot, damaged", zboot(0x6264, damaged), "is damaged"},
		{"zboot that QEMU cannot enter", zboot(0x8664, compress(t, ".zst", kernel)), "its format is EFI zboot"},
		{"not x86", vmlinux(t, elf.EM_PPC64, binary.LittleEndian, ""), "its format is ELF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			err := UnpackKernel(&out, filepath.Join(write(t, map[string][]byte{"k": test.content}), "k"))
			if test.want != "" {
				is := ErrNotDirect
				if strings.Contains(test.want, "damaged") {
					is = ErrKernel
				}
				require.ErrorIs(t, err, is)
				assert.ErrorContains(t, err, test.want)
				assert.Zero(t, out.Len())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, kernel, out.Bytes())
		})
	}
}

func TestKernelConfig(t *testing.T) {
	const text = "CONFIG_A=y\n"
	embedded := append(append([]byte("IKCFG_ST"), compress(t, ".gz", []byte(text))...), "IKCFG_ED more"...)
	with := append(vmlinux(t, elf.EM_X86_64, binary.LittleEndian, xenNote), embedded...)
	without := vmlinux(t, elf.EM_X86_64, binary.LittleEndian, xenNote)
	damaged := bytes.Clone(with)
	damaged[len(without)+len("IKCFG_ST")+12] ^= 0xff
	for name, test := range map[string]struct {
		kernel []byte
		want   string
		err    string
	}{
		"vmlinux":          {with, text, ""},
		"bzImage":          {bzImage(sized(compress(t, ".zst", with), len(with))), text, ""},
		"EFI zboot":        {zboot(0x6264, compress(t, ".gz", with)), text, ""},
		"s390":             {append(s390Image(0x10800), compress(t, ".gz", with)...), text, ""},
		"s390, unpacked":   {append(s390Image(0x10800), embedded...), text, ""},
		"without":          {without, "", ""},
		"unknown, packed":  {bzImage([]byte("packed in no known way")), "", ""},
		"damaged":          {damaged, "", "the configuration in kernel"},
		"not even a magic": {[]byte("hello"), "", "neither bzImage, ELF"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := KernelConfig(filepath.Join(write(t, map[string][]byte{"k": test.kernel}), "k"))
			if test.err != "" {
				assert.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, string(got))
		})
	}
}

func FuzzInspectKernel(f *testing.F) {
	kernel := vmlinux(f, elf.EM_X86_64, binary.LittleEndian, xenNote)
	f.Add(bzImage(compress(f, ".zst", kernel)))
	f.Add(zboot(0x6264, compress(f, ".gz", kernel)))
	f.Add(s390Image(0x10800))
	f.Add(kernel)
	f.Fuzz(func(t *testing.T, content []byte) {
		info, err := inspectKernel(content)
		if err != nil {
			return
		}
		assert.NotEmpty(t, info.GOARCH)
		assert.LessOrEqual(t, len(info.Release), 64)
		if info.Format == FormatBzImage {
			_, _ = unpackBzImage(content)
		}
	})
}

func FuzzNote(f *testing.F) {
	f.Add([]byte(xenNote))
	f.Fuzz(func(t *testing.T, notes []byte) {
		note(notes, binary.LittleEndian, "Xen\x00", xenPhys32Entry)
	})
}

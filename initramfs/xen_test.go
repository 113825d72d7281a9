package initramfs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What makes a Xen: a multiboot header, the lines' prefix, the note with the build id.
const (
	multibootHeader = "\x02\xb0\xad\x1b\x03\x00\x00\x00\xfb\x4f\x52\xe4"
	xenLines        = "(XEN) \x00"
	buildNote       = "\x04\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00GNU\x00\x25\x70\xf5\xf6"
)

// xenELF returns an ELF file of 32 bits, with a program of these contents, which begin at a
// multiple of four, and notes.
func xenELF(t testing.TB, program, notes string) []byte {
	const headerSize, programSize = 52, 32
	segments := []segment{{elf.PT_LOAD, program}, {elf.PT_NOTE, notes}}
	header := elf.Header32{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Ehsize: headerSize, Phentsize: programSize, Phnum: uint16(len(segments)),
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS32)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	at := headerSize + programSize*len(segments)
	var programs []elf.Prog32
	var data bytes.Buffer
	for _, s := range segments {
		programs = append(programs, elf.Prog32{Type: uint32(s.kind), Off: uint32(at + data.Len()), Filesz: uint32(len(s.content))})
		data.WriteString(s.content)
	}
	var out bytes.Buffer
	for _, part := range []any{header, programs, data.Bytes()} {
		require.NoError(t, binary.Write(&out, binary.LittleEndian, part))
	}
	return out.Bytes()
}

func TestUnpackXen(t *testing.T) {
	xen := xenELF(t, multibootHeader+xenLines, buildNote)
	late := xenELF(t, strings.Repeat("\x00", multibootWithin)+multibootHeader+xenLines, buildNote)
	packed := compress(t, ".gz", xen)
	for _, test := range []struct {
		name    string
		content []byte
		want    string // of the error; none for a Xen
		id      string
	}{
		{"plain", xen, "", "2570f5f6"},
		{"gzip", packed, "", "2570f5f6"},
		{"no build id", xenELF(t, multibootHeader+xenLines, ""), "", ""},
		{"gzip cut in the middle", packed[:len(packed)/2], "unexpected EOF; fetch or copy the file again", ""},
		{"cut in the middle of the notes", xen[:len(xen)-4], "cut off", ""},
		{"empty", nil, "is empty", ""},
		{"text", []byte("no Xen"), "not an ELF file; give the file that a boot loader takes", ""},
		{"Linux", append([]byte("MZ"), bzImage(nil)[2:]...), "an EFI application or a Linux kernel; give the file", ""},
		{"symbols", vmlinux(t, elf.EM_X86_64, binary.LittleEndian, buildNote), "for EM_X86_64 (ELFCLASS64), and multiboot takes EM_386", ""},
		{"no multiboot", xenELF(t, xenLines, buildNote), "no multiboot header in its first 8192 bytes", ""},
		{"multiboot that does not add up", xenELF(t, strings.Replace(multibootHeader, "\x03", "\x04", 1)+xenLines, buildNote), "no multiboot header", ""},
		{"multiboot too late", late, "no multiboot header", ""},
		{"another program", xenELF(t, multibootHeader, buildNote), "a multiboot program, and not Xen", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := filepath.Join(write(t, map[string][]byte{"xen": test.content}), "xen")
			var out bytes.Buffer
			id, err := UnpackXen(&out, name)
			if test.want != "" {
				require.ErrorIs(t, err, ErrXen)
				assert.ErrorContains(t, err, test.want)
				assert.ErrorContains(t, err, name)
				assert.Zero(t, out.Len())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.id, id)
			if test.name == "gzip" {
				assert.Equal(t, xen, out.Bytes(), "decompressed")
			}
		})
	}
	_, err := UnpackXen(new(bytes.Buffer), filepath.Join(t.TempDir(), "none"))
	assert.ErrorContains(t, err, "read the hypervisor: ")
}

func FuzzInspectXen(f *testing.F) {
	f.Add(xenELF(f, multibootHeader+xenLines, buildNote))
	f.Fuzz(func(t *testing.T, content []byte) { _, _ = inspectXen(content) })
}

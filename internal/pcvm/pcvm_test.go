package pcvm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kernelFile is an ELF file for x86-64 with one segment: content at a physical address, and as many
// bytes of zeroes after it.
func kernelFile(t *testing.T, content []byte, at uint64) []byte {
	t.Helper()
	const header, program = 64, 56
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: at + 0x10,
			Phoff: header, Ehsize: header, Phentsize: program, Phnum: 1, Shentsize: 64,
		},
		elf.Prog64{
			Type: uint32(elf.PT_LOAD), Off: header + program, Vaddr: 0xffffffff80000000 + at, Paddr: at,
			Filesz: uint64(len(content)), Memsz: 2 * uint64(len(content)), Align: 1,
		},
	} {
		require.NoError(t, binary.Write(&b, binary.LittleEndian, part))
	}
	b.Write(content)
	return b.Bytes()
}

func TestLoad(t *testing.T) {
	content := bytes.Repeat([]byte("kernel. "), 64)
	k, err := ReadKernel(bytes.NewReader(kernelFile(t, content, 16<<20)))
	require.NoError(t, err)
	memory := make([]byte, 64<<20)
	require.NoError(t, k.load(memory, []byte("initramfs"), "panic=-1", []uint32{0, 200, 300}))

	le := binary.LittleEndian
	assert.Equal(t, content, memory[16<<20:][:len(content)])
	zero := memory[zeroPage:]
	assert.Equal(t, "HdrS", string(zero[bootHeader:][:4]))
	line := memory[le.Uint32(zero[bootCommandLine:]):]
	assert.Equal(t, "panic=-1\x00", string(line[:9]))
	ramdisk := le.Uint32(zero[bootRamdisk:])
	assert.Equal(t, "initramfs", string(memory[ramdisk:][:le.Uint32(zero[bootRamdisk+4:])]))
	assert.Less(t, ramdisk+9, uint32(len(memory)-Reserved), "not in what is reserved")
	require.Equal(t, byte(3), zero[bootE820Entries])
	last := zero[bootE820Table+2*20:]
	assert.Equal(t, []uint64{uint64(len(memory)) - Reserved, Reserved}, []uint64{le.Uint64(last), le.Uint64(last[8:])})
	assert.Equal(t, uint32(typeReserved), le.Uint32(last[16:]))

	at, ok := k.Physical(0xffffffff80000000 + 16<<20 + 8)
	assert.True(t, ok)
	assert.Equal(t, uint64(16<<20+8), at)
	_, ok = k.Physical(0xffffffff80000000)
	assert.False(t, ok)

	tables := map[string][]byte{}
	root := memory[le.Uint64(zero[bootRSDP:]):]
	require.Equal(t, "RSD PTR ", string(root[:8]))
	assert.Zero(t, sum(root[:20]), "the checksum of the first revision")
	assert.Zero(t, sum(root[:36]), "the checksum")
	read := func(at uint64) []byte {
		t := memory[at:]
		t = t[:le.Uint32(t[4:])]
		tables[string(t[:4])] = t
		return t
	}
	for list := read(le.Uint64(root[24:]))[36:]; len(list) > 0; list = list[8:] {
		read(le.Uint64(list))
	}
	read(le.Uint64(tables["FACP"][140:]))
	for name, table := range tables {
		assert.Zero(t, sum(table), "the checksum of %s", name)
	}
	assert.Len(t, tables, 4, "XSDT, FACP, APIC, DSDT")
	assert.NotZero(t, le.Uint32(tables["FACP"][112:])&(1<<20), "reduced hardware")
	assert.Equal(t, []byte{0, 8, 0, 0, 1, 0, 0, 0, 0, 8, 1, 200, 1, 0, 0, 0, 9, 16, 0, 0, 44, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}, tables["APIC"][44:])
}

func TestLoadRefuses(t *testing.T) {
	file := kernelFile(t, make([]byte, 1<<20), 16<<20)
	k, err := ReadKernel(bytes.NewReader(file))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		memory, initramfs, line int
		says                    string
	}{
		"little memory":       {17 << 20, 0, 0, "needs 18874368 bytes of memory"},
		"a large initramfs":   {32 << 20, 14 << 20, 0, "no room for an initramfs"},
		"a long command line": {32 << 20, 0, maxCommandLine, "a command line of 2048 bytes"},
	} {
		err := k.load(make([]byte, tc.memory), make([]byte, tc.initramfs), string(bytes.Repeat([]byte("x"), tc.line)), []uint32{0})
		assert.ErrorContains(t, err, tc.says, name)
	}
	_, err = ReadKernel(bytes.NewReader(file[:100]))
	assert.Error(t, err)
	other := bytes.Clone(file)
	binary.LittleEndian.PutUint16(other[18:], uint16(elf.EM_AARCH64))
	_, err = ReadKernel(bytes.NewReader(other))
	assert.ErrorContains(t, err, "no ELF file for x86-64")
}

func TestMessage(t *testing.T) {
	box := make([]byte, Reserved)
	putMessage(box, []byte("hello"))
	got, err := getMessage(box)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	binary.LittleEndian.PutUint64(box, MaxMessage+1)
	_, err = getMessage(box)
	assert.ErrorContains(t, err, "a message of")
}

package tcg

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Instructions, by their encodings.
func hvcl(code uint32) uint32             { return 0x002b8000 | code }
func cpucfg(to, from uint32) uint32       { return 0x00006c00 | from<<5 | to }
func iocsrrd(to, from uint32) uint32      { return 0x06480800 | from<<5 | to }
func lu12i(to, value uint32) uint32       { return 0x14000000 | value>>12<<5 | to }
func ori(to, from, value uint32) uint32   { return 0x03800000 | value<<10 | from<<5 | to }
func addiW(to, from, value uint32) uint32 { return 0x02800000 | value&0xfff<<10 | from<<5 | to }
func move(to, from uint32) uint32         { return 0x00150000 | from<<5 | to }
func storeD(what, base uint32) uint32     { return 0x29c00000 | base<<5 | what }
func idle() uint32                        { return 0x06488000 }
func branch() uint32                      { return 0x50000000 }

// image is a kernel's image with code at 0x200 of the file, 0x1000 of the memory.
func image(code ...uint32) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0x200)
	copy(b, "MZ")
	le.PutUint64(b[loadOffset:], 0x200000)
	le.PutUint32(b[peHeader:], 0x40)
	pe := b[0x40:]
	copy(pe, "PE\x00\x00")
	le.PutUint16(pe[peMachine:], peLoongArch64)
	le.PutUint16(pe[peSections:], 2)
	le.PutUint16(pe[peOptionalSize:], 8)
	rows := pe[peTable+8:]
	copy(rows, ".data")
	row := rows[sectionSize:]
	copy(row, ".text")
	le.PutUint32(row[sectionAddress:], 0x1000)
	le.PutUint32(row[sectionRawSize:], uint32(4*len(code)))
	le.PutUint32(row[sectionRaw:], 0x200)
	for _, w := range code {
		b = le.AppendUint32(b, w)
	}
	return b
}

const base = 0x9000000000201000

func TestSites(t *testing.T) {
	ours := func(kind Kind, number uint64) bool {
		return kind == CPUCFG && number == 0x40000004 || kind == IOCSRRD && number == 8
	}
	for _, test := range []struct {
		name string
		code []uint32
		want []Site
	}{
		{"no site", []uint32{move(4, 5), branch()}, nil},
		{"the kernel's waits", []uint32{idle()}, nil},
		{"calls", []uint32{hvcl(0x100), 0, hvcl(0x7fff)}, []Site{{base, HVCL, 0x100, 0, 0}, {base + 8, HVCL, 0x7fff, 0, 0}}},
		{"ours", []uint32{lu12i(13, 0x40000000), ori(13, 13, 4), move(5, 6), cpucfg(4, 13)}, []Site{{base + 12, CPUCFG, 0, 4, 13}}},
		{"another's", []uint32{ori(13, 0, 2), cpucfg(4, 13)}, nil},
		{"another's, by a negative number", []uint32{addiW(13, 0, 0xfff), cpucfg(4, 13)}, nil},
		{"features", []uint32{ori(12, 0, 8), storeD(12, 3), iocsrrd(12, 12)}, []Site{{base + 8, IOCSRRD, 0, 12, 12}}},
		{"another register", []uint32{ori(12, 0, 0x10), iocsrrd(12, 12)}, nil},
		{"not known", []uint32{move(12, 4), cpucfg(4, 12)}, []Site{{base + 4, CPUCFG, 0, 4, 12}}},
		{"from the other side of a branch", []uint32{ori(12, 0, 2), branch(), cpucfg(4, 12)}, []Site{{base + 8, CPUCFG, 0, 4, 12}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			k, err := ReadKernel(image(test.code...))
			require.NoError(t, err)
			assert.Equal(t, uint64(base), k.Base)
			assert.Equal(t, test.want, k.Sites(ours))
		})
	}
}

func TestDecodeIdle(t *testing.T) {
	s, ok := decode(base, idle())
	assert.True(t, ok)
	assert.Equal(t, Site{Address: base, Kind: IDLE}, s)
	_, ok = decode(base, ertn)
	assert.False(t, ok)
}

func TestReadKernel(t *testing.T) {
	good := image(hvcl(0x100))
	change := func(at int, b ...byte) []byte {
		out := append([]byte(nil), good...)
		copy(out[at:], b)
		return out
	}
	for _, test := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty", nil, "no executable"},
		{"not EFI's", change(0, 0x7f), "no executable"},
		{"header beyond the end", change(peHeader, 0xff, 0xff, 0xff, 0xff), "no PE header"},
		{"another header", change(0x40, 'N', 'E'), "no PE header"},
		{"another machine", change(0x40+peMachine, 0x64, 0x86), "PE machine 0x8664"},
		{"cut off", good[:len(good)-1], "cut off"},
		{"no code", change(0x40+peTable+8+sectionSize, []byte(".tixt")...), "no section .text"},
		{"a table beyond the end", change(0x40+peOptionalSize, 0xff, 0xff), "no section .text"},
	} {
		_, err := ReadKernel(test.content)
		assert.ErrorContains(t, err, test.want, test.name)
	}
}

func FuzzReadKernel(f *testing.F) {
	f.Add(image(ori(12, 0, 8), iocsrrd(12, 12), hvcl(0)))
	f.Fuzz(func(t *testing.T, content []byte) {
		k, err := ReadKernel(content)
		if err != nil {
			return
		}
		for _, s := range k.Sites(func(Kind, uint64) bool { return true }) {
			assert.Less(t, s.Address-k.Base, uint64(len(k.Text)))
		}
	})
}

func TestMemory(t *testing.T) {
	const tree = `FlatView #0
 AS "I/O", root: io
 Root memory region: io
  0000000000000000-000000000000ffff (prio 0, i/o): io

FlatView #1
 AS "memory", root: system
 AS "cpu-memory-0", root: system
 Root memory region: system
  0000000000000000-000000000fffffff (prio 0, ram): loongarch.lowram
  000000001c000000-000000001cffffff (prio 0, romd): virt.flash0
  0000000080000000-000000009fffffff (prio 0, ram): loongarch.highram @0000000010000000
  00000000a0000000-00000000afffffff (prio 0, ram): loongarch.highram @0000000030000000

FlatView #2
 AS "other", root: x
  0000000f00000000-0000000f0fffffff (prio 0, ram): x
`
	g := &machine{ram: memory(tree)}
	assert.Equal(t, []span{{0, 0xfffffff}, {0x80000000, 0xafffffff}}, g.ram)
	for _, test := range []struct {
		address, size uint64
		want          bool
	}{
		{0, 8, true}, {0xffffff8, 8, true}, {0xffffff9, 8, false}, {0x10000000, 1, false},
		{0x9ffffffc, 8, true}, {0xf00000000, 8, false}, {1<<64 - 4, 8, false},
	} {
		assert.Equal(t, test.want, g.Memory(test.address, test.size), "%#x, %d", test.address, test.size)
	}
	assert.Empty(t, memory(""))
}

func TestControlRegister(t *testing.T) {
	const text = "\r\nCPU#0\r\n GPR00: r0 0000000000000000 r1 1223344556677889\r\n" +
		" CSR000: CRMD   b0               PRMD   7                EUEN   7\r\n" +
		" CSR004: ECFG   71c3d            ESTAT  d0000            ERA    16e120           BADV   173147b94000    \r\n" +
		" CSR008: BADI   2b8100          \r\n CSR012: EENTRY 9000000001b50000\r\n" +
		" CSR136: TLBRENTRY 1b5a000       TLBRERA 90000000012e3cf4 TLBRPRMD 4\r\n"
	for name, want := range map[string]uint64{"PRMD": 7, "ERA": 0x16e120, "BADI": 0x2b8100, "EENTRY": 0x9000000001b50000} {
		got, err := controlRegister(text, name)
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	_, err := controlRegister(text, "MERRERA")
	assert.ErrorContains(t, err, "does not print MERRERA")
}

func TestFind(t *testing.T) {
	k, err := ReadKernel(image(hvcl(0x100), ertn))
	require.NoError(t, err)
	at, ok := k.find(ertn)
	assert.True(t, ok)
	assert.Equal(t, uint64(base+4), at)
	_, ok = k.find(branch())
	assert.False(t, ok)
}

package kvm

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCPUID(t *testing.T) {
	features := func(v uint32) *uint32 { return &v }
	supported := []Entry{
		{Function: 0, EAX: 0x1f},
		{Function: 1, EBX: 0xff020800, ECX: 1},
		{Function: 0xb, Index: 0, EDX: 0xdead}, {Function: 0xb, Index: 1, EDX: 0xdead},
		{Function: 0x40000000, EAX: 0x40000001, EBX: 1, ECX: 2, EDX: 3},
		{Function: 0x40000001, EAX: 0xfb, EDX: 0},
		{Function: 0x80000000, EAX: 0x8000001e},
		{Function: 0x8000001e, EAX: 0xdead},
	}
	leaf := func(t *testing.T, leaves []Entry, function, index uint32) Entry {
		t.Helper()
		var found []Entry
		for _, e := range leaves {
			if e.Function == function && e.Index == index {
				found = append(found, e)
			}
		}
		require.Len(t, found, 1, "leaf %#x, %d", function, index)
		return found[0]
	}
	for name, tc := range map[string]struct {
		id       Identity
		features uint32
	}{
		"as offered":        {Identity{ID: 0x105, Base: FirstLeaf}, 0xfb},
		"features replaced": {Identity{ID: 5, Base: FirstLeaf, Features: features(0), Hints: 1}, 0},
		"another base":      {Identity{ID: 5, Base: 0x40000300, Features: features(9)}, 9},
		"the last base":     {Identity{ID: 5, Base: 0x4000ff00}, 0xfb},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := CPUID(supported, tc.id)
			require.NoError(t, err)
			one := leaf(t, got, 1, 0)
			assert.Equal(t, tc.id.ID<<24|0x020800, one.EBX)
			assert.Equal(t, uint32(1|1<<21|1<<31), one.ECX)
			assert.Equal(t, tc.id.ID, leaf(t, got, 0xb, 0).EDX)
			assert.Equal(t, tc.id.ID, leaf(t, got, 0xb, 1).EDX)
			assert.Equal(t, tc.id.ID, leaf(t, got, 0x8000001e, 0).EAX)
			kvm := leaf(t, got, tc.id.Base, 0)
			assert.Equal(t, [4]uint32{tc.id.Base + 1, 1, 2, 3}, [4]uint32{kvm.EAX, kvm.EBX, kvm.ECX, kvm.EDX})
			f := leaf(t, got, tc.id.Base+1, 0)
			assert.Equal(t, []uint32{tc.features, tc.id.Hints}, []uint32{f.EAX, f.EDX})
			if tc.id.Base > FirstLeaf {
				e := leaf(t, got, FirstLeaf, 0)
				assert.Equal(t, []uint32{FirstLeaf, 0x62617670}, []uint32{e.EAX, e.EBX}, "foreign leaf")
				assert.Len(t, got, len(supported)+1)
			}
			for i := 1; i < len(got); i++ {
				assert.LessOrEqual(t, got[i-1].Function, got[i].Function, "order")
			}
		})
	}
	for _, base := range []uint32{0, 0x3fffff00, 0x40000001, 0x40010000} {
		_, err := CPUID(supported, Identity{Base: base})
		assert.ErrorContains(t, err, "can begin at", "%#x", base)
	}
	assert.Equal(t, uint32(0xff020800), supported[1].EBX, "what is supported is left alone")
}

// statsFile is what KVM gives for the statistics, as api.rst 4.133 lays it out.
func statsFile(names []string, values []uint64) []byte {
	const nameSize, id = 16, 8
	desc := statsHeader + id
	data := desc + len(names)*(statsDesc+nameSize)
	order := binary.NativeEndian
	var b []byte
	for _, v := range []uint32{0, nameSize, uint32(len(names)), statsHeader, uint32(desc), uint32(data)} {
		b = order.AppendUint32(b, v)
	}
	b = append(b, make([]byte, id)...)
	for i, n := range names {
		b = order.AppendUint32(b, 0)
		b = order.AppendUint16(b, 0)
		b = order.AppendUint16(b, 1)
		b = order.AppendUint32(b, uint32(8*i))
		b = order.AppendUint32(b, 0)
		b = append(b, append([]byte(n), make([]byte, nameSize-len(n))...)...)
	}
	for _, v := range values {
		b = order.AppendUint64(b, v)
	}
	return b
}

func TestStatistics(t *testing.T) {
	b := statsFile([]string{"exits", "blocking", "sixteen-letters-"}, []uint64{7, 1, 1 << 63})
	s, err := NewStatistics(bytes.NewReader(b))
	require.NoError(t, err)
	for name, want := range map[string]uint64{"exits": 7, "blocking": 1, "sixteen-letters-": 1 << 63} {
		got, err := s.Value(name)
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
		assert.True(t, s.Has(name), name)
	}
	_, err = s.Value("steal")
	assert.ErrorContains(t, err, `does not count "steal"`)
	assert.False(t, s.Has("steal"))

	for n := range len(b) {
		s, err := NewStatistics(bytes.NewReader(b[:n]))
		if err != nil {
			continue
		}
		_, err = s.Value("sixteen-letters-")
		assert.Error(t, err, "cut off after %d bytes", n)
	}
	big := bytes.Clone(b)
	binary.NativeEndian.PutUint32(big[8:], 1<<31)
	_, err = NewStatistics(bytes.NewReader(big))
	assert.ErrorContains(t, err, "header of the statistics")
}

func FuzzStatistics(f *testing.F) {
	f.Add([]byte{})
	f.Add(statsFile(nil, nil))
	f.Add(statsFile([]string{"exits", "blocking"}, []uint64{7, 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := NewStatistics(bytes.NewReader(b))
		if err != nil {
			return
		}
		for name := range s.offsets {
			_, _ = s.Value(name)
		}
	})
}

func exitBytes(reason Reason, put func(u []byte)) []byte {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint32(b[runReason:], uint32(reason))
	put(b[runUnion:])
	return b
}

func TestDecodeExit(t *testing.T) {
	le := binary.LittleEndian
	for name, tc := range map[string]struct {
		run  []byte
		want Exit
		text string
	}{
		"write to a port": {
			exitBytes(ExitIO, func(u []byte) {
				u[0], u[1] = 1, 2
				le.PutUint16(u[2:], 0xf4)
				le.PutUint64(u[8:], 0x800)
				le.PutUint64(u[0x800-runUnion:], 0x11223344)
			}),
			Exit{Reason: ExitIO, Port: 0xf4, Data: 0x3344}, "access to an I/O port: 0x3344 written to port 0xf4",
		},
		"port, with an offset outside": {
			exitBytes(ExitIO, func(u []byte) { u[0], u[1] = 1, 1; le.PutUint64(u[8:], 1<<40) }),
			Exit{Reason: ExitIO}, "access to an I/O port: 1 bytes at port 0x0, direction 1",
		},
		"write to memory": {
			exitBytes(ExitMMIO, func(u []byte) {
				le.PutUint64(u, 0x3ff00000)
				le.PutUint64(u[8:], 0x1122334455667788)
				u[16], u[20] = 1, 1
			}),
			Exit{Reason: ExitMMIO, Address: 0x3ff00000, Data: 0x88}, "access to memory that is not there: 1 bytes at 0x3ff00000, write true",
		},
		"read of memory": {
			exitBytes(ExitMMIO, func(u []byte) { le.PutUint64(u, 0x1000); u[16] = 200 }),
			Exit{Reason: ExitMMIO, Address: 0x1000, Reads: 8}, "access to memory that is not there: 8 bytes at 0x1000, write false",
		},
		"call": {
			exitBytes(ExitHypercall, func(u []byte) { u[0], u[8], u[16], u[24] = 12, 1, 2, 3 }),
			Exit{Reason: ExitHypercall, Number: 12, Args: [9]uint64{1, 2, 3}}, "a call for the monitor: number 12 with 0x1, 0x2, 0x3",
		},
		"call of PAPR": {
			exitBytes(ExitPAPR, func(u []byte) { u[0], u[1], u[16], u[24], u[32], u[80] = 0xfc, 0x7f, 1, 2, 3, 9 }),
			Exit{Reason: ExitPAPR, Number: 0x7ffc, Args: [9]uint64{1, 2, 3, 0, 0, 0, 0, 0, 9}}, "a call of PAPR for the monitor: number 0x7ffc with 0x1, 0x2, 0x3",
		},
		"HLT":      {exitBytes(ExitHLT, func([]byte) {}), Exit{Reason: ExitHLT}, "HLT, with no interrupt controller in KVM that could end it"},
		"shutdown": {exitBytes(ExitShutdown, func([]byte) {}), Exit{Reason: ExitShutdown}, "shutdown (triple fault)"},
		"no entry": {
			exitBytes(ExitFailEntry, func(u []byte) { le.PutUint64(u, 0x80000021) }),
			Exit{Reason: ExitFailEntry}, "the processor refuses to enter the guest: 0x80000021",
		},
		"internal error": {
			exitBytes(ExitInternalError, func(u []byte) { u[0], u[4], u[8], u[16] = 3, 2, 0xaa, 0xbb }),
			Exit{Reason: ExitInternalError}, "KVM cannot go on (internal error): an event while delivering an event (suberror 3) 0xaa 0xbb",
		},
		"internal error with impossible data": {
			exitBytes(ExitInternalError, func(u []byte) { u[0] = 9; le.PutUint32(u[4:], 1<<31) }),
			Exit{Reason: ExitInternalError}, "KVM cannot go on (internal error):  (suberror 9) 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0",
		},
		"event":        {exitBytes(ExitSystemEvent, func(u []byte) { u[0] = 3 }), Exit{Reason: ExitSystemEvent}, "a system event: type 3"},
		"new to us":    {exitBytes(99, func([]byte) {}), Exit{Reason: 99}, "KVM's exit reason 99"},
		"never a run":  {exitBytes(ExitUnknown, func(u []byte) { u[0] = 5 }), Exit{}, "a reason of the processor that KVM does not know: 0x5"},
		"a breakpoint": {exitBytes(ExitDebug, func([]byte) {}), Exit{Reason: ExitDebug}, "a debug event"},
	} {
		got := decodeExit(tc.run)
		assert.Equal(t, tc.text, got.String(), name)
		got.Detail = ""
		assert.Equal(t, tc.want, got, name)
	}
	assert.Equal(t, "stopped", Exit{Stopped: true}.String())
	assert.Equal(t, assert.AnError.Error(), Exit{Err: assert.AnError}.String())
}

func FuzzDecodeExit(f *testing.F) {
	f.Add(uint32(ExitIO), []byte{1, 4, 0xf4, 0})
	f.Add(uint32(ExitInternalError), bytes.Repeat([]byte{0xff}, 16))
	f.Fuzz(func(t *testing.T, reason uint32, union []byte) {
		e := decodeExit(exitBytes(Reason(reason), func(u []byte) { copy(u, union) }))
		assert.NotEmpty(t, e.String())
	})
}

func TestLongTables(t *testing.T) {
	memory := make([]byte, FreeMemory)
	word := func(at uint64) uint64 { return binary.LittleEndian.Uint64(memory[at:]) }
	Long{Gates: 0x1234567890, Stride: 16, Stacks: []uint64{0x30000, 0x40000}}.Tables(memory)
	assert.Equal(t, []uint64{0x2007, 0x3007, 0x87, 0x200087}, []uint64{word(0x1000), word(0x2000), word(0x3000), word(0x3008)}, "page tables")
	for v := range uint64(256) {
		low, high := word(gateTable+16*v), word(gateTable+16*v+8)
		assert.Equal(t, 0x1234567890+16*v, low&0xffff|low>>48<<16|high<<32, "handler of vector %d", v)
		assert.Equal(t, uint64(kernelCode), low>>16&0xffff)
		assert.Equal(t, uint64(0xee00), low>>32&0xffff, "an interrupt gate for privilege level 3 too")
	}
	for cpu, want := range []uint64{0x30000, 0x40000} {
		assert.Equal(t, want, word(taskStates+uint64(cpu)*taskSize+4), "stack of CPU %d", cpu)
	}
	assert.LessOrEqual(t, taskStates+MaxCPUs*taskSize, OneShot)
}

func TestRadixTables(t *testing.T) {
	memory := make([]byte, 0x20000)
	Radix{Process: 0x3000, Root: 0x10000, Next: 0x4000}.Tables(memory)
	word := func(at uint64) uint64 { return binary.BigEndian.Uint64(memory[at:]) }
	// An address is 31 more bits than the two halves of the size say.
	entry := word(0x3000)
	assert.Equal(t, uint64(52), (entry>>58&0x18|entry>>5&7)+31, "bits of an address")
	bits := uint64(52)
	for _, want := range []uint64{0x10000, 0x4000} {
		assert.Equal(t, want, entry&0x0fffffffffffff00, "address of a table")
		bits -= entry & 0x1f
		entry = word(want)
		assert.NotZero(t, entry>>63, "valid")
	}
	assert.Equal(t, uint64(30), bits, "bits that are left: 1 GiB")
	assert.Equal(t, uint64(0xc000000000000187), entry, "leaf")
	n := 0
	for at := uint64(0); at < uint64(len(memory)); at += 8 {
		if word(at) != 0 {
			n++
		}
	}
	assert.Equal(t, 3, n, "entries")
	assert.Equal(t, []int{4096, 65536, 4096}, []int{ProcessSize, RootSize, NextSize})
}

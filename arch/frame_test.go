package arch

import (
	"encoding/binary"
	"reflect"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newFrame(t *testing.T) Frame {
	t.Helper()
	memory := make([]uint64, FrameSize/8)
	f, err := NewFrame(unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), FrameSize))
	require.NoError(t, err)
	return f
}

func TestLayoutHoldsTheTypes(t *testing.T) {
	// The types are what the offsets describe, member for member.
	op, result := reflect.TypeFor[Op](), reflect.TypeFor[Result]()
	for _, tc := range []struct {
		of   reflect.Type
		name string
		want uintptr
	}{
		{op, "Kind", OpKind}, {op, "Arg", OpArg}, {op, "Flags", OpFlags}, {op, "Regs", OpRegs},
		{result, "Count", ResultCount}, {result, "Trap", ResultTrap}, {result, "Code", ResultCode},
		{result, "Begin", ResultBegin}, {result, "End", ResultEnd}, {result, "Value", ResultValue},
		{result, "Aux", ResultAux}, {result, "Flags", ResultFlags}, {result, "Regs", ResultRegs},
	} {
		field, ok := tc.of.FieldByName(tc.name)
		require.True(t, ok, "%v.%s", tc.of, tc.name)
		assert.Equal(t, tc.want, field.Offset, "offset of %v.%s", tc.of, tc.name)
	}
	for _, of := range []reflect.Type{op, result} {
		assert.LessOrEqual(t, of.Size(), uintptr(SlotSize), "size of %v", of)
	}
	assert.LessOrEqual(t, FrameEvents+256*8, FrameOps, "end of the events")
	assert.LessOrEqual(t, FrameVectors+16*32, FrameSize, "end of the vectors")
}

func TestFrameLoad(t *testing.T) {
	full := make(Program, MaxOps)
	for i := range full {
		full[i].Kind = Clock
	}
	ended := append(Program(nil), full...)
	ended[MaxOps-1].Kind = End
	for name, tc := range map[string]struct {
		p  Program
		ok bool
	}{
		"empty":                         {nil, true},
		"one short of full":             {full[:MaxOps-1], true},
		"full with an end":              {ended, true},
		"full without an end":           {full, false},
		"more than full":                {append(ended, Op{}), false},
		"more than full, ends in Clock": {append(full, full...), false},
	} {
		err := newFrame(t).Load(tc.p)
		assert.Equal(t, tc.ok, err == nil, "%s: %v", name, err)
	}
}

func TestFrameHoldsWhatWasLoaded(t *testing.T) {
	f := newFrame(t)
	o := Op{Kind: Sample, Flags: 0x246}
	for i := range o.Arg {
		o.Arg[i] = uint64(i) + 1<<40
	}
	for i := range o.Regs {
		o.Regs[i] = uint64(i) + 1<<41
	}
	require.NoError(t, f.Load(Program{{Kind: Clock}, o}))
	var got Op
	b := f[FrameOps+SlotSize:]
	require.NoError(t, decode(b, &got))
	assert.Equal(t, o, got)
	assert.Zero(t, f.Word(FrameOps+2*SlotSize+OpKind), "kind after the last operation, an End")
}

func TestFrameResults(t *testing.T) {
	f := newFrame(t)
	want := Result{Count: 1, Trap: 2, Code: 3, Begin: 4, End: 5, Value: 6, Aux: 7, Flags: 8}
	for i := range want.Regs {
		want.Regs[i] = uint64(9 + i)
	}
	for i := range uint64(8 + 16) {
		f.SetWord(FrameResults+SlotSize+8*i, i+1)
	}
	f.SetWord(FrameAt, 1)
	f.SetWord(FrameCompleted, 7)
	f.SetWord(FrameEvents+8*255, 3)
	assert.Equal(t, []Result{{}, want}, f.Results(2))
	op, completed := f.At()
	assert.Equal(t, []any{1, uint64(7), uint64(3)}, []any{op, completed, f.Events(255)})
	require.NoError(t, f.Load(nil))
	assert.Equal(t, []Result{{}, {}}, f.Results(2), "results after a new program was loaded")
}

func TestNewFrameRefuses(t *testing.T) {
	memory := make([]uint64, FrameSize/8+1)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), FrameSize+8)
	for name, m := range map[string][]byte{"short": bytes[:FrameSize-1], "unaligned": bytes[1:]} {
		_, err := NewFrame(m)
		assert.ErrorContains(t, err, "a frame needs", name)
	}
}

func decode(b []byte, o *Op) error {
	_, err := binary.Decode(b[:binary.Size(*o)], binary.NativeEndian, o)
	return err
}

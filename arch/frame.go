package arch

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Frame is a CPU's frame as its carrier sees it: FrameSize bytes of memory that it
// shares with the probe, aligned to 8 bytes, on a machine of the probe's own byte
// order. A word that the probe may write meanwhile is read in one access.
type Frame []byte

// NewFrame makes a Frame of the first FrameSize bytes of memory.
func NewFrame(memory []byte) (Frame, error) {
	if len(memory) < FrameSize {
		return nil, fmt.Errorf("arch: a frame needs %d bytes of memory, got %d", FrameSize, len(memory))
	}
	if uintptr(unsafe.Pointer(&memory[0]))%8 != 0 {
		return nil, fmt.Errorf("arch: a frame needs memory that is aligned to 8 bytes, got %p", &memory[0])
	}
	return Frame(memory[:FrameSize]), nil
}

func (f Frame) word(offset uint64) *uint64 { return (*uint64)(unsafe.Pointer(&f[offset])) }

// Word reads the word at an offset.
func (f Frame) Word(offset uint64) uint64 { return atomic.LoadUint64(f.word(offset)) }

// SetWord writes the word at an offset.
func (f Frame) SetWord(offset, value uint64) { atomic.StoreUint64(f.word(offset), value) }

// Load makes p the frame's program, to be run from its first operation, and clears
// the results of the one before. It appends an End to a program of fewer than MaxOps
// operations; a longer one has to bring its own. The CPU must be idle.
func (f Frame) Load(p Program) error {
	if len(p) > MaxOps || len(p) == MaxOps && p[MaxOps-1].Kind != End {
		return fmt.Errorf("arch: a program of %d operations; a frame holds %d, an End included", len(p), MaxOps)
	}
	clear(f[FrameOps:FrameVectors])
	for i := range p {
		f.store(i, &p[i])
	}
	f.SetWord(FrameAt, 0)
	f.SetWord(FrameCompleted, 0)
	f.SetWord(FrameExit, 0)
	return nil
}

func (f Frame) store(i int, o *Op) {
	b := f[FrameOps+i*SlotSize:][:SlotSize]
	put := binary.NativeEndian.PutUint64
	put(b[OpKind:], uint64(o.Kind))
	for n, v := range o.Arg {
		put(b[OpArg+8*n:], v)
	}
	put(b[OpFlags:], o.Flags)
	for n, v := range o.Regs {
		put(b[OpRegs+8*n:], v)
	}
}

// At returns the operation that the CPU is at and how many it completed.
func (f Frame) At() (op int, completed uint64) {
	return int(f.Word(FrameAt)), f.Word(FrameCompleted)
}

// Results returns the results of the first n operations.
func (f Frame) Results(n int) []Result {
	out := make([]Result, n)
	for i := range out {
		at := uint64(FrameResults + i*SlotSize)
		r := &out[i]
		r.Count = f.Word(at + ResultCount)
		r.Trap = f.Word(at + ResultTrap)
		r.Code = f.Word(at + ResultCode)
		r.Begin = f.Word(at + ResultBegin)
		r.End = f.Word(at + ResultEnd)
		r.Value = f.Word(at + ResultValue)
		r.Aux = f.Word(at + ResultAux)
		r.Flags = f.Word(at + ResultFlags)
		for k := range r.Regs {
			r.Regs[k] = f.Word(at + ResultRegs + 8*uint64(k))
		}
	}
	return out
}

// Events returns how many interrupts of a vector were taken.
func (f Frame) Events(vector uint8) uint64 { return f.Word(FrameEvents + 8*uint64(vector)) }

package amd64

import (
	"fmt"
	"unsafe"

	"pvabi/arch"
)

// Code is a copy of the probe. Offsets are in bytes from its beginning.
type Code struct {
	Bytes []byte
	// Run, Guest and Vectors are the entries that the package comment describes.
	Run, Guest, Vectors int
	// Fixups list the instructions that may fault.
	Fixups []Fixup
}

// Fixup says where to go on, with the number of the exception in RAX, after an
// instruction that faulted.
type Fixup struct{ At, Resume int }

// Where the assembler put things.
var (
	entries struct{ run, guest, vectors, end unsafe.Pointer }
	fixups  [20]struct{ at, resume unsafe.Pointer }
)

// Copy returns the probe, taken from the program that runs. It fails in a program whose
// linker did not keep the order of functions.
func Copy() (*Code, error) {
	length := int(uintptr(entries.end) - uintptr(entries.run))
	var err error
	offset := func(p unsafe.Pointer) int {
		o := int(uintptr(p) - uintptr(entries.run))
		if o < 0 || o >= length {
			err = fmt.Errorf("amd64: the probe is not in one piece in this program; build it with Go's own linker and without -randlayout")
		}
		return o
	}
	c := &Code{Run: offset(entries.run), Guest: offset(entries.guest), Vectors: offset(entries.vectors)}
	for _, f := range fixups {
		c.Fixups = append(c.Fixups, Fixup{offset(f.at), offset(f.resume)})
	}
	if err != nil {
		return nil, err
	}
	c.Bytes = append(c.Bytes, unsafe.Slice((*byte)(entries.run), length)...)
	return c, nil
}

// Run runs the frame's program in the calling thread, with the privilege of the
// process: from its beginning, or from after the Exit that it is out by if resumed is
// true. An exception is a signal to the process, as in any function. Go cannot preempt the
// probe: a garbage collection waits for it, so a program must not wait for other Go code
// without a limit.
func Run(f arch.Frame, resumed bool) Status { return Status(call(&f[0], resumed)) }

func call(frame *byte, resumed bool) uint8

package loong64

import (
	"fmt"
	"unsafe"

	"pvabi/arch"
)

// Where the assembler put things.
var (
	entries  struct{ run, end unsafe.Pointer }
	fixups   [8]struct{ at, resume unsafe.Pointer }
	illegals [forms]struct{ at, resume unsafe.Pointer }
)

// Copy returns the probe, taken from the program that runs. It fails in a program whose
// linker did not keep the order of functions.
func Copy() (*Code, error) {
	length := int(uintptr(entries.end) - uintptr(entries.run))
	var err error
	offset := func(p unsafe.Pointer) int {
		o := int(uintptr(p) - uintptr(entries.run))
		if o < 0 || o >= length {
			err = fmt.Errorf("loong64: the probe is not in one piece in this program; build it with Go's own linker and without -randlayout")
		}
		return o
	}
	c := &Code{Run: offset(entries.run)}
	for _, f := range fixups {
		c.Fixups = append(c.Fixups, Fixup{offset(f.at), offset(f.resume)})
	}
	for _, f := range illegals {
		c.Illegal = append(c.Illegal, Fixup{offset(f.at), offset(f.resume)})
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
func Run(f arch.Frame, resumed bool) Status {
	flags := uint64(Process)
	if resumed {
		flags |= Resumed
	}
	return Status(call(&f[0], flags))
}

func call(frame *byte, flags uint64) uint64

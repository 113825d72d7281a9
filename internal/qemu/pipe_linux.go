package qemu

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is what the event channel's pipe holds, in bytes: as much as anyone may ask for
// (fs/pipe.c, pipe_max_size), and several times what an agent says.
const pipeSize = 1 << 20

// widen gives a pipe room for pipeSize.
func widen(pipe *os.File) error {
	_, err := unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	return err
}

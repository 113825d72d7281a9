package pcvm

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mailbox is the guest's half of how it is heard.
type Mailbox struct {
	box, bell []byte
}

// OpenMailbox opens, in a guest of a machine with so much memory, in bytes, its mailbox.
func OpenMailbox(memory int64) (*Mailbox, error) {
	f, err := os.OpenFile("/dev/mem", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("the mailbox: %w; the kernel needs CONFIG_DEVMEM", err)
	}
	defer f.Close()
	m := &Mailbox{}
	const prot = unix.PROT_READ | unix.PROT_WRITE
	if m.box, err = unix.Mmap(int(f.Fd()), memory-Reserved, Reserved, prot, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("the mailbox, at %#x of /dev/mem: %w", memory-Reserved, err)
	}
	if m.bell, err = unix.Mmap(int(f.Fd()), Doorbell, os.Getpagesize(), prot, unix.MAP_SHARED); err != nil {
		return nil, errors.Join(fmt.Errorf("the mailbox's bell, at %#x of /dev/mem: %w", int64(Doorbell), err), unix.Munmap(m.box))
	}
	return m, nil
}

// Send sends a message, and returns the answer.
func (m *Mailbox) Send(message []byte) (answer []byte, err error) {
	if len(message) > MaxMessage {
		return nil, fmt.Errorf("a message of %d bytes, more than %d", len(message), MaxMessage)
	}
	putMessage(m.box, message)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&m.bell[0])), uint32(len(message)))
	return getMessage(m.box)
}

// Close closes the mailbox.
func (m *Mailbox) Close() error { return errors.Join(unix.Munmap(m.box), unix.Munmap(m.bell)) }

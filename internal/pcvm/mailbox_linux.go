package pcvm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Mailbox is the guest's half of how it is heard.
type Mailbox struct {
	box []byte
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
	return m, nil
}

// Send sends a message, and returns the answer.
func (m *Mailbox) Send(message []byte) (answer []byte, err error) {
	if len(message) > MaxMessage {
		return nil, fmt.Errorf("a message of %d bytes, more than %d", len(message), MaxMessage)
	}
	putMessage(m.box, message)
	if err := ring(ringMessage); err != nil {
		return nil, err
	}
	return getMessage(m.box)
}

// Close closes the mailbox.
func (m *Mailbox) Close() error { return unix.Munmap(m.box) }

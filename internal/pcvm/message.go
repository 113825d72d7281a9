package pcvm

import (
	"encoding/binary"
	"fmt"
)

// Where a mailbox has the length of what is in it, and where the text.
const (
	boxSize = 0
	boxText = 8
	// MaxMessage is the length of the longest message, and of the longest answer, in bytes.
	MaxMessage = Reserved - boxText
)

func putMessage(box, message []byte) {
	binary.LittleEndian.PutUint64(box[boxSize:], uint64(len(message)))
	copy(box[boxText:], message)
}

func getMessage(box []byte) ([]byte, error) {
	size := binary.LittleEndian.Uint64(box[boxSize:])
	if size > MaxMessage {
		return nil, fmt.Errorf("a message of %d bytes, more than %d", size, MaxMessage)
	}
	return append([]byte(nil), box[boxText:][:size]...), nil
}

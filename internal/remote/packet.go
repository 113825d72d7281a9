package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// A packet of GDB's remote serial protocol is '$', its content, '#', and the sum of the
// content's bytes modulo 256 in two hexadecimal digits ("Debugging with GDB", appendix "GDB
// Remote Serial Protocol", section "Overview"). In the content, '}' is followed by a byte
// that is exclusive-or'ed with 0x20, and, in answers, '*' by a byte that says how often more
// the byte before is to be repeated, with 29 added.
const (
	packetStart  = '$'
	packetEnd    = '#'
	packetEscape = '}'
	packetRepeat = '*'
	escapeXor    = 0x20
	repeatBias   = 29
)

// maxPacket bounds a packet's content in bytes, once its runs are expanded. QEMU's packets
// have 4096 (gdbstub/internals.h, MAX_PACKET_LENGTH, 11.1).
const maxPacket = 64 << 10

// errPacket is wrapped by errors about packets that are damaged.
var errPacket = errors.New("damaged packet")

// appendPacket appends content as a packet.
func appendPacket(b []byte, content string) []byte {
	b = append(b, packetStart)
	var sum byte
	add := func(c byte) {
		b = append(b, c)
		sum += c
	}
	for i := range len(content) {
		switch c := content[i]; c {
		case packetStart, packetEnd, packetEscape, packetRepeat:
			add(packetEscape)
			add(c ^ escapeXor)
		default:
			add(c)
		}
	}
	return fmt.Appendf(b, "#%02x", sum)
}

// readPacket reads the next packet and returns its content. It passes over what is between
// packets, which are acknowledgements.
func readPacket(r *bufio.Reader) (string, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		if c == packetStart {
			break
		}
	}
	var content []byte
	var sum byte
	next := func() (byte, error) {
		c, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return c, err
	}
	for {
		c, err := next()
		if err != nil {
			return "", err
		}
		if c == packetEnd {
			break
		}
		sum += c
		repeat := 1
		switch c {
		case packetStart:
			return "", fmt.Errorf("%w: it begins twice", errPacket)
		case packetEscape:
			if c, err = next(); err != nil {
				return "", err
			}
			sum += c
			c ^= escapeXor
		case packetRepeat:
			n, err := next()
			if err != nil {
				return "", err
			}
			sum += n
			if len(content) == 0 || n < repeatBias {
				return "", fmt.Errorf("%w: nothing to repeat", errPacket)
			}
			c, repeat = content[len(content)-1], int(n)-repeatBias
		}
		for range repeat {
			content = append(content, c)
		}
		if len(content) > maxPacket {
			return "", fmt.Errorf("%w: longer than %d bytes", errPacket, maxPacket)
		}
	}
	var digits [2]byte
	for i := range digits {
		var err error
		if digits[i], err = next(); err != nil {
			return "", err
		}
	}
	if want := fmt.Sprintf("%02x", sum); string(digits[:]) != want {
		return "", fmt.Errorf("%w: its sum is %s, and it says %q", errPacket, want, digits)
	}
	return string(content), nil
}

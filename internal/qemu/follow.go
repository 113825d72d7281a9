package qemu

import (
	"bufio"
	"os"
	"strings"
	"time"
	"unicode"
)

// follow calls line, if that is set, for each line of a file that is being written,
// without its control characters. stop has the rest of the file read and returns when
// that was told.
func follow(name string, line func(string)) (stop func(), err error) {
	if line == nil {
		return func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer f.Close()
		var begun strings.Builder
		r := bufio.NewReader(f)
		// Nobody tells when a file grows in a way that all file systems have.
		look := time.NewTicker(100 * time.Millisecond)
		defer look.Stop()
		for last := false; !last; {
			select {
			case <-look.C:
			case <-end:
				last = true
			}
			for {
				text, err := r.ReadString('\n')
				begun.WriteString(text)
				if err != nil {
					break
				}
				line(printable(begun.String()))
				begun.Reset()
			}
		}
		if begun.Len() > 0 {
			line(printable(begun.String()))
		}
	}()
	return func() { close(end); <-ended }, nil
}

// printable leaves out what could do something to a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\t' {
			return r
		}
		return -1
	}, text)
}

//go:build amd64 || loong64

package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loadKernel loads a kernel for kexec, one that does no more than end the machine, or tell whoever
// watches it; crash loads it as the one that comes after a panic.
func loadKernel(crash bool) error {
	resource, flags := "System RAM", uintptr(kexecArch)
	if crash {
		const onCrash = 1 // KEXEC_ON_CRASH
		resource, flags = "Crash kernel", flags|onCrash
	}
	at, err := freeMemory(resource, 4*kexecPage)
	if err != nil {
		return err
	}
	code, words := nextKernel()
	text, line := make([]byte, kexecPage), make([]byte, kexecPage)
	copy(text, code)
	copy(line, words)
	// struct kexec_segment of include/uapi/linux/kexec.h.
	type segment struct {
		buffer *byte
		size   uint64
		to     uint64
		room   uint64
	}
	segments := []segment{{&text[0], kexecPage, at, kexecPage}, {&line[0], kexecPage, at + kexecPage, kexecPage}}
	_, _, errno := unix.Syscall6(unix.SYS_KEXEC_LOAD, uintptr(at), uintptr(len(segments)), uintptr(unsafe.Pointer(&segments[0])), flags, 0, 0)
	if errno != 0 {
		return fmt.Errorf("kexec_load: %w", errno)
	}
	return nil
}

// freeMemory returns the physical address of so many bytes of memory of a kind that the kernel's image
// is not in: those in the middle of the largest range.
func freeMemory(resource string, size uint64) (uint64, error) {
	text, err := os.ReadFile("/proc/iomem")
	if err != nil {
		return 0, err
	}
	var at, largest uint64
	for l := range strings.Lines(string(text)) {
		span, name, _ := strings.Cut(l, " : ")
		var first, last uint64
		if n, _ := fmt.Sscanf(strings.TrimSpace(span), "%x-%x", &first, &last); n == 2 && strings.TrimSpace(name) == resource && last-first > largest {
			largest, at = last-first, (first+(last-first)/2)&^(size-1)
		}
	}
	if largest < 4*size {
		return 0, errors.New("/proc/iomem lists no " + resource)
	}
	return at, nil
}

package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loadKernel loads a kernel for kexec, one whose only instructions power QEMU's machine virt off:
// they store a byte in a register of its power controller, by an address that is not cached
// (hw/loongarch/virt.c, fdt_add_ged_reset, and include/hw/acpi/generic_event_device.h, QEMU 11.1).
func loadKernel() error {
	code := []uint32{
		0x14000000 | 0x100e0<<5 | 12,        // lu12i.w $t0, 0x100e0
		0x03800000 | 0x1c<<10 | 12<<5 | 12,  // ori     $t0, $t0, 0x1c
		0x03000000 | 0x800<<10 | 12<<5 | 12, // lu52i.d $t0, $t0, -0x800
		0x02800000 | 0x34<<10 | 13,          // addi.w  $t1, $zero, 0x34
		0x29000000 | 12<<5 | 13,             // st.b    $t1, $t0, 0
		0x06488000,                          // idle    0
		0x53ffffff,                          // b       -4
	}
	const (
		page    = 64 << 10 // at least, and a multiple of it
		command = 4096     // COMMAND_LINE_SIZE: what the kernel copies
	)
	text, words := make([]byte, page), make([]byte, page)
	for i, w := range code {
		binary.LittleEndian.PutUint32(text[4*i:], w)
	}
	// The command line is told by its first word (arch/loongarch/kernel/machine_kexec.c,
	// machine_kexec_prepare, Linux 7.2).
	copy(words[:command], "kexec pvabi")
	at, err := freeMemory(4 * page)
	if err != nil {
		return err
	}
	// struct kexec_segment of include/uapi/linux/kexec.h.
	type segment struct {
		buffer *byte
		size   uint64
		to     uint64
		room   uint64
	}
	segments := []segment{{&text[0], page, at, page}, {&words[0], page, at + page, page}}
	const loongarch = 258 << 16 // KEXEC_ARCH_LOONGARCH
	_, _, errno := unix.Syscall6(unix.SYS_KEXEC_LOAD, uintptr(at), uintptr(len(segments)), uintptr(unsafe.Pointer(&segments[0])), loongarch, 0, 0)
	if errno != 0 {
		return fmt.Errorf("kexec_load: %w", errno)
	}
	return nil
}

// freeMemory returns the physical address of so many bytes of memory that the kernel's image is not
// in: those in the middle of the largest range.
func freeMemory(size uint64) (uint64, error) {
	text, err := os.ReadFile("/proc/iomem")
	if err != nil {
		return 0, err
	}
	var at, largest uint64
	for line := range strings.Lines(string(text)) {
		var first, last uint64
		if n, _ := fmt.Sscanf(line, "%x-%x : System RAM", &first, &last); n == 2 && strings.Contains(line, ": System RAM") && last-first > largest {
			largest, at = last-first, (first+(last-first)/2)&^(size-1)
		}
	}
	if largest < 4*size {
		return 0, errors.New("/proc/iomem lists no memory")
	}
	return at, nil
}

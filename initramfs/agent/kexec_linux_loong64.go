package agent

import "encoding/binary"

// What kexec takes here: KEXEC_ARCH_LOONGARCH, and segments of a size that is a multiple of any page's.
const (
	kexecArch = 258 << 16
	kexecPage = 64 << 10
)

// nextKernel is a kernel whose only instructions power QEMU's machine virt off: they store a byte in a
// register of its power controller, by an address that is not cached (hw/loongarch/virt.c,
// fdt_add_ged_reset, and include/hw/acpi/generic_event_device.h, QEMU 11.1). The command line is
// told by its first word (arch/loongarch/kernel/machine_kexec.c, machine_kexec_prepare, Linux 7.2).
func nextKernel() (text, line []byte) {
	for _, w := range []uint32{
		0x14000000 | 0x100e0<<5 | 12,        // lu12i.w $t0, 0x100e0
		0x03800000 | 0x1c<<10 | 12<<5 | 12,  // ori     $t0, $t0, 0x1c
		0x03000000 | 0x800<<10 | 12<<5 | 12, // lu52i.d $t0, $t0, -0x800
		0x02800000 | 0x34<<10 | 13,          // addi.w  $t1, $zero, 0x34
		0x29000000 | 12<<5 | 13,             // st.b    $t1, $t0, 0
		0x06488000,                          // idle    0
		0x53ffffff,                          // b       -4
	} {
		text = binary.LittleEndian.AppendUint32(text, w)
	}
	const command = 4096 // COMMAND_LINE_SIZE: what the kernel copies
	return text, append([]byte("kexec pvabi"), make([]byte, command)...)
}

package agent

import "pvabi/internal/pcvm"

// What kexec takes here: KEXEC_ARCH_X86_64, and the size of a page.
const (
	kexecArch = 62 << 16
	kexecPage = 4 << 10
)

// nextKernel is a kernel whose only instructions ring the bell of a machine of package pcvm, with a
// message that is empty.
func nextKernel() (text, line []byte) {
	return []byte{
		0xb0, 0, // mov $0, %al
		0xe6, pcvm.Bell, // out %al, $Bell
		0xf4,       // hlt
		0xeb, 0xfd, // jmp to it
	}, []byte("pvabi")
}

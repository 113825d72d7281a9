package agent

import "encoding/binary"

// cpuid executes the instruction CPUID.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

// cpuidSignature returns the signature of the hypervisor below the guest: the
// twelve bytes of leaf 0x40000000 that say who answers, when bit 31 of ECX of
// leaf 1 says that there is one (Documentation/virt/kvm/x86/cpuid.rst).
func cpuidSignature() string {
	if _, _, ecx, _ := cpuid(1, 0); ecx>>31 == 0 {
		return ""
	}
	_, ebx, ecx, edx := cpuid(0x40000000, 0)
	var s []byte
	for _, r := range []uint32{ebx, ecx, edx} {
		s = binary.LittleEndian.AppendUint32(s, r)
	}
	end := len(s)
	for end > 0 && s[end-1] == 0 {
		end--
	}
	return string(s[:end])
}

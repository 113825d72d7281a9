package abi

// Platforms returns all platforms, each a fresh copy.
func Platforms() []*Platform {
	return []*Platform{X86KVM(), X86Xen(), LoongArch(), PowerPCPAPR(), S390()}
}

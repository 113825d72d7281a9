package abi

// Platforms returns all platforms, each a fresh copy.
func Platforms() []*Platform {
	return []*Platform{X86KVM(), LoongArch(), PowerPCPAPR(), S390()}
}

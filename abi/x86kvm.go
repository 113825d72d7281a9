package abi

// X86KVM returns the ABI between Linux KVM and its x86 guests.
func X86KVM() *Platform {
	return &Platform{
		Name:      "x86-kvm",
		Title:     "KVM on x86",
		GOARCH:    []string{"amd64"},
		ByteOrder: "little",
		Rules:     x86Rules(),
	}
}

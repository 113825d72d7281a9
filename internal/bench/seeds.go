package bench

// What the threads that the project grew from have published, as ratios of their numbers.

// exit2012 is a cost of a table of theirs.
type exit2012 struct{ platform, cost, sharing string }

// exits2012 are ratios of mean cycles with the area of "KVM paravirt kvm_flush_tlb_others" (kvm mailing
// list, 2012) to those of the kernel without the patches, by kvm-unit-tests' vmexit on hardware, 10 runs:
// one vCPU, and four for ipi. That area told of a vCPU's state, as the one for steal time does today.
var exits2012 = map[exit2012]float64{
	{"x86-kvm", "cpuid", "steal"}:            2448.9 / 2135.1,
	{"x86-kvm", "vmcall", "steal"}:           2306.2 / 2025.5,
	{"x86-kvm", "mov_from_cr8", "steal"}:     1, // 12.0 in both
	{"x86-kvm", "inl_from_pmtimer", "steal"}: 18578.0 / 18093.0,
	{"x86-kvm", "ipi", "steal"}:              34564.0 / 31997.0,
}

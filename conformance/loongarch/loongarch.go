// Package loongarch has the CPUs of a Linux guest on LoongArch run programs. It is the carrier kmod with
// what the checks of loongarch-kvm need besides (conformance.LoongArchGuest), all of which the guest's
// kernel tells or does: how many IPIs a CPU took, and programs at privilege level 3.
//
// # CPUs
//
// A machine has three of the kernel's CPUs, its second to fourth; the first is left to the rest of the
// system.
//
// # What is the kernel's
//
// The kernel of a guest of KVM uses the ABI itself: it sends its own interrupts by IPI, and has
// registered memory for steal time on each CPU. A program that registers other memory takes that away
// from it. To close the machine gives it back, by having the kernel take the CPUs offline and bring
// them back, where it registers it anew.
package loongarch

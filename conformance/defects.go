package conformance

import (
	"fmt"
	"io"
	"strings"
)

// Defect is a public defect of an implementer, of a VMM or of a guest kernel in what the
// ABI is about. Each stands for a kind that a suite has to notice.
type Defect struct {
	// ID is a letter for the platform (X, N for Xen, P, S, L, G for elsewhere) and a
	// number.
	ID string
	// Text says what was wrong, Where where it was mended or told.
	Text, Where string
	// Rules are the ids of rules that a check looks at and that such a defect breaks;
	// Why says why there is none, or what the rules cannot see.
	Rules []string
	Why   string
}

// The reasons that more than one defect has.
const (
	whyVMM       = "It is in the code of a VMM that no target has: the one of the target x86-kvm is this project's own."
	whyRace      = "A race in the host or the kernel, which no order of calls brings about with certainty; nothing here is judged by luck."
	whyMigrate   = "It takes a migration or a snapshot of the guest, and no target makes one."
	whyOtherMode = "It takes a kind of guest that no target boots."
	whyNoABI     = "Both sides keep the ABI; what is wrong stays inside one of them."
	whyBuild     = "It is seen when a kernel or a module is built, not when it runs."
)

// Defects lists the defects that the checks were held against.
func Defects() []Defect {
	return []Defect{
		{"X01", "calls were taken from any privilege level (CVE-2009-3290)", "Linux 07708c4af134", []string{"x86-kvm/privilege/user-refused", "x86-kvm/privilege/user-has-no-effect"}, ""},
		{"X02", "whether a call without privilege gives an error or a fault", "Linux, review of 2021-09", []string{"x86-kvm/privilege/user-refused", "x86-kvm/privilege/user-refused-undefined"}, ""},
		{"X03", "SEND_IPI read beyond its map for a lowest id near 2^32", "Linux bdf7ffc89922", []string{"x86-kvm/ipi/lowest-boundaries", "x86-kvm/ipi/absent-ids", "x86-kvm/ipi/lowest-wraps", "x86-kvm/ipi/lowest-high-half"}, ""},
		{"X05", "ids of a guest's were used as an index in speculation", "Linux c87bd4dd43a6", nil, "Speculation leaves nothing that a guest may look at. The ids that X03 is about guard what can be seen."},
		{"X06", "a guest put ids that came out of order into the wrong bits of SEND_IPI", "Linux c15e0ae42c8e", []string{"x86-kvm/guest/ipi-lowest", "x86-kvm/guest/ipi-to-existing", "x86-kvm/guest/ipi-clusters"}, ""},
		{"X07", "a CPU stayed preempted for good where PV_TLB_FLUSH is hidden", "Linux 1eff0ada88b4", []string{"x86-kvm/preempted/cleared-without-tlb-flush", "x86-kvm/preempted/cleared-at-entry"}, ""},
		{"X08", "a CPU was told to be preempted in the middle of an instruction", "Linux 6cd88243c7e0", nil, whyRace},
		{"X10", "a FLUSH_TLB was lost when the area was set up anew", "Linux b043138246a4, 8c6de56a42e0", []string{"x86-kvm/preempted/flush-tlb", "x86-kvm/preempted/cleared-at-entry"}, "That the next entry sees a new mapping is not looked at: the probe has no page tables to change."},
		{"X12", "the boot CPU's areas stayed on over hibernation and kexec", "Linux 8b79feffeca2", []string{"x86-kvm/guest/releases-kexec", "x86-kvm/guest/releases-offline"}, "No target hibernates."},
		{"X14", "areas stayed on after a crash", "Linux 3d6b84132d2a", []string{"x86-kvm/guest/releases-crash"}, ""},
		{"X16", "a guest with MWAIT used flushes and yields that then mean nothing", "Linux 40cd58dbf121", []string{"x86-kvm/guest/flush-native-otherwise", "x86-kvm/guest/yield-never-otherwise"}, ""},
		{"X18", "registers of asynchronous page faults were restored in the wrong order", "QEMU 6615be072d", []string{"x86-kvm/register/control-bits-gated", "x86-kvm/register/reads-back"}, whyVMM},
		{"X19", "a page's not-present and ready came together, which ends in a double fault", "Linux 84b09f33a5de", nil, whyRace},
		{"X21", "the other vendor's instruction in text that cannot be written", "Linux c1118b3602c2", []string{"x86-kvm/convention/foreign-instruction", "x86-kvm/convention/foreign-instruction-not-fixed", "x86-kvm/convention/foreign-instruction-user"}, "Text that cannot be written is not looked at yet."},
		{"X22", "features were read off the first leaf though KVM's are elsewhere", "Linux 760849b1476c", []string{"x86-kvm/discovery/signature-after-other", "x86-kvm/guest/finds-later-leaf"}, ""},
		{"X24", "PV_UNHALT was offered while HLT does not leave the guest", "Linux 63d8c702c2d4", []string{"x86-kvm/discovery/pv-unhalt-withdrawn"}, ""},
		{"X25", "PV_UNHALT was offered without an APIC in the kernel", "QEMU 648774779aa6", []string{"x86-kvm/kick/wakes-waiter-split-irqchip"}, whyVMM},
		{"X26", "a hint's name changed and headers broke", "Linux 633711e8287; QEMU 2af1acadc2", []string{"x86-kvm/discovery/hints"}, "pvabi drift holds names and numbers of headers."},
		{"X28", "a kick was made of a structure that was not set up whole", "Linux ebd28fcb55e2", []string{"x86-kvm/kick/wakes-waiter", "x86-kvm/kick/race"}, ""},
		{"X29", "the switch for virtual spinlocks was set too early", "Linux, 2019", []string{"x86-kvm/guest/locks-queued", "x86-kvm/guest/locks-native-otherwise"}, ""},
		{"X30", "virtual spinlocks on bare metal", "Linux e639222a5119", []string{"x86-kvm/guest/locks-queued"}, ""},
		{"X31", "a byte of a lock was taken for a word", "Linux 6.10.5", nil, whyNoABI},
		{"X32", "an address outside of memory in PV_EOI_EN filled the host's log", "Linux ce5977b181c1, 51b1209c6125", []string{"x86-kvm/eoi/area-outside-memory"}, ""},
		{"X33", "what a VMM finds in ret before it answers MAP_GPA_RANGE", "Linux, a comment in arch/x86/kvm/x86.c", nil, "It is between the kernel and the VMM; the rules are about the guest."},
		{"X34", "registers of a clock that is off were saved", "QEMU, mail of 2024-07", []string{"x86-kvm/register/gated-enforced"}, whyVMM},

		{"N01", "poll read beyond the table of ports", "Linux 4ea9439fd537", []string{"x86-xen/poll/absent-port"}, "The defect was in KVM's emulation of Xen, which no target has; Xen itself is held to the rule."},
		{"N02", "calls were taken from any privilege level", "Linux c2b8cdfaf3a6", []string{"x86-xen/privilege/user-refused", "x86-xen/privilege/user-has-no-effect"}, "As N01."},
		{"N04", "poll slept on ports that cannot wake it", "Xen d4bfa0c78f", []string{"x86-xen/poll/closed-port", "x86-xen/poll/unbound-port"}, ""},
		{"N07", "a CPU could not be set up without a vcpu_info", "Xen 03e484a4f6", nil, whyOtherMode},
		{"N08", "the bound of an event's word was of the wrong size", "Xen 3a6cb6aae4", []string{"x86-xen/event/refused-ports"}, "The form of event channels that Linux chose is the one looked at."},
		{"N09", "expand and reset at the same time (XSA-505)", "Xen 0e9d647aca", []string{"x86-xen/event/reset"}, whyRace},
		{"N10", "a call that failed left something behind (XSA-496)", "Xen 40c59b6c29", nil, "Its way goes over all ports being in use, which the domain that the checks run in would not survive."},
		{"N11", "a guest's call lost %rbx", "Linux 98a5cfd23209", []string{"x86-xen/convention/registers-preserved"}, "Xen's side is held; Linux's is in code that a program of the checks does not run."},

		{"P01", "H_PROD looked at the caller's state instead of the target's", "Linux 8464c8842de2", []string{"powerpc-papr/kick/wakes-waiter", "powerpc-papr/kick/wakes-waiter-interrupts-on"}, ""},
		{"P03", "CPUs of a dedicated partition seemed preempted", "Linux 14c73bd344da", []string{"powerpc-papr/guest/shared-mode"}, "No target has a dedicated partition."},
		{"P04", "an inline function needed a symbol for GPL modules", "Linux, mail of 2021-07", nil, whyBuild},
		{"P05", "vcpu_is_preempted without an area", "Linux, linuxppc issue 229", nil, whyOtherMode},
		{"P06", "vcpu_is_preempted in preemptible code", "Linux fda0eb220021", nil, "It is told by kernels that are built with CONFIG_DEBUG_PREEMPT; Debian's are not."},
		{"P07", "the thread beside a CPU that confers seemed preempted", "Linux ca3f969dcb11", nil, "It is about PowerVM, on which threads of a core are dispatched together."},
		{"P08", "H_CONFER to CPUs that were idle", "Linux f9bc9bbe8afd", []string{"powerpc-papr/guest/confers-odd-count", "powerpc-papr/guest/confers-to-another"}, ""},
		{"P09", "an interrupt in the queue of a lock let all wait for each other", "Linux 734ad0af3609", nil, whyRace},
		{"P11", "QEMU's H_CONFER goes to nobody in particular", "QEMU e8ce0e40ee", []string{"powerpc-papr/confer/matching-odd-count", "powerpc-papr/confer/stale-count"}, ""},
		{"P14", "a lock of the trace log's was taken where none may be", "Linux cadae3a45d23", nil, whyNoABI},
		{"P15", "perf took an entry of the trace log for larger than it is", "Debian's 7.2", []string{"powerpc-papr/trace/entry"}, "pvabi drift holds the layout."},
		{"P16", "the tracepoint of calls showed other arguments", "Linux 6.5.8", []string{"powerpc-papr/guest/confers-odd-count"}, ""},
		{"P17", "h_prod has the caller look for interrupts instead of the target", "QEMU 10.0.13, 11.1", []string{"powerpc-papr/kick/wakes-waiter"}, "The kick that goes with it wakes the target all the same."},
		{"P19", "H_CEDE in a transaction took the host down", "kvm-unit-tests tm.c", nil, "QEMU's CPUs have no transactional memory that could be entered, and newer ones have none."},

		{"S01", "SENSE RUNNING STATUS said the opposite", "QEMU 4103500e2f", []string{"s390/sigp/sense-running-of-self", "s390/sigp/sense-running-of-stopped", "s390/preempted/running"}, ""},
		{"S03", "an unknown DIAGNOSE was another exception, or none", "QEMU 68540b1a1b, a8aec856b8", []string{"s390/diag/undefined-code"}, ""},
		{"S05", "a subcode of DIAGNOSE 0x500 was not looked at", "QEMU f2c55d1735, 77319f2263", []string{"s390/virtio/unknown-subcode", "s390/virtio/subcode-width"}, ""},
		{"S06", "a reset with several CPUs waited for itself", "QEMU 7337c6eb98", nil, "It ends the guest that the checks run in."},
		{"S07", "a yield looked twice at where its target runs", "Linux 87e28a15c42c", []string{"s390/yield/running-target", "s390/yield/waiting-target"}, "No target has KVM on s390; the rules are absent on QEMU, which has no such code."},
		{"S08", "arch_vcpu_is_preempted of a CPU that is offline", "Linux, mail of 2024-04", nil, whyNoABI},
		{"S09", "the way to a yield could be traced where nothing may be", "Linux 8ebf6da9db1b", nil, whyNoABI},
		{"S11", "STOP AND STORE STATUS was taken twice", "Linux d343407b728a", nil, "Linux's registers are in the CPU that would be stopped."},
		{"S12", "the mean of steal time was wrong", "Linux 6.7.12", nil, whyNoABI},
		{"S13", "QEMU has no DIAGNOSE 0x9c, and a guest has to ask first", "QEMU 10, Linux arch/s390/kvm/diag.c", []string{"s390/guest/yields-only-if-probed", "s390/guest/probes-once"}, ""},

		{"L01", "a feature took the place of all others", "Linux 82db90bf461b, mail of 2026-03", []string{"loongarch-kvm/discovery/features-known", "loongarch-kvm/discovery/preempt-with-steal"}, ""},
		{"L04", "CPUs were started by the call instead of natively", "Linux, the same mail", []string{"loongarch-kvm/guest/starts-cpus-natively"}, ""},
		{"L05", "steal time was written without a lock", "Linux 589e6cc75976", nil, whyNoABI},
		{"L06", "the address of steal time was not migrated", "QEMU 47b54e15bbe7", nil, whyMigrate},
		{"L07", "ids were put together with the wrong comparison, and names differed", "Linux, mail of 2024", []string{"loongarch-kvm/guest/ipi-lowest", "loongarch-kvm/guest/ipi-to-existing"}, "pvabi drift holds names and numbers."},
		{"L08", "vcpu_is_preempted that leaves the guest", "Linux, review of 2025-11", []string{"loongarch-kvm/guest/asks-once"}, ""},
		{"L10", "HVCL is taken from any privilege level", "Linux 7.2 arch/loongarch/kvm/exit.c", []string{"loongarch-kvm/privilege/user-refused", "loongarch-kvm/privilege/user-has-no-effect"}, ""},
		{"L12", "QEMU's emulation has neither the words nor the instruction", "QEMU 10", []string{"loongarch-kvm/discovery/nothing-without-signature"}, ""},

		{"G01", "steal time ran backwards over a snapshot", "Firecracker, pull request 5139", []string{"x86-kvm/steal/monotonic"}, whyMigrate},
		{"G03", "guests that hang in spinlocks", "cloud-hypervisor issue 6708", nil, "Its cause is not known."},
		{"G04", "a test was skipped in just those guests that it was for", "vmtest guest/skip.go", nil, "The function is not used here."},
	}
}

// WriteDefects writes the defects as a table in Markdown.
func WriteDefects(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| | what was wrong | where | rules that notice | |\n|---|---|---|---|---|\n")
	for _, d := range Defects() {
		var rules []string
		for _, r := range d.Rules {
			rules = append(rules, "`"+r+"`")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", d.ID, d.Text, d.Where, strings.Join(rules, " "), d.Why)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

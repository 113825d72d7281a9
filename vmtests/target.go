// Package vmtests says where the checks run: the targets, and how each of them boots.
//
// A [Target] is a concrete system under test. Most are guests: [Runner.Run] takes
// kernel, modules and QEMU out of the artefact store, or from the user, makes an
// initramfs with the agent, boots it, and folds the agent's events into a
// [conformance.Run]. A target without a guest is looked at by this process itself.
//
// `go test ./vmtests` runs every target that can run here, with a subtest for each
// rule.
package vmtests

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/initramfs/suites"
	"pvabi/internal/kbuild"
	"pvabi/internal/qemu"
)

// Target is a concrete system under test.
type Target struct {
	Name     string
	Platform string
	// Implementer is the name of whose hypervisor code answers.
	Implementer string
	// Text says what is looked at, by which means.
	Text string
	// Rules are what a run has a result for, in the order of the results.
	Rules []abi.Rule
	// Named tells that only who names the target means it.
	Named bool
	// Costs tells that a guest can measure what the implementer's costs are.
	Costs bool

	// Guest is how the target boots; nil where nothing boots.
	Guest *Guest
	// local is how this process looks at a target that is the machine it runs on; nil where
	// a guest boots.
	local *local
	// boot boots a target that takes more than one boot of its guest, and judges what was seen; nil
	// for one that takes one.
	boot func(*Runner, context.Context, Target, *outcome) error
}

// implementedByQEMU is the Implementer of targets whose hypervisor is QEMU itself, so
// that its version is that of the QEMU that is run, which no guest can know.
const implementedByQEMU = "QEMU"

// Guest is how a target boots.
type Guest struct {
	GOARCH string
	CPUs   int
	// Xen is what the guest boots on; nil for the bare machine.
	Xen *Xen
	// Flavour is that of Debian's kernels; empty for the store's default.
	Flavour string
	// Threads of QEMU that the CPUs run on.
	Threads qemu.Threads
	// Memory is in MiB; 0 leaves it to the board.
	Memory int
	// Machine has properties, NAME=VALUE,NAME=VALUE, that are added to the board's machine;
	// a QEMU without one of them cannot have the target. CPU stands in the place of the
	// board's. Both may be empty.
	Machine, CPU string
	// Modules are loaded by the agent; a kernel may have them built in. Needs are
	// files that must exist then.
	Modules, Needs []string
	// Append is added to the kernel's command line.
	Append []string
	// Reference is true of a guest that runs on the reference hypervisor.
	Reference bool
	// Scenario is what the suite is to do, where it has more than one thing to do.
	Scenario string
	// Options are what a kernel has to be configured with for the rules to be looked at.
	Options []conformance.Option
}

// Lacking are the options that a kernel with that configuration is without; none where it is nil, and so
// not known. An option that may be m is not missed if there are modules.
func (g *Guest) Lacking(c kbuild.Config, modules bool) (out []conformance.Option) {
	if c == nil {
		return nil
	}
	for _, x := range g.Options {
		if !c.On(x.Name) && !(x.Module && modules && c.Module(x.Name)) {
			out = append(out, x)
		}
	}
	return out
}

// Judges tells whether the target looks at the kernel that its guest boots, as hypervisor or as guest,
// and not only at what is below that.
func (t Target) Judges() bool {
	return t.Guest != nil && (strings.HasPrefix(t.Implementer, conformance.Linux) ||
		slices.ContainsFunc(t.Rules, func(r abi.Rule) bool { return r.Side == abi.Guest }))
}

// sibling is a module that every kernel has, and that does nothing: the carrier kmod learns
// from its file what the kernel's modules look like.
const sibling = "dummy"

// Targets are all targets, in the order in which they are run.
func Targets() []Target {
	return []Target{
		{
			Name: "x86-kvm", Platform: "x86-kvm", Implementer: "Linux KVM",
			Text:  "the KVM of a Linux guest under QEMU TCG, which emulates AMD's SVM, asked by virtual CPUs of our own",
			Rules: conformance.X86KVMRules(), Costs: true,
			Guest: &Guest{
				GOARCH: "amd64", CPUs: 2,
				// Linux patches its code when KVM comes to life, which QEMU's
				// threads do not always see in the right order: with one thread
				// per CPU a guest dies in one of some ten boots.
				Threads: qemu.OneThread,
				Modules: []string{"kvm_amd"}, Needs: []string{"/dev/kvm"},
				Options: conformance.X86KVMOptions(),
			},
		},
		{
			Name: "x86-kvm-guest", Platform: "x86-kvm", Implementer: conformance.Linux,
			Text:  "Linux as a guest of Linux KVM, itself a guest under QEMU TCG; boots that are offered different features, watched from both sides",
			Rules: conformance.LinuxKVMRules(),
			Guest: &Guest{
				// With one CPU QEMU has no others to give its thread to. When it does so, or whoever
				// has a CPU pause for a moment, a guest of the guest may take an interrupt once more
				// that VMRUN injected: helper_vmrun leaves it in exception_index (QEMU 11.1,
				// target/i386/tcg/system/svm_helper.c), and such a guest dies of it.
				GOARCH: "amd64", CPUs: 1, Threads: qemu.OneThread, Memory: 1024,
				Modules: []string{"kvm_amd"}, Needs: []string{"/dev/kvm"},
				Options: conformance.X86KVMGuestOptions(),
			},
			boot: (*Runner).kvmGuest,
		},
		here(suites.X86KVMBelow(), suites.Options{}),
		here(suites.X86KVMHost(), suites.Options{}),
		xenTarget("x86-xen", "Debian's newest Xen", Xen{}, 4),
		xenTarget("x86-xen-4.17", "Xen 4.17", Xen{Suite: "bookworm", Version: "4.17"}, 4),
		xenTarget("x86-xen-nopvspin", "Debian's newest Xen", Xen{}, 4, "nopvspin"),
		xenTarget("x86-xen-one-vcpu", "Debian's newest Xen", Xen{}, 1),
		pseriesTarget("powerpc-qemu", "the hypervisor that QEMU's machine pseries is under TCG, asked by a module in a Linux guest", qemu.ThreadPerCPU),
		// CPUs come one after the other, wherever the host has it.
		pseriesTarget("powerpc-qemu-single", "the same hypervisor, with all CPUs on one of QEMU's threads", qemu.OneThread),
		powerpcKVMTarget("powerpc-kvm", "a hypervisor in a guest", "cap-nested-hv=on", "POWER9", qemu.ThreadPerCPU),
		// On QEMU 11.1 the guest locks up in some boots, with a thread per CPU and, in one of some six, with one
		// thread. Whether that is QEMU's doing or KVM's is not known.
		named(powerpcKVMTarget("powerpc-kvm-papr", "a hypervisor in a guest of the other kind, which leaves its guests' state to QEMU; it locks up at times", "cap-nested-papr=on", "POWER10", qemu.OneThread)),
		{
			Name: "s390-qemu", Platform: "s390", Implementer: implementedByQEMU,
			Text:  "the machine that QEMU is for s390 under TCG, asked by a module in a Linux guest",
			Rules: slices.Concat(conformance.S390Rules(), conformance.S390GuestRules()), Costs: true,
			Guest: &Guest{
				GOARCH: "s390x", CPUs: 4, Threads: qemu.ThreadPerCPU,
				Modules: []string{sibling},
				// Idle CPUs are the ones that wait; nothing else may run there.
				Append:  []string{"isolcpus=1-3", "rcupdate.rcu_expedited=1"},
				Options: conformance.S390Options(),
			},
		},
		{
			Name: "loongarch-probe", Platform: "loongarch-kvm", Implementer: referenceHypervisor,
			Text:  "the reference hypervisor, the project's own model of KVM on LoongArch, below QEMU TCG; asked by a module in a Linux guest. It says nothing about a real KVM",
			Rules: conformance.LoongArchRules(), Costs: true,
			Guest: &Guest{
				GOARCH: "loong64", CPUs: 4, Threads: qemu.ThreadPerCPU, Reference: true,
				Modules: []string{sibling},
				Append:  []string{"isolcpus=1-3", "irqaffinity=0"},
				Options: conformance.LoongArchOptions(),
			},
		},
		{
			Name: "loongarch-plain", Platform: "loongarch-kvm", Implementer: implementedByQEMU,
			Text:  "a machine without a hypervisor, which QEMU is for LoongArch under TCG: that there is nothing, and that Linux uses nothing",
			Rules: conformance.LoongArchPlainRules(),
			Guest: &Guest{
				GOARCH: "loong64", CPUs: 4, Threads: qemu.ThreadPerCPU,
				Modules: []string{sibling},
				Append:  []string{"isolcpus=1-3", "irqaffinity=0"},
				Options: conformance.LoongArchOptions(),
			},
		},
		{
			Name: "loongarch-guest", Platform: "loongarch-kvm", Implementer: conformance.Linux,
			Text:  "Linux as a guest of the reference hypervisor, the project's own model of KVM on LoongArch, below QEMU TCG; watched from both sides",
			Rules: conformance.LinuxLoongArchRules(),
			Guest: &Guest{GOARCH: "loong64", CPUs: 4, Threads: qemu.ThreadPerCPU, Options: conformance.LoongArchOptions()},
			boot:  (*Runner).loongArchGuest,
		},
	}
}

// pseriesTarget is QEMU's own hypervisor of PowerPC.
func pseriesTarget(name, text string, threads qemu.Threads) Target {
	return Target{
		Name: name, Platform: "powerpc-papr", Implementer: implementedByQEMU, Text: text,
		Rules: slices.Concat(conformance.PowerPCPAPRRules(), conformance.PowerPCGuestRules()), Costs: true,
		Guest: &Guest{
			GOARCH: "ppc64le", CPUs: 4, Threads: threads,
			Modules: []string{sibling},
			// Programs have all CPUs but the first to themselves: what the kernel
			// does there otherwise ends their waits. It may not stop them for the
			// sake of huge pages either. Each probe of the kernel's that goes waits for all
			// CPUs, in no hurry otherwise.
			Append:  []string{"isolcpus=1-3", "irqaffinity=0", "transparent_hugepage=never", "rcupdate.rcu_expedited=1"},
			Options: conformance.PowerPCOptions(),
		},
	}
}

// powerpcKVMTarget is Linux KVM-HV in a guest of QEMU's, nested by a property of QEMU's machine.
func powerpcKVMTarget(name, nested, machine, cpu string, threads qemu.Threads) Target {
	return Target{
		Name: name, Platform: "powerpc-papr", Implementer: "Linux KVM-HV",
		Text:  "the KVM-HV of a Linux guest under QEMU TCG, " + nested + ", asked by virtual CPUs of our own",
		Rules: conformance.PowerPCKVMRules(), Costs: true,
		Guest: &Guest{
			GOARCH: "ppc64le", CPUs: 2, Threads: threads,
			Machine: machine, CPU: cpu,
			Modules: []string{"kvm_hv"}, Needs: []string{"/dev/kvm"},
			Options: conformance.PowerPCKVMOptions(),
		},
	}
}

// named makes a target one that only who names it means.
func named(t Target) Target {
	t.Named = true
	return t
}

// Find returns the targets with these names, in the order of Targets; for none, all but those that are
// to be named.
func Find(names ...string) ([]Target, error) {
	all := Targets()
	if len(names) == 0 {
		all = slices.DeleteFunc(all, func(t Target) bool { return t.Named })
	}
	return Choose(all, names...)
}

// Choose returns those of the targets that have these names, in their order; all for none.
func Choose(all []Target, names ...string) ([]Target, error) {
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, t := range all {
		known = append(known, t.Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("unknown target %q; there are %s", n, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(t Target) bool { return !slices.Contains(names, t.Name) }), nil
}

// Console is the file in a folder for results that a guest's console is kept in.
func (t Target) Console(dir string) string { return filepath.Join(dir, t.Name+".console") }

// Reachable returns nil if the target can run on this machine, and otherwise why it
// cannot. It looks at this machine only, not at the network.
func (t Target) Reachable(ctx context.Context) error {
	if t.local != nil {
		return t.local.Reachable(ctx)
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("guests are booted on Linux only, and this is %s", runtime.GOOS)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("no go command on PATH, which compiles the guest's agent; install Go")
	}
	return nil
}

//go:build linux

package suites

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"pvabi/conformance"
	"pvabi/conformance/kvmhv"
	"pvabi/conformance/linuxguest"
	"pvabi/conformance/pseries"
	"pvabi/initramfs/agent"
)

func init() {
	all["powerpc-qemu"], all["powerpc-qemu-single"] = powerpcQEMU, powerpcQEMU
	all["powerpc-kvm"], all["powerpc-kvm-papr"] = powerpcKVM, powerpcKVMPAPR
}

// powerpcKVM looks at the KVM of the kernel that the agent runs on.
func powerpcKVM(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, emit, conformance.PowerPCKVM(release, os.Getpagesize(), kvmhv.Answers, kvmhv.Open))
}

// powerpcKVMPAPR looks at the same where that nests by nested PAPR.
func powerpcKVMPAPR(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	release, err := linuxguest.Release()
	if err != nil {
		return err
	}
	return agent.Run(ctx, job, emit, conformance.PowerPCKVMNestedPAPR(release, os.Getpagesize(), kvmhv.Answers, kvmhv.Open))
}

// powerpcQEMU looks at the hypervisor below the kernel that the agent runs on, and at that kernel.
func powerpcQEMU(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	host, guest, err := papr(conformance.Implementer{Name: "QEMU", Version: job.Implementer})
	if err != nil {
		return err
	}
	return runPAPR(ctx, job, emit, host, guest)
}

// deviceTree is where the kernel shows it.
const deviceTree = "/proc/device-tree"

// hypertas is the property with the names of what the hypervisor offers, nil if there is none.
func hypertas() ([]byte, error) {
	content, err := fs.ReadFile(os.DirFS(deviceTree), hypertasFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

// papr makes the suites for the hypervisor below this kernel, and for the kernel.
func papr(i conformance.Implementer) (host, guest *conformance.Suite, err error) {
	release, err := linuxguest.Release()
	if err != nil {
		return nil, nil, err
	}
	names, err := hypertas()
	if err != nil {
		return nil, nil, err
	}
	return conformance.PowerPCPAPR(i, names, pseries.Open), conformance.PowerPCGuest(release, linuxguest.New(), names, pseries.Open), nil
}

// runPAPR runs both suites.
func runPAPR(ctx context.Context, job agent.Job, emit func(conformance.Event), host, guest *conformance.Suite) error {
	if err := host.Ready(); err != nil {
		if errors.Is(err, pseries.ErrNoAreas) {
			emit(conformance.Event{Unreached: err.Error()})
			return nil
		}
		return unreached(err, emit)
	}
	return agent.Run(ctx, job, emit, host, guest)
}

// Locals are the targets that this machine can be.
func Locals() []Local {
	below := func() (conformance.Implementer, string, error) {
		cpuinfo, err := os.ReadFile("/proc/cpuinfo")
		if err != nil {
			return conformance.Implementer{}, "", err
		}
		return paprBelow(os.DirFS(deviceTree), string(cpuinfo))
	}
	i, unknown, _ := below()
	text := "the PAPR hypervisor below this very machine, asked by a module in its kernel, and that kernel"
	if unknown != "" {
		text += "; not known: " + unknown
	}
	return []Local{{
		Name: "powerpc-below", Platform: "powerpc-papr", Implementer: i, Text: text,
		Rules: slices.Concat(conformance.PowerPCPAPRRules(), conformance.PowerPCGuestRules()),
		Reachable: func(context.Context) error {
			_, _, err := below()
			return err
		},
		Disturbs: conformance.PowerPCPAPRDisturbing(),
		Suite: func(o Options) agent.Suite {
			look := func(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
				host, guest, err := papr(o.Implementer)
				if err != nil {
					return err
				}
				if o.Unprivileged {
					return agent.Run(ctx, job, emit, host.Unprivileged(), guest.Unprivileged())
				}
				if !o.Disturb {
					host.Gentle()
					guest.Gentle()
				}
				return runPAPR(ctx, job, emit, host, guest)
			}
			if o.Unprivileged {
				return look
			}
			return careful(look)
		},
	}}
}

package suites

import (
	"context"
	"errors"
	"fmt"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/arch/loong64"
	"pvabi/conformance"
	"pvabi/conformance/loongarch"
	"pvabi/initramfs/agent"
)

// loongarchSignature asks the processor for the signature of KVM, which takes no privilege.
func loongarchSignature() (uint64, error) {
	frame, err := arch.NewFrame(make([]byte, arch.FrameSize))
	if err != nil {
		return 0, err
	}
	if err := frame.Load(arch.Program{{Kind: arch.Discover, Arg: [6]uint64{abi.LoongArch().Word("signature-word")}}}); err != nil {
		return 0, err
	}
	if s := loong64.Run(frame, false); s != loong64.Ended {
		return 0, fmt.Errorf("the probe left with status %d", s)
	}
	return frame.Results(1)[0].Regs[loong64.ISA.Register("r4")], nil
}

// loongarchIsBelow returns nil if there is KVM below this machine.
func loongarchIsBelow(context.Context) error {
	got, err := loongarchSignature()
	switch want := abi.LoongArch().Word("signature"); {
	case err != nil:
		return err
	case got == 0:
		return errors.New("no hypervisor that tells of itself: CPUCFG of the word for the signature gives 0")
	case got != want:
		return fmt.Errorf("another hypervisor than KVM: its signature is %#x, and KVM's %#x", got, want)
	}
	return nil
}

// Locals are the targets that this machine can be.
func Locals() []Local {
	return []Local{{
		Name: "loongarch-below", Platform: "loongarch-kvm",
		// What version of KVM it is, its guests cannot tell.
		Implementer: conformance.Implementer{Name: "Linux KVM"},
		Text:        "the KVM that this very machine is a guest of, asked by a module in its kernel",
		Rules:       conformance.LoongArchRules(),
		Reachable:   loongarchIsBelow,
		Disturbs:    conformance.LoongArchDisturbing(),
		Suite: func(o Options) agent.Suite {
			if o.Unprivileged {
				return func(_ context.Context, _ agent.Job, emit func(conformance.Event)) error {
					emit(conformance.Event{Unreached: "without root there is little to be asked on LoongArch; leave out -unprivileged"})
					return nil
				}
			}
			return careful(func(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
				s, err := conformance.LoongArchBelow(ctx, o.Implementer, loongarch.Open)
				if err != nil {
					return unreached(err, emit)
				}
				if !o.Disturb {
					s.Gentle()
				}
				return agent.Run(ctx, job, emit, s)
			})
		},
	}}
}

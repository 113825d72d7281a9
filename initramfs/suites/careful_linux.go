//go:build loong64 || ppc64le || s390x

package suites

import (
	"context"
	"errors"

	"pvabi/conformance"
	"pvabi/conformance/kmod"
	"pvabi/initramfs/agent"
)

// careful has a suite look at a machine that is somebody's: the carrier is looked at before, and
// the kernel after.
func careful(s agent.Suite) agent.Suite {
	return func(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
		if err := kmod.KeepAway(); err != nil {
			return err
		}
		if ok, err := checkSelf(ctx, emit); !ok {
			return err
		}
		w, err := kmod.NewWatch()
		if err != nil {
			return err
		}
		defer w.Close()
		if err := s(ctx, job, emit); err != nil {
			return errors.Join(err, w.Same())
		}
		if err := w.Same(); err != nil {
			return err
		}
		complaints, err := w.Complaints()
		if err != nil {
			return err
		}
		for _, c := range complaints {
			emit(conformance.Event{Note: "meanwhile the kernel said: " + c})
		}
		emit(conformance.Event{Note: "the kernel is as it was: no module of ours is left, and no taint but that of an unsigned module"})
		return nil
	}
}

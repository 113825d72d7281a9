//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"pvabi/arch"
	module "pvabi/internal/kmod"
)

// sigill is SIGILL as a signal tells of itself.
const sigill = int32(unix.SIGILL)

// Unprivileged implements Machine.
func (*machine) Unprivileged(ctx context.Context, p arch.Program) (r []arch.Result, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A process that is traced can be spoken with by the thread that started it. That ends with the goroutine.
		runtime.LockOSThread()
		if r, err = runUnprivileged(ctx, p); err != nil {
			err = fmt.Errorf("kmod: a process without privilege: %w", errors.Join(context.Cause(ctx), err))
		}
	}()
	<-done
	return r, err
}

// runUnprivileged runs a program in a process that has nothing but a probe, a frame and a stack, and so
// is there at once, even on a machine that is emulated. It calls the probe's function when it is started,
// which comes back to where there is nothing: all that may happen is a signal, which is seen here first. After
// one that is an exception the function is called anew, to go on with the next operation.
func runUnprivileged(ctx context.Context, p arch.Program) ([]arch.Result, error) {
	probe, err := this.probe()
	if err != nil {
		return nil, err
	}
	frame, err := arch.NewFrame(make([]byte, arch.FrameSize))
	if err != nil {
		return nil, err
	}
	if err := frame.Load(p); err != nil {
		return nil, err
	}
	content := append(frame[:len(frame):len(frame)], probe.Bytes...)
	content = append(content, make([]byte, -len(content)&15)...)
	process, err := startTraced(content)
	if err != nil {
		return nil, fmt.Errorf("start it: %w", err)
	}
	defer func() {
		_ = process.Kill()
		_, _ = process.Wait()
	}()
	defer context.AfterFunc(ctx, func() { _ = process.Kill() })()

	pid := process.Pid
	if _, err := stopped(pid); err != nil { // before its first instruction
		return nil, err
	}
	var begin unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &begin); err != nil {
		return nil, fmt.Errorf("its registers: %w", err)
	}
	begin.SetPC(module.ProgramAddress + uint64(len(frame)+probe.Run))
	this.call(&begin, module.ProgramAddress, this.process, uint64(module.ProgramAddress+len(content)+module.ProgramStack))
	traps := map[int]uint64{} // by operation
	for {
		if err := errors.Join(unix.PtraceSetRegs(pid, &begin), unix.PtraceCont(pid, 0)); err != nil {
			return nil, fmt.Errorf("have it go on: %w", err)
		}
		signal, err := stopped(pid)
		if err != nil {
			return nil, err
		}
		now := begin
		if err := unix.PtraceGetRegs(pid, &now); err != nil {
			return nil, fmt.Errorf("its registers: %w", err)
		}
		if err := readMemory(pid, module.ProgramAddress, frame); err != nil {
			return nil, fmt.Errorf("its frame: %w", err)
		}
		if signal.Signo == int32(unix.SIGSEGV) && now.PC() == 0 {
			if status := this.result(&now); status != statusEnded {
				return nil, fmt.Errorf("the probe left with status %d", status)
			}
			break
		}
		op, _ := frame.At()
		trap := exception(this.signals, signal.Signo, signal.Code)
		if trap == 0 || op >= len(p) {
			return nil, fmt.Errorf("operation %d ended in signal %d (%v), code %d", op, signal.Signo, unix.Signal(signal.Signo), signal.Code)
		}
		traps[op] = trap
		// The probe begins at the operation that it is told.
		if _, err := unix.PtracePokeData(pid, module.ProgramAddress+arch.FrameAt, words(uint64(op+1))); err != nil {
			return nil, fmt.Errorf("have it go on after operation %d: %w", op, err)
		}
	}
	results := frame.Results(len(p))
	for op, trap := range traps {
		results[op].Trap, results[op].Count = trap, 1
	}
	return results, nil
}

// readMemory reads memory of a process.
func readMemory(pid int, address uintptr, content []byte) error {
	local := []unix.Iovec{{Base: &content[0]}}
	local[0].SetLen(len(content))
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: address, Len: len(content)}}, 0)
	return err
}

// startTraced starts a process that is traced by the calling thread, and stops at once.
func startTraced(content []byte) (*os.Process, error) {
	image, err := module.Program(runtime.GOARCH, content)
	if err != nil {
		return nil, err
	}
	file, err := unix.MemfdCreate("pvabi", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a file of memory: %w", err)
	}
	defer unix.Close(file)
	if _, err := unix.Write(file, image); err != nil {
		return nil, fmt.Errorf("write to a file of memory: %w", err)
	}
	return os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", file), []string{"pvabi"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}})
}

// stopped waits until a process that is traced was sent a signal, and returns that.
func stopped(pid int) (s unix.Siginfo, err error) {
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	switch {
	case err != nil:
		return s, fmt.Errorf("wait for it: %w", err)
	case !status.Stopped():
		return s, fmt.Errorf("it ended, with status %#x", uint32(status))
	}
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(pid), 0, uintptr(unsafe.Pointer(&s)), 0, 0); e != 0 {
		return s, fmt.Errorf("which signal came: %w", e)
	}
	return s, nil
}

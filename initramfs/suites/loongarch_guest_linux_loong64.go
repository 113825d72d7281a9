package suites

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/initramfs/agent"
)

func init() { all["loongarch-guest"] = loongarchGuest }

// loongarchGuest has the guest do what its hypervisor is to see, and shows what it made of it. The
// verdicts are not its own: whoever runs the guest has seen the other half.
//
// To take a CPU offline and online again is also a sign to the hypervisor, which then does the next
// of what it has to do; see conformance.LoongArchScript.
func loongarchGuest(_ context.Context, job agent.Job, emit func(conformance.Event)) error {
	g := acts{Kernel: linuxguest.New(), emit: emit}
	steps := []func() error{g.files("begin"), g.messages, g.files("end"), g.log}
	if job.Scenario == conformance.LoongArchAreas {
		steps = []func() error{
			g.files("begin"), g.messages,
			g.cycle(1), g.stolen(1, "held"), g.cycle(2), g.stolen(2, "held"),
			g.wakes("plain"), g.cycle(1), g.wakes("flagged"), g.cycle(1), g.wakes("cleared"),
			g.cycle(2), g.stolen(2, "odd"), g.cycle(2), g.stolen(2, "even"),
			g.cycle(3), g.files("between"), g.cycle(3), g.files("end"), g.log,
			g.offline(3, job.End == agent.EndKexec),
		}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// files shows what the kernel counts.
func (g acts) files(when string) func() error {
	return func() error {
		for _, f := range []struct{ name, file string }{
			{"cpuinfo", "proc/cpuinfo"}, {"interrupts", "proc/interrupts"}, {"stat", "proc/stat"},
		} {
			text, err := fs.ReadFile(g, f.file)
			if err != nil {
				return err
			}
			g.show(f.name+" "+when, string(text))
		}
		return nil
	}
}

// log shows those lines of the kernel's log that are about the ABI.
func (g acts) log() error {
	lines, err := g.Log()
	if err != nil {
		return err
	}
	var ours []string
	for _, l := range lines {
		if strings.Contains(l, "paravirt") || strings.Contains(l, "steal") {
			ours = append(ours, l)
		}
	}
	g.show("log", strings.Join(ours, "\n"))
	return nil
}

// stolen keeps a CPU busy until it has accounted for steal time, or for so many ticks that it would
// have, and shows the steal time of all.
func (g acts) stolen(cpu int, when string) func() error {
	const looks = 400
	return func() error {
		err := g.Pinned(cpu, func() error {
			var before []byte
			for range looks {
				now, err := stealOf(g, cpu)
				if err != nil {
					return err
				}
				if before != nil && !bytes.Equal(before, now) {
					return nil
				}
				before = now
			}
			return nil
		})
		if err != nil {
			return err
		}
		return g.files(fmt.Sprintf("%s %d", when, cpu))()
	}
}

// rounds is how many messages two CPUs send each other, and wakeRounds how many times a thread is woken: how often
// on which CPU is compared.
const (
	rounds     = 40
	wakeRounds = 200
)

// messages has CPUs interrupt each other: threads that are bound to two CPUs wake each other, and
// all processors of the process are made to pass a memory barrier.
func (g acts) messages() error {
	for _, pair := range [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 0}} {
		var there, back [2]int
		if err := unix.Pipe2(there[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		if err := unix.Pipe2(back[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		other := make(chan error, 1)
		go func() {
			other <- g.Pinned(pair[1], func() error { return echo(there[0], back[1]) })
		}()
		err := g.Pinned(pair[0], func() error {
			defer unix.Close(there[1])
			var b [1]byte
			for range rounds {
				if _, err := unix.Write(there[1], b[:]); err != nil {
					return err
				}
				if _, err := unix.Read(back[0], b[:]); err != nil {
					return err
				}
			}
			return nil
		})
		if other := <-other; err == nil {
			err = other
		}
		for _, fd := range []int{there[0], back[0], back[1]} {
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("messages between CPUs %v: %w", pair, err)
		}
		g.show(fmt.Sprintf("messages %d %d", pair[0], pair[1]), fmt.Sprint(rounds)) // and tells that it goes on
	}
	const global = 1 // MEMBARRIER_CMD_GLOBAL (include/uapi/linux/membarrier.h)
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 && errno != unix.ENOSYS && errno != unix.EINVAL {
		return fmt.Errorf("membarrier: %w", errno)
	}
	return nil
}

func (g acts) cycle(cpu int) func() error {
	return func() error {
		if err := g.offline(cpu, true)(); err != nil {
			return err
		}
		return g.offline(cpu, false)()
	}
}

// echo writes back each byte that it reads, to the end.
func echo(from, to int) error {
	var b [1]byte
	for {
		n, err := unix.Read(from, b[:])
		if n == 0 || err != nil {
			return err
		}
		if _, err := unix.Write(to, b[:]); err != nil {
			return err
		}
	}
}

// wakes has a thread sleep on CPU 1 that may run on CPUs 1 and 2, wakes it from CPU 0, and shows how
// often it was found on each CPU then. A kernel wakes it where it slept unless that CPU is not free.
func (g acts) wakes(when string) func() error {
	return func() error {
		var found [4]int
		var there, back [2]int
		if err := unix.Pipe2(there[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		if err := unix.Pipe2(back[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		sleeper := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and ends with it
			sleeper <- sleep(there[0], back[1], &found)
		}()
		err := g.Pinned(0, func() error {
			defer unix.Close(there[1])
			var b [1]byte
			for range wakeRounds {
				// Until the sleeper sleeps, and its CPU has nothing to do.
				time.Sleep(2 * time.Millisecond)
				if _, err := unix.Write(there[1], b[:]); err != nil {
					return err
				}
				if _, err := unix.Read(back[0], b[:]); err != nil {
					return err
				}
			}
			return nil
		})
		if other := <-sleeper; err == nil {
			err = other
		}
		for _, fd := range []int{there[0], back[0], back[1]} {
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("wakes: %w", err)
		}
		g.show("wakes "+when, strings.Trim(fmt.Sprint(found), "[]"))
		return nil
	}
}

// sleep counts the CPUs that it is woken on; it goes to sleep on CPU 1 each time.
func sleep(from, to int, found *[4]int) error {
	var one, both unix.CPUSet
	one.Set(1)
	both.Set(1)
	both.Set(2)
	var b [1]byte
	for {
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(0, &both); err != nil {
			return err
		}
		n, err := unix.Read(from, b[:])
		if n == 0 || err != nil {
			return err
		}
		cpu, err := processor()
		if err != nil {
			return err
		}
		found[cpu%len(found)]++
		if _, err := unix.Write(to, b[:]); err != nil {
			return err
		}
	}
}

// processor is the CPU that the thread runs on.
func processor() (int, error) {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return 0, fmt.Errorf("getcpu: %w", errno)
	}
	return int(cpu), nil
}

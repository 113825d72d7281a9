package suites

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/initramfs/agent"
	"pvabi/internal/membarrier"
	"pvabi/internal/pcvm"
)

// kvmBare is the scenario of a guest that does nothing but show its log.
const kvmBare = "bare"

// What a guest shows that is for who runs it: marks, and questions, which it gets an answer to.
const (
	kvmMark = "mark"
	kvmAsk  = "ask"
)

// kvmInner does what is to be watched, in a guest of the agent's own.
func kvmInner(job agent.Job, emit func(conformance.Event)) error {
	g := kvmActs{acts: acts{Kernel: linuxguest.New(), emit: emit}}
	// A thread that waits must not wait for those that spin.
	runtime.GOMAXPROCS(4 * runtime.NumCPU())
	var steps []func() error
	switch job.Scenario {
	case conformance.KVMGuestLocks:
		steps = []func() error{g.contend, g.interrupt}
	case conformance.KVMGuestAreas:
		steps = []func() error{g.stolen, g.flush, g.goAndCome(2)}
	}
	for _, step := range append(steps, g.log) {
		if err := step(); err != nil {
			return err
		}
	}
	g.mark(conformance.KVMGuestEnding)
	return nil
}

// kvmActs is what the guest does.
type kvmActs struct{ acts }

func (g kvmActs) mark(text string) { g.show(kvmMark, text) }

// ask asks who runs the guest.
func (kvmActs) ask(question string) (string, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	_, size, _ := strings.Cut(string(line), agent.ChannelWord+agent.MailboxPrefix)
	memory, err := strconv.ParseInt(strings.Fields(size + " ")[0], 10, 64)
	if err != nil {
		return "", err
	}
	box, err := pcvm.OpenMailbox(memory)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(conformance.Event{Shown: &conformance.Shown{Name: kvmAsk, Text: question}})
	if err != nil {
		return "", errors.Join(err, box.Close())
	}
	answer, err := box.Send(text)
	return string(answer), errors.Join(err, box.Close())
}

// log shows what the kernel's log has of KVM.
func (g kvmActs) log() error {
	lines, err := g.Log()
	if err != nil {
		return err
	}
	var ours []string
	for _, l := range lines {
		if strings.Contains(l, "kvm") {
			ours = append(ours, l)
		}
	}
	g.show(conformance.KVMGuestLog, strings.Join(ours, "\n"))
	return nil
}

// busy has a thread on each of the CPUs that never rests, while something is done.
func (g kvmActs) busy(cpus []int, during func() error) error {
	var stop atomic.Bool
	var threads sync.WaitGroup
	ended := make([]error, len(cpus))
	for i, cpu := range cpus {
		threads.Go(func() {
			ended[i] = g.Pinned(cpu, func() error {
				for !stop.Load() {
				}
				return nil
			})
		})
	}
	err := during()
	stop.Store(true)
	threads.Wait()
	return errors.Join(append(ended, err)...)
}

// kvmLooks bounds how often a guest looks whether it was seen to do what it does, and how often it does
// it until then.
const kvmLooks = 2000

func cpus() (all []int) {
	for cpu := range runtime.NumCPU() {
		all = append(all, cpu)
	}
	return all
}

// stolen keeps all CPUs busy until each shows that it was stolen from.
func (g kvmActs) stolen() error {
	show := func(when string) error {
		text, err := fs.ReadFile(g, "proc/stat")
		if err == nil {
			g.show(conformance.KVMGuestStat+" "+when, string(text))
		}
		return err
	}
	if err := show("before"); err != nil {
		return err
	}
	before, grown := make([][]byte, runtime.NumCPU()), make([]bool, runtime.NumCPU())
	return g.busy(cpus(), func() error {
		for range kvmLooks {
			for cpu := range grown {
				now, err := stealOf(g, cpu)
				if err != nil {
					return err
				}
				grown[cpu] = grown[cpu] || before[cpu] != nil && !bytes.Equal(before[cpu], now)
				if before[cpu] == nil {
					before[cpu] = now
				}
			}
			if !slices.Contains(grown, false) {
				break
			}
		}
		return show("after")
	})
}

// traffic tells how many flushes and yields were seen.
func (g kvmActs) traffic() (flushes, yields int, err error) {
	answer, err := g.ask(kvmAskTraffic)
	if err == nil {
		_, err = fmt.Sscan(answer, &flushes, &yields)
	}
	return flushes, yields, err
}

// flush takes memory away from threads on all CPUs until a flush of a preempted one was seen.
func (g kvmActs) flush() error {
	const size = 16 << 12
	return g.busy(cpus(), func() error {
		for look := range kvmLooks {
			b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				return err
			}
			for i := 0; i < size; i += 1 << 12 {
				b[i] = 1
			}
			if err := unix.Munmap(b); err != nil {
				return err
			}
			if look%8 != 0 {
				continue
			}
			if flushes, _, err := g.traffic(); err != nil || flushes > 0 {
				return err
			}
		}
		return nil
	})
}

func (g kvmActs) goAndCome(cpu int) func() error {
	return func() error {
		g.mark(fmt.Sprint(conformance.KVMGuestOffline, " ", cpu))
		if err := g.offline(cpu, true)(); err != nil {
			return err
		}
		g.mark(fmt.Sprint(conformance.KVMGuestOfflined, " ", cpu))
		if err := g.offline(cpu, false)(); err != nil {
			return err
		}
		g.mark(fmt.Sprint(conformance.KVMGuestOnlined, " ", cpu))
		return nil
	}
}

// contend has CPUs contend for a lock until some were kicked, and shows how often each came to wait and
// was kicked.
func (g kvmActs) contend() error {
	const (
		enough = 6
		// A look is short to a CPU that the host does not run for a while.
		looks = 20 * kvmLooks
	)
	r, err := g.Record(
		conformance.Probe{Name: "wait", At: "kvm_wait"},
		conformance.Probe{Name: "kick", At: "kvm_kick_cpu", Args: "cpu=%di:u32"},
	)
	if errors.Is(err, conformance.ErrHidden) {
		g.show(conformance.KVMGuestNoProbes, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	waits, kicks := make([]int64, runtime.NumCPU()), make([]int64, runtime.NumCPU())
	seen := 0
	take := func() error {
		hits, err := r.Hits()
		for _, h := range hits {
			if h.Probe == "wait" {
				waits[h.CPU]++
				continue
			}
			seen++
			kicks[h.Args["cpu"]%uint64(len(kicks))]++
		}
		return err
	}
	g.mark(conformance.KVMGuestCounting)
	err = g.Contend(conformance.SpinLock, cpus(), func() error {
		for range looks {
			if err := take(); err != nil || seen >= enough {
				return err
			}
		}
		return nil
	})
	g.mark(conformance.KVMGuestCounted)
	if err = errors.Join(err, take(), r.Close()); err != nil {
		return err
	}
	g.show(conformance.KVMGuestWaits, strings.Trim(fmt.Sprint(waits), "[]"))
	g.show(conformance.KVMGuestKicks, strings.Trim(fmt.Sprint(kicks), "[]"))
	return nil
}

// interrupt has each CPU interrupt two others at once that run threads of this process, and never all
// others, for which kernels have a way of their own; until one was seen to yield.
func (g kvmActs) interrupt() error {
	if err := membarrier.Register(); err != nil {
		return err
	}
	n := runtime.NumCPU()
	for look := range kvmLooks {
		cpu := look % n
		err := g.busy([]int{(cpu + 1) % n, (cpu + 2) % n}, func() error {
			return g.Pinned(cpu, func() error {
				for range 10 {
					if err := membarrier.Interrupt(); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if look < 2*n {
			continue
		}
		if _, yields, err := g.traffic(); err != nil || yields > 0 {
			return err
		}
	}
	return nil
}

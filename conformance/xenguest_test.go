package conformance

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
)

// fakeXenGuest is a domain 0 of two vCPUs in memory, whose areas live when a thread runs.
type fakeXenGuest struct {
	*fakeKernel
	image   []byte // what is at imageBase
	symbols map[string]uint64
	// during has the hits of what is recorded while CPUs contend.
	during map[Lock][]Hit
	dead   bool // the areas do not live
	idle   bool // nothing is stolen
	taken  int  // interrupts of kicks
	ipis   int  // others
}

const (
	imageBase   = 0xffffffff81000000
	imageHeader = 0x1000 // of the file around it
	cpuStride   = 0x400  // between CPUs' copies of a variable
)

func newFakeXenGuest() *fakeXenGuest {
	k := &fakeXenGuest{
		fakeKernel: &fakeKernel{MapFS: fstest.MapFS{
			"sys/devices/system/cpu/online":   {Data: []byte("0-1\n")},
			"sys/devices/system/cpu/possible": {Data: []byte("0-1\n")},
			"proc/cmdline":                    {Data: []byte("console=hvc0\n")},
			"log":                             {Data: []byte("Linux\n[    1.0] xen: PV spinlocks enabled\n")},
		}},
		symbols: map[string]uint64{
			lockOps: imageBase, perCPUOffset: imageBase + 0x100, stealKey: imageBase + 0x180, stealQueuesKey: imageBase + 0x190,
			kickerIRQ: imageBase + 0x200, runstateArea: imageBase + 0x240,
		},
		during: map[Lock][]Hit{
			SpinLock: {
				{Probe: "poll", CPU: 1, Args: map[string]uint64{"irq": 26}}, {Probe: "timeout", CPU: 1, Args: map[string]uint64{"timeout": 0}},
				{Probe: "kick", CPU: 0, Args: map[string]uint64{"cpu": 1}},
			},
			SleepLock: {
				{Probe: "asked", CPU: 0, Args: map[string]uint64{"cpu": 1, "state0": 0, "state1": 1}},
				{Probe: "answered", CPU: 0, Args: map[string]uint64{"answer": 1, "state0": 0, "state1": 1}},
				{Probe: "asked", CPU: 1, Args: map[string]uint64{"cpu": 0, "state0": 2, "state1": 0}},
				{Probe: "answered", CPU: 1, Args: map[string]uint64{"answer": 0, "state0": 2, "state1": 0}},
				// In between the state changed: nothing can be told.
				{Probe: "asked", CPU: 1, Args: map[string]uint64{"cpu": 0, "state0": 1, "state1": 0}},
				{Probe: "answered", CPU: 1, Args: map[string]uint64{"answer": 0, "state0": 0, "state1": 0}},
			},
		},
		image: make([]byte, 4*cpuStride),
	}
	for i, op := range lockOperations {
		k.symbols[op.xen] = imageBase + 0x100000 + uint64(i)*16
		k.symbols[op.native] = imageBase + 0x200000 + uint64(i)*16
		k.set(lockOps, 8*i, 8, k.symbols[op.xen])
	}
	for cpu := range 2 {
		k.set(perCPUOffset, 8*cpu, 8, uint64(cpu)*cpuStride)
		k.set(kickerIRQ, cpu*cpuStride, 4, uint64(25+cpu))
	}
	k.set(stealKey, 0, 4, 1)
	k.set(stealQueuesKey, 0, 4, 1)
	k.tick()
	return k
}

// set writes to the kernel's memory.
func (k *fakeXenGuest) set(symbol string, offset, size int, value uint64) {
	at := k.symbols[symbol] - imageBase + uint64(offset)
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], value)
	copy(k.image[at:], word[:size])
}

// tick lets time go by in the areas and the statistics.
func (k *fakeXenGuest) tick() {
	layout := abi.X86Xen().Layout("vcpu_runstate_info")
	ticks := uint64(0)
	for cpu := range 2 {
		at := int(k.symbols[runstateArea]-imageBase) + cpu*cpuStride
		for _, name := range []string{"state_entry_time", "time_running", "time_runnable"} {
			word := k.image[at+int(layout.Field(name).Offset):][:8]
			n := binary.LittleEndian.Uint64(word)
			if !k.dead {
				n += nanosecondsPerTick
			}
			binary.LittleEndian.PutUint64(word, n)
			ticks = n / nanosecondsPerTick
		}
	}
	if k.idle {
		ticks = 0
	}
	k.ipis++
	k.MapFS["proc/stat"] = &fstest.MapFile{Data: fmt.Appendf(nil, "cpu  1 2 3 4 5 6 7 %d 0 0\ncpu0 1 2 3 4 5 6 7 %[1]d 0 0\ncpu1 1 2 3 4 5 6 7 %[1]d 0 0\nintr 1 2 3 4 5 6 7 8 9\n", ticks)}
	k.MapFS["proc/interrupts"] = &fstest.MapFile{Data: fmt.Appendf(nil, "           CPU0       CPU1\n"+
		" 24:    %d   0  xen-percpu    -ipi       resched0\n 25:  0   0  xen-percpu    -ipi       spinlock0\n 26:   0    %d  xen-percpu    -ipi       spinlock1\nNMI:  0  0  Non-maskable interrupts\n", k.ipis, k.taken)}
}

// show writes the files that have the kernel's memory and its symbols.
func (k *fakeXenGuest) show(t *testing.T) {
	header := elf.Header64{
		Type: uint16(elf.ET_CORE), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: 1,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	var core bytes.Buffer
	require.NoError(t, binary.Write(&core, binary.LittleEndian, header))
	require.NoError(t, binary.Write(&core, binary.LittleEndian, elf.Prog64{
		Type: uint32(elf.PT_LOAD), Off: imageHeader, Vaddr: imageBase, Filesz: uint64(len(k.image)), Memsz: uint64(len(k.image)),
	}))
	core.Write(make([]byte, imageHeader-core.Len()))
	core.Write(k.image)
	k.image = core.Bytes()[imageHeader:] // which the file goes on showing
	k.MapFS["proc/kcore"] = &fstest.MapFile{Data: core.Bytes()}
	var symbols strings.Builder
	for name, address := range k.symbols {
		fmt.Fprintf(&symbols, "%016x D %s\n", address, name)
	}
	symbols.WriteString("ffffffffc0000000 t other\t[module]\n")
	k.MapFS["proc/kallsyms"] = &fstest.MapFile{Data: []byte(symbols.String())}
}

func (k *fakeXenGuest) Pinned(_ int, do func() error) error {
	k.tick()
	return do()
}

func (k *fakeXenGuest) Contend(lock Lock, cpus []int, during func() error) error {
	k.tick()
	if len(cpus) > 1 {
		if k.recorder != nil {
			k.recorder.left = [][]Hit{k.during[lock]}
		}
	}
	return during()
}

func (k *fakeXenGuest) Doze([]int) error { return nil }

// TestXenGuest: a guest that keeps its rules passes them, and each that breaks one is noticed.
func TestXenGuest(t *testing.T) {
	const (
		enabled, disabled = "locks-enabled", "locks-disabled"
		port, registered  = "kicker-port", "runstate-registered"
		flag, waits       = "update-flag", "waits-by-poll"
		kicks, silent     = "kicks-poller", "kicker-not-delivered"
		preempted, steal  = "preempted-from-runstate", "steal-accounted"
	)
	native := func(k *fakeXenGuest) {
		for i, op := range lockOperations {
			k.set(lockOps, 8*i, 8, k.symbols[op.native])
		}
		k.MapFS["log"].Data = []byte("xen: PV spinlocks disabled\n")
	}
	nopvspin := func(k *fakeXenGuest) {
		native(k)
		k.MapFS["proc/cmdline"].Data = []byte("console=hvc0 nopvspin\n")
	}
	unreachedNatively := map[string]Verdict{enabled: Unreached, disabled: Pass, port: Unreached, waits: Unreached, kicks: Unreached, silent: Unreached, preempted: Unreached}
	for _, tt := range []struct {
		name   string
		change func(*fakeXenGuest)
		want   map[string]Verdict // besides pass
	}{
		{"good", func(*fakeXenGuest) {}, map[string]Verdict{disabled: Unreached}},
		{"nopvspin", nopvspin, unreachedNatively},
		{"native for no reason", native, map[string]Verdict{enabled: Fail, disabled: Unreached}},
		{"nopvspin that is not heeded", func(k *fakeXenGuest) {
			k.MapFS["proc/cmdline"].Data = []byte("nopvspin\n")
		}, map[string]Verdict{enabled: Unreached, disabled: Fail, port: Unreached, waits: Unreached, kicks: Unreached, silent: Unreached, preempted: Unreached}},
		{"says nothing", func(k *fakeXenGuest) { k.MapFS["log"].Data = nil }, map[string]Verdict{enabled: Fail, disabled: Unreached}},
		{"another wait", func(k *fakeXenGuest) { k.set(lockOps, 16, 8, k.symbols["nop_func"]) }, map[string]Verdict{enabled: Fail, disabled: Unreached}},
		{"one kicker for two", func(k *fakeXenGuest) { k.set(kickerIRQ, cpuStride, 4, 25) }, map[string]Verdict{disabled: Unreached, port: Fail, waits: Fail}},
		{"no kicker", func(k *fakeXenGuest) { k.set(kickerIRQ, 0, 4, ^uint64(0)) }, map[string]Verdict{disabled: Unreached, port: Fail}},
		{"kicks that are taken", func(k *fakeXenGuest) { k.taken = 1 }, map[string]Verdict{disabled: Unreached, silent: Fail}},
		{"areas that do not live", func(k *fakeXenGuest) { k.dead = true }, map[string]Verdict{disabled: Unreached, registered: Fail, steal: Fail}},
		{"no flag", func(k *fakeXenGuest) { k.set(stealQueuesKey, 0, 4, 0) }, map[string]Verdict{disabled: Unreached, flag: Fail}},
		{"no steal", func(k *fakeXenGuest) { k.set(stealKey, 0, 4, 0) }, map[string]Verdict{disabled: Unreached, registered: Error, flag: Error}},
		{"nothing stolen", func(k *fakeXenGuest) { k.idle = true }, map[string]Verdict{disabled: Unreached, steal: Fail}},
		{"no polls", func(k *fakeXenGuest) { k.during[SpinLock] = nil }, map[string]Verdict{disabled: Unreached, waits: Fail, kicks: Fail}},
		{"polls with a timeout", func(k *fakeXenGuest) { k.during[SpinLock][1].Args["timeout"] = 5 }, map[string]Verdict{disabled: Unreached, waits: Fail}},
		{"polls of another port", func(k *fakeXenGuest) { k.during[SpinLock][0].Args["irq"] = 25 }, map[string]Verdict{disabled: Unreached, waits: Fail}},
		{"kicks of another CPU", func(k *fakeXenGuest) { k.during[SpinLock][2].Args["cpu"] = 0 }, map[string]Verdict{disabled: Unreached, kicks: Fail}},
		{"everybody preempted", func(k *fakeXenGuest) { k.during[SleepLock][3].Args["answer"] = 1 }, map[string]Verdict{disabled: Unreached, preempted: Error}},
		{"takes a waiting CPU for preempted, and the other way round", func(k *fakeXenGuest) {
			k.during[SleepLock][1].Args["answer"], k.during[SleepLock][3].Args["answer"] = 0, 1
		}, map[string]Verdict{disabled: Unreached, preempted: Fail}},
		{"nobody asks", func(k *fakeXenGuest) { k.during[SleepLock] = nil }, map[string]Verdict{disabled: Unreached, preempted: Error}},
		{"older kernel", func(k *fakeXenGuest) { delete(k.symbols, lockOps) }, map[string]Verdict{enabled: Unreached, disabled: Unreached}},
		{"no tracing", func(k *fakeXenGuest) { k.hidden = fmt.Errorf("%w: no tracing", ErrHidden) },
			map[string]Verdict{disabled: Unreached, waits: Unreached, kicks: Unreached, silent: Unreached, preempted: Unreached}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newFakeXenGuest()
			tt.change(k)
			k.tick()
			k.show(t)
			s := XenGuest("7.2.12", k)
			s.Looks = 3
			got := map[string]Verdict{}
			require.NoError(t, s.Run(context.Background(), func(r Result) {
				name := strings.TrimPrefix(r.Rule, "x86-xen/guest/")
				got[name] = r.Verdict
				if want := tt.want[name]; r.Verdict != Pass && r.Verdict != want {
					t.Logf("%s: %s: got %s, want %s; %s", r.Rule, r.Verdict, r.Observed, r.Expected, r.Reason)
				}
			}))
			want := map[string]Verdict{}
			for _, r := range XenGuestRules() {
				want[strings.TrimPrefix(r.ID, "x86-xen/guest/")] = Pass
			}
			for name, v := range tt.want {
				want[name] = v
			}
			assert.Equal(t, want, got)
			assert.Zero(t, k.open, "recordings that nobody ended")
		})
	}
}

func TestXenGuestHidden(t *testing.T) {
	k := newFakeXenGuest()
	s := XenGuest("7.2.12", k)
	s.Looks = 1
	require.NoError(t, s.Run(context.Background(), func(r Result) {
		assert.Equal(t, Unreached, r.Verdict, r.Rule)
	}))
}

func FuzzSymbols(f *testing.F) {
	f.Add("ffffffff81000000 T _text\nffffffffc0000000 t x\t[m]\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = symbolsOf(fstest.MapFS{"proc/kallsyms": {Data: []byte(text)}}, 2, func(uint64, []byte) bool { return true })
		parseKickers(text, 2)
		parseSteal(text)
	})
}

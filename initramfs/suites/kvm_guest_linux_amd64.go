package suites

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/u-root/mkuimage/cpio"
	"golang.org/x/sys/unix"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/initramfs/agent"
	"pvabi/internal/kvm"
	"pvabi/internal/pcvm"
)

func init() { all["x86-kvm-guest"] = kvmGuest }

// kvmGuest looks at the kernel that the agent runs on as a guest of that same kernel's KVM: it boots it
// for each of conformance.KVMGuestBoots, or for its share of them, watches it, and tells what was seen to
// whoever is to judge it. In such a guest, which has a scenario, it does what is to be watched.
func kvmGuest(ctx context.Context, job agent.Job, emit func(conformance.Event)) error {
	if job.Scenario != "" {
		return kvmInner(job, emit)
	}
	start := time.Now()
	h, err := newKVMHost(job.Kernel)
	if err != nil {
		return err
	}
	defer h.close()
	emit(conformance.Event{Note: fmt.Sprintf("ready to boot guests after %.1f s", time.Since(start).Seconds())})
	boots := conformance.KVMGuestBoots()
	job.Share, job.Shares = max(job.Share, 1), max(job.Shares, 1)
	for i := job.Share - 1; i < len(boots); i += job.Shares {
		b := &boots[i]
		start := time.Now()
		if err := h.boot(ctx, b); err != nil {
			b.Err = err.Error()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		note := fmt.Sprintf("boot %d of %d, %s: %.1f s", i+1, len(boots), b.Name, time.Since(start).Seconds())
		if b.Err != "" || b.Other != "" {
			note += fmt.Sprintf("; %s %s; its console ends with:\n%s", b.Err, b.Other, tail(b.Console, 20))
		}
		emit(conformance.Event{Note: note})
		events, err := conformance.Parts(b.Name, b)
		if err != nil {
			return err
		}
		for _, e := range events {
			emit(e)
		}
	}
	return nil
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// kvmHost boots guests.
type kvmHost struct {
	table     *abi.Platform
	system    *kvm.System
	supported []kvm.Entry
	file      []byte // of the kernel
	kernel    *pcvm.Kernel
	image     []byte
	symbols   map[string]symbol
	recorder  conformance.Recorder
}

const (
	nestedMemory = 256 << 20
	// nestedBudget is for a boot, of which the longest takes some ten seconds where nothing else runs.
	nestedBudget = 10 * time.Minute
)

// kvmProbes are what is recorded of guests. An interrupt that a CPU sends by itself is a write to a
// register, too; the ends of interrupts are those between CPUs, as others come all the time.
func kvmProbes(table *abi.Platform) []conformance.Probe {
	indices := []string{
		fmt.Sprintf("index == %#x", conformance.InterruptCommand),
		fmt.Sprintf("(index >= %#x && index <= %#x)", table.Word("first-register"), table.Word("last-register")),
	}
	for _, r := range table.Registers { // some are older than the range
		indices = append(indices, fmt.Sprintf("index == %#x", r.Number))
	}
	return []conformance.Probe{
		{
			Name: "write", Event: "kvm/kvm_msr", Args: "write=$write:u32 index=$ecx:x32 value=$data:x64",
			Filter: "write == 1 && (" + strings.Join(indices, " || ") + ")",
		},
		{Name: "call", Event: "kvm/kvm_hypercall", Args: "nr=$nr:x64 a0=$a0:x64 a1=$a1:x64 a2=$a2:x64 a3=$a3:x64"},
		{Name: "flush", Event: "kvm/kvm_pv_tlb_flush", Args: "need=$need_flush_tlb:u8", Filter: "need == 1"},
		{Name: "eoi", Event: "kvm/kvm_pv_eoi", Args: "vector=$vector:u32", Filter: "vector >= 0xf0"},
	}
}

func newKVMHost(kernel agent.Region) (h *kvmHost, err error) {
	h = &kvmHost{table: abi.X86KVM()}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.file, err = memory(kernel); err != nil {
		return nil, err
	}
	if h.kernel, err = pcvm.ReadKernel(bytes.NewReader(h.file)); err != nil {
		return nil, err
	}
	if h.image, err = nestedImage(); err != nil {
		return nil, err
	}
	if h.symbols, err = kernelSymbols(); err != nil {
		return nil, err
	}
	if h.system, err = kvm.Open(); err != nil {
		return nil, err
	}
	if h.supported, err = h.system.Supported(); err != nil {
		return nil, err
	}
	h.recorder, err = linuxguest.New().Record(kvmProbes(h.table)...)
	return h, err
}

func (h *kvmHost) close() error {
	var errs []error
	if h.recorder != nil {
		errs = append(errs, h.recorder.Close())
	}
	if h.file != nil {
		errs = append(errs, unix.Munmap(h.file))
	}
	return errors.Join(errs...)
}

// memory returns memory that the kernel leaves alone.
func memory(r agent.Region) ([]byte, error) {
	f, err := os.Open("/dev/mem")
	if err != nil {
		return nil, fmt.Errorf("the guests' kernel: %w; the kernel needs CONFIG_DEVMEM", err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), r.Address, int(r.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the guests' kernel, %d bytes at %#x of /dev/mem: %w", r.Size, r.Address, err)
	}
	return b, nil
}

// nestedImage makes the initramfs of a guest: this very agent.
func nestedImage() ([]byte, error) {
	init, err := os.ReadFile("/init")
	if err != nil {
		return nil, err
	}
	var image bytes.Buffer
	w := cpio.Newc.Writer(&image)
	err = cpio.WriteRecordsAndDirs(w, []cpio.Record{
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.CharDev("dev/null", 0o666, 1, 3),
		cpio.CharDev("dev/mem", 0o600, 1, 1),
		cpio.StaticRecord(init, cpio.Info{Name: "init", Mode: cpio.S_IFREG | 0o755}),
	})
	if err == nil {
		err = cpio.WriteTrailer(w)
	}
	if err != nil {
		return nil, fmt.Errorf("make an initramfs: %w", err)
	}
	return image.Bytes(), nil
}

// symbol is where something is in a kernel.
type symbol struct{ address, size uint64 }

// kernelSymbols finds what is looked at in guests' kernels, by the symbols of the kernel that the agent
// runs on: it is the same one, and neither is moved when it boots.
func kernelSymbols() (map[string]symbol, error) {
	wanted := map[string]bool{}
	for _, p := range conformance.KVMGuestPlaces() {
		for _, name := range slices.Concat(p.In, p.Any) {
			wanted[name] = true
		}
	}
	for name := range conformance.KVMGuestWords() {
		wanted[name] = true
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("%w; the kernel needs CONFIG_KALLSYMS", err)
	}
	defer f.Close()
	return readSymbols(f, wanted)
}

// readSymbols reads lines of address, kind and name, in the order of addresses. A symbol ends where
// the next one begins.
func readSymbols(r io.Reader, wanted map[string]bool) (map[string]symbol, error) {
	out := map[string]symbol{}
	var open []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		hex, rest, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		_, name, _ := bytes.Cut(rest, []byte(" "))
		isWanted := wanted[string(name)]
		if !isWanted && len(open) == 0 {
			continue
		}
		address, err := strconv.ParseUint(string(hex), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("/proc/kallsyms: %q: %w", lines.Text(), err)
		}
		open = slices.DeleteFunc(open, func(o string) bool {
			s := out[o]
			if s.address == address {
				return false
			}
			s.size = address - s.address
			out[o] = s
			return true
		})
		if _, again := out[string(name)]; isWanted && !again {
			out[string(name)] = symbol{address: address}
			open = append(open, string(name))
		}
	}
	return out, lines.Err()
}

// leaves are a CPU's leaves of CPUID in a boot.
func (h *kvmHost) leaves(b *conformance.KVMGuestBoot, id uint32) ([]kvm.Entry, error) {
	features, hints, base := uint32(0), uint32(0), uint32(kvm.FirstLeaf)
	for _, name := range b.Offered {
		features |= 1 << h.table.Feature(name).Bit
	}
	if b.Realtime {
		hints = 1 << h.table.Feature("REALTIME").Bit
	}
	if b.Later {
		base += kvm.LeafStep
	}
	leaves, err := kvm.CPUID(h.supported, kvm.Identity{ID: id, Features: &features, Hints: hints, Base: base})
	if err != nil {
		return nil, err
	}
	if b.NoSignature {
		leaves = slices.DeleteFunc(leaves, func(e kvm.Entry) bool { return e.Function >= kvm.FirstLeaf && e.Function < kvm.FirstLeaf+kvm.LeafStep })
	}
	for i := range leaves {
		e := &leaves[i]
		if e.Function != 1 {
			continue
		}
		const mwait, deadline = 1 << 3, 1 << 24
		e.ECX |= deadline // the only timer that there is
		if b.MWAIT {
			e.ECX |= mwait
		}
		if bit := uint32(1) << h.table.Word("hypervisor-bit"); b.NoBit {
			e.ECX &^= bit
		}
	}
	return leaves, nil
}

// crashMemory is what a kernel keeps free for another one.
const crashMemory = "crashkernel=16M"

// boot boots a guest and fills in what was seen of it.
func (h *kvmHost) boot(ctx context.Context, b *conformance.KVMGuestBoot) error {
	b.Memory = nestedMemory - pcvm.Reserved
	b.Shown = map[string]string{}
	scenario := b.Scenario
	if scenario == "" {
		scenario = kvmBare
	}
	job := agent.Job{Target: "x86-kvm-guest", Scenario: scenario, End: b.End}
	words := slices.Concat([]string{
		pcvm.Console, "loglevel=4", "panic=-1", "reboot=t",
		// Where it is, readSymbols knows; what it spends time on, nobody needs.
		"nokaslr", "mitigations=off", "cryptomgr.notests", "rcupdate.rcu_expedited=1", "nowatchdog",
		"rodata=off", "no5lvl", "tsc=reliable", "random.trust_cpu=on", "8250.nr_uarts=0", "lsm=",
		"initcall_blacklist=crypto_kdf108_init,load_system_certificate_list",
	}, b.Words, job.Words(), []string{agent.ChannelWord + agent.MailboxPrefix + fmt.Sprint(nestedMemory)})
	if b.End == agent.EndCrash {
		words = append(words, crashMemory)
	}
	g := &kvmGuestRun{kvmHost: h, b: b}
	m, err := pcvm.New(h.system, pcvm.Config{
		Kernel: h.kernel, Initramfs: h.image, Line: strings.Join(words, " "), Memory: nestedMemory, IDs: b.IDs,
		Leaves:  func(id uint32) ([]kvm.Entry, error) { return h.leaves(b, id) },
		Message: func(cpu int, text []byte) ([]byte, error) { return g.message(cpu, text) },
	})
	if err != nil {
		return err
	}
	g.m = m
	for _, c := range m.CPUs() {
		g.threads = append(g.threads, c.Thread())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, nestedBudget, fmt.Errorf("the guest has not ended after %v", nestedBudget))
	defer cancel()
	err = m.Run(ctx)
	if b.End == agent.EndReboot && err != nil && g.finished {
		// Without firmware that is what a reset is.
		var left pcvm.LeftError
		if errors.As(err, &left) && left.Reason == kvm.ExitShutdown {
			err = nil
		}
	}
	if g.finished && err != nil {
		b.Other, err = fmt.Sprintf("the guest did not end by %s: %v", b.End, err), nil
	}
	b.Console = m.Console()
	return errors.Join(err, g.drain(), m.Close())
}

// kvmGuestRun is a guest that runs.
type kvmGuestRun struct {
	*kvmHost
	b        *conformance.KVMGuestBoot
	m        *pcvm.Machine
	threads  []int
	finished bool
}

// drain takes in what was recorded.
func (g *kvmGuestRun) drain() error {
	for {
		hits, err := g.recorder.Hits()
		if err != nil {
			return err
		}
		if len(hits) == 0 {
			return nil
		}
		for _, h := range hits {
			e := conformance.KVMGuestEvent{CPU: slices.Index(g.threads, h.Thread)}
			switch h.Probe {
			case "write":
				e.Kind, e.Number, e.Value = conformance.GuestWrites, h.Args["index"], h.Args["value"]
			case "call":
				e.Kind, e.Number = conformance.GuestCalls, h.Args["nr"]
				e.Args = [4]uint64{h.Args["a0"], h.Args["a1"], h.Args["a2"], h.Args["a3"]}
			case "flush":
				e.Kind = conformance.GuestFlushes
			case "eoi":
				e.Kind, e.Number = conformance.GuestEnds, h.Args["vector"]
			}
			if e.CPU >= 0 {
				g.b.Seen = append(g.b.Seen, e)
			}
		}
	}
}

// message takes in what the guest says, and answers.
func (g *kvmGuestRun) message(cpu int, text []byte) ([]byte, error) {
	if err := g.drain(); err != nil {
		return nil, err
	}
	mark := func(text string) {
		g.b.Seen = append(g.b.Seen, conformance.KVMGuestEvent{Kind: conformance.GuestMarks, CPU: cpu, Text: text})
	}
	if len(text) == 0 {
		mark(conformance.KVMGuestNext)
		return nil, pcvm.ErrEnd
	}
	var e conformance.Event
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("a message of the guest's: %w", err)
	}
	switch {
	case e.Identity != nil:
		g.capture()
	case e.Fatal != "":
		return nil, errors.New("the guest's agent failed: " + e.Fatal)
	case e.Finished:
		g.finished = true
		if g.b.End == "" {
			return nil, pcvm.ErrEnd
		}
	case e.Shown == nil:
	case e.Shown.Name == kvmMark:
		mark(e.Shown.Text)
	case e.Shown.Name == kvmAsk:
		return g.answer(e.Shown.Text)
	default:
		g.b.Shown[e.Shown.Name] = e.Shown.Text
		if strings.HasPrefix(e.Shown.Name, conformance.KVMGuestStat) {
			g.steal()
		}
	}
	return nil, nil
}

// capture looks at the guest's kernel.
func (g *kvmGuestRun) capture() {
	g.b.Kernel, g.b.Values = map[string]string{}, map[string]uint64{}
	content := func(name string, most uint64) []byte {
		s, ok := g.symbols[name]
		at, there := g.kernel.Physical(s.address)
		if !ok || !there {
			return nil
		}
		return g.m.Memory()[at:][:min(s.size, most)]
	}
	for _, p := range conformance.KVMGuestPlaces() {
		for _, in := range p.In {
			variable := content(in, math.MaxUint64)
			if variable == nil {
				continue
			}
			g.b.Kernel[p.Name] = ""
			for ; len(variable) >= 8; variable = variable[8:] {
				for _, f := range p.Any {
					if s, ok := g.symbols[f]; ok && s.address == binary.LittleEndian.Uint64(variable) {
						g.b.Kernel[p.Name] = f
					}
				}
			}
			break
		}
	}
	for name, size := range conformance.KVMGuestWords() {
		if bytes := content(name, size); bytes != nil {
			var word [8]byte
			copy(word[:], bytes)
			g.b.Values[name] = binary.LittleEndian.Uint64(word[:])
		}
	}
}

// area returns the area that a CPU has for steal time, nil if it has none.
func (g *kvmGuestRun) area(cpu int) []byte {
	register, layout := g.table.Register("STEAL_TIME"), g.table.Layout("kvm_steal_time")
	for _, e := range slices.Backward(g.b.Seen) {
		if e.Kind == conformance.GuestWrites && e.CPU == cpu && e.Number == register.Number {
			at := e.Value &^ (layout.Align - 1)
			if e.Value&register.Enable == 0 || at > uint64(len(g.m.Memory()))-layout.Size {
				return nil
			}
			return g.m.Memory()[at:][:layout.Size]
		}
	}
	return nil
}

// steal notes what is in the CPUs' areas.
func (g *kvmGuestRun) steal() {
	f := g.table.Layout("kvm_steal_time").Field("steal")
	for cpu := range g.b.IDs {
		if area := g.area(cpu); area != nil {
			g.b.Seen = append(g.b.Seen, conformance.KVMGuestEvent{
				Kind: conformance.GuestStolen, CPU: cpu, Value: binary.LittleEndian.Uint64(area[f.Offset:]),
			})
		}
	}
}

// kvmAskTraffic is what a guest asks for: how many flushes and yields were seen.
const kvmAskTraffic = "traffic"

func (g *kvmGuestRun) answer(question string) ([]byte, error) {
	if question != kvmAskTraffic {
		return nil, fmt.Errorf("a guest asks for %q", question)
	}
	flushes, yields := 0, 0
	for _, e := range g.b.Seen {
		switch {
		case e.Kind == conformance.GuestFlushes:
			flushes++
		case e.Kind == conformance.GuestCalls && e.Number == g.table.Call("SCHED_YIELD").Number:
			yields++
		}
	}
	return fmt.Appendf(nil, "%d %d", flushes, yields), nil
}

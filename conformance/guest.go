package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"pvabi/arch"
	"pvabi/internal/cpulist"
)

// GuestKernel is the kernel that a suite for the guest's side of an ABI looks at, which is the one that
// the suite runs on: what it tells of itself, and a way to have it note what it does. Package
// linuxguest has Linux; tests have files in memory.
//
// Its files are named from the root, without the slash that io/fs does not want:
// "proc/cmdline", "sys/kernel/debug/diag_stat", "sys/firmware/devicetree/base".
type GuestKernel interface {
	fs.FS
	// Write writes a text to a file, at once. The file must be there.
	Write(name, text string) error
	// Log returns the kernel's log, oldest line first, without levels.
	Log() ([]string, error)
	// Record has the kernel note each time that it comes by one of the probes, until the
	// recorder is closed. An error that wraps ErrHidden says that this kernel cannot.
	Record(probes ...Probe) (Recorder, error)
	// Symbol returns the address of a function or variable of the kernel, and how many bytes it
	// has, 0 where that is not known. m is to ask the kernel by: its first CPU must be idle, and no
	// other have interrupts off. It may be nil, which takes long. An error that wraps ErrHidden says that the kernel does not tell.
	Symbol(m KernelMachine, name string) (address, size uint64, err error)
	// Pinned does something in a thread that runs on one CPU only, and returns its error.
	Pinned(cpu int, do func() error) error
}

// ErrHidden says that a kernel does not show what was asked for: it was built without that, or
// does not allow it.
var ErrHidden = errors.New("the kernel does not show it")

// ErrLost says that a kernel noted more than it had room for.
var ErrLost = errors.New("the kernel lost some of what it noted")

// Probe is a place in the kernel whose passing can be recorded.
type Probe struct {
	// Name is what its hits are known by, a word.
	Name string
	// Event is a tracepoint of the kernel, "s390/s390_diagnose"; if there are Args, they are what
	// to keep of its fields, in the words of Documentation/trace/eprobetrace.rst: "nr=$nr:x64".
	// Where it is empty, At are instructions to be probed, each "SYMBOL" or "SYMBOL+OFFSET", with blanks between them, and
	// Args is what to keep of the registers there, in the words of
	// Documentation/trace/kprobetrace.rst: "target=%gpr4:x64".
	Event, At, Args string
	// Return has At, a function, be noted when it returns instead; Args may name $retval then.
	Return bool
	// Filter has only such hits be kept for which it holds: "nr == 156". Empty keeps all.
	Filter string
}

// Recorder has what a kernel noted.
type Recorder interface {
	// Hits returns what was noted since it was last called, in its order on each CPU; of much,
	// the rest comes with the next call. An error that wraps ErrLost comes with the hits of what
	// is left.
	Hits() ([]Hit, error)
	// Close ends the recording and leaves nothing of it. Once it has, it does nothing.
	Close() error
}

// Hit is one passing of a probe.
type Hit struct {
	Probe string
	CPU   int
	// Thread is the number of the thread that passed, 0 of one that is the kernel's idle.
	Thread int
	// Args are what was kept, by name. An argument that is no number is not among them.
	Args map[string]uint64
}

// file reads a file of the guest's kernel for rules. Where there is none, the rules are unreached,
// with what the kernel would need, and ok is false.
func (t *T) file(name, needs string, rules ...string) (text string, ok bool) {
	content, err := fs.ReadFile(t.Guest, name)
	if errors.Is(err, fs.ErrNotExist) {
		for _, r := range rules {
			t.Unreached(r, fmt.Sprintf("the kernel has no /%s; it needs %s", name, needs))
		}
		return "", false
	}
	t.Check("read /"+name, err)
	return string(content), true
}

// recording begins a recording for rules, which the check's end ends. Where the kernel cannot
// record, the rules are unreached, with what it says, and ok is false.
func (t *T) recording(rules []string, probes ...Probe) (r Recorder, ok bool) {
	r, err := t.Guest.Record(probes...)
	if errors.Is(err, ErrHidden) {
		for _, rule := range rules {
			t.Unreached(rule, err.Error())
		}
		return nil, false
	}
	t.Check("record what the kernel does", err)
	t.after = append(t.after, func() {
		if err := r.Close(); err != nil && t.failure == nil {
			t.failure = fmt.Errorf("end a recording: %w", err)
		}
	})
	return r, true
}

// symbol finds a function or variable of the guest's kernel for rules. Where the kernel does not
// tell, the rules are unreached, and ok is false.
func (t *T) symbol(m KernelMachine, name string, rules ...string) (address, size uint64, ok bool) {
	address, size, err := t.Guest.Symbol(m, name)
	if errors.Is(err, ErrHidden) {
		for _, r := range rules {
			t.Unreached(r, err.Error())
		}
		return 0, 0, false
	}
	t.Check("a symbol of the kernel", err)
	return address, size, true
}

// hits is what was recorded since it was last asked for.
func (t *T) hits(r Recorder) []Hit {
	hits, err := r.Hits()
	t.Check("read what was recorded", err)
	return hits
}

// online lists the CPUs that the guest's kernel has online.
func (t *T) online() []int {
	content, err := fs.ReadFile(t.Guest, "sys/devices/system/cpu/online")
	t.Check("which CPUs are online", err)
	cpus, err := cpulist.Parse(strings.TrimSpace(string(content)))
	t.Check("which CPUs are online", err)
	return cpus
}

// Linux is the name of the Implementer of a guest's side, whose version is the kernel's release.
const Linux = "Linux"

// KernelMachine is a machine whose CPUs are those of the kernel that runs. Package kmod says what
// the methods do.
type KernelMachine interface {
	Number(cpu int) int
	Busy(cpu int) string
	Alloc(size, align uint64, fill byte) arch.Area
	Peek(address uint64, content []byte) error
	Invoke(cpu int, function uint64, args ...uint64) (uint64, error)
}

// code reads instructions of the kernel's.
func (t *T) code(m KernelMachine, address, size uint64) []byte {
	first := address &^ 7
	b := make([]byte, (address+size+7)&^7-first)
	t.Check("read the kernel's code", m.Peek(first, b))
	return b[address-first:][:size]
}

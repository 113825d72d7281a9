package linuxguest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"pvabi/conformance"
)

// Kernel is the kernel that this process runs on.
type Kernel struct {
	fs.FS
	list           []byte               // of the kernel's symbols, nil if it was not read
	known          map[string][2]uint64 // addresses and sizes of some
	lookup, sizeOf uint64               // functions to find some by, 0 if not yet known
}

// New returns the kernel that this process runs on.
func New() *Kernel { return &Kernel{FS: os.DirFS("/"), known: map[string][2]uint64{}} }

// Symbol implements conformance.GuestKernel.
func (k *Kernel) Symbol(m conformance.KernelMachine, name string) (address, size uint64, err error) {
	if s, ok := k.known[name]; ok {
		return s[0], s[1], nil
	}
	if m != nil {
		if address, size, err = k.ask(m, name); err == nil && address != 0 {
			k.known[name] = [2]uint64{address, size}
			return address, size, nil
		}
	}
	if k.list == nil {
		// Emulated kernels take seconds to show all.
		if k.list, err = os.ReadFile("/proc/kallsyms"); err != nil {
			return 0, 0, fmt.Errorf("%w: %w; it needs CONFIG_KALLSYMS", conformance.ErrHidden, err)
		}
	}
	return symbols(k.list, name)
}

// ask asks functions of the kernel's that it has for itself (include/linux/kallsyms.h). The address is 0
// of a symbol that it does not have.
func (k *Kernel) ask(m conformance.KernelMachine, name string) (address, size uint64, err error) {
	for function, at := range map[string]*uint64{"kallsyms_lookup_name": &k.lookup, "kallsyms_lookup_size_offset": &k.sizeOf} {
		if *at == 0 {
			if *at, err = byProbe(function); err != nil {
				return 0, 0, err
			}
		}
	}
	text := m.Alloc(uint64(len(name)+1), 8, 0)
	for i := range len(name) {
		text.Store(uint64(i), 1, uint64(name[i]))
	}
	if address, err = m.Invoke(0, k.lookup, text.Address()); err != nil || address == 0 {
		return 0, 0, err
	}
	numbers := m.Alloc(16, 8, 0)
	_, err = m.Invoke(0, k.sizeOf, address, numbers.Address(), numbers.Address()+8)
	return address, numbers.Load(0, 8), err
}

// byProbe finds a function by a probe of it, the list of which has addresses.
func byProbe(name string) (address uint64, err error) {
	if err := mountTracing(); err != nil {
		return 0, err
	}
	p := conformance.Probe{Name: "where", At: name}
	events, lines := definitions(p)
	if err := write(tracing+"/"+events, lines[0], unix.O_APPEND); err != nil {
		return 0, err
	}
	list, err := os.ReadFile("/sys/kernel/debug/kprobes/list")
	err = errors.Join(err, write(tracing+"/kprobe_events", "-:"+folder(p), unix.O_APPEND))
	if err != nil {
		return 0, err
	}
	return probed(string(list), name)
}

// Release is the kernel's, as uname -r has it.
func Release() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("which kernel this is: uname: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// Write implements conformance.GuestKernel.
func (*Kernel) Write(name, text string) error { return write("/"+name, text, 0) }

// write writes to a file that is there by one call of write(2), as what the kernel makes of it
// may depend on that.
func write(name, text string, flags int) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|flags, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(text)
	return err
}

// Log implements conformance.GuestKernel.
func (*Kernel) Log() ([]string, error) {
	lines, err := ReadLog()
	if err != nil {
		return nil, fmt.Errorf("%w: its log: %w", conformance.ErrHidden, err)
	}
	var out []string
	for _, l := range lines {
		out = append(out, l.Text)
	}
	return out, nil
}

// ReadLog returns the kernel's log. An ordinary process may not be allowed to read it.
func ReadLog() ([]Line, error) {
	size, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err != nil {
		return nil, fmt.Errorf("size of the kernel's log: %w", err)
	}
	buffer := make([]byte, size)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buffer)
	if err != nil {
		return nil, fmt.Errorf("read the kernel's log: %w", err)
	}
	return parseLog(string(buffer[:n])), nil
}

// Pinned implements conformance.GuestKernel.
func (*Kernel) Pinned(cpu int, do func() error) error { return onCPUs([]int{cpu}, do) }

// onCPUs does something in a thread that runs on these CPUs only, and returns its error.
func onCPUs(cpus []int, do func() error) error {
	done := make(chan error)
	go func() {
		// The thread ends with the goroutine, and with it where it may run.
		runtime.LockOSThread()
		var set unix.CPUSet
		for _, cpu := range cpus {
			set.Set(cpu)
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- fmt.Errorf("move a thread to CPU %s: %w; is it online?", strings.Trim(fmt.Sprint(cpus), "[]"), err)
			return
		}
		done <- do()
	}()
	return <-done
}

// tracing is where tracefs is.
const tracing = "/sys/kernel/tracing"

// mountTracing mounts tracefs if nobody has.
func mountTracing() error {
	if _, err := os.Stat(tracing + "/instances"); err == nil {
		return nil
	}
	if err := unix.Mount("tracefs", tracing, "tracefs", 0, ""); err != nil {
		return fmt.Errorf("%w: mount tracefs at %s: %w; it needs CONFIG_TRACING, and root", conformance.ErrHidden, tracing, err)
	}
	return nil
}

// Record implements conformance.GuestKernel. Only one recording can be there at a time.
func (*Kernel) Record(probes ...conformance.Probe) (conformance.Recorder, error) {
	if err := mountTracing(); err != nil {
		return nil, err
	}
	r := &recorder{folder: filepath.Join(tracing, "instances", group), names: map[string]string{}, made: map[string]string{}, pipe: -1}
	// Probes that are to stay are made jumps, and again breakpoints before they go, each time when all
	// tasks have been somewhere else, which takes long (kernel/kprobes.c, kprobe_optimizer).
	if now, err := os.ReadFile(optimization); err == nil && string(now) == "1\n" {
		if err := write(optimization, "0", 0); err != nil {
			return nil, fmt.Errorf("begin a recording: %w", err)
		}
		r.optimized = true
	}
	if err := os.Mkdir(r.folder, 0o700); err != nil {
		r.folder = ""
		return nil, errors.Join(fmt.Errorf("begin a recording: %w; is there another?", err), r.Close())
	}
	if err := r.begin(probes); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// optimization is whether the kernel makes probes faster (Documentation/trace/kprobes.rst, "The
// kprobes sysctl interface").
const optimization = "/proc/sys/debug/kprobes-optimization"

type recorder struct {
	folder string            // empty where there is none
	names  map[string]string // of events in the trace: of probes
	on     []string          // folders of events that are on
	made   map[string]string // probes that were made, and in which file
	pipe   int
	closed bool
	// optimized tells that probes were made faster before.
	optimized bool
}

func (r *recorder) begin(probes []conformance.Probe) (err error) {
	for _, p := range probes {
		events, lines := definitions(p)
		for _, line := range lines {
			if err := write(tracing+"/"+events, line, unix.O_APPEND); err != nil {
				return fmt.Errorf("%w: a probe %q: %w%s", conformance.ErrHidden, line, err, complaint())
			}
			r.made[folder(p)] = events
		}
		r.names[name(p)] = p.Name
		enable := filepath.Join(r.folder, "events", folder(p))
		if p.Filter != "" {
			if err := write(enable+"/filter", p.Filter, 0); err != nil {
				return fmt.Errorf("%w: a filter for %s: %w%s", conformance.ErrHidden, folder(p), err, complaint())
			}
		}
		if err := write(enable+"/enable", "1", 0); err != nil {
			return fmt.Errorf("%w: the event %s: %w%s", conformance.ErrHidden, folder(p), err, complaint())
		}
		r.on = append(r.on, enable)
	}
	if r.pipe, err = unix.Open(r.folder+"/trace_pipe", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("what is recorded: %s/trace_pipe: %w", r.folder, err)
	}
	return nil
}

// complaint is what the kernel says of the last mistake in a probe, or nothing.
func complaint() string {
	log, err := os.ReadFile(tracing + "/error_log")
	if err != nil || len(log) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	for _, line := range lines {
		if _, text, ok := strings.Cut(line, "error: "); ok {
			lines[0] = text
		}
	}
	return ": " + strings.TrimSpace(lines[0])
}

// Hits implements conformance.Recorder.
func (r *recorder) Hits() ([]conformance.Hit, error) {
	// A kernel that notes all the time would keep its reader here for ever.
	const much = 256 << 10
	var trace []byte
	for buffer := make([]byte, 64<<10); len(trace) < much; {
		// The kernel gives whole lines.
		n, err := unix.Read(r.pipe, buffer)
		if err == unix.EAGAIN || err == nil && n == 0 {
			break
		}
		if err != nil && err != unix.EINTR {
			return nil, fmt.Errorf("read %s/trace_pipe: %w", r.folder, err)
		}
		trace = append(trace, buffer[:max(n, 0)]...)
	}
	return parseHits(string(trace), r.names)
}

// Close implements conformance.Recorder.
func (r *recorder) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	var errs []error
	for _, events := range r.on {
		errs = append(errs, write(events+"/enable", "0", 0))
	}
	if r.pipe >= 0 {
		errs = append(errs, unix.Close(r.pipe))
	}
	if r.folder != "" {
		errs = append(errs, os.Remove(r.folder))
	}
	for probe, file := range r.made {
		errs = append(errs, write(tracing+"/"+file, "-:"+probe, unix.O_APPEND))
	}
	if r.optimized {
		errs = append(errs, write(optimization, "1", 0))
	}
	return errors.Join(errs...)
}

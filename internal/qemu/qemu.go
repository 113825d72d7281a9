// Package qemu boots a guest under QEMU, by way of vmtest's package of the same
// name, and hands on what the agent in it has to say.
//
// A run has three ends, and all of them are looked at: the event channel (a
// virtio-serial port that carries conformance.Event values as lines of JSON, see
// package pvabi/initramfs/agent), QEMU's process, and the guest's console, which
// is kept in a file. The events are the record: a run is complete when the
// last of them, Finished, has come. Why a run is not complete is found out from
// the other two, and said in one sentence with the end of the console below.
//
// QEMU never outlives the process that called Run, see guardWord.
package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	vmtest "github.com/hugelgupf/vmtest/qemu"
	"github.com/hugelgupf/vmtest/qemu/qevent"

	"pvabi/conformance"
	"pvabi/initramfs/agent"
)

// Threads says on how many threads QEMU emulates a guest's CPUs.
type Threads string

// The ways to emulate several CPUs.
const (
	// OneThread emulates all CPUs in turn.
	OneThread Threads = "single"
	// ThreadPerCPU emulates all at once.
	ThreadPerCPU Threads = "multi"
)

// Config says what to boot.
type Config struct {
	// QEMU is the command that runs QEMU: its file, or one by which it is started,
	// and first arguments. Env is added to its environment, as "NAME=value".
	QEMU []string
	Env  []string
	// Board is how the guest is built. Its fields may be changed from those of
	// Boards.
	Board Board
	// CPUs is how many there are; Threads defaults to OneThread.
	CPUs    int
	Threads Threads
	// Kernel and Initramfs are files. Release is what uname -r prints in the
	// guest, empty if that is not known beforehand.
	Kernel, Initramfs, Release string
	// Xen, where set, is what the guest is booted on; the Board is then XenBoard.
	Xen *Xen
	// Append is added to the kernel's command line, Args to QEMU's.
	Append, Args []string
	// Console is the file that keeps the guest's console. It is overwritten.
	Console string
	// Line, where set, is called from one goroutine for each line of the console.
	Line func(line string)
	// Boot bounds the time to the first event, Silence that between any two, and
	// Whole that of all of a run. Zero stands for DefaultBoot and so on; on Xen, more.
	Boot, Silence, Whole time.Duration
	// Once has a guest that does not come up not booted a second time, where something that ends with
	// the first QEMU is connected to it.
	Once bool
	// Exit is how long QEMU may take to end after the last event; zero stands for some seconds.
	Exit time.Duration
}

// Bounds of a run that are used where a Config has none. A boot takes seconds
// on an idle machine; these are for one that is not.
const (
	DefaultBoot    = 2 * time.Minute
	DefaultSilence = 2 * time.Minute
	DefaultWhole   = 10 * time.Minute
)

// How long QEMU may take to end after the last event, and after a channel that
// ended without that.
const (
	exitGrace       = 5 * time.Second
	incompleteGrace = time.Second
)

// Report is what there is to say about a run, other than its events.
type Report struct {
	// Command is QEMU's command line, quoted for a shell. The file descriptor in
	// it is that of a terminal where the event channel's lines come out.
	Command string `json:"command"`
	// Identity is who the guest said it is; nil if it did not.
	Identity *conformance.Identity `json:"identity,omitempty"`
	// Seconds from QEMU's start: to the event Identity, to Loaded, to the last
	// Result, and to QEMU's end. Those that did not come are 0.
	ToIdentity float64 `json:"to_identity"`
	ToLoaded   float64 `json:"to_loaded"`
	ToResult   float64 `json:"to_result"`
	Total      float64 `json:"total"`
	// PeakRSS is the most memory that QEMU had resident, in bytes, as last seen
	// before its end; 0 if not known.
	PeakRSS int64 `json:"peak_rss"`
	// Stderr is what QEMU printed, or the end of it.
	Stderr string `json:"stderr,omitempty"`
	// Notes tell of what went wrong without making the run fail.
	Notes []string `json:"notes,omitempty"`
}

// Run boots a guest and calls event for each event of its agent, from one
// goroutine, in order. It returns when QEMU has ended. A guest that does not
// come up is given a second try, which the report notes.
//
// A run that is incomplete, or of another guest than was asked for, is an error
// of type *Error; the report is then of use, too. An agent that reports its own
// failure (Event.Fatal) has run completely.
func Run(ctx context.Context, c Config, event func(conformance.Event)) (Report, error) {
	if err := c.check(); err != nil {
		return Report{}, err
	}
	if err := os.WriteFile(c.Console, nil, 0o644); err != nil {
		return Report{}, fmt.Errorf("make the console's file: %w", err)
	}
	stop, err := follow(c.Console, c.Line)
	if err != nil {
		return Report{}, fmt.Errorf("follow the console: %w", err)
	}
	defer stop()
	report, err := attempt(ctx, c, event)
	if errors.Is(err, ErrBoot) && !c.Once && ctx.Err() == nil {
		first := err
		report, err = attempt(ctx, c, event)
		report.Notes = append([]string{"booted a second time: " + first.Error()}, report.Notes...)
	}
	return report, err
}

// check finds what is wrong with a configuration and fills in what it leaves
// open. It also removes vmtest's variables from the environment: they would
// change every guest.
func (c *Config) check() error {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "VMTEST_") {
			if err := os.Unsetenv(name); err != nil {
				return fmt.Errorf("remove %s from the environment: %w", name, err)
			}
		}
	}
	if len(c.QEMU) == 0 {
		return fmt.Errorf("%w: no command given", ErrStart)
	}
	if !vmtest.Arch(c.Board.GOARCH).Valid() {
		return fmt.Errorf("vmtest knows no GOARCH %q", c.Board.GOARCH)
	}
	if c.CPUs < 1 {
		return fmt.Errorf("a guest with %d CPUs", c.CPUs)
	}
	files := map[string]string{"kernel": c.Kernel, "initramfs": c.Initramfs}
	if c.Xen != nil {
		files["Xen"] = c.Xen.File
	}
	for what, name := range files {
		if s, err := os.Stat(name); err != nil {
			return fmt.Errorf("boot the %s: %w", what, err)
		} else if !s.Mode().IsRegular() {
			return fmt.Errorf("boot the %s: %s is no regular file", what, name)
		}
	}
	if err := c.checkModules(); err != nil {
		return err
	}
	if c.Threads == "" {
		c.Threads = OneThread
	}
	if c.Xen != nil {
		c.Boot = or(c.Boot, xenBoot)
	}
	c.Boot = or(c.Boot, DefaultBoot)
	c.Silence = or(c.Silence, DefaultSilence)
	c.Whole = or(c.Whole, DefaultWhole)
	c.Exit = or(c.Exit, exitGrace)
	return nil
}

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// args are QEMU's arguments besides those that vmtest adds: -nographic, kernel,
// initramfs, and the event channel.
func (c *Config) args() []string {
	b := c.Board
	args := []string{
		"-nodefaults", "-no-reboot",
		"-machine", b.Machine,
		"-cpu", b.CPU,
		"-m", fmt.Sprint(b.Memory),
		"-smp", fmt.Sprint(c.CPUs),
		"-accel", "tcg,thread=" + string(c.Threads),
		// A comma in a value is written as two.
		"-chardev", "file,id=console,append=on,path=" + strings.ReplaceAll(c.Console, ",", ",,"),
		"-serial", "chardev:console",
	}
	if b.Firmware != "" {
		args = append(args, "-bios", b.Firmware)
	}
	return append(args, c.Args...)
}

// append is the kernel's command line.
func (c *Config) append() []string {
	line := []string{"console=" + c.Board.Console, common}
	if c.Board.Append != "" {
		line = append(line, c.Board.Append)
	}
	if c.Board.Channel != "" {
		line = append(line, agent.ChannelWord+c.Board.Channel)
	}
	return append(line, c.Append...)
}

// guest is one attempt to run a guest.
type guest struct {
	config Config
	report Report
	start  time.Time
	event  func(conformance.Event)

	failed   error // the first thing that went wrong
	finished bool  // the last event came
	pid      int   // QEMU's; 0 until it is known
}

// channel is the event channel of vmtest, which ends events when it ends
// itself. What it returned, when it did, is in err. Where serial is true the guest's end is a
// serial port in place of vmtest's virtio-serial port.
//
// vmtest closes events at the last event, so that another one makes it panic
// (qevent.EventChannel, version 5d9f3d34a58d); a guest must not be able to do
// that to its host.
func channel(serial bool, events chan<- conformance.Event, failed *error) vmtest.Fn {
	open := qevent.EventChannel[conformance.Event](agent.Port, events)
	return func(ids *vmtest.IDAllocator, o *vmtest.Options) error {
		if err := open(ids, o); err != nil {
			return err
		}
		last := len(o.Tasks) - 1
		task := o.Tasks[last]
		o.Tasks[last] = func(ctx context.Context, n *vmtest.Notifications) (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("an event after the channel's end (%v)", r)
				}
				*failed = err
			}()
			return task(ctx, n)
		}
		if serial {
			return overSerial(o)
		}
		return nil
	}
}

// overSerial puts a serial port in the place of the virtio-serial port among vmtest's arguments.
//
// Unlike that one, it drops what nobody takes: QEMU tries to write a byte five times (hw/char/serial.c,
// serial_xmit and MAX_XMIT_RETRY), and a guest that closes its port waits for some 50 ms and then has
// the port forget what it has not sent (Linux 7.2, drivers/tty/serial/serial_core.c,
// uart_wait_until_sent). So there is a pipe between QEMU and vmtest's terminal that has room for all that
// an agent has to say, whenever this process comes to read it.
func overSerial(o *vmtest.Options) error {
	const pipe = "pipe,id="
	at := slices.Index(o.QEMUArgs, "virtio-serial")
	if at < 1 || at+4 >= len(o.QEMUArgs) || !strings.HasPrefix(o.QEMUArgs[at+4], pipe) || len(o.ExtraFiles) == 0 {
		return errors.New("vmtest's event channel is not what it was: no virtio-serial and pipe among its arguments")
	}
	options := strings.TrimPrefix(o.QEMUArgs[at+4], pipe)
	chardev, _, _ := strings.Cut(options, ",")
	o.QEMUArgs = slices.Replace(o.QEMUArgs, at-1, at+5, "-serial", "chardev:"+chardev, "-chardev", "file,id="+options)

	terminal, err := os.OpenFile(o.ExtraFiles[len(o.ExtraFiles)-1].Name(), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open the event channel's terminal once more: %w", err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		return errors.Join(err, terminal.Close())
	}
	if err := widen(to); err != nil {
		return errors.Join(fmt.Errorf("make room in the event channel's pipe: %w", err), terminal.Close(), from.Close(), to.Close())
	}
	o.ExtraFiles[len(o.ExtraFiles)-1] = to
	o.Tasks = append(o.Tasks, func(ctx context.Context, n *vmtest.Notifications) error {
		defer terminal.Close()
		defer from.Close()
		select {
		case <-n.VMStarted:
		case <-ctx.Done():
			return nil
		}
		to.Close() // so that QEMU's is the only one
		if _, err := io.Copy(terminal, from); err != nil {
			return fmt.Errorf("the event channel's pipe: %w", err)
		}
		return nil
	})
	return nil
}

// guardReport is what a guard writes to its pipe.
type guardReport struct {
	PID   int    `json:"pid"`
	Error string `json:"error,omitempty"`
}

// guardFn has the QEMU command run under guard, which reports to w.
func guardFn(c Config, w *os.File) vmtest.Fn {
	return func(_ *vmtest.IDAllocator, o *vmtest.Options) error {
		command, err := guarded(c.QEMU, c.Env, o.AddFile(w))
		o.QEMUCommand = command
		return err
	}
}

func attempt(ctx context.Context, c Config, event func(conformance.Event)) (Report, error) {
	g := &guest{config: c, event: event}
	stderr := &tail{limit: 16 << 10}
	consoleStart := int64(0)
	if s, err := os.Stat(c.Console); err == nil {
		consoleStart = s.Size()
	}
	err := g.run(ctx, stderr)
	g.report.Stderr = stderr.String()
	if err == nil {
		return g.report, nil
	}
	console := readTail(c.Console, consoleStart)
	return g.report, &Error{
		Err: explain(err, console, g.report.Stderr), Console: lastLines(console, 20),
		Stderr: lastLines(g.report.Stderr, 20), ConsoleFile: c.Console,
	}
}

// run runs QEMU to its end.
func (g *guest) run(ctx context.Context, stderr io.WriteCloser) error {
	c := g.config
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStart, err)
	}
	defer reader.Close()
	defer writer.Close()
	events := make(chan conformance.Event)
	var channelErr error // valid once done has a value
	kernel, line, modules := c.boots()
	options, err := vmtest.OptionsFor(vmtest.Arch(c.Board.GOARCH),
		guardFn(c, writer),
		vmtest.ArbitraryArgs(c.args()...),
		vmtest.WithKernel(kernel),
		vmtest.WithInitramfs(modules),
		vmtest.WithAppendKernel(line...),
		vmtest.WithSerialOutput(stderr),
		channel(c.Board.Channel != "", events, &channelErr),
	)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStart, err)
	}

	// The kernel ends QEMU when the thread ends that started it, not the process:
	// this one stays until QEMU has ended.
	vmCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	kill := func() {
		cancel()
		killGroup(g.pid)
	}
	started, done := make(chan error, 1), make(chan error, 1)
	g.start = time.Now()
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		vm, err := options.Start(vmCtx)
		if err == nil {
			g.report.Command = g.command(vm.Cmdline())
		}
		started <- err
		if err == nil {
			done <- vm.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("%w: %w", ErrStart, err)
	}
	writer.Close() // so that the guard's is the only one
	guards := make(chan guardReport, 2)
	go func() {
		defer close(guards)
		for lines := json.NewDecoder(reader); ; {
			var r guardReport
			if lines.Decode(&r) != nil {
				return
			}
			guards <- r
		}
	}()

	silence := time.NewTimer(c.Boot)
	whole := time.NewTimer(c.Whole)
	look := time.NewTicker(500 * time.Millisecond) // at QEMU's memory
	defer silence.Stop()
	defer whole.Stop()
	defer look.Stop()
	var grace <-chan time.Time // runs once the channel has ended
	canceled := ctx.Done()
	fail := func(err error) {
		if g.failed == nil {
			g.failed = err
		}
		g.look()
		kill()
	}
	for {
		select {
		case e, ok := <-events:
			if !ok {
				events, grace = nil, time.After(incompleteGrace)
				if g.finished {
					grace = time.After(c.Exit)
				}
				silence.Stop()
				continue
			}
			if g.failed != nil {
				continue // what QEMU still had to say
			}
			if err := g.take(e); err != nil {
				fail(err)
			}
			silence.Reset(c.Silence)
		case r, ok := <-guards:
			if !ok {
				guards = nil
				continue
			}
			if err := g.guard(r); err != nil {
				fail(err)
			}
		case <-look.C:
			g.look()
		case <-silence.C:
			if g.report.Identity == nil {
				fail(fmt.Errorf("%w: no event in %v", ErrBoot, c.Boot))
			} else {
				fail(fmt.Errorf("%w: no event in %v", ErrSilent, c.Silence))
			}
		case <-whole.C:
			fail(fmt.Errorf("%w: more than %v", ErrTimeout, c.Whole))
		case <-canceled:
			canceled = nil
			fail(fmt.Errorf("%w: %w", ErrCanceled, context.Cause(ctx)))
		case <-grace:
			if g.finished {
				g.report.Notes = append(g.report.Notes, fmt.Sprintf("qemu was killed: it did not end within %v after the last event", c.Exit))
			}
			g.look()
			kill()
		case err := <-done:
			g.report.Total = time.Since(g.start).Seconds()
			for guards != nil { // QEMU's end is theirs
				r, ok := <-guards
				if !ok {
					break
				}
				if err := g.guard(r); err != nil {
					fail(err)
				}
			}
			return g.verdict(err, channelErr, grace != nil && vmCtx.Err() != nil)
		}
	}
}

// command returns the command line to print: without the guard, and quoted.
func (g *guest) command(words []string) string {
	// The guard's words come first, and vmtest's first own one is -nographic.
	if i := slices.Index(words, "-nographic"); i >= 0 {
		words = append(slices.Clone(g.config.QEMU), words[i:]...)
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_./:,=+@%-]+$`)

// quote quotes a word for a POSIX shell.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// guard takes what the guard reports.
func (g *guest) guard(r guardReport) error {
	if r.Error != "" {
		return fmt.Errorf("%w: %s", ErrStart, r.Error)
	}
	g.pid = r.PID
	return nil
}

// look notes how much memory QEMU has used so far.
func (g *guest) look() {
	if g.pid != 0 {
		g.report.PeakRSS = max(g.report.PeakRSS, peakRSS(g.pid))
	}
}

// take takes an event that came.
func (g *guest) take(e conformance.Event) error {
	if n := fields(e); n != 1 {
		return fmt.Errorf("%w: an event with %d fields", ErrGarbage, n)
	}
	if g.finished {
		return fmt.Errorf("%w: an event after the last one", ErrGarbage)
	}
	if (e.Identity == nil) == (g.report.Identity == nil) {
		return fmt.Errorf("%w: the guest says who it is first, and only once", ErrGarbage)
	}
	seconds := time.Since(g.start).Seconds()
	switch {
	case e.Identity != nil:
		g.report.Identity, g.report.ToIdentity = e.Identity, seconds
		if err := g.identify(*e.Identity); err != nil {
			return err
		}
	case e.Loaded != nil:
		g.report.ToLoaded = seconds
	case e.Result != nil, e.Measured != nil, e.Mutated != nil:
		g.report.ToResult = seconds
	case e.Finished:
		g.finished = true
		g.look()
	}
	g.event(e)
	return nil
}

// fields returns how many fields of an event are set.
func fields(e conformance.Event) int {
	n := 0
	for _, set := range []bool{
		e.Identity != nil, e.Loaded != nil, e.Result != nil, e.Shown != nil, e.Part != nil, e.Alive, e.Measured != nil, e.Mutated != nil,
		e.Fatal != "", e.Unreached != "", e.Note != "", e.Finished,
	} {
		if set {
			n++
		}
	}
	return n
}

// identify makes sure that the guest is the one that was asked for.
func (g *guest) identify(id conformance.Identity) error {
	c := g.config
	for _, x := range []struct{ what, got, want string }{
		{"architecture", id.GOARCH, c.Board.GOARCH},
		{"machine", id.Machine, c.Board.Uname},
		{"number of CPUs", fmt.Sprint(id.CPUs), fmt.Sprint(c.CPUs)},
		{"kernel release", id.Release, c.Release},
	} {
		if x.got != x.want && x.want != "" {
			return fmt.Errorf("%w: its %s is %s, want %s", ErrIdentity, x.what, x.got, x.want)
		}
	}
	if c.Xen != nil {
		return c.Xen.identify(id.Xen)
	}
	return nil
}

// verdict tells what was wrong with a run that has ended, if anything. The
// first error is vmtest's, of QEMU's process or else of the event channel.
func (g *guest) verdict(err, channelErr error, killed bool) error {
	if g.failed != nil {
		return g.failed
	}
	// A channel that ends without its last line is no more than that.
	if channelErr != nil && !errors.Is(channelErr, qevent.ErrEventChannelMissingDoneEvent) {
		return fmt.Errorf("%w: %w", ErrGarbage, channelErr)
	}
	if g.finished {
		return nil // and how QEMU ended does not matter
	}
	var exit *exec.ExitError
	if killed || !errors.As(err, &exit) {
		return ErrIncomplete
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		switch s := status.Signal(); s {
		case syscall.SIGKILL:
			return fmt.Errorf("%w: by signal 9, %v; the kernel does so, too, when memory runs out", ErrKilled, s)
		case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
			return fmt.Errorf("%w: by signal %d, %v", ErrKilled, s, s)
		default:
			return fmt.Errorf("%w: it crashed by signal %d, %v", ErrExited, s, s)
		}
	}
	return fmt.Errorf("%w: %w", ErrExited, exit)
}

// explain looks for the deeper reason of an error in what the guest and QEMU
// said. QEMU ends itself in good order on a signal, and after a panic, which
// resets the guest.
func explain(err error, console, stderr string) error {
	if errors.Is(err, ErrStart) || errors.Is(err, ErrCanceled) {
		return err
	}
	if _, panicked, ok := strings.Cut(console, "Kernel panic - not syncing: "); ok {
		why, _, _ := strings.Cut(panicked, "\n")
		return fmt.Errorf("%w: %s", ErrPanic, strings.TrimSpace(why))
	}
	if why, ok := xenSays(console); ok {
		return fmt.Errorf("%w: %s", ErrPanic, why)
	}
	if _, failed, ok := strings.Cut(console, agent.Failed+" "); ok && errors.Is(err, ErrIncomplete) {
		why, _, _ := strings.Cut(failed, "\n")
		return fmt.Errorf("%w: the agent says: %s", err, why)
	}
	if _, signal, ok := strings.Cut(stderr, "terminating on signal "); ok && errors.Is(err, ErrIncomplete) {
		signal, _, _ = strings.Cut(signal, "\n")
		return fmt.Errorf("%w: by signal %s", ErrKilled, strings.TrimSpace(signal))
	}
	return err
}

// maxConsole bounds how much of a console is looked at, in bytes.
const maxConsole = 256 << 10

// readTail returns a file's content from an offset on, or the end of it.
func readTail(name string, offset int64) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if s, err := f.Stat(); err == nil {
		offset = max(offset, s.Size()-maxConsole)
	}
	content, err := io.ReadAll(io.NewSectionReader(f, offset, maxConsole))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.ToValidUTF8(string(content), "?"), "\r", "")
}

// lastLines returns the last lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// tail keeps the end of what is written to it.
type tail struct {
	limit int

	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	t.buf.Next(max(0, t.buf.Len()-t.limit))
	return len(p), nil
}

func (t *tail) Close() error { return nil }

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(t.buf.String(), "?")
}

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hugelgupf/vmtest/guest"
	"github.com/u-root/u-root/pkg/cmdline"
	"github.com/u-root/u-root/pkg/kmodule"
	"github.com/u-root/u-root/pkg/libinit"
	"golang.org/x/sys/unix"

	"pvabi/conformance"
	"pvabi/conformance/linuxguest"
	"pvabi/internal/cpulist"
	"pvabi/internal/pcvm"
)

// Main is the agent's main function. As PID 1 it does the job of the kernel's
// command line, powers off, and never returns. As an ordinary process it does
// the job of its arguments, prints the events, and returns.
func Main(suites map[string]Suite) error {
	if os.Getpid() != 1 {
		job, err := ParseJob(os.Args[1:])
		if err != nil {
			return fmt.Errorf("what to do: %w; give pvabi.target=TARGET, and pvabi.modules=NAME,NAME where it needs any", err)
		}
		return Print(context.Background(), os.Stdout, job, suites)
	}
	start := time.Now()
	// A guest has memory enough for what an agent leaves behind in its short life, and
	// under emulation no time to collect it.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(128 << 20)
	mountRoot()
	mounted := time.Since(start)
	job, err := boot(suites)
	if err != nil {
		fmt.Println(Failed, err)
	}
	fmt.Printf("pvabi: agent: file systems took %v, all took %v\n", mounted.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	unix.Sync()
	for _, how := range []string{job.End, EndPowerOff} {
		if err := end(how); err != nil {
			fmt.Printf("pvabi: agent: %s: %v\n", how, err)
		}
	}
	// The end of PID 1 is a kernel panic, and QEMU then ends, too.
	os.Exit(1)
	return nil
}

// Print does a job in an ordinary process and prints its events, one line of
// JSON for each. The error is the writer's.
func Print(ctx context.Context, w io.Writer, job Job, suites map[string]Suite) error {
	var failed error
	lines := json.NewEncoder(w)
	do(ctx, linux{}, job, suites, func(e conformance.Event) {
		if err := lines.Encode(e); err != nil && failed == nil {
			failed = fmt.Errorf("print an event: %w", err)
		}
	})
	return failed
}

// boot does the job of the kernel's command line and of the image's [MutantsFile].
func boot(suites map[string]Suite) (Job, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return Job{}, err
	}
	words := strings.Fields(string(line))
	channel, err := openChannel(words)
	if err != nil {
		return Job{}, fmt.Errorf("open the event channel: %w", err)
	}
	emit := func(e conformance.Event) {
		if err := channel.Emit(e); err != nil {
			fmt.Println("pvabi: agent: send an event:", err)
		}
	}
	more, err := os.ReadFile("/" + MutantsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Job{}, err
	}
	job, err := ParseJob(append(words, strings.Fields(string(more))...))
	if err != nil {
		emit(conformance.Event{Fatal: "the kernel's command line: " + err.Error()})
		emit(conformance.Event{Finished: true})
	} else {
		do(context.Background(), linux{}, job, suites, emit)
	}
	return job, channel.Close()
}

// end ends the guest. It returns only if that fails.
func end(how string) error {
	switch how {
	case "":
		return nil
	case EndReboot:
		return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	case EndPanic:
		return os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
	case EndCrash:
		if err := loadKernel(true); err != nil {
			return err
		}
		return end(EndPanic)
	case EndKexec:
		if err := loadKernel(false); err != nil {
			return err
		}
		return unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC)
	}
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// channel is where events go.
type channel interface {
	Emit(conformance.Event) error
	Close() error
}

// mailbox sends events by the mailbox of a machine of package pcvm.
type mailbox struct{ *pcvm.Mailbox }

func (m mailbox) Emit(e conformance.Event) error {
	text, err := json.Marshal(e)
	if err == nil {
		_, err = m.Send(text)
	}
	return err
}

// openChannel opens what is named among the words of the command line, a serial port or a mailbox, or
// else the virtio-serial port.
func openChannel(words []string) (channel, error) {
	for _, w := range words {
		device, ok := strings.CutPrefix(w, ChannelWord)
		if !ok {
			continue
		}
		if size, ok := strings.CutPrefix(device, MailboxPrefix); ok {
			memory, err := strconv.ParseInt(size, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w, err)
			}
			box, err := pcvm.OpenMailbox(memory)
			return mailbox{box}, err
		}
		channel, err := guest.EventChannel[conformance.Event](device)
		if err == nil {
			err = makeRaw(device)
		}
		return channel, err
	}
	if err := waitForPort(); err != nil {
		return nil, err
	}
	return guest.SerialEventChannel[conformance.Event](Port)
}

// makeRaw has a terminal, which is open elsewhere, send what is written to it and nothing else.
func makeRaw(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return fmt.Errorf("%s is no terminal: %w", device, err)
	}
	state.Iflag, state.Oflag, state.Lflag = 0, 0, 0
	state.Cflag = state.Cflag&^unix.CSIZE | unix.CS8 | unix.CLOCAL
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, state); err != nil {
		return fmt.Errorf("make %s raw: %w", device, err)
	}
	return nil
}

// waitForPort loads the modules of the event channel, if the image has any, and waits
// for the channel's port: a device is found some time after its driver is loaded.
func waitForPort() error {
	const (
		ports  = "/sys/class/virtio-ports"
		needed = "the kernel needs VIRTIO_CONSOLE and the driver of its machine's virtio bus"
	)
	if !(linux{}).exists(ports) {
		for _, name := range ChannelModules {
			if _, err := (linux{}).load(name); err != nil {
				return fmt.Errorf("this kernel has no %s, and module %s does not load: %w; %s", ports, name, err, needed)
			}
		}
	}
	for range 1000 {
		names, err := filepath.Glob(ports + "/*/name")
		if err != nil {
			return err
		}
		for _, file := range names {
			if name, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(name)) == Port {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("no port named %s in %s; %s", Port, ports, needed)
}

// mountRoot makes the root file system. It uses u-root's libinit without what
// no suite needs: of its name space, made for interactive use, some fails here
// with a message each (cgroup v1, EFI variables, a copy of /etc), and all of it
// takes an emulated guest three times as long.
func mountRoot() {
	libinit.SetEnv()
	libinit.Namespace = []libinit.Creator{
		libinit.Dir{Name: "/proc", Mode: 0o555},
		libinit.Mount{Source: "proc", Target: "/proc", FSType: "proc"},
		libinit.Dir{Name: "/sys", Mode: 0o555},
		libinit.Mount{Source: "sysfs", Target: "/sys", FSType: "sysfs"},
		libinit.Mount{Source: "debugfs", Target: "/sys/kernel/debug", FSType: "debugfs"},
		libinit.Dir{Name: "/tmp", Mode: 0o777},
	}
	libinit.CgroupsNamespace = nil
	libinit.CreateRootfs()
}

// linux is the system that the agent runs on.
type linux struct{}

func (linux) identity() (conformance.Identity, error) {
	id := conformance.Identity{GOARCH: runtime.GOARCH, Hypervisor: hypervisor()}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return id, fmt.Errorf("uname: %w", err)
	}
	id.Machine = unix.ByteSliceToString(u.Machine[:])
	id.Release = unix.ByteSliceToString(u.Release[:])
	id.Version = unix.ByteSliceToString(u.Version[:])
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return id, err
	}
	id.CommandLine = strings.TrimSpace(string(line))
	if id.Hypervisor == "xen" {
		if id.Xen, err = xenIdentity(os.DirFS("/sys/hypervisor")); err != nil {
			return id, err
		}
	}
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return id, err
	}
	cpus, err := cpulist.Parse(strings.TrimSpace(string(online)))
	id.CPUs = len(cpus)
	return id, err
}

// hypervisorFiles are where Linux tells what is below it, on the architectures
// that have no instruction for that: the root of Xen's name space (also on x86),
// the node that a PowerPC hypervisor adds to the device tree, and what the s390
// instruction STSI returns.
var hypervisorFiles = []struct{ name, prefix string }{
	{"/sys/hypervisor/type", ""},
	{"/sys/firmware/devicetree/base/hypervisor/compatible", ""},
	{"/proc/sysinfo", "VM00 Control Program:"},
}

func hypervisor() string {
	for _, f := range hypervisorFiles {
		content, err := os.ReadFile(f.name)
		if err != nil {
			continue
		}
		for line := range strings.SplitSeq(strings.TrimRight(string(content), "\x00\n"), "\n") {
			if rest, ok := strings.CutPrefix(line, f.prefix); ok {
				return strings.Join(strings.Fields(strings.ReplaceAll(rest, "\x00", " ")), " ")
			}
		}
	}
	return cpuidSignature()
}

func (linux) exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func (linux) load(name string) (conformance.Module, error) {
	m := conformance.Module{Name: name}
	prober, err := kmodule.NewProber(kmodule.ProbeOpts{})
	if err != nil {
		return m, err
	}
	file, err := moduleFile(name)
	if err != nil {
		return m, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return m, err
	}
	sum := sha256.Sum256(content)
	m.SHA256 = hex.EncodeToString(sum[:])
	start := time.Now()
	err = prober.Probe(name, cmdline.FlagsForModule(name))
	m.Seconds = time.Since(start).Seconds()
	var errno unix.Errno
	if errors.As(err, &errno) {
		err = fmt.Errorf("%s (%w)", unix.ErrnoName(errno), err)
	}
	return m, err
}

// log leaves out what is for debugging only.
func (linux) log(lines int) []string {
	all, err := linuxguest.ReadLog()
	if err != nil {
		return nil // an ordinary process may not be allowed to
	}
	var out []string
	for _, l := range all {
		if l.Level != linuxguest.Debug {
			out = append(out, l.Text)
		}
	}
	return out[max(0, len(out)-lines):]
}

// moduleFile returns the file of a module, by the kernel's modules.dep.
func moduleFile(name string) (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	dir := filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:]))
	list, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return "", err
	}
	underscores := strings.NewReplacer("-", "_")
	for line := range strings.Lines(string(list)) {
		file, _, _ := strings.Cut(line, ":")
		base, _, _ := strings.Cut(filepath.Base(file), ".ko")
		if underscores.Replace(base) == underscores.Replace(name) {
			return filepath.Join(dir, file), nil
		}
	}
	return "", fmt.Errorf("no module %s in %s/modules.dep", name, dir)
}

package kmod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Module is a module that is loaded.
type Module struct {
	name string
	// Probe is the address of the probe's function that runs programs, Frame that of
	// the module's frame, Memory that of the memory that it was loaded with.
	Probe, Frame, Memory uint64

	control, put uint64
	file         int
	guarded      bool // the kernel was told of the guard

	mu    sync.Mutex // one at a time: what is read was asked for by a write
	from  uint64     // what the control block has
	count int        // in bytes
}

// Load loads a module that [Image] made under a name, with memory bytes of contiguous
// memory, which is aligned to 4096 bytes; 0 for none. An error that is the kernel's refusal
// wraps a Refusal.
func Load(name string, image []byte, memory int) (*Module, error) {
	const align = 4096
	args := ""
	if memory > 0 {
		// What the parameter is given begins somewhere in a page, and ends with a zero byte.
		args = paramMemory + "=" + strings.Repeat("0", memory+align)
	}
	logged := kernelLog()
	if err := unix.InitModule(image, args); err != nil {
		return nil, refused(name, err, since(logged, kernelLog()))
	}
	m := &Module{name: name, file: -1}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.Unload())
	}
	if memory > 0 {
		m.Memory = (m.Memory + align - 1) &^ (align - 1)
		zeros := make([]byte, memory)
		if err := m.Write(m.Memory, zeros); err != nil {
			return nil, errors.Join(err, m.Unload())
		}
	}
	return m, nil
}

func (m *Module) open() (err error) {
	name := m.File()
	if m.file, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("kmod: open the module's file %s: %w; is /sys mounted?", name, err)
	}
	block, err := m.read(controlSize)
	if err != nil {
		return err
	}
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(block[at:]) }
	m.control, m.put = word(controlSelf), word(controlPut)
	m.from, m.count = m.control, controlSize
	m.Probe, m.Frame, m.Memory = word(controlRun), word(controlFrame), word(controlMemory)
	return nil
}

// File is the name of the file by which to speak with the module.
func (m *Module) File() string { return filepath.Join("/sys/module", m.name, "parameters", paramCall) }

// Call has the kernel call a function on the CPU of the calling thread and returns its
// result. All other use of the module waits until then.
func (m *Module) Call(function uint64, args ...uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The result is in the control block, which has to be what is read next.
	if err := m.aim(m.control, controlSize); err != nil {
		return 0, err
	}
	var call [4]uint64
	call[0] = function
	copy(call[1:], args)
	if err := m.write(words(call[:]...)); err != nil {
		return 0, err
	}
	block, err := m.read(controlSize)
	if err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(block[controlResult:]), nil
}

// Write writes words to memory, each by one access. Address and length are multiples of 8. The
// kernel does not survive an address that there is no memory at.
func (m *Module) Write(address uint64, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.putWords(address, content)
}

func (m *Module) putWords(address uint64, content []byte) error {
	for len(content) > 0 {
		n := min(len(content), maxWrite)
		if err := m.write(append(words(m.put, address, uint64(n/8), 0), content[:n]...)); err != nil {
			return err
		}
		address, content = address+uint64(n), content[n:]
	}
	return nil
}

// Read fills content from memory, as Write writes it.
func (m *Module) Read(address uint64, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(content) > 0 {
		n := min(len(content), maxRead)
		if err := m.aim(address, n); err != nil {
			return err
		}
		block, err := m.read(n)
		if err != nil {
			return err
		}
		copy(content, block)
		address, content = address+uint64(n), content[n:]
	}
	return nil
}

// aim has reads read n bytes at an address.
func (m *Module) aim(address uint64, n int) error {
	if m.from == address && m.count == n {
		return nil
	}
	m.count = 0 // unknown, if that fails
	if err := m.putWords(m.control+controlFrom, words(address, uint64(n/8))); err != nil {
		return err
	}
	m.from, m.count = address, n
	return nil
}

// write writes to the module's file.
func (m *Module) write(content []byte) error {
	n, err := unix.Write(m.file, content)
	if err == nil && n != len(content) {
		err = fmt.Errorf("%d bytes were taken", n)
	}
	if err != nil {
		return fmt.Errorf("kmod: write %d bytes to module %s: %w", len(content), m.name, err)
	}
	return nil
}

// read reads n bytes from the module's file, all that it has to read.
func (m *Module) read(n int) ([]byte, error) {
	block := make([]byte, n+1)
	got, err := unix.Pread(m.file, block, 0)
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes came", got)
	}
	if err != nil {
		return nil, fmt.Errorf("kmod: read %d bytes from module %s: %w", n, m.name, err)
	}
	return block[:n], nil
}

// Guard has the kernel go on after instructions that the machine does not have, those of
// Probe.Illegal, which there must be. It lasts until the module is unloaded.
func (m *Module) Guard() error {
	if err := m.notifier("register_die_notifier"); err != nil {
		return err
	}
	m.guarded = true
	return nil
}

// notifier calls a function of the kernel with the guard.
func (m *Module) notifier(function string) error {
	address, err := functionAt(function)
	if err != nil {
		return err
	}
	status, err := m.Call(address, m.control+controlSize)
	if err == nil && int32(status) != 0 {
		err = fmt.Errorf("kmod: the kernel's %s gives %d", function, int32(status))
	}
	return err
}

// functionAt is the address of a function of the kernel.
func functionAt(name string) (uint64, error) {
	const file = "/proc/kallsyms"
	all, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("kmod: where the kernel's %s is: %w; is /proc mounted?", name, err)
	}
	for line := range strings.Lines(string(all)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == name {
			address, err := strconv.ParseUint(f[0], 16, 64)
			if err != nil || address == 0 {
				return 0, fmt.Errorf("kmod: %s does not tell where the kernel's %s is: %q; set /proc/sys/kernel/kptr_restrict to 0", file, name, strings.TrimSpace(line))
			}
			return address, nil
		}
	}
	return 0, fmt.Errorf("kmod: %s has no %s; the kernel is built without its symbols", file, name)
}

// Unload unloads the module. It must be idle.
func (m *Module) Unload() error {
	var closed error
	if m.guarded {
		if err := m.notifier("unregister_die_notifier"); err != nil {
			return err // the kernel still calls into it
		}
		m.guarded = false
	}
	if m.file >= 0 {
		closed = unix.Close(m.file)
		m.file = -1
	}
	return errors.Join(closed, Unload(m.name))
}

// Unload unloads a module by its name. It must be idle.
func Unload(name string) error {
	if err := unix.DeleteModule(name, unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("kmod: unload module %s: %w; rmmod %s does it, too", name, err, name)
	}
	return nil
}

// kernelLog returns the kernel's log, or nothing where it may not be read.
func kernelLog() string {
	size, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err != nil {
		return ""
	}
	buffer := make([]byte, size)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

// since returns what is in the kernel's log now and was not before.
func since(before, now string) string {
	lines := strings.SplitAfter(before, "\n")
	if last := lines[max(0, len(lines)-2)]; last != "" { // the last one is empty
		_, now, _ = strings.Cut(now, last)
	}
	return now
}

// refused tells why the kernel did not take a module: it says an errno, and more of it in its
// log (kernel/module/main.c, may_init_module and load_module; kernel/module/signing.c).
func refused(name string, err error, log string) error {
	said := ""
	if lines := strings.TrimSpace(log); lines != "" {
		said = "; the kernel's log says:\n" + lines
	}
	because := func(r Refusal) error {
		return fmt.Errorf("kmod: load module %s: %w: %w%s", name, r, err, said)
	}
	switch {
	case errors.Is(err, unix.ENOSYS):
		return because(NoModules)
	case errors.Is(err, unix.EKEYREJECTED), errors.Is(err, unix.ENOKEY):
		return because(Signature)
	case errors.Is(err, unix.ENOEXEC):
		return because(OtherKernel)
	case errors.Is(err, unix.EPERM) && holds("/proc/sys/kernel/modules_disabled", "1"):
		return because(Disabled)
	case errors.Is(err, unix.EPERM) && !capable():
		return because(NotAllowed)
	case errors.Is(err, unix.EPERM) && lockedDown(log):
		return because(Lockdown)
	}
	return fmt.Errorf("kmod: load module %s: %w%s", name, err, said)
}

func holds(file, want string) bool {
	content, err := os.ReadFile(file)
	return err == nil && string(bytes.TrimSpace(content)) == want
}

// capable tells whether the process has CAP_SYS_MODULE.
func capable() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return err == nil && data[0].Effective>>unix.CAP_SYS_MODULE&1 == 1
}

// lockedDown tells whether the kernel is, by its file of that if it is mounted, where the
// level is in brackets, or by what it says when it refuses (security/lockdown/lockdown.c).
func lockedDown(log string) bool {
	level, err := os.ReadFile("/sys/kernel/security/lockdown")
	return err == nil && !bytes.Contains(level, []byte("[none]")) || strings.Contains(log, "Lockdown: ")
}

// Real returns what a hypervisor knows memory by, that a module was loaded with: its
// address in the guest's physical memory. The kernel tells where it has mapped all of it in
// the headers of its own memory's image (fs/proc/kcore.c, read_kcore_iter).
func Real(address uint64) (uint64, error) {
	const name = "/proc/kcore"
	f, err := elf.Open(name)
	if err != nil {
		return 0, fmt.Errorf("kmod: where the kernel's memory is mapped: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Paddr != ^uint64(0) && address-p.Vaddr < p.Memsz {
			return p.Paddr + address - p.Vaddr, nil
		}
	}
	return 0, fmt.Errorf("kmod: %s says nothing of address %#x", name, address)
}

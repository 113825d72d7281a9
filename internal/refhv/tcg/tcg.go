// Package tcg has the transports of package refhv to a stock QEMU that emulates LoongArch, which
// knows nothing of a hypervisor below the guest.
//
// # How a CPU comes out
//
// By breakpoints of QEMU's gdbstub, with nothing but this process and QEMU (gdbstub.go), or by a plugin
// of QEMU's TCG, which takes a C compiler (plugin.go and plugin/forward.c). Both have all CPUs stand still while
// one is out, and let a CPU be held while others run.
//
// A guest of KVM leaves by HVCL, by CPUCFG and IOCSRRD of what is the hypervisor's, and by IDLE. That of a
// module comes out, so that the hypervisor knows of the wait; the kernel's own would stop all CPUs each
// time that one has nothing to do. An HVCL of a process stays illegal.
//
// # How it goes back
//
// Interrupts and memory are QEMU's qtest's: an input line of the CPU is a bit of ESTAT, as it is for
// KVM.
//
// # What it takes
//
// QEMU 11 or later. Up to 10.1 gdbstub threw away all translated code at each stop, which takes
// minutes (gdbstub/system.c, tb_flush), and QEMU before 10 does not boot such a kernel. The plugin takes
// version 7 of QEMU's API of plugins, of 11.1.
package tcg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"pvabi/abi"
	"pvabi/internal/refhv"
	"pvabi/internal/remote"
)

// Link is how a guest of QEMU is reached.
type Link struct {
	kernel *Kernel
	table  *abi.Platform
	// plugin is a file, empty for gdbstub.
	plugin           string
	cpus, qtest, qmp string // sockets
}

// NewLink is a link by sockets in a folder that is whoever's calls, by a plugin that [BuildPlugin] has built, or,
// where that is empty, by gdbstub.
func NewLink(dir, plugin string, kernel *Kernel, table *abi.Platform) Link {
	in := func(name string) string { return filepath.Join(dir, name) }
	return Link{kernel, table, plugin, in("cpus"), in("qtest"), in("qmp")}
}

// escaped is a file's name in an argument of QEMU's that is a list.
func escaped(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// Args are the arguments by which QEMU makes the sockets and waits for Open before it starts the
// CPUs.
func (l Link) Args() []string {
	unix := func(path string) string { return "unix:" + escaped(path) + ",server=on,wait=off" }
	args := []string{"-S", "-qtest", unix(l.qtest), "-qtest-log", "/dev/null", "-qmp", unix(l.qmp)}
	if l.plugin != "" {
		return append(args, "-plugin", l.pluginArgument())
	}
	return append(args, "-gdb", unix(l.cpus))
}

// Open connects to a QEMU that is being started. The CPUs begin to run at the first Next.
func (l Link) Open(ctx context.Context) (refhv.Trap, error) {
	m := machine{table: l.table, kernel: l.kernel}
	open := func() (refhv.Trap, error) {
		if err := m.connect(ctx, l); err != nil {
			return nil, err
		}
		if l.plugin != "" {
			return openPlugged(ctx, m, l.cpus)
		}
		return openStopped(ctx, m, l.cpus)
	}
	t, err := open()
	if err != nil {
		return nil, fmt.Errorf("reach QEMU: %w", errors.Join(err, m.Close()))
	}
	return t, nil
}

// machine is what both transports have: all but how CPUs come out.
type machine struct {
	table  *abi.Platform
	kernel *Kernel
	qtest  *remote.QTest
	qmp    *remote.QMP
	cpus   []remote.CPU
	ram    []span
	// checked tells that the kernel was found where it was looked for.
	checked bool
}

// span is a range of memory, both ends included.
type span struct{ first, last uint64 }

// connect connects to all but what CPUs come out by, and asks what there is.
func (m *machine) connect(ctx context.Context, l Link) error {
	conn, err := remote.Dial(ctx, l.qmp)
	if err != nil {
		return err
	}
	if m.qmp, err = remote.NewQMP(conn); err != nil {
		return err
	}
	if conn, err = remote.Dial(ctx, l.qtest); err != nil {
		return err
	}
	m.qtest = remote.NewQTest(conn)
	if m.cpus, err = m.qmp.CPUs(); err != nil {
		return err
	}
	for _, c := range m.cpus {
		if c.Props.Socket != 0 || c.Props.Thread != 0 || c.Props.Core != c.Index {
			return fmt.Errorf("CPU %d is socket %d, core %d, thread %d; the number that it goes by is known for one socket without threads only",
				c.Index, c.Props.Socket, c.Props.Core, c.Props.Thread)
		}
	}
	tree, err := m.qmp.Monitor(0, "info mtree -f")
	if err != nil {
		return err
	}
	if m.ram = memory(tree); len(m.ram) == 0 {
		return errors.New("QEMU's monitor lists no memory")
	}
	return nil
}

// Close ends the connections. QEMU goes on without a hypervisor, if it has not ended.
func (m *machine) Close() error {
	var errs []error
	if m.qtest != nil {
		errs = append(errs, m.qtest.Close())
	}
	if m.qmp != nil {
		errs = append(errs, m.qmp.Close())
	}
	return errors.Join(errs...)
}

// ours tells whether a word of CPUCFG or an address of IOCSR is the hypervisor's business.
func (m *machine) ours(kind Kind, number uint64) bool {
	switch kind {
	case CPUCFG:
		word := uint64(uint32(number))
		return word >= m.table.Word("first-word") && word <= m.table.Word("last-word")
	case IOCSRRD:
		return number == uint64(uint32(m.table.Register("FEATURES").Number))
	}
	return true
}

// ramLine is a line of the monitor's "info mtree -f" about memory.
var ramLine = regexp.MustCompile(`^\s+([0-9a-f]{16})-([0-9a-f]{16}) \(prio -?\d+, ram\): `)

// memory finds the ranges of memory in what the monitor lists of the address space "memory".
func memory(tree string) []span {
	var out []span
	inside := false
	for line := range strings.Lines(tree) {
		switch {
		case strings.HasPrefix(line, "FlatView"):
			inside = false
		case strings.Contains(line, `AS "memory"`):
			inside = true
		}
		m := ramLine.FindStringSubmatch(line)
		if m == nil || !inside {
			continue
		}
		first, err1 := strconv.ParseUint(m[1], 16, 64)
		last, err2 := strconv.ParseUint(m[2], 16, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		if n := len(out); n > 0 && out[n-1].last+1 == first {
			out[n-1].last = last
			continue
		}
		out = append(out, span{first, last})
	}
	return out
}

// CPUs implements refhv.Trap.
func (m *machine) CPUs() int { return len(m.cpus) }

// ID implements refhv.Trap.
func (m *machine) ID(cpu int) uint64 { return uint64(m.cpus[cpu].Props.Core) }

// Memory implements refhv.Trap.
func (m *machine) Memory(address, size uint64) bool {
	return slices.ContainsFunc(m.ram, func(s span) bool {
		return address >= s.first && address <= s.last && size-1 <= s.last-address
	})
}

// Read implements refhv.Trap.
func (m *machine) Read(address uint64, size int) ([]byte, error) {
	b, err := m.qtest.Read(address, size)
	return b, ended(err)
}

// Write implements refhv.Trap.
func (m *machine) Write(address uint64, b []byte) error { return ended(m.qtest.Write(address, b)) }

// ended has an error of a QEMU that is no more tell so; a connection is closed on this side for nothing else.
func ended(err error) error {
	if errors.Is(err, remote.ErrExited) || errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%w: %w", refhv.ErrEnded, err)
	}
	return err
}

// Interrupt implements refhv.Trap.
func (m *machine) Interrupt(cpu int, lines uint64) error {
	for line := range 64 {
		if lines>>line&1 == 0 {
			continue
		}
		if err := m.qtest.SetIRQ(m.cpus[cpu].Path, "unnamed-gpio-in", line, 1); err != nil {
			return ended(err)
		}
	}
	return nil
}

// unchecked tells that the code in memory at an address is still to be held against the kernel's.
func (m *machine) unchecked(address uint64) bool { return !m.checked && m.kernel.has(address) }

// check makes sure that an instruction of the kernel's is there where the sites were found. Some are
// patched at boot; a site is not.
func (m *machine) check(address uint64, instruction uint32) error {
	want := binary.LittleEndian.Uint32(m.kernel.Text[address-m.kernel.Base:])
	if instruction != want {
		return fmt.Errorf("the guest's kernel at %#x is %08x, and %08x in its file: it does not run where its file says; boot it with nokaslr", address, instruction, want)
	}
	m.checked = true
	return nil
}

// Package privcmd is the carrier into Xen from the user space of a domain that may make
// hypercalls there: /dev/xen/privcmd of a Linux domain 0. It implements [arch.Machine].
//
// The machine's CPUs are vCPUs of the domain, all that are online but the first. Programs are
// interpreted by Go code, in a thread that may only use the vCPU in question. A Call is a hypercall
// that the kernel's driver makes for the thread (drivers/xen/privcmd.c, privcmd_ioctl_hypercall);
// of its registers, those of number and arguments go in, and only that of the result comes back.
// A CPU without privilege (User of [microvm.Config]) executes the instruction itself. A Discover
// is CPUID with the prefix by which Xen answers it. What user space cannot do is an error of
// Start: registers of the CPU, its interrupts, its vector registers.
//
// # Wait
//
// A CPU's ID is the port of an event channel that is bound to its vCPU, masked, as the kernel has
// one for the kicks of its locks. A Wait polls that port without a timeout, as the kernel does
// while it waits for a lock, and clears pending where it finds it set. With Arg[0] = 1 the wait is
// over whatever ended the poll: any event that the kernel takes does. With Arg[0] = 0 only the
// port's being pending ends it, and any other end has it poll again: user space cannot keep
// events from the kernel, and so takes them for none. Result.Value counts the polls.
//
// Pending and masked are bits in memory that domain and hypervisor share. The machine maps it,
// which takes a kernel that has events go by them: xen.fifo_events=0.
//
// # Asleep
//
// The thread of a CPU that runs a program never sleeps in the kernel, so that a vCPU which the
// hypervisor says is blocked while its thread is in a hypercall is blocked by that. [Machine.Asleep]
// goes by it. Crowd returns an error: who gets which CPU is Xen's to say; a Xen with one CPU has
// all vCPUs compete for it.
//
// # What is given back
//
// An area that a program registers is the process's memory, to which the hypervisor would go on
// writing. The machine notes ports that are opened and areas that are registered; Reset and Close
// close the ones and take back the others, of which the kernel's own of the runstate is registered
// again. If the process dies, a second one that watches it does the same.
package privcmd

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"pvabi/abi"
	"pvabi/conformance/microvm"
)

// table has the numbers by which the carrier itself speaks with Xen. What is under test comes in
// the registers of a Call.
var table = abi.X86Xen()

// offset returns where a member of a structure is.
func offset(layout, field string) uint64 { return table.Layout(layout).Field(field).Offset }

// operation is a hypercall with an operation: its number and the operation's.
type operation struct{ hypercall, number uint64 }

func operationOf(name string) operation {
	c := table.Call(name)
	return operation{table.Call(c.Convention).Number, c.Number}
}

// The operations that the carrier makes, or looks for among those of programs.
var (
	opPoll            = operationOf("poll")
	opSend            = operationOf("send")
	opClose           = operationOf("close")
	opBindIPI         = operationOf("bind_ipi")
	opAllocUnbound    = operationOf("alloc_unbound")
	opBindInterdomain = operationOf("bind_interdomain")
	opIsUp            = operationOf("is_up")
	opGetRunstate     = operationOf("get_runstate_info")
	opRunstate        = operationOf("register_runstate_memory_area")
	opTime            = operationOf("register_vcpu_time_memory_area")
	opRunstatePhys    = operationOf("register_runstate_phys_area")
	opTimePhys        = operationOf("register_vcpu_time_phys_area")
)

// opens are the operations that open a port, with where in their argument they leave it.
var opens = map[operation]uint64{
	opBindIPI:         offset("evtchn_bind_ipi", "port"),
	opAllocUnbound:    offset("evtchn_alloc_unbound", "port"),
	opBindInterdomain: offset("evtchn_bind_interdomain", "local_port"),
}

// symbols finds variables of the kernel among its symbols, a line each with address, type and
// name, and returns their addresses in the order of the names.
func symbols(r io.Reader, names ...string) ([]uint64, error) {
	out, left := make([]uint64, len(names)), len(names)
	lines := bufio.NewScanner(bufio.NewReaderSize(r, 1<<16))
	for left > 0 && lines.Scan() {
		line := lines.Bytes()
		for i, name := range names {
			if !bytes.HasSuffix(line, []byte(name)) || len(line) < len(name)+1 || line[len(line)-len(name)-1] != ' ' {
				continue
			}
			word, _, _ := bytes.Cut(line, []byte(" "))
			address, err := strconv.ParseUint(string(word), 16, 64)
			if err != nil {
				return nil, fmt.Errorf("privcmd: address of %s in /proc/kallsyms: %w", name, err)
			}
			out[i] = address
			left--
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("privcmd: read /proc/kallsyms: %w", err)
	}
	for i, address := range out {
		if address == 0 {
			return nil, fmt.Errorf("privcmd: no address of %s in /proc/kallsyms; run as root with kptr_restrict at 0 or 1, on a kernel with CONFIG_KALLSYMS_ALL and CONFIG_XEN_PV", names[i])
		}
	}
	return out, nil
}

// core reads the kernel's memory from its image, /proc/kcore.
type core struct {
	file  io.ReaderAt
	progs []*elf.Prog
}

func newCore(file io.ReaderAt) (*core, error) {
	f, err := elf.NewFile(file)
	if err != nil {
		return nil, fmt.Errorf("privcmd: /proc/kcore: %w", err)
	}
	return &core{file, f.Progs}, nil
}

// read reads memory of the kernel's into b.
func (c *core) read(address uint64, b []byte) error {
	for _, p := range c.progs {
		if p.Type == elf.PT_LOAD && address-p.Vaddr < p.Memsz && p.Memsz-(address-p.Vaddr) >= uint64(len(b)) {
			if _, err := c.file.ReadAt(b, int64(p.Off+address-p.Vaddr)); err != nil {
				return fmt.Errorf("privcmd: read %d bytes of the kernel's memory at %#x: %w", len(b), address, err)
			}
			return nil
		}
	}
	return fmt.Errorf("privcmd: /proc/kcore says nothing of address %#x", address)
}

// word reads a word of the kernel's memory.
func (c *core) word(address uint64) (uint64, error) {
	var b [8]byte
	err := c.read(address, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// check tells why a configuration cannot be had, or nil.
func check(c microvm.Config) error {
	plain := microvm.Config{CPUs: c.CPUs, IDs: c.IDs, User: c.User}
	if c.Key() != plain.Key() {
		return fmt.Errorf("privcmd: a domain cannot choose what its hypervisor offers: %s", c.Key())
	}
	return nil
}

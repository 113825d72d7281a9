package kvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System is /dev/kvm.
type System struct {
	fd       int
	mmapSize int
}

var (
	systemLock sync.Mutex
	system     *System
)

// Open opens /dev/kvm for the life of the process, together with the machine that the
// package comment speaks of. The error says what is missing.
func Open() (*System, error) {
	systemLock.Lock()
	defer systemLock.Unlock()
	if system != nil {
		return system, nil
	}
	const name = "/dev/kvm"
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("kvm: %s: %w: load the modules kvm and kvm-amd or kvm-intel", name, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("kvm: %s: %w: run as a user that may read and write it", name, err)
	case err != nil:
		return nil, fmt.Errorf("kvm: %s: %w", name, err)
	}
	s := &System{fd: fd}
	if err := s.check(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	system = s
	return s, nil
}

// apiVersion is KVM_API_VERSION; api.rst says to refuse any other.
const apiVersion = 12

func (s *System) check() error {
	version, err := control(s.fd, getAPIVersion, 0)
	if err != nil {
		return fmt.Errorf("kvm: version: %w", err)
	}
	if version != apiVersion {
		return fmt.Errorf("kvm: version %d of the interface, not %d", version, apiVersion)
	}
	if s.mmapSize, err = control(s.fd, getVCPUMmapSize, 0); err != nil {
		return fmt.Errorf("kvm: size of struct kvm_run: %w", err)
	}
	if n, err := s.Check(CapImmediateExit); err != nil || n == 0 {
		return errors.Join(errors.New("kvm: no KVM_CAP_IMMEDIATE_EXIT; Linux has it since 4.13"), err)
	}
	// Held open by the kernel's own table of files, never closed.
	if _, err = control(s.fd, createVM, 0); err != nil {
		return fmt.Errorf("kvm: KVM_CREATE_VM: %w: is there virtualization in this processor, enabled by its firmware or hypervisor?", err)
	}
	return nil
}

// Check returns what KVM says of a capability, 0 if it has it not.
func (s *System) Check(c Capability) (int, error) {
	n, err := control(s.fd, checkExtension, uintptr(c))
	if err != nil {
		return 0, fmt.Errorf("kvm: capability %d: %w", c, err)
	}
	return n, nil
}

// Supported returns the leaves of CPUID that KVM can give a guest.
func (s *System) Supported() ([]Entry, error) {
	t := &cpuid{Count: maxCPUID}
	if err := pass(s.fd, getSupportedCPUID, t); err != nil {
		return nil, fmt.Errorf("kvm: KVM_GET_SUPPORTED_CPUID: %w", err)
	}
	return t.Entries[:t.Count], nil
}

// IRQChip says which interrupt controllers KVM emulates.
type IRQChip int

// What KVM emulates of them.
const (
	FullIRQChip  IRQChip = iota // all
	SplitIRQChip                // the CPUs' local ones
	NoIRQChip
)

// Config describes a machine.
type Config struct {
	// Memory is the size in bytes, a multiple of the page size, from address 0.
	Memory  int
	IRQChip IRQChip
	// WideIDs lets CPUs have APIC ids from 255 on.
	WideIDs bool
	// Masks for KVM_CAP_DISABLE_QUIRKS2, KVM_CAP_EXIT_HYPERCALL and
	// KVM_CAP_X86_DISABLE_EXITS.
	DisableQuirks, ExitHypercalls, DisableExits uint64
}

// VM is a machine.
type VM struct {
	// Memory is the guest's memory.
	Memory []byte

	system *System
	fd     int
	config Config
	cpus   []*VCPU
}

// ioapicPins is how many routes a split interrupt controller reserves, those of the
// usual I/O APIC.
const ioapicPins = 24

// tssAddress is where KVM may put three pages of its own, out of the way (api.rst,
// KVM_SET_TSS_ADDR); only some processors of Intel need it.
const tssAddress = 0xfffbd000

// NewVM makes a machine without CPUs.
func (s *System) NewVM(c Config) (*VM, error) {
	fd, err := control(s.fd, createVM, 0)
	if err != nil {
		return nil, fmt.Errorf("kvm: KVM_CREATE_VM: %w", err)
	}
	v := &VM{system: s, fd: fd, config: c}
	if err := v.setUp(); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

func (v *VM) setUp() error {
	if _, err := control(v.fd, setTSSAddress, tssAddress); err != nil {
		return fmt.Errorf("kvm: KVM_SET_TSS_ADDR: %w", err)
	}
	for _, e := range []struct {
		on   bool
		cap  Capability
		name string
		arg  uint64
	}{
		{v.config.IRQChip == SplitIRQChip, CapSplitIRQChip, "KVM_CAP_SPLIT_IRQCHIP", ioapicPins},
		{v.config.WideIDs, CapX2APICAPI, "KVM_CAP_X2APIC_API", 1<<0 | 1<<1}, // 32-bit ids, no broadcast quirk
		{v.config.DisableQuirks != 0, CapDisableQuirks, "KVM_CAP_DISABLE_QUIRKS2", v.config.DisableQuirks},
		{v.config.ExitHypercalls != 0, CapExitHypercall, "KVM_CAP_EXIT_HYPERCALL", v.config.ExitHypercalls},
		{v.config.DisableExits != 0, CapDisableExits, "KVM_CAP_X86_DISABLE_EXITS", v.config.DisableExits},
	} {
		if !e.on {
			continue
		}
		if err := enable(v.fd, e.cap, e.name, e.arg); err != nil {
			return err
		}
	}
	if v.config.IRQChip == FullIRQChip {
		if _, err := control(v.fd, createIRQChip, 0); err != nil {
			return fmt.Errorf("kvm: KVM_CREATE_IRQCHIP: %w", err)
		}
	}
	var err error
	v.Memory, err = unix.Mmap(-1, 0, v.config.Memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("kvm: %d bytes of memory: %w", v.config.Memory, err)
	}
	r := memoryRegion{Size: uint64(len(v.Memory)), Local: uint64(uintptr(unsafe.Pointer(&v.Memory[0])))}
	if err := pass(v.fd, setMemoryRegion, &r); err != nil {
		return fmt.Errorf("kvm: KVM_SET_USER_MEMORY_REGION: %w", err)
	}
	return nil
}

// Close ends the threads of the CPUs, which must not run, and gives everything back.
func (v *VM) Close() error {
	var errs []error
	for _, c := range v.cpus {
		errs = append(errs, c.close())
	}
	errs = append(errs, unix.Close(v.fd))
	if v.Memory != nil {
		errs = append(errs, unix.Munmap(v.Memory))
	}
	return errors.Join(errs...)
}

// statistics opens the statistics of a machine or a CPU.
func statistics(fd int) (*Statistics, *os.File, error) {
	s, err := control(fd, getStatsFD, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("kvm: KVM_GET_STATS_FD: %w; Linux has it since 5.14", err)
	}
	file := os.NewFile(uintptr(s), "kvm-statistics")
	stats, err := NewStatistics(file)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return stats, file, nil
}

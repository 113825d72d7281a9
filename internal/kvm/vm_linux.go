//go:build amd64 || ppc64le

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
	held     int // the file of the machine that is held open
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
		return nil, fmt.Errorf("kvm: %s: %w: load the modules %s", name, err, modules)
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
	if s.held, err = control(s.fd, createVM, vmType); err != nil {
		return fmt.Errorf("kvm: KVM_CREATE_VM: %w: %s", err, noVM)
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

// VM is a machine.
type VM struct {
	// Memory is the guest's memory.
	Memory []byte

	system  *System
	fd      int
	config  Config
	devices []int // files of what KVM emulates for the machine
	cpus    []*VCPU
	vmArch
}

// NewVM makes a machine without CPUs.
func (s *System) NewVM(c Config) (*VM, error) {
	fd, err := control(s.fd, createVM, vmType)
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
	if err := v.setUpArch(); err != nil {
		return err
	}
	var err error
	kind := unix.MAP_SHARED // which userfaultfd and MADV_REMOVE need
	if v.config.Large {
		kind = unix.MAP_PRIVATE
	}
	v.Memory, err = unix.Mmap(-1, 0, v.config.Memory, unix.PROT_READ|unix.PROT_WRITE, kind|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("kvm: %d bytes of memory: %w", v.config.Memory, err)
	}
	if v.config.Large {
		// A kernel without large pages does as well, slowly.
		if err := unix.Madvise(v.Memory, unix.MADV_HUGEPAGE); err != nil && err != unix.EINVAL {
			return fmt.Errorf("kvm: large pages for %d bytes of memory: %w", v.config.Memory, err)
		}
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
	for _, d := range v.devices {
		errs = append(errs, unix.Close(d))
	}
	errs = append(errs, v.closeArch(), unix.Close(v.fd))
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

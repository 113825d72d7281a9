package linuxguest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pvabi/conformance"
)

// Contend implements conformance.Contender.
func (k *Kernel) Contend(lock conformance.Lock, cpus []int, during func() error) error {
	take, free, err := lockers[lock]()
	if err != nil {
		return fmt.Errorf("have CPUs contend for a lock: %w", err)
	}
	var stop atomic.Bool
	var threads, idle sync.WaitGroup
	ended := make([]error, len(cpus))
	idle.Add(len(cpus))
	for i, cpu := range cpus {
		threads.Go(func() {
			took := sync.OnceFunc(idle.Done)
			defer took() // also where it fails
			ended[i] = k.Pinned(cpu, func() error {
				for !stop.Load() {
					if err := take(); err != nil {
						return err
					}
					took()
				}
				return nil
			})
		})
	}
	// Also where during panics, as a check does that ends early.
	defer func() {
		stop.Store(true)
		threads.Wait()
		free()
	}()
	idle.Wait()
	err = during()
	stop.Store(true)
	threads.Wait()
	return errors.Join(append(ended, err)...)
}

// Doze implements conformance.Contender.
func (*Kernel) Doze(cpus []int) error {
	return onCPUs(cpus, func() error {
		moment := unix.NsecToTimespec(1)
		if err := unix.Nanosleep(&moment, nil); err != nil && err != unix.EINTR {
			return fmt.Errorf("nanosleep: %w", err)
		}
		return nil
	})
}

// lockers make what takes a lock of the kernel, for long, and lets go of it; several threads can do
// so at once.
var lockers = map[conformance.Lock]func() (take func() error, free func(), err error){
	conformance.SpinLock:  spinLocker,
	conformance.SleepLock: sleepLocker,
}

// spinLocker adds to an eventfd that many others wait for: the kernel tells each of them while it
// holds the spinlock of the eventfd's wait queue (fs/eventfd.c, eventfd_write; fs/eventpoll.c,
// ep_poll_callback). They are so many that it takes longer than others spin before they wait to be
// kicked (SPIN_THRESHOLD of kernel/locking/qspinlock_paravirt.h): with 500 they hardly ever came to
// that. Each of some epoll files waits for each of some descriptors of the one eventfd.
func spinLocker() (take func() error, free func(), err error) {
	const side = 200
	var files []int
	closeAll := func() {
		for _, f := range files {
			_ = unix.Close(f)
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, nil, fmt.Errorf("eventfd: %w", err)
	}
	files = append(files, event)
	for range side - 1 {
		again, err := unix.FcntlInt(uintptr(event), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("one of %d descriptors of an eventfd: %w", side, err)
		}
		files = append(files, again)
	}
	events := files[:side:side]
	for range side {
		poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return nil, nil, fmt.Errorf("one of %d files that wait for an eventfd: %w", side, err)
		}
		files = append(files, poll)
		for _, f := range events {
			if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, f, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
				return nil, nil, fmt.Errorf("one of %d that wait for an eventfd: %w", side*side, err)
			}
		}
	}
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	return func() error {
		_, err := unix.Write(event, one)
		return err
	}, closeAll, nil
}

// sleepLocker writes to a file, over and over the same part of it: the kernel holds the lock of the
// inode, for whose owner others spin while that runs (kernel/locking/rwsem.c, rwsem_spin_on_owner).
func sleepLocker() (take func() error, free func(), err error) {
	f, err := os.CreateTemp("", "pvabi-lock-*")
	if err != nil {
		return nil, nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	content := make([]byte, 256<<10)
	return func() error {
		_, err := f.WriteAt(content, 0)
		return err
	}, func() { _ = f.Close() }, nil
}

// Package user is the carrier without privilege: what an ordinary process may do. It
// implements [arch.Machine] on the machine that it runs on, so that what answers is the
// hypervisor below that machine.
//
// Each program is run by a process of its own, this program started again, on the CPU
// that the machine's CPU stands for. Frame and areas lie in memory that both share. A
// program that does what it may not ends that process by a signal; its last operation
// then has the exception in its result, as on any other machine, but the operations
// after it are not run.
package user

import (
	"fmt"

	"pvabi/conformance/microvm"
)

// wants tells why a configuration cannot be had without privilege, or nil.
func wants(c microvm.Config) error {
	plain := microvm.Config{CPUs: c.CPUs, IDs: c.IDs, User: c.User}
	if c.Key() != plain.Key() {
		return fmt.Errorf("user: an ordinary process cannot choose what its hypervisor offers: %s", c.Key())
	}
	return nil
}

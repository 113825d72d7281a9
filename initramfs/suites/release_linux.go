package suites

import "pvabi/conformance/linuxguest"

// release is that of the kernel that runs.
func release() (string, error) { return linuxguest.Release() }

//go:build !linux || !(amd64 || loong64 || ppc64le || s390x)

package suites

// Locals are the targets that this machine can be.
func Locals() []Local { return []Local{X86KVMBelow()} }

//go:build amd64 || ppc64le || s390x

package kmod

import "pvabi/arch"

// illegal is none: on these machines the carrier looks after all exceptions in one way.
var illegal []arch.Op

const illegalTrap = 0

package agent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"pvabi/conformance"
)

// xenIdentity reads what Linux tells of the Xen below it in sys, the folder /sys/hypervisor
// (Documentation/ABI/stable/sysfs-hypervisor-xen, drivers/xen/sys-hypervisor.c).
func xenIdentity(sys fs.FS) (*conformance.XenIdentity, error) {
	var failed error
	read := func(name string) string {
		content, err := fs.ReadFile(sys, name)
		failed = errors.Join(failed, err)
		return strings.TrimSpace(string(content))
	}
	x := &conformance.XenIdentity{
		Version:   read("version/major") + "." + read("version/minor") + read("version/extra"),
		GuestType: read("guest_type"),
	}
	// Words of 32 bits in hexadecimal, the least significant last.
	features := read("properties/features")
	if failed != nil {
		return nil, fmt.Errorf("which Xen this is: %w", failed)
	}
	low, err := strconv.ParseUint(features[max(0, len(features)-8):], 16, 32)
	if err != nil {
		return nil, fmt.Errorf("which Xen this is: its features: %w", err)
	}
	x.Dom0 = low>>featureDom0&1 == 1
	// Raw bytes, or a word in brackets for a guest that may not know; a Xen that was linked
	// without has none, and reading fails.
	if id, err := fs.ReadFile(sys, "properties/buildid"); err == nil && string(id) != "<denied>" {
		x.BuildID = hex.EncodeToString(id)
	}
	return x, nil
}

// featureDom0 is the number of XENFEAT_dom0 (include/xen/interface/features.h).
const featureDom0 = 11

package suites

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"pvabi/conformance"
)

// hypertasFile has the names of what a PAPR hypervisor offers, in a device tree.
const hypertasFile = "rtas/ibm,hypertas-functions"

// paprBelow tells from the device tree of a PAPR guest, and from its /proc/cpuinfo, whose
// hypervisor is below it, and what of that a guest cannot know. An error says that there is none.
//
// QEMU's machine names itself at the root of the tree, and has a node /hypervisor only if KVM
// answers the calls (QEMU 10.0.13, hw/ppc/spapr.c, spapr_build_fdt and spapr_dt_hypervisor). A
// guest that translates addresses by radix trees has KVM-HV below: KVM's other implementation does
// not have these (Linux 7.2, arch/powerpc/kvm/powerpc.c, KVM_CAP_PPC_MMU_RADIX). PowerVM is told
// by what Linux tells it by (arch/powerpc/platforms/pseries/setup.c, pseries_add_hw_description).
func paprBelow(tree fs.FS, cpuinfo string) (i conformance.Implementer, unknown string, err error) {
	property := func(name string) (value string, ok bool) {
		content, e := fs.ReadFile(tree, name)
		if e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("the device tree: %w", e))
		}
		value, _, _ = strings.Cut(string(content), "\x00")
		return value, e == nil
	}
	_, guest := property(hypertasFile)
	kind, _ := property("compatible")
	model, _ := property("model")
	hypervisor, _ := property("hypervisor/compatible")
	firmware, _ := property("openprom/model")
	_, partition := property("ibm,powervm-partition")
	_, booted := property("ibm,fw-net-version")
	const version = "its version, which no guest can tell"
	switch {
	case err != nil:
		return i, "", err
	case !guest:
		return i, "", fmt.Errorf("no PAPR hypervisor below this machine: its device tree, of model %q, has no %s", model, hypertasFile)
	case hypervisor == "linux,kvm" && radix(cpuinfo):
		return conformance.Implementer{Name: "Linux KVM-HV"}, "the host's version; and QEMU, or another VMM, answers what KVM leaves to it", nil
	case hypervisor == "linux,kvm":
		return conformance.Implementer{Name: "Linux KVM"}, "whether this is KVM-HV or KVM-PR, and the host's version; and QEMU, or another VMM, answers what KVM leaves to it", nil
	case hypervisor != "":
		return conformance.Implementer{Name: hypervisor}, version, nil
	case kind == "qemu,pseries":
		return conformance.Implementer{Name: "QEMU"}, version, nil
	case partition || booted:
		return conformance.Implementer{Name: "PowerVM", Version: firmware}, "", nil
	}
	return conformance.Implementer{Name: fmt.Sprintf("unknown, of model %q", model)}, "who made it, and its version", nil
}

// radix tells whether /proc/cpuinfo says that memory is translated by radix trees.
func radix(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "MMU" {
			return strings.TrimSpace(value) == "Radix"
		}
	}
	return false
}

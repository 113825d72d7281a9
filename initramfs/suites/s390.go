package suites

import (
	"errors"
	"fmt"
	"strings"

	"pvabi/conformance"
)

// s390Below tells from /proc/sysinfo, which has what the instruction STSI tells, who is below a
// machine, and what of that a guest cannot know. An error says that it is nobody whom the rules are
// about.
//
// QEMU's own machine tells of a manufacturer QEMU, and of the control program of KVM (QEMU
// 10.0.13, target/s390x/tcg/misc_helper.c, helper_stsi); under KVM the manufacturer is that of the
// real machine. The line VM00 is about the nearest of several hypervisors (Linux 7.2,
// arch/s390/kernel/sysinfo.c, stsi_3_2_2; arch/s390/kvm/priv.c, handle_stsi_3_2_2).
func s390Below(sysinfo string) (i conformance.Implementer, unknown string, err error) {
	lines := map[string]string{}
	for line := range strings.Lines(sysinfo) {
		name, value, _ := strings.Cut(line, ":")
		if _, twice := lines[name]; !twice {
			lines[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	const foreign = "has codes of its own where the rules, which are about KVM, say that there are none"
	switch program := lines["VM00 Control Program"]; {
	case lines["Manufacturer"] == "":
		return i, "", errors.New("/proc/sysinfo tells of no manufacturer; is this s390?")
	case lines["Manufacturer"] == "QEMU":
		return conformance.Implementer{Name: "QEMU"}, "its version, which no guest can tell", nil
	case program == "KVM/Linux":
		return conformance.Implementer{Name: "Linux KVM"}, "the host's version; and QEMU, or another VMM, answers what KVM leaves to it", nil
	case program != "":
		return i, "", fmt.Errorf("the hypervisor below this machine is %s, which %s", program, foreign)
	case lines["LPAR Number"] != "":
		return i, "", fmt.Errorf("this machine is the logical partition %q, without another hypervisor; its firmware %s", lines["LPAR Name"], foreign)
	}
	return i, "", errors.New("no hypervisor below this machine: /proc/sysinfo tells of none")
}

package conformance

import (
	"fmt"

	"pvabi/abi"
	"pvabi/conformance/microvm"
)

// PowerPCGuest is the suite for the guest's side of powerpc-papr: what the Linux of a release, k,
// does with the ABI. hypertas and open are as for PowerPCPAPR.
func PowerPCGuest(release string, k GuestKernel, hypertas []byte, open func(microvm.Config) (microvm.Machine, error)) *Suite {
	s := PowerPCPAPR(Implementer{Name: Linux, Version: release}, hypertas, open)
	s.Guest, s.Checks = k, paprGuestChecks()
	return s
}

// PowerPCGuestRules are the rules that PowerPCGuest has a result for, in the order of its results.
func PowerPCGuestRules() []abi.Rule {
	return (&Suite{ABI: abi.PowerPCPAPR(), Checks: paprGuestChecks()}).Rules()
}

// paprGuestChecks are the checks of the guest's side, in the order of the report.
func paprGuestChecks() []Check {
	return []Check{
		paprGuestAreas(),
	}
}

// guestArea reads the area that the guest's kernel has for a CPU, by the number that the kernel
// has for that. If it shows none, the rules are unreached.
func (t *T) guestArea(cpu int, rules ...string) (v vpa, ok bool) {
	text, ok := t.file(fmt.Sprintf("sys/kernel/debug/powerpc/vpa/cpu-%d", cpu),
		"debugfs, CONFIG_PPC_SPLPAR and a hypervisor that has hcall-splpar", rules...)
	v = vpa{t.ABI.Layout("lppaca"), []byte(text)}
	if ok && uint64(len(v.bytes)) < v.layout.Size {
		t.Fatal(fmt.Errorf("the kernel shows %d bytes of the area of CPU %d, less than %d", len(v.bytes), cpu, v.layout.Size))
	}
	return v, ok
}

// paprGuestAreas: what the kernel has written into the areas of its CPUs.
func paprGuestAreas() Check {
	const (
		size    = "guest/size-field"
		catcher = "guest/eye-catcher"
		vectors = "guest/keeps-vectors"
	)
	rules := []string{size, catcher, vectors}
	return Check{Rules: rules, Run: func(t *T) {
		for _, cpu := range t.online() {
			v, ok := t.guestArea(cpu, rules...)
			if !ok {
				return
			}
			of := fmt.Sprintf("CPU %d", cpu)
			t.Equal(size, of, t.Want(size, "size"), v.field("size"))
			t.Truth(size, of+": at least what a hypervisor takes", v.field("size") >= t.registration().limit("VPA_MINIMUM"))
			t.Equal(catcher, of, Hex(t.Want(catcher, "desc")), Hex(v.field("desc")))
			t.Equal(vectors, of, t.Want(vectors, "set"), v.field("vmxregs_in_use"))
		}
	}}
}

package suites

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"

	"pvabi/conformance"
)

func TestPAPRBelow(t *testing.T) {
	tree := func(properties ...string) fstest.MapFS {
		m := fstest.MapFS{}
		for i := 0; i < len(properties); i += 2 {
			m[properties[i]] = &fstest.MapFile{Data: []byte(properties[i+1] + "\x00")}
		}
		return m
	}
	const radix, hash = "processor\t: 0\nMMU\t\t: Radix\n", "MMU\t\t: Hash\n"
	for name, tt := range map[string]struct {
		tree          fstest.MapFS
		cpuinfo, want string
		version       string
		unknown, err  string // parts
	}{
		"QEMU":      {tree(hypertasFile, "hcall-pft", "compatible", "qemu,pseries"), radix, "QEMU", "", "its version", ""},
		"KVM-HV":    {tree(hypertasFile, "x", "compatible", "qemu,pseries", "hypervisor/compatible", "linux,kvm"), radix, "Linux KVM-HV", "", "the host's version", ""},
		"HV or PR":  {tree(hypertasFile, "x", "compatible", "qemu,pseries", "hypervisor/compatible", "linux,kvm"), hash, "Linux KVM", "", "whether this is KVM-HV or KVM-PR", ""},
		"PowerVM":   {tree(hypertasFile, "x", "compatible", "IBM,9080-HEX", "ibm,powervm-partition", "", "openprom/model", "IBM,FW1030.00"), radix, "PowerVM", "IBM,FW1030.00", "", ""},
		"other":     {tree(hypertasFile, "x", "hypervisor/compatible", "acme,hv"), radix, "acme,hv", "", "its version", ""},
		"nothing":   {tree(hypertasFile, "x", "model", "ACME 1"), radix, `unknown, of model "ACME 1"`, "", "who made it", ""},
		"no guest":  {tree("model", "PowerNV 9006-22P"), radix, "", "", "", "no PAPR hypervisor below this machine"},
		"not PAPR?": {tree(), "", "", "", "", "no PAPR hypervisor"},
	} {
		i, unknown, err := paprBelow(tt.tree, tt.cpuinfo)
		if tt.err != "" {
			assert.ErrorContains(t, err, tt.err, name)
			continue
		}
		assert.NoError(t, err, name)
		assert.Equal(t, conformance.Implementer{Name: tt.want, Version: tt.version}, i, name)
		assert.Contains(t, unknown, tt.unknown, name)
		assert.Equal(t, tt.unknown == "", unknown == "", name)
	}
}

func TestS390Below(t *testing.T) {
	const machine, partition = "Manufacturer:         IBM             \nType:                 8561\n", "LPAR Number:          12\nLPAR Name:            TEST\n"
	for name, tt := range map[string]struct{ sysinfo, want, err string }{
		"QEMU":         {"Manufacturer:         QEMU\nVM00 Control Program: KVM/Linux       \n", "QEMU", ""},
		"KVM":          {machine + partition + "VM00 Name:            guest\nVM00 Control Program: KVM/Linux       \n", "Linux KVM", ""},
		"KVM on z/VM":  {machine + partition + "VM00 Control Program: KVM/Linux       \nVM01 Control Program: z/VM    7.3.0   \n", "Linux KVM", ""},
		"z/VM":         {machine + partition + "VM00 Control Program: z/VM    7.3.0   \n", "", "is z/VM 7.3.0, which has codes of its own"},
		"partition":    {machine + partition, "", `logical partition "TEST"`},
		"machine":      {machine, "", "no hypervisor below this machine"},
		"empty":        {"", "", "no manufacturer"},
		"another file": {"processor 0: version = 00\n", "", "no manufacturer"},
	} {
		i, unknown, err := s390Below(tt.sysinfo)
		if tt.err != "" {
			assert.ErrorContains(t, err, tt.err, name)
			continue
		}
		assert.NoError(t, err, name)
		assert.Equal(t, conformance.Implementer{Name: tt.want}, i, name)
		assert.NotEmpty(t, unknown, name)
	}
}

package kvm

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIoctlNumbers(t *testing.T) {
	// As a C compiler makes them of include/uapi/linux/kvm.h of Linux 7.2 for PowerPC. The sizes of
	// structures are part of the numbers.
	for name, tc := range map[string][2]uintptr{
		"KVM_GET_API_VERSION":        {getAPIVersion, 0x2000ae00},
		"KVM_CREATE_VM":              {createVM, 0x2000ae01},
		"KVM_CHECK_EXTENSION":        {checkExtension, 0x2000ae03},
		"KVM_GET_VCPU_MMAP_SIZE":     {getVCPUMmapSize, 0x2000ae04},
		"KVM_CREATE_VCPU":            {createVCPU, 0x2000ae41},
		"KVM_SET_USER_MEMORY_REGION": {setMemoryRegion, 0x8020ae46},
		"KVM_RUN":                    {run, 0x2000ae80},
		"KVM_GET_REGS":               {getRegs, 0x4188ae81},
		"KVM_SET_REGS":               {setRegs, 0x8188ae82},
		"KVM_ENABLE_CAP":             {enableCapability, 0x8068aea3},
		"KVM_GET_ONE_REG":            {getOneReg, 0x8010aeab},
		"KVM_SET_ONE_REG":            {setOneReg, 0x8010aeac},
		"KVM_PPC_CONFIGURE_V3_MMU":   {configureV3MMU, 0x8010aeaf},
		"KVM_GET_STATS_FD":           {getStatsFD, 0x2000aece},
		"KVM_CREATE_DEVICE":          {createDevice, 0xc00caee0},
	} {
		assert.Equal(t, tc[1], tc[0], "%s: want %#x, got %#x", name, tc[1], tc[0])
	}
}

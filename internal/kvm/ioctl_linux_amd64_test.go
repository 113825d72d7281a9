package kvm

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIoctlNumbers(t *testing.T) {
	// As a C compiler makes them of include/uapi/linux/kvm.h of Linux 7.2. The sizes of
	// structures are part of the numbers.
	for name, tc := range map[string][2]uintptr{
		"KVM_GET_API_VERSION":        {getAPIVersion, 0xae00},
		"KVM_CREATE_VM":              {createVM, 0xae01},
		"KVM_CHECK_EXTENSION":        {checkExtension, 0xae03},
		"KVM_GET_VCPU_MMAP_SIZE":     {getVCPUMmapSize, 0xae04},
		"KVM_GET_SUPPORTED_CPUID":    {getSupportedCPUID, 0xc008ae05},
		"KVM_CREATE_VCPU":            {createVCPU, 0xae41},
		"KVM_SET_USER_MEMORY_REGION": {setMemoryRegion, 0x4020ae46},
		"KVM_SET_TSS_ADDR":           {setTSSAddress, 0xae47},
		"KVM_CREATE_IRQCHIP":         {createIRQChip, 0xae60},
		"KVM_RUN":                    {run, 0xae80},
		"KVM_GET_REGS":               {getRegs, 0x8090ae81},
		"KVM_SET_REGS":               {setRegs, 0x4090ae82},
		"KVM_GET_SREGS":              {getSregs, 0x8138ae83},
		"KVM_SET_SREGS":              {setSregs, 0x4138ae84},
		"KVM_GET_MSRS":               {getMSRs, 0xc008ae88},
		"KVM_SET_MSRS":               {setMSRs, 0x4008ae89},
		"KVM_GET_LAPIC":              {getLAPIC, 0x8400ae8e},
		"KVM_SET_LAPIC":              {setLAPIC, 0x4400ae8f},
		"KVM_SET_CPUID2":             {setCPUID2, 0x4008ae90},
		"KVM_GET_MP_STATE":           {getMPState, 0x8004ae98},
		"KVM_SET_MP_STATE":           {setMPState, 0x4004ae99},
		"KVM_GET_VCPU_EVENTS":        {getEvents, 0x8040ae9f},
		"KVM_SET_VCPU_EVENTS":        {setEvents, 0x4040aea0},
		"KVM_ENABLE_CAP":             {enableCapability, 0x4068aea3},
		"KVM_GET_XSAVE":              {getXSave, 0x9000aea4},
		"KVM_SET_XSAVE":              {setXSave, 0x5000aea5},
		"KVM_GET_XCRS":               {getXCRs, 0x8188aea6},
		"KVM_SET_XCRS":               {setXCRs, 0x4188aea7},
		"KVM_SET_CLOCK":              {setClock, 0x4030ae7b},
		"KVM_GET_CLOCK":              {getClock, 0x8030ae7c},
		"KVM_KVMCLOCK_CTRL":          {clockControl, 0xaead},
		"KVM_GET_TSC_KHZ":            {getTSCKHz, 0xaea3},
		"KVM_GET_STATS_FD":           {getStatsFD, 0xaece},
	} {
		assert.Equal(t, tc[1], tc[0], "%s: want %#x, got %#x", name, tc[1], tc[0])
	}
}

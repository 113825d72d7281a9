package privcmd

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
)

// TestLedger: what is opened and registered is given back, once, with what belongs there.
func TestLedger(t *testing.T) {
	memory := make([]uint64, 2*pageSize/8)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), 2*pageSize)
	require.LessOrEqual(t, int(unsafe.Sizeof(ledger{})), pageSize, "the ledger fits into its page")
	l := newLedger(bytes)
	require.NoError(t, l.add(1, 0xffff888000001000))
	require.NoError(t, l.add(4, 0))
	l.registering(opRunstate, 1)
	l.registering(opTimePhys, 1)
	l.registering(opRunstatePhys, 4)
	l.registering(opRunstate, 7) // nobody's
	l.registering(opPoll, 1)
	for _, port := range []uint32{0, 31, 32, 4095} {
		l.open(port)
	}

	type call struct {
		operation operation
		vcpu      uint64 // 0 for a port
		value     uint64
	}
	argument := arch.NewMemory(bytes[pageSize:], 0).Alloc(8, 8, 0)
	var calls []call
	answers := map[operation]int64{}
	give := func() error {
		calls = nil
		return l.giveBack(argument, func(o operation, arg ...uint64) int64 {
			c := call{operation: o, value: argument.Load(0, 8)}
			if o != opClose {
				c.vcpu = arg[0]
			}
			calls = append(calls, c)
			return answers[o]
		})
	}
	none := table.Word("unregister")
	require.NoError(t, give())
	assert.Equal(t, []call{
		{opRunstate, 1, 0xffff888000001000}, {opTimePhys, 1, none}, {opRunstatePhys, 4, none},
		{opClose, 0, 0}, {opClose, 0, 31}, {opClose, 0, 32}, {opClose, 0, 4095},
	}, calls)
	require.NoError(t, give())
	assert.Empty(t, calls, "what was given back is not given back again")

	l.registering(opTime, 1)
	l.registering(opTimePhys, 1)
	l.open(5)
	answers[opTimePhys], answers[opClose] = table.Errno("ENOSYS"), table.Errno("EINVAL")
	require.NoError(t, give(), "what is not there is not to be given back")
	assert.Equal(t, []call{{opTime, 1, 0}, {opTimePhys, 1, none}, {opClose, 0, 5}}, calls)

	l.registering(opTime, 1)
	l.open(5)
	answers[opTime], answers[opClose] = table.Errno("EFAULT"), table.Errno("EFAULT")
	err := give()
	assert.ErrorContains(t, err, "take back the area of vCPU 1 by operation 13: Xen says -14")
	assert.ErrorContains(t, err, "close port 5: Xen says -14")

	for i := range uint64(maxVCPUs) - 2 {
		require.NoError(t, l.add(100+i, 0))
	}
	assert.ErrorContains(t, l.add(200, 0), "more than 32 vCPUs")
}

package model

import (
	"bytes"
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/arch"
	"pvabi/conformance/microvm"
)

// open makes a machine of the plainest host of x86-kvm and closes it at the test's end.
func open(t *testing.T, seed uint64, c microvm.Config) microvm.Machine {
	t.Helper()
	m, err := Hosts("x86-kvm")[0].Open(seed, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func op(kind arch.Kind, args ...uint64) arch.Op {
	o := arch.Op{Kind: kind}
	copy(o.Arg[:], args)
	return o
}

// TestOperations holds the interpreter against what package arch says of each operation.
func TestOperations(t *testing.T) {
	const outside = 1 << 40
	pageFault, protection := arch.Result{Count: 1, Trap: 1 + 14}, arch.Result{Count: 1, Trap: 1 + 13}
	tests := []struct {
		name string
		user bool
		// program is given the address of 64 bytes that hold 1, 2, 3 and so on.
		program func(address uint64) arch.Program
		// want is the result of the last operation, without its times.
		want arch.Result
	}{
		{"load 1", false, func(a uint64) arch.Program { return arch.Program{op(arch.Load, a, 1)} }, arch.Result{Count: 1, Value: 0x01}},
		{"load 2", false, func(a uint64) arch.Program { return arch.Program{op(arch.Load, a, 2)} }, arch.Result{Count: 1, Value: 0x0201}},
		{"load 4", false, func(a uint64) arch.Program { return arch.Program{op(arch.Load, a+1, 4)} }, arch.Result{Count: 1, Value: 0x05040302}},
		{"load 8", false, func(a uint64) arch.Program { return arch.Program{op(arch.Load, a, 8)} }, arch.Result{Count: 1, Value: 0x0807060504030201}},
		{"load outside", false, func(uint64) arch.Program { return arch.Program{op(arch.Load, outside, 8)} }, pageFault},
		{"load across the end", false, func(a uint64) arch.Program { return arch.Program{op(arch.Load, a+60, 8)} }, pageFault},
		{"store outside", false, func(uint64) arch.Program { return arch.Program{op(arch.Store, outside, 1, 8)} }, pageFault},
		{"spin outside", false, func(uint64) arch.Program { return arch.Program{op(arch.SpinUntil, outside, 1, 1, 1)} }, pageFault},
		{"sample outside", false, func(a uint64) arch.Program { return arch.Program{op(arch.Sample, a, outside, 1)} }, pageFault},
		{"store", false, func(a uint64) arch.Program {
			return arch.Program{op(arch.Store, a, 0xaabbccdd, 2), op(arch.Load, a, 4)}
		}, arch.Result{Count: 1, Value: 0x0403ccdd}},
		{"spin until seen", false, func(a uint64) arch.Program { return arch.Program{op(arch.SpinUntil, a, 0xff, 1, 9)} }, arch.Result{Count: 1, Value: 0x0807060504030201, Aux: 1}},
		{"spin until the limit", false, func(a uint64) arch.Program { return arch.Program{op(arch.SpinUntil, a, 0xff, 2, 9)} }, arch.Result{Count: 1, Value: 0x0807060504030201, Aux: 9}},
		{"loop", false, func(a uint64) arch.Program { return arch.Program{op(arch.Load, a, 1), op(arch.Loop, 0, 3)} }, arch.Result{Count: 3}},
		{"on after an exception", false, func(a uint64) arch.Program { return arch.Program{op(arch.Load, outside, 8), op(arch.Load, a, 1)} }, arch.Result{Count: 1, Value: 1}},
		{"register that is not there", false, func(uint64) arch.Program { return arch.Program{op(arch.ReadRegister, 0x4b564d09)} }, protection},
		{"register, no privilege", true, func(uint64) arch.Program { return arch.Program{op(arch.ReadRegister, 0x4b564d03)} }, protection},
		{"write of a register, no privilege", true, func(uint64) arch.Program { return arch.Program{op(arch.WriteRegister, 0x4b564d03, 0)} }, protection},
		{"interrupts, no privilege", true, func(uint64) arch.Program { return arch.Program{op(arch.Interrupts, 1)} }, protection},
		{"wait, no privilege", true, func(uint64) arch.Program { return arch.Program{op(arch.Wait, 1)} }, protection},
		{"load, no privilege", true, func(a uint64) arch.Program { return arch.Program{op(arch.Load, a, 1)} }, arch.Result{Count: 1, Value: 1}},
		{"sample at rest", false, func(a uint64) arch.Program { return arch.Program{op(arch.Sample, a+1, a+8, 7)} }, arch.Result{Count: 1, Value: 0x100f0e0d0c0b0a09, Aux: 7}},
		{"sample of an odd version", false, func(a uint64) arch.Program { return arch.Program{op(arch.Sample, a, a+8, 7)} }, arch.Result{Count: 1, Regs: [16]uint64{arch.SampleOdd: 7}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c microvm.Config
			if tt.user {
				c.User = []int{0}
			}
			m := open(t, 1, c)
			area := m.Alloc(64, 8, 0)
			for i := range area.Size() {
				area.Store(i, 1, i+1)
			}
			p := tt.program(area.Address())
			require.NoError(t, m.Start(0, p))
			stop, err := m.Wait(t.Context(), 0)
			require.NoError(t, err)
			assert.Equal(t, arch.Stop{Ended: true}, stop)
			got := m.Results(0)[len(p)-1]
			assert.LessOrEqual(t, got.Begin, got.End)
			got.Begin, got.End = 0, 0
			assert.Equal(t, tt.want, got)
			at, completed := m.At(0)
			assert.Equal(t, len(p), at)
			assert.GreaterOrEqual(t, completed, uint64(len(p)))
		})
	}
}

func TestUnknownOperation(t *testing.T) {
	for _, o := range []arch.Op{op(99), op(arch.Load, memoryBase, 3), op(arch.Wait, 2), op(arch.Call, 2)} {
		m := open(t, 1, microvm.Config{})
		m.Alloc(8, 8, 0)
		require.NoError(t, m.Start(0, arch.Program{o}))
		stop, err := m.Wait(t.Context(), 0)
		require.NoError(t, err)
		assert.False(t, stop.Ended)
		assert.NotEmpty(t, stop.Reason)
		assert.Equal(t, uint64(arch.TrapUnknown), m.Results(0)[0].Trap)
	}
}

func TestExit(t *testing.T) {
	m := open(t, 1, microvm.Config{})
	require.NoError(t, m.Start(0, arch.Program{op(arch.Exit, 7), op(arch.Exit, 8)}))
	for i, want := range []arch.Stop{{Exit: 7}, {Exit: 8}, {Ended: true}} {
		stop, err := m.Wait(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, want, stop)
		at, completed := m.At(0)
		assert.Equal(t, i, at)
		if !stop.Ended {
			assert.Equal(t, uint64(i), completed)
			require.NoError(t, m.Resume(0))
		}
	}
	assert.ErrorContains(t, m.Resume(0), "not out")
}

func TestVectors(t *testing.T) {
	m := open(t, 1, microvm.Config{})
	v := make([]byte, 16*32)
	for i := range v {
		v[i] = byte(i)
	}
	want := make([]byte, len(v))
	for i := range 16 {
		copy(want[32*i:][:16], v[32*i:])
	}
	assert.Error(t, m.SetVectors(0, v[1:]))
	require.NoError(t, m.SetVectors(0, v))
	require.NoError(t, m.Start(0, arch.Program{op(arch.LoadVectors, 0), op(arch.Exit, 0), op(arch.StoreVectors, 0)}))
	_, err := m.Wait(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, m.SetVectors(0, make([]byte, len(v))))
	require.NoError(t, m.Resume(0))
	_, err = m.Wait(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, want, m.Vectors(0))
}

// TestWaitGivesUp: a CPU that nothing can wake, and one that does not come to its end.
func TestWaitGivesUp(t *testing.T) {
	m := open(t, 1, microvm.Config{})
	require.NoError(t, m.Start(0, arch.Program{op(arch.Wait, 0)}))
	_, err := m.Wait(t.Context(), 0)
	assert.ErrorContains(t, err, "sleeps in operation 0")
	asleep, err := m.Asleep(0)
	require.NoError(t, err)
	assert.True(t, asleep)

	require.NoError(t, m.Reset())
	area := m.Alloc(8, 8, 0)
	require.NoError(t, m.Start(0, arch.Program{op(arch.SpinUntil, area.Address(), 1, 1, 0)}))
	_, err = m.Wait(t.Context(), 0)
	assert.ErrorContains(t, err, "will not come to its end")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = m.Wait(ctx, 0)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestNoInterruptController(t *testing.T) {
	m := open(t, 1, microvm.Config{IRQChip: microvm.None})
	require.NoError(t, m.Start(0, arch.Program{op(arch.Wait, 0)}))
	stop, err := m.Wait(t.Context(), 0)
	require.NoError(t, err)
	assert.NotEmpty(t, stop.Reason)
}

// TestSameSeed: the same seed gives the same run, another one another.
func TestSameSeed(t *testing.T) {
	run := func(seed uint64) []arch.Result {
		m := open(t, seed, microvm.Config{CPUs: 2})
		p := arch.Program{op(arch.Clock), op(arch.SpinUntil, m.Alloc(8, 8, 0).Address(), 1, 1, 5000), op(arch.Clock)}
		require.NoError(t, m.Start(0, p))
		require.NoError(t, m.Start(1, p))
		_, err := m.Wait(t.Context(), 1)
		require.NoError(t, err)
		return m.Results(1)
	}
	assert.Equal(t, run(1), run(1))
	assert.NotEqual(t, run(1), run(2))
}

// TestCrowd: members of a crowd take turns, one at a time; who gets its turn back enters.
func TestCrowd(t *testing.T) {
	m := open(t, 1, microvm.Config{CPUs: 3})
	l := abi.X86KVM().Layout("kvm_steal_time")
	flag, record := m.Alloc(8, 8, 0), m.Alloc(l.Size, l.Align, 0)
	_, err := m.Crowd(1)
	assert.ErrorContains(t, err, "two CPUs or more")
	_, err = m.Crowd(1, 1)
	assert.ErrorContains(t, err, "already")
	release, err := m.Crowd(1, 2)
	require.NoError(t, err)
	spin := op(arch.SpinUntil, flag.Address(), 1, 1, 0)
	require.NoError(t, m.Start(1, arch.Program{op(arch.WriteRegister, 0x4b564d03, record.Address()|1), spin}))
	require.NoError(t, m.Start(2, arch.Program{spin}))
	steal := func() uint64 { return record.Load(l.Field("steal").Offset, 8) }
	var taken uint64
	for range 1000 {
		taken += record.Load(l.Field("preempted").Offset, 1)
	}
	assert.NotZero(t, taken, "CPU 1 was never seen preempted")
	assert.NotEqual(t, uint64(1000), taken, "CPU 1 was never seen running")
	assert.NotZero(t, steal())
	release()
	for range 100 {
		steal() // until CPU 1 is back in the guest
	}
	before := steal()
	for range 1000 {
		assert.Zero(t, record.Load(l.Field("preempted").Offset, 1))
	}
	assert.Equal(t, before, steal(), "steal grows without a crowd")
	reported, err := m.Counter(1, "preemption_reported")
	require.NoError(t, err)
	assert.NotZero(t, reported)
	_, err = m.Counter(1, "no such thing")
	assert.Error(t, err)
}

// TestClose: neither Close nor Reset leaves anything behind.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	m := open(t, 1, microvm.Config{CPUs: 3})
	for range 2 {
		area := m.Alloc(8, 8, 0xff)
		assert.Equal(t, bytes.Repeat([]byte{0xff}, 8), area.Bytes())
		require.NoError(t, m.Start(0, arch.Program{op(arch.SpinUntil, area.Address(), 1, 0, 0)}))
		require.NoError(t, m.Start(1, arch.Program{op(arch.Wait, 0)}))
		require.NoError(t, m.Start(2, arch.Program{op(arch.Exit, 0)}))
		_, err := m.Wait(t.Context(), 2)
		require.NoError(t, err)
		assert.Error(t, m.Start(2, nil), "start of a CPU that is not idle")
		require.NoError(t, m.Reset())
	}
	require.NoError(t, m.Start(0, arch.Program{op(arch.Wait, 0)}))
	require.NoError(t, m.Close())
	assert.LessOrEqual(t, runtime.NumGoroutine(), before, "goroutines that are left")
	assert.ErrorContains(t, m.Start(0, nil), "closed")
	assert.ErrorContains(t, m.Reset(), "closed")
}

func TestOpen(t *testing.T) {
	assert.Empty(t, Hosts("no such platform"))
	assert.Empty(t, Mutants("no such platform"))
	for _, c := range []microvm.Config{{User: []int{1}}, {CPUs: 2, IDs: []uint64{1}}, {DisableExits: 1}, {DisableQuirks: 1}} {
		_, err := Hosts("x86-kvm")[0].Open(0, c)
		assert.Error(t, err, "%+v", c)
	}
}

// TestForeignInstruction is what the model adds to the checks: the form of the call that is
// not the processor's own.
func TestForeignInstruction(t *testing.T) {
	tests := []struct {
		name string
		c    microvm.Config
		trap uint64
	}{
		{"rewritten", microvm.Config{}, 0},
		{"quirk off", microvm.Config{DisableQuirks: quirkFixHypercall}, 1 + 6},
		{"no privilege", microvm.Config{User: []int{0}}, 1 + 13},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := open(t, 1, tt.c)
			require.NoError(t, m.Start(0, arch.Program{op(arch.Call, 0)}))
			_, err := m.Wait(t.Context(), 0)
			require.NoError(t, err)
			assert.Equal(t, tt.trap, m.Results(0)[0].Trap)
		})
	}
}

// TestSendIPI: who gets an interrupt that SEND_IPI sends, and what it returns.
func TestSendIPI(t *testing.T) {
	const number, vector = 10, 0x41
	ids := []uint64{2, 9, 70}
	tests := []struct {
		name              string
		low, high, lowest uint64
		icr               uint64
		want              int64
		taken             []uint64
	}{
		{"one", 1 << 7, 0, 2, vector, 1, []uint64{0, 1, 0}},
		{"all", 1<<0 | 1<<7, 1 << 4, 2, vector, 3, []uint64{1, 1, 1}},
		{"nobody", 1 << 1, 0, 2, vector, 0, []uint64{0, 0, 0}},
		{"logical", 1, 0, 2, vector | 0x800, -22, []uint64{0, 0, 0}},
		{"shorthand", 1, 0, 2, vector | 0x40000, -22, []uint64{0, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := open(t, 1, microvm.Config{CPUs: 3, IDs: ids})
			call := op(arch.Call, 1)
			// RAX, RBX, RCX, RDX, RSI
			copy(call.Regs[:], []uint64{number, tt.low, tt.high, tt.lowest, tt.icr})
			require.NoError(t, m.Start(0, arch.Program{call}))
			_, err := m.Wait(t.Context(), 0)
			require.NoError(t, err)
			assert.Equal(t, tt.want, int64(m.Results(0)[0].Regs[0]))
			for cpu, want := range tt.taken {
				require.NoError(t, m.Start(cpu, arch.Program{op(arch.Interrupts, 1), op(arch.Clock)}))
				_, err := m.Wait(t.Context(), cpu)
				require.NoError(t, err)
				assert.Equal(t, want, m.Events(cpu, vector), "interrupts of CPU %d", cpu)
			}
		})
	}
}

// TestRegisters: what the registers of x86-kvm take and give back.
func TestRegisters(t *testing.T) {
	const ram, nowhere = memoryBase, 1 << 40
	none := uint32(0)
	hidden := microvm.Config{Features: &none, Enforce: true}
	tests := []struct {
		name, register string
		c              microvm.Config
		value          uint64
		refused        bool
		read           uint64
	}{
		{"wall clock", "WALL_CLOCK", microvm.Config{}, ram, false, ram},
		{"new wall clock", "WALL_CLOCK_NEW", microvm.Config{}, ram, false, ram},
		{"system time", "SYSTEM_TIME", microvm.Config{}, ram | 1, false, ram | 1},
		{"new system time", "SYSTEM_TIME_NEW", microvm.Config{}, ram | 1, false, ram | 1},
		{"page faults", "ASYNC_PF_EN", microvm.Config{}, ram | 0xd, false, ram | 0xd},
		{"page faults, reserved", "ASYNC_PF_EN", microvm.Config{}, ram | 0x10, true, 0},
		{"page faults outside of memory", "ASYNC_PF_EN", microvm.Config{}, nowhere | 9, true, 0},
		{"page faults without a local APIC", "ASYNC_PF_EN", microvm.Config{IRQChip: microvm.None}, ram | 9, true, 0},
		{"vector", "ASYNC_PF_INT", microvm.Config{}, 0xec, false, 0xec},
		{"vector of nine bits", "ASYNC_PF_INT", microvm.Config{}, 0x1ec, true, 0},
		{"vector without a local APIC", "ASYNC_PF_INT", microvm.Config{IRQChip: microvm.None}, 0xec, true, 0},
		{"acknowledged", "ASYNC_PF_ACK", microvm.Config{}, 1, false, 0},
		{"end of interrupt", "PV_EOI_EN", microvm.Config{}, ram | 1, false, ram | 1},
		{"end of interrupt outside of memory", "PV_EOI_EN", microvm.Config{}, nowhere | 1, true, 0},
		{"end of interrupt, reserved", "PV_EOI_EN", microvm.Config{}, ram | 3, true, 0},
		{"poll", "POLL_CONTROL", microvm.Config{}, 0, false, 0},
		{"poll, reserved", "POLL_CONTROL", microvm.Config{}, 2, true, 1},
		{"steal time", "STEAL_TIME", microvm.Config{}, ram | 1, false, ram | 1},
		{"steal time outside of memory", "STEAL_TIME", microvm.Config{}, nowhere | 1, false, nowhere | 1},
		{"steal time, reserved", "STEAL_TIME", microvm.Config{}, ram | 2, true, 0},
	}
	run := func(t *testing.T, c microvm.Config, p ...arch.Op) []arch.Result {
		m := open(t, 1, c)
		m.Alloc(64, 64, 0)
		require.NoError(t, m.Start(0, p))
		_, err := m.Wait(t.Context(), 0)
		require.NoError(t, err)
		return m.Results(0)
	}
	platform := abi.X86KVM()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := platform.Register(tt.register).Number
			r := run(t, tt.c, op(arch.WriteRegister, n, tt.value), op(arch.ReadRegister, n))
			assert.Equal(t, tt.refused, r[0].Trap == 1+13, "refused")
			assert.Zero(t, r[1].Trap)
			assert.Equal(t, tt.read, r[1].Value)
		})
	}
	for _, reg := range platform.Registers {
		r := run(t, hidden, op(arch.ReadRegister, reg.Number), op(arch.WriteRegister, reg.Number, 0))
		assert.Equal(t, uint64(1+13), r[0].Trap, "read of %s while its feature is hidden", reg.Name)
		assert.Equal(t, uint64(1+13), r[1].Trap, "write of %s while its feature is hidden", reg.Name)
	}
}

// TestInterruptCommand: who takes the interrupt that a command asks for.
func TestInterruptCommand(t *testing.T) {
	const register, vector = 0x830, 0x41
	tests := []struct {
		name    string
		command uint64
		taken   []uint64
	}{
		{"one", 9<<32 | vector, []uint64{0, 1, 0}},
		{"no such", 3<<32 | vector, []uint64{0, 0, 0}},
		{"self", 1<<18 | vector, []uint64{1, 0, 0}},
		{"all", 2<<18 | vector, []uint64{1, 1, 1}},
		{"broadcast", 0xffffffff<<32 | vector, []uint64{1, 1, 1}},
		{"all others", 3<<18 | vector, []uint64{0, 1, 1}},
		{"logical, two of a cluster", 1<<11 | (1<<2|1<<9)<<32 | vector, []uint64{1, 1, 0}},
		{"logical, another cluster", 1<<11 | (4<<16|1<<6)<<32 | vector, []uint64{0, 0, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := open(t, 1, microvm.Config{CPUs: 3, IDs: []uint64{2, 9, 70}})
			require.NoError(t, m.Start(0, arch.Program{op(arch.WriteRegister, register, tt.command)}))
			_, err := m.Wait(t.Context(), 0)
			require.NoError(t, err)
			for cpu, want := range tt.taken {
				require.NoError(t, m.Start(cpu, arch.Program{op(arch.Interrupts, 1), op(arch.Clock)}))
				_, err := m.Wait(t.Context(), cpu)
				require.NoError(t, err)
				assert.Equal(t, want, m.Events(cpu, vector), "interrupts of CPU %d", cpu)
			}
		})
	}
}

// TestYield: a yield to a member of the same crowd that waits for its turn gives it that.
func TestYield(t *testing.T) {
	m := open(t, 1, microvm.Config{CPUs: 2})
	release, err := m.Crowd(0, 1)
	require.NoError(t, err)
	defer release()
	call := op(arch.Call, 1)
	copy(call.Regs[:], []uint64{11, 1}) // RAX, RBX
	require.NoError(t, m.Start(1, arch.Program{op(arch.SpinUntil, m.Alloc(8, 8, 0).Address(), 1, 1, 0)}))
	require.NoError(t, m.Start(0, arch.Program{call, op(arch.Loop, 0, 10)}))
	_, err = m.Wait(t.Context(), 0)
	require.NoError(t, err)
	attempted, err := m.Counter(0, "directed_yield_attempted")
	require.NoError(t, err)
	successful, err := m.Counter(0, "directed_yield_successful")
	require.NoError(t, err)
	assert.Equal(t, uint64(10), attempted)
	assert.Equal(t, uint64(10), successful)
}

// TestMapRange: what MAP_GPA_RANGE gives where the carrier takes it.
func TestMapRange(t *testing.T) {
	const number = 12
	for _, tt := range []struct {
		name           string
		exits          uint64
		address, pages uint64
		want           int64
	}{
		{"not taken", 0, 4096, 1, -1000},
		{"taken", 1 << number, 4096, 1, 0},
		{"unaligned", 1 << number, 4097, 1, -22},
		{"no pages", 1 << number, 4096, 0, -22},
		{"wraps", 1 << number, 4096, ^uint64(0), -22},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := open(t, 1, microvm.Config{ExitHypercalls: tt.exits})
			call := op(arch.Call, 1)
			copy(call.Regs[:], []uint64{number, tt.address, tt.pages})
			require.NoError(t, m.Start(0, arch.Program{call}))
			_, err := m.Wait(t.Context(), 0)
			require.NoError(t, err)
			assert.Equal(t, tt.want, int64(m.Results(0)[0].Regs[0]))
		})
	}
}

package microvm

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
	"pvabi/arch/amd64"
)

// The numbers of include/uapi/linux/kvm_para.h and arch/x86/include/uapi/asm/kvm_para.h.
const (
	kickCPU    = 5
	schedYield = 11
	unused     = 99
	enosys     = ^uint64(999) // -1000
	eperm      = ^uint64(0)   // -1
	stealTime  = 0x4b564d03
)

func native(t *testing.T) string {
	t.Helper()
	r := run(t, machineFor(t, Config{}), 0, op(arch.Discover, 0))
	return nativeOf(r[0])
}

func nativeOf(leaf arch.Result) string {
	if leaf.Regs[amd64.ISA.Register("rbx")] == 'G'|'e'<<8|'n'<<16|'u'<<24 {
		return "vmcall"
	}
	return "vmmcall"
}

func call(t *testing.T, number uint64, args ...uint64) arch.Op {
	o := op(arch.Call, amd64.ISA.Instruction(native(t)))
	for i := range o.Regs {
		o.Regs[i] = 0x1111111111111111 * uint64(i)
	}
	o.Regs[amd64.ISA.Register("rax")] = number
	for i, name := range []string{"rbx", "rcx", "rdx", "rsi"} {
		if i < len(args) {
			o.Regs[amd64.ISA.Register(name)] = args[i]
		}
	}
	return o
}

func result(r arch.Result) uint64 { return r.Regs[amd64.ISA.Register("rax")] }

func TestKickWakes(t *testing.T) {
	for _, chip := range []IRQChip{Full, Split} {
		for _, interrupts := range []uint64{0, 1} {
			t.Run(fmt.Sprintf("%v, interrupts %d", chip, interrupts), func(t *testing.T) {
				kick, none := call(t, kickCPU, 0, 9), call(t, unused)
				c := three()
				c.IRQChip = chip
				m := machineFor(t, c)
				require.NoError(t, m.Start(1, arch.Program{op(arch.Wait, interrupts)}))
				fallAsleep(t, m, 1, 0)
				assert.Equal(t, enosys, result(run(t, m, 0, none)[0]))
				sleepsOn(t, m, 1, 0, "asleep without a kick") // the control
				begin := time.Now()
				assert.Zero(t, result(run(t, m, 0, kick)[0]))
				finish(t, m, 1)
				t.Logf("from the kick's start to the waiter's end: %v", time.Since(begin))
				assert.Equal(t, uint64(1), m.Results(1)[0].Count)
				n, err := m.Asleep(1)
				require.NoError(t, err)
				assert.False(t, n, "asleep after the end")
			})
		}
	}
}

func TestKicksBeforeWaits(t *testing.T) {
	for kicks, wantAt := range []int{1, 2, 2} {
		kick := call(t, kickCPU, 0, 9)
		m := machineFor(t, three())
		flag := m.Alloc(8, 8, 0)
		require.NoError(t, m.Start(1, arch.Program{op(arch.SpinUntil, flag.Address(), ^uint64(0), 1, 0), op(arch.Wait, 0), op(arch.Wait, 0)}))
		var p []arch.Op
		for range kicks {
			p = append(p, kick)
		}
		run(t, m, 0, append(p, op(arch.Store, flag.Address(), 1, 8))...)
		fallAsleep(t, m, 1, wantAt)
	}
}

func TestResetForgets(t *testing.T) {
	kick := call(t, kickCPU, 0, 9)
	m := machineFor(t, three())
	area := m.Alloc(64, 64, 0xa5)
	flag := m.Alloc(8, 8, 0)
	spin := op(arch.SpinUntil, flag.Address(), ^uint64(0), 1, 0)
	vectors := make([]byte, 16*32)
	for i := range vectors {
		vectors[i] = 0x5a
	}
	require.NoError(t, m.SetVectors(1, vectors))
	require.NoError(t, m.Start(1, arch.Program{
		op(arch.LoadVectors, 0), op(arch.WriteRegister, stealTime, area.Address()|1), spin,
	}))
	until(t, "the target spins", func() bool { at, _ := m.At(1); return at == 2 })
	run(t, m, 0, kick, amd64.Interrupt(9, 0x41), amd64.NonMaskable(9))
	until(t, "the NMI was taken", func() bool { return m.Events(1, amd64.NMI) == 1 })
	assert.NotZero(t, area.Load(8, 4), "version of the record of steal time")

	require.NoError(t, m.Reset())
	assert.Empty(t, m.Results(1))
	assert.Zero(t, m.Events(1, amd64.NMI))
	again := m.Alloc(64, 64, 0xa5)
	assert.Equal(t, area.Address(), again.Address())
	// The interrupt was pending, the kick latched: neither ends a wait.
	require.NoError(t, m.Start(1, arch.Program{
		op(arch.ReadRegister, stealTime), op(arch.StoreVectors, 0), op(arch.Wait, 1),
	}))
	fallAsleep(t, m, 1, 2)
	sleepsOn(t, m, 1, 2, "asleep after a reset")
	assert.Zero(t, m.Results(1)[0].Value, "register of steal time")
	assert.Equal(t, make([]byte, 16*32), m.Vectors(1), "vector registers after a reset")
	assert.Equal(t, uint64(0xa5a5a5a5a5a5a5a5), again.Load(8, 8), "memory where the record was")
	run(t, m, 0, kick)
	finish(t, m, 1)
}

func TestInterruptsEndWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		interrupts uint64
		vector     uint8
		op         arch.Op
	}{
		"interrupt":              {1, 0x41, amd64.Interrupt(9, 0x41)},
		"first vector":           {1, 0x20, amd64.Interrupt(9, 0x20)},
		"not acknowledged":       {1, amd64.FirstQuiet, amd64.Interrupt(9, amd64.FirstQuiet)},
		"NMI, interrupts off":    {0, amd64.NMI, amd64.NonMaskable(9)},
		"NMI with interrupts on": {1, amd64.NMI, amd64.NonMaskable(9)},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineFor(t, three())
			inService := uint64(amd64.ISR) + uint64(tc.vector/32)
			require.NoError(t, m.Start(1, arch.Program{op(arch.Wait, tc.interrupts), op(arch.ReadRegister, inService)}))
			fallAsleep(t, m, 1, 0)
			r := run(t, m, 0, tc.op)
			assert.Zero(t, r[0].Trap)
			finish(t, m, 1)
			assert.Positive(t, m.Events(1, tc.vector), "interrupts taken")
			want := uint64(0)
			if tc.vector >= amd64.FirstQuiet {
				want = 1 << (tc.vector % 32)
			}
			assert.Equal(t, want, m.Results(1)[1].Value, "interrupts in service")
		})
	}
}

func TestInterruptIsHeldWhileTheyAreOff(t *testing.T) {
	m := machineFor(t, three())
	flag := m.Alloc(8, 8, 0)
	spin := op(arch.SpinUntil, flag.Address(), ^uint64(0), 1, 0)
	require.NoError(t, m.Start(1, arch.Program{spin, op(arch.Exit, 1), op(arch.Interrupts, 1), op(arch.Exit, 2), op(arch.Interrupts, 0), op(arch.Exit, 3)}))
	run(t, m, 0, amd64.Interrupt(9, 0x41), op(arch.Store, flag.Address(), 1, 8))
	// At least one: QEMU 11.1 sometimes takes an injected interrupt twice (helper_vmrun in
	// target/i386/tcg/system/svm_helper.c leaves exception_index at its vector).
	for i, want := range []uint64{0, 1, 1} {
		stop, err := m.Wait(within(t), 1)
		require.NoError(t, err)
		require.Equal(t, arch.Stop{Exit: uint64(i + 1)}, stop)
		assert.Equal(t, want, min(m.Events(1, 0x41), 1), "interrupts taken at exit %d, at least", i+1)
		require.NoError(t, m.Resume(1))
	}
	finish(t, m, 1)
}

func TestTraps(t *testing.T) {
	const ud, gp, pf = 1 + 6, 1 + 13, 1 + 14
	foreign := map[string]string{"vmcall": "vmmcall", "vmmcall": "vmcall"}[native(t)]
	wrong := op(arch.Call, amd64.ISA.Instruction(foreign))
	const noSuchRegister, unmapped = 0x4b564dff, 1 << 30
	const fixHypercall = 1 << 5 // KVM_X86_QUIRK_FIX_HYPERCALL_INSN
	m := machineFor(t, Config{DisableQuirks: fixHypercall})
	r := run(t, m, 0,
		op(arch.ReadRegister, noSuchRegister), op(arch.WriteRegister, noSuchRegister, 0),
		wrong, op(arch.Load, unmapped, 8), op(arch.Store, unmapped, 0, 1), op(arch.Load, 1<<47, 1), op(arch.Clock))
	for i, want := range [][2]uint64{{gp, 0}, {gp, 0}, {ud, 0}, {pf, 0}, {pf, 2}, {gp, 0}, {0, 0}} {
		assert.Equal(t, want, [2]uint64{r[i].Trap, r[i].Code}, "exception and error code of operation %d", i)
		assert.Equal(t, uint64(1), r[i].Count, "completions of operation %d", i)
	}
	assert.NotZero(t, r[6].Value)
}

func TestWithoutPrivilege(t *testing.T) {
	const gp = 1 + 13
	kick, none := call(t, kickCPU, 0, 9), call(t, unused)
	c := three()
	c.User = []int{0}
	m := machineFor(t, c)
	require.NoError(t, m.Start(1, arch.Program{op(arch.Wait, 0)}))
	fallAsleep(t, m, 1, 0)
	r := run(t, m, 0, kick, none, op(arch.ReadRegister, stealTime), op(arch.Interrupts, 1), op(arch.Interrupts, 0),
		op(arch.Wait, 0), op(arch.Wait, 1), op(arch.Clock), op(arch.Loop, 0, 3))
	for i, want := range []uint64{0, 0, gp, gp, gp, gp, gp, 0, 0} {
		assert.Equal(t, want, r[i].Trap, "exception of operation %d", i)
		assert.Equal(t, uint64(3), r[i].Count, "completions of operation %d", i)
	}
	assert.Equal(t, []uint64{eperm, eperm}, []uint64{result(r[0]), result(r[1])})
	sleepsOn(t, m, 1, 0, "the kick has no effect")
	require.NoError(t, m.Start(0, arch.Program{op(arch.Exit, 5)}))
	stop, err := m.Wait(within(t), 0)
	require.NoError(t, err)
	assert.Equal(t, arch.Stop{Exit: 5}, stop)
	require.NoError(t, m.Resume(0))
	finish(t, m, 0)
	// An interrupt reaches a CPU without privilege, too.
	run(t, m, 2, amd64.NonMaskable(2))
	require.NoError(t, m.Start(0, arch.Program{op(arch.Clock)}))
	finish(t, m, 0)
	assert.Equal(t, uint64(1), m.Events(0, amd64.NMI))
}

func TestCallKeepsRegisters(t *testing.T) {
	ax, sp := amd64.ISA.Register("rax"), amd64.ISA.Register("rsp")
	const flags = 0x8d7 // CF, PF, AF, ZF, SF, OF and bit 1, which is always set
	o := call(t, unused)
	o.Flags = flags
	length := o
	length.Kind = arch.CallLength
	for name, user := range map[string][]int{"privileged": nil, "not privileged": {0}} {
		for wide, bytes := range []int{16, 32} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, bytes), func(t *testing.T) {
				m := machineFor(t, Config{User: user})
				vectors := make([]byte, 16*32)
				for i := range vectors {
					vectors[i] = byte(i*7 + i/32)
				}
				require.NoError(t, m.SetVectors(0, vectors))
				require.NoError(t, m.Start(0, arch.Program{
					op(arch.LoadVectors, uint64(wide)), op(arch.Exit), o, length, op(arch.StoreVectors, uint64(wide)),
				}))
				_, err := m.Wait(within(t), 0)
				require.NoError(t, err)
				require.NoError(t, m.SetVectors(0, make([]byte, 16*32)))
				require.NoError(t, m.Resume(0))
				finish(t, m, 0)
				r := m.Results(0)
				if wide == 1 && r[0].Trap != 0 {
					t.Skipf("exception %d: the processor has no AVX", r[0].Trap-1)
				}
				for _, i := range []int{2, 3} {
					want := o.Regs
					want[ax], want[sp] = r[i].Regs[ax], 0
					assert.Equal(t, want, r[i].Regs, "operation %d", i)
					assert.Equal(t, o.Flags, r[i].Flags&^(1<<9), "flags of operation %d", i)
					assert.Zero(t, r[i].Trap)
				}
				assert.Equal(t, uint64(3), r[3].Value, "length of the call")
				for i := range 16 {
					assert.Equal(t, vectors[32*i:][:bytes], m.Vectors(0)[32*i:][:bytes], "vector register %d", i)
				}
			})
		}
	}
}

func TestCallInOtherModes(t *testing.T) {
	ax, sp := amd64.ISA.Register("rax"), amd64.ISA.Register("rsp")
	const flags = 0x8d7
	for name, mode := range map[string]Mode{"protected": Protected, "real": Real} {
		none, yield := call(t, 1<<32|unused), call(t, schedYield, 1<<32|9)
		none.Flags = flags
		m := machineFor(t, three())
		for i, tc := range []struct {
			op   arch.Op
			want uint64
		}{{none, enosys & (1<<32 - 1)}, {yield, 0}} {
			r, err := m.(Caller).CallIn(within(t), mode, 0, tc.op)
			require.NoError(t, err, name)
			want := tc.op.Regs
			for k := range want {
				want[k] &= 1<<32 - 1
			}
			want[ax], want[sp] = tc.want, 0
			assert.Equal(t, want, r.Regs, "%s, call %d", name, i)
			assert.Equal(t, tc.op.Flags|2, r.Flags, "%s, call %d", name, i)
			assert.Equal(t, uint64(1), r.Count)
		}
		run(t, m, 0, op(arch.Clock)) // in 64-bit mode again
	}
	const fixHypercall = 1 << 5
	foreign := op(arch.Call, 1-amd64.ISA.Instruction(native(t)))
	m := machineFor(t, Config{DisableQuirks: fixHypercall})
	_, err := m.(Caller).CallIn(within(t), Protected, 0, foreign)
	assert.ErrorContains(t, err, "triple fault")
	require.NoError(t, m.Reset())
	run(t, m, 0, op(arch.Clock))
}

func TestCounters(t *testing.T) {
	none, yield := call(t, unused), call(t, schedYield, 9)
	m := machineFor(t, three())
	read := func() (out []uint64) {
		for _, name := range []string{"hypercalls", "directed_yield_attempted", "halt_exits"} {
			n, err := m.Counter(0, name)
			require.NoError(t, err)
			out = append(out, n)
		}
		return out
	}
	before := read()
	run(t, m, 0, none, none, yield, call(t, kickCPU, 0, 2), op(arch.Wait, 0))
	for i, want := range []uint64{4, 2, 1} {
		assert.Equal(t, want, read()[i]-before[i], "counter %d", i)
	}
	_, err := m.Counter(0, "no such counter")
	assert.ErrorContains(t, err, "no such counter")
}

func TestPreemptedIsSeenInACrowd(t *testing.T) {
	m := machineFor(t, three())
	record, flag := m.Alloc(64, 64, 0), m.Alloc(8, 8, 0)
	spin := op(arch.SpinUntil, flag.Address(), ^uint64(0), 1, 0)
	release, err := m.Crowd(1, 2)
	require.NoError(t, err)
	require.NoError(t, m.Start(1, arch.Program{op(arch.WriteRegister, stealTime, record.Address()|1), spin}))
	require.NoError(t, m.Start(2, arch.Program{spin}))
	const preempted = 16
	looks := 0
	until(t, "preempted is 1", func() bool { looks++; return record.Load(preempted, 1) == 1 })
	t.Logf("preempted seen at look %d", looks)
	until(t, "steal time grows", func() bool { return record.Load(0, 8) > 0 })
	flag.Store(0, 8, 1)
	finish(t, m, 1)
	finish(t, m, 2)
	release()
}

func TestSampleOfStealTime(t *testing.T) {
	m := machineFor(t, three())
	record, flag := m.Alloc(64, 64, 0), m.Alloc(8, 8, 0)
	spin := op(arch.SpinUntil, flag.Address(), ^uint64(0), 1, 0)
	release, err := m.Crowd(1, 2)
	require.NoError(t, err)
	defer release()
	require.NoError(t, m.Start(1, arch.Program{op(arch.WriteRegister, stealTime, record.Address()|1), spin}))
	require.NoError(t, m.Start(2, arch.Program{spin}))
	var sum [16]uint64
	until(t, "steal time changes", func() bool {
		r := run(t, m, 0, op(arch.Sample, record.Address()+8, record.Address(), 1000))[0]
		for i, v := range r.Regs {
			sum[i] += v
		}
		return sum[arch.SampleChanges] > 0
	})
	assert.Zero(t, sum[arch.SampleTorn]+sum[arch.SampleLess]+sum[arch.SampleSilent])
	flag.Store(0, 8, 1)
	finish(t, m, 1)
	finish(t, m, 2)
}

func TestBrokenPrograms(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		p      arch.Program
		want   string
	}{
		"unknown operation":        {Config{}, arch.Program{op(99)}, "does not know operation 0"},
		"memory that is not there": {Config{}, arch.Program{op(arch.Load, 0x3ff00000, 8)}, "memory that is not there"},
		"HLT for the monitor":      {Config{IRQChip: None}, arch.Program{op(arch.Wait, 0)}, "HLT"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineFor(t, tc.config)
			require.NoError(t, m.Start(0, tc.p))
			stop, err := m.Wait(within(t), 0)
			require.NoError(t, err)
			assert.Contains(t, stop.Reason, tc.want)
			assert.Error(t, m.Start(0, nil), "before a reset")
			require.NoError(t, m.Reset())
			run(t, m, 0, op(arch.Clock))
		})
	}
}

func TestDiscovery(t *testing.T) {
	const apf = 1 << 4
	features := uint32(apf)
	m := machineFor(t, Config{CPUs: 3, IDs: sparse, Features: &features, Hints: 1, KVMBase: 0x40000100, Enforce: true})
	ax, bx, dx := amd64.ISA.Register("rax"), amd64.ISA.Register("rbx"), amd64.ISA.Register("rdx")
	for cpu, id := range sparse {
		assert.Equal(t, id, m.ID(cpu))
		r := run(t, m, cpu, op(arch.Discover, 1), op(arch.Discover, 0xb), op(arch.Discover, 0x40000000),
			op(arch.Discover, 0x40000100), op(arch.Discover, 0x40000101), op(arch.ReadRegister, 0x802), call(t, kickCPU, 0, 2))
		assert.Equal(t, id, r[0].Regs[bx]>>24, "initial APIC id")
		assert.Equal(t, id, r[1].Regs[dx], "x2APIC id")
		assert.NotEqual(t, r[2].Regs[bx], r[3].Regs[bx], "signatures")
		assert.Equal(t, uint64('K'|'V'<<8|'M'<<16|'K'<<24), r[3].Regs[bx])
		assert.Equal(t, uint64(0x40000101), r[3].Regs[ax])
		assert.Equal(t, []uint64{apf, 1}, []uint64{r[4].Regs[ax], r[4].Regs[dx]}, "features and hints")
		assert.Equal(t, id, r[5].Value, "x2APIC's own register of its id")
		assert.Equal(t, enosys, result(r[6]), "a kick that is not offered")
	}
}

func TestWideIDs(t *testing.T) {
	kick := call(t, kickCPU, 0, 0x321)
	m := machineFor(t, Config{CPUs: 2, IDs: []uint64{255, 0x321}})
	require.NoError(t, m.Start(1, arch.Program{op(arch.Wait, 0)}))
	fallAsleep(t, m, 1, 0)
	run(t, m, 0, kick)
	finish(t, m, 1)
}

func TestExitHypercalls(t *testing.T) {
	const mapGPARange = 12
	o := call(t, mapGPARange, 0x100000, 1, 0)
	assert.Equal(t, enosys, result(run(t, machineFor(t, Config{}), 0, o)[0]))
	assert.Zero(t, result(run(t, machineFor(t, Config{ExitHypercalls: 1 << mapGPARange}), 0, o)[0]))
}

func TestOpenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		want   string
	}{
		"ids":       {Config{CPUs: 2, IDs: []uint64{1}}, "1 ids for 2 CPUs"},
		"many CPUs": {Config{CPUs: 1000}, "1000 CPUs"},
		"wide id":   {Config{IDs: []uint64{1 << 32}}, "no APIC id"},
		"base":      {Config{KVMBase: 0x40000080}, "0x40000080"},
		"PowerPC's": {Config{Leave: []uint64{1}}, "Leave of the configuration"},
	} {
		if name != "ids" && name != "many CPUs" {
			machineFor(t, Config{}) // the others need KVM
		}
		_, err := Open(tc.config)
		assert.ErrorContains(t, err, tc.want, name)
	}
}

// One round is a kick of the other CPU, its end of a wait, and the same back.
func BenchmarkKickRoundTrip(b *testing.B) {
	m := benchmark(b)
	require.NoError(b, m.Start(0, arch.Program{op(arch.Discover, 0)}))
	_, err := m.Wait(context.Background(), 0)
	require.NoError(b, err)
	kick := func(id uint64) arch.Op {
		o := op(arch.Call, amd64.ISA.Instruction(nativeOf(m.Results(0)[0])))
		o.Regs[amd64.ISA.Register("rax")], o.Regs[amd64.ISA.Register("rcx")] = kickCPU, id
		return o
	}
	there, back, rounds := kick(9), kick(2), uint64(b.N)
	b.ResetTimer()
	require.NoError(b, m.Start(1, arch.Program{op(arch.Wait, 0), back, op(arch.Loop, 0, rounds)}))
	require.NoError(b, m.Start(0, arch.Program{there, op(arch.Wait, 0), op(arch.Loop, 0, rounds)}))
	for _, cpu := range []int{0, 1} {
		_, err := m.Wait(context.Background(), cpu)
		require.NoError(b, err)
	}
}

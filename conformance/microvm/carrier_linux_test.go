//go:build amd64 || ppc64le

package microvm

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
	"pvabi/internal/kvm"
)

// enabled is a variable of the environment that says that KVM may be used. These tests look
// at the carrier, but do so with what KVM answers, so that they need one that can run
// privileged code.
const enabled = "PVABI_KVM_TESTS"

// Enabled is what the test that boots guests, which cannot be in this package, tells them.
const Enabled = enabled

// RunTests runs the tests, for that one's TestMain.
func RunTests(m *testing.M) int {
	code := m.Run()
	for _, machine := range pool {
		if err := machine.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

var pool = map[string]Machine{}

// machineFor returns a machine that is as after its creation.
func machineFor(t *testing.T, c Config) Machine {
	t.Helper()
	if os.Getenv(enabled) == "" {
		t.Skip(enabled + " is not set: there may be no KVM here that runs privileged code")
	}
	if m := pool[c.Key()]; m != nil {
		require.NoError(t, m.Reset())
		return m
	}
	begin := time.Now()
	m, err := Open(c)
	require.NoError(t, err)
	t.Logf("opened %d CPUs in %v", m.CPUs(), time.Since(begin))
	pool[c.Key()] = m
	return m
}

var sparse = []uint64{2, 9, 5}

func three() Config { return Config{CPUs: 3, IDs: sparse} }

func op(kind arch.Kind, args ...uint64) arch.Op {
	o := arch.Op{Kind: kind}
	copy(o.Arg[:], args)
	return o
}

// within bounds what a broken machine costs; no test depends on it.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func run(t *testing.T, m Machine, cpu int, p ...arch.Op) []arch.Result {
	t.Helper()
	require.NoError(t, m.Start(cpu, p))
	finish(t, m, cpu)
	return m.Results(cpu)
}

func finish(t *testing.T, m Machine, cpu int) {
	t.Helper()
	stop, err := m.Wait(within(t), cpu)
	require.NoError(t, err)
	require.Equal(t, arch.Stop{Ended: true}, stop)
}

// until looks until it is seen, for as long as the machine is not taken to be broken.
func until(t *testing.T, what string, seen func() bool) {
	t.Helper()
	ctx := within(t)
	for !seen() {
		require.NoError(t, ctx.Err(), what)
		time.Sleep(time.Millisecond)
	}
}

func asleep(t *testing.T, m Machine, cpu, at int) bool {
	t.Helper()
	n, err := m.Asleep(cpu)
	require.NoError(t, err)
	here, _ := m.At(cpu)
	return n && here == at
}

func fallAsleep(t *testing.T, m Machine, cpu, at int) {
	t.Helper()
	until(t, fmt.Sprintf("CPU %d asleep in operation %d", cpu, at), func() bool { return asleep(t, m, cpu, at) })
}

// sleepsOn looks a number of times whether a CPU is still in the wait that it slept in. Its thread may wake
// for a moment for a reason of the kernel's own (Linux 7.2.12, arch/x86/kvm/x86.c, kvm_gen_kvmclock_update).
func sleepsOn(t *testing.T, m Machine, cpu, at int, what string) {
	t.Helper()
	for range 20 {
		until(t, what+": asleep, or gone on", func() bool { here, _ := m.At(cpu); return here != at || asleep(t, m, cpu, at) })
		here, _ := m.At(cpu)
		require.Equal(t, at, here, what)
		time.Sleep(time.Millisecond)
	}
}

func TestExits(t *testing.T) {
	m := machineFor(t, Config{})
	flag := m.Alloc(8, 8, 0)
	require.NoError(t, m.Start(0, arch.Program{op(arch.Exit, 7), op(arch.Store, flag.Address(), 1, 8), op(arch.Exit, 8)}))
	for _, want := range []uint64{7, 8} {
		stop, err := m.Wait(within(t), 0)
		require.NoError(t, err)
		assert.Equal(t, arch.Stop{Exit: want}, stop)
		assert.Equal(t, want-7, flag.Load(0, 8))
		assert.ErrorContains(t, m.Start(0, nil), "not idle")
		require.NoError(t, m.Resume(0))
	}
	finish(t, m, 0)
	stop, err := m.Wait(within(t), 0)
	require.NoError(t, err)
	assert.True(t, stop.Ended, "waiting again")
	assert.ErrorContains(t, m.Resume(0), "not out")
}

func TestWaitIsBoundedByItsContext(t *testing.T) {
	m := machineFor(t, Config{})
	require.NoError(t, m.Start(0, arch.Program{op(arch.Wait, 0)}))
	fallAsleep(t, m, 0, 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := m.Wait(ctx, 0)
	assert.ErrorIs(t, err, context.Canceled)
}

// A program leaves by a write to the door; who reads there goes astray.
func TestDoorIsForWrites(t *testing.T) {
	c := &cpu{state: running}
	stop, err := c.left(kvm.Exit{Reason: kvm.ExitMMIO, Address: door, Reads: 8})
	require.NoError(t, err)
	assert.Contains(t, stop.Reason, "memory that is not there")
	assert.Equal(t, broken, c.state)
}

// benchmark returns a machine for a benchmark, or skips it.
func benchmark(b *testing.B) Machine {
	b.Helper()
	if os.Getenv(enabled) == "" {
		b.Skip(enabled + " is not set")
	}
	m, err := Open(three())
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, m.Close()) })
	return m
}

func BenchmarkOpen(b *testing.B) {
	benchmark(b)
	for b.Loop() {
		m, err := Open(three())
		require.NoError(b, err)
		require.NoError(b, m.Close())
	}
}

func BenchmarkReset(b *testing.B) {
	m := benchmark(b)
	for b.Loop() {
		require.NoError(b, m.Reset())
	}
}

func BenchmarkProgram(b *testing.B) {
	m := benchmark(b)
	for b.Loop() {
		require.NoError(b, m.Start(0, arch.Program{op(arch.Clock)}))
		_, err := m.Wait(context.Background(), 0)
		require.NoError(b, err)
	}
}

func BenchmarkExit(b *testing.B) {
	m := benchmark(b)
	require.NoError(b, m.Start(0, arch.Program{op(arch.Exit), op(arch.Loop, 0, 1<<63)}))
	for b.Loop() {
		_, err := m.Wait(context.Background(), 0)
		require.NoError(b, err)
		require.NoError(b, m.Resume(0))
	}
}

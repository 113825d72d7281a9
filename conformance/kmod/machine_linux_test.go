//go:build amd64 || loong64 || ppc64le || s390x

package kmod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pvabi/arch"
	"pvabi/internal/guesttest"
	module "pvabi/internal/kmod"
)

func op(kind arch.Kind, args ...uint64) arch.Op {
	o := arch.Op{Kind: kind}
	copy(o.Arg[:], args)
	return o
}

// TestInGuest is all tests that need a kernel of their own, in an order: the last ones turn off
// loading modules.
func TestInGuest(t *testing.T) {
	if !guesttest.Inside() {
		t.Skip("for a guest; TestGuests boots some")
	}
	t.Run("self-check", func(t *testing.T) {
		require.NoError(t, SelfCheck(t.Context(), Config{}))
		require.NoError(t, SelfCheck(t.Context(), Config{}), "a second time")
	})
	t.Run("without a sibling", testNoSibling)
	log, err := openLog()
	require.NoError(t, err)
	before, err := look()
	require.NoError(t, err)
	begin := time.Now()
	m, err := open(Config{})
	require.NoError(t, err)
	t.Logf("opened %d CPUs in %v", m.CPUs(), time.Since(begin))
	for _, test := range []struct {
		name string
		run  func(*testing.T, *machine)
	}{
		{"CPUs", testCPUs}, {"areas", testAreas}, {"a whole frame", testWhole}, {"traps", testTraps},
		{"two CPUs", testTwo}, {"exits", testExits}, {"waits", testWaits}, {"interrupts", testInterrupts},
		{"reset", testReset}, {"broken programs", testBroken}, {"vectors", testVectors}, {"what only a hypervisor can do", testNone},
		{"times", testTimes},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, m.Reset())
			test.run(t, m)
		})
	}
	// A machine that is closed while a CPU spins.
	flag := m.Alloc(8, 8, 0)
	require.NoError(t, m.Start(0, arch.Program{op(arch.SpinUntil, flag.Address(), ^uint64(0), 1)}))
	require.NoError(t, m.Close())
	after, err := look()
	require.NoError(t, err)
	assert.Equal(t, before, after, "modules and taint after the machine was closed")
	complaints, err := log.complaints()
	require.NoError(t, err)
	assert.Empty(t, complaints, "warnings of the kernel")
	require.NoError(t, log.close())
	t.Run("refusals", testRefusals)
}

// within bounds what a broken machine costs; no test depends on it.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func finish(t *testing.T, m *machine, cpu int) []arch.Result {
	t.Helper()
	stop, err := m.Wait(within(t), cpu)
	require.NoError(t, err)
	require.Equal(t, arch.Stop{Ended: true}, stop)
	return m.Results(cpu)
}

func run(t *testing.T, m *machine, cpu int, p ...arch.Op) []arch.Result {
	t.Helper()
	require.NoError(t, m.Start(cpu, p))
	return finish(t, m, cpu)
}

func until(t *testing.T, what string, seen func() bool) {
	t.Helper()
	ctx := within(t)
	for !seen() {
		require.NoError(t, ctx.Err(), what)
		time.Sleep(time.Millisecond)
	}
}

func testCPUs(t *testing.T, m *machine) {
	require.Equal(t, 2, m.CPUs(), "CPUs; the first of three is for the agent")
	assert.NotEqual(t, m.ID(0), m.ID(1))
	for cpu, c := range m.cpus {
		assert.Equal(t, cpu+1, c.number)
		t.Logf("CPU %d is %d", c.number, m.ID(cpu))
	}
}

func testAreas(t *testing.T, m *machine) {
	a, b := m.Alloc(9, 1, 0xa5), m.Alloc(4096, 4096, 0x5a)
	assert.Zero(t, b.Address()%4096)
	assert.Equal(t, uint64(9), a.Size())
	for _, size := range []uint64{1, 2, 4, 8} {
		want := uint64(0x1122334455667788) & (1<<(8*size) - 1)
		if size == 8 {
			want = 0x1122334455667788
		}
		b.Store(8, 8, 0)
		b.Store(8, size, 0xff00000000000000|0x1122334455667788&(1<<56-1)|want&^(1<<56-1))
		got := b.Load(8, size)
		if size < 8 {
			assert.Equal(t, want, got, "%d bytes", size)
		}
		assert.Equal(t, uint64(0x5a5a5a5a5a5a5a5a), b.Load(0, 8))
		assert.Equal(t, uint64(0x5a5a5a5a5a5a5a5a), b.Load(16, 8))
		r := run(t, m, 1, op(arch.Load, b.Address()+8, size))
		assert.Equal(t, got, r[0].Value, "what a program loads, %d bytes", size)
		run(t, m, 0, op(arch.Store, b.Address()+16, ^uint64(0), size))
		assert.Equal(t, got, b.Load(8, size))
		b.Store(16, 8, 0x5a5a5a5a5a5a5a5a)
	}
	b.Store(4, 4, 0x01020304)
	assert.Equal(t, uint64(0x01020304), b.Load(4, 4), "a store of half a word")
	assert.Equal(t, uint64(0x5a5a5a5a), b.Load(0, 4), "the other half")
	assert.Equal(t, []byte{0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5}, a.Bytes())
	assert.Len(t, b.Bytes(), 4096)
	assert.Panics(t, func() { b.Load(4096, 1) }, "an access outside the area")
	assert.Panics(t, func() { b.Load(0, 3) }, "a size that no access has")
	assert.Panics(t, func() { b.Load(2, 4) }, "an access that is not aligned")
	assert.Panics(t, func() { m.Alloc(areasSize, 8, 0) }, "more than there is")

	realA, err := m.Real(a)
	require.NoError(t, err)
	realB, err := m.Real(b)
	require.NoError(t, err)
	assert.Equal(t, b.Address()-a.Address(), realB-realA)
	assert.Less(t, realB, uint64(1<<40), "an address in memory")
	t.Logf("an area at %#x is at %#x for the hypervisor", b.Address(), realB)
}

// testWhole runs a program that fills a frame.
func testWhole(t *testing.T, m *machine) {
	a := m.Alloc(8*arch.MaxOps, 8, 0)
	var p arch.Program
	for i := range uint64(arch.MaxOps - 1) {
		p = append(p, op(arch.Store, a.Address()+8*i, i+1, 8))
	}
	for _, cpu := range []int{0, 1} {
		for i, r := range run(t, m, cpu, p...) {
			assert.Equal(t, uint64(1), r.Count, "operation %d", i)
			assert.Equal(t, uint64(i+1), a.Load(8*uint64(i), 8))
		}
		at, completed := m.At(cpu)
		assert.Equal(t, []any{arch.MaxOps - 1, uint64(arch.MaxOps)}, []any{at, completed})
	}
	// Results of before are gone.
	assert.Equal(t, uint64(0), run(t, m, 0, op(arch.Clock))[0].Trap)
	assert.Error(t, m.Start(0, append(p, p...)), "more than fits")
	r := run(t, m, 0, op(arch.Clock), op(arch.Loop, 0, 50))
	assert.Equal(t, uint64(50), r[0].Count)
}

func testTraps(t *testing.T, m *machine) {
	a := m.Alloc(8, 8, 0x11)
	bad := []arch.Op{
		op(arch.Load, this.nowhere, 8), op(arch.Load, this.nowhere, 1), op(arch.Store, this.nowhere, 1, 4),
		op(arch.SpinUntil, this.nowhere, 1, 1, 1),
	}
	for _, o := range bad {
		for cpu := range m.CPUs() {
			r := run(t, m, cpu, o, op(arch.Load, a.Address(), 8))
			assert.NotZero(t, r[0].Trap, "%v", o)
			if this.trap != 0 {
				assert.Equal(t, this.trap, r[0].Trap, "%v", o)
			}
			assert.Equal(t, uint64(1), r[0].Count, "%v", o)
			assert.Equal(t, uint64(0x1111111111111111), r[1].Value, "after %v", o)
			assert.Zero(t, r[1].Trap)
		}
	}
	for _, o := range illegal {
		for cpu := range m.CPUs() {
			r := run(t, m, cpu, o, op(arch.Load, a.Address(), 8), o)
			assert.Equal(t, []uint64{illegalTrap, 0, illegalTrap}, []uint64{r[0].Trap, r[1].Trap, r[2].Trap}, "%v", o)
			assert.Equal(t, uint64(0x1111111111111111), r[1].Value, "after %v", o)
		}
	}
	if this.kernelFrom > 0 {
		for _, kind := range []arch.Kind{arch.Load, arch.Store, arch.SpinUntil, arch.Sample} {
			assert.ErrorContains(t, m.Start(0, arch.Program{op(kind, 0x1000, 0x1000)}), "no address of the kernel", "%v", kind)
		}
	}
	if this.endless {
		assert.ErrorContains(t, m.Start(0, arch.Program{op(arch.Wait, 0)}), "may never end")
	}
}

func testTwo(t *testing.T, m *machine) {
	ping, pong := m.Alloc(8, 8, 0), m.Alloc(8, 8, 0)
	spin := func(a arch.Area, want uint64) arch.Op { return op(arch.SpinUntil, a.Address(), ^uint64(0), want, 0) }
	store := func(a arch.Area, value uint64) arch.Op { return op(arch.Store, a.Address(), value, 8) }
	require.NoError(t, m.Start(0, arch.Program{spin(ping, 1), store(pong, 1), spin(ping, 2), store(pong, 2)}))
	until(t, "CPU 0 spins", func() bool { _, completed := m.At(0); return completed == 0 })
	assert.ErrorContains(t, m.Start(0, nil), "not idle")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Wait(ctx, 0)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, pong.Load(0, 8))
	ping.Store(0, 8, 1)
	until(t, "CPU 0 answers while it runs", func() bool { return pong.Load(0, 8) == 1 })
	until(t, "CPU 0 is at the next", func() bool { op, completed := m.At(0); return op == 2 && completed == 2 })
	assert.Equal(t, uint64(1), m.Results(0)[1].Count, "a result of a program that runs")
	run(t, m, 1, store(ping, 2), spin(pong, 2))
	finish(t, m, 0)
	assert.Equal(t, uint64(2), pong.Load(0, 8))
}

func testExits(t *testing.T, m *machine) {
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
	assert.ErrorContains(t, m.Resume(0), "not out")
	require.NoError(t, m.Start(0, arch.Program{op(arch.Exit, 9)}))
	_, err := m.Wait(within(t), 0)
	require.NoError(t, err)
	require.NoError(t, m.Reset(), "with a CPU that is out")
	run(t, m, 0, op(arch.Clock))
}

// testWaits waits with nobody to end it but the kernel's own interrupts.
func testWaits(t *testing.T, m *machine) {
	require.NoError(t, m.Start(1, arch.Program{op(arch.Wait, 1)}))
	stop, err := m.Wait(within(t), 1)
	require.NoError(t, err)
	if m.Results(1)[0].Trap == arch.TrapUnknown {
		assert.Equal(t, arch.Stop{Reason: "the probe does not know operation 0"}, stop)
		t.Skip("the probe knows no waits")
	}
	if !this.endless {
		assert.Zero(t, run(t, m, 1, op(arch.Wait, 0))[0].Trap, "a wait with interrupts off")
	}
	require.NoError(t, m.Start(1, arch.Program{op(arch.Wait, 1), op(arch.Wait, 1), op(arch.Clock)}))
	asleep := 0
	until(t, "the end", func() bool {
		n, err := m.Asleep(1)
		require.NoError(t, err)
		if n {
			asleep++
		}
		_, completed := m.At(1)
		return completed == 4
	})
	for i, r := range finish(t, m, 1) {
		assert.Equal(t, uint64(1), r.Count, "operation %d", i)
		assert.Zero(t, r.Trap, "operation %d", i)
	}
	t.Logf("seen at a wait %d times", asleep)
	n, err := m.Asleep(1)
	require.NoError(t, err)
	assert.False(t, n, "asleep after the end")
}

// testInterrupts turns interrupts off, and leaves it to the carrier to turn them on again.
func testInterrupts(t *testing.T, m *machine) {
	a := m.Alloc(8, 8, 0)
	for range 3 {
		run(t, m, 0, op(arch.Interrupts, 0), op(arch.Store, a.Address(), 1, 8), op(arch.Interrupts, 1), op(arch.Interrupts, 0))
		require.NoError(t, m.Start(0, arch.Program{op(arch.Interrupts, 0), op(arch.Exit, 1), op(arch.Clock)}))
		_, err := m.Wait(within(t), 0)
		require.NoError(t, err)
		runtime.GC()
		require.NoError(t, m.Resume(0))
		finish(t, m, 0)
	}
}

func testReset(t *testing.T, m *machine) {
	flag := m.Alloc(8, 8, 0)
	other := m.Alloc(8, 8, 0)
	require.NoError(t, m.Start(0, arch.Program{
		op(arch.SpinUntil, flag.Address(), ^uint64(0), 1, 0), op(arch.SpinUntil, other.Address(), ^uint64(0), 1, 0),
	}))
	require.NoError(t, m.Start(1, arch.Program{op(arch.Clock), op(arch.Loop, 0, 1<<60)}))
	until(t, "CPU 1 goes round", func() bool { _, completed := m.At(1); return completed > 10 })
	begin := time.Now()
	require.NoError(t, m.Reset())
	t.Logf("reset of two CPUs that run took %v", time.Since(begin))
	assert.Empty(t, m.Results(0))
	for cpu := range m.CPUs() {
		run(t, m, cpu, op(arch.Clock))
	}
	assert.Equal(t, flag.Address(), m.Alloc(8, 8, 0).Address())
}

func testBroken(t *testing.T, m *machine) {
	require.NoError(t, m.Start(0, arch.Program{op(arch.Clock), op(99)}))
	stop, err := m.Wait(within(t), 0)
	require.NoError(t, err)
	assert.Equal(t, arch.Stop{Reason: "the probe does not know operation 1"}, stop)
	assert.Equal(t, arch.TrapUnknown, m.Results(0)[1].Trap)
	assert.Error(t, m.Start(0, nil), "before a reset")
	require.NoError(t, m.Reset())
	run(t, m, 0, op(arch.Clock))
}

func testVectors(t *testing.T, m *machine) {
	want := make([]byte, vectorsSize)
	for i := range want {
		want[i] = byte(i * 7)
	}
	require.NoError(t, m.SetVectors(1, want))
	assert.Equal(t, want, m.Vectors(1))
	assert.Equal(t, make([]byte, vectorsSize), m.Vectors(0))
	assert.Error(t, m.SetVectors(0, want[1:]))
}

func testNone(t *testing.T, m *machine) {
	_, err := m.Counter(0, "exits")
	assert.Error(t, err)
	_, err = m.Crowd(0, 1)
	assert.Error(t, err)
	assert.Zero(t, m.Events(0, 2))
}

// testTimes tells what things cost.
func testTimes(t *testing.T, m *machine) {
	a := m.Alloc(8, 8, 0)
	for _, x := range []struct {
		what string
		do   func()
	}{
		{"a program of 3 operations and its results", func() { run(t, m, 0, op(arch.Clock), op(arch.Clock), op(arch.Clock)) }},
		{"At", func() { m.At(0) }},
		{"Load", func() { a.Load(0, 8) }},
		{"Store of 8 bytes", func() { a.Store(0, 8, 1) }},
		{"Store of 4 bytes", func() { a.Store(0, 4, 1) }},
	} {
		const times = 100
		begin := time.Now()
		for range times {
			x.do()
		}
		t.Logf("%s: %v", x.what, time.Since(begin)/times)
	}
}

// testNoSibling does without modules of the kernel. A kernel with checksums of its interfaces, or
// that does not tell of its types, cannot: it says so.
func testNoSibling(t *testing.T) {
	kernel, err := sibling("")
	require.NoError(t, err)
	begin := time.Now()
	k, err := module.FromBTF(kernel.Release())
	t.Logf("took %v: %+v, %v", time.Since(begin), k, err)
	const dir, hidden = "/lib/modules", "/lib/hidden"
	require.NoError(t, os.Rename(dir, hidden))
	defer func() { assert.NoError(t, os.Rename(hidden, dir)) }()
	why := ""
	switch {
	case len(kernel.Versions) > 0:
		why = "checksums of its interfaces (CONFIG_MODVERSIONS), which only a module tells"
	case runtime.GOARCH == "loong64": // Debian builds all others with it
		why = "the kernel needs CONFIG_KALLSYMS_ALL"
	}
	if why != "" {
		assert.ErrorIs(t, err, module.NoSibling)
		assert.ErrorContains(t, err, why)
		_, err = Open(Config{})
		assert.ErrorIs(t, err, module.NoSibling)
		return
	}
	require.NoError(t, err)
	assert.Equal(t, kernel.Vermagic, k.Vermagic)
	assert.Equal(t, kernel.Size, k.Size)
	assert.GreaterOrEqual(t, k.Align, kernel.Align)
	require.NoError(t, SelfCheck(t.Context(), Config{}))
}

// testRefusals gets the kernel to refuse modules in each way that it has.
func testRefusals(t *testing.T) {
	probe, err := this.probe()
	require.NoError(t, err)
	glue, err := module.CopyGlue()
	require.NoError(t, err)
	kernel, err := sibling("")
	require.NoError(t, err)
	load := func(change func(*module.Kernel)) error {
		k := *kernel
		change(&k)
		image, err := module.Image(module.Spec{Name: "pvabi_refused", GOARCH: runtime.GOARCH, Kernel: &k, Probe: probe, Glue: glue})
		require.NoError(t, err)
		m, err := module.Load("pvabi_refused", image, 0)
		if err == nil {
			require.NoError(t, m.Unload())
		}
		return err
	}
	same := func(*module.Kernel) {}
	require.NoError(t, load(same))
	log, err := openLog()
	require.NoError(t, err)

	err = load(func(k *module.Kernel) { k.Vermagic = "6.6.6 SMP mod_unload " })
	assert.ErrorIs(t, err, module.OtherKernel)
	assert.ErrorContains(t, err, "version magic '6.6.6 SMP mod_unload ' should be '"+kernel.Vermagic)
	err = load(func(k *module.Kernel) { k.Size += 8 })
	assert.ErrorIs(t, err, module.OtherKernel)
	assert.ErrorContains(t, err, "section size must match")
	complaints, err := log.complaints()
	require.NoError(t, err)
	assert.Len(t, complaints, 2, "the kernel's complaints of a wrong version and a wrong size")
	require.NoError(t, log.close())
	_, err = Open(Config{Sibling: "/none.ko"})
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = module.FindSibling("/proc/self/fdinfo", kernel.Release(), runtime.GOARCH)
	assert.ErrorIs(t, err, module.NoSibling)
	files, err := filepath.Glob("/lib/modules/*/kernel/drivers/net/dummy.ko")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	k, err := module.ReadSibling(files[0], runtime.GOARCH)
	require.NoError(t, err)
	assert.Equal(t, []any{kernel.Vermagic, kernel.Size, kernel.Align}, []any{k.Vermagic, k.Size, k.Align}, "what a file says, and any of its kernel")
	_, err = Open(Config{CPUs: []int{4000}})
	assert.ErrorContains(t, err, "is it online?")
	_, err = Open(Config{CPUs: []int{1, 0, 1}})
	assert.ErrorContains(t, err, "each can be used once")

	without := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: a thread does not get a capability back
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			without <- err
			return
		}
		data[0].Effective &^= 1 << unix.CAP_SYS_MODULE
		if err := unix.Capset(&header, &data[0]); err != nil {
			without <- err
			return
		}
		_, err := Open(Config{})
		without <- err
	}()
	err = <-without
	assert.ErrorIs(t, err, module.NotAllowed)
	t.Logf("without CAP_SYS_MODULE: %v", err)

	set := func(name, value string) bool {
		err := os.WriteFile(name, []byte(value), 0)
		if errors.Is(err, os.ErrNotExist) {
			t.Logf("this kernel has no %s", name)
			return false
		}
		require.NoError(t, err)
		return true
	}
	require.NoError(t, unix.Mount("securityfs", "/sys/kernel/security", "securityfs", 0, ""))
	for _, way := range []struct {
		file, value string
		want        module.Refusal
	}{
		{"/sys/kernel/security/lockdown", "integrity", module.Lockdown},
		{"/sys/module/module/parameters/sig_enforce", "1", module.Signature},
		{"/proc/sys/kernel/modules_disabled", "1", module.Disabled},
	} {
		if !set(way.file, way.value) {
			continue
		}
		err := load(same)
		var refusal module.Refusal
		assert.ErrorAs(t, err, &refusal)
		assert.ErrorIs(t, err, way.want)
		t.Logf("%s=%s: %v", way.file, way.value, err)
		if way.want == module.Lockdown {
			require.NoError(t, unix.Unmount("/sys/kernel/security", 0))
			assert.ErrorIs(t, load(same), way.want, "without the file of lockdown")
			require.NoError(t, unix.Mount("securityfs", "/sys/kernel/security", "securityfs", 0, ""))
		}
	}
	fmt.Println() // keeps the test's last line apart from the kernel's
}

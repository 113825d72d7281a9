package conformance

import (
	"context"
	"slices"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance/microvm"
	"pvabi/internal/model"
)

// TestLoongUsesNothing has kernels that use nothing, and others that use one thing each.
func TestLoongUsesNothing(t *testing.T) {
	const (
		head   = "           CPU0       CPU1\n"
		native = " 15:          3          4  LoongArch CPUINTC  12  IPI\n"
		calls  = " 14:       1004        205  LoongArch CPUINTC   0  SWI0-IPI\n"
		idle   = " 15:          0          0  LoongArch CPUINTC  12  IPI\n"
	)
	const (
		needs    = "guest/needs-hypervisor-bit"
		messages = "guest/ipi-if-offered"
		areas    = "guest/notify-if-offered"
	)
	for _, test := range []struct {
		name, interrupts, log string
		fails                 []string
		verdict               Verdict // of the rest
	}{
		{"nothing", native, "Linux\n", nil, Pass},
		{"calls", calls + idle, "Linux\n", []string{needs, messages}, Pass},
		{"calls besides", native + calls, "Linux\n", []string{needs, messages}, Pass},
		{"a call that nobody answers", native, "Linux\nReserved instruction in kernel code[#1]:\n", []string{needs}, Pass},
		{"areas", native, "Linux\nUsing paravirt steal-time with preempt enabled\n", []string{areas}, Pass},
		{"no messages", idle, "Linux\n", nil, Error},
		{"no log", native, "", nil, Error},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := &fakeKernel{MapFS: fstest.MapFS{"proc/interrupts": {Data: []byte(head + test.interrupts)}, "log": {Data: []byte(test.log)}}}
			s := &Suite{ABI: abi.LoongArch(), Guest: k, Checks: []Check{loongUsesNothing(k)}, Looks: 1}
			s.Offers = func(abi.Feature) (bool, error) { return true, nil }
			var failed []string
			require.NoError(t, s.Run(context.Background(), func(r Result) {
				if name := s.ABI.Rule(r.Rule[len("loongarch-kvm/"):]).Name(); r.Verdict == Fail {
					failed = append(failed, name)
				} else {
					assert.Equal(t, test.verdict, r.Verdict, "%s: %s", name, r.Reason)
				}
			}))
			assert.ElementsMatch(t, test.fails, failed)
		})
	}
	var names []string
	for _, r := range LoongArchPlainRules() {
		names = append(names, r.Name())
	}
	assert.Equal(t, []string{nothingRule, needs, messages, areas}, names)
}

// TestLoongPlain has a model without a hypervisor, and one with.
func TestLoongPlain(t *testing.T) {
	for host, want := range map[string]Verdict{"none": Pass, "kvm": Absent} {
		t.Run(host, func(t *testing.T) {
			hosts := model.Hosts("loongarch-kvm")
			i := slices.IndexFunc(hosts, func(h model.Host) bool { return h.Name == host })
			synctest.Test(t, func(t *testing.T) {
				open := func(c microvm.Config) (microvm.Machine, error) { return hosts[i].Open(1, c) }
				s := LoongArchPlain(Implementer{Name: "QEMU"}, open, "7.2", nil)[0]
				require.NoError(t, s.Run(t.Context(), func(r Result) {
					assert.Equal(t, want, r.Verdict, "%s; %s", r.Observed, r.Reason)
				}))
			})
		})
	}
}

package vmtests

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
	"pvabi/initramfs/agent"
	"pvabi/internal/store"
)

// artefacts is the store that the tests of this package share.
var artefacts = sync.OnceValues(func() (*store.Store, error) {
	return store.Open("", store.NewProgress(os.Stderr))
})

// reachable skips the test where the target cannot run, or must not.
func reachable(t testing.TB, target Target) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a guest or asks this machine's hypervisor; not done under -short")
	}
	if err := target.Reachable(t.Context()); err != nil {
		t.Skip("cannot run here: " + err.Error())
	}
}

// TestConformance runs every target that can run here, as many side by side as go test -parallel says: most
// guests run on one core. Each rule is a subtest:
// go test ./vmtests -run TestConformance/x86-kvm/kick
func TestConformance(t *testing.T) {
	for _, target := range Targets() {
		t.Run(target.Name, func(t *testing.T) {
			if target.Named {
				t.Skip("only who names the target means it")
			}
			reachable(t, target)
			t.Parallel()
			r := &Runner{Store: artefacts, Output: t.TempDir()}
			changes := mutants[target.Name]
			for _, m := range changes {
				r.Mutants = append(r.Mutants, agent.Mutant{Path: m.path, Value: m.value, Only: []string{m.rule}})
			}
			run := r.Run(t.Context(), target)
			require.Empty(t, run.Error, "console:\n%s", strings.Join(run.Console, "\n"))
			if run.Unreached != "" {
				t.Skip("unreached: " + run.Unreached)
			}
			t.Logf("%s %s, QEMU %s, seconds %+v, notes %q", run.Implementer.Name, run.Implementer.Version, run.QEMU.Version, run.Seconds, run.Notes)
			assert.Len(t, run.Results, len(target.Rules), "every rule must have one result")
			for _, r := range run.Results {
				_, name, _ := strings.Cut(r.Rule, "/")
				t.Run(name, func(t *testing.T) { report(t, r) })
			}
			if changes != nil {
				t.Run("mutants", func(t *testing.T) { noticed(t, target.Platform, changes, run.Mutants) })
			}
			if target.onReference() {
				t.Run("plugin", func(t *testing.T) { sameByPlugin(t, target, run) })
			}
		})
	}
}

func report(t *testing.T, r conformance.Result) {
	switch r.Verdict {
	case conformance.Pass:
	case conformance.Deviates:
		t.Logf("deviates: %s: %s", r.Deviation, r.Observed)
	case conformance.Absent, conformance.Unreached:
		t.Skipf("%s: %s", r.Verdict, r.Reason)
	case conformance.Mended:
		t.Errorf("mended: the deviation %s no longer shows; take it off the list", r.Deviation)
	case conformance.Fail:
		t.Errorf("got %s, want %s; %s", r.Observed, r.Expected, r.Reason)
	default:
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}

// paprMutants are those of every implementer of powerpc-papr.
var paprMutants = []mutant{
	{"calls/PROD/number", 0xe4, "kick/wakes-waiter"},
	{"rules/powerpc-papr/kick/wakes-waiter/want/wakes/number", 0, "kick/wakes-waiter"},
	{"rules/powerpc-papr/kick/before-wait/want/latched/number", 2, "kick/before-wait"},
	{"rules/powerpc-papr/kick/two-kicks/want/wakes/number", 2, "kick/two-kicks"},
	{"rules/powerpc-papr/kick/self/want/latched/number", 2, "kick/self"},
	{"rules/powerpc-papr/kick/running-target/want/returns/number", 2, "kick/running-target"},
	{"rules/powerpc-papr/kick/absent-target/want/wakes/number", 1, "kick/absent-target"},
	{"rules/powerpc-papr/wait/sleeps-without-kick/want/returns/number", 1, "wait/sleeps-without-kick"},
	{"rules/powerpc-papr/wait/ended-by-interrupt/want/returns/number", 0, "wait/ended-by-interrupt"},
	{"rules/powerpc-papr/wait/interrupt-eats-kick/want/latched/number", 1, "wait/interrupt-eats-kick"},
	{"registers/MSR/bits/EE/bit", 14, "wait/enables-interrupts"},
	{"calls/CONFER/outcomes/running target/result", 1, "yield/running-target"},
	{"calls/CONFER/outcomes/waiting target/result", 1, "yield/waiting-target"},
	{"errors/PARAMETER/result", -5, "yield/absent-target"},
	{"rules/powerpc-papr/yield/does-not-wake/want/wakes/number", 1, "yield/does-not-wake"},
	{"rules/powerpc-papr/preempted/running/want/preempted/number", 1, "preempted/running"},
	{"layouts/lppaca/fields/yield_count/offset", 0x104, "preempted/waiting"},
	{"rules/powerpc-papr/steal/monotonic/want/decreases/number", 1, "steal/monotonic"},
	{"rules/powerpc-papr/privilege/user-has-no-effect/want/wakes/number", 1, "privilege/user-has-no-effect"},
}

// mutants are changes of numbers of the table of a target's platform, and for each the rule that it belongs
// to. When a target's rules have been looked at, each change is made by itself, and its rule has to fail: it
// shows on the real thing that the checks notice.
var mutants = map[string][]mutant{
	"x86-kvm": {
		{"calls/KICK_CPU/number", 6, "kick/wakes-waiter"},
		{"errors/ENOSYS/result", -38, "number/undefined"},
		{"rules/x86-kvm/kick/two-kicks/want/wakes/number", 2, "kick/two-kicks"},
		{"layouts/kvm_steal_time/fields/preempted/offset", 24, "preempted/descheduled"},
		{"registers/STEAL_TIME/reserved", 0x7e, "steal/reserved-bits"},
		{"errors/EPERM/result", -13, "privilege/user-refused"},
		{"discovery/signature-ecx/number", 0x4b4d564b, "discovery/signature"},
		{"rules/x86-kvm/convention/flags-preserved/want/changed/number", 1, "convention/flags-preserved"},
		{"rules/x86-kvm/wait/interrupt-eats-kick/want/latched/number", 1, "wait/interrupt-eats-kick"},
		{"rules/x86-kvm/wait/ended-by-nmi/want/returns/number", 0, "wait/ended-by-nmi"},
		{"rules/x86-kvm/yield/does-not-wake/want/wakes/number", 1, "yield/does-not-wake"},
		{"rules/x86-kvm/counter/hypercalls/want/increment/number", 2, "counter/hypercalls"},
		{"registers/POLL_CONTROL/number", 0x4b564d08, "register/reset-values"},
		{"rules/x86-kvm/register/undefined/want/exception/number", 14, "register/undefined"},
		{"layouts/pvclock_vcpu_time_info/fields/version/offset", 4, "clock/version-even"},
		{"rules/x86-kvm/clock/area-moved/want/written/number", 0, "clock/area-moved"},
		{"layouts/pv_eoi/bits/word.ENABLED/bit", 1, "eoi/set-in-service"},
		{"rules/x86-kvm/async-pf/ready/want/interrupts/number", 2, "async-pf/ready"},
		{"calls/SEND_IPI/number", 11, "ipi/counts-each"},
		{"rules/x86-kvm/ipi/high-word/want/bits/number", 32, "ipi/high-word"},
		{"layouts/kvm_clock_pairing/fields/nsec/offset", 0, "pairing/content"},
		{"rules/x86-kvm/map-gpa-range/bad-range/want/told/number", 1, "map-gpa-range/bad-range"},
	},
	"x86-kvm-guest": {
		{"rules/x86-kvm/guest/locks-if-offered/want/operations/number", 0, "guest/locks-if-offered"},
		{"rules/x86-kvm/guest/locks-test-and-set/want/test-and-set/number", 0, "guest/locks-test-and-set"},
		{"rules/x86-kvm/guest/flush-if-offered/want/in-use/number", 0, "guest/flush-if-offered"},
		{"rules/x86-kvm/guest/eoi-cleared/want/ended/number", 0, "guest/eoi-cleared"},
		{"registers/SYSTEM_TIME_NEW/number", 0x12, "guest/clock-newer"},
		{"registers/ASYNC_PF_EN/reserved", 0x38, "guest/registers-known"},
		{"layouts/kvm_steal_time/size", 8192, "guest/areas-in-memory"},
		{"rules/x86-kvm/guest/releases-reboot/want/left/number", 1, "guest/releases-reboot"},
		{"calls/KICK_CPU/number", 11, "guest/kick-target"},
		{"calls/SEND_IPI/number", 11, "guest/ipi-lowest"},
		{"rules/x86-kvm/guest/steal-accounted/want/grows/number", 0, "guest/steal-accounted"},
	},
	"x86-xen": {
		{"rules/x86-xen/guest/locks-enabled/want/said/number", 0, "guest/locks-enabled"},
		{"rules/x86-xen/guest/kicker-port/want/ports/number", 2, "guest/kicker-port"},
		{"rules/x86-xen/guest/runstate-registered/want/areas/number", 0, "guest/runstate-registered"},
		{"rules/x86-xen/guest/waits-by-poll/want/polls/number", 0, "guest/waits-by-poll"},
		{"rules/x86-xen/guest/kicks-poller/want/kicks/number", 0, "guest/kicks-poller"},
		{"rules/x86-xen/guest/kicker-not-delivered/want/taken/number", 1, "guest/kicker-not-delivered"},
		{"discovery/runnable/number", 0, "guest/preempted-from-runstate"},
		{"rules/x86-xen/guest/steal-accounted/want/grows/number", 0, "guest/steal-accounted"},
		{"calls/send/number", 60, "kick/wakes-waiter"},
		{"rules/x86-xen/kick/before-wait/want/latched/number", 0, "kick/before-wait"},
		{"rules/x86-xen/kick/two-kicks/want/wakes/number", 2, "kick/two-kicks"},
		{"rules/x86-xen/kick/self/want/latched/number", 0, "kick/self"},
		{"rules/x86-xen/kick/running-target/want/returns/number", 0, "kick/running-target"},
		{"rules/x86-xen/kick/absent-target/want/wakes/number", 1, "kick/absent-target"},
		{"rules/x86-xen/wait/sleeps-without-kick/want/returns/number", 1, "wait/sleeps-without-kick"},
		{"rules/x86-xen/wait/ended-by-interrupt/want/returns/number", 0, "wait/ended-by-interrupt"},
		{"rules/x86-xen/wait/interrupt-eats-kick/want/latched/number", 0, "wait/interrupt-eats-kick"},
		{"discovery/running/number", 5, "preempted/running"},
		{"discovery/runnable/number", 5, "preempted/descheduled"},
		{"rules/x86-xen/preempted/waiting/want/preempted/number", 1, "preempted/waiting"},
		{"rules/x86-xen/preempted/offline/want/preempted/number", 1, "preempted/offline"},
		{"rules/x86-xen/steal/monotonic/want/decreases/number", 1, "steal/monotonic"},
		{"rules/x86-xen/privilege/user-refused/want/hypercalls/number", 1, "privilege/user-refused"},
		{"rules/x86-xen/privilege/user-has-no-effect/want/wakes/number", 1, "privilege/user-has-no-effect"},
		{"errors/ENOSYS/result", -22, "number/undefined"},
		{"errors/EINVAL/result", -38, "poll/closed-port"},
	},
	"powerpc-qemu": slices.Concat(paprMutants, []mutant{
		{"rules/powerpc-papr/kick/spent/want/latched/number", 1, "kick/spent"},
		{"errors/PRIVILEGE/result", -7, "privilege/user-refused"},
		{"errors/FUNCTION/result", -1, "number/undefined"},
		{"calls/REGISTER_VPA/args/area/values/ALIGNMENT/number", 2048, "guest/registers-area"},
		{"rules/powerpc-papr/guest/registers-own-area/want/others/number", 1, "guest/registers-own-area"},
		{"calls/REGISTER_VPA/args/flags/values/DEREGISTER_VPA/number", 0, "guest/deregisters-before-offline"},
		{"rules/powerpc-papr/guest/size-field/want/size/number", 640, "guest/size-field"},
		{"layouts/lppaca/fields/desc/offset", 4, "guest/eye-catcher"},
		{"layouts/lppaca/fields/vmxregs_in_use/offset", 0xfe, "guest/keeps-vectors"},
		{"layouts/lppaca/bits/__old_status.SHARED_PROC/bit", 7, "guest/shared-mode"},
		{"rules/powerpc-papr/guest/marks-idle/want/idle/number", 0, "guest/marks-idle"},
		{"rules/powerpc-papr/guest/preempted-yielded/want/preempted/number", 0, "guest/preempted-yielded"},
		{"layouts/lppaca/fields/idle/offset", 0xb0, "guest/preempted-idle"},
		{"rules/powerpc-papr/guest/confers-odd-count/want/even/number", 1, "guest/confers-odd-count"},
		{"rules/powerpc-papr/guest/confers-to-another/want/others/number", 1, "guest/confers-to-another"},
		{"rules/powerpc-papr/guest/locks-do-not-prod/want/prods/number", 1, "guest/locks-do-not-prod"},
		{"layouts/lppaca/fields/ready_enqueue_tb/offset", 0x1c0, "guest/steal-clock"},
	}),
	"powerpc-kvm": slices.Concat(paprMutants, []mutant{
		{"calls/CEDE/outcomes/prodded/result", 1, "number/cede"},
		{"rules/powerpc-papr/preempted/descheduled/want/preempted/number", 0, "preempted/descheduled"},
		{"layouts/lppaca/bits/yield_count.YIELDED/bit", 31, "preempted/descheduled"},
		{"layouts/lppaca/fields/enqueue_dispatch_tb/offset", 0x160, "steal/grows"},
		{"layouts/dtl_entry/fields/timebase/offset", 24, "trace/timebase"},
		{"layouts/dtl_entry/size", 56, "trace/wraps"},
	}),
	"s390-qemu": {
		{"discovery/stsi-level-vm/number", 2, "discovery/level"},
		{"rules/s390/privilege/user-refused/want/exception/number", 6, "privilege/user-refused"},
		{"rules/s390/diag/undefined-code/want/exception/number", 2, "diag/undefined-code"},
		{"errors/NOT_OPERATIONAL/result", 1, "sigp/absent-cpu"},
		{"errors/INVALID_ORDER/result", 0x100000004, "sigp/invalid-order"},
		{"errors/STOPPED/result", 0x100000020, "sigp/sense-of-stopped"},
		{"errors/EXT_CALL_PENDING/result", 0x100000040, "sigp/sense-external-call-pending"},
		{"rules/s390/sigp/emergency-signal-from-each/want/interruptions/number", 1, "sigp/emergency-signal-from-each"},
		{"rules/s390/preempted/running/want/preempted/number", 1, "preempted/running"},
		{"rules/s390/preempted/offline/want/preempted/number", 0, "preempted/offline"},
		{"rules/s390/wait/ended-by-interrupt/want/returns/number", 0, "wait/ended-by-interrupt"},
		{"rules/s390/external-call/wakes-waiter/want/wakes/number", 0, "external-call/wakes-waiter"},
		{"rules/s390/external-call/kept/want/latched/number", 0, "external-call/kept"},
		{"calls/EXTERNAL_CALL/number", 3, "external-call/kept"},
		{"rules/s390/external-call/second/want/interruptions/number", 2, "external-call/second"},
		{"rules/s390/external-call/once/want/interruptions/number", 2, "external-call/once"},
		{"rules/s390/external-call/self/want/interruptions/number", 0, "external-call/self"},
		{"rules/s390/external-call/stopped-target/want/latched/number", 0, "external-call/stopped-target"},
		{"rules/s390/external-call/names-sender/want/code/number", 0x1201, "external-call/names-sender"},
		{"rules/s390/external-call/user-has-no-effect/want/wakes/number", 1, "external-call/user-has-no-effect"},
		{"rules/s390/guest/yields-only-if-probed/want/yields/number", 1, "guest/yields-only-if-probed"},
		{"rules/s390/guest/preempted-idle/want/preempted/number", 1, "guest/preempted-idle"},
		{"rules/s390/guest/preempted-running/want/preempted/number", 1, "guest/preempted-running"},
		{"rules/s390/guest/preempted-not-running/want/preempted/number", 0, "guest/preempted-not-running"},
		{"rules/s390/guest/yields-to-existing/want/others/number", 1, "guest/yields-to-existing"},
		{"rules/s390/guest/one-external-call/want/busy/number", 1, "guest/one-external-call"},
		{"calls/TIME_SLICE_END/number", 0x500, "guest/time-slice-end-unused"},
		{"rules/s390/guest/counts-diagnoses/want/increment/number", 2, "guest/counts-diagnoses"},
	},
	"loongarch-guest": {
		{"rules/loongarch-kvm/guest/needs-hypervisor-bit/want/calls/number", 1, "guest/needs-hypervisor-bit"},
		{"rules/loongarch-kvm/guest/needs-signature/want/calls/number", 1, "guest/needs-signature"},
		{"rules/loongarch-kvm/guest/ipi-if-offered/want/native/number", 1, "guest/ipi-if-offered"},
		{"rules/loongarch-kvm/guest/ipi-if-offered/want/calls/number", 1, "guest/ipi-if-offered"},
		{"rules/loongarch-kvm/guest/starts-cpus-natively/want/calls/number", 1, "guest/starts-cpus-natively"},
		{"rules/loongarch-kvm/guest/ipi-lowest/want/clear/number", 1, "guest/ipi-lowest"},
		{"rules/loongarch-kvm/guest/ipi-to-existing/want/others/number", 1, "guest/ipi-to-existing"},
		{"rules/loongarch-kvm/guest/ipi-taken/want/missed/number", 1, "guest/ipi-taken"},
		{"rules/loongarch-kvm/guest/notify-if-offered/want/areas/number", 0, "guest/notify-if-offered"},
		{"rules/loongarch-kvm/guest/notify-if-offered/want/calls/number", 1, "guest/notify-if-offered"},
		{"rules/loongarch-kvm/guest/notify-arguments/want/others/number", 1, "guest/notify-arguments"},
		{"rules/loongarch-kvm/guest/notify-own-area/want/overlaps/number", 1, "guest/notify-own-area"},
		{"rules/loongarch-kvm/guest/area-begins-clear/want/changed/number", 1, "guest/area-begins-clear"},
		{"rules/loongarch-kvm/guest/released-at-offline/want/areas/number", 1, "guest/released-at-offline"},
		{"rules/loongarch-kvm/guest/released-at-reboot/want/areas/number", 1, "guest/released-at-reboot"},
		{"rules/loongarch-kvm/guest/steal-shown/want/others/number", 1, "guest/steal-shown"},
		{"rules/loongarch-kvm/guest/steal-waits-for-even-version/want/values/number", 1, "guest/steal-waits-for-even-version"},
		{"rules/loongarch-kvm/guest/preempted-obeyed/want/preempted/number", 0, "guest/preempted-obeyed"},
		{"rules/loongarch-kvm/guest/preempted-ignored/want/preempted/number", 1, "guest/preempted-ignored"},
		{"rules/loongarch-kvm/guest/asks-once/want/exits/number", 1, "guest/asks-once"},
		{"rules/loongarch-kvm/guest/no-other-calls/want/others/number", 1, "guest/no-other-calls"},
		{"calls/IPI/number", 2, "guest/no-other-calls"},
		{"calls/NOTIFY/number", 3, "guest/notify-if-offered"},
		{"calls/NOTIFY/args/what/values/STEAL_TIME/number", 5, "guest/notify-arguments"},
		{"calls/NOTIFY/args/address/values/VALID/number", 2, "guest/notify-if-offered"},
		{"calls/NOTIFY/args/address/values/RESERVED/number", 63, "guest/notify-arguments"},
	},
}

// TestMutantsExist: each of them is a number of its platform's table, and another one.
func TestMutantsExist(t *testing.T) {
	numbers := map[string]map[string]int64{}
	for _, p := range abi.Platforms() {
		numbers[p.Name] = map[string]int64{}
		for _, n := range p.Numbers() {
			numbers[p.Name][n.Path] = n.Value
		}
	}
	for name, tests := range mutants {
		target, err := Find(name)
		require.NoError(t, err)
		for _, tt := range tests {
			if value, ok := numbers[target[0].Platform][tt.path]; assert.True(t, ok, "no number %s", tt.path) {
				assert.NotEqual(t, tt.value, value, tt.path)
			}
		}
	}
}

// mutant is a number of a table, what it is changed to, and a rule.
type mutant struct {
	path  string
	value int64
	rule  string
}

// noticed wants, for each mutant, that its rule failed.
func noticed(t *testing.T, platform string, tests []mutant, results []conformance.Result) {
	t.Helper()
	got := map[string]conformance.Verdict{}
	for _, m := range results {
		got[m.Mutant+": "+m.Rule] = m.Verdict
		t.Logf("%s: %s: %s in %.1f s: want %s, got %s %s", m.Mutant, m.Rule, m.Verdict, m.Seconds, m.Expected, m.Observed, m.Reason)
	}
	for _, tt := range tests {
		key := fmt.Sprintf("%s=%d: %s/%s", tt.path, tt.value, platform, tt.rule)
		assert.Equal(t, conformance.Fail, got[key], key)
	}
}

// TestMeasure has a guest measure its costs, all of them with each kind of sharing.
func TestMeasure(t *testing.T) {
	target, err := Find("powerpc-qemu")
	require.NoError(t, err)
	reachable(t, target[0])
	run := (&Runner{Store: artefacts, Output: t.TempDir(), Rounds: 1}).Run(t.Context(), target[0])
	require.Empty(t, run.Error, "console:\n%s", strings.Join(run.Console, "\n"))
	assert.Empty(t, run.Results)
	seen := map[string]int{}
	for _, m := range run.Measured {
		seen[m.Sharing]++
		if assert.Len(t, m.Nanoseconds, 1, "%s, %s", m.Cost, m.Sharing) {
			assert.Positive(t, m.Nanoseconds[0], "%s, %s", m.Cost, m.Sharing)
		}
	}
	assert.NotZero(t, seen["all"])
	assert.Equal(t, map[string]int{"none": seen["all"], "steal": seen["all"], "all": seen["all"]}, seen)
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
	"pvabi/conformance/kmod"
	"pvabi/internal/guesttest"
	"pvabi/internal/qemu"
)

// inGuest is where the guests of TestAgent have the command.
const inGuest = "bin/pvabi"

// TestAgent boots Debian's kernels and has pvabi agent run there as a plain program.
func TestAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("boots guests; not done under -short")
	}
	for _, guest := range []struct {
		goarch  string
		threads qemu.Threads
		load    []string
		append  string
	}{
		{"amd64", qemu.OneThread, []string{"dummy", "kvm_amd"}, ""},
		{"ppc64le", qemu.ThreadPerCPU, []string{"dummy"}, ""},
		{"s390x", qemu.ThreadPerCPU, []string{"dummy"}, ""},
		{"amd64", qemu.OneThread, []string{"dummy"}, "module.sig_enforce=1"},
		{"ppc64le", qemu.ThreadPerCPU, []string{"dummy"}, "lockdown=integrity"},
	} {
		t.Run(strings.TrimSuffix(guest.goarch+","+guest.append, ","), func(t *testing.T) {
			guesttest.Guest{
				GOARCH: guest.goarch, CPUs: 4, Threads: guest.threads, Load: guest.load, Append: strings.Fields(guest.append),
				Files:   map[string]string{inGuest: guesttest.Build(t, guest.goarch, "build")},
				Silence: 5 * time.Minute, // it has no events until all is over
			}.Run(t, "TestInGuest")
		})
	}
}

// TestInGuest is what TestAgent's guests do.
func TestInGuest(t *testing.T) {
	if !guesttest.Inside() {
		t.Skip("for a guest; TestAgent boots some")
	}
	line, err := os.ReadFile("/proc/cmdline")
	require.NoError(t, err)
	for word, want := range map[string]string{
		"module.sig_enforce=1": "the kernel takes only signed modules",
		"lockdown=integrity":   "the kernel is locked down",
	} {
		if strings.Contains(string(line), word) {
			testRefusal(t, want)
			return
		}
	}
	t.Run("self-check", testSelfCheck)
	t.Run("left by a killed process", testLeft)
	if runtime.GOARCH == "amd64" {
		t.Run("nobody below", testNobody)
		t.Run("own KVM", testOwnKVM)
	} else {
		t.Run("below", testBelow)
		t.Run("interrupted", testInterrupted)
		t.Run("unprivileged", testUnprivileged)
	}
	require.NoError(t, os.WriteFile("/proc/sys/kernel/modules_disabled", []byte("1"), 0))
	t.Run("modules turned off", func(t *testing.T) { testRefusal(t, "loading modules was turned off") })
}

// ran is what became of a command.
type ran struct {
	status         int
	stdout, stderr string
	report         *conformance.Report // nil if there is none
}

// agentCommand is pvabi agent, whose results come into a folder of its own.
func agentCommand(t *testing.T, args ...string) (c *exec.Cmd, finish func() ran) {
	dir := t.TempDir()
	c = exec.Command("/"+inGuest, append([]string{"agent"}, args...)...)
	c.Dir = dir
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	return c, func() ran {
		r := ran{status: c.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
		t.Logf("pvabi agent %q: status %d\n%s%s", args, r.status, r.stderr, notable(r.stdout))
		if f, err := os.Open(filepath.Join(dir, "results", "results.json")); err == nil {
			defer f.Close()
			r.report, err = conformance.ReadJSON(f)
			assert.NoError(t, err)
		}
		return r
	}
}

// notable is what is worth reading of a report: not the rules that hold, and one of those that are
// not looked at.
func notable(report string) string {
	var out strings.Builder
	skipped := 0
	for line := range strings.Lines(report) {
		if strings.Contains(line, "# SKIP") {
			skipped++
		}
		if !strings.HasSuffix(line, "# pass\n") && (skipped == 1 || !strings.Contains(line, "# SKIP")) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// runHere runs pvabi agent. The kernel must be as it was.
func runHere(t *testing.T, args ...string) ran {
	w, err := kmod.NewWatch()
	require.NoError(t, err)
	c, finish := agentCommand(t, args...)
	_ = c.Run() // the status tells
	r := finish()
	assert.NoError(t, w.Same())
	complaints, err := w.Complaints()
	assert.NoError(t, err)
	assert.Empty(t, complaints, "what the kernel said")
	require.NoError(t, w.Close())
	return r
}

func testSelfCheck(t *testing.T) {
	r := runHere(t, "-self-check")
	assert.Zero(t, r.status)
	assert.Contains(t, r.stdout, "self-check: modules of ours were loaded")
	assert.Nil(t, r.report)
	taint, err := os.ReadFile("/proc/sys/kernel/tainted")
	require.NoError(t, err)
	assert.Contains(t, []string{"0\n", "8192\n"}, string(taint), "taint, of an unsigned module at most")
}

// leaveVariable has this program open a machine, and die.
const leaveVariable = "PVABI_TEST_LEAVE"

func init() {
	if os.Getenv(leaveVariable) == "" {
		return
	}
	if _, err := kmod.Open(kmod.Config{Most: 1}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// testLeft has modules left by a process that was killed, which the next one unloads.
func testLeft(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), leaveVariable+"=1")
	out, err := c.CombinedOutput()
	require.ErrorContains(t, err, "killed", "%s", out)
	loaded := func() string {
		content, err := os.ReadFile("/proc/modules")
		require.NoError(t, err)
		return string(content)
	}
	prefix := fmt.Sprintf("pvabi_%d_", c.Process.Pid)
	require.Contains(t, loaded(), prefix)
	c, finish := agentCommand(t, "-self-check")
	_ = c.Run()
	assert.Zero(t, finish().status)
	assert.NotContains(t, loaded(), "pvabi_")
}

func testNobody(t *testing.T) {
	r := runHere(t)
	assert.Equal(t, conformance.ExitFailed, r.status)
	assert.Contains(t, r.stdout, "no KVM: its signature is in no leaf of CPUID")
	assert.Contains(t, r.stderr, "no rule was looked at")
}

func testOwnKVM(t *testing.T) {
	r := runHere(t, "-rules", "kick/*", "x86-kvm-host")
	assert.Zero(t, r.status)
	require.Len(t, r.report.Runs, 1)
	run := r.report.Runs[0]
	assert.Equal(t, run.Guest.Release, run.Implementer.Version)
	assert.Contains(t, strings.Join(run.Notes, "\n"), "fit for all checks")
	assert.Equal(t, map[conformance.Verdict]int{conformance.Pass: len(run.Results)}, run.Totals())
}

// below is the one target that there is below a machine of this architecture.
var below = map[string]string{"ppc64le": "powerpc-below", "s390x": "s390-below"}[runtime.GOARCH]

func testBelow(t *testing.T) {
	// The topic of some rules that could disturb. On s390 they stop a CPU, which QEMU now
	// and then leaves halted when it is started again, and the kernel waits for it for good.
	topic := map[string]string{"ppc64le": "join/", "s390x": "diag/"}[runtime.GOARCH]
	gentle := runHere(t)
	disturbing := runHere(t, "-disturb", "-hypervisor-version", "11.1.2", "-format", "junit", "-rules", "discovery/*,"+topic+"*", below)
	assert.True(t, strings.HasPrefix(disturbing.stdout, "<?xml"), "junit")
	for i, r := range []ran{gentle, disturbing} {
		assert.Zero(t, r.status)
		require.Len(t, r.report.Runs, 1)
		run := r.report.Runs[0]
		assert.Equal(t, below, run.Target)
		assert.Equal(t, "QEMU", run.Implementer.Name)
		assert.Equal(t, []string{"", "11.1.2"}[i], run.Implementer.Version)
		assert.Equal(t, runtime.GOARCH, run.Guest.GOARCH)
		assert.Equal(t, 4, run.Guest.CPUs)
		left := 0
		for _, x := range run.Results {
			if strings.HasPrefix(x.Reason, "looking could disturb the machine") {
				assert.Equal(t, conformance.Unreached, x.Verdict)
				left++
			}
		}
		if i == 0 {
			assert.Positive(t, left, "rules that could disturb")
		} else {
			assert.Zero(t, left, "rules that could disturb")
		}
		totals := run.Totals()
		assert.Greater(t, totals[conformance.Pass], []int{30, 2}[i], "rules that hold")
		assert.Zero(t, totals[conformance.Fail]+totals[conformance.Error]+totals[conformance.Mended])
		assert.Contains(t, strings.Join(run.Notes, "\n"), "the kernel is as it was: no module of ours is left")
	}
	list := runHere(t, "-list")
	assert.Contains(t, list.stdout, "only by -disturb: ")
	assert.Contains(t, list.stdout, "not known: its version")
}

// testInterrupted ends the command in the midst of its checks.
func testInterrupted(t *testing.T) {
	w, err := kmod.NewWatch()
	require.NoError(t, err)
	c, finish := agentCommand(t)
	out, err := os.CreateTemp(t.TempDir(), "stdout")
	require.NoError(t, err)
	c.Stdout = out
	require.NoError(t, c.Start())
	said := func() string {
		content, err := os.ReadFile(out.Name())
		require.NoError(t, err)
		return string(content)
	}
	require.Eventually(t, func() bool { return strings.Contains(said(), "ok 20 ") }, time.Minute, time.Millisecond)
	begin := time.Now()
	require.NoError(t, c.Process.Signal(os.Interrupt))
	_ = c.Wait()
	t.Logf("ended %v after the signal", time.Since(begin))
	r := finish()
	assert.Equal(t, conformance.ExitFailed, r.status)
	assert.Contains(t, r.stderr, "interrupt signal received")
	require.NotNil(t, r.report)
	assert.NotEmpty(t, r.report.Runs[0].Error)
	assert.NoError(t, w.Same())
	complaints, err := w.Complaints()
	assert.NoError(t, err)
	assert.Empty(t, complaints, "what the kernel said")
	require.NoError(t, w.Close())
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	require.NoError(t, err)
	assert.Equal(t, "0-3\n", string(online))
}

func testUnprivileged(t *testing.T) {
	const nobody = 65534
	as := func(args ...string) ran {
		c, finish := agentCommand(t, args...)
		require.NoError(t, os.Chmod(c.Dir, 0o777))
		require.NoError(t, os.Chmod(filepath.Dir(c.Dir), 0o777))
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		_ = c.Run()
		return finish()
	}
	r := as()
	assert.Equal(t, conformance.ExitFailed, r.status)
	assert.Contains(t, r.stderr, "loading a module takes root")
	r = as("-unprivileged")
	switch runtime.GOARCH {
	case "ppc64le":
		assert.Zero(t, r.status)
		assert.Equal(t, 1, r.report.Runs[0].Totals()[conformance.Pass])
	default:
		assert.Equal(t, conformance.ExitFailed, r.status)
		assert.Contains(t, r.stdout, "without root there is nothing to be asked")
	}
}

// testRefusal has a kernel that takes no modules of ours.
func testRefusal(t *testing.T, why string) {
	c, finish := agentCommand(t, "-self-check")
	_ = c.Run()
	r := finish()
	assert.Equal(t, conformance.ExitFailed, r.status)
	assert.Contains(t, r.stderr, why)
	if below == "" {
		return
	}
	c, finish = agentCommand(t)
	_ = c.Run()
	r = finish()
	assert.Equal(t, conformance.ExitFailed, r.status)
	run := r.report.Runs[0]
	assert.Contains(t, run.Unreached, why)
	assert.Empty(t, run.Error)
	assert.Equal(t, map[conformance.Verdict]int{conformance.Unreached: len(run.Results)}, run.Totals())
}

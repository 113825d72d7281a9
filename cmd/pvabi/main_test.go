package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

// call runs a command line in this process.
func call(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = dispatch(ctx, args, &out, &err)
	return status, out.String(), err.String()
}

// bzImage is the least that passes for an x86 kernel: see
// Documentation/arch/x86/boot.rst.
func bzImage() []byte {
	k := make([]byte, 5*512)
	copy(k[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(k[0x206:], 0x20c)
	k[0x236] = 1 // XLF_KERNEL_64
	return k
}

// files writes files into a new folder and makes it the working folder. It has a
// "tmp" for temporary files, and an empty cache.
func files(t *testing.T, contents map[string]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a folder, with 'all'")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "tmp"), 0o755))
	t.Chdir(dir)
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	t.Setenv("PVABI_CACHE", filepath.Join(dir, "cache"))
	for name, content := range contents {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		mode := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		require.NoError(t, os.WriteFile(name, []byte(content), mode))
	}
}

// entries lists a folder.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

const (
	report  = `{"schema":1,"runs":[{"target":"t","results":[{"rule":"p/q/r","verdict":"pass"}]}]}`
	worse   = `{"schema":1,"runs":[{"target":"t","results":[{"rule":"p/q/r","verdict":"fail"}]}]}`
	base    = `{"schema":1,"runs":[{"target":"t","results":[{"rule":"p/q/r","verdict":"pass"},{"rule":"p/a/b","verdict":"pass"}]},{"target":"u","results":[{"rule":"p/q/r","verdict":"pass"}]}]}`
	foreign = `{"schema":99,"runs":[]}`
)

// TestDispatch has what needs no guest: command lines that are right, and wrong ones.
func TestDispatch(t *testing.T) {
	files(t, map[string]string{
		"good.json": report, "worse.json": worse, "foreign.json": foreign, "base.json": base, "empty.json": "", "text.json": "hello",
		"cut.json": report[:len(report)/2], "file": "", "taken/results.json/x": "", "bzImage": string(bzImage()),
		"s390": strings.Repeat("\x00", 0x10008) + "S390EP" + strings.Repeat("\x00", 0x1000), "config-": "CONFIG_S390=y\n",
	})
	busy, err := claim("busy", nil)
	require.NoError(t, err)
	defer busy.Close()
	for _, test := range []struct {
		args   string // separated by blanks
		status int
		stdout string // part of it
		stderr string // part of it
	}{
		{"", 2, "", "usage: pvabi COMMAND"},
		{"help", 0, "usage: pvabi COMMAND", ""},
		{"-h", 0, "usage: pvabi COMMAND", ""},
		{"frob", 2, "", `unknown command "frob"`},
		{"run -h", 0, "", "usage: pvabi run [flags]"},
		{"run -bogus", 2, "", "flag provided but not defined: -bogus"},
		{"run nosuch", 2, "", `unknown target "nosuch"; there are x86-kvm, `},
		{"run x86-kvm -o out", 2, "", "-o stands behind an argument; flags come first"},
		{"bench -rounds 0", 2, "", "-rounds wants a number from 1"},
		{"bench loongarch-guest", 2, "", "target loongarch-guest has no costs to be measured; leave it out"},
		{"bench -qemu q", 2, "", "-kernel, -modules, -module and -qemu are for guests of one architecture"},
		{"bench -o busy x86-kvm", 2, "", "another pvabi writes to busy"},
		{"run -format yaml x86-kvm", 2, "", `unknown format "yaml"; there are ktap, summary, json, junit`},
		{"run -modules-from nosuch x86-kvm", 2, "", "-modules-from: nosuch: no kernel was built there: it has no .config"},
		{"run -modules-from file -modules tmp x86-kvm", 2, "", "-modules-from: modules of another folder are not for the kernel of the tree"},
		{"run -bisect -modules-from nosuch x86-kvm", 125, "", "no kernel was built there"},
		{"run -bisect -o out -format summary -kernel nosuch x86-kvm", 125, "error      read the kernel: stat nosuch", "stat nosuch: no such file"},
		{"run -bisect -rules nosuch/* x86-kvm", 128, "", "selects no rule"},
		{"run -bisect -against nosuch x86-kvm", 128, "", "-against: open nosuch"},
		{"run -bogus -bisect x86-kvm", 128, "", "flag provided but not defined: -bogus"},
		{"run -bisect -h", 0, "", "usage: pvabi run"},
		{"check", 2, "", "nothing to check; give the tree"},
		{"check -linux nosuch", 2, "", "nosuch"},
		{"check -kernel nosuch", 2, "", "nosuch"},
		{"check -kernel bzImage x86-kvm-below", 2, "", "name the targets to run"},
		{"check -kernel s390", 2, "", "no target looks at kernel s390, of s390x, as it is configured"},
		{"run -threads many x86-kvm", 2, "", `unknown -threads "many"; there are single and multi`},
		{"run -rules nosuch/* x86-kvm", 2, "", `-rules "nosuch/*" selects no rule of these targets`},
		{"run -rules kick/*,nosuch/* x86-kvm", 2, "", `-rules "nosuch/*" selects no rule`},
		{"run -rules [a x86-kvm", 2, "", `-rules "[a": syntax error in pattern`},
		{"run -rules , x86-kvm", 2, "", `-rules "" selects no rule`},
		{"run -kernel good.json x86-kvm-below", 2, "", "name the targets to run"},
		{"run -modules nosuch x86-kvm-below", 2, "", "name the targets to run"},
		{"run -qemu nosuch x86-kvm-below", 2, "", "name the targets to run"},
		{"run -module kvm.ko x86-kvm-below", 2, "", "-modules, -module and -qemu are for guests of one architecture"},
		{"run -module kvm.ko -kernel bzImage x86-kvm", 2, "", "-module stands in for one of the kernel's modules; give the folder of the others by -modules"},
		{"run -xen nosuch", 2, "", "-xen is not for target x86-kvm; name targets that boot on any Xen"},
		{"run -xen nosuch x86-xen x86-xen-4.17", 2, "", "-xen is not for target x86-xen-4.17"},
		{"run -o= x86-kvm", 2, "", "-o wants the name of a folder"},
		{"run -o file x86-kvm", 2, "", "the folder for results: mkdir file: not a directory; name another one by -o"},
		{"run -o file/out x86-kvm", 2, "", "not a directory; name another one by -o"},
		{"run -o busy x86-kvm", 2, "", "another pvabi writes to busy; name another one by -o"},
		{"run -o taken x86-kvm", 2, "", "taken/results.json: directory not empty; name another one by -o"},
		{"targets", 0, "x86-kvm", ""},
		{"targets -json", 0, `"target": "x86-kvm"`, ""},
		{"targets x", 2, "", `unexpected argument "x"`},
		{"fetch nosuch", 2, "", `unknown target "nosuch"`},
		{"fetch -cache file x86-kvm", 2, "", "not a directory; set PVABI_CACHE to a folder that can be written"},
		{"fetch -cache a:b x86-kvm", 2, "", "set PVABI_CACHE to a folder without"},
		{"fetch -kernel-suite ../x x86-kvm", 2, "", `suite "../x": want letters`},
		{"spec -platform x86-kvm", 0, "KICK_CPU", ""},
		{"spec -platform x", 2, "", `unknown platform "x"; there is x86-kvm`},
		{"spec -findings", 0, "## QEMU\n", ""},
		{"spec -defects", 0, "| P01 |", ""},
		{"spec -format x", 2, "", `unknown format "x"; there are text, json and markdown`},
		{"spec x86-kvm", 2, "", "name a platform by -platform"},
		{"report", 2, "", "usage: pvabi report"},
		{"report good.json", 2, "", "give -html FILE, -markdown FILE or -versions FILE"},
		{"report -markdown - good.json", 0, "| t |", ""},
		{"report -html - nosuch", 2, "", "nosuch"},
		{"report -html nosuch/x.html good.json", 2, "", "write the report"},
		{"matrix -plan -format x", 2, "", "a plan is written as text, json, github or gitlab"},
		{"matrix -plan -shard 3/2", 2, "", "want i/n"},
		{"matrix -plan -qemu-suites , x86-kvm", 2, "", "there is no job"},
		{"matrix -plan x", 2, "", `unknown target "x"`},
		{"matrix -plan -qemu-suites forky -kernel-suites trixie x86-kvm", 0, "bin/pvabi run -qemu-suite forky -kernel-suite trixie", ""},
		{"drift", 2, "", "nothing to read; give a tree by -linux"},
		{"drift x", 2, "", "usage: pvabi drift"},
		{"drift -linux .", 2, "", ". is no Linux tree"},
		{"drift -vmlinux good.json", 2, "", "give the vmlinux of the build"},
		{"diff", 2, "", "usage: pvabi diff"},
		{"diff good.json", 2, "", "usage: pvabi diff"},
		{"diff good.json good.json", 0, "no rule has another verdict\n", ""},
		{"diff good.json worse.json", 1, "worse   t  p/q/r: pass -> fail\n", ""},
		{"diff worse.json good.json", 0, "changed t  p/q/r: fail -> pass\n", ""},
		{"diff -format json good.json good.json", 0, "[]\n", ""},
		{"diff -format markdown good.json worse.json", 1, "| worse | t | `p/q/r` | pass | fail |", ""},
		{"run -against base.json -rules nosuch/* x86-kvm-below", 2, "", "selects no rule"},
		{"run -looks 0 x86-kvm", 2, "", "numbers from 1"},
		{"run -against nosuch x86-kvm", 2, "", "-against: open nosuch"},
		{"run -against junk.json x86-kvm", 2, "", "-against: "},
		{"diff -format x good.json good.json", 2, "", `unknown format "x"; there are text, markdown and json`},
		{"diff good.json nosuch.json", 2, "", "open nosuch.json: no such file or directory"},
		{"diff good.json .", 2, "", ".: not a results.json"},
		{"diff good.json empty.json", 2, "", "empty.json: not a results.json"},
		{"diff good.json text.json", 2, "", "text.json: not a results.json"},
		{"diff cut.json good.json", 2, "", "cut.json: not a results.json: unexpected EOF"},
		{"diff good.json foreign.json", 2, "", "foreign.json: results.json of schema 99; this program reads schema 1"},
	} {
		t.Run(test.args, func(t *testing.T) {
			status, stdout, stderr := call(t.Context(), strings.Fields(test.args)...)
			assert.Equal(t, test.status, status, "stderr: %s", stderr)
			assert.Contains(t, stdout, test.stdout)
			assert.Contains(t, stderr, test.stderr)
			if test.stderr == "" {
				assert.Empty(t, stderr)
			}
			if test.stdout == "" {
				assert.Empty(t, stdout)
			}
		})
	}
	assert.Empty(t, entries(t, "tmp"))
	assert.Empty(t, entries(t, "busy"), "what a run does not own it leaves alone")
}

// TestRunOfUnusable has files of the user's that no guest can be made of.
func TestRunOfUnusable(t *testing.T) {
	other := bzImage()
	other[0x236] = 0
	cut := bzImage()
	cut[0x1f4] = 1 // 16 bytes after the setup code
	files(t, map[string]string{
		"good": string(bzImage()), "empty": "", "garbage": "\x7fno kernel", "other": string(other), "cut": string(cut), "file": "x",
		"mute": "#!/bin/sh\n", "liar": "#!/bin/sh\necho QEMU emulator", "fails": "#!/bin/sh\necho no libfoo >&2; exit 127\n", "bad": "#!/does/not/exist\n",
	})
	for _, test := range []struct {
		args   string
		stderr string
	}{
		{"-kernel nosuch", "read the kernel: stat nosuch: no such file or directory"},
		{"-kernel empty", "not a usable kernel: empty is empty"},
		{"-kernel garbage", "not a usable kernel: garbage: neither bzImage, ELF"},
		{"-kernel .", "not a usable kernel: . is no regular file"},
		{"-kernel /dev/null", "/dev/null is no regular file"},
		{"-kernel cut", "not a usable kernel: cut: 2560 bytes, and its header says 2576: the file is cut off; fetch or copy it again"},
		{"-kernel other", "not a usable kernel: other is for 386 (its format is bzImage), and the target needs a kernel for amd64"},
		{"-kernel good -qemu nosuch", "nosuch: no such file or directory"},
		{"-kernel good -qemu .", "is a directory"},
		{"-kernel good -qemu file", "file does not run here: "},
		{"-kernel good -qemu bad", "bad does not run here: "},
		{"-kernel good -qemu fails", "fails does not run here: exit status 127: no libfoo"},
		{"-kernel good -qemu mute", `mute is no QEMU system emulator: --version says ""`},
		{"-kernel good -qemu liar", `liar is no QEMU system emulator`},
	} {
		t.Run(test.args, func(t *testing.T) {
			require.NoError(t, os.MkdirAll("out", 0o755))
			require.NoError(t, os.WriteFile("out/results.json", []byte("of yesterday"), 0o644))
			args := append([]string{"run", "-o", "out", "-format", "json"}, strings.Fields(test.args)...)
			status, stdout, stderr := call(t.Context(), append(args, "x86-kvm")...)
			assert.Equal(t, conformance.ExitFailed, status)
			assert.Contains(t, stderr, "pvabi run: x86-kvm: ")
			assert.Contains(t, stderr, test.stderr)
			saved, err := readReport("out/results.json")
			require.NoError(t, err)
			assert.Contains(t, saved.Runs[0].Error, test.stderr)
			for _, r := range saved.Runs[0].Results {
				assert.Equal(t, conformance.Error, r.Verdict, r.Rule)
			}
			printed, err := conformance.ReadJSON(strings.NewReader(stdout))
			require.NoError(t, err)
			assert.Equal(t, saved, printed)
			assert.Equal(t, []string{"results.json"}, entries(t, "out"))
			assert.Empty(t, entries(t, "tmp"))
		})
	}
}

// TestRunWithoutGo names a target that cannot run, and then none.
func TestRunWithoutGo(t *testing.T) {
	files(t, nil)
	t.Setenv("PATH", "tmp")
	status, stdout, stderr := call(t.Context(), "run", "x86-kvm")
	assert.Equal(t, conformance.ExitFailed, status)
	assert.Contains(t, stdout, "ok 1 x86-kvm # SKIP unreached: no go command on PATH")
	assert.Contains(t, stderr, "pvabi run: x86-kvm: unreached: no go command on PATH, which compiles the guest's agent; install Go")
}

func TestFailures(t *testing.T) {
	looked := []conformance.Result{{Verdict: conformance.Absent}, {Verdict: conformance.Pass}}
	good := &conformance.Run{Target: "good", Results: looked}
	silent := &conformance.Run{Target: "silent", Results: looked[:1]}
	broken := &conformance.Run{Target: "broken", Error: "the guest panicked", Results: looked}
	away := &conformance.Run{Target: "away", Unreached: "no Xen"}
	for _, test := range []struct {
		runs  []*conformance.Run
		named bool
		want  []string
	}{
		{[]*conformance.Run{good, silent, away}, false, nil},
		{[]*conformance.Run{good, silent, away}, true, []string{"silent: no rule was looked at", "away: unreached: no Xen"}},
		{[]*conformance.Run{good, broken}, false, []string{"broken: the guest panicked"}},
		{[]*conformance.Run{silent, away}, false, []string{"no rule was looked at"}},
		{nil, false, []string{"no rule was looked at"}},
	} {
		r := &conformance.Report{Schema: conformance.Schema, Runs: test.runs}
		got := failures(r, test.named)
		assert.Equal(t, test.want, got)
		assert.Equal(t, r.ExitStatus(test.named, false) == conformance.ExitFailed, len(got) > 0, "a message and the exit status go together: %q", got)
	}
}

// TestOutputFails has nobody that takes what is printed.
func TestOutputFails(t *testing.T) {
	files(t, map[string]string{"good.json": report})
	for _, args := range []string{"targets", "targets -json", "spec", "spec -format json", "diff good.json good.json", "diff -format json good.json good.json", "run -kernel nosuch x86-kvm", "run -format junit -kernel nosuch x86-kvm"} {
		var stderr bytes.Buffer
		status := dispatch(t.Context(), strings.Fields(args), full{}, &stderr)
		assert.Equal(t, conformance.ExitFailed, status, args)
		assert.Contains(t, stderr.String(), "no space", args)
	}
	assert.Equal(t, []string{"results.json"}, entries(t, "results"), "the report is saved all the same")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

// TestInterruptedBefore is a run that was ended before it began.
func TestInterruptedBefore(t *testing.T) {
	files(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt signal received"))
	status, _, stderr := call(ctx, "run", "x86-kvm")
	assert.Equal(t, conformance.ExitFailed, status)
	assert.Equal(t, "pvabi run: interrupt signal received: what was finished is in results/results.json\n", stderr)
	_, err := readReport("results/results.json")
	assert.NoError(t, err)
	assert.Empty(t, entries(t, "tmp"))
	assert.NoDirExists(t, "cache")
}

func TestSave(t *testing.T) {
	files(t, nil)
	r := &conformance.Report{Schema: conformance.Schema, Runs: []*conformance.Run{{Target: "t", Results: []conformance.Result{{
		Evidence: map[string]any{"what JSON cannot have": func() {}},
	}}}}}
	assert.ErrorContains(t, save(r.WriteJSON, "tmp", results), "write the results: ")
	assert.Empty(t, entries(t, "tmp"), "whole or not at all")
	r.Runs[0].Results = nil
	require.NoError(t, save(r.WriteJSON, "tmp", results))
	assert.Equal(t, []string{"results.json"}, entries(t, "tmp"))
	assert.ErrorContains(t, save(r.WriteJSON, "nosuch", results), "write the results: ")
}

// TestBisectStatus: a rule that is broken tells of a bad commit, though another could not be judged.
func TestBisectStatus(t *testing.T) {
	for _, test := range []struct {
		verdicts      []conformance.Verdict
		plain, bisect int
	}{
		{[]conformance.Verdict{conformance.Pass}, 0, 0},
		{[]conformance.Verdict{conformance.Pass, conformance.Error}, 2, 2},
		{[]conformance.Verdict{conformance.Fail, conformance.Error}, 2, 1},
		{[]conformance.Verdict{conformance.Fail, conformance.Pass}, 1, 1},
	} {
		run := &conformance.Run{Target: "t"}
		for _, v := range test.verdicts {
			run.Results = append(run.Results, conformance.Result{Verdict: v})
		}
		r := &conformance.Report{Runs: []*conformance.Run{run}}
		assert.Equal(t, test.plain, (&reporting{named: true}).status(r), test.verdicts)
		assert.Equal(t, test.bisect, (&reporting{named: true, bisect: true}).status(r), test.verdicts)
	}
}

func TestJudge(t *testing.T) {
	read := func(text string) *conformance.Report {
		r, err := conformance.ReadJSON(strings.NewReader(text))
		require.NoError(t, err)
		return r
	}
	gone := strings.Replace(report, "pass", "unreached", 1)
	moved := strings.Replace(report, `"schema":1,`, `"schema":1,"drift":["a: moved"],`, 1)
	for _, test := range []struct {
		name, base, now string
		bisect          bool
		status          int
		want            string
	}{
		{"the same", report, report, false, 0, "no rule has another verdict"},
		{"drift", report, moved, false, 1, "drift   a: moved"},
		{"drift of before", moved, moved, false, 0, ""},
		{"no longer looked at", report, gone, false, 1, "worse   t  p/q/r: pass -> unreached"},
		{"no longer looked at, for bisect", report, gone, true, 2, ""},
		{"no verdict, for bisect", report, strings.Replace(report, "pass", "error", 1), true, 2, ""},
		{"broken, for bisect", report, worse, true, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			o := &reporting{bisect: test.bisect}
			assert.Equal(t, test.status, o.judge(&b, read(test.base), read(test.now), nil))
			assert.Contains(t, b.String(), test.want)
		})
	}
}

func TestCompare(t *testing.T) {
	read := func(text string) *conformance.Report {
		r, err := conformance.ReadJSON(strings.NewReader(text))
		require.NoError(t, err)
		return r
	}
	for _, test := range []struct {
		now    string
		only   []string
		status int
		want   string
	}{
		{report, nil, 1, "gone"},
		{report, []string{"q/*"}, 0, "no rule has another verdict"},
		{worse, []string{"q/*"}, 1, "worse   t  p/q/r: pass -> fail"},
	} {
		var b strings.Builder
		assert.Equal(t, test.status, new(reporting).judge(&b, read(base), read(test.now), test.only))
		if test.want != "gone" {
			assert.Contains(t, b.String(), test.want)
		}
		assert.NotContains(t, b.String(), " u ")
	}
}

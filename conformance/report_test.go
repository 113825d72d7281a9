package conformance

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample has one result of each verdict, and a target of each way to end.
func sample() *Report {
	run := &Run{
		Target: "x86-kvm", Platform: "x86-kvm",
		Implementer: Implementer{"Linux KVM", "7.2.12"},
		Guest:       Guest{Identity: Identity{GOARCH: "amd64", Release: "7.2.12", CPUs: 2}},
		QEMU: QEMU{
			Artefact: Artefact{Path: "/usr/bin/qemu-system-x86_64", Version: "11.1.2", SHA256: "00"},
			Command:  "qemu-system-x86_64 -M pc",
		},
		Seconds: Seconds{Boot: 5, Modules: 1, Checks: 2, Total: 9},
	}
	for i, v := range Verdicts {
		r := Result{Rule: "x86-kvm/kick/" + string(v), Side: abi.Hypervisor, Verdict: v, Seconds: float64(i) / 8}
		switch v {
		case Pass:
			r.Expected, r.Observed = "waits ended: 1", "waits ended: 1"
		case Fail:
			r.Expected, r.Observed = "waits ended: 1", "waits ended: 0 # none\nat all"
		case Deviates, Mended:
			r.Deviation, r.Observed = "kvm-1", "waits ended: 0"
		default:
			r.Reason = "because of \x1b<this>"
		}
		run.Results = append(run.Results, r)
	}
	return &Report{Schema: Schema, Runs: []*Run{
		run,
		{Target: "s390-qemu", Unreached: "no qemu-system-s390x; install the package qemu-system-misc"},
		{Target: "x86-xen", Error: "the guest panicked", Console: []string{"Kernel panic - not syncing: \x1b[31mno init"}},
	}}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "%s: run with -update if the change is meant", path)
}

func TestFormats(t *testing.T) {
	r := sample()
	var b bytes.Buffer
	require.NoError(t, r.WriteJSON(&b))
	golden(t, "results.json", b.Bytes())
	back, err := ReadJSON(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	assert.Equal(t, r, back, "what was written must read back")

	b.Reset()
	require.NoError(t, r.WriteJUnit(&b))
	golden(t, "junit.xml", b.Bytes())

	b.Reset()
	k := NewKTAP(&b, len(r.Runs))
	for _, run := range r.Runs {
		if len(run.Results) == 0 {
			k.Skip(run)
			continue
		}
		var rules []abi.Rule
		for _, res := range run.Results {
			rules = append(rules, abi.Rule{ID: res.Rule})
		}
		k.Begin(run.Target, rules)
		k.Comment("Linux KVM 7.2.12\nQEMU 11.1.2")
		for _, res := range run.Results {
			k.Result(res)
		}
		k.EndTarget(run)
	}
	require.NoError(t, k.End())
	golden(t, "results.ktap", b.Bytes())
}

func TestReadJSONRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":         "",
		"other JSON":      `[1]`,
		"no schema":       `{}`,
		"another schema":  `{"schema":2}`,
		"unknown verdict": `{"schema":1,"runs":[{"target":"t","results":[{"rule":"r","verdict":"fine"}]}]}`,
		"null run":        `{"schema":1,"runs":[null]}`,
		"truncated":       `{"schema":1,"runs":[{"target":"t"`,
		"no runs":         `{"schema":1}`,
		"more after it":   `{"schema":1,"runs":[]} {}`,
		"a target twice":  `{"schema":1,"runs":[{"target":"t"},{"target":"t"}]}`,
		"a rule twice":    `{"schema":1,"runs":[{"target":"t","results":[{"rule":"r","verdict":"pass"},{"rule":"r","verdict":"fail"}]}]}`,
	} {
		_, err := ReadJSON(strings.NewReader(text))
		assert.Error(t, err, name)
	}
}

func FuzzReadJSON(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, sample().WriteJSON(&b))
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema":1,"runs":[{"target":"t","results":[]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ReadJSON(bytes.NewReader(data))
		if err != nil {
			return
		}
		// Whatever is accepted must be usable.
		r.ExitStatus(true, true)
		Diff(r, r)
		require.NoError(t, r.WriteJUnit(new(bytes.Buffer)))
	})
}

func TestExitStatus(t *testing.T) {
	run := func(vs ...Verdict) *Run {
		r := &Run{Target: "t"}
		for _, v := range vs {
			r.Results = append(r.Results, Result{Rule: "p/a/" + string(v), Verdict: v})
		}
		return r
	}
	unreached := &Run{Target: "u", Unreached: "no QEMU"}
	tests := []struct {
		name          string
		runs          []*Run
		named, strict bool
		want          int
	}{
		{"all well", []*Run{run(Pass, Deviates, Absent, Unreached)}, true, true, ExitConforms},
		{"a failure", []*Run{run(Pass, Fail)}, false, false, ExitBroken},
		{"an error", []*Run{run(Pass, Error)}, false, false, ExitFailed},
		{"a failure and an error", []*Run{run(Fail), run(Pass, Error)}, false, false, ExitFailed},
		{"mended", []*Run{run(Pass, Mended)}, false, false, ExitConforms},
		{"mended, strict", []*Run{run(Pass, Mended)}, false, true, ExitBroken},
		{"nothing", nil, false, false, ExitFailed},
		{"nothing looked at", []*Run{run(Absent, Unreached)}, false, false, ExitFailed},
		{"another target cannot run here", []*Run{run(Pass), unreached}, false, false, ExitConforms},
		{"a named target cannot run here", []*Run{run(Pass), unreached}, true, false, ExitFailed},
		{"a named target without a look", []*Run{run(Pass), run(Absent)}, true, false, ExitFailed},
		{"broken equipment", []*Run{run(Pass), {Target: "e", Error: "died"}}, false, false, ExitFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := (&Report{Schema: Schema, Runs: tt.runs}).ExitStatus(tt.named, tt.strict)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestDiff(t *testing.T) {
	report := func(rules map[string]Verdict) *Report {
		run := &Run{Target: "t"}
		for r, v := range rules {
			run.Results = append(run.Results, Result{Rule: r, Verdict: v})
		}
		return &Report{Runs: []*Run{run}}
	}
	got := Diff(
		report(map[string]Verdict{"same": Pass, "broke": Pass, "better": Fail, "gone": Pass, "lost": Pass, "known": Fail}),
		report(map[string]Verdict{"same": Pass, "broke": Fail, "better": Pass, "new": Pass, "newfail": Fail, "lost": Unreached, "known": Deviates}),
	)
	worse := map[string]bool{}
	for _, c := range got {
		worse[c.Rule] = c.Worse()
	}
	assert.Equal(t, map[string]bool{"broke": true, "better": false, "gone": true, "new": false, "newfail": true, "lost": true, "known": false}, worse)
}

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

// fakeSystem is a guest with some files, whose kernel refuses some modules.
type fakeSystem struct {
	files   []string
	refuses map[string]error
	lines   []string
	broken  error
}

func (f fakeSystem) identity() (conformance.Identity, error) {
	return conformance.Identity{GOARCH: "amd64", Release: "7.2.12"}, f.broken
}

func (f fakeSystem) load(name string) (conformance.Module, error) {
	return conformance.Module{Name: name}, f.refuses[name]
}

func (f fakeSystem) exists(name string) bool { return slices.Contains(f.files, name) }

func (f fakeSystem) log(lines int) []string { return f.lines[max(0, len(f.lines)-lines):] }

// events names the kinds of events, and gives the texts of those that have one.
func events(es []conformance.Event) (kinds []string, texts string) {
	for _, e := range es {
		switch {
		case e.Identity != nil:
			kinds = append(kinds, "identity")
		case e.Loaded != nil:
			kinds = append(kinds, "loaded")
		case e.Result != nil:
			kinds = append(kinds, "result")
		case e.Fatal != "":
			kinds = append(kinds, "fatal")
		case e.Unreached != "":
			kinds = append(kinds, "unreached")
		case e.Note != "":
			kinds = append(kinds, "note")
		case e.Finished:
			kinds = append(kinds, "finished")
		}
		texts += e.Fatal + e.Unreached + e.Note
	}
	return kinds, texts
}

func TestDo(t *testing.T) {
	result := conformance.Event{Result: &conformance.Result{Rule: "x/y/z"}}
	suites := map[string]Suite{
		"good": func(_ context.Context, _ Job, emit func(conformance.Event)) error {
			emit(result)
			return nil
		},
		"fails": func(_ context.Context, _ Job, emit func(conformance.Event)) error {
			emit(result)
			return errors.New("the machine broke")
		},
		"panics": func(context.Context, Job, func(conformance.Event)) error { panic("out of luck") },
		"unmarshalable": func(_ context.Context, _ Job, emit func(conformance.Event)) error {
			emit(conformance.Event{Result: &conformance.Result{Evidence: map[string]any{"f": func() {}}}})
			return nil
		},
	}
	log := []string{"1", "2", "kvm_amd: SVM not supported by CPU 0"}
	for _, test := range []struct {
		name string
		sys  fakeSystem
		job  Job
		want []string // kinds
		text string   // part of what the events say
	}{
		{"good", fakeSystem{files: []string{"/dev/kvm"}}, Job{Target: "good", Modules: []string{"kvm"}, Needs: []string{"/dev/kvm"}, Scenario: "areas", End: EndKexec},
			[]string{"identity", "loaded", "result", "finished"}, ""},
		{"suite fails", fakeSystem{}, Job{Target: "fails"}, []string{"identity", "loaded", "result", "fatal", "finished"}, "the machine broke"},
		{"suite panics", fakeSystem{}, Job{Target: "panics"}, []string{"identity", "loaded", "fatal", "finished"}, "panic in the agent: out of luck\ngoroutine"},
		{"event that JSON cannot have", fakeSystem{}, Job{Target: "unmarshalable"}, []string{"identity", "loaded", "fatal", "finished"}, "cannot be sent"},
		{"unknown target", fakeSystem{}, Job{Target: "nope"}, []string{"identity", "fatal", "finished"}, `the agent for amd64 knows no target "nope"`},
		{"module refused", fakeSystem{lines: log, refuses: map[string]error{"kvm_amd": errors.New("EOPNOTSUPP (operation not supported)")}},
			Job{Target: "good", Modules: []string{"kvm", "kvm_amd"}}, []string{"identity", "unreached", "finished"},
			"does not load module kvm_amd: EOPNOTSUPP (operation not supported); the kernel's log ends with:\n1\n2\nkvm_amd: SVM not supported by CPU 0"},
		{"device missing", fakeSystem{}, Job{Target: "good", Modules: []string{"kvm"}, Needs: []string{"/dev/kvm"}},
			[]string{"identity", "unreached", "finished"}, "the guest has no /dev/kvm, with modules kvm loaded"},
		{"device missing, no modules", fakeSystem{}, Job{Target: "good", Needs: []string{"/dev/kvm"}},
			[]string{"identity", "unreached", "finished"}, "no /dev/kvm, with no modules loaded"},
		{"nobody", fakeSystem{broken: errors.New("no /proc")}, Job{Target: "good"}, []string{"identity", "fatal", "finished"}, "no /proc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []conformance.Event
			do(t.Context(), test.sys, test.job, suites, func(e conformance.Event) { got = append(got, e) })
			kinds, text := events(got)
			assert.Equal(t, test.want, kinds)
			assert.Contains(t, text, test.text)
		})
	}
}

func TestDoSerialisesEvents(t *testing.T) {
	const n = 50
	suites := map[string]Suite{"many": func(_ context.Context, _ Job, emit func(conformance.Event)) error {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { emit(conformance.Event{Note: "x"}) })
		}
		wg.Wait()
		return nil
	}}
	got := 0 // for the race detector
	do(t.Context(), fakeSystem{}, Job{Target: "many"}, suites, func(conformance.Event) { got++ })
	assert.Equal(t, n+3, got)
}

func TestParseJob(t *testing.T) {
	job := Job{Target: "x86-kvm", Modules: []string{"kvm", "kvm_amd"}, Needs: []string{"/dev/kvm"}, Looks: 3, Rounds: 10, Share: 2, Shares: 3, Kernel: Region{1 << 28, 75000001}}
	got, err := ParseJob(append([]string{"console=ttyS0", ChannelWord + "/dev/ttyS1"}, job.Words()...))
	require.NoError(t, err)
	assert.Equal(t, job, got, "what Words says")

	got, err = ParseJob(Job{Target: "boot"}.Words())
	require.NoError(t, err)
	assert.Equal(t, Job{Target: "boot"}, got)

	for _, words := range [][]string{
		nil, {"quiet"}, {"pvabi.target="}, {"pvabi.target=x", "pvabi.modles=kvm"}, {"pvabi.target=x", "pvabi.looks=0"},
		{"pvabi.target=x", "pvabi.looks=many"}, {"pvabi.target=x", "pvabi.share=3/2"}, {"pvabi.target=x", "pvabi.share=1/2/3"},
		{"pvabi.target=x", "pvabi.share=0/2"}, {"pvabi.target=x", "pvabi.kernel=0x100"}, {"pvabi.target=x", "pvabi.kernel=256,1"},
	} {
		_, err := ParseJob(words)
		assert.Error(t, err, "%q", words)
	}
}

func TestFit(t *testing.T) {
	big := strings.Repeat("x", MaxEvent)
	quotes := strings.Repeat("\x01", MaxEvent) // six bytes each in JSON
	small := conformance.Event{Note: "small"}
	assert.Equal(t, []conformance.Event{small}, fit(small))

	evidence := map[string]any{"small": 1, "big": big, "bytes": []byte(big)}
	result := conformance.Event{Result: &conformance.Result{Rule: "x/y/z", Observed: "seen", Evidence: evidence}}
	got := fit(result)
	require.Len(t, got, 2)
	assert.Contains(t, got[0].Note, "the result of x/y/z was")
	assert.Equal(t, map[string]any{"small": 1, "big": fmt.Sprintf("left out: %d bytes", MaxEvent+2), "bytes": fmt.Sprintf("left out: %d bytes", jsonSize(evidence["bytes"]))}, got[1].Result.Evidence)
	assert.Equal(t, "seen", got[1].Result.Observed)
	assert.Equal(t, big, evidence["big"], "what the suite holds is unchanged")

	many := make(map[string]any)
	for i := range 10000 {
		many[fmt.Sprint(i)] = "value"
	}
	for _, e := range []conformance.Event{
		result,
		{Result: &conformance.Result{Rule: "a", Evidence: many}},
		{Result: &conformance.Result{Rule: "a", Expected: quotes, Observed: quotes, Reason: quotes}},
		{Fatal: quotes}, {Unreached: big}, {Note: strings.Repeat("\u00fc", MaxEvent)},
	} {
		for _, f := range fit(e) {
			b, err := json.Marshal(f)
			require.NoError(t, err)
			assert.LessOrEqual(t, len(b), MaxEvent)
		}
	}
}

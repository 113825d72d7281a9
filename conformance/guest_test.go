package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
)

// fakeKernel is a kernel of files in memory. Its log is the file "log".
type fakeKernel struct {
	fstest.MapFS
	// hits are what each recording has, a part at each look; hidden is why there are none.
	hits   [][]Hit
	hidden error
	open   int // recordings that nobody has ended
	// recorder is the last recording.
	recorder *fakeRecorder
}

func (k *fakeKernel) Write(name, text string) error {
	k.MapFS[name] = &fstest.MapFile{Data: []byte(text)}
	return nil
}

func (k *fakeKernel) Log() ([]string, error) {
	return strings.Split(string(k.MapFS["log"].Data), "\n"), nil
}

func (k *fakeKernel) Symbol(_ KernelMachine, name string) (address, size uint64, err error) {
	return 0, 0, fmt.Errorf("%w: %s", ErrHidden, name)
}

func (k *fakeKernel) Pinned(_ int, do func() error) error { return do() }

func (k *fakeKernel) Record(...Probe) (Recorder, error) {
	if k.hidden != nil {
		return nil, k.hidden
	}
	k.open++
	k.recorder = &fakeRecorder{k: k, left: k.hits}
	return k.recorder, nil
}

type fakeRecorder struct {
	k      *fakeKernel
	left   [][]Hit
	closed bool
}

func (r *fakeRecorder) Hits() (h []Hit, err error) {
	if len(r.left) > 0 {
		h, r.left = r.left[0], r.left[1:]
	}
	return h, nil
}

func (r *fakeRecorder) Close() error {
	if !r.closed {
		r.closed = true
		r.k.open--
	}
	return nil
}

// TestGuestKernel: what a kernel does not show makes rules unreached, and never passes them.
func TestGuestKernel(t *testing.T) {
	shows := &fakeKernel{MapFS: fstest.MapFS{
		"proc/x":                        {Data: []byte("1\n")},
		"sys/devices/system/cpu/online": {Data: []byte("0-1,3\n")},
	}, hits: [][]Hit{nil, {{Probe: "p", CPU: 1}}}}
	hides := &fakeKernel{MapFS: fstest.MapFS{}, hidden: fmt.Errorf("%w: no tracing", ErrHidden)}
	broken := &fakeKernel{MapFS: fstest.MapFS{}, hidden: errors.New("broken")}
	readX := func(t *T) {
		if text, ok := t.file("proc/x", "CONFIG_X", "a/1"); ok {
			t.Equal("a/1", "text", "1\n", text)
		}
	}
	seeHit := func(t *T) {
		if r, ok := t.recording([]string{"a/1"}, Probe{Name: "p", At: "f"}); ok {
			t.Truth("a/1", "seen", t.Until(func() bool { return len(t.hits(r)) == 1 }))
		}
	}
	for _, tt := range []struct {
		name string
		k    *fakeKernel
		run  func(*T)
		want Verdict
		said string
	}{
		{"file", shows, readX, Pass, ""},
		{"no file", hides, readX, Unreached, "the kernel has no /proc/x; it needs CONFIG_X"},
		{"hit", shows, seeHit, Pass, ""},
		{"no recording", hides, seeHit, Unreached, "no tracing"},
		{"recording fails", broken, seeHit, Error, "broken"},
		{"check fails while it records", shows, func(t *T) { seeHit(t); t.Fatal(errors.New("lost")) }, Error, "lost"},
		{"online", shows, func(t *T) { t.Equal("a/1", "CPUs", []int{0, 1, 3}, t.online()) }, Pass, ""},
		{"no list of CPUs", hides, func(t *T) { t.online() }, Error, "which CPUs are online"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Suite{ABI: table("a/1"), Looks: 3, Guest: tt.k, Checks: []Check{{Rules: []string{"a/1"}, Run: tt.run}}}
			var got Result
			require.NoError(t, s.Run(t.Context(), func(r Result) { got = r }))
			assert.Equal(t, tt.want, got.Verdict, got.Reason)
			assert.Contains(t, got.Reason, tt.said)
			assert.Zero(t, tt.k.open, "recordings that nobody has ended")
		})
	}
}

// area is the area of a CPU as Linux has it, but for one field.
func area(name string, value uint64) []byte {
	b := make([]byte, 640)
	binary.BigEndian.PutUint32(b, 0xd397d781)
	binary.BigEndian.PutUint16(b[4:], 1024)
	b[0xff] = 1
	if name != "" {
		f := abi.PowerPCPAPR().Layout("lppaca").Field(name)
		for i := range f.Size {
			b[f.Offset+i] = byte(value >> (8 * (f.Size - 1 - i)))
		}
	}
	return b
}

func TestPAPRGuestAreas(t *testing.T) {
	for _, tt := range []struct {
		name  string
		area  []byte
		fails []string
	}{
		{"as it is", area("", 0), nil},
		{"short", area("size", 639), []string{"guest/size-field"}},
		{"no eye-catcher", area("desc", 0x81d797d3), []string{"guest/eye-catcher"}},
		{"vectors lost", area("vmxregs_in_use", 0), []string{"guest/keeps-vectors"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &fakeKernel{MapFS: fstest.MapFS{
				"sys/devices/system/cpu/online":       {Data: []byte("0-1")},
				"sys/kernel/debug/powerpc/vpa/cpu-0":  {Data: area("", 0)},
				"sys/kernel/debug/powerpc/vpa/cpu-1":  {Data: tt.area},
				"sys/kernel/debug/powerpc/vpa/cpu-20": {Data: nil},
			}}
			s := PowerPCGuest("7.2", k, []byte("hcall-splpar\x00"), nil)
			s.Checks = []Check{paprGuestAreas()}
			var fails []string
			require.NoError(t, s.Run(t.Context(), func(r Result) {
				assert.Equal(t, abi.Guest, r.Side)
				if r.Verdict != Pass {
					assert.Equal(t, Fail, r.Verdict, r.Reason)
					fails = append(fails, strings.TrimPrefix(r.Rule, "powerpc-papr/"))
				}
			}))
			assert.Equal(t, tt.fails, fails)
		})
	}
}

func TestStealOf(t *testing.T) {
	const stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu1 1 2 3 4 5 6 7 42 9 10\ncpu10 0 0 0 0 0 0 0 7 0 0\nintr 1\n"
	for cpu, want := range map[int]uint64{1: 42, 10: 7} {
		got, err := stealOf(stat, cpu)
		assert.NoError(t, err)
		assert.Equal(t, want, got, "CPU %d", cpu)
	}
	for _, bad := range []string{"", "cpu0 1 2", "cpu0 1 2 3 4 5 6 7 x"} {
		_, err := stealOf(bad, 0)
		assert.Error(t, err, "%q", bad)
	}
}

func FuzzStealOf(f *testing.F) {
	f.Add("cpu0 1 2 3 4 5 6 7 8 9 10\n")
	f.Fuzz(func(t *testing.T, stat string) { _, _ = stealOf(stat, 0) })
}

func TestDiagStat(t *testing.T) {
	const text = "               CPU0       CPU1\ndiag 044:          0          0    Voluntary Timeslice End\ndiag 500:         17          4    Virtio Service\n"
	for code, want := range map[uint64]uint64{0x44: 0, 0x500: 21} {
		got, err := diagStat(text, code)
		assert.NoError(t, err)
		assert.Equal(t, want, got, "%#x", code)
	}
	_, err := diagStat(text, 0x9c)
	assert.ErrorContains(t, err, "no row for 0x9c")
}

func FuzzDiagStat(f *testing.F) {
	f.Add("diag 09c:          1 2    Relinquish Timeslice\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = diagStat(text, 0x9c) })
}

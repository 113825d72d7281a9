package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

// onXen makes a guest of Xen of a configuration, in a folder with all that QEMU's list of
// modules can express.
func onXen(t *testing.T, c Config) Config {
	dir := filepath.Join(t.TempDir(), "a,folder")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, file := range map[string]*string{"kernel": &c.Kernel, "initramfs": &c.Initramfs} {
		*file = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(*file, []byte(name), 0o644))
	}
	xen := filepath.Join(filepath.Dir(c.Console), "xen, of one's own")
	require.NoError(t, os.WriteFile(xen, []byte("xen"), 0o644))
	c.Board = XenBoard
	c.Xen = &Xen{File: xen, Release: "4.20", BuildID: "2570", Append: []string{"sched=credit2"}}
	c.Append = []string{"pvabi.modules=a,b"}
	return c
}

// xenGuest is what a guest of a Xen says that it is.
func xenGuest(xen string) string {
	return strings.Replace(identity, `"cpus":2`, `"cpus":2,"xen":`+xen, 1)
}

func TestRunXen(t *testing.T) {
	const dom0 = `{"version":"4.20.5-pre","build_id":"2570","guest_type":"PV","dom0":true}`
	c := onXen(t, faked(t, "args", xenGuest(dom0), finished, done))
	var got kinds
	_, err := Run(t.Context(), c, got.add)
	require.NoError(t, err)
	assert.Equal(t, kinds{"identity", "finished"}, got)
	console, err := os.ReadFile(c.Console)
	require.NoError(t, err)
	escaped := strings.ReplaceAll(filepath.Dir(c.Kernel), ",", ",,")
	for _, want := range []string{
		"-kernel\n" + c.Xen.File + "\n",
		"-append\nconsole=com1 com1=115200,8n1 ", " maxcpus=1 ", " dom0_max_vcpus=3 sched=credit2\n",
		"-initrd\n" + escaped + "/kernel console=hvc0 panic=-1 ", " pvabi.modules=a,,b," + escaped + "/initramfs\n",
		"-cpu\nqemu64\n",
	} {
		assert.Contains(t, string(console), want)
	}
	assert.NotContains(t, string(console), "-bios")
}

func TestRunXenErrors(t *testing.T) {
	for _, test := range []struct {
		name   string
		script []string
		change func(*Config)
		is     error
		want   string
	}{
		{"no Xen", []string{identity}, nil, ErrIdentity, "no Xen below it"},
		{"older Xen", []string{xenGuest(`{"version":"4.2.5","build_id":"2570","guest_type":"PV","dom0":true}`)}, nil, ErrIdentity, `its version of Xen is "4.2.5", want "4.20"`},
		{"other build", []string{xenGuest(`{"version":"4.20.5","build_id":"1111","guest_type":"PV","dom0":true}`)}, nil, ErrIdentity, `its build of Xen is "1111", want "2570"`},
		{"PVH", []string{xenGuest(`{"version":"4.20.5","build_id":"2570","guest_type":"PVH","dom0":true}`)}, nil, ErrIdentity, `its kind on Xen is "PVH", want "PV"`},
		{"domU", []string{xenGuest(`{"version":"4.20.5","build_id":"2570","guest_type":"PV"}`)}, nil, ErrIdentity, `its domain 0 on Xen is "false", want "true"`},
		{"Xen panics", []string{"console (XEN) ****", "console (XEN) Panic on CPU 0:", "console (XEN) Could not construct domain 0", "exit 0"}, nil, ErrPanic, "Xen: Could not construct domain 0"},
		{"domain 0 crashes", []string{"console (XEN) Domain 0 (vcpu#2) crashed on cpu#0:", "exit 0"}, nil, ErrPanic, "Xen: domain 0 crashed"},
		{"no hypervisor", nil, func(c *Config) { c.Xen.File = "/does/not/exist" }, os.ErrNotExist, "boot the Xen"},
		{"blank in a name", nil, func(c *Config) {
			name := c.Kernel + " x"
			if os.Rename(c.Kernel, name) == nil {
				c.Kernel = name
			}
		}, nil, "QEMU takes no blank in its name; set TMPDIR"},
		{"long line", nil, func(c *Config) { c.Append = []string{strings.Repeat("x", 1000)} }, nil, "for a kernel on Xen, which takes 1023"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := onXen(t, faked(t, append([]string{"console first line"}, test.script...)...))
			if test.change != nil {
				test.change(&c)
			}
			_, err := Run(t.Context(), c, func(conformance.Event) {})
			require.Error(t, err)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			assert.ErrorContains(t, err, test.want)
		})
	}
}

package qemu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/conformance"
	"pvabi/initramfs"
	"pvabi/initramfs/agent"
	"pvabi/internal/store"
)

// TestBoot boots real guests: Debian's kernel with KVM's modules, and the same
// with something amiss.
func TestBoot(t *testing.T) {
	if testing.Short() {
		t.Skip("boots guests; not done under -short")
	}
	s, err := store.Open("", store.NewProgress(os.Stderr))
	require.NoError(t, err)
	kernel, err := s.Kernel(t.Context(), store.KernelSpec{GOARCH: "amd64"})
	if err != nil {
		t.Skipf("cannot run here: no kernel: %v", err)
	}
	q, err := s.QEMU(t.Context(), store.QEMUSpec{GOARCH: "amd64"})
	if err != nil {
		t.Skipf("cannot run here: no QEMU: %v", err)
	}

	info, err := initramfs.CheckKernel(kernel.Image, "amd64")
	require.NoError(t, err)
	assert.Equal(t, initramfs.KernelInfo{GOARCH: "amd64", Format: initramfs.FormatBzImage, Release: kernel.Release}, info)
	temp := t.TempDir()
	direct, err := os.Create(filepath.Join(temp, "vmlinux"))
	require.NoError(t, err)
	require.NoError(t, initramfs.UnpackKernel(direct, kernel.Image))
	require.NoError(t, direct.Close())
	info, err = initramfs.CheckKernel(direct.Name(), "amd64")
	require.NoError(t, err)
	assert.Equal(t, initramfs.KernelInfo{GOARCH: "amd64", Format: initramfs.FormatELF, Release: kernel.Release}, info)

	binary, err := initramfs.BuildAgent(t.Context(), temp, "amd64")
	require.NoError(t, err)
	image, err := initramfs.Build(initramfs.Config{
		Agent: binary, GOARCH: "amd64", Release: kernel.Release, Modules: kernel.Modules, Load: []string{"kvm-amd"}, Path: filepath.Join(temp, "image"),
	})
	require.NoError(t, err)
	assert.LessOrEqual(t, image.Size, int64(12<<20))

	kvm := agent.Job{Target: "boot", Modules: image.Names(), Needs: []string{"/dev/kvm"}}
	for _, test := range []struct {
		name   string
		job    agent.Job
		change func(*Config)
		want   kinds
		says   string // part of what an event says
		is     error
		err    string // part of the error
	}{
		{name: "compressed kernel", job: kvm, change: func(c *Config) { c.Kernel = kernel.Image }, want: kinds{"identity", "loaded", "finished"}},
		{name: "KVM", job: kvm, want: kinds{"identity", "loaded", "finished"}},
		{name: "thread per CPU", job: kvm, change: func(c *Config) { c.Threads = ThreadPerCPU }, want: kinds{"identity", "loaded", "finished"}},
		{name: "CPU without SVM", job: kvm, change: func(c *Config) { c.Board.CPU = "max,-svm" }, want: kinds{"identity", "unreached", "finished"}, says: "does not load module kvm_amd: E"},
		{name: "without KVM", job: agent.Job{Target: "boot", Needs: kvm.Needs}, want: kinds{"identity", "unreached", "finished"}, says: "the guest has no /dev/kvm, with no modules loaded"},
		{name: "unknown target", job: agent.Job{Target: "none"}, want: kinds{"identity", "fatal", "finished"}, says: `knows no target "none"`},
		{name: "panic", job: kvm, change: func(c *Config) { c.Append = append(c.Append, "rdinit=/none", "root=/dev/none") }, is: ErrPanic, err: "VFS: Unable to mount root fs"},
		{name: "CPU missing", job: kvm, change: func(c *Config) { c.Append = append(c.Append, "maxcpus=1") }, is: ErrIdentity, err: "number of CPUs is 1, want 2"},
		{name: "QEMU refuses", job: kvm, change: func(c *Config) { c.Board.Machine = "none-such" }, is: ErrExited, err: "unsupported machine type"},
	} {
		t.Run(test.name, func(t *testing.T) {
			board, err := BoardOf("amd64")
			require.NoError(t, err)
			c := Config{
				QEMU: q.Command, Env: q.Env, Board: board, CPUs: 2, Kernel: direct.Name(), Initramfs: image.Path, Release: kernel.Release,
				Append: test.job.Words(), Console: filepath.Join(t.TempDir(), "console"),
			}
			if test.change != nil {
				test.change(&c)
			}
			var got kinds
			said := ""
			report, err := Run(t.Context(), c, func(e conformance.Event) {
				got.add(e)
				said += e.Fatal + e.Unreached
				if e.Loaded != nil {
					for i, m := range e.Loaded.Modules {
						assert.Equal(t, image.Modules[i].Name, m.Name)
						assert.Equal(t, image.Modules[i].SHA256, m.SHA256)
					}
				}
			})
			t.Logf("to identity %.1f s, loaded %.1f s, end %.1f s; %d MiB; notes %q", report.ToIdentity, report.ToLoaded, report.Total, report.PeakRSS>>20, report.Notes)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
				assert.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
			assert.Contains(t, said, test.says)
			assert.Positive(t, report.PeakRSS)
			assert.Equal(t, "TCGTCGTCGTCG", report.Identity.Hypervisor)
		})
	}
}

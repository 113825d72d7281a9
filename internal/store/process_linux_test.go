package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// helperDir is the environment variable that makes the test program a process
// that fetches a kernel into the store at its value.
const helperDir = "PVABI_TEST_STORE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		os.Exit(helper(dir))
	}
	os.Exit(m.Run())
}

func helper(dir string) int {
	s, err := Open(dir, NewProgress(os.Stdout))
	if err == nil {
		s.trust, s.keyring = "trusted=yes", os.DevNull
		var k *Kernel
		if k, err = s.Kernel(context.Background(), KernelSpec{GOARCH: "amd64"}); err == nil {
			fmt.Println("kernel:", k.Release)
			return 0
		}
	}
	fmt.Println("error:", err)
	return 1
}

// startHelper starts a process that fetches, and returns its standard output.
func startHelper(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperDir+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, bufio.NewScanner(out)
}

// barriers are the places at which a fetch is held up. Each makes hold's channel
// give once when a fetch is there, and lets none pass until release.
var barriers = []string{"Release", "Packages", "deb", "unpack"}

func hold(t *testing.T, a *fakeArchive, at string) (reached <-chan struct{}, release func()) {
	t.Helper()
	there, open := make(chan struct{}, 1), make(chan struct{})
	if at == "unpack" {
		fifo := filepath.Join(t.TempDir(), "fifo")
		require.NoError(t, syscall.Mkfifo(fifo, 0o600))
		go func() {
			// Opening waits for the script to open the other end.
			if f, err := os.Open(fifo); err == nil {
				_ = f.Close()
				there <- struct{}{}
			}
		}()
		path := os.Getenv("PATH")
		onPath(t, "dpkg-deb", `"$REAL" "$@" | head -c 3000; : >`+fifo+`; exec sleep 600`)
		return there, func() { require.NoError(t, os.Setenv("PATH", path)) }
	}
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, at) {
			return false
		}
		if at == "deb" { // half of it
			data, err := os.ReadFile(filepath.Join(a.root, r.URL.Path))
			if err == nil {
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				_, _ = w.Write(data[:len(data)/2])
				_ = http.NewResponseController(w).Flush()
			}
		}
		select {
		case there <- struct{}{}:
		default:
		}
		select {
		case <-open:
		case <-r.Context().Done():
		}
		return at == "deb"
	})
	t.Cleanup(func() { a.intercept(nil) })
	return there, func() { a.intercept(nil); close(open) }
}

// assertNoProcess asserts that no process is left (other than this one) that
// was started since t.Setenv(mark, value).
func assertNoProcess(t *testing.T, mark, value string) {
	t.Helper()
	want := []byte(mark + "=" + value + "\x00")
	assert.Eventually(t, func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, f := range files {
			if env, err := os.ReadFile(f); err == nil && bytes.Contains(append(env, 0), want) {
				return false
			}
		}
		return true
	}, 30*time.Second, 10*time.Millisecond, "a process is left")
}

func TestKilled(t *testing.T) {
	for _, at := range barriers {
		t.Run(at, func(t *testing.T) {
			a := newArchive(t)
			a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
			dir := t.TempDir()
			t.Setenv("PVABI_TEST_MARK", dir)
			reached, release := hold(t, a, at)
			cmd, _ := startHelper(t, dir)
			<-reached
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			assertNoProcess(t, "PVABI_TEST_MARK", dir)

			release()
			s, said := openFake(t, dir)
			if at == "deb" || at == "unpack" {
				assert.NotEmpty(t, leftovers(t, s), "work of the killed process")
			}
			k, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
			require.NoError(t, err)
			assert.Equal(t, "7.1-cloud-amd64", k.Release)
			assert.Empty(t, leftovers(t, s))
			assert.Empty(t, said.said())
		})
	}
}

func TestCanceled(t *testing.T) {
	for _, at := range barriers {
		t.Run(at, func(t *testing.T) {
			a := newArchive(t)
			a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
			dir := t.TempDir()
			t.Setenv("PVABI_TEST_MARK", dir)
			reached, release := hold(t, a, at)
			s, _ := openFake(t, dir)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				<-reached
				cancel()
			}()
			_, err := s.Kernel(ctx, KernelSpec{GOARCH: "amd64"})
			assert.ErrorIs(t, err, context.Canceled)
			assert.Empty(t, leftovers(t, s))
			assertNoProcess(t, "PVABI_TEST_MARK", dir)

			release()
			_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
			assert.NoError(t, err)
		})
	}
}

// TestProcessesFetchOnce lets the fetching process go on only when all others
// have said that they wait.
func TestProcessesFetchOnce(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	dir := t.TempDir()
	reached, release := hold(t, a, "Packages")
	const processes = 4
	var waiting atomic.Int32
	all := make(chan struct{})
	var g errgroup.Group
	for range processes {
		cmd, lines := startHelper(t, dir)
		g.Go(func() error {
			var last string
			for lines.Scan() {
				last = lines.Text()
				if strings.HasPrefix(last, "waiting for another pvabi") && waiting.Add(1) == processes-1 {
					close(all)
				}
			}
			if last != "kernel: 7.1-cloud-amd64" {
				return errors.New(last)
			}
			return cmd.Wait()
		})
	}
	<-reached
	<-all
	release()
	require.NoError(t, g.Wait())
	assert.Equal(t, 1, a.count("Packages"))
	assert.Equal(t, 1, a.count("linux-image-7.1-cloud-amd64_7.1-1_amd64.deb"))
}

func TestGoroutinesFetchOnce(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"), oldKernel("7.1-amd64", "7.1-1", "amd64"))
	s, said := openFake(t, t.TempDir())
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64", Flavour: []string{"amd64", "cloud-amd64"}[i%2]})
			return err
		})
	}
	require.NoError(t, g.Wait())
	assert.Equal(t, 1, a.count("Packages"))
	assert.Equal(t, 1, a.count("linux-image-7.1-cloud-amd64_7.1-1_amd64.deb"))
	assert.Equal(t, 1, a.count("linux-image-7.1-amd64_7.1-1_amd64.deb"))
	assert.Empty(t, said.said())
}

// cancelOn is a Progress that ends a context when something is said.
type cancelOn struct {
	silent
	text   string
	cancel context.CancelFunc
}

func (c cancelOn) Say(line string) {
	if strings.Contains(line, c.text) {
		c.cancel()
	}
}

func TestCanceledWhileWaiting(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	dir := t.TempDir()
	reached, release := hold(t, a, "deb")
	cmd, _ := startHelper(t, dir)
	<-reached
	s, _ := openFake(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.progress = cancelOn{text: "waiting for another pvabi", cancel: cancel}
	_, err := s.Kernel(ctx, KernelSpec{GOARCH: "amd64"})
	assert.ErrorIs(t, err, context.Canceled)

	release()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	s.progress = silent{}
	_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	assert.NoError(t, err, "the lock was given back")
}

// TestFullDisk fills the store on disks that are too small for one step after
// the other: the index, the package file, what is in it.
func TestFullDisk(t *testing.T) {
	a := newArchive(t)
	noise := make([]byte, 3<<20)
	_, _ = rand.Read(noise)
	d := oldKernel("7.1-cloud-amd64", "7.1-1", "amd64")
	d.files["boot/vmlinuz-7.1-cloud-amd64"] = string(noise)
	a.publish(Suite, "amd64", d)
	for _, size := range []string{"16k", "1m", "5m"} {
		t.Run(size, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
				t.Skipf("needs to mount a small file system: %v", err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
			s, _ := openFake(t, dir)
			_, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
			require.ErrorContains(t, err, "make room in "+dir+", or set PVABI_CACHE to a folder on another disk")
			assert.Empty(t, leftovers(t, s))

			require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
			s, _ = openFake(t, dir)
			k, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
			require.NoError(t, err)
			assert.Equal(t, "7.1-cloud-amd64", k.Release)
		})
	}
}

// TestReadOnlyStore has an answer that is out of date in a store that cannot be
// changed.
func TestReadOnlyStore(t *testing.T) {
	a := newArchive(t)
	a.publish(Suite, "amd64", oldKernel("7.1-cloud-amd64", "7.1-1", "amd64"))
	dir := t.TempDir()
	s, said := openFake(t, dir)
	first, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	s.now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	again, err := s.Kernel(t.Context(), KernelSpec{GOARCH: "amd64"})
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.Contains(t, said.said(), "read-only file system")
	_, err = s.Kernel(t.Context(), KernelSpec{GOARCH: "s390x"})
	assert.ErrorContains(t, err, "read-only file system")
}

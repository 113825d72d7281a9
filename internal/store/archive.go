package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pvabi/internal/process"
)

// archive is Debian's archive as seen through one package index. It may be used
// only while the store's lock is held.
type archive struct {
	store       *Store
	suite, arch string
	updated     bool // this archive has fetched the index itself
	opened      bool
}

// listAge is how long a fetched package index is used.
const listAge = time.Hour

// stamp is the file in apt's folder that is made after each good update. It
// holds the sources list that the update was made with.
const stamp = "updated"

func (a *archive) dir(elem ...string) string {
	return a.store.path(append([]string{"apt", a.suite + "_" + a.arch}, elem...)...)
}

// open writes apt's configuration and fetches the package index unless there is
// a fresh one.
func (a *archive) open(ctx context.Context) error {
	if a.opened {
		return nil
	}
	if err := a.store.offline(); err != nil {
		return err
	}
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: artefacts come out of Debian's archive by apt and dpkg (packages apt and dpkg); without them, name files with -kernel, -modules and -qemu", err)
		}
	}
	if _, err := os.Stat(a.store.keyring); err != nil {
		return fmt.Errorf("no keys to verify Debian's archive with: %w; as root: apt-get install debian-archive-keyring", err)
	}
	mirror, err := findMirror(ctx)
	if err != nil {
		return err
	}
	var source string
	for _, suite := range a.suites() {
		source += fmt.Sprintf("deb [arch=%s target=Packages %s] %s %s main\n", a.arch, a.store.trust, mirror, suite)
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial", "none"} {
		if err := os.MkdirAll(a.dir(d), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"apt.conf": a.config(), "sources.list": source, "status": ""} {
		if err := os.WriteFile(a.dir(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	info, err := os.Stat(a.dir(stamp))
	if err == nil {
		age := a.store.now().Sub(info.ModTime())
		made, _ := os.ReadFile(a.dir(stamp))
		a.opened = string(made) == source && age >= 0 && age < listAge &&
			!(a.store.Refresh && info.ModTime().Before(a.store.opened))
	}
	if !a.opened {
		if err := a.update(ctx); err != nil {
			return err
		}
	}
	return a.built()
}

// built is an error where the suite is not built for the architecture: apt, which asks for its index, is content
// with none.
func (a *archive) built() error {
	lists, err := filepath.Glob(a.dir("lists", "*_binary-"+a.arch+"_Packages*"))
	if err == nil && len(lists) == 0 {
		err = fmt.Errorf("%w: Debian %s is not built for %s", ErrNone, a.suite, a.arch)
	}
	return err
}

// suites lists the archive's suite and, where that one is an addition to another
// (bookworm-backports), the other one.
func (a *archive) suites() []string {
	if base, ok := strings.CutSuffix(a.suite, "-backports"); ok {
		return []string{a.suite, base}
	}
	return []string{a.suite}
}

// config keeps apt inside its folder. It is read after the machine's own
// configuration (apt.conf(5)), of which proxies and credentials stay, but nothing
// that would have apt believe unsigned indexes, prefer versions, or run the
// machine's hooks. apt's digest of the index is large and quickly made again, so
// that it goes with the rest of the work.
func (a *archive) config() string {
	return fmt.Sprintf(`APT::Architecture "%[2]s";
#clear APT::Architectures;
APT::Architectures { "%[2]s"; };
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Sandbox::User "";
APT::Default-Release "%[4]s";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::Languages "none";
APT::Update::Error-Mode "any";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "%[1]s";
Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::State::extended_states "%[1]s/extended_states";
Dir::Cache "%[1]s/cache";
Dir::Cache::archives "%[1]s/cache/archives";
Dir::Cache::pkgcache "%[3]s";
Dir::Cache::srcpkgcache "";
Dir::Log "%[1]s/log";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "%[1]s/none";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "%[1]s/none";
Dir::Etc::trusted "/dev/null";
Dir::Etc::trustedparts "%[1]s/none";
`, a.dir(), a.arch, a.store.path("tmp", a.suite+"_"+a.arch+".bin"), a.suite)
}

// findMirror returns the address of Debian's archive: PVABI_DEBIAN_MIRROR, or
// what the machine's own apt uses.
func findMirror(ctx context.Context) (string, error) {
	const variable = "PVABI_DEBIAN_MIRROR"
	if m := strings.TrimRight(os.Getenv(variable), "/"); m != "" {
		if err := checkMirror(m); err != nil {
			return "", fmt.Errorf("%s: %w", variable, err)
		}
		return m, nil
	}
	for _, way := range []struct {
		pick func(string) (string, bool)
		args []string
	}{
		{labelledMirror, []string{"indextargets", "--format", mirrorFormat, "Created-By: Packages"}},
		{namedMirror, []string{"update", "--print-uris"}},
	} {
		out, err := run(ctx, nil, "", "apt-get", way.args...)
		if err != nil {
			return "", fmt.Errorf("finding the machine's Debian mirror: %w", err)
		}
		if m, ok := way.pick(out); ok {
			return m, nil
		}
	}
	return "", fmt.Errorf("no Debian mirror is known: the machine's apt configuration names none; set %s to the address of one, without the part that begins with /dists", variable)
}

// apt runs one of apt's programs on the archive's private state.
func (a *archive) apt(ctx context.Context, doing, dir string, command ...string) (string, error) {
	args := append([]string{"-q", "-c", a.dir("apt.conf")}, command[1:]...)
	var status func(float64)
	if doing != "" {
		a.store.progress.Doing(doing, -1)
		status = func(f float64) { a.store.progress.Doing(doing, f) }
	}
	return run(ctx, status, dir, command[0], args...)
}

// update fetches the package index. A failure leaves no index.
func (a *archive) update(ctx context.Context) error {
	_ = os.Remove(a.dir(stamp))
	_, err := a.apt(ctx, "fetching the package index of Debian "+a.suite+" for "+a.arch, "", "apt-get", "update")
	if err != nil {
		err = fmt.Errorf("fetching the package index of Debian %s for %s: %w", a.suite, a.arch, err)
		if unreachable.MatchString(err.Error()) {
			a.store.setOffline(err)
		}
		return errors.Join(err, os.RemoveAll(a.dir()))
	}
	source, err := os.ReadFile(a.dir("sources.list"))
	if err != nil {
		return err
	}
	a.updated, a.opened = true, true
	return os.WriteFile(a.dir(stamp), source, 0o644)
}

// search returns the records of the packages whose names match a POSIX
// extended regular expression.
func (a *archive) search(ctx context.Context, names string) ([]record, error) {
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	out, err := a.apt(ctx, "", "", "apt-cache", "search", "--names-only", "--full", names)
	if err != nil {
		return nil, err
	}
	return parseRecords(strings.NewReader(out))
}

// show returns the records of packages, all versions that the index has, the
// newest first. Names that the index does not have are left out.
func (a *archive) show(ctx context.Context, names ...string) ([]record, error) {
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	out, err := a.apt(ctx, "", "", append([]string{"apt-cache", "show"}, names...)...)
	if err != nil && !strings.Contains(err.Error(), "No packages found") {
		return nil, err
	}
	records, err := parseRecords(strings.NewReader(out))
	slices.SortStableFunc(records, func(x, y record) int { return compareVersions(y.Version, x.Version) })
	return records, err
}

// closure returns the records of all that an installation of the packages
// ("name=version") onto an empty system would bring.
func (a *archive) closure(ctx context.Context, packages ...string) ([]record, error) {
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	out, err := a.apt(ctx, "", "", append([]string{"apt-get", "install", "--yes", "--print-uris"}, packages...)...)
	if err != nil {
		// apt says on standard output which package is at fault.
		if _, why, ok := strings.Cut(out, "unmet dependencies:"); ok {
			err = fmt.Errorf("%w (%s)", err, strings.Join(strings.Fields(why), " "))
		}
		return nil, err
	}
	chosen := make(map[string]string)
	var names []string
	for _, p := range parseURIs(out) {
		chosen[p.Name] = p.Version
		names = append(names, p.Name)
	}
	records, err := a.show(ctx, names...)
	return slices.DeleteFunc(records, func(r record) bool { return chosen[r.Name] != r.Version }), err
}

// download fetches the package files of parts into a folder; apt holds them
// against the signed index. The error is errGone for one that the archive lists
// and does not have.
func (a *archive) download(ctx context.Context, parts []part, dir string) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	command := []string{"apt-get", "download"}
	var size int64
	for _, p := range parts {
		command = append(command, p.Name+"="+p.Version)
		size += p.Size
	}
	what := several(parts)
	if _, err := a.apt(ctx, fmt.Sprintf("fetching %s, %.1f MB", what, float64(size)/1e6), dir, command...); err != nil {
		return fmt.Errorf("fetching %s: %w", what, err)
	}
	for _, p := range parts {
		name := filepath.Join(dir, p.fileStem()+".deb")
		sum, err := SHA256(name)
		if err != nil {
			return fmt.Errorf("fetching %s: %w", p.Package, err)
		}
		if sum != p.SHA256 {
			return fmt.Errorf("fetching %s: %w: SHA-256 is %s, want %s", p.Package, errGone, sum, p.SHA256)
		}
	}
	return nil
}

// unpackDeb unpacks what a part keeps of a package file into a new folder.
func unpackDeb(ctx context.Context, deb string, p part, dir string) error {
	cmd, release := command(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	defer release()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := p.unpack(out, dir)
	if failed == nil {
		// dpkg-deb fails when its reader goes away early.
		_, failed = io.Copy(io.Discard, out)
	}
	_ = out.Close()
	if err := cmd.Wait(); failed == nil && err != nil {
		failed = fmt.Errorf("dpkg-deb: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed != nil {
		return errors.Join(failed, os.RemoveAll(dir))
	}
	return nil
}

// command is [process.Command] for a program whose words are to be English.
func command(ctx context.Context, name string, args ...string) (cmd *exec.Cmd, release func()) {
	cmd, release = process.Command(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "LANGUAGE=", "DEBIAN_FRONTEND=noninteractive")
	return cmd, release
}

// run runs a program to its end and returns its standard output. A status
// function makes apt report, and is told, the fraction done.
func run(ctx context.Context, status func(float64), dir, name string, args ...string) (string, error) {
	cmd, release := command(ctx, name, args...)
	defer release()
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if status != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return "", err
		}
		cmd.ExtraFiles = []*os.File{w} // becomes descriptor 3
		cmd.Args = slices.Insert(cmd.Args, 1, "-o", "APT::Status-Fd=3")
		done := make(chan struct{})
		go func() {
			defer close(done)
			readStatus(r, status)
		}()
		defer func() {
			_ = w.Close()
			_ = r.SetReadDeadline(time.Now().Add(time.Second)) // see WaitDelay
			<-done
			_ = r.Close()
		}()
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return stdout.String(), aptError(name, err, stderr.String())
	}
	return stdout.String(), nil
}

// readStatus reads apt's progress: "dlstatus:file:percent:text" (apt's
// README.progress-reporting).
func readStatus(r io.Reader, status func(float64)) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), ":", 4)
		if len(fields) < 4 || fields[0] != "dlstatus" {
			continue
		}
		if percent, err := strconv.ParseFloat(fields[2], 64); err == nil {
			status(percent / 100)
		}
	}
}

// gone matches what apt says of a file that is not there: HTTP's answers, and
// those of the file and copy methods.
var gone = regexp.MustCompile(`\s(404|410) |File not found|No such file or directory`)

// aptError makes one line of an error of apt's and the reasons it printed.
func aptError(name string, err error, stderr string) error {
	var reasons []string
	missing := false
	for line := range strings.Lines(stderr) {
		if reason, ok := strings.CutPrefix(strings.TrimSpace(line), "E: "); ok {
			missing = missing || strings.HasPrefix(reason, "Failed to fetch") && gone.MatchString(reason)
			reasons = append(reasons, reason)
		}
	}
	if len(reasons) == 0 {
		reasons = []string{strings.TrimSpace(stderr)}
	}
	err = fmt.Errorf("%s: %w: %s", name, err, strings.Join(reasons, "; "))
	if missing {
		err = fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

// unreachable matches what apt says when it cannot get through to the mirror.
var unreachable = regexp.MustCompile(`Temporary failure resolving|Could not (connect|resolve)|Unable to connect|Cannot initiate the connection`)

// offlineAge is how long a store does not try again to reach the archive: apt
// takes several seconds to give up, and one run asks for many artefacts.
const offlineAge = time.Minute

// offline returns why the archive could not be reached a moment ago.
func (s *Store) offline() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreached != nil && s.now().Before(s.retry) {
		return s.unreached
	}
	return nil
}

func (s *Store) setOffline(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreached, s.retry = err, s.now().Add(offlineAge)
}

// remedy adds what to do about errors that the user can do something about.
func remedy(dir string, err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT),
		strings.Contains(text, "No space left on device"), strings.Contains(text, "enough free space"):
		return fmt.Errorf("%w; make room in %s, or set PVABI_CACHE to a folder on another disk", err, dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; set PVABI_CACHE to a folder that can be written", err)
	case unreachable.MatchString(text):
		return fmt.Errorf("%w; the store needs the network only until it is filled: go online once, or name files with -kernel, -modules and -qemu", err)
	}
	return err
}

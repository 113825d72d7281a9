package initramfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"pvabi/internal/process"
)

// agentPackage is the command that becomes /init.
const agentPackage = "pvabi/initramfs/init"

// BuildAgent compiles the agent for a guest of the given architecture and
// returns the file's path: agent-GOARCH in the folder dir, which is made if it
// is missing. The go command finds on its own whether anything has changed.
//
// It needs the go command and the project's source. That is found next to this
// file, as it was when this program was compiled, or else in the working
// folder's module.
func BuildAgent(ctx context.Context, dir, goarch string) (string, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("build the agent: %w; install Go or put its bin folder on PATH", err)
	}
	root, err := sourceRoot(ctx, goCommand)
	if err != nil {
		return "", err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("build the agent: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("build the agent: %w", err)
	}
	// Several runs may build at the same time: each into a file of its own.
	temp, err := os.MkdirTemp(dir, ".agent-*")
	if err != nil {
		return "", fmt.Errorf("build the agent: %w", err)
	}
	defer os.RemoveAll(temp)
	built := filepath.Join(temp, "init")
	// The lowest level of each instruction set runs on every emulated CPU.
	env := []string{
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + goarch, "GOAMD64=v1", "GOPPC64=power8", "GOFLAGS=",
		"GOTMPDIR=" + temp, // a go command that is killed leaves its work behind
	}
	_, err = run(ctx, root, env,
		goCommand, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", built, agentPackage)
	if err != nil {
		return "", fmt.Errorf("build the agent for %s: %w", goarch, err)
	}
	agent := filepath.Join(dir, "agent-"+goarch)
	if err := os.Rename(built, agent); err != nil {
		return "", fmt.Errorf("build the agent: %w", err)
	}
	return agent, nil
}

// sourceRoot returns the root folder of the project's source.
func sourceRoot(ctx context.Context, goCommand string) (string, error) {
	// With -trimpath the file's name is no path of this machine.
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		root := filepath.Dir(filepath.Dir(file))
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return root, nil
		}
	}
	out, err := run(ctx, "", nil, goCommand, "list", "-m", "-f", "{{.Dir}}", "pvabi")
	if err == nil && out == "" {
		err = errors.New("go list -m pvabi names no folder")
	}
	if err != nil {
		return "", fmt.Errorf("find the agent's source: %w; run from a checkout of the project", err)
	}
	return out, nil
}

// run runs a command and returns what it printed; errors have what it printed
// to standard error. When ctx ends, so do the command and all that it started, of
// which the go command alone would leave compilers behind.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd, release := process.Command(ctx, name, args...)
	defer release()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

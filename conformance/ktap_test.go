package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// linuxTree names a folder with Linux' sources, whose own parser of KTAP is then asked about ours.
const linuxTree = "PVABI_LINUX"

// kunit is what the parser makes of a report.
type kunit struct {
	Name  string `json:"name"`
	Cases []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"test_cases"`
	Groups []kunit `json:"sub_groups"`
	Misc   struct {
		Tests, Passed, Failed, Crashed, Skipped, Errors int
	} `json:"misc"`
}

func TestKTAPForTheKernelsParser(t *testing.T) {
	tree := os.Getenv(linuxTree)
	if tree == "" {
		t.Skip("set " + linuxTree + " to a tree of Linux, whose tools/testing/kunit/kunit.py is asked")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	report, err := os.Open("testdata/results.ktap")
	require.NoError(t, err)
	defer report.Close()
	cmd := exec.Command(python, filepath.Join(tree, "tools/testing/kunit/kunit.py"), "parse", "--json", "--summary")
	cmd.Stdin = report
	out, err := cmd.Output()
	var failed *exec.ExitError
	require.True(t, errors.As(err, &failed), "the sample has failures: %v", err)
	assert.NotContains(t, string(out), "[ERROR]")
	_, after, ok := bytes.Cut(out, []byte("\n{"))
	require.True(t, ok, "%s", out)
	var got kunit
	require.NoError(t, json.Unmarshal(append([]byte("{"), after...), &got))

	require.Len(t, got.Groups, 1)
	status := map[string]string{}
	for _, g := range append(got.Groups, got) {
		for _, c := range g.Cases {
			status[c.Name] = c.Status
		}
	}
	assert.Equal(t, map[string]string{
		"x86-kvm/kick/pass": "PASS", "x86-kvm/kick/deviates": "PASS", "x86-kvm/kick/mended": "PASS",
		"x86-kvm/kick/fail": "FAIL", "x86-kvm/kick/error": "FAIL",
		"x86-kvm/kick/absent": "SKIP", "x86-kvm/kick/unreached": "SKIP",
		"s390-qemu": "SKIP", "x86-xen": "FAIL",
	}, status)
	assert.Equal(t, "x86-kvm", got.Groups[0].Name)
	assert.Zero(t, got.Misc.Errors, "complaints of the parser")
	assert.Zero(t, got.Misc.Crashed)
}

package probetest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/arch"
)

// childWord is the variable of the environment that names the operation which a process is
// to end by.
const childWord = "PVABI_PROBETEST_OPERATION"

// Illegal tests that each operation ends a process by an illegal instruction. What it
// prints then is Go's own report, which takes what Go keeps in registers. It must be
// called once by a test.
func (p Probe) Illegal(t *testing.T, ops map[string]arch.Op) {
	if name, ok := os.LookupEnv(childWord); ok {
		f := NewFrame(t)
		require.NoError(t, f.Load(arch.Program{ops[name]}))
		p.Run(f, false)
		os.Exit(0)
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	for name := range ops {
		cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), childWord+"="+name, "GOTRACEBACK=none")
		out, err := cmd.CombinedOutput()
		assert.Error(t, err, name)
		assert.Contains(t, string(out), "SIGILL: illegal instruction", name)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/vmtests"
)

func TestPlan(t *testing.T) {
	targets := vmtests.Targets()
	guests := 0
	for _, x := range targets {
		if x.Guest != nil {
			guests++
		}
	}
	jobs := plan(targets, suites, suites)
	assert.Len(t, jobs, guests*len(suites)*len(suites)+len(targets)-guests)
	assert.LessOrEqual(t, len(jobs), 256, "GitHub runs no more jobs of one matrix; plan shards")
	names := map[string]bool{}
	for _, j := range jobs {
		assert.False(t, names[j.Name], j.Name)
		names[j.Name] = true
	}

	// Shards are disjoint and together they are all.
	var together []job
	for _, part := range []string{"1/3", "2/3", "3/3"} {
		some, err := shard(jobs, part)
		require.NoError(t, err)
		assert.InDelta(t, len(jobs)/3, len(some), 1)
		together = append(together, some...)
	}
	assert.ElementsMatch(t, jobs, together)
	for _, bad := range []string{"0/3", "4/3", "1", "x/y", "1/3/5", "-1/2", "1/ 3"} {
		_, err := shard(jobs, bad)
		assert.ErrorContains(t, err, "want i/n", bad)
	}
}

func TestPlanFormats(t *testing.T) {
	targets, err := vmtests.Find("x86-kvm", "x86-kvm-below")
	require.NoError(t, err)
	jobs := plan(targets, []string{"forky"}, []string{"trixie"})
	write := func(format string) string {
		var b bytes.Buffer
		require.NoError(t, writePlan(&b, jobs, format, "golang:x"))
		return b.String()
	}
	const command = "bin/pvabi run -qemu-suite forky -kernel-suite trixie -o results/x86-kvm-qemu-forky-kernel-trixie x86-kvm"
	assert.Contains(t, write("text"), command+"\n")

	var github struct{ Include []job }
	text := write("github")
	assert.Equal(t, 1, bytes.Count([]byte(text), []byte("\n")), "one line")
	require.NoError(t, json.Unmarshal([]byte(text), &github))
	assert.Equal(t, jobs, github.Include)

	// A child pipeline has no image, and no stage for reports, unless it says so.
	var gitlab map[string]any
	require.NoError(t, json.Unmarshal([]byte(write("gitlab")), &gitlab))
	assert.Equal(t, map[string]any{"image": "golang:x"}, gitlab["default"])
	assert.Equal(t, map[string]any{
		"stage": "run", "script": []any{"make build", command},
		"artifacts":     map[string]any{"when": "always", "paths": []any{"results/"}},
		"allow_failure": map[string]any{"exit_codes": 2.},
	}, gitlab["x86-kvm-qemu-forky-kernel-trixie"])
	assert.Equal(t, []any{"run", "report"}, gitlab["stages"])
	assert.Subset(t, gitlab["report"], map[string]any{"stage": "report", "when": "always"})
	assert.Len(t, gitlab, len(jobs)+3)
	assert.NotContains(t, childPipeline(jobs, ""), "default")

	assert.ErrorContains(t, writePlan(&bytes.Buffer{}, jobs, "x", ""), `unknown format "x"`)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"pvabi/conformance"
	"pvabi/internal/page"
	"pvabi/internal/progress"
	"pvabi/vmtests"
)

// suites are the Debian suites whose kernels and QEMUs a matrix has, the oldest first.
var suites = []string{"bookworm", "trixie", "forky"}

// job is one cell of the matrix: a target with one QEMU and one kernel.
type job struct {
	// Name is a file name, and is unique.
	Name   string `json:"name"`
	Target string `json:"target"`
	// QEMU and Kernel are Debian suites; empty for a target without a guest.
	QEMU   string `json:"qemu"`
	Kernel string `json:"kernel"`
	// Command does the job from the top of a clone in which `make build` was run.
	Command string `json:"command"`
}

// plan lists the jobs of targets with each QEMU and each kernel.
func plan(targets []vmtests.Target, qemus, kernels []string) []job {
	var out []job
	for _, t := range targets {
		if t.Guest == nil {
			out = append(out, job{Name: t.Name, Target: t.Name, Command: "bin/pvabi run -o results/" + t.Name + " " + t.Name})
			continue
		}
		for _, q := range qemus {
			for _, k := range kernels {
				name := strings.Join([]string{t.Name, "qemu", q, "kernel", k}, "-")
				out = append(out, job{
					Name: name, Target: t.Name, QEMU: q, Kernel: k,
					Command: fmt.Sprintf("bin/pvabi run -qemu-suite %s -kernel-suite %s -o results/%s %s", q, k, name, t.Name),
				})
			}
		}
	}
	return out
}

// shard takes every n-th job, beginning with the i-th; text is "i/n", i from 1.
func shard(jobs []job, text string) ([]job, error) {
	if text == "" {
		return jobs, nil
	}
	var i, n int
	if _, err := fmt.Sscanf(text, "%d/%d", &i, &n); err != nil || i < 1 || i > n || text != fmt.Sprintf("%d/%d", i, n) {
		return nil, fmt.Errorf("-shard %q; want i/n with i from 1 to n, such as 2/3", text)
	}
	var out []job
	for k := i - 1; k < len(jobs); k += n {
		out = append(out, jobs[k])
	}
	return out, nil
}

// writePlan writes jobs for an engine of continuous integration; image is the container image
// that GitLab's run in, for none what its runner takes.
func writePlan(w io.Writer, jobs []job, format, image string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	switch format {
	case "json":
		enc.SetIndent("", " ")
		return enc.Encode(append([]job{}, jobs...))
	case "github":
		// One line, for fromJSON in strategy.matrix.
		return enc.Encode(map[string]any{"include": append([]job{}, jobs...)})
	case "gitlab":
		enc.SetIndent("", " ")
		return enc.Encode(childPipeline(jobs, image))
	case "text":
		for _, j := range jobs {
			if _, err := fmt.Fprintln(w, j.Command); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("unknown format %q; a plan is written as text, json, github or gitlab", format)
}

// childPipeline is the jobs as a child pipeline of GitLab's, in JSON, which is YAML, too. It
// has nothing from its parent. Its last job makes one report of what all left, and tells a
// combination that there is not, which a job can only exit with 2 for, from equipment that failed.
func childPipeline(jobs []job, image string) map[string]any {
	pipeline := map[string]any{
		"stages": []string{"run", "report"},
		"report": map[string]any{
			"stage":     "report",
			"when":      "always",
			"script":    []string{"make build", "bin/pvabi report -html report.html -markdown - results/*/"},
			"artifacts": map[string]any{"when": "always", "paths": []string{"report.html"}},
		},
	}
	if image != "" {
		pipeline["default"] = map[string]any{"image": image}
	}
	for _, j := range jobs {
		pipeline[j.Name] = map[string]any{
			"stage":         "run",
			"script":        []string{"make build", j.Command},
			"artifacts":     map[string]any{"when": "always", "paths": []string{"results/"}},
			"allow_failure": map[string]any{"exit_codes": conformance.ExitFailed},
		}
	}
	return pipeline
}

func matrix(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	fs := flags("matrix", "[target...]", "Runs targets with kernels and QEMUs of several Debian suites, and ends with a table in Markdown; with -plan, lists the jobs for somebody else to run. "+
		"A combination that there is not counts as unreached.", stderr)
	planned := fs.Bool("plan", false, "only list the jobs")
	format := fs.String("format", "text", "`form` of the plan: text, json, github or gitlab")
	image := fs.String("image", "", "container `image` that the jobs of a plan for GitLab run in; default is the runner's")
	qemus := fs.String("qemu-suites", strings.Join(suites, ","), "comma-separated Debian `suites` that QEMU is taken from")
	kernels := fs.String("kernel-suites", strings.Join(suites, ","), "comma-separated Debian `suites` that kernels are taken from")
	part := fs.String("shard", "", "do only every n-th job, beginning with the i-th: `i/n`")
	verbose := fs.Bool("v", false, "print the guests' consoles on standard error as they come")
	output := fs.String("o", "results", "write each job's results into a folder of its own in this `folder`")
	cache := cacheFlag(fs)
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	targets, err := vmtests.Find(fs.Args()...)
	if err != nil {
		return 0, err
	}
	jobs, err := shard(plan(targets, words(*qemus), words(*kernels)), *part)
	if err != nil {
		return 0, err
	}
	if len(jobs) == 0 {
		return 0, errors.New("there is no job; give suites to -qemu-suites and -kernel-suites, and no more shards than jobs")
	}
	if *planned {
		return conformance.ExitConforms, writePlan(stdout, jobs, *format, *image)
	}
	screen := progress.New(stderr)
	defer screen.Close()
	stdout, stderr = screen.Writer(stdout), screen.Writer(stderr)
	store := opened(cache, nil, screen)
	all := &conformance.Report{Schema: conformance.Schema}
	for _, j := range jobs {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(stderr, "pvabi matrix: %s\n", j.Name)
		t := targets[slices.IndexFunc(targets, func(t vmtests.Target) bool { return t.Name == j.Target })]
		dir := filepath.Join(*output, j.Name)
		folder, err := claim(dir, []vmtests.Target{t}, results)
		if err != nil {
			return 0, err
		}
		r := &vmtests.Runner{Store: store, Output: dir, QEMUSuite: j.QEMU, KernelSuite: j.Kernel, Events: &printer{stderr: stderr, screen: screen}}
		if *verbose {
			r.Consoles = stderr
		}
		run := r.Run(ctx, t)
		report := &conformance.Report{Schema: conformance.Schema, Runs: []*conformance.Run{run}}
		err = errors.Join(save(report.WriteJSON, dir, results), folder.Close())
		if err != nil {
			return 0, err
		}
		all.Runs = append(all.Runs, run)
	}
	if err := page.Versions(stdout, all.Runs); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("what was finished is in %s", *output)
	}
	return all.ExitStatus(false, false), nil
}

// words splits a comma-separated list.
func words(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}

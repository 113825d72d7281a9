package vmtests

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"pvabi/conformance"
)

// Where the time goes, and what one more of something costs: make bench.

// BenchmarkTarget runs each target.
func BenchmarkTarget(b *testing.B) {
	for _, target := range Targets() {
		b.Run(target.Name, func(b *testing.B) {
			reachable(b, target)
			for b.Loop() {
				speed(b, measured(b, &Runner{}, target))
			}
		})
	}
}

// BenchmarkRule looks at all rules of a target once, twice and four times in one boot. What one look at
// one rule takes must not grow.
func BenchmarkRule(b *testing.B) {
	for _, name := range []string{"x86-kvm", "powerpc-qemu", "s390-qemu"} {
		for _, looks := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("target=%s/looks=%d", name, looks), func(b *testing.B) {
				target, err := Find(name)
				require.NoError(b, err)
				reachable(b, target[0])
				for b.Loop() {
					run := measured(b, &Runner{Looks: looks}, target[0])
					b.ReportMetric(1000*run.Seconds.Checks/float64(looks*len(run.Results)), "ms/rule")
				}
			})
		}
	}
}

// BenchmarkCPUs boots guests with more and more CPUs, which look at nothing.
func BenchmarkCPUs(b *testing.B) {
	for _, name := range []string{"x86-kvm", "powerpc-qemu", "s390-qemu"} {
		for _, cpus := range []int{2, 4, 8, 16} {
			b.Run(fmt.Sprintf("target=%s/cpus=%d", name, cpus), func(b *testing.B) {
				target, err := Find(name)
				require.NoError(b, err)
				reachable(b, target[0])
				guest := *target[0].Guest
				guest.CPUs, guest.Modules, guest.Needs, guest.Append = cpus, nil, nil, nil
				boot := Target{Name: "boot", Guest: &guest}
				for b.Loop() {
					run := measured(b, &Runner{}, boot)
					b.ReportMetric(run.Seconds.Boot, "boot-s")
					b.ReportMetric(1000*run.Seconds.Boot/float64(cpus), "boot-ms/cpu")
					b.ReportMetric(float64(run.PeakRSS)/(1<<20), "qemu-MiB")
				}
			})
		}
	}
}

// measured runs a target and wants no failure.
func measured(b *testing.B, r *Runner, target Target) *conformance.Run {
	r.Store, r.Output = artefacts, b.TempDir()
	run := r.Run(b.Context(), target)
	require.Empty(b, run.Error)
	return run
}

// speed reports where a run's time went.
func speed(b *testing.B, run *conformance.Run) {
	s := run.Seconds
	b.ReportMetric(s.Boot, "boot-s")
	b.ReportMetric(s.Modules, "modules-s")
	b.ReportMetric(s.Checks, "checks-s")
	b.ReportMetric(s.Total, "total-s")
	b.ReportMetric(float64(len(run.Results))/(s.Boot+s.Modules+s.Checks), "rules/s")
	b.ReportMetric(float64(run.PeakRSS)/(1<<20), "qemu-MiB")
	b.ReportMetric(float64(run.Guest.Image.Size)/(1<<20), "image-MiB")
}

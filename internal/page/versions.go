package page

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"pvabi/conformance"
)

// Versions writes a table in Markdown of what targets gave with kernels and QEMUs of several versions:
// the counts of their verdicts, by target, then kernel, then QEMU.
func Versions(w io.Writer, runs []*conformance.Run) error {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b *conformance.Run) int {
		return cmp.Or(
			cmp.Compare(a.Target, b.Target),
			conformance.CompareVersions(a.Guest.Kernel.Version, b.Guest.Kernel.Version),
			conformance.CompareVersions(a.QEMU.Version, b.QEMU.Version))
	})
	var b strings.Builder
	b.WriteString("| target | kernel | QEMU |")
	for _, v := range conformance.Verdicts {
		fmt.Fprintf(&b, " %s |", v)
	}
	fmt.Fprintf(&b, " remark |\n|---|---|---|%s---|\n", strings.Repeat("---:|", len(conformance.Verdicts)))
	for _, run := range sorted {
		kernel, _, _ := strings.Cut(run.Guest.Kernel.Version, " ")
		fmt.Fprintf(&b, "| %s | %s | %s |", run.Target, kernel, run.QEMU.Version)
		totals := run.Totals()
		for _, v := range conformance.Verdicts {
			fmt.Fprintf(&b, " %d |", totals[v])
		}
		remark, _, _ := strings.Cut(cmp.Or(run.Error, run.Unreached), "\n")
		fmt.Fprintf(&b, " %s |\n", escape(remark))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

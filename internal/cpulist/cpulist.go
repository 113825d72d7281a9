// Package cpulist reads Linux's lists of CPUs, such as "0-3,8"
// (Documentation/admin-guide/cputopology.rst).
package cpulist

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse returns the numbers of a list, in its order. A list of none is an error.
func Parse(list string) ([]int, error) {
	var out []int
	for item := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || a > b {
			return nil, fmt.Errorf("%q is no list of CPUs", list)
		}
		for n := a; n <= b; n++ {
			out = append(out, int(n))
		}
	}
	return out, nil
}

// Package cpulist reads and writes lists of processors as the kernel does, "0-7,64-71".
package cpulist

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// limit bounds what a list may name: the kernel's own bound.
const limit = 8192

// Parse returns the numbers of a list. The error is about the first part that cannot
// be read; the numbers are those of the other parts.
func Parse(list string) (numbers []int, err error) {
	if list = strings.TrimSpace(list); list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, errFrom := strconv.ParseUint(first, 10, 16)
		to, errTo := strconv.ParseUint(last, 10, 16)
		if errFrom != nil || errTo != nil || from > to || to >= limit {
			if err == nil {
				err = fmt.Errorf("got processors %q", part)
			}
			continue
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, int(n))
		}
	}
	return numbers, err
}

// Format writes numbers as the kernel writes a list.
func Format(numbers []int) string {
	sorted := slices.Sorted(slices.Values(numbers))
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] <= sorted[j]+1 {
			j++
		}
		part := strconv.Itoa(sorted[i])
		if sorted[j] != sorted[i] {
			part += "-" + strconv.Itoa(sorted[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

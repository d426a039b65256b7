package web

import (
	"cmp"
	"slices"
	"strings"
)

// firstGPUs are shown before all others, in this order.
var firstGPUs = []string{"B200", "H100", "MI300", "A100", "L4", "T4"}

// orderGPUs sorts GPU types: those that people look for first, then the others by
// name. A name with something behind it, B200_BK, belongs to the shorter one.
func orderGPUs(gpus []string) []string {
	out := slices.Clone(gpus)
	slices.SortStableFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(placeOf(a), placeOf(b)), cmp.Compare(a, b))
	})
	return out
}

func placeOf(gpu string) int {
	stem, _, _ := strings.Cut(gpu, "_")
	if at := slices.Index(firstGPUs, strings.ToUpper(stem)); at >= 0 {
		return at
	}
	return len(firstGPUs)
}

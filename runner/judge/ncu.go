package judge

import (
	"regexp"
	"slices"
	"strings"
)

const (
	ncuKernels = 2   // how many kernels are shown
	ncuLines   = 100 // and how many lines
)

// ncuTables are the tables that a message shows, by the names Nsight Compute
// prints over them.
var ncuTables = []string{"GPU Throughput", "Pipe Utilization (% of active cycles)", "Warp State (All Cycles)"}

// ncuHeader is the line over everything about one kernel:
// "  void add(…) (64, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0".
var ncuHeader = regexp.MustCompile(`^\s*\S.*, Context \d+, Stream \d+`)

// filterNCU keeps each kernel's header and its ncuTables from the report that
// Nsight Compute prints. A table ends at an empty line, or where the next one or a new
// section begins.
func filterNCU(text string) string {
	var out []string
	kernels, keep := 0, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		trimmed := strings.TrimSpace(line)
		name, table := strings.CutPrefix(trimmed, "Table Name :")
		switch {
		case ncuHeader.MatchString(line):
			if kernels++; kernels > ncuKernels {
				out = append(out, "", "More kernels are in the .ncu-rep file.")
				return strings.Join(out, "\n") + "\n"
			}
			if kernels > 1 {
				out = append(out, "")
			}
			out, keep = append(out, line), false
		case table:
			if keep = kernels > 0 && slices.Contains(ncuTables, strings.TrimSpace(name)); keep {
				out = append(out, "", line)
			}
		case trimmed == "" || strings.HasPrefix(trimmed, "Section:"):
			keep = false
		case keep:
			out = append(out, line)
		}
		if len(out) >= ncuLines {
			out = append(out, "More is in the .ncu-rep file.")
			break
		}
	}
	if len(out) == 0 {
		return ""
	}
	return strings.Join(out, "\n") + "\n"
}

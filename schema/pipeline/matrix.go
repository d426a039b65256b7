package pipeline

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// matrixJobs counts the jobs of a matrix: the combinations of its dimensions,
// less those that are skipped, and those that adjustments add. An adjustment
// counts once however often it is written, and one that skips what the matrix
// does not make takes nothing away.
func matrixJobs(m *yaml.Node) int {
	names, lists := dimensions(m)
	jobs := 1
	for _, l := range lists {
		jobs = min(jobs*len(items(l)), maxMatrixSetupJobs)
	}
	skipped, more := map[string]int{}, map[string]bool{}
	for _, a := range items(child(m, "adjustments")) {
		skip := child(a, "skip")
		off := skip != nil && scalarText(skip) != "" && scalarText(skip) != "false"
		combination, covers, made := combinationOf(child(a, "with"), names, lists)
		switch {
		case off && made:
			skipped[combination] = covers
			delete(more, combination)
		case off:
			delete(more, combination)
		case !made && covers == 1:
			more[combination] = true
		}
	}
	for _, covers := range skipped {
		jobs -= covers
	}
	return max(jobs, 0) + len(more)
}

// combinationOf reads what an adjustment is about: the values of the dimensions,
// how many combinations of the matrix it covers, and whether the matrix makes
// them. A dimension that it leaves out is every value of it.
func combinationOf(with *yaml.Node, names []string, lists []*yaml.Node) (combination string, covers int, made bool) {
	covers, made = 1, true
	var values []string
	for i, name := range names {
		n := with
		if name != "" {
			n = child(with, name)
		}
		value := scalarText(n)
		if n == nil {
			covers = min(covers*len(items(lists[i])), maxMatrixSetupJobs)
		} else if !slices.ContainsFunc(items(lists[i]), func(v *yaml.Node) bool { return v.Value == value }) {
			made = false
		}
		values = append(values, value)
	}
	return strings.Join(values, "\x00"), covers, made
}

package verdict

import (
	"math"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// chartWidth is how many characters a chart has at most.
const chartWidth = 32

var bars = []rune("▁▂▃▄▅▆▇█")

// chart draws times as one line, in the order they were taken: each character
// is the mean of its share, the lowest bar the least and the highest the most.
// Below two samples there is nothing to see.
func chart(samples []float64) string {
	samples = slices.DeleteFunc(slices.Clone(samples), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	if len(samples) < 2 {
		return ""
	}
	columns := make([]float64, min(len(samples), chartWidth))
	for i := range columns {
		share := samples[i*len(samples)/len(columns) : (i+1)*len(samples)/len(columns)]
		for _, v := range share {
			columns[i] += v / float64(len(share))
		}
	}
	least, most := slices.Min(columns), slices.Max(columns)
	var b strings.Builder
	for _, v := range columns {
		at := 0
		if most > least {
			at = int(math.Round((v/2 - least/2) / (most/2 - least/2) * float64(len(bars)-1))) // halves: no overflow
		}
		b.WriteRune(bars[min(max(at, 0), len(bars)-1)])
	}
	return b.String()
}

// samplesOf returns the samples of a phase's case, nil when it has none.
func samplesOf(all []schema.Measurement, phase string, number int) []float64 {
	for _, m := range all {
		if m.Phase == phase && m.Case == number {
			return m.Samples
		}
	}
	return nil
}

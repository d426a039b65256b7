package harness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A batch is several calls made in one go. Single calls are timed apart, so a kernel
// could leave work of one call to be done during the next pause. In a batch there is
// no pause. batchRuns batches of each size are made, in an order that a submission
// cannot foresee.
const batchRuns = 5

// Bounds of batches: the time of one, because longer ones are interrupted more often;
// the memory of its inputs, in bytes; and the part of a case's time that all of them
// may take, at most batchMost on a machine where many calls wait for a core.
const (
	batchTime  = 4 * time.Millisecond
	batchBytes = 16 << 20
	batchPart  = 10
	batchMost  = 5 * time.Second
)

// warmth is how much faster a call is in a batch because its caches are warm, beside a
// quarter of a quick single call. Measured with Python, which gains most: up to 30 µs
// and a sixth.
const warmth = 30 * time.Microsecond

const batchBusy = "too many calls had to wait for a core"

// batched is what the batches of a case came to.
type batched struct {
	sizes  []int     // made; nil: none
	slopes []float64 // one of each round, in nanoseconds per call
	fewer  string    // why not all sizes
}

// enter writes what the batches say beside single calls.
func (b *batched) enter(m *schema.Measurement, single []float64) {
	m.Batches, m.FewerBatches = b.sizes, b.fewer
	if len(b.slopes) == 0 {
		return
	}
	slope := figuresOf(b.slopes)
	m.Slope = &rounded([]float64{slope.mean})[0]
	m.Overlaps = overlaps(percentile(slices.Clone(single), 25), slope, m.Resolution)
}

// overlaps reports whether one more call in a batch takes less time than a quick single
// call (the first quartile) by more than chance, warm caches and the resolution
// explain:
//
//	slope + t₉₅ · slope.err < ¾ · single − warmth − resolution
//
// Then the submission works on one call during another. It gains nothing, because the
// figure is that of single calls, so this is reported and not punished.
func overlaps(single float64, slope stats, resolution float64) bool {
	return slope.mean+student95(slope.runs-1)*slope.err < single*3/4-float64(warmth)-resolution
}

// batches times calls in one go, in an order that nobody can foresee. What a
// call more takes there is the cross-check of the figure, which stays that of
// single calls: a kernel that works on one call during another is faster there.
//
// Errors: those of try.
func (m *measuring) batches(ctx context.Context, c testCase) error {
	if len(m.fast) < minRuns {
		m.batched.fewer = batchBusy
		return nil
	}
	sizes := m.affordable()
	if len(sizes) < 2 {
		return nil
	}
	took, layouts := map[int][]float64{}, map[int]*layout{}
	for begun := time.Now(); time.Since(begun) < min(m.most/batchPart, batchMost); {
		owed := slices.DeleteFunc(slices.Clone(sizes), func(k int) bool { return len(took[k]) >= batchRuns })
		if len(owed) == 0 {
			break
		}
		k := owed[random(int64(len(owed)))]
		cases := make([]testCase, k)
		for i := range cases {
			cases[i] = c.fresh(random)
		}
		m.r.outputs = layouts[k]
		// Looked for from the start: it may be done long before k single calls are.
		a, err := m.r.try(ctx, false, true, min(m.shortest, time.Millisecond), cases...)
		layouts[k] = m.r.outputs
		switch {
		case err != nil:
			return err
		case a.moved: // the first of its size
		case !a.counted || a.delayed <= max(delayAllowed, m.shortest*time.Duration(k)/delayPart):
			took[k] = append(took[k], float64(a.took))
		}
	}
	rounds := batchRuns
	for _, k := range sizes {
		rounds = min(rounds, len(took[k]))
	}
	if rounds < minRuns {
		m.batched = batched{fewer: batchBusy}
		return nil
	}
	m.batched.sizes = sizes
	for i := range rounds {
		times := make([]float64, len(sizes))
		for j, k := range sizes {
			times[j] = took[k][i]
		}
		m.batched.slopes = append(m.batched.slopes, slopeOf(sizes, times))
	}
	return nil
}

// affordable returns the sizes within the bounds, and notes why not all are.
func (m *measuring) affordable() []int {
	sizes := []int{1, 8, 16}
	for i, k := range sizes {
		if i == 0 {
			continue
		}
		switch n := time.Duration(k); {
		case m.shortest == 0:
			m.batched.fewer = batchBusy
		case n*m.shortest > batchTime:
			m.batched.fewer = fmt.Sprintf("%d calls take more than %s", k, batchTime)
		case uint64(k)*m.inputSize > batchBytes:
			m.batched.fewer = fmt.Sprintf("%d inputs take more than %d MiB", k, batchBytes>>20)
		default:
			continue
		}
		return sizes[:i]
	}
	return sizes
}

// slopeOf returns the slope of the line through points by least squares: the time of
// one more call. Costs of a batch as a whole do not change it.
func slopeOf(x []int, y []float64) float64 {
	var meanX, meanY, over, under float64
	for i := range x {
		meanX, meanY = meanX+float64(x[i])/float64(len(x)), meanY+y[i]/float64(len(x))
	}
	for i := range x {
		d := float64(x[i]) - meanX
		over, under = over+d*(y[i]-meanY), under+d*d
	}
	return over / under
}

package harness

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// A kernel that works on several inputs of a batch at once is found by the slope,
// an honest one is not. What somebody else computes meanwhile is played by doing
// nothing: three of four calls find their work done.
func TestSlowOverlapOfCallsIsFound(t *testing.T) {
	testenv.NeedSlow(t)
	const lie = `
    caller = sys._getframe(1).f_locals
    if caller["mode"] == 2 and [item is data for item in caller["data"]].index(True) % 4:
        end = 0
`
	for _, tt := range []struct {
		name, lie string
		overlaps  bool
	}{{"honest", "pass", false}, {"four at a time", lie, true}} {
		t.Run(tt.name, func(t *testing.T) {
			const work = 200 * time.Microsecond
			seen := 0
			for range 5 { // others' noise can hide an overlap, and never makes one
				m := measured(t, "import sys\n"+spin(work, strings.TrimSpace(tt.lie)))
				if m == nil || m.FewerBatches != "" {
					t.Logf("the machine is too busy: %+v", m)
					continue
				}
				seen++
				if fastest := slices.Min(m.Samples); fastest < float64(work-time.Microsecond) {
					t.Errorf("a single call took %v ns: it gains by what it does in batches", fastest)
				}
				if !slices.Equal(m.Batches, []int{1, 8, 16}) || m.Slope == nil || m.Overlaps && !tt.overlaps {
					t.Fatalf("batches of %d, a slope of %v beside %v, overlaps %t, want %t", m.Batches, m.Slope, m.Interval, m.Overlaps, tt.overlaps)
				}
				if m.Overlaps == tt.overlaps {
					return
				}
				t.Logf("a slope of %v ns beside %v", *m.Slope, m.Interval)
			}
			if seen > 0 {
				t.Errorf("not found in %d measurements", seen)
			}
		})
	}
}

func TestBatchesThatFit(t *testing.T) {
	for _, tt := range []struct {
		shortest  time.Duration
		inputSize uint64
		sizes     []int
		fewer     string
	}{
		{100 * time.Microsecond, 1 << 20, []int{1, 8, 16}, ""},
		{100 * time.Microsecond, 1<<20 + 1, []int{1, 8}, "16 inputs take more than 16 MiB"},
		{100 * time.Microsecond, 2<<20 + 1, []int{1}, "8 inputs take more than 16 MiB"},
		{batchTime / 16, 1, []int{1, 8, 16}, ""},
		{batchTime/16 + 1, 1, []int{1, 8}, "16 calls take more than 4ms"},
		{batchTime/8 + 1, 1, []int{1}, "8 calls take more than 4ms"},
		{0, 1, []int{1}, batchBusy},
	} {
		m := measuring{shortest: tt.shortest, inputSize: tt.inputSize}
		if got := m.affordable(); !slices.Equal(got, tt.sizes) || m.batched.fewer != tt.fewer {
			t.Errorf("%s a call, %d bytes each: got batches of %d, %q, want %d, %q", tt.shortest, tt.inputSize, got, m.batched.fewer, tt.sizes, tt.fewer)
		}
	}
}

func TestSlope(t *testing.T) {
	for _, y := range [][]float64{{7, 21, 37}, {2e6, 2e6, 2e6}, {1e6, 8e6, 16e6}} {
		want := (y[2] - y[0]) / 15
		if got := slopeOf([]int{1, 8, 16}, y); math.Abs(got-want) > 1e-9*math.Abs(y[2]) {
			t.Errorf("slope of %v: got %v, want %v", y, got, want)
		}
	}
	for _, tt := range []struct {
		single float64
		slopes []float64
		want   bool
	}{
		{200e3, []float64{100e3, 101e3, 99e3}, true},
		{200e3, []float64{100e3, 160e3, 40e3}, false}, // chance
		{200e3, []float64{125e3, 125e3, 125e3}, false},
		{40e3, []float64{1, 1, 1}, false}, // a warm cache
		{math.Inf(1), []float64{1, 1, 1}, true},
	} {
		if got := overlaps(tt.single, figuresOf(tt.slopes), 1000); got != tt.want {
			t.Errorf("%v ns alone, slopes %v: overlap %t, want %t", tt.single, tt.slopes, got, tt.want)
		}
	}
}

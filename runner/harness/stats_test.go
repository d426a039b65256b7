package harness

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Max(1, math.Abs(want)) }

// Source of the figures: Python's statistics.mean and statistics.stdev.
func TestFiguresOf(t *testing.T) {
	for _, tt := range []struct {
		samples []float64
		want    stats
	}{
		{nil, stats{}},
		{[]float64{7}, stats{1, 7, 0, 0, 7, 7}},
		{[]float64{1, 2, 3, 4}, stats{4, 2.5, 1.2909944487358056, 0.6454972243679028, 1, 4}},
		{[]float64{5, 5, 5}, stats{3, 5, 0, 0, 5, 5}},
		{[]float64{3, -1}, stats{2, 1, 2.8284271247461903, 2, -1, 3}},
		{[]float64{1e9, 1e9 + 1, 1e9 + 2}, stats{3, 1e9 + 1, 1, 0.5773502691896258, 1e9, 1e9 + 2}},
	} {
		got := figuresOf(tt.samples)
		if got.runs != tt.want.runs || !near(got.mean, tt.want.mean) || !near(got.std, tt.want.std) || !near(got.err, tt.want.err) || got.best != tt.want.best || got.worst != tt.want.worst {
			t.Errorf("figuresOf(%v) = %+v, want %+v", tt.samples, got, tt.want)
		}
	}
}

// Source of the values: tables of Student's distribution, two-sided, 95 %.
func TestStudent95(t *testing.T) {
	for freedom, want := range map[int]float64{
		-1: 0, 0: 0, 1: 12.706, 2: 4.303, 5: 2.571, 10: 2.228, 20: 2.086, 21: 2.080, 25: 2.060, 30: 2.042, 40: 2.021, 60: 2.000, 99: 1.984, 120: 1.980, 999: 1.962,
	} {
		if got := student95(freedom); math.Abs(got-want) > 0.002 {
			t.Errorf("student95(%d) = %v, want %v", freedom, got, want)
		}
	}
	got := figuresOf([]float64{1, 2, 3, 4}).interval() // 2.5 ± 3.182 * 0.6455
	if math.Abs(got[0]-0.446) > 1e-3 || math.Abs(got[1]-4.554) > 1e-3 {
		t.Errorf("interval: got %v", got)
	}
}

func TestPercentile(t *testing.T) {
	list := func() []time.Duration { return []time.Duration{50, 10, 40, 20, 30, 60, 70, 80, 90, 100} }
	for p, want := range map[int]time.Duration{0: 10, 10: 20, 50: 60, 90: 100, 99: 100, 100: 100} {
		if got := percentile(list(), p); got != want {
			t.Errorf("percentile(%d) = %d, want %d", p, got, want)
		}
	}
	if got := percentile([]float64{3}, 90); got != 3 {
		t.Errorf("of one: %v", got)
	}
}

func TestPeeked(t *testing.T) {
	times := func(n int, ns float64) []float64 { return slices.Repeat([]float64{ns}, n) }
	for _, tt := range []struct {
		name         string
		fast, strict []float64
		want         bool
	}{
		{"alike", times(10, 1000), times(10, 1000), false},
		{"what a thaw explains", times(10, 1000), times(10, 1010), false},
		{"slower fast calls", times(10, 2000), times(10, 1000), false},
		{"all of it", times(10, 100), times(10, 1000), true},
		{"half of it", times(10, 500), times(10, 1000), true},
		{"some calls", append(times(9, 1050), 95), times(10, 1000), true},
		{"too unsure", append(times(5, 490), 500, 2000, 1500, 900, 4000), append(times(5, 590), 590, 2000, 700, 600, 1000), false},
		{"behind one long strict call", times(100, 760), append(times(20, 1000), 30_000), true},
		{"behind some long calls of both kinds", append(times(90, 760), times(2, 10_000)...), append(times(20, 1000), times(3, 10_000)...), true},
		{"inputs of unequal cost", append(times(50, 100), times(50, 900)...), append(times(12, 100), times(8, 900)...), false},
		{"few inputs are costly", append(times(95, 100), times(5, 5000)...), append(times(18, 100), times(2, 5000)...), false},
	} {
		if got := peeked(tt.fast, tt.strict, 20, 20); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Source of the lines: what the published eval.py files print, see rules.
func TestReportIsTheTesters(t *testing.T) {
	var r report
	r.put("benchmark-count", "1")
	r.put("benchmark.0.spec", "size: 128; seed: 5")
	r.figures("benchmark.0.", stats{3, 1500, 2.5, 0.1, 1e-05, 1e16}, true)
	r.figures("benchmark.1.", stats{100, 123456.789, 0, 0, 1, 2}, false)
	r.putText("test.0.error", "one\ncheck: pass\x1b[2J\u2028two")
	want := `benchmark-count: 1
benchmark.0.spec: size: 128; seed: 5
benchmark.0.runs: 3
benchmark.0.mean: 1500.0
benchmark.0.std: 2.5
benchmark.0.err: 0.1
benchmark.0.best: 1e-05
benchmark.0.worst: 1e+16
benchmark.1.runs: 100
benchmark.1.mean: 123456.789
benchmark.1.std: 0.0
benchmark.1.err: 0.0
`
	text := r.b.String()
	got, last := text[:strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1], text[strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1:]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if strings.Count(last, "\n") != 1 || !strings.HasPrefix(last, "test.0.error: one check: pass") || strings.ContainsAny(last, "\x1b\u2028") {
		t.Errorf("a hostile text: %q", last)
	}
	r = report{}
	r.putText("k", strings.Repeat("x", 2*maxReported))
	if n := r.b.Len(); n > maxReported+20 {
		t.Errorf("a text of %d bytes is kept", n)
	}
}

// What is written and in which order differs by variant, and is the tester's.
func TestSlowReportsOfVariants(t *testing.T) {
	testenv.NeedSlow(t)
	wrong := "def custom_kernel(data):\n    return data[0]\n"
	const figures = "benchmark.0.runs benchmark.0.mean benchmark.0.std benchmark.0.err"
	for _, tt := range []struct {
		variant, mode, submission, keys string
		exit                            int
	}{
		{"pmpp_v2", schema.ModeTest, right, "test-count test.0.spec test.0.status test.1.spec test.1.status check", 0},
		{"pmpp_v2", schema.ModeTest, wrong, "test-count test.0.spec test.0.status test.0.error test.1.spec test.1.status test.1.error check", 112},
		{"pmpp_v2", schema.ModeBenchmark, wrong, "benchmark-count benchmark.0.spec benchmark.0.status benchmark.0.error benchmark.1.spec benchmark.1.status benchmark.1.error check", 112},
		{"pmpp_v2", schema.ModeLeaderboard, wrong, "benchmark-count benchmark.0.spec benchmark.0.status benchmark.0.error check", 0},
		{"eigh", schema.ModeLeaderboard, wrong, "benchmark-count benchmark.0.spec benchmark.0.status benchmark.0.error check", 112},
		{"pmpp", schema.ModeLeaderboard, wrong, "test-count test.0.status test.0.error", 0},
		{"pmpp", schema.ModeLeaderboard, right, "benchmark-count benchmark.0.spec " + figures + " check", 0},
		{"", schema.ModeLeaderboard, right, "benchmark-count benchmark.0.spec " + figures + " benchmark.0.best benchmark.0.worst benchmark.1.spec " +
			strings.ReplaceAll(figures, ".0.", ".1.") + " benchmark.1.best benchmark.1.worst check", 0},
	} {
		p := addPayload(tt.submission, ints("n", 4, "seed", 1), ints("n", 5, "seed", 2))
		s := mustOpen(t, tt.variant, p)
		s.rules.benchmark.wall, s.rules.leaderboard.wall, s.rules.leaderboard.err = 2*time.Second, 2*time.Second, 0.05
		r := timed(t, s, tt.mode, tt.submission, p)
		if r.outcome == schema.OutcomeAmbiguous { // of the wrong one, before it was called
			t.Logf("%s: the machine is too busy to measure: %s", tt.variant, r.text)
			continue
		}
		if got := strings.Join(r.keys, " "); got != tt.keys || r.Process.ExitCode != tt.exit {
			t.Errorf("%q, %s: status %d, keys\n%s\nwant status %d\n%s", tt.variant, tt.mode, r.Process.ExitCode, got, tt.exit, tt.keys)
		}
	}
}

package chart

import (
	"encoding/xml"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata from what the charts are")

var begin = time.Date(2026, 11, 1, 9, 30, 0, 0, time.UTC)

func point(after time.Duration, value float64) Point {
	return Point{begin.Add(after), value, "somebody"}
}

func TestCharts(t *testing.T) {
	const day = 24 * time.Hour
	for name, svg := range map[string]string{
		"linear": string(History{ID: "best", Title: "Best on B200", Unit: "µs", Until: begin.Add(9 * day),
			Points: []Point{point(0, 50), point(2*day, 44.5), point(5*day, 41.25)}, Own: []Point{point(day, 49), point(6*day, 43)}}.SVG()),
		"logarithmic": string(History{ID: "best", Title: "Best <on> \"H100\"", Unit: "µs", Until: begin.Add(3 * time.Hour),
			Points: []Point{point(0, 9000), point(time.Hour, 700), point(2*time.Hour, 41)}}.SVG()),
		"single": string(History{ID: "best", Title: "Best", Unit: "µs", Until: begin, Points: []Point{point(0, 5)}}.SVG()),
		"strip":  string(Strip{ID: "s0", Title: "benchmark.0", Unit: "µs", Samples: []float64{4, 4.5, 4.25, 9, 4.1, math.NaN()}, Mean: 4.4}.SVG()),
	} {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", name+".svg")
			if *update {
				if err := os.WriteFile(golden, []byte(svg+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), svg+"\n"); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			wellFormed(t, svg)
		})
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

// Whatever comes in, the drawing has a bounded size and no number that is none.
func TestOddNumbers(t *testing.T) {
	many := make([]float64, 100_000)
	steps := make([]Point, len(many))
	for i := range many {
		many[i] = float64(i % 977)
		steps[i] = point(time.Duration(i)*time.Second, 1e6-float64(i))
	}
	nan, inf := math.NaN(), math.Inf(1)
	for name, svg := range map[string]string{
		"no points":     string(History{ID: "h"}.SVG()),
		"no numbers":    string(History{ID: "h", Points: []Point{point(0, nan), point(1, inf), point(2, -1), point(3, 0)}}.SVG()),
		"huge":          string(History{ID: "h", Points: []Point{point(0, 1e300), point(1, 5e-324)}}.SVG()),
		"huge alike":    string(History{ID: "h", Points: []Point{point(0, math.MaxFloat64), point(1, math.MaxFloat64/2)}}.SVG()),
		"tiny":          string(History{ID: "h", Points: []Point{point(0, 5e-324)}}.SVG()),
		"ages":          string(History{ID: "h", Points: []Point{{time.Unix(0, 0), 2, ""}, {time.Unix(9e9, 0), 1, ""}}}.SVG()),
		"backwards":     string(History{ID: "h", Points: []Point{point(time.Hour, 2), point(0, 1)}}.SVG()),
		"many points":   string(History{ID: "h", Points: steps, Own: steps}.SVG()),
		"hostile":       string(History{ID: "h", Title: "</title><script>", Points: []Point{{begin, 1, "</svg><script>alert(1)</script>"}}}.SVG()),
		"one sample":    string(Strip{ID: "s", Samples: []float64{1}}.SVG()),
		"equal samples": string(Strip{ID: "s", Samples: []float64{0, 0, 0}}.SVG()),
		"huge samples":  string(Strip{ID: "s", Samples: []float64{-math.MaxFloat64, math.MaxFloat64, inf}}.SVG()),
		"many samples":  string(Strip{ID: "s", Samples: many}.SVG()),
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, "<script") {
				t.Errorf("%.300s", svg)
			}
			if strings.Count(svg, "<circle") > 2*maxPoints || len(svg) > 400_000 {
				t.Errorf("%d bytes, %d dots", len(svg), strings.Count(svg, "<circle"))
			}
			wellFormed(t, svg)
		})
	}
}

func TestThinKeepsWhatSticksOut(t *testing.T) {
	samples := make([]float64, 50_000)
	samples[31_415], samples[27_182] = 9, -9
	seen := map[float64]bool{}
	for _, s := range thin(samples) {
		seen[s.value] = true
	}
	if !seen[9] || !seen[-9] {
		t.Errorf("thin kept the values %v, want 9 and -9 among them", seen)
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		values []float64
		log    bool
	}{{[]float64{1, 7.9}, false}, {[]float64{1, 8}, true}, {[]float64{0, 100}, false}, {[]float64{40, 41}, false}} {
		s := newScale(c.values)
		if s.log != c.log {
			t.Errorf("the scale of %v is logarithmic: %v, want %v", c.values, s.log, c.log)
		}
		last := -1.0
		for _, v := range c.values {
			if at := s.share(v); at < 0 || at > 1 || at < last {
				t.Errorf("on the scale of %v, %v lies at %v", c.values, v, at)
			} else {
				last = at
			}
		}
		ticks := s.ticks()
		if len(ticks) < 2 || len(ticks) > 8 {
			t.Errorf("the scale of %v has the ticks %v, want two to eight", c.values, ticks)
		}
		for _, v := range ticks {
			if at := s.share(v); at < 0 || at > 1 {
				t.Errorf("the tick %v lies at %v", v, at)
			}
		}
	}
}

func TestTimesAreRoundAndFew(t *testing.T) {
	for span := time.Second; span < 200*365*24*time.Hour; span *= 3 {
		ticks, layout := times(begin.Add(time.Millisecond), begin.Add(span))
		if len(ticks) > maxTimes || layout == "" {
			t.Errorf("over %s: %d ticks", span, len(ticks))
		}
		for _, tick := range ticks {
			if tick.Before(begin) || tick.After(begin.Add(span)) {
				t.Errorf("over %s: the tick %s lies outside", span, tick)
			}
		}
	}
	if ticks, layout := times(begin, begin.Add(5*24*time.Hour)); len(ticks) == 0 || ticks[0].Format(layout) != "3 Nov" && ticks[0].Format(layout) != "2 Nov" {
		t.Errorf("over five days: %v as %q", ticks, layout)
	}
}

package chart

import (
	"fmt"
	"html/template"
	"slices"
)

// A Strip is the samples of one measurement, each a dot, in the order in which they
// were taken.
type Strip struct {
	ID      string // of the element, a word of ours: no other on the page has it
	Title   string // foreign
	Unit    string
	Samples []float64
	Mean    float64 // drawn as a line; 0: none
}

const stripHeight = 56

// SVG draws the samples; "" for less than two.
func (s Strip) SVG() template.HTML {
	all := slices.DeleteFunc(slices.Clone(s.Samples), func(v float64) bool { return !finite(v) })
	if len(all) < 2 {
		return ""
	}
	shown := thin(all)
	least, most := slices.Min(all), slices.Max(all)
	scale := newScale([]float64{least, most})
	c := canvas{height: stripHeight}
	c.open("chart strip", label{s.ID, s.Title, fmt.Sprintf("%d samples from %s to %s %s, in the order in which they were taken", len(all), short(least), short(most), s.Unit)})
	y := func(v float64) float64 { return c.height * (1 - scale.share(v)) }
	c.line("base", 0, c.height, 1, c.height)
	c.text("axis", "end", 0, -8, y(most)+4, short(most)+" "+s.Unit)
	if least < most {
		c.text("axis", "end", 0, -8, y(least)+4, short(least))
	}
	if s.Mean >= least && s.Mean <= most {
		c.line("mean", 0, y(s.Mean), 1, y(s.Mean))
	}
	for _, p := range shown {
		x := (float64(p.at) + 0.5) / float64(len(all))
		c.dot("sample", x, y(p.value), 2, "")
	}
	return c.close()
}

type sample struct {
	at    int
	value float64
}

// thin keeps at most MaxPoints samples: of each stretch the least and the most.
func thin(all []float64) []sample {
	if len(all) <= maxPoints {
		out := make([]sample, len(all))
		for i, v := range all {
			out[i] = sample{i, v}
		}
		return out
	}
	out := make([]sample, 0, maxPoints)
	for i := range maxPoints / 2 {
		from, to := i*len(all)/(maxPoints/2), (i+1)*len(all)/(maxPoints/2)
		low, high := from, from
		for j := from; j < to; j++ {
			if all[j] < all[low] {
				low = j
			}
			if all[j] > all[high] {
				high = j
			}
		}
		if out = append(out, sample{min(low, high), all[min(low, high)]}); low != high {
			out = append(out, sample{max(low, high), all[max(low, high)]})
		}
	}
	return out
}

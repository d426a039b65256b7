// Package chart draws the charts of the pages as SVG that stands inline in HTML.
//
// It is pure: numbers go in, text comes out, the same for the same. It knows no
// submission and no page. Colours and sizes of text are the page's: what is drawn
// has classes. Lengths along the page are percentages, so that a chart is as wide
// as its place and its text is as large as the page's; lengths across are pixels.
//
// Labels of the vertical axis stand to the left of the drawing, those of the
// horizontal axis below it: the page keeps room for both.
package chart

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxPoints is how many points a chart draws at most; of more it draws a share
// that keeps the first, the last and each stretch's least and most.
const maxPoints = 400

// A canvas is an SVG that grows.
type canvas struct {
	b      strings.Builder
	height float64 // of the drawing, without labels
}

// label is what a screen reader says of a chart. Both texts are foreign.
type label struct{ id, title, description string }

// open begins a chart with the given class.
func (c *canvas) open(class string, l label) {
	fmt.Fprintf(&c.b, `<svg class="%s" role="img" aria-labelledby="%s-title %s-desc" width="100%%" height="%s" xmlns="http://www.w3.org/2000/svg">`,
		class, l.id, l.id, number(c.height))
	fmt.Fprintf(&c.b, `<title id="%s-title">%s</title><desc id="%s-desc">%s</desc>`, l.id, html.EscapeString(l.title), l.id, html.EscapeString(l.description))
}

func (c *canvas) close() template.HTML {
	c.b.WriteString("</svg>")
	return template.HTML(c.b.String())
}

// line draws from one point to another; x are shares of the width.
func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, percent(x1), number(y1), percent(x2), number(y2))
}

func (c *canvas) dot(class string, x, y, radius float64, tip string) {
	fmt.Fprintf(&c.b, `<circle class="%s" cx="%s" cy="%s" r="%s"`, class, percent(x), number(y), number(radius))
	if tip == "" {
		c.b.WriteString("/>")
		return
	}
	fmt.Fprintf(&c.b, `><title>%s</title></circle>`, html.EscapeString(tip))
}

// text writes one label; dx and dy are pixels.
func (c *canvas) text(class, anchor string, x, dx, y float64, words string) {
	fmt.Fprintf(&c.b, `<text class="%s" text-anchor="%s" x="%s" dx="%s" y="%s">%s</text>`, class, anchor, percent(x), number(dx), number(y), html.EscapeString(words))
}

// number writes pixels with at most one digit behind the point.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// percent writes a share of the width.
func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/1e2, 'f', -1, 64) + "%"
}

// finite reports whether a value can be drawn; one near the end of what a float64
// holds cannot.
func finite(v float64) bool { return math.Abs(v) <= 1e300 }

// A scale maps values to shares of a length: 0 is the least, 1 the most.
type scale struct {
	least, most float64
	log         bool
}

// logFrom is how many times the least value the most must be for a logarithmic
// scale: below it a linear one shows differences as they are.
const logFrom = 8

// newScale has room for the values, and some around them.
func newScale(values []float64) scale {
	least, most := slices.Min(values), slices.Max(values)
	if least > 0 && most/least >= logFrom && finite(most/least) {
		room := math.Pow(most/least, 0.06)
		return scale{least / room, most * room, true}
	}
	room := (most/2 - least/2) * 0.16 // halves: no overflow
	room = cmp.Or(room, math.Abs(most)*0.05, 1)
	low := least - room
	if least >= 0 {
		low = max(low, 0)
	}
	return scale{low, most + room, false}
}

// share returns where a value lies.
func (s scale) share(v float64) float64 {
	if s.log {
		return math.Log(v/s.least) / math.Log(s.most/s.least)
	}
	return (v/2 - s.least/2) / (s.most/2 - s.least/2)
}

// ticks returns round values within the scale, at most eight.
func (s scale) ticks() []float64 {
	if s.log {
		return s.logTicks()
	}
	step := roundUp((s.most/2 - s.least/2) / 2.5)
	if !(step > 0) || !finite(step) {
		return nil
	}
	var out []float64
	for i := math.Ceil(s.least / step); i*step <= s.most && len(out) < 8; i++ {
		out = append(out, i*step)
	}
	return out
}

func (s scale) logTicks() []float64 {
	first, last := int(math.Ceil(math.Log10(s.least)-1)), int(math.Floor(math.Log10(s.most)))
	for _, steps := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		var out []float64
		for e := first; e <= last; e++ {
			for _, m := range steps {
				if v := m * math.Pow(10, float64(e)); v >= s.least && v <= s.most {
					out = append(out, v)
				}
			}
		}
		if len(out) <= 6 {
			return out
		}
	}
	every := (last-first)/6 + 1
	var out []float64
	for e := first; e <= last; e += every {
		if v := math.Pow(10, float64(e)); v >= s.least && v <= s.most {
			out = append(out, v)
		}
	}
	return out
}

// roundUp returns the least of 1, 2, 2.5, 5 and 10 times a power of ten that is
// not below v.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// short writes a value for an axis: no more digits than tell ticks apart.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// spans are the distances that ticks of time may have, and how they are written.
var spans = []struct {
	step   time.Duration
	layout string
}{
	{time.Second, "15:04:05"}, {5 * time.Second, "15:04:05"}, {15 * time.Second, "15:04:05"},
	{time.Minute, "15:04"}, {5 * time.Minute, "15:04"}, {15 * time.Minute, "15:04"},
	{time.Hour, "15:04"}, {3 * time.Hour, "2 Jan 15:04"}, {6 * time.Hour, "2 Jan 15:04"}, {12 * time.Hour, "2 Jan 15:04"},
	{24 * time.Hour, "2 Jan"}, {48 * time.Hour, "2 Jan"}, {4 * 24 * time.Hour, "2 Jan"}, {7 * 24 * time.Hour, "2 Jan"}, {14 * 24 * time.Hour, "2 Jan"},
	{30 * 24 * time.Hour, "2 Jan 2006"}, {91 * 24 * time.Hour, "2 Jan 2006"}, {365 * 24 * time.Hour, "2 Jan 2006"},
}

// maxTimes is how many labels of time stand beside each other on a telephone.
const maxTimes = 4

// times returns round times from one to another, at most maxTimes, and the layout
// in which they are written. All times are UTC.
func times(from, to time.Time) (ticks []time.Time, layout string) {
	from, to = from.UTC(), to.UTC()
	step := spans[len(spans)-1].step
	layout = spans[len(spans)-1].layout
	for _, s := range spans {
		if to.Sub(from) < s.step*(maxTimes-1) {
			step, layout = s.step, s.layout
			break
		}
	}
	for to.Sub(from) >= step*(maxTimes-1) && step < math.MaxInt64/2 {
		step *= 2
	}
	for t := from.Truncate(step); !t.After(to) && len(ticks) < maxTimes; t = t.Add(step) {
		if !t.Before(from) {
			ticks = append(ticks, t)
		}
	}
	return ticks, layout
}

package chart

import (
	"fmt"
	"html/template"
	"slices"
	"time"
)

// A Point is a value from its time on.
type Point struct {
	Time  time.Time
	Value float64 // above zero
	Label string  // what it is, for people; foreign
}

// A History is how something got better: a line of steps, lower is better.
type History struct {
	ID     string // of the element, a word of ours: no other on the page has it
	Title  string
	Unit   string    // of the values, "µs"
	Points []Point   // oldest first
	Own    []Point   // of whoever looks, drawn as a second line
	Until  time.Time // where the lines end, now or the deadline
}

// historyHeight is how high the drawing is, in pixels.
const historyHeight = 220

// SVG draws the history; "" where there is nothing to draw. The vertical scale is
// logarithmic where the worst is many times the best.
func (h History) SVG() template.HTML {
	best, own := usable(h.Points), usable(h.Own)
	if len(best) == 0 {
		return ""
	}
	var values []float64
	var at []time.Time
	for _, p := range slices.Concat(best, own) {
		values, at = append(values, p.Value), append(at, p.Time)
	}
	from, to := slices.MinFunc(at, time.Time.Compare), slices.MaxFunc(at, time.Time.Compare)
	if h.Until.After(to) {
		to = h.Until
	}
	if !to.After(from) {
		to = from.Add(time.Minute)
	}
	d := drawing{canvas: canvas{height: historyHeight}, scale: newScale(values), from: from, to: to, unit: h.Unit}
	d.open("chart history", label{h.ID, h.Title, h.describe(best, d.scale.log)})
	d.axes()
	d.steps("own", own)
	d.steps("best", best)
	return d.close()
}

func (h History) describe(best []Point, log bool) string {
	first, last := best[0], best[len(best)-1]
	kind := "linear"
	if log {
		kind = "logarithmic"
	}
	text := fmt.Sprintf("%s %s since %s", short(last.Value), h.Unit, last.Time.UTC().Format("2 January 2006 15:04"))
	if len(best) > 1 {
		text = fmt.Sprintf("From %s %s on %s down to %s in %d steps", short(first.Value), h.Unit, first.Time.UTC().Format("2 January 2006 15:04"), text, len(best))
	}
	return text + "; " + kind + " scale, lower is better. A table with the same values follows."
}

// usable leaves out what cannot be drawn, and of many points some: a step that is
// kept stays where it is.
func usable(points []Point) []Point {
	var out []Point
	for _, p := range points {
		if finite(p.Value) && p.Value > 0 && (len(out) == 0 || !p.Time.Before(out[len(out)-1].Time)) {
			out = append(out, p)
		}
	}
	if n := len(out); n > maxPoints {
		kept := make([]Point, maxPoints)
		for i := range kept {
			kept[i] = out[i*(n-1)/(maxPoints-1)]
		}
		out = kept
	}
	return out
}

// A drawing is a chart over time.
type drawing struct {
	canvas
	scale    scale
	from, to time.Time
	unit     string
}

func (d *drawing) x(t time.Time) float64 {
	return float64(t.Sub(d.from)) / float64(d.to.Sub(d.from))
}

func (d *drawing) y(v float64) float64 { return d.height * (1 - d.scale.share(v)) }

func (d *drawing) axes() {
	for _, v := range d.scale.ticks() {
		d.line("grid", 0, d.y(v), 1, d.y(v))
		d.text("axis", "end", 0, -8, d.y(v)+4, short(v))
	}
	d.text("axis unit", "end", 0, -8, -6, d.unit)
	d.line("base", 0, d.height, 1, d.height)
	ticks, layout := times(d.from, d.to)
	for _, t := range ticks {
		x, anchor := d.x(t), "middle"
		if x < 0.1 {
			anchor = "start"
		} else if x > 0.9 {
			anchor = "end"
		}
		d.line("tick", x, d.height, x, d.height+5)
		d.text("axis", anchor, x, 0, d.height+20, t.Format(layout))
	}
}

// steps draws each value until the next one.
func (d *drawing) steps(class string, points []Point) {
	for i, p := range points {
		x, y, end := d.x(p.Time), d.y(p.Value), 1.0
		if i+1 < len(points) {
			end = d.x(points[i+1].Time)
		}
		d.line(class, x, y, end, y)
		if i+1 < len(points) {
			d.line(class, end, y, end, d.y(points[i+1].Value))
		}
	}
	for _, p := range points {
		d.dot(class, d.x(p.Time), d.y(p.Value), 3.5, p.Label)
	}
}

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

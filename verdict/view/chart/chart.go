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
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
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

// Package plot draws pages of line charts as SVG, for light and for dark pages.
package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// A Page is charts side by side, two in a row.
type Page struct {
	Title  string
	Charts []Chart
}

// A Chart has lines over one horizontal axis. Both axes are logarithmic, since costs
// and sizes are compared by their ratios: a line that is flat does not grow.
type Chart struct {
	Title  string
	X, Y   string // what the axes show, with units
	Linear bool   // the vertical axis is linear, and begins at 0
	Lines  []Line
}

// A Line is the measurements of one thing, with X growing. Values are above 0, or 0 on
// a linear axis.
type Line struct {
	Name   string
	Points []Point
}

// A Point is one measurement.
type Point struct{ X, Y float64 }

// Pixels.
const (
	width, height         = 880, 330 // of a row
	chartWidth, pitch     = 340, 430
	chartTop, chartHeight = 64, 170
	chartLeft             = 64
	head                  = 40
)

const style = `<style>
  svg { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif }
  text { fill: #1f2328 }
  .ground { fill: #ffffff }
  .small { font-size: 12px; fill: #59636e }
  .bold { font-weight: 600 }
  .axis { stroke: #8c959f; fill: none }
  .grid { stroke: #d5dae0; fill: none }
  .line { stroke-width: 2; fill: none }
  .a { stroke: #2f6fd6 } .b { stroke: #d9480f } .c { stroke: #1a7f37 } .d { stroke: #8250df }
  circle.a { fill: #2f6fd6 } circle.b { fill: #d9480f } circle.c { fill: #1a7f37 } circle.d { fill: #8250df }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .ground { fill: #0d1117 }
    .small { fill: #9da7b1 }
    .axis { stroke: #6e7781 }
    .grid { stroke: #323a44 }
    .a { stroke: #5a9bff } .b { stroke: #ff8a4c } .c { stroke: #56d364 } .d { stroke: #b48cff }
    circle.a { fill: #5a9bff } circle.b { fill: #ff8a4c } circle.c { fill: #56d364 } circle.d { fill: #b48cff }
  }
</style>
`

// SVG returns the page.
func (p Page) SVG() string {
	rows := (len(p.Charts) + 1) / 2
	tall := head + rows*height
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc">`, width, tall)
	fmt.Fprintf(&b, "\n<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n%s", html.EscapeString(p.Title), html.EscapeString(p.description()), style)
	fmt.Fprintf(&b, "<rect class=\"ground\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", width, tall)
	fmt.Fprintf(&b, "<text class=\"bold\" x=\"16\" y=\"28\">%s</text>\n", html.EscapeString(p.Title))
	for i, c := range p.Charts {
		fmt.Fprintf(&b, "<g transform=\"translate(%d %d)\">\n", i%2*pitch, head+i/2*height)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	return b.String() + "</svg>\n"
}

// description says in words what the charts show, for readers who cannot see them.
func (p Page) description() string {
	var b strings.Builder
	for _, c := range p.Charts {
		fmt.Fprintf(&b, "%s (%s, by %s): ", c.Title, c.Y, c.X)
		for _, l := range c.Lines {
			fmt.Fprintf(&b, "%s", l.Name)
			for _, point := range l.Points {
				fmt.Fprintf(&b, " %s: %s,", short(point.X), Number(point.Y))
			}
			b.WriteString("; ")
		}
	}
	return strings.TrimSuffix(strings.ReplaceAll(b.String(), ",;", ";"), "; ") + "."
}

func (c Chart) draw(b *strings.Builder) {
	xs, ys := c.span()
	x := func(v float64) float64 { return chartLeft + chartWidth*xs.part(v) }
	y := func(v float64) float64 { return chartTop + chartHeight*(1-ys.part(v)) }
	fmt.Fprintf(b, "<text class=\"bold\" x=\"16\" y=\"24\">%s</text>\n<text class=\"small\" x=\"16\" y=\"44\">%s</text>\n",
		html.EscapeString(c.Title), html.EscapeString(c.Y))
	for _, tick := range ys.ticks() {
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text class=\"small\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
			chartLeft, y(tick), chartWidth, chartLeft-6, y(tick)+4, short(tick))
	}
	fmt.Fprintf(b, "<path class=\"axis\" d=\"M%d %dv%dh%d\"/>\n", chartLeft, chartTop, chartHeight, chartWidth)
	last := math.Inf(-1)
	for _, point := range c.longest() {
		at := x(point.X)
		if at-last > 34 { // so that labels do not touch
			fmt.Fprintf(b, "<text class=\"small\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n", at, chartTop+chartHeight+18, short(point.X))
			last = at
		}
	}
	fmt.Fprintf(b, "<text class=\"small\" text-anchor=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", chartLeft+chartWidth, chartTop+chartHeight+36, html.EscapeString(c.X))
	for i, l := range c.Lines {
		color := string(rune('a' + i))
		path := ""
		for j, point := range l.Points {
			path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(j, 1)], x(point.X), y(point.Y))
			fmt.Fprintf(b, "<circle class=%q cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", color, x(point.X), y(point.Y))
		}
		fmt.Fprintf(b, "<path class=\"line %s\" d=\"%s\"/>\n", color, path)
		legend := chartTop + chartHeight + 36 + 17*i
		fmt.Fprintf(b, "<path class=\"line %s\" d=\"M16 %dh24\"/><text class=\"small\" x=\"48\" y=\"%d\">%s</text>\n",
			color, legend-4, legend, html.EscapeString(l.Name))
	}
}

func (c Chart) longest() []Point {
	var longest []Point
	for _, l := range c.Lines {
		if len(l.Points) > len(longest) {
			longest = l.Points
		}
	}
	return longest
}

// A span is the ends of an axis: numbers, or exponents of ten.
type span struct {
	low, high float64
	linear    bool
}

func (s *span) add(v float64) {
	if !s.linear {
		v = math.Log10(v)
	}
	s.low, s.high = min(s.low, v), max(s.high, v)
}

func (c Chart) span() (x, y span) {
	x, y = span{low: math.Inf(1), high: math.Inf(-1)}, span{low: math.Inf(1), high: math.Inf(-1), linear: c.Linear}
	for _, l := range c.Lines {
		for _, p := range l.Points {
			x.add(p.X)
			y.add(p.Y)
		}
	}
	y.low, y.high = math.Floor(y.low), math.Ceil(y.high) // whole numbers, or whole powers of ten
	if c.Linear {
		y.low = 0
	}
	if y.low == y.high {
		y.high++
	}
	return x, y
}

func (s span) part(v float64) float64 {
	if s.high == s.low {
		return 0.5
	}
	if !s.linear {
		v = math.Log10(v)
	}
	return (v - s.low) / (s.high - s.low)
}

// ticks are the powers of ten and, on a short axis, 2 and 5 times them.
func (s span) ticks() (ticks []float64) {
	if s.linear {
		return []float64{0, s.high / 2, s.high}
	}
	for e := s.low; e <= s.high; e++ {
		ticks = append(ticks, math.Pow(10, e))
		if s.high-s.low <= 2 && e < s.high {
			ticks = append(ticks, 2*math.Pow(10, e), 5*math.Pow(10, e))
		}
	}
	return ticks
}

// short formats a number with a prefix of thousands.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}

// Number returns v with three digits that count, and never with an exponent.
func Number(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	return strconv.FormatFloat(v, 'f', -1, 64)
}

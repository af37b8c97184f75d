package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay"
)

// A Plot is a picture over time. The words around it are HTML, which a phone does not
// shrink.
type Plot struct {
	SVG              template.HTML
	Max              string // the upper end of the scale
	Start, Mid, End  string
	Busiest, Columns string
	Data             []column
	Old, New         string // names of lines
}

const (
	plotColumns = 240
	plotHeight  = 100
)

// Traffic shows admitted and refused requests over time.
func (r *Report) Traffic() *Plot {
	list, gaps := columns(r.Buckets, r.Width, plotColumns)
	if len(list) == 0 {
		return nil
	}
	most := int64(1)
	for _, c := range list {
		most = max(most, c.Requests)
	}
	var b strings.Builder
	for i, c := range list {
		if c.Requests == 0 {
			continue
		}
		all, refused := height(c.Requests, most), height(c.Refused, most)
		if c.Refused > 0 { // which is to be seen however few there are
			refused = max(refused, 2)
		}
		fmt.Fprintf(&b, `<rect class="admitted" x="%d" y="%.1f" width="1" height="%.1f"/>`, i, plotHeight-all, max(0, all-refused))
		if c.Refused > 0 {
			fmt.Fprintf(&b, `<rect class="refused" x="%d" y="%.1f" width="1" height="%.1f"/>`, i, plotHeight-refused, refused)
		}
	}
	p := &Plot{Max: words.Number(most), Busiest: busiest(list), Data: list}
	p.frame(r, list, gaps, b.String(), "Requests over time, admitted and refused; at most "+p.Max+" a column. "+p.Busiest)
	return p
}

func height(n, most int64) float64 { return plotHeight * float64(n) / float64(most) }

// frame makes the picture, and the words below it.
func (p *Plot) frame(r *Report, list []column, gaps bool, inside, label string) {
	p.SVG = template.HTML(fmt.Sprintf(`<svg class="plot" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">%s</svg>`,
		len(list), plotHeight, html.EscapeString(strings.TrimSpace(label)), inside))
	p.Start, p.End = minute(r.From), minute(r.To)
	if !gaps {
		p.Mid = minute(r.From.Add(r.To.Sub(r.From) / 2))
	}
	p.Columns = "A column is " + words.Duration(list[0].Width) + "."
	if gaps {
		p.Columns += " Time without requests is left out."
	}
}

// Changes shows the requests that each policy refuses over time.
func (r *Report) Changes() *Plot {
	if r.Comparison == nil {
		return nil
	}
	old, gaps := columns(r.Buckets, r.Width, plotColumns)
	added, _ := columns(r.Comparison.Buckets, r.Width, plotColumns)
	if len(old) == 0 || len(old) != len(added) {
		return nil
	}
	most := int64(1)
	for i := range old {
		most = max(most, old[i].Refused, added[i].Refused)
	}
	inside := steps(old, most, "old") + steps(added, most, "new")
	p := &Plot{Max: words.Number(most), Old: r.Policy, New: r.Compare}
	p.frame(r, old, gaps, inside, fmt.Sprintf("Refused requests over time: %s by the old policy, %s by the new one.", words.Number(r.Refused), words.Number(r.Comparison.BothRefuse+r.Comparison.OnlyNew)))
	return p
}

func steps(list []column, most int64, class string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "0,%d ", plotHeight) // so that the area below can be filled
	for i, c := range list {
		y := plotHeight - height(c.Refused, most)
		fmt.Fprintf(&b, "%d,%.1f %d,%.1f ", i, y, i+1, y)
	}
	fmt.Fprintf(&b, "%d,%d", len(list), plotHeight)
	return fmt.Sprintf(`<polyline class="%s" points="%s" vector-effect="non-scaling-stroke"/>`, class, b.String())
}

// partBar shows a part of a whole in a cell. The number stands beside it.
func partBar(part, whole int64) template.HTML {
	if whole == 0 || part == 0 {
		return ""
	}
	return template.HTML(fmt.Sprintf(`<svg class="bar" width="80" height="8" aria-hidden="true"><rect class="track" width="80" height="8"/><rect class="refused" width="%.1f" height="8"/></svg>`,
		max(1, 80*float64(part)/float64(whole))))
}

const (
	peakWidth = 180
	peakRoom  = 6 // left and right of the scale
)

// peakBar shows P50 to P99 as a bar on a logarithmic scale, and the maximum as a tick.
func peakBar(s replay.Suggestion, w replay.WindowSuggestion) template.HTML {
	most := slices.MaxFunc(s.Windows, func(a, b replay.WindowSuggestion) int { return int(min(1, max(-1, a.Max-b.Max))) }).Max
	x := func(v int64) float64 {
		return peakRoom + (peakWidth-2*peakRoom)*math.Log(float64(max(1, v)))/math.Log(float64(max(2, most)))
	}
	return template.HTML(fmt.Sprintf(`<svg class="peaks" width="%d" height="16" aria-hidden="true"><line class="axis" x1="%d" x2="%d" y1="8" y2="8"/>`+
		`<rect class="range" x="%.1f" y="4" width="%.1f" height="8" rx="2"/><rect class="p90" x="%.1f" y="2" width="2" height="12"/><circle class="most" cx="%.1f" cy="8" r="4"/></svg>`,
		peakWidth, peakRoom, peakWidth-peakRoom, x(w.P50), max(2, x(w.P99)-x(w.P50)), x(w.P90)-1, x(w.Max)))
}

package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// The columns of the simulation's results.
const (
	instancesColumn = iota
	demandColumn
	limitColumn // of the demand
	holdColumn  // ms
	chunkColumn
	callsColumn // a second
	earlyColumn
	unusedColumn
)

// The picture, in pixels: three panels side by side, with the Hold from left to right.
const (
	panelWidth, panelHeight = 216, 190
	panelLeft, panelTop     = 60, 84
	panelPitch              = 272
	pictureWidth            = 3*panelPitch + 16
	pictureHeight           = 350
)

const plotHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc">
<title id="title">Prefetch: 1,000 instances, 10 million requests a second</title>
<desc id="desc">%[3]s</desc>
<style>
  svg { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif }
  text { fill: #1f2328 }
  .ground { fill: #ffffff }
  .small { font-size: 12px; fill: #59636e }
  .bold { font-weight: 600 }
  .axis { stroke: #8c959f; stroke-width: 1; fill: none }
  .grid { stroke: #d5dae0; stroke-width: 1; fill: none }
  .curve { fill: none; stroke-width: 2 }
  .a { stroke: #2f6fd6; fill: #2f6fd6 } .b { stroke: #8250df; fill: #8250df } .c { stroke: #d9480f; fill: #d9480f }
  .curve { fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .ground { fill: #0d1117 }
    .small { fill: #9da7b1 }
    .axis { stroke: #6e7781 }
    .grid { stroke: #323a44 }
    .a { stroke: #5a9bff; fill: #5a9bff } .b { stroke: #b48cff; fill: #b48cff } .c { stroke: #ff8a4c; fill: #ff8a4c }
    .curve { fill: none }
  }
</style>
<rect class="ground" width="%[1]d" height="%[2]d" rx="6"/>
<text class="bold" x="16" y="26">1,000 instances, 10 million requests a second on one rule, chunks of up to 1,000</text>
`

// A panel draws one column.
type panel struct {
	name   string
	column int
	scale  func(float64) float64 // to a part of the height
	ticks  []float64
	format func(float64) string
}

func percent(most float64, ticks ...float64) panel {
	return panel{scale: func(v float64) float64 { return 100 * v / most }, ticks: ticks,
		format: func(v float64) string { return fmt.Sprintf("%g %%", math.Round(1e6*v)/1e4) }}
}

// draw reads the results of TestSimulation and draws those of the large fleet.
func draw(from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return err
	}
	curves := make(map[string][][]float64) // by limit
	var limits []string
	early, unused := 0.0, 0.0
	for _, row := range rows {
		values := make([]float64, len(row))
		for i := range row {
			if values[i], err = strconv.ParseFloat(row[i], 64); err != nil {
				return err
			}
		}
		if values[instancesColumn] != 1000 || values[chunkColumn] != 1000 {
			continue
		}
		limit := row[limitColumn]
		if curves[limit] == nil {
			limits = append(limits, limit)
		}
		curves[limit] = append(curves[limit], values)
		early, unused = max(early, values[earlyColumn]), max(unused, values[unusedColumn])
	}
	top := func(v float64) float64 { return max(1, math.Ceil(100*v)) } // per cent
	calls := panel{"Redis calls a second (10 million without)", callsColumn,
		func(v float64) float64 { return (math.Log10(v) - 3) / 4 }, []float64{1e3, 1e4, 1e5, 1e6, 1e7},
		func(v float64) string { return fmt.Sprintf("10^%d", int(math.Round(math.Log10(v)))) }}
	refused := percent(top(early), 0, top(early)/200, top(early)/100)
	refused.name, refused.column = "refused although the limit allows it", earlyColumn
	returned := percent(top(unused), 0, top(unused)/200, top(unused)/100)
	returned.name, returned.column = "units given back unused", unusedColumn
	var b, said strings.Builder
	for i, p := range []panel{calls, refused, returned} {
		p.draw(&b, panelLeft+i*panelPitch, limits, curves)
	}
	for i, limit := range limits {
		x := 16 + 260*i
		fmt.Fprintf(&b, "<path class=\"curve %c\" d=\"M%d %dh24\"/>\n", 'a'+i, x, pictureHeight-20)
		fmt.Fprintf(&b, "<text class=\"small\" x=\"%d\" y=\"%d\">limit %s times the demand</text>\n", x+32, pictureHeight-16, strings.TrimSuffix(limit, "0"))
		fmt.Fprintf(&said, "With a limit of %s times the demand:", limit)
		for _, v := range curves[limit] {
			fmt.Fprintf(&said, " Hold %g ms, %.0f calls a second, %.2f %% refused early, %.1f %% unused;", v[holdColumn], v[callsColumn], 100*v[earlyColumn], 100*v[unusedColumn])
		}
		said.WriteString(" ")
	}
	text := fmt.Sprintf(plotHead, pictureWidth, pictureHeight, strings.TrimSpace(said.String())) + b.String() + "</svg>\n"
	return os.WriteFile(to, []byte(text), 0o644)
}

func (p panel) draw(b *strings.Builder, left int, limits []string, curves map[string][][]float64) {
	y := func(v float64) float64 { return panelTop + panelHeight*(1-p.scale(v)) }
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>\n", left-44, panelTop-20, p.name)
	for _, tick := range p.ticks {
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>\n", left, y(tick), panelWidth)
		label := p.format(tick)
		if power, ok := strings.CutPrefix(label, "10^"); ok {
			label = fmt.Sprintf("10<tspan dy=\"-5\" font-size=\"9\">%s</tspan>", power)
		}
		fmt.Fprintf(b, "<text class=\"small\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n", left-6, y(tick)+4, label)
	}
	fmt.Fprintf(b, "<path class=\"axis\" d=\"M%d %dv%dh%d\"/>\n", left, panelTop, panelHeight, panelWidth)
	for i, limit := range limits {
		path := ""
		for j, v := range curves[limit] {
			x := float64(left) + float64(panelWidth)*(float64(j)+0.5)/float64(len(curves[limit]))
			path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(j, 1)], x, y(v[p.column]))
			fmt.Fprintf(b, "<circle class=\"%c\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", 'a'+i, x, y(v[p.column]))
			if i == 0 {
				fmt.Fprintf(b, "<text class=\"small\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%g</text>\n", x, panelTop+panelHeight+18, v[holdColumn])
			}
		}
		fmt.Fprintf(b, "<path class=\"curve %c\" d=\"%s\"/>\n", 'a'+i, path)
	}
	fmt.Fprintf(b, "<text class=\"small\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">Hold, ms</text>\n", left+panelWidth/2, panelTop+panelHeight+36)
}

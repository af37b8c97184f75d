package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/routelimit/limit/core"
)

// The picture, in pixels. Each algorithm has a strip.
const (
	plotLeft, plotRight = 184, 664
	pictureWidth        = 800
	firstStrip          = 66
	stripPitch          = 48
	unitHeight          = 2.4
	shown               = 2_400_000 // µs
	bar                 = 20_000    // µs
)

const pictureHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc">
<title id="title">The algorithms at the edge of a window</title>
<desc id="desc">%[3]s</desc>
<style>
  svg { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif }
  text { fill: #1f2328 }
  .ground { fill: #ffffff }
  .small { font-size: 12px; fill: #59636e }
  .bold { font-weight: 600 }
  .line { stroke: #8c959f; stroke-width: 1 }
  .edge { stroke: #1f2328; stroke-width: 1; stroke-dasharray: 4 3 }
  .asked { fill: #d5dae0 }
  .taken { fill: #2f6fd6 }
  .over { fill: #d9480f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .ground { fill: #0d1117 }
    .small { fill: #9da7b1 }
    .line { stroke: #6e7781 }
    .edge { stroke: #e6edf3 }
    .asked { fill: #323a44 }
    .taken { fill: #5a9bff }
    .over { fill: #ff8a4c }
  }
</style>
<rect class="ground" width="%[1]d" height="%[2]d" rx="6"/>
`

// twoBursts sends 300 requests: one, which begins the window of a key, 149 in the last
// fifth of that window, and 150 in the first fifth of the next.
func twoBursts(_ *rand.Rand, at int64, ask func(int64) core.Decision) int64 {
	ask(at)
	for i := range int64(149) {
		ask(at + 800_000 + i*200_000/149)
	}
	for i := range int64(150) {
		ask(at + 1_000_000 + i*200_000/150)
	}
	return at + window
}

// picture draws what each algorithm does with twoBursts, as SVG.
func picture() string {
	var asked []int64
	twoBursts(nil, start, func(at int64) core.Decision {
		asked = append(asked, at)
		return core.Decision{}
	})
	rows := algorithms()
	bottom := firstStrip + stripPitch*(len(rows)+1)
	var b, said strings.Builder
	fmt.Fprintf(&said, "%d requests, most of them in two bursts right before and right after the edge of a window at 1 s, "+
		"with a limit of 100 per second. Admitted, and the most in any second:", len(asked))
	strip(&b, 0, "requests", asked, nil, nil)
	for i, a := range rows {
		m := measure(a.quota, schedule{"two bursts", twoBursts}, 0, len(asked))
		var h history
		var within, over []int64
		for _, at := range m.times {
			if h.fits(at) {
				within = append(within, at)
			} else {
				over = append(over, at)
			}
			h.add(at)
		}
		strip(&b, i+1, a.name, asked, within, over)
		class := "bold"
		if m.most > limit {
			class = "bold over"
		}
		y := firstStrip + stripPitch*(i+1)
		fmt.Fprintf(&b, "<text class=%q x=\"%d\" y=\"%d\">%d in 1 s</text>\n", class, plotRight+14, y+20, m.most)
		fmt.Fprintf(&b, "<text class=\"small\" x=\"%d\" y=\"%d\">%d admitted</text>\n", plotRight+14, y+36, m.admitted)
		fmt.Fprintf(&said, " %s %d and %d;", a.name, m.admitted, m.most)
	}
	axis(&b, bottom)
	b.WriteString("</svg>\n")
	description := strings.TrimSuffix(said.String(), ";") + "."
	return fmt.Sprintf(pictureHead, pictureWidth, bottom+74, description) + b.String()
}

// strip draws one row: the requests, and those admitted within the limit and over it.
func strip(b *strings.Builder, row int, name string, asked, within, over []int64) {
	y := firstStrip + stripPitch*row
	base := y + 40
	bars(b, "asked", asked, nil, base)
	bars(b, "taken", within, nil, base)
	bars(b, "over", over, within, base)
	fmt.Fprintf(b, "<path class=\"line\" d=\"M%d %dH%d\"/>\n", plotLeft, base, plotRight)
	fmt.Fprintf(b, "<text x=\"12\" y=\"%d\">%s</text>\n", y+30, name)
}

// bars draws the number of times in each 20 ms, as one path on top of the bars below.
func bars(b *strings.Builder, class string, times, below []int64, base int) {
	counts, under := count(times), count(below)
	path := ""
	const width = float64(plotRight-plotLeft) / (shown / bar)
	for i, n := range counts {
		if n > 0 {
			height := unitHeight * float64(n)
			path += fmt.Sprintf("M%g %.1fv%.1fh%gv%.1fz", plotLeft+float64(i)*width,
				float64(base)-unitHeight*float64(under[i]), -height, width-0.5, height)
		}
	}
	if path != "" {
		fmt.Fprintf(b, "<path class=%q d=%q/>\n", class, path)
	}
}

func count(times []int64) (counts [shown / bar]int) {
	for _, at := range times {
		if i := (at - start) / bar; i < int64(len(counts)) {
			counts[i]++
		}
	}
	return counts
}

// axis draws the head, the axis of time, the edge and the legend.
func axis(b *strings.Builder, bottom int) {
	x := func(at int64) int64 { return plotLeft + at*(plotRight-plotLeft)/shown }
	fmt.Fprintf(b, "<text class=\"bold\" x=\"12\" y=\"24\">300 requests around the edge of a window, limit 100 per 1 s</text>\n")
	fmt.Fprintf(b, "<text class=\"small\" x=\"%d\" y=\"50\" text-anchor=\"middle\">edge</text>\n", x(window))
	fmt.Fprintf(b, "<text class=\"small\" x=\"%d\" y=\"50\">most in any 1 s</text>\n", plotRight+14)
	fmt.Fprintf(b, "<path class=\"edge\" d=\"M%d 56V%d\"/>\n", x(window), bottom)
	for at := int64(0); at <= shown; at += 200_000 {
		fmt.Fprintf(b, "<path class=\"line\" d=\"M%d %dv4\"/>\n", x(at), bottom)
		if at%400_000 == 0 || at == window {
			fmt.Fprintf(b, "<text class=\"small\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%g s</text>\n", x(at), bottom+18, float64(at)/second)
		}
	}
	fmt.Fprintf(b, "<path class=\"line\" d=\"M%d %dH%d\"/>\n", plotLeft, bottom, plotRight)
	at := plotLeft
	for _, item := range []struct {
		class, text string
		width       int
	}{
		{"asked", "asked for, per 20 ms", 160},
		{"taken", "admitted (of the queue: its slot)", 230},
		{"over", "admitted over the limit", 0},
	} {
		fmt.Fprintf(b, "<rect class=%q x=\"%d\" y=\"%d\" width=\"12\" height=\"12\"/>\n", item.class, at, bottom+42)
		fmt.Fprintf(b, "<text class=\"small\" x=\"%d\" y=\"%d\">%s</text>\n", at+18, bottom+52, item.text)
		at += item.width
	}
}

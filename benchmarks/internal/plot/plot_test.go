package plot

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// TestSVG checks that a page is well-formed, whatever the names are, and that its
// points lie within the charts.
func TestSVG(t *testing.T) {
	page := Page{Title: `a <b> & "c"`, Charts: []Chart{
		{Title: "flat", X: "keys", Y: "ns", Lines: []Line{{"one", []Point{{1, 100}, {1e6, 100}}}, {"<two>", []Point{{1, 150}}}}},
		{Title: "steep", X: "limit", Y: "bytes", Lines: []Line{{"one", []Point{{5, 1}, {100_000, 2.5e6}}}}},
		{Title: "part", X: "hold", Y: "%", Linear: true, Lines: []Line{{"one", []Point{{1, 0}, {10, 1.5}}}}},
		{Title: "alone", X: "x", Y: "y", Lines: []Line{{"one", []Point{{1, 1}}}}},
	}}
	text := page.SVG()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err, text)
		}
	}
	for _, want := range []string{"flat (ns, by keys): one 1: 100, 1M: 100; &lt;two&gt; 1: 150", `cx="64.0" cy="234.0"`, `cx="404.0"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("a point without a place")
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0123: "0.0123", 28: "28", 45.54: "45.5", 1423: "1420", 402_000: "402000"} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) is %s, want %s", v, got, want)
		}
	}
}

package histogram

import (
	"math"
	"testing"
)

func TestHistogram(t *testing.T) {
	var h, odd Histogram
	for v := range int64(100_000) {
		if v%2 == 0 {
			h.Add(v)
		} else {
			odd.Add(v)
		}
	}
	h.Merge(&odd)
	for _, q := range []float64{0, 0.001, 0.01, 0.5, 0.99, 0.999, 1} {
		want := q * 100_000
		if got := h.Quantile(q); math.Abs(got-want) > 1+want/64 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if n := h.Count(); n != 100_000 {
		t.Errorf("%v are counted", n)
	}
}

func TestBars(t *testing.T) {
	last := -1
	for v := range int64(100_000) {
		if at := barOf(v); at != last && at != last+1 {
			t.Fatalf("%d is in bar %d, after bar %d", v, at, last)
		} else {
			last = at
		}
	}
	if at := barOf(math.MaxInt64); at >= 58<<fine {
		t.Errorf("the largest number is in bar %d", at)
	}
}

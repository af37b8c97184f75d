package histogram

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var h Histogram
	for v := range time.Duration(100_000) {
		h.Add(v)
		if low := lowest(bucket(uint64(v))); low > v || float64(v-low) > float64(v)/32 {
			t.Fatalf("%d is in the bucket of %d", v, low)
		}
	}
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999} {
		want := q * 100_000
		if got := float64(h.Quantile(q)); got > want || got < want*0.968 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
}

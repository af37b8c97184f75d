// Package histogram counts durations for quantiles.
package histogram

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in log-linear buckets: 32 to each power of two
// of nanoseconds, so that a quantile is at most 3 % too low.
type Histogram struct {
	buckets [64 * 32]int64
	count   int64
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.buckets[bucket(uint64(d))]++
	h.count++
}

// bucket returns the number of the bucket of v: v itself below 32, and above
// the power of two followed by the five bits that come after the highest.
func bucket(v uint64) int {
	if v < 32 {
		return int(v)
	}
	shift := bits.Len64(v) - 6
	return shift<<5 + int(v>>shift)
}

// lowest returns the smallest value in bucket i.
func lowest(i int) time.Duration {
	if i < 64 {
		return time.Duration(i)
	}
	shift := i>>5 - 1
	return time.Duration(i-shift<<5) << shift
}

// Merge adds what another histogram has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
}

// Quantile returns the duration below which a part q of all durations are. 1 is the
// longest.
func (h *Histogram) Quantile(q float64) time.Duration {
	left := min(int64(q*float64(h.count)), h.count-1)
	for i, n := range h.buckets {
		if left < n {
			return lowest(i)
		}
		left -= n
	}
	return 0
}

// Count returns how many durations were added.
func (h *Histogram) Count() int64 { return h.count }

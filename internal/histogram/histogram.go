// Package histogram counts numbers for quantiles.
package histogram

import (
	"math/bits"
	"slices"
)

// A Histogram counts numbers of 0 or more, such as durations, exactly below 128 and otherwise to
// within 1/64. The zero Histogram is empty. It takes 16 bytes for each power of two and 1/64 of it,
// up to the largest number.
type Histogram struct{ bars []bar }

// A bar has the numbers of one bucket.
type bar struct {
	count int64
	sum   float64
}

const fine = 6 // bits that tell numbers apart

// barOf returns the index of a number: itself below 128, else the power of two and the six bits
// behind the highest.
func barOf(v int64) int {
	if v < 2<<fine {
		return int(max(v, 0))
	}
	shift := bits.Len64(uint64(v)) - fine - 1
	return shift<<fine + int(v>>shift)
}

// Add counts a number.
func (h *Histogram) Add(v int64) {
	at := barOf(v)
	h.grow(at + 1)
	h.bars[at].count++
	h.bars[at].sum += float64(v)
}

func (h *Histogram) grow(length int) {
	if more := length - len(h.bars); more > 0 {
		h.bars = slices.Grow(h.bars, more)[:length]
	}
}

// Merge adds what another histogram has counted.
func (h *Histogram) Merge(other *Histogram) {
	h.grow(len(other.bars))
	for i, b := range other.bars {
		h.bars[i].count += b.count
		h.bars[i].sum += b.sum
	}
}

// Count returns how many numbers were added.
func (h *Histogram) Count() (count int64) {
	for _, b := range h.bars {
		count += b.count
	}
	return count
}

// Quantile returns a number that a part q of all numbers do not exceed: 1 is for the
// largest. It is 0 if the histogram is empty.
func (h *Histogram) Quantile(q float64) (number float64) {
	wanted, seen := q*float64(h.Count()), int64(0)
	for _, b := range h.bars {
		if b.count == 0 {
			continue
		}
		seen, number = seen+b.count, b.sum/float64(b.count)
		if float64(seen) >= wanted {
			break
		}
	}
	return number
}

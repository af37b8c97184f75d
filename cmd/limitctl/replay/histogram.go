package replay

import (
	"maps"
	"math/bits"
	"slices"
)

// A histogram counts numbers of 0 or more, exactly below 128 and otherwise to within
// 1/64 of the number.
type histogram struct{ bars map[uint32]*bar }

type bar struct{ n, sum float64 }

const fine = 6 // bits that tell numbers apart

func barOf(v int64) uint32 {
	if v < 2<<fine {
		return uint32(v)
	}
	shift := bits.Len64(uint64(v)) - fine - 1
	return uint32(shift)<<(fine+1) + uint32(v>>shift)
}

func (h *histogram) add(v int64, weight float64) {
	if h.bars == nil {
		h.bars = make(map[uint32]*bar)
	}
	at := barOf(v)
	b := h.bars[at]
	if b == nil {
		b = new(bar)
		h.bars[at] = b
	}
	b.n += weight
	b.sum += weight * float64(v)
}

// above returns the sum of what each number has above a limit.
func (h *histogram) above(limit int64) (sum float64) {
	for _, b := range h.bars {
		sum += max(0, b.sum-b.n*float64(limit))
	}
	return sum
}

// quantile returns a number that at least a part q of all numbers do not exceed.
func (h *histogram) quantile(q float64) float64 {
	total := 0.0
	for _, b := range h.bars {
		total += b.n
	}
	seen, last := 0.0, 0.0
	for _, at := range slices.Sorted(maps.Keys(h.bars)) {
		b := h.bars[at]
		seen, last = seen+b.n, b.sum/b.n
		if seen >= q*total {
			break
		}
	}
	return last
}

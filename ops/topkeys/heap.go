package topkeys

// A heap finds the entry with the lowest count. An increment does not touch the heap: its
// counts are those of some time ago, which are never too high, since counts only grow. So
// the first entry has the lowest count as soon as its own is up to date.
type heap struct {
	counts []float64
	at     []int32 // the entries
}

func (h *heap) len() int { return len(h.at) }

func (h *heap) push(count float64, entry int32) {
	h.counts, h.at = append(h.counts, count), append(h.at, entry)
	for i := len(h.at) - 1; i > 0; {
		parent := (i - 1) / 2
		if h.counts[parent] <= h.counts[i] {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

// lowest returns the entry with the lowest count, which is then the first.
func (h *heap) lowest(entries []entry, order Order) int32 {
	for {
		first := h.at[0]
		count := entries[first].count[order]
		if count <= h.counts[0] {
			return first
		}
		h.replaceLowest(count, first)
	}
}

// replaceLowest puts an entry in the place of the first, and then where it belongs.
func (h *heap) replaceLowest(count float64, entry int32) {
	h.counts[0], h.at[0] = count, entry
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h.at) {
			return
		}
		if child+1 < len(h.at) && h.counts[child+1] < h.counts[child] {
			child++
		}
		if h.counts[i] <= h.counts[child] {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *heap) swap(i, j int) {
	h.counts[i], h.counts[j] = h.counts[j], h.counts[i]
	h.at[i], h.at[j] = h.at[j], h.at[i]
}

func (h *heap) scale(factor float64) {
	for i := range h.counts {
		h.counts[i] *= factor
	}
}

package topkeys

// A heap finds the entry with the lowest count. An increment does not touch the heap: its
// counts are those of some time ago, which are never too high, since counts only grow. So
// the first entry has the lowest count as soon as its own is up to date.
type heap []slot

type slot struct {
	count float64
	entry *entry
}

// push adds a slot.
func (h *heap) push(s slot) {
	*h = append(*h, s)
	list, at := *h, len(*h)-1
	for parent := (at - 1) / 2; at > 0 && s.count < list[parent].count; parent = (at - 1) / 2 {
		list[at] = list[parent]
		at = parent
	}
	list[at] = s
}

// lowest returns the entry with the lowest count, which is then the first.
func (h heap) lowest(order Order) *entry {
	for {
		first := h[0]
		count := first.entry.count[order]
		if count <= first.count {
			return first.entry
		}
		h.replaceLowest(slot{count, first.entry})
	}
}

// replaceLowest puts a slot in the place of the first, and then where it belongs. Package
// container/heap would call a function for each comparison.
func (h heap) replaceLowest(s slot) {
	at := 0
	for child := 1; child < len(h); child = 2*at + 1 {
		if child+1 < len(h) && h[child+1].count < h[child].count {
			child++
		}
		if s.count <= h[child].count {
			break
		}
		h[at] = h[child]
		at = child
	}
	h[at] = s
}

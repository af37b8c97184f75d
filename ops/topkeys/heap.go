package topkeys

import containers "container/heap"

// A heap finds the entry with the lowest count. An increment does not touch the heap: its
// counts are those of some time ago, which are never too high, since counts only grow. So
// the first entry has the lowest count as soon as its own is up to date.
type heap []slot

type slot struct {
	count float64
	entry *entry
}

// The methods are those of container/heap; nothing is removed.
func (h heap) Len() int           { return len(h) }
func (h heap) Less(i, j int) bool { return h[i].count < h[j].count }
func (h heap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heap) Push(s any)        { *h = append(*h, s.(slot)) }
func (h *heap) Pop() any          { panic("topkeys: a slot is never removed") }

// lowest returns the entry with the lowest count, which is then the first.
func (h *heap) lowest(order Order) *entry {
	for {
		first := (*h)[0]
		count := first.entry.count[order]
		if count <= first.count {
			return first.entry
		}
		h.replaceLowest(count, first.entry)
	}
}

// replaceLowest puts an entry in the place of the first, and then where it belongs.
func (h *heap) replaceLowest(count float64, entry *entry) {
	(*h)[0] = slot{count, entry}
	containers.Fix(h, 0)
}

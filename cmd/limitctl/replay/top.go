package replay

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// A top counts the keys that occur most often, in bounded memory. A count is never too low,
// and too high by at most its error: a key that was forgotten, since it had occurred less
// often than others, starts again from the highest count that was forgotten.
type top struct {
	size   int // keys that stay when others are forgotten
	counts map[string]*KeyCount
	floor  int64 // the highest count that was forgotten
}

func newTop(listed int) *top {
	return &top{size: max(1000, 10*listed), counts: make(map[string]*KeyCount)}
}

func (t *top) add(key string) {
	c := t.counts[key]
	if c == nil {
		if len(t.counts) >= 2*t.size {
			t.forget()
		}
		c = &KeyCount{Key: key, Refused: t.floor, Error: t.floor}
		t.counts[key] = c
	}
	c.Refused++
}

func (t *top) forget() {
	for i, c := range t.list(len(t.counts)) {
		if i >= t.size {
			t.floor = max(t.floor, c.Refused)
			delete(t.counts, c.Key)
		}
	}
}

// list returns at most n keys, the most frequent one first.
func (t *top) list(n int) (list []KeyCount) {
	for c := range maps.Values(t.counts) {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), strings.Compare(a.Key, b.Key))
	})
	return list[:min(n, len(list))]
}

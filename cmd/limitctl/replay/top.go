package replay

import (
	"cmp"
	"slices"
)

// A top counts the keys that occur most often, in bounded memory: the space-saving
// algorithm of Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and
// top-k elements in data streams" (2005). A key's count is never too low, and too high by
// at most its error.
type top[K comparable] struct {
	size  int
	index map[K]int // in heap
	heap  []counted[K]
}

type counted[K comparable] struct {
	key        K
	count, err int64
}

func newTop[K comparable](size int) *top[K] {
	return &top[K]{size: size, index: make(map[K]int)}
}

func (t *top[K]) add(key K) {
	at, known := t.index[key]
	switch {
	case known:
		t.heap[at].count++
	case len(t.heap) < t.size:
		at = len(t.heap)
		t.heap = append(t.heap, counted[K]{key: key, count: 1})
		t.index[key] = at
		t.rise(at)
		return
	default: // the key that occurred least often makes room
		at = 0
		least := &t.heap[0]
		delete(t.index, least.key)
		least.key, least.err = key, least.count
		least.count++
		t.index[key] = 0
	}
	t.sink(at)
}

func (t *top[K]) swap(a, b int) {
	t.heap[a], t.heap[b] = t.heap[b], t.heap[a]
	t.index[t.heap[a].key], t.index[t.heap[b].key] = a, b
}

func (t *top[K]) rise(at int) {
	for at > 0 && t.heap[at].count < t.heap[(at-1)/2].count {
		t.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
}

func (t *top[K]) sink(at int) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(t.heap); child++ {
			if t.heap[child].count < t.heap[least].count {
				least = child
			}
		}
		if least == at {
			return
		}
		t.swap(at, least)
		at = least
	}
}

// list returns at most n keys, the most frequent one first.
func (t *top[K]) list(n int, less func(a, b K) int) []counted[K] {
	all := slices.Clone(t.heap)
	slices.SortFunc(all, func(a, b counted[K]) int { return cmp.Or(cmp.Compare(b.count, a.count), less(a.key, b.key)) })
	return all[:min(n, len(all))]
}

package topkeys

import (
	containers "container/heap"
	"strings"
	"sync"
	"time"

	"github.com/routelimit/limit"
)

// A rule has the keys of one rule that count most.
type rule struct {
	policy, name string
	most         int // keys of each order
	clock        func() time.Time

	mu      sync.Mutex
	aging   aging
	ahead   int64 // microseconds: the clock of this process before that of the decisions
	entries map[string]*entry
	free    []*entry // to be used again
	heaps   [2]heap  // by Order
}

// An entry is a key that is in at least one heap.
type entry struct {
	key                        string
	in                         [2]bool    // the heaps, by Order
	count, err                 [2]float64 // upper bounds, and how much they may be too high
	requests                   float64    // since the key has an entry
	last, reset, until         int64      // microseconds: the last decision, when the quota is full again, and when there is room; 0 if there was
	limit, remaining, capacity int64
}

// observe counts a request. If the store was not asked, what the key has used is not known.
func (r *rule) observe(o *limit.RuleDecision, at time.Time, asked bool) {
	used := 0.0
	if asked {
		used = usedPart(o.Remaining, o.Capacity)
	}
	refused := !o.Allowed && !o.Shadow && !o.Marked
	last := at.UnixMicro()

	r.mu.Lock()
	if now := last / 1e6; now != r.aging.now {
		r.advance(now)
		if now == r.aging.now {
			r.ahead = r.clock().UnixMicro() - last
		}
	}
	weight := r.aging.weight
	e := r.entries[o.Key]
	if e == nil {
		if used == 0 && !refused {
			r.mu.Unlock()
			return
		}
		e = r.insert(o.Key)
	}
	e.requests += weight
	e.last = last
	switch {
	case asked:
		e.reset, e.until = last+o.ResetAfter.Microseconds(), 0
		if refused {
			e.until = last + o.RetryAfter.Microseconds()
		}
		e.limit, e.remaining, e.capacity = o.Limit, o.Remaining, o.Capacity
	case e.capacity == 0:
		e.limit, e.remaining, e.capacity = o.Limit, o.Capacity, o.Capacity
	}
	if used > 0 {
		r.add(ByUse, e, weight*used*used)
	}
	if refused {
		r.add(ByRefusals, e, weight)
	}
	r.mu.Unlock()
}

// givenBack notes what a key has left after a return. Its counts keep the request.
func (r *rule) givenBack(o *limit.RuleDecision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[o.Key]; e != nil {
		e.reset = e.last + o.ResetAfter.Microseconds()
		e.limit, e.remaining, e.capacity = o.Limit, o.Remaining, o.Capacity
	}
}

func usedPart(remaining, capacity int64) float64 {
	if remaining >= capacity {
		return 0
	}
	return 1 - float64(max(0, remaining))/float64(capacity)
}

func (r *rule) advance(now int64) {
	factor := r.aging.advance(now)
	if factor == 1 {
		return
	}
	for _, e := range r.entries {
		e.requests *= factor
		for order := range e.count {
			e.count[order] *= factor
			e.err[order] *= factor
		}
	}
	for _, h := range r.heaps {
		for i := range h {
			h[i].count *= factor
		}
	}
}

// insert makes an entry for a key, which is copied, since it may be a part of a long text.
func (r *rule) insert(key string) *entry {
	if len(r.free) == 0 {
		r.free = append(r.free, new(entry))
	}
	last := len(r.free) - 1
	e := r.free[last]
	r.free = r.free[:last]
	e.key = strings.Clone(key)
	r.entries[e.key] = e
	return e
}

// add adds to the count of an entry in one order. If the heap is full, the entry takes the place of
// that with the lowest count, and its count: the entry may have counted as much before.
func (r *rule) add(order Order, e *entry, weight float64) {
	h := &r.heaps[order]
	switch {
	case e.in[order]:
		e.count[order] += weight
	case len(*h) < r.most:
		e.in[order], e.count[order] = true, weight
		containers.Push(h, slot{weight, e})
	default:
		lowest := h.lowest(order)
		lost := lowest.count[order]
		lowest.in[order], lowest.count[order], lowest.err[order] = false, 0, 0
		if lowest.in == [2]bool{} {
			delete(r.entries, lowest.key)
			*lowest = entry{}
			r.free = append(r.free, lowest)
		}
		e.in[order], e.count[order], e.err[order] = true, lost+weight, lost
		h.replaceLowest(lost+weight, e)
	}
}

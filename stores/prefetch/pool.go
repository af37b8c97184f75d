package prefetch

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/routelimit/limit/core"
)

const (
	maxInFlight = 16        // calls for chunks of a key at the same time
	maxWaits    = 4         // for chunks, of one request
	maxOld      = 64        // chunks that are remembered in case that units of them come back
	pause       = 1_000_000 // µs without prefetching after a call that failed
)

// A pool has the permits of one key.
type pool struct {
	store  *Store
	rule   *rule
	plan   *plan
	charge core.Charge // of a chunk, without its cost

	mu       sync.Mutex
	live     []*chunk      // with permits, oldest first
	old      []*chunk      // without, or with permits that have ended
	permits  int64         // of the live chunks
	ends     int64         // no live chunk ends earlier
	inFlight int64         // calls for chunks
	size     int64         // of the next chunk
	arrived  chan struct{} // closed when a call for a chunk has ended
	resets   int64
	blocked  int64 // until then, the store is asked for each request
	refusal  refusal

	// Demand: the units that were asked for in the last two periods.
	began      int64
	asked, was int64
	idle       int // checks without a request
}

// A chunk is units that one call has taken.
type chunk struct {
	free, given int64 // units
	until       int64 // when free ones are given back
	resets      int64 // of the pool, before
	outcome     core.Outcome
	taken       core.Return
}

// A refusal is that of a chunk.
type refusal struct {
	until    int64 // when the next chunk is asked for
	units    int64 // of the chunk
	answered int64
	first    core.Decision
}

func (r *refusal) decision(now int64) core.Decision {
	d := r.first.Later(now - r.answered)
	o := &d.Outcomes()[0]
	o.RetryAfter = max(o.RetryAfter, r.until-now)
	return d
}

// Permits are what a request was handed from a chunk, if that is not nil.
type permits struct {
	chunk *chunk
	left  int64 // permits of the pool, after that
}

func (h *permits) ok() bool { return h.chunk != nil }

func (h *permits) outcome() core.Outcome {
	o := h.chunk.outcome
	o.Remaining += h.left
	return o
}

func newPool(s *Store, r *rule, plan *plan, c *core.Charge) *pool {
	return &pool{store: s, rule: r, plan: plan, size: 1, ends: math.MaxInt64, arrived: make(chan struct{}), began: s.now(),
		charge: core.Charge{Policy: c.Policy, Rule: c.Rule, Key: strings.Clone(c.Key), Quota: plan.charged, OnError: c.OnError}}
}

// period is the time that a chunk should last.
func (p *pool) period() int64 { return p.plan.hold / 2 }

// count notes the demand for units, and returns what a period needs.
func (p *pool) count(now, units int64) (want int64) {
	switch since := now - p.began; {
	case since >= 2*p.period():
		p.was, p.asked, p.began = 0, 0, now
	case since >= p.period():
		p.was, p.asked, p.began = p.asked, 0, now
	}
	p.asked += units
	return max(p.was, p.asked)
}

// take returns permits, or none if the store must be asked for the request. It waits for a call
// that is under way, since that was made for such requests. If the key has nothing left, and the
// request is alone with it, take refuses it: then d is not nil.
func (p *pool) take(ctx context.Context, cost int64, alone bool) (got permits, d *core.Decision) {
	if cost > p.store.chunk {
		return got, nil
	}
	counts := cost
	for range maxWaits {
		now := p.store.now()
		p.mu.Lock()
		p.idle = 0
		want := p.count(now, counts)
		counts = 0
		got = p.hand(now, cost)
		hot := want >= 2*cost && now >= p.blocked && !p.store.closed.Load()
		dry := now < p.refusal.until && cost <= p.refusal.units
		if !got.ok() && dry && hot && alone {
			refused := p.refusal.decision(now)
			d = &refused
		}
		if hot && now >= p.refusal.until && p.short(want) {
			p.inFlight++
			size := max(cost, p.size)
			p.store.pending.Go(func() { p.refill(size) })
		}
		arrived, wait := p.arrived, hot && !dry && p.inFlight > 0
		p.mu.Unlock()
		if got.ok() || d != nil || !wait {
			return got, d
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return got, nil
		}
	}
	return got, nil
}

// short reports whether a further chunk is needed. Only chunks of full size are taken side by side.
func (p *pool) short(want int64) bool {
	p.size = max(1, min(p.size, want, p.store.chunk))
	most := int64(1)
	if p.size == p.store.chunk {
		most = maxInFlight
	}
	return p.inFlight < most && p.permits+p.inFlight*p.size <= want/2
}

// hand hands out permits of the oldest chunk that has enough. The caller holds the lock.
func (p *pool) hand(now, cost int64) (got permits) {
	p.expire(now)
	for i, c := range p.live {
		if c.free < cost {
			continue
		}
		c.free -= cost
		c.given += cost
		p.permits -= cost
		if c.free == 0 {
			p.retire(i)
		}
		return permits{c, p.permits}
	}
	return got
}

// expire retires the chunks that have ended.
func (p *pool) expire(now int64) {
	if now < p.ends {
		return
	}
	p.ends = math.MaxInt64
	for i := len(p.live) - 1; i >= 0; i-- {
		if c := p.live[i]; now >= c.until {
			p.retire(i)
		} else {
			p.ends = min(p.ends, c.until)
		}
	}
}

func (p *pool) add(c *chunk) {
	p.live = append(p.live, c)
	p.ends = min(p.ends, c.until)
}

// retire makes a live chunk an old one.
func (p *pool) retire(i int) {
	c := p.live[i]
	p.live = slices.Delete(p.live, i, i+1)
	p.permits -= c.free
	if len(p.old) >= maxOld {
		if i := slices.IndexFunc(p.old, func(c *chunk) bool { return c.free == 0 }); i >= 0 {
			p.old = slices.Delete(p.old, i, i+1)
		}
	}
	p.old = append(p.old, c)
}

// put takes permits back that were not used.
func (p *pool) put(c *chunk, units int64) {
	now := p.store.now()
	p.mu.Lock()
	back := p.putBack(c, units, now)
	p.mu.Unlock()
	_ = p.giveBack(context.Background(), back) // otherwise the units expire
}

// putBack makes units permits again, and returns those that the store must take
// back instead. The caller holds the lock.
func (p *pool) putBack(c *chunk, units, now int64) (back []core.Return) {
	switch {
	case c.resets != p.resets:
		return nil // the units no longer count
	case now >= c.until || p.store.closed.Load():
		r := c.taken
		r.Cost = units
		c.given -= units
		return []core.Return{r}
	}
	c.given -= units
	c.free += units
	p.permits += units
	if !slices.Contains(p.live, c) {
		if i := slices.Index(p.old, c); i >= 0 {
			p.old = slices.Delete(p.old, i, i+1)
		}
		p.add(c)
	}
	return nil
}

// restore makes returned units permits again, and returns the outcome of the key after
// that. It returns false if it cannot, and prepares r for the store.
func (p *pool) restore(r *core.Return) (core.Outcome, bool) {
	now := p.store.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal.until = 0 // there may be room again
	c := p.find(r.At, r.Cost)
	if c == nil {
		return core.Outcome{}, false
	}
	if back := p.putBack(c, r.Cost, now); back != nil {
		*r = back[0]
		return core.Outcome{}, false
	}
	h := permits{c, p.permits}
	return h.outcome(), true
}

// find returns the chunk that was taken at a time and has given as many units.
func (p *pool) find(at, units int64) *chunk {
	for _, c := range slices.Concat(p.live, p.old) {
		if c.taken.At == at && c.given >= units {
			return c
		}
	}
	return nil
}

// addFree adds the permits to what the store has left.
func (p *pool) addFree(o *core.Outcome) {
	now := p.store.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	o.Back(p.permits, p.plan.charged.Capacity())
}

// takeAll takes all permits out of the pool, to be given back.
func (p *pool) takeAll() []core.Return {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.live) > 0 {
		p.retire(0)
	}
	return p.takeEnded()
}

// takeEnded takes the permits of old chunks. The caller holds the lock.
func (p *pool) takeEnded() (back []core.Return) {
	for _, c := range p.old {
		if c.free > 0 {
			r := c.taken
			r.Cost, c.free = c.free, 0
			back = append(back, r)
		}
	}
	return back
}

func (p *pool) giveBack(ctx context.Context, back []core.Return) (failed error) {
	for part := range slices.Chunk(back, core.MaxCharges) {
		if _, err := p.store.store.Return(ctx, part); err != nil {
			failed = err
		}
	}
	return failed
}

// drop forgets all permits, and those of calls that are under way.
func (p *pool) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resets++
	p.refusal.until = 0
	p.live, p.old, p.permits = nil, nil, 0
}

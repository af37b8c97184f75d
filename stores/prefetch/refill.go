package prefetch

import (
	"context"
	"time"

	"github.com/routelimit/limit/core"
)

// refill takes a chunk. If the store refuses it, refill tries half of what is left,
// so that other instances get some too.
func (p *pool) refill(size int64) {
	ctx := context.Background() // of no single request; the store bounds its calls
	charges := []core.Charge{p.charge}
	asks := []core.Ask{{Charges: charges}}
	d := &asks[0].Decision
	var short refusal
	for {
		charges[0].Cost = size
		p.mu.Lock()
		resets := p.resets
		p.mu.Unlock()
		sent := p.store.now()
		err := p.store.store.Take(ctx, asks)
		decided := err == nil && (d.Mode == core.ModeExact || d.Mode == core.ModeRemembered)
		switch o := d.Outcomes(); {
		case !decided:
			p.arrive(nil, func() { p.blocked = p.store.now() + pause })
			if err == nil && d.Allowed {
				// By a guard, or on an overflow quota: it decides each request.
				_ = core.Undo(ctx, p.store.store, charges, d)
			}
			return
		case d.Allowed:
			c := &chunk{free: size, until: sent + p.plan.lasts(d.TimeOf(0), o[0]), resets: resets, outcome: o[0], taken: d.Return(0, charges[0])}
			if !p.arrive(c, func() { p.size, p.refusal = 2*size, short }) {
				_ = p.giveBack(ctx, []core.Return{c.taken})
			}
			return
		default:
			if short.units == 0 {
				short = p.shortage(size, sent, d)
			}
			if o[0].Remaining == 0 || size == 1 {
				p.arrive(nil, func() { p.refusal = short })
				return
			}
			size = max(1, min(o[0].Remaining, size-1)/2)
		}
	}
}

// shortage returns the refusal of requests beyond the permits, after that of a chunk.
// It lasts for half a period. If each request asked for a unit instead, a rule that is
// over its limit would cost as many calls as without chunks.
func (p *pool) shortage(units, sent int64, d *core.Decision) refusal {
	first := *d
	first.Mode, first.Outcomes()[0].Remaining = core.ModeRemembered, 0 // it is taken by smaller chunks
	return refusal{until: sent + p.period()/2, units: units, answered: p.store.now(), first: first}
}

// arrive ends a call for a chunk, adds the chunk if there is one, and wakes those
// that wait. It returns false if the permits must be given back.
func (p *pool) arrive(c *chunk, then func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	then()
	close(p.arrived)
	p.arrived = make(chan struct{})
	switch {
	case c == nil || c.resets != p.resets:
		return true // what was taken before a reset does not count
	case p.store.closed.Load():
		return false
	}
	p.add(c)
	p.permits += c.free
	return true
}

// keepIdle is for how many checks a pool stays without a request. It is longer than
// permits last, so that none come back to a pool that was removed.
const keepIdle = 20

// check gives back permits that have ended, and removes a pool that is idle.
func (p *pool) check() {
	now := p.store.now()
	p.mu.Lock()
	if p.store.closed.Load() {
		p.mu.Unlock()
		return
	}
	p.store.pending.Add(1)
	defer p.store.pending.Done()
	p.expire(now)
	back := p.takeEnded()
	p.mu.Unlock()
	_ = p.giveBack(context.Background(), back) // otherwise the units expire
	if !p.remove() {
		p.checkLater()
	}
}

func (p *pool) checkLater() { time.AfterFunc(time.Duration(p.period())*time.Microsecond, p.check) }

func (p *pool) remove() bool {
	p.rule.mu.Lock()
	defer p.rule.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle++
	if p.idle <= keepIdle || p.permits > 0 || p.inFlight > 0 {
		return false
	}
	delete(p.rule.pools, p.charge.Key)
	p.store.pools.Add(-1)
	return true
}

package guard

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/routelimit/limit/core"
)

// After a loss, each key that the memory counts is raised: the store is charged for what it lacks,
// and each instance charges its own where all is lost. See "Lost data" in docs/design/outages.md.
// Until a rule is raised, the memory must admit too, and for a moment after, since the other
// instances raise it too.

// settling is for how many µs both must admit after the last key was raised. It is longer than
// calls take, so units that leave the window meanwhile need no charge.
const settling = 250_000

// lag is how many µs the memory of a bucket may be behind, since it counts after the store.
const lag = 5_000

// Raises are the rules whose keys are to be raised since the store last lost data.
type raises struct {
	lost moment                          // when it last said so
	old  moment                          // until when what is known about keys is of an earlier loss
	last moment                          // when a key was raised, or the loss
	done atomic.Pointer[map[scale]int64] // the largest capacity by which all keys were raised, or are among the debts
	next []core.Charge                   // one of each other scale, as they are met; debts.mu
}

// A scale is how a rule, or a variant of it, counts, whatever its limit is. Callers have limits
// of their own, and a key is raised to what the largest of them counts: a quota counts no more
// than its capacity. What a bucket or a queue counts depends on its limit too.
type scale struct {
	policy, rule, variant string
	quota                 core.Quota
}

func scaleOf(c *core.Charge) scale {
	q := c.Quota
	if !q.Refills() {
		q.Limit = 0
	}
	return scale{c.Policy, c.Rule, c.Variant, q}
}

// A scaled key is raised by a scale.
type scaled struct {
	scale
	key string
}

// covers reports whether raising a key by the quota of a also raises it by that of b.
func covers(a, b *core.Charge) bool {
	return scaleOf(a) == scaleOf(b) && a.Quota.Capacity() >= b.Quota.Capacity()
}

// lose notes that the store may have lost data for the nth time, which calls may find at the
// same time. What keys owe is not paid alone then: another instance may have found that such a
// key has lost all units, and that counts for these too.
func (s *Store) lose(n, now int64) {
	r, b := &s.raises, &s.debts
	b.mu.Lock()
	defer b.mu.Unlock()
	if n <= s.doubts.known.Load() {
		return
	}
	defer s.doubts.known.Store(n) // last, since other calls see without the lock that it is known
	if last := r.last.time(); last != never {
		r.old.advance(last)
	}
	r.lost.advance(now)
	r.last.advance(now)
	r.done.Store(new(map[scale]int64))
	b.raised = make(map[scaled]int64)
	for _, d := range b.keys {
		if d.raise = nil; d.charge.Quota.Algorithm != core.Distinct {
			by := d.charge
			by.Cost = 0
			d.raiseBy(by)
		}
	}
}

// unraised reports whether the store may lack units of c that it has lost.
func (s *Store) unraised(c *core.Charge, now int64) bool {
	r := &s.raises
	if last := r.lost.time(); last == never || now-last >= c.Quota.Span()+slack && !(s.instances == 1 && c.Quota.Refills()) {
		return false // a bucket that is never full never forgets
	}
	if c.Quota.Leases() || c.Quota.Bars() || c.Quota.Algorithm == core.Distinct {
		return true // the memory cannot say which leases, strikes and values there are
	}
	if r.has(c) || !s.raiseLater(c) {
		return now-r.last.time() < settling
	}
	return true
}

// has reports whether the rule of c was raised to what its quota counts.
func (r *raises) has(c *core.Charge) bool { return (*r.done.Load())[scaleOf(c)] >= c.Quota.Capacity() }

// by returns the capacity up to which all keys of the rule of c were charged for what its quota
// counts: those of a bucket by quotas that refill no faster.
func (r *raises) by(c *core.Charge) (most int64) {
	mine := scaleOf(c)
	for other, capacity := range *r.done.Load() {
		slower := other.quota.Limit <= mine.quota.Limit
		other.quota.Limit, other.quota.Burst = mine.quota.Limit, mine.quota.Burst
		if slower && other == mine {
			most = max(most, capacity)
		}
	}
	return most
}

// raiseLater has the key of c raised before the store next decides about it, and then the
// others of its rule, unless the rule was raised meanwhile.
func (s *Store) raiseLater(c *core.Charge) bool {
	b := &s.debts
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.raises.has(c) {
		return false
	}
	b.raise(c, s.raises.by(c))
	if !slices.ContainsFunc(s.raises.next, func(of core.Charge) bool { return covers(&of, c) }) {
		s.raises.next = append(s.raises.next, core.Charge{Policy: c.Policy, Rule: c.Rule, Variant: c.Variant, Quota: c.Quota})
	}
	s.startTimer()
	return true
}

// raise notes that a key is to be raised, and reports whether there is room for that.
func (b *debts) raise(c *core.Charge, before int64) bool {
	mine := b.raised[scaled{scaleOf(c), c.Key}]
	if mine >= c.Quota.Capacity() {
		return true
	}
	before = max(before, mine)
	d := b.debt(c)
	if d != nil && (d.raising == nil || !covers(d.raising, c)) {
		if d.raising != nil && scaleOf(d.raising) == scaleOf(c) {
			before = max(before, d.raising.Quota.Capacity())
		}
		by := *c
		by.Cost = before
		d.raiseBy(by)
	}
	return d != nil
}

// raiseBy notes that a key is to be raised by the quota of a charge, from the capacity that is its
// Cost.
func (d *debt) raiseBy(by core.Charge) {
	for i := range d.raise {
		of := &d.raise[i]
		switch {
		case covers(of, &by):
			of.Cost = min(of.Cost, by.Cost)
			return
		case covers(&by, of):
			by.Cost = min(by.Cost, of.Cost)
		}
	}
	d.raise = append(slices.DeleteFunc(d.raise, func(of core.Charge) bool { return covers(&by, &of) }), by)
}

// raiseNext notes the keys of one rule, and reports whether there was one.
func (s *Store) raiseNext() bool {
	b, r := &s.debts, &s.raises
	b.mu.Lock()
	next, lost := r.next, r.lost.time()
	b.mu.Unlock()
	if len(next) == 0 {
		return false
	}
	of := next[0]
	keys := s.own.Keys(&of)
	if !of.Quota.Refills() { // callers with larger limits may come back to another instance
		of.Quota.Limit = max(of.Quota.Limit, s.mostOf(of, keys))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		c := of
		if c.Key = key; !b.raise(&c, r.by(&c)) {
			s.doubts.all.advance(s.now())
			break
		}
	}
	if r.lost.time() != lost { // again
		return true
	}
	r.next = r.next[1:] // only now: meanwhile a request would have the rule raised once more
	done, by := make(map[scale]int64), scaleOf(&of)
	maps.Copy(done, *r.done.Load())
	done[by] = max(done[by], of.Quota.Capacity())
	r.done.Store(&done)
	maps.DeleteFunc(b.raised, func(k scaled, _ int64) bool { return k.scale == by })
	return true
}

// mostOf returns the most units that the memory counts of one of the keys, whatever its limit is.
func (s *Store) mostOf(c core.Charge, keys []string) (most int64) {
	if c.Quota.Limit = core.MaxLimit; c.Quota.Algorithm == core.SlidingLog {
		c.Quota.Limit = core.MaxLog
	}
	for _, c.Key = range keys {
		if d, err := core.Take(context.Background(), s.own, []core.Charge{c}); err == nil {
			most = max(most, c.Quota.Limit-d.Outcomes()[0].Remaining)
		}
	}
	return most
}

// downTo returns after how many µs the memory counts at most n units of the key of c.
func (s *Store) downTo(c core.Charge, n int64) int64 {
	c = core.Charge{Policy: c.Policy, Rule: c.Rule, Variant: c.Variant, Key: c.Key, Quota: c.Quota, Cost: c.Quota.Capacity() - n}
	if c.Cost == 0 {
		return 0
	}
	refuses := core.Charge{Policy: c.Policy, Variant: overflowVariant, Quota: core.Quota{Limit: 1, Window: c.Quota.Window}, Cost: 2}
	d, err := core.Take(context.Background(), s.own, []core.Charge{c, refuses})
	if err != nil {
		return 0
	}
	return d.Outcomes()[0].RetryAfter
}

// countsAfter returns how many units of c the memory will count after some time.
func (s *Store) countsAfter(c core.Charge, after int64) int64 {
	least, most := int64(0), c.Quota.Capacity()
	for least < most { // sort.Search counts in int, which may have 32 bits
		if middle := least + (most-least)/2; s.downTo(c, middle) <= after {
			most = middle
		} else {
			least = middle + 1
		}
	}
	return least
}

// A finder is a store that knows of keys when they have lost all units: see
// [redisstore.Store.Lost].
type finder interface {
	Lost(ctx context.Context, charges []core.Charge, empty int64) ([]int64, error)
}

// findLost asks the store which keys to raise have lost all units, or were reset.
func (a *attempt) findLost(list []payment) error {
	store, ok := a.guard.store.(finder)
	var charges []core.Charge
	var of []*payment
	for i := range list {
		if p := &list[i]; p.raise && !p.of.unsure {
			charges, of = append(charges, p.charge), append(of, p)
		}
	}
	if !ok || len(of) == 0 {
		return nil
	}
	ages, err := store.Lost(a.ctx, charges, 0)
	a.ended(err)
	for i := range ages {
		if of[i].reset = ages[i] < -1; a.guard.instances > 1 && a.now-ages[i] > a.guard.raises.old.time() {
			of[i].lost = ages[i] // one instance compares what it counts
		}
	}
	return err
}

// dated reports whether the memory knows the age of the units of a quota.
func dated(q *core.Quota) bool {
	return q.Algorithm == core.SlidingLog || q.Algorithm == core.SlidingCells
}

// lacks returns what is to be charged, debts included, if a look found that in the store: nil
// if that is the debts alone.
func (s *Store) lacks(p *payment, found core.Outcome, now int64) (cells []cell) {
	c, q := p.charge, &p.charge.Quota
	counts := q.Capacity() - found.Remaining
	n := p.counts - counts
	if p.lost >= 0 && !dated(q) && !q.Queues() { // this process has taken nothing since: it raises the key first
		if n = p.counts - min(p.counts, p.before); n == 0 {
			return []cell{}
		}
		return []cell{{at: now, units: n}}
	}
	if p.lost >= 0 && dated(q) { // what is younger than that is in the store, or a debt
		younger := q.Window - p.lost
		if q.Cells > 0 {
			younger += core.CeilDiv(q.Window, q.Cells)
		}
		left := s.countsAfter(c, max(settling, younger))
		if p.counts <= p.before || q.Algorithm != core.SlidingLog { // a log has kept no more than the lower limit
			left = max(left, min(p.counts, p.before))
		}
		cells = s.oldest(c, p.counts, left, now)
		for _, owed := range p.cells {
			if owed.at > now-p.lost {
				cells = append(cells, owed)
			}
		}
		return cells
	}
	switch {
	case q.Refills() && s.instances > 1:
		return nil // what several take comes back faster than the share of one, which the memory counts
	case q.Refills():
		var rest int64
		n, rest = core.MulDiv(max(0, s.downTo(c, 0)-lag-found.ResetAfter), q.Limit, q.Window)
		n += min(rest, 1)
	}
	older := len(p.cells) > 0 && p.cells[0].at <= s.raises.lost.time() // than the loss
	if p.again = older && !dated(q); p.again || p.reset && q.Algorithm != core.SlidingLog {
		return nil // of a reset key it is not known which units are older
	}
	var owed int64
	for i := range p.cells {
		owed += p.cells[i].counts(&p.owes, now)
	}
	switch {
	case n <= owed:
		return nil
	case dated(q) || q.Algorithm == core.FixedWindow && !q.Aligned && q.Calendar.Unit == 0:
		return s.oldest(c, p.counts-counts, 0, now)
	case q.Algorithm == core.SlidingCounter && counts > 0:
		n++ // parts of a unit
	}
	return []cell{{at: now, units: n}}
}

// oldest returns the units that the memory counts of c until it counts n, without those until
// it counts less than left.
func (s *Store) oldest(c core.Charge, n, left, now int64) (cells []cell) {
	for i := range int64(maxCells) {
		from, to := left+(n-left)*(maxCells-i)/maxCells, left+(n-left)*(maxCells-i-1)/maxCells
		if from > to {
			cells = append(cells, cell{at: min(now, now+s.downTo(c, to)-c.Quota.Window), units: from - to})
		}
	}
	return cells
}

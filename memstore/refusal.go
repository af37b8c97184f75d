package memstore

import "github.com/routelimit/limit/core"

// A refusal of keys whose state does not change is the same until one of them
// refills, but for the times in it, which are that much shorter. So a refusal
// publishes the outcomes of its keys, and the next ones are made of them without a
// lock. Under its lock, a decision withdraws the outcomes of its keys before it
// changes them. So the decision is the one that would be made under the locks.
//
// Outcomes are published by the second refusal between two admissions of a key:
// where refusals and admissions alternate, they would not be read.

// A refusal is the outcome of one unit of a key. It does not change.
type refusal struct {
	quota   core.Quota
	outcome core.Outcome
	at      int64 // when it was decided
	until   int64 // from then on it may be another one
}

// withdraw drops the outcome that e has published.
func (e *entry) withdraw() {
	if r := e.rare.Load(); r != nil && r.refusal.Load() != nil {
		r.refusal.Store(nil)
	}
}

// published returns the outcome that e has published, or nil.
func (e *entry) published() *refusal {
	if r := e.rare.Load(); r != nil {
		return r.refusal.Load()
	}
	return nil
}

// publish publishes the outcomes of a refusal, if other refusals can be made of them.
func publish(d *core.Decision, charges []core.Charge, keys []target) {
	if len(keys) > fewCharges {
		return
	}
	for i, o := range d.Outcomes() {
		c := &charges[i]
		// A bucket with Missing tokens is new again some time after it is full.
		if c.Cost != 1 || c.Quota.Missing > 0 || stays(o) < worthwhile {
			return
		}
	}
	for i, o := range d.Outcomes() {
		r := keys[i].entry.needRare()
		if !r.refused {
			r.refused = true
			continue
		}
		r.refusal.Store(&refusal{quota: charges[i].Quota, outcome: o, at: d.At, until: d.At + stays(o)})
	}
}

// worthwhile is how long an outcome must stay to be published, in µs.
const worthwhile = 10

// stays returns how long an outcome stays the same if nothing is taken.
func stays(o core.Outcome) int64 {
	switch {
	case !o.Fits():
		return o.RetryAfter
	case o.MoreAfter > 0:
		return o.MoreAfter
	}
	return core.MaxWindow // the quota is full
}

// holds reports whether r is the outcome of a charge at a time. Then the charge is
// valid, too.
func (r *refusal) holds(now int64, c *core.Charge) bool {
	return r.at <= now && now < r.until && c.Cost == 1 && r.quota == c.Quota &&
		(c.Lease != 0 || c.Quota.Algorithm != core.Concurrency)
}

// outcomeAt returns the outcome at a time at which r holds.
func (r *refusal) outcomeAt(now int64) core.Outcome {
	o, by := r.outcome, now-r.at
	if o.RetryAfter > 0 {
		o.RetryAfter -= by
	}
	if o.MoreAfter > 0 {
		o.MoreAfter -= by
	}
	if o.ResetAfter > 0 {
		o.ResetAfter -= by
	}
	return o
}

// refuse makes d the refusal that follows from published outcomes, if there is one.
// The charges may be invalid; then there is none.
//
// Keys that all requests share are searched here, and not by Take: other processors
// change them all the time, and a look costs as much as the lock.
func (s *Store) refuse(d *core.Decision, now int64, policy string, charges []core.Charge, keys []target) bool {
	var few [fewCharges]*refusal
	if len(keys) > len(few) {
		return false
	}
	refused := false
	for i := range keys {
		k := &keys[i]
		if k.entry == nil && charges[i].Key == "" {
			k.entry = s.shards[k.shard].keys.find(k.hash, policy, &charges[i])
		}
		if k.entry == nil {
			return false
		}
		r := k.entry.published()
		if r == nil || !r.holds(now, &charges[i]) {
			return false
		}
		for j := range i {
			if charges[j].Rule == charges[i].Rule {
				return false // an error
			}
		}
		few[i] = r
		refused = refused || !r.outcome.Fits()
	}
	if !refused {
		return false
	}
	for i := range keys {
		// What is still there was there all the time, so all outcomes held at once.
		if keys[i].entry.published() != few[i] {
			return false
		}
	}
	d.Start(now, len(keys))
	outcomes := d.Outcomes()
	for i, r := range few[:len(keys)] {
		outcomes[i] = r.outcomeAt(now)
	}
	return true
}

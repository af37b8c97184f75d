package core

import "slices"

// Tallies is the [State] of a key that versions of a rule charge by several algorithms. It has a
// tally for each: the state that the algorithm keeps. Whatever is admitted is charged to all
// tallies of units, and a version decides by its own. So it decides as if it had admitted all that
// any version admitted since its tally came.
//
// A tally comes with the first request that its version decides, but for looks. It begins with what
// the one that remembers longest says is spent, each unit dated as late as it can be. If it came
// with the first unit that is taken, others could keep its version out. It goes when its version
// has taken nothing for an hour and two of its spans.
//
// What another version admits is no debt: a bucket or a queue has no more to pay for it than its
// own capacity. Otherwise a fast version could keep a slow one waiting for as long as both are in
// use. What a [FixedWindow] has above its limit counts in the next window too, as with another
// grid. Leases, strikes and values are no units: only their own versions charge their tallies.
//
// The state that a key had before a second algorithm charged it is of a quota that is not known, so
// it cannot be charged. It is replaced by the first tally that comes.
type Tallies struct {
	State // of own

	list   []*tally
	before State // what the key had before, until the first tally comes
	of     Algorithm

	// of the last Advance
	own   *tally // not in list if its version has taken nothing yet
	quota Quota
	now   int64
}

// A tally is the state of one algorithm.
type tally struct {
	state      State
	quota      Quota // by which it is charged for what others admit
	came, used int64 // when its version took or was refused first, and last
}

// A teller is a state whose units other algorithms count, and which counts theirs.
type teller interface {
	State

	// tell takes n units that others used at a time up to now. If they are not owed, they
	// leave a bucket or queue that was charged with so much of its capacity as they can.
	tell(q *Quota, n, at, now int64, owed bool)

	// spent returns what counts, oldest first, by the window of the quota that charged, if known.
	spent(window int64) []spending
}

// A spending is some units that were used at a time or before.
type spending struct{ units, at int64 }

// NewTallies returns those of a key that has a state of an algorithm. The state belongs to
// them from then on.
func NewTallies(a Algorithm, state State) *Tallies { return &Tallies{before: state, of: a} }

// Alike reports whether two algorithms have one kind of state.
func (a Algorithm) Alike(b Algorithm) bool { return a.state() == b.state() }

// state returns the first algorithm with the same kind of state.
func (a Algorithm) state() Algorithm {
	if a == LeakyBucket {
		return TokenBucket
	}
	return a
}

// Only returns the state of the only algorithm that has charged the key for long, or nil. The
// tallies must not be used any more then.
func (t *Tallies) Only() (Algorithm, State) { return t.of, t.before }

func (t *Tallies) find(a Algorithm) *tally {
	if t.before != nil && t.of.Alike(a) {
		return &tally{state: t.before}
	}
	for _, one := range t.list {
		if one.quota.Algorithm.Alike(a) {
			return one
		}
	}
	return nil
}

// Advance implements [State].
func (t *Tallies) Advance(q *Quota, now int64) int64 {
	t.quota, t.now = *q, now
	if t.own = t.find(q.Algorithm); t.own == nil {
		t.own = &tally{state: NewState(q.Algorithm), came: now}
		t.fill(q)
	}
	t.State = t.own.state
	return t.State.Advance(q, now)
}

// fill makes the tally that comes count what is spent.
func (t *Tallies) fill(q *Quota) {
	mine, ok := t.own.state.(teller)
	if !ok {
		return
	}
	from, window, longest := t.before, q.Window, int64(0)
	if from != nil && from.Expires() <= t.now { // a store may have forgotten it
		return
	}
	for _, one := range t.list {
		if _, ok := one.state.(teller); ok && one.quota.Span() > longest && one.goes() > t.now {
			from, window, longest = one.state, one.quota.Window, one.quota.Span()
		}
	}
	if source, ok := from.(teller); ok {
		for _, s := range source.spent(window) {
			mine.tell(q, s.units, min(s.at, t.now), t.now, false)
		}
	}
}

// join notes that the version was charged, and drops what has gone out of use.
func (t *Tallies) join() {
	if t.own.state == t.before {
		return
	}
	t.own.used = t.now
	if q := &t.quota; q.holds() >= t.own.quota.holds() { // or the state counts for the larger one
		t.own.quota = *q
	}
	if !slices.Contains(t.list, t.own) {
		if _, units := t.before.(teller); t.before != nil && !units {
			t.list = append(t.list, &tally{state: t.before, quota: Quota{Algorithm: t.of}, used: t.now})
		}
		t.before = nil
		t.list = append(t.list, t.own)
	}
	t.list = slices.DeleteFunc(t.list, func(one *tally) bool { return one != t.own && one.goes() <= t.now })
	if len(t.list) == 1 && t.own.came+idleGrid+2*t.own.quota.Span() <= t.now {
		t.before, t.of, t.list = t.own.state, t.own.quota.Algorithm, nil
	}
}

// holds returns the most that a version leaves in a bucket, in units, and in a queue, in time.
func (q *Quota) holds() int64 {
	switch {
	case q.Queues():
		return q.Span()
	case q.Refills():
		return q.Burst
	}
	return 0
}

// goes returns when a tally goes if its version takes nothing more.
func (t *tally) goes() int64 {
	goes := t.used + idleGrid + 2*t.quota.Span()
	if _, units := t.state.(teller); !units {
		goes = max(goes, t.state.Expires())
	}
	return goes
}

// count takes units from all tallies but that of the version that has charged them.
func (t *Tallies) count(n, at int64, owed bool) {
	if _, units := t.State.(teller); !units {
		return
	}
	for _, one := range t.list {
		if other, units := one.state.(teller); units && one != t.own {
			other.tell(&one.quota, n, at, t.now, owed)
		}
	}
}

// Take implements [State].
func (t *Tallies) Take(n int64, id uint64) (room, delay int64) {
	room, delay = t.State.Take(n, id)
	t.join()
	t.count(n, t.now, false)
	return room, delay
}

// Refuse implements [State].
func (t *Tallies) Refuse(barred bool) bool {
	t.join()
	return t.State.Refuse(barred)
}

// Owe implements [State].
func (t *Tallies) Owe(q *Quota, n, at int64, id uint64, repaid bool) {
	t.State.Owe(q, n, at, id, repaid)
	t.join()
	t.count(n, at, true)
}

// Return implements [State]: tallies that knew when the units were taken get them back too,
// but for buckets, queues and calendars, whose units refill or end with their period.
func (t *Tallies) Return(r *Return, now int64) (given int64) {
	own := t.find(r.Quota.Algorithm)
	if own == nil || own.came > r.At {
		return 0
	}
	if given = own.state.Return(r, now); given == 0 {
		return 0
	}
	for _, one := range t.list {
		_, units := one.state.(teller)
		if one == own || !units || one.came > r.At || one.quota.Refills() || one.quota.Calendar.Unit != 0 {
			continue
		}
		other := *r
		other.Quota, other.Cost = one.quota, given
		one.state.Return(&other, now)
	}
	return given
}

// Renew implements [State].
func (t *Tallies) Renew(q *Quota, now int64, lease uint64) (held bool) {
	own := t.find(q.Algorithm)
	return own != nil && own.state.Renew(q, now, lease)
}

// Release implements [State].
func (t *Tallies) Release(q *Quota, now int64, lease uint64) {
	if own := t.find(q.Algorithm); own != nil {
		own.state.Release(q, now, lease)
	}
}

// Clone implements [State].
func (t *Tallies) Clone() State {
	copied := &Tallies{of: t.of}
	if t.before != nil {
		copied.before = t.before.Clone()
	}
	for _, one := range t.list {
		own := *one
		own.state = one.state.Clone()
		copied.list = append(copied.list, &own)
	}
	return copied
}

// Expires implements [State].
func (t *Tallies) Expires() (at int64) {
	if t.before != nil {
		at = t.before.Expires()
	}
	for _, one := range t.list {
		at = max(at, one.state.Expires(), one.goes())
	}
	return at
}

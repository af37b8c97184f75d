package guard

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// Doubts are the times since which the memory must admit too for a window: for all keys, if the
// store may have lost data and does not say so, or if not all debts could be noted; and otherwise
// for leases and bans that were decided without the store. See also [debts], which last until they
// are paid, and [raises].
type doubts struct {
	single  bool         // no other instance shares the store
	detects atomic.Bool  // the store reports lost data
	losses  func() int64 // how often it has lost data, which it may have reported to another guard; or nil
	known   atomic.Int64 // of them
	checks  atomic.Bool  // it is finding out
	marking atomic.Int64 // how many goroutines leave a mark of a loss
	unsure  moment       // when it last could not find out
	all     moment       // when all keys became doubtful
	leased  moment       // when this process last renewed a lease that the store does not know
	last    moment       // when this process last decided without the store
	seed    maphash.Seed // of the hashes of keys
	keys    [4096]moment // when it last decided so on the keys with a hash
	excused [4096]moment // when the store was last known to count less of them for another reason than a loss

	// suspect finds out whether the store has lost data; or nil
	suspect func(context.Context, core.Charge) error
}

// slack covers the time between two readings of clocks in this process.
const slack = 1_000

func (d *doubts) begin(store core.Store, single bool) {
	d.single, d.seed = single, maphash.MakeSeed()
	if s, ok := store.(interface{ Losses() int64 }); ok {
		d.losses = s.Losses
		d.known.Store(s.Losses())
	}
	if s, ok := store.(interface {
		Suspect(context.Context, core.Charge) error
	}); ok {
		d.suspect = s.Suspect
	}
}

// doubtful returns the charges for which the store may not know what this process admitted.
func (s *Store) doubtful(charges []core.Charge, now int64) (doubtful set) {
	d := &s.doubts
	if d.all.time() == never && d.leased.time() == never && d.last.time() == never && s.raises.lost.time() == never {
		return 0
	}
	doubtful = s.debts.owing(charges)
	for i := range charges {
		if d.doubt(&charges[i], now) || charges[i].OnError != core.Allow && s.unraised(&charges[i], now) {
			doubtful.add(i)
		}
	}
	return doubtful
}

// doubt reports whether c is doubtful for another reason than debts. A rule with
// [core.Allow] is not charged for requests admitted during an outage.
func (d *doubts) doubt(c *core.Charge, now int64) bool {
	last := d.since(c)
	if last == never || c.OnError == core.Allow {
		return false
	}
	// A bucket that is never full never forgets. The memory of a single instance
	// knows as much as the store, so it must admit from then on.
	return now-last < c.Quota.Span()+slack || d.single && c.Quota.Refills()
}

// since returns since when c is doubtful.
func (d *doubts) since(c *core.Charge) int64 {
	last := d.all.time()
	if c.Quota.Leases() {
		last = max(last, d.leased.time())
	}
	if (c.Quota.Leases() || c.Quota.Bars()) && d.last.time() != never {
		last = max(last, d.key(c).time())
	}
	return last
}

// remaining returns how long the doubt about c lasts, with several instances.
func (s *Store) remaining(c *core.Charge, now int64) int64 {
	if d := &s.doubts; d.doubt(c, now) {
		return d.since(c) + c.Quota.Span() + slack - now
	}
	return settling // about: until it is raised, or has paid
}

// begin notes that this process is about to decide charges without the store. The caller
// calls end after the decision. A store that does not report lost data may have lost it.
func (c *call) begin() {
	c.decided()
	c.owed = c.guard.doubts.detects.Load()
	if c.owed && !c.guard.debts.begin(c.charges, c.now) {
		c.guard.doubts.all.advance(c.now)
	}
}

// end notes what the decision that began owes.
func (c *call) end(admitted bool) {
	s := c.guard
	c.now = s.now()
	c.decided()
	s.doubtful(c.charges, c.now) // has the keys of the rules raised if the store has just lost data
	if !c.owed {
		return
	}
	if !s.debts.end(c.charges, admitted, c.now) {
		s.doubts.all.advance(c.now)
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	s.startTimer()
}

// decided notes that the charges are decided without the store, just before and after that.
func (c *call) decided() {
	d := &c.guard.doubts
	d.failed(c.now)
	at := d.last.next(c.now)
	for i := range c.charges {
		d.key(&c.charges[i]).advance(at)
	}
}

// decidedSince returns the charges that this process has decided without the store after
// the decision that was the last one then.
func (d *doubts) decidedSince(charges []core.Charge, then int64) (decided set) {
	if d.last.time() == then {
		return 0
	}
	for i := range charges {
		if charges[i].OnError != core.Allow && d.key(&charges[i]).time() > then {
			decided.add(i)
		}
	}
	return decided
}

// failed notes that a call has failed. The store may then lose its data, which
// matters unless it reports that.
func (d *doubts) failed(now int64) {
	if !d.detects.Load() {
		d.all.advance(now)
	}
}

// suspectEvery is how often the store is asked whether it has lost data, at most, while it does
// not say, and surelyEvery how often while it says no.
const (
	suspectEvery = 1_000_000
	surelyEvery  = 50_000
)

// maxMarking bounds the goroutines that leave marks of a loss at once.
const maxMarking = 64

// compare suspects that the store has lost data if it counts, of what it has admitted by d,
// less than half of what the memory does, by own of copies of the charges. The store would
// find out within a second, in which it may admit a limit once more.
func (c *call) compare(copies []core.Charge, own, d *core.Decision) {
	doubts := &c.guard.doubts
	if doubts.suspect == nil || !own.Allowed || own.Mode == core.ModeOverflow {
		return
	}
	for i := range copies {
		q := &c.charges[i].Quota
		if q.Leases() || q.Bars() || q.Queues() || q.Algorithm == core.Distinct || q.Refills() && c.guard.instances > 1 {
			continue // the memory and the store count other things
		}
		stored := q.Capacity() - d.Outcomes()[i].Remaining
		counts := copies[i].Quota.Capacity() - own.Outcomes()[i].Remaining
		if counts > 2*stored && c.now-doubts.excused[doubts.place(&c.charges[i])].time() >= q.Span()+slack {
			c.suspect(c.charges[i], stored, d.TimeOf(i))
		}
	}
}

// suspect has the store find out, beside the call, whether it has lost data, since it counted that
// many units of a charge. If those are of this call alone, all others are known to be lost, and
// each instance charges its own: the others learn of it by the mark that this leaves. If no data is
// lost, another instance may have reset the key. The memory counts what it took until that leaves
// the window.
func (c *call) suspect(charge core.Charge, stored, at int64) {
	s, d, now := c.guard, &c.guard.doubts, c.now
	store, ok := s.store.(finder)
	marks := ok && s.instances > 1 && stored == charge.Cost && dated(&charge.Quota)
	if marks && d.marking.Add(1) > maxMarking {
		d.marking.Add(-1)
		marks = false
	}
	checks := now-d.unsure.time() >= suspectEvery && d.checks.CompareAndSwap(false, true)
	if !marks && !checks {
		return
	}
	s.debts.after(0, func() {
		defer func() {
			_ = recover() // the store: a panic in this goroutine would end the program
			if checks {
				d.checks.Store(false)
			}
			if marks {
				d.marking.Add(-1)
			}
		}()
		if checks {
			d.unsure.advance(now)
			if d.suspect(context.Background(), charge) == nil {
				d.unsure.sinceNever.Store(now - never - suspectEvery + surelyEvery)
				d.excused[d.place(&charge)].advance(now)
			}
		}
		if marks {
			if _, err := store.Lost(context.Background(), []core.Charge{charge}, at); errors.Is(err, core.ErrForgotten) { // the call itself found that out
				_, _ = store.Lost(context.Background(), []core.Charge{charge}, at) // after an error the store is raised to what one instance counts
			}
		}
	})
}

// learn notes what the end of a call says about the data of the store.
func (s *Store) learn(err error, now int64) {
	d := &s.doubts
	if d.losses != nil {
		if n := d.losses(); n != d.known.Load() {
			s.lose(n, now)
		}
	}
	if err == nil || !errors.Is(err, core.ErrUnavailable) {
		return
	}
	lost := errors.Is(err, core.ErrForgotten)
	d.detects.Store(lost || errors.Is(err, core.ErrOutOfReach))
	if lost && d.losses == nil {
		s.lose(d.known.Load()+1, now)
	}
}

// key returns the time for the key of c. Keys with the same hash share it, which is safe.
func (d *doubts) key(c *core.Charge) *moment { return &d.keys[d.place(c)] }

// place returns the place of the key of c among those with a hash.
func (d *doubts) place(c *core.Charge) int {
	return int(maphash.Comparable(d.seed, debtorOf(c)) % uint64(len(d.keys)))
}

// A moment is a time in µs. The zero moment is never.
type moment struct{ sinceNever atomic.Int64 }

const never = -1 << 62

// next makes the moment later than it was, and no earlier than now. It returns the moment.
func (m *moment) next(now int64) int64 {
	for {
		last := m.sinceNever.Load()
		next := max(last+1, now-never)
		if m.sinceNever.CompareAndSwap(last, next) {
			return next + never
		}
	}
}

func (m *moment) time() int64 { return m.sinceNever.Load() + never }

// wall returns the moment on the wall clock, or the zero time.
func (m *moment) wall() (at time.Time) {
	if t := m.time(); t != never {
		at = time.UnixMicro(t).UTC()
	}
	return at
}

// advance makes the moment no earlier than now.
func (m *moment) advance(now int64) {
	for {
		last := m.sinceNever.Load()
		if last >= now-never || m.sinceNever.CompareAndSwap(last, now-never) {
			return
		}
	}
}

package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// Renew implements [core.Store]. The store says which leases are held. While it is unavailable, or
// may not know what was admitted without it, the memory does: it renews such a lease, and must
// admit other requests as long as the lease lives. If several instances share the store, the others
// do not count that lease; then it is renewed in memory, and Renew returns an error about it.
func (s *Store) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	own, err := s.own.Renew(context.Background(), charges)
	if err != nil {
		return nil, err
	}
	if s.overflows(s.now()) {
		for i := range charges { // they may be in overflow quotas
			s.overflow.advance(s.now() + 2*charges[i].Quota.Span())
		}
	}
	var held []bool
	err = s.try(ctx, func() (err error) {
		held, err = s.renew(ctx, charges)
		return err
	})
	asked := err == nil
	if err != nil && !unavailable(ctx, err) {
		return held, err
	}
	if len(held) != len(own) {
		held = make([]bool, len(own))
	}
	now, local := s.now(), false
	for i := range held {
		switch {
		case held[i] || !own[i]:
		case !asked || s.doubtful(charges[i:i+1], now).has(0):
			held[i], local = s.instances == 1, true
			s.doubts.leased.advance(now)
		default: // it has ended
			_ = s.own.Release(context.Background(), charges[i:i+1])
		}
	}
	if local && s.instances > 1 {
		return held, fmt.Errorf("%w: a lease is held by this instance alone", core.ErrUnavailable)
	}
	return held, nil
}

// Release implements [core.Store]. If the store is unavailable, Release returns no error:
// it is repeated when the store answers again, for as long as the lease can be held there.
func (s *Store) Release(ctx context.Context, charges []core.Charge) error {
	if err := s.own.Release(context.Background(), charges); err != nil {
		return err
	}
	began, until := s.now(), s.unreleased.until.time()
	err := s.try(ctx, func() error { return s.release(ctx, charges) })
	failed := err != nil && (ctx.Err() != nil || errors.Is(err, core.ErrUnavailable))
	if (failed || err == nil && began < until) && !s.unreleased.unknown(charges) {
		s.releaseLater(slices.Clone(charges), until)
	}
	if unavailable(ctx, err) {
		return nil
	}
	return err
}

const (
	maxUnreleased = 4_096   // requests with leases to release
	longestRetry  = 250_000 // µs until a failed release is repeated; each wait is twice as long as the one before
)

// Unreleased are leases that the store may hold and no request does: of a Release without an
// answer, and of a Take without an answer, if the request was not admitted. They would hold their
// slots for a Window. So they are released once the store answers again, those of one policy
// together. They have a timer of their own, so that a server that stays away does not hold up the
// debts to others.
type unreleased struct {
	list  []leases // oldest first; debts.mu
	armed bool     // their timer is set, or works; debts.mu

	// until is how long calls of Take without an answer may take leases of requests that
	// were admitted without the store. A Release before that is repeated after it.
	until moment

	unasked [4096]atomic.Uint64 // ids of leases that the store was never asked for, by their remainders
}

// own notes leases of a request that was admitted without asking the store. Releases of
// many such requests must not take the place of those that the store waits for.
func (u *unreleased) own(charges []core.Charge) {
	for i := range charges {
		if id := charges[i].ID; charges[i].Quota.Leases() {
			u.unasked[id%uint64(len(u.unasked))].Store(id)
		}
	}
}

// unknown reports whether the store was never asked for any of the leases.
func (u *unreleased) unknown(charges []core.Charge) bool {
	return !slices.ContainsFunc(charges, func(c core.Charge) bool { return u.unasked[c.ID%uint64(len(u.unasked))].Load() != c.ID })
}

// Leases are those of one request.
type leases struct {
	charges []core.Charge // of one policy
	due     int64         // when they can be released
	wait    int64         // after a failure
	ends    int64         // when they have ended by themselves
}

// unanswered notes a call to the store that may have taken leases, or may take them until
// a time: see [core.Store].
func (c *call) unanswered(err error) {
	if u := (*core.Unanswered)(nil); errors.As(err, &u) {
		c.mayTake = max(c.mayTake, c.now+max(0, time.Until(u.Until).Microseconds()))
	}
}

// forsake releases, at the end of Take, the leases that calls without an answer may have
// taken or may still take, unless the request is admitted: then Release does.
func (c *call) forsake(admitted bool) {
	held := slices.DeleteFunc(slices.Clone(c.charges), func(c core.Charge) bool { return !c.Quota.Leases() || c.Cost == 0 })
	switch {
	case len(held) == 0:
	case admitted:
		c.guard.unreleased.until.advance(c.mayTake)
	default:
		c.guard.releaseLater(held, c.mayTake)
	}
}

// releaseLater releases leases from a time on, as soon as the store answers.
func (s *Store) releaseLater(charges []core.Charge, due int64) {
	l := leases{charges: charges, due: due}
	for i := range charges {
		l.ends = max(l.ends, max(due, s.now())+charges[i].Quota.Window+slack)
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	if len(s.unreleased.list) < maxUnreleased { // the first ones of an outage are those that the store knows
		s.unreleased.list = append(s.unreleased.list, l)
		if !s.unreleased.armed {
			s.setReleases()
		}
	}
}

// setReleases sets the timer of releases, if there are any. The caller has locked the debts.
func (s *Store) setReleases() {
	u, in, now := &s.unreleased, int64(workEvery), s.now()
	if u.armed = len(u.list) > 0; !u.armed {
		return
	}
	if s.unavailable() {
		in = max(in, s.breaker.probeIn(now))
	}
	s.debts.after(time.Duration(in+rand.Int64N(workEvery))*time.Microsecond, func() {
		for s.releaseNext() {
		}
		s.debts.mu.Lock()
		defer s.debts.mu.Unlock()
		s.setReleases()
	})
}

// releaseNext releases leases of one policy in one call, and reports whether to go on. If the store
// does not answer, it keeps them for later, behind the others: in a Cluster another server may
// answer.
func (s *Store) releaseNext() (more bool) {
	a := attempt{guard: s, ctx: context.Background()}
	batch, charges := s.due()
	if batch == nil {
		return false
	}
	defer func() { _ = recover() }() // the store: a panic in this goroutine would end the program
	entered := a.enter()
	if entered {
		err := a.try(func() error { return s.release(a.ctx, charges) })
		if !errors.Is(err, core.ErrUnavailable) {
			return true // released, or they cannot be
		}
		for i := range batch {
			l := &batch[i]
			l.wait = min(max(workEvery, 2*l.wait), longestRetry)
			l.due = a.now + l.wait
		}
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	s.unreleased.list = append(s.unreleased.list, batch...)
	return entered
}

// due takes leases of one policy that are due from the list, as many as one call can
// release, with their charges. It drops those that have ended.
func (s *Store) due() (batch []leases, charges []core.Charge) {
	now, u := s.now(), &s.unreleased
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	u.list = slices.DeleteFunc(u.list, func(l leases) bool {
		if l.ends <= now {
			return true
		}
		due := l.due <= now && (batch == nil || l.charges[0].Policy == charges[0].Policy) && len(charges)+len(l.charges) <= core.MaxLeaseCharges
		if due {
			batch, charges = append(batch, l), append(charges, l.charges...)
		}
		return due
	})
	return batch, charges
}

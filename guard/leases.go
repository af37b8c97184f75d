package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

// Renew implements [core.Store]. The store says what is held. But while it may
// not know what was admitted without it, or does not answer, so does the memory:
// then a lease lives here, and as long as there is one, the memory has its say in
// who else is admitted. Where several instances share the store, the others do not
// count such a lease: then it is renewed here, and an error.
func (s *Store) Renew(ctx context.Context, policy string, charges []core.Charge) ([]bool, error) {
	own, err := s.own.Renew(context.Background(), policy, charges)
	if err != nil {
		return nil, err
	}
	var held []bool
	asked, err := s.call(ctx, func() (err error) {
		held, err = s.store.Renew(ctx, policy, charges)
		if err != nil || !s.own.Crowded() || !slices.Contains(held, false) {
			return err
		}
		there, err := s.store.Renew(ctx, policy, allShared(charges))
		for i := range there {
			held[i] = held[i] || there[i]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if !asked {
		held = make([]bool, len(own))
	}
	now, alone := s.now(), false
	for i := range held {
		switch {
		case held[i] || !own[i]:
		case s.doubts(policy, &charges[i], now) || !asked:
			held[i], alone = true, true
			s.doubt.leased.advance(now)
		default:
			_ = s.own.Release(context.Background(), policy, charges[i:i+1]) // it has ended
		}
	}
	if alone && s.instances > 1 {
		return nil, fmt.Errorf("%w: held by this instance alone", core.ErrUnavailable)
	}
	return held, nil
}

// Release implements [core.Store]. Of a store out of reach it says nothing: the
// lease ends by itself there.
func (s *Store) Release(ctx context.Context, policy string, charges []core.Charge) error {
	crowded := s.own.Crowded() // before it is released
	if err := s.own.Release(context.Background(), policy, charges); err != nil {
		return err
	}
	_, err := s.call(ctx, func() error {
		err := s.store.Release(ctx, policy, charges)
		if err == nil && crowded {
			err = s.store.Release(ctx, policy, allShared(charges))
		}
		return err
	})
	return err
}

// Return implements [core.Store]. What was admitted without the store comes back
// to the memory, and the rest to the store and to its copy in the memory. Where
// several instances share the rate of a bucket or queue, the copy stays: what
// the store had left says nothing of it. A store out of reach is an error.
func (s *Store) Return(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	copied := slices.Clone(returns)
	for i := range copied {
		r := &copied[i]
		r.Quota = share(r.Quota, s.instances)
		if r.Mode < core.ModeLocal {
			r.At = r.Copied
			if s.instances > 1 && rate(r.Quota) {
				r.Cost = 0
			}
		}
	}
	given, err := s.own.Return(context.Background(), policy, copied)
	if err != nil || returns[0].Mode >= core.ModeLocal {
		return given, err
	}
	asked, err := s.call(ctx, func() (err error) {
		if returns[0].Mode == core.ModeOverflow {
			given, err = s.returnOwn(ctx, policy, returns)
		} else {
			given, err = s.store.Return(ctx, policy, returns)
		}
		return err
	})
	if err == nil && !asked {
		err = fmt.Errorf("%w: nothing was given back to it", core.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	return given, nil
}

// returnOwn gives back to the store what can only have been taken from a key's
// own: that of rules that everyone shares. Of the others nobody remembers.
func (s *Store) returnOwn(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	given := make([]int64, len(returns))
	var list []core.Return
	for _, r := range returns {
		if r.Key == "" {
			list = append(list, r)
		}
	}
	if list == nil {
		return given, nil
	}
	back, err := s.store.Return(ctx, policy, list)
	if err != nil {
		return nil, err
	}
	for i := range returns {
		if returns[i].Key == "" {
			given[i], back = back[0], back[1:]
		}
	}
	return given, nil
}

// Reset implements [core.Store]: in the store, and in the memory of this
// process alone. A store out of reach is an error.
func (s *Store) Reset(ctx context.Context, policy, rule, key string) error {
	if err := s.own.Reset(ctx, policy, rule, key); err != nil {
		return err
	}
	return s.store.Reset(ctx, policy, rule, key)
}

// call calls the store if the breaker lets it, and reports whether it answered.
// That it is out of reach is no error.
func (s *Store) call(ctx context.Context, f func() error) (asked bool, err error) {
	start := s.now()
	may, probe := s.breaker.enter(start)
	if !may {
		s.mark("", nil, start)
		return false, nil
	}
	result := silent
	defer func() { s.breaker.leave(s.now(), probe, result) }()
	err = f()
	s.learn(err)
	result = s.judge(ctx, start, err)
	if ctx.Err() == nil && errors.Is(err, core.ErrUnavailable) {
		s.mark("", nil, s.now())
		return false, nil
	}
	return err == nil, err
}

// undo gives back what a store has admitted of a request that is refused after
// all. If that fails it stays spent, which is on the safe side, and leases end by
// themselves.
func undo(ctx context.Context, store core.Store, policy string, charges []core.Charge, d *core.Decision) {
	var leases []core.Charge
	var returns []core.Return
	for i, c := range charges {
		switch {
		case c.Cost == 0:
		case c.Quota.Algorithm == core.Concurrency:
			leases = append(leases, c)
		default:
			returns = append(returns, d.Return(i, c))
		}
	}
	if leases != nil {
		_ = store.Release(ctx, policy, leases)
	}
	if returns != nil {
		_, _ = store.Return(ctx, policy, returns)
	}
}

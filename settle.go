package limit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// ErrSettled is wrapped by the errors of [Decision.Settle] that has nothing to
// settle: the decision is a refusal, is not one of [Limiter.Reserve], or has been
// settled before. Nothing was changed.
var ErrSettled = errors.New("limit: nothing is reserved, or it has been settled")

// Reserve is [Limiter.TakeN] for a request whose cost is known only afterwards:
// bytes, tokens of a language model, rows of a query. It takes n, the most that
// it may cost, and [Decision.Settle] corrects that:
//
//	d, err := limiter.Reserve(ctx, rules, keys, 4_000)
//	…
//	err = d.Settle(ctx, used)
//
// What is never settled stays taken, so that a process that dies gives nothing
// away. Rules of [Concurrency] are not settled, but released.
func (l *Limiter) Reserve(ctx context.Context, rules RuleSet, keys Keys, n int64) (Decision, error) {
	d, err := l.TakeN(ctx, rules, keys, n)
	if err != nil || !d.Allowed || d.taken != nil {
		return d, err
	}
	s := scratches.Get().(*scratch)
	defer s.put()
	charges, err := d.policy.charges(s, d.route, keysSource{keys, l.options.Proxies.IPv6Prefix, n})
	if err != nil {
		return Decision{}, err
	}
	d.taken = newTaken(&d, charges)
	return d, nil
}

// Settle corrects what an admission of [Limiter.Reserve] has taken to n units of
// each rule, its true cost; 0 cancels it. It can be called once: the second time,
// on a copy of the decision too, returns [ErrSettled] and changes nothing.
//
// Of a lower cost the rest comes back, as far as its time has not passed: never
// to more than a whole quota, and never into another window. Of a higher cost it
// takes what the rules still have room for, and no more than their limits: so
// reserve the most that a request may cost. docs/algorithms.md says for each
// algorithm what comes back.
//
// An n below 0 is an error and settles nothing. An error that wraps
// [ErrUndecided] says that the store failed: then what was reserved may stay
// taken, and is not settled again.
func (d Decision) Settle(ctx context.Context, n int64) error {
	n, err := validCost(n)
	if err != nil {
		return &RuleError{Problem: err.Error()}
	}
	if d.taken == nil || !d.taken.begin() {
		return ErrSettled
	}
	_, err = d.taken.settle(ctx, func(int, int64) int64 { return n })
	return err
}

// taken is what an admitted request has taken and may give back. Copies of its
// decision share it.
type taken struct {
	store  Store
	policy string
	units  []core.Return // of all rules but those of Concurrency
	rules  []int         // which they are
	ended  atomic.Bool   // settled or given back
}

func newTaken(d *Decision, charges []core.Charge) *taken {
	t := &taken{store: d.policy.limiter.store, policy: d.route.policy}
	for i, c := range charges {
		if c.Quota.Algorithm != Concurrency {
			t.units = append(t.units, d.core.Return(i, c))
			t.rules = append(t.rules, i)
		}
	}
	return t
}

// begin reports whether nobody else has settled t, and now nobody else will.
func (t *taken) begin() bool { return t.ended.CompareAndSwap(false, true) }

// settle corrects what was taken to what cost returns for each rule and what it
// has been charged. It returns the units that each rule has got back.
func (t *taken) settle(ctx context.Context, cost func(rule int, charged int64) int64) (given [core.MaxCharges]int64, err error) {
	var less []core.Return
	var rules []int
	var errs []error
	for i, u := range t.units {
		switch n := cost(t.rules[i], u.Cost); {
		case n < u.Cost:
			u.Cost -= n
			less, rules = append(less, u), append(rules, t.rules[i])
		case n > u.Cost:
			u.Cost = n - u.Cost
			errs = append(errs, t.takeMore(ctx, u.Charge))
		}
	}
	if len(less) > 0 {
		back, err := t.store.Return(ctx, t.policy, less)
		for i := range back {
			given[rules[i]] = back[i]
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return given, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	return given, nil
}

// takeMore takes as much of a charge as there is room for.
func (t *taken) takeMore(ctx context.Context, c core.Charge) error {
	for range upToTries {
		d, err := t.store.Take(ctx, t.policy, []core.Charge{c})
		if err != nil || d.Allowed {
			return err
		}
		if c.Cost = min(c.Cost-1, d.Outcomes()[0].Remaining); c.Cost < 1 {
			return nil
		}
	}
	return nil
}

// settleTime bounds what a request waits for after its response, or after its
// client has gone.
const settleTime = time.Second

// giveBack gives back all that can be of what was taken, whatever has ended, and
// returns how much that is for each rule.
func (t *taken) giveBack() (given [core.MaxCharges]int64) {
	if t == nil || !t.begin() {
		return given
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	given, _ = t.settle(ctx, func(int, int64) int64 { return 0 }) // or it stays taken
	return given
}

// Done ends an admitted request that has been answered with a status, for
// adapters: it settles the rules that have a [Rule].Settle, and does what
// [Decision.Release] does. It does nothing the second time, and on a refusal.
// Errors of the store are told to [Options].Observe; what was charged then stays
// so. It waits for the store, at most a second for each of the two.
func (d Decision) Done(r *http.Request, status int) {
	defer d.Release()
	if d.taken == nil || !d.policy.settles || !d.taken.begin() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), settleTime)
	defer cancel()
	var wrong error
	_, err := d.taken.settle(ctx, func(rule int, charged int64) int64 {
		settle := d.policy.set.rules[rule].Settle
		if settle == nil {
			return charged
		}
		n, err := validCost(settle(r, status))
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%w: rule %q: settled: %w", ErrUndecided, d.policy.names[rule], err))
			return charged
		}
		return n
	})
	if err := errors.Join(err, wrong); err != nil {
		l := d.policy.limiter
		l.failed(&l.notices.unsettled, "limit: an admitted request could not be settled", r, d, err)
	}
}

// OnStatus returns a function for [Rule].Settle: only requests that are answered
// with one of the statuses count, such as the failed attempts of a login. Until
// a request is answered it counts as well, so that many at once do not slip
// through.
func OnStatus(statuses ...int) func(*http.Request, int) int64 {
	counts := make(map[int]bool, len(statuses))
	for _, s := range statuses {
		counts[s] = true
	}
	return func(_ *http.Request, status int) int64 {
		if counts[status] {
			return 1
		}
		return 0
	}
}

package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// ErrSettled is returned by [Decision.Settle] when there is nothing to settle: the
// decision is a refusal, was not made by [Policy.Reserve] or [Policy.Wait], or has
// been settled. Nothing was changed.
var ErrSettled = errors.New("limit: nothing is reserved, or it has been settled")

// Settle corrects what [Policy.Reserve] or [Policy.Wait] took to n units of each rule,
// the true cost of the request; 0 cancels the reservation. Other numbers leave strikes
// of a [Ban] and values of [Distinct] as they are. Settle can be called once. A second
// call, also on a copy of the decision, returns [ErrSettled].
//
// If the cost is lower, the rest is refunded, as far as its time has not passed:
// never beyond a full quota, and never into another window. If it is higher,
// Settle takes what the rules have room for, and no more: so reserve the most that
// a request may cost. docs/algorithms.md says what each algorithm refunds.
//
// A negative n is an error and settles nothing. An error that wraps
// [ErrUndecided] means that the store failed: then the reservation may stay taken,
// and cannot be settled again.
func (d Decision) Settle(ctx context.Context, n int64) error {
	n, err := validCost(n)
	if err != nil {
		return &RuleError{Problem: err.Error()}
	}
	if d.taken == nil || !d.taken.begin() {
		return ErrSettled
	}
	_, err = d.taken.settle(ctx, func(rule int, charged int64) int64 {
		if n > 0 && d.policy.set.rules[rule].noQuota() {
			return charged
		}
		return n
	})
	return err
}

// OnStatus returns a settlement for [Rule].Settle: only requests that are answered
// with one of the statuses count, such as failed attempts to log in. They count what
// they were charged. Until a request is answered it counts too, so that many attempts
// at once do not slip through: set the Limit above the number of good requests of a
// key in flight. For a [Ban] an answer is at least one strike, and a request that is
// not answered is none: put a rule beside it that bounds attempts at once. OnStatus
// panics without a status, and on a number that is no final status.
func OnStatus(statuses ...int) (s Settlement) {
	if len(statuses) == 0 {
		panic("limit: OnStatus without a status never counts: write at least one, such as http.StatusUnauthorized")
	}
	for _, status := range statuses {
		if status < minStatus || status > maxStatus {
			panic(fmt.Sprintf("limit: OnStatus(%d): write statuses from %d to %d", status, minStatus, maxStatus))
		}
		s.add(status)
	}
	return s
}

// asCharged stands for the true cost of a request that keeps its charge. A cost is
// never negative.
const asCharged = math.MinInt64

// taken is what an admitted request took and may give back. Copies of its
// decision share it.
type taken struct {
	limiter *Limiter
	policy  string
	units   []core.Return // of all rules but those of Concurrency
	rules   []int         // the index of each
	ended   atomic.Bool   // settled or given back

	reserved bool // by Policy.Reserve

	// What charges that decide alone took when the request asked first, if it was
	// admitted later. A Return is for one decision, so this is settled by another.
	earlier *taken
}

func newTaken(d *Decision, charges []core.Charge) *taken {
	t := &taken{limiter: d.policy.limiter, policy: d.route.stored,
		units: make([]core.Return, 0, len(charges)), rules: make([]int, 0, len(charges))}
	for i, c := range charges {
		if !c.Quota.Leases() && d.core.Took(i) && !d.caller.exempts(i) {
			t.units = append(t.units, d.core.Return(i, c))
			t.rules = append(t.rules, i)
		}
	}
	return t
}

// begin reports whether the caller is the one that may settle t.
func (t *taken) begin() bool {
	first := t.ended.CompareAndSwap(false, true)
	if first && t.reserved {
		t.limiter.settled.Add(1)
	}
	return first
}

// settle corrects what was taken to what cost returns for each rule and its
// charge. It returns the units that each rule got back.
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
		back, err := t.limiter.store.Return(ctx, t.policy, less)
		for i := range back {
			given[rules[i]] = back[i]
			t.limiter.refilled(t.policy, less[i].Rule, less[i].Key)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return given, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if t.earlier != nil {
		_, err = t.earlier.settle(ctx, cost)
	}
	return given, err
}

// takeMore takes as much of a charge as there is room for.
func (t *taken) takeMore(ctx context.Context, c core.Charge) error {
	for range upToTries {
		d, err := t.limiter.store.Take(ctx, t.policy, []core.Charge{c})
		if err != nil || d.Took(0) {
			return err
		}
		if c.Cost = min(c.Cost-1, d.Outcomes()[0].Remaining-c.Reserve); c.Cost < 1 {
			return nil
		}
	}
	return nil
}

// dropAlone leaves in t what a refusal gives back.
func (t *taken) dropAlone() {
	units, rules := t.units, t.rules
	t.units, t.rules, t.earlier = nil, nil, nil
	for i := range units {
		if !units[i].Alone {
			t.units, t.rules = append(t.units, units[i]), append(t.rules, rules[i])
		}
	}
}

// settleTimeout bounds what a request waits for after its response, or after its
// client has disconnected.
const settleTimeout = time.Second

// giveBack gives back what was taken, whatever context has ended, and returns how
// much that is for each rule. The request is refused after all, so charges that
// decide alone stay taken.
func (t *taken) giveBack() (given [core.MaxCharges]int64) {
	if t == nil || !t.begin() {
		return given
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	t.dropAlone()
	given, _ = t.settle(ctx, func(int, int64) int64 { return 0 }) // otherwise it stays taken
	return given
}

// settleBy settles the rules that have a [Rule].Settle by the status of an admitted
// request's response. It may wait up to a second for the store.
func (d Decision) settleBy(r *http.Request, status int) {
	if !d.taken.begin() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), settleTimeout)
	defer cancel()
	var invalid error
	_, err := d.taken.settle(ctx, func(rule int, charged int64) int64 {
		settle := &d.policy.set.rules[rule].Settle
		if *settle == (Settlement{}) {
			return charged
		}
		n := settle.units(r, status)
		switch {
		case n == asCharged && d.policy.set.rules[rule].bars():
			return max(1, charged) // a strike
		case n == asCharged:
			return charged
		}
		n, err := validCost(n)
		if err != nil {
			invalid = errors.Join(invalid, fmt.Errorf("%w: rule %q: settled: %w", ErrUndecided, d.policy.names[rule], err))
			return charged
		}
		return n
	})
	if err := errors.Join(err, invalid); err != nil {
		l := d.policy.limiter
		l.failed(unsettledRequest, r, d, err)
	}
}

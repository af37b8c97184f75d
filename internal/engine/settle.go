package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// settleTimeout bounds what a request waits for after its response, or after its
// client has disconnected.
const settleTimeout = time.Second

// settling returns the context of a call that outlives the request: a memory store, which
// answers at once, needs none.
func (e *Engine) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.InMemory {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
}

// taken is what an admitted request took and may give back. Copies of its decision share
// it.
type taken struct {
	engine   *Engine
	units    []unit
	ended    atomic.Bool // settled or given back
	reserved bool        // whether it is counted as a reservation
	slot     time.Time   // when the slot of a queue comes, if the decision has a Delay
}

// A unit is what one rule took, other than leases.
type unit struct {
	rule    int
	watches bool // whether the rule decided beside the others
	core.Return
}

// keep remembers what an admitted request took, and when its slot comes.
func (r *Run) keep() error {
	if d := &r.result; d.Allowed {
		d.taken = r.newTaken()
		d.taken.slot = time.Now().Add(core.Duration(d.Delay))
	}
	return nil
}

func (r *Run) newTaken() *taken {
	t := &taken{engine: r.plan.engine, units: make([]unit, 0, len(r.Charges))}
	for u := range r.took {
		t.units = append(t.units, u)
	}
	return t
}

// took ranges over what the run took.
func (r *Run) took(yield func(unit) bool) {
	for i, c := range r.asks[0].Charges {
		if !c.Quota.Leases() && !yield(unit{int(r.rules[i]), false, r.asks[0].Decision.Return(i, c)}) {
			return
		}
	}
	for i := range r.asks[1:] {
		if a := &r.asks[1+i]; a.Decision.Allowed && !yield(unit{int(r.watches[i]), true, a.Decision.Return(0, a.Charges[0])}) {
			return
		}
	}
}

// Keep makes an admitted decision a reservation: it can be settled, and is counted until
// it is.
func (r *Run) Keep(d *Decision) {
	if !d.Allowed {
		return
	}
	if d.taken == nil {
		d.taken = r.newTaken()
	}
	d.taken.reserved = true
	r.plan.engine.reserved.Add(1)
}

// Alike reports whether all rules of a request that can be settled took as many units, apart
// from bans, values, and rules that only watch.
func (d *Decision) Alike() bool {
	cost := int64(-1)
	for i := range d.taken.units {
		u := &d.taken.units[i]
		if u.watches || !u.Quota.Spends() {
			continue
		}
		if cost >= 0 && u.Cost != cost {
			return false
		}
		cost = u.Cost
	}
	return true
}

// Settles reports whether the request can still be settled.
func (d *Decision) Settles() bool { return d.taken != nil && !d.taken.ended.Load() }

// begin reports whether the caller is the one that may settle t.
func (t *taken) begin() bool {
	first := t.ended.CompareAndSwap(false, true)
	if first && t.reserved {
		t.engine.settled.Add(1)
	}
	return first
}

// rest ends t, which has given back its units, but for what is left of them: that may still be
// settled.
func (t *taken) rest() {
	t.ended.Store(false)
	if len(t.units) == 0 {
		t.begin()
	}
}

// Settle corrects what the request took to what cost returns for each rule and its
// charge. A lower cost refunds the rest; a higher one takes what there is room for, or, as
// far as the rule has debts, what it is. It returns how many units are beyond that of rules
// that have debts, and [ErrSettled] if there is nothing to settle, or it has been settled. An
// error that wraps [ErrUndecided] means that the store failed.
func (d *Decision) Settle(ctx context.Context, cost func(rule int, charged int64) int64) (forgiven int64, err error) {
	if d.taken == nil || !d.taken.begin() {
		return 0, ErrSettled
	}
	_, forgiven, err = d.taken.settle(ctx, d.taken.units, cost)
	return forgiven, err
}

// settle returns the units that each rule got back, and how many were forgiven.
func (t *taken) settle(ctx context.Context, units []unit, cost func(rule int, charged int64) int64) (given [core.MaxCharges]int64, forgiven int64, err error) {
	var less []core.Return
	var more []core.Charge
	var owed []core.Ask
	enforced := 0 // of owed, which come first
	var rules []int
	for _, u := range units {
		switch n := cost(u.rule, u.Cost); {
		case n < u.Cost:
			u.Cost -= n
			less, rules = append(less, u.Return), append(rules, u.rule)
		case n > u.Cost:
			if u.Cost = n - u.Cost; u.MaxDebt == 0 {
				more = append(more, u.Charge)
				continue
			}
			u.Debt, u.Reserve = true, 0
			if owed = append(owed, core.Ask{Charges: []core.Charge{u.Charge}}); !u.watches {
				enforced++
			}
		}
	}
	forgiven, err = t.owe(ctx, owed, enforced)
	err = errors.Join(t.takeMore(ctx, more), err)
	if len(less) > 0 {
		back, problem := t.engine.Store.Return(ctx, less)
		for i := range back {
			given[rules[i]] = back[i].Units
			t.engine.Refilled(&less[i].Charge)
		}
		err = errors.Join(err, problem)
	}
	if err != nil {
		return given, forgiven, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	return given, forgiven, nil
}

// owe takes debts. What the first of them, of rules that enforce, do not take is forgiven.
func (t *taken) owe(ctx context.Context, asks []core.Ask, enforced int) (forgiven int64, err error) {
	if len(asks) == 0 {
		return 0, nil
	}
	if err := t.engine.Store.Take(ctx, asks); err != nil {
		return 0, err
	}
	for i := range asks[:enforced] {
		forgiven += asks[i].Decision.Forgiven
	}
	t.engine.forgiven.Add(forgiven)
	return forgiven, nil
}

// takeMore takes as much of each charge as there is room for. It asks for all at once, and
// again, for less, for those that did not fit.
func (t *taken) takeMore(ctx context.Context, charges []core.Charge) error {
	for try := 0; try < mostTries && len(charges) > 0; try++ {
		asks := make([]core.Ask, len(charges))
		for i := range charges {
			asks[i].Charges = charges[i : i+1]
		}
		if err := t.engine.Store.Take(ctx, asks); err != nil {
			return err
		}
		var rest []core.Charge
		for i, c := range charges {
			if d := &asks[i].Decision; !d.Allowed {
				if c.Cost = min(c.Cost-1, d.Outcomes()[0].Remaining-c.Reserve); c.Cost > 0 {
					rest = append(rest, c)
				}
			}
		}
		charges = rest
	}
	return nil
}

// giveBack gives back what was taken, whatever context has ended, and returns how much
// that is for each rule. The request is refused after all, so what rules took that
// watched stays taken.
func (t *taken) giveBack() (given [core.MaxCharges]int64) {
	if t == nil || !t.begin() {
		return given
	}
	ctx, cancel := t.engine.settling(context.Background())
	defer cancel()
	units := t.units
	for i := range units {
		if units[i].watches {
			units = units[:i] // they are last
			break
		}
	}
	given, _, _ = t.settle(ctx, units, func(int, int64) int64 { return 0 }) // otherwise it stays taken
	return given
}
